//! Private keys from PEM: PKCS#8, PKCS#1 and SEC1, encrypted or not.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
pub use rustls::sign::SigningKey;

use crate::der::{EC, RSA};
use crate::error::{Error, content};
use crate::late_key::LateKey;
use crate::{decrypt, der, pem};

/// The first private key of `text`, opened by one of `passwords` if it is encrypted.
///
/// # Errors
/// There is no key, no password fits, or it is of a kind that can't be had.
pub fn read(text: &[u8], passwords: &[Vec<u8>]) -> Result<Arc<dyn SigningKey>, Error> {
    Ok(any_supported_type(&encoded(text, passwords)?)?)
}

/// As [`read`], but the key is made when it is used first, if its public half is known without that.
///
/// # Errors
/// As [`read`]; what is wrong within a key may be noticed only when it is used.
pub fn read_late(text: &[u8], passwords: &[Vec<u8>]) -> Result<Arc<dyn SigningKey>, Error> {
    match LateKey::new(encoded(text, passwords)?) {
        Ok(late) => Ok(Arc::new(late)),
        Err(key) => Ok(any_supported_type(&key)?),
    }
}

/// The first private key of `text` as encoded, opened by one of `passwords` if it is encrypted.
///
/// # Errors
/// As [`read`], but what is wrong within the key is not looked at.
pub fn to_der(text: &[u8], passwords: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    Ok(encoded(text, passwords)?.secret_der().to_vec())
}

/// A key as encoded: PKCS#8, PKCS#1 or SEC1.
///
/// # Errors
/// It is not one of them, or of a kind that can't be had.
pub fn from_der(der: &[u8]) -> Result<Arc<dyn SigningKey>, Error> {
    let key = PrivateKeyDer::try_from(der.to_vec()).map_err(content)?;
    Ok(any_supported_type(&key)?)
}

fn encoded(text: &[u8], passwords: &[Vec<u8>]) -> Result<PrivateKeyDer<'static>, Error> {
    let blocks = pem::blocks(text);
    let block = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY"));
    let block = block.ok_or_else(|| content("no start line: Expecting: ANY PRIVATE KEY"))?;
    let encrypted = block.label == "ENCRYPTED PRIVATE KEY" || block.header("DEK-Info").is_some();
    let der = if encrypted { decrypted(block, passwords)? } else { block.bytes.clone() };
    match block.label.as_str() {
        "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(der.into())),
        "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(der.into())),
        "PRIVATE KEY" | "ENCRYPTED PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(der.into())),
        other => Err(Error::Unsupported(format!("keys of the kind \"{other}\" can't be used"))),
    }
}

fn decrypted(block: &pem::PemBlock, passwords: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let mut last = Error::Password;
    for password in passwords {
        let opened = match block.header("DEK-Info") {
            Some(_) => decrypt::legacy(block, password),
            None => decrypt::pkcs8(&block.bytes, password),
        };
        match opened {
            Ok(der) => return Ok(der),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A key that a device may have.
#[cfg_attr(not(feature = "pkcs11"), allow(dead_code, reason = "only devices' keys are told apart by it"))]
pub(crate) enum KeyKind {
    /// Of whatever length.
    Rsa,
    /// ECDSA on the curve P-256.
    P256,
    /// ECDSA on the curve P-384.
    P384,
}

/// The kind of key that a SubjectPublicKeyInfo is for, if a device may have it.
#[cfg_attr(not(feature = "pkcs11"), allow(dead_code, reason = "as for Kind"))]
pub(crate) fn kind(spki: &[u8]) -> Option<KeyKind> {
    let (info, _) = der::expect(spki, der::SEQUENCE)?;
    let (algorithm, _) = der::expect(info, der::SEQUENCE)?;
    let (oid, parameters) = der::expect(algorithm, der::OID)?;
    match oid {
        RSA => Some(KeyKind::Rsa),
        EC => match der::expect(parameters, der::OID)?.0 {
            P256 => Some(KeyKind::P256),
            P384 => Some(KeyKind::P384),
            _ => None,
        },
        _ => None,
    }
}

/// Whether two SubjectPublicKeyInfo are of the same kind of key: both RSA, both ECDSA.
pub fn same_kind(a: &[u8], b: &[u8]) -> bool {
    let kind = |spki| {
        let (info, _) = der::expect(spki, der::SEQUENCE)?;
        let (algorithm, _) = der::expect(info, der::SEQUENCE)?;
        der::expect(algorithm, der::OID).map(|(oid, _)| oid)
    };
    kind(a).is_some_and(|own| kind(b) == Some(own))
}

/// Bits of an RSA key, by its public half; `None` for others.
pub(crate) fn rsa_bits(key: &dyn SigningKey) -> Option<usize> {
    let spki = key.public_key()?;
    let (info, _) = der::expect(spki.as_ref(), der::SEQUENCE)?;
    let (algorithm, rest) = der::expect(info, der::SEQUENCE)?;
    if der::expect(algorithm, der::OID)?.0 != RSA {
        return None;
    }
    let (bits, _) = der::expect(rest, der::BITS)?;
    let (numbers, _) = der::expect(bits.get(1..)?, der::SEQUENCE)?;
    let (modulus, _) = der::expect(numbers, der::INTEGER)?;
    Some(modulus.strip_prefix(&[0]).unwrap_or(modulus).len() * 8)
}

/// prime256v1
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// secp384r1
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
