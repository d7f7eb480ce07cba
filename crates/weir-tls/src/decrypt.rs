//! Encrypted private keys: PKCS#8 with PBES2 (RFC 8018), and the encryption of OpenSSL's old PEM files.

use aws_lc_rs::cipher::{AES_128, AES_192, AES_256, Algorithm, DecryptionContext};
use aws_lc_rs::cipher::{PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use md5::{Digest, Md5};
use std::num::NonZeroU32;

use crate::der::{self, INTEGER, OCTETS, OID, SEQUENCE};
use crate::error::{Error, content};
use crate::pem::PemBlock;

/// The PKCS#8 key inside an EncryptedPrivateKeyInfo.
///
/// # Errors
/// [`Error::Password`] for a wrong one, [`Error::Unsupported`] for schemes other than PBES2 with PBKDF2 and AES.
pub(crate) fn pkcs8(der: &[u8], password: &[u8]) -> Result<Vec<u8>, Error> {
    let (scheme, data) = outer(der).ok_or_else(|| content("the encrypted key is malformed"))?;
    let scheme = scheme?;
    let mut key = vec![0; key_len(scheme.cipher)];
    pbkdf2::derive(scheme.prf, scheme.iterations, scheme.salt, password, &mut key);
    cbc(scheme.cipher, &key, scheme.iv, data)
}

/// How a PKCS#8 key is encrypted.
struct EncryptionScheme<'b> {
    prf: pbkdf2::Algorithm,
    salt: &'b [u8],
    iterations: NonZeroU32,
    cipher: &'static Algorithm,
    iv: [u8; 16],
}

type EncryptedContainer<'b> = (Result<EncryptionScheme<'b>, Error>, &'b [u8]);

fn outer(der: &[u8]) -> Option<EncryptedContainer<'_>> {
    let (info, _) = der::expect(der, SEQUENCE)?;
    let (algorithm, rest) = der::expect(info, SEQUENCE)?;
    let (data, _) = der::expect(rest, OCTETS)?;
    let (oid, parameters) = der::expect(algorithm, OID)?;
    if oid != PBES2 {
        let error = Error::Unsupported("only keys encrypted with PBES2 can be read".to_owned());
        return Some((Err(error), data));
    }
    let (parameters, _) = der::expect(parameters, SEQUENCE)?;
    let (derivation, rest) = der::expect(parameters, SEQUENCE)?;
    let (encryption, _) = der::expect(rest, SEQUENCE)?;
    Some((scheme(derivation, encryption)?, data))
}

/// `None`: malformed.
fn scheme<'b>(derivation: &'b [u8], encryption: &'b [u8]) -> Option<Result<EncryptionScheme<'b>, Error>> {
    let unsupported =
        |what: &str| Some(Err(Error::Unsupported(format!("keys encrypted with {what} can't be read"))));
    let (oid, parameters) = der::expect(derivation, OID)?;
    if oid != PBKDF2 {
        let what = if oid == SCRYPT { "scrypt" } else { "another key derivation than PBKDF2" };
        return unsupported(what);
    }
    let (parameters, _) = der::expect(parameters, SEQUENCE)?;
    let (salt, rest) = der::expect(parameters, OCTETS)?;
    let (count, rest) = der::expect(rest, INTEGER)?;
    let iterations = der::number(count).and_then(NonZeroU32::new)?;
    // An optional key length is before the function.
    let rest = der::expect(rest, INTEGER).map_or(rest, |(_, rest)| rest);
    let prf = match der::expect(rest, SEQUENCE) {
        None => pbkdf2::PBKDF2_HMAC_SHA1,
        Some((prf, _)) => match der::expect(prf, OID)?.0 {
            HMAC_SHA1 => pbkdf2::PBKDF2_HMAC_SHA1,
            HMAC_SHA256 => pbkdf2::PBKDF2_HMAC_SHA256,
            HMAC_SHA384 => pbkdf2::PBKDF2_HMAC_SHA384,
            HMAC_SHA512 => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return unsupported("an unknown function of PBKDF2"),
        },
    };
    let (oid, parameters) = der::expect(encryption, OID)?;
    let cipher = match oid {
        AES_128_CBC => &AES_128,
        AES_192_CBC => &AES_192,
        AES_256_CBC => &AES_256,
        DES_EDE3_CBC => return unsupported("DES-EDE3-CBC"),
        DES_CBC => return unsupported("DES-CBC"),
        _ => return unsupported("another cipher than AES-CBC"),
    };
    let iv = der::expect(parameters, OCTETS)?.0.try_into().ok()?;
    Some(Ok(EncryptionScheme { prf, salt, iterations, cipher, iv }))
}

/// The content of an old PEM block with `DEK-Info`.
///
/// # Errors
/// As [`pkcs8`].
pub(crate) fn legacy(block: &PemBlock, password: &[u8]) -> Result<Vec<u8>, Error> {
    let info = block.header("DEK-Info").unwrap_or_default();
    let (name, iv) = info.split_once(',').unwrap_or((info, ""));
    let cipher = match name.trim() {
        "AES-128-CBC" => &AES_128,
        "AES-192-CBC" => &AES_192,
        "AES-256-CBC" => &AES_256,
        other => return Err(Error::Unsupported(format!("keys encrypted with {other} can't be read"))),
    };
    let iv: [u8; 16] = hex(iv.trim())
        .and_then(|iv| iv.try_into().ok())
        .ok_or_else(|| content("the encrypted key has no initialisation vector"))?;
    let key = bytes_to_key(password, &iv[..8], key_len(cipher));
    cbc(cipher, &key, iv, &block.bytes)
}

/// OpenSSL's derivation by MD5, one round.
fn bytes_to_key(password: &[u8], salt: &[u8], len: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while key.len() < len {
        last = Md5::new().chain_update(&last).chain_update(password).chain_update(salt).finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(len);
    key
}

fn key_len(cipher: &Algorithm) -> usize {
    if cipher == &AES_128 {
        16
    } else if cipher == &AES_192 {
        24
    } else {
        32
    }
}

fn cbc(cipher: &'static Algorithm, key: &[u8], iv: [u8; 16], data: &[u8]) -> Result<Vec<u8>, Error> {
    let key = UnboundCipherKey::new(cipher, key).map_err(|_| Error::Password)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| Error::Password)?;
    let mut data = data.to_vec();
    let plain = key
        .decrypt(&mut data, DecryptionContext::Iv128(FixedLength::from(iv)))
        .map_err(|_| Error::Password)?;
    // Padding fits by chance once in 256 wrong passwords; a key is a sequence as long as all there is.
    match der::element(plain) {
        Some(key) if key.tag == SEQUENCE && key.rest.is_empty() => Ok(plain.to_vec()),
        _ => Err(Error::Password),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

// Object identifiers, as encoded.
const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
/// id-scrypt, 1.3.6.1.4.1.11591.4.11
const SCRYPT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x04, 0x0b];
const DES_EDE3_CBC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x03, 0x07];
const DES_CBC: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x07];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
const HMAC_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x07];
const HMAC_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x09];
const HMAC_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x0a];
const HMAC_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x0b];
const AES_128_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x02];
const AES_192_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x16];
const AES_256_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x2a];
