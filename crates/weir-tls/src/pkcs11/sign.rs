//! Signatures by a device. Digests are made here: devices then need only the plain mechanisms, which all have.

use std::sync::Arc;

use aws_lc_rs::digest::{self, SHA256, SHA384, SHA512};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::KeyUri;
use super::device::OpenDevice;
use crate::error::{Error, content};
use crate::key::{self, KeyKind};

/// As [`super::key`].
pub(super) fn key(uri: KeyUri, certificate: &[u8]) -> Result<Arc<dyn SigningKey>, Error> {
    let public =
        crate::facts::public_key(certificate).ok_or_else(|| content("the certificate is malformed"))?;
    let schemes: &'static [SignatureScheme] = match key::kind(&public) {
        Some(KeyKind::Rsa) => RSA,
        Some(KeyKind::P256) => &[SignatureScheme::ECDSA_NISTP256_SHA256],
        Some(KeyKind::P384) => &[SignatureScheme::ECDSA_NISTP384_SHA384],
        None => {
            let text = "keys of PKCS#11 devices are RSA, or ECDSA on P-256 or P-384";
            return Err(Error::Unsupported(text.to_owned()));
        }
    };
    let device = Arc::new(OpenDevice::open(uri)?);
    let key = DeviceKey { device, schemes, public: public.into() };
    key.prove()?;
    Ok(Arc::new(key))
}

/// Those with the shortest digests first: they are no weaker than the keys.
const RSA: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

/// A key in a device.
#[derive(Debug)]
struct DeviceKey {
    device: Arc<OpenDevice>,
    schemes: &'static [SignatureScheme],
    public: SubjectPublicKeyInfoDer<'static>,
}

impl DeviceKey {
    /// Whether the key is the certificate's: by a signature, since devices keep public halves apart, or not at all.
    fn prove(&self) -> Result<(), Error> {
        let Some(signer) = self.choose_scheme(self.schemes) else { return Ok(()) };
        const MESSAGE: &[u8] = b"a key and its certificate";
        let signature = signer.sign(MESSAGE)?;
        match crate::verify::by_key(&self.public, signer.scheme(), MESSAGE, &signature) {
            true => Ok(()),
            false => Err(content("key values mismatch")),
        }
    }
}

impl SigningKey for DeviceKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = self.schemes.iter().copied().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(DeviceSigner { device: self.device.clone(), scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.schemes.first() {
            Some(SignatureScheme::ECDSA_NISTP256_SHA256 | SignatureScheme::ECDSA_NISTP384_SHA384) => {
                SignatureAlgorithm::ECDSA
            }
            _ => SignatureAlgorithm::RSA,
        }
    }
}

/// A signature to be made.
#[derive(Debug)]
struct DeviceSigner {
    device: Arc<OpenDevice>,
    scheme: SignatureScheme,
}

impl Signer for DeviceSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let (mechanism, data) = prepared(self.scheme, message);
        let signature = self.device.sign(&mechanism, &data);
        let signature = signature.map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(if matches!(mechanism, Mechanism::Ecdsa) { ecdsa(&signature) } else { signature })
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// The mechanism for `scheme`, and what it is given.
fn prepared(scheme: SignatureScheme, message: &[u8]) -> (Mechanism<'static>, Vec<u8>) {
    use SignatureScheme as S;
    let (digest, hash_alg, mgf, prefix) = match scheme {
        S::RSA_PSS_SHA384 | S::RSA_PKCS1_SHA384 | S::ECDSA_NISTP384_SHA384 => {
            (&SHA384, MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, SHA384_INFO)
        }
        S::RSA_PSS_SHA512 | S::RSA_PKCS1_SHA512 => {
            (&SHA512, MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, SHA512_INFO)
        }
        _ => (&SHA256, MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, SHA256_INFO),
    };
    let hash = digest::digest(digest, message);
    let hash = hash.as_ref();
    match scheme {
        S::RSA_PSS_SHA256 | S::RSA_PSS_SHA384 | S::RSA_PSS_SHA512 => {
            let s_len = (hash.len() as u64).into();
            (Mechanism::RsaPkcsPss(PkcsPssParams { hash_alg, mgf, s_len }), hash.to_vec())
        }
        S::RSA_PKCS1_SHA256 | S::RSA_PKCS1_SHA384 | S::RSA_PKCS1_SHA512 => {
            (Mechanism::RsaPkcs, [prefix, hash].concat())
        }
        _ => (Mechanism::Ecdsa, hash.to_vec()),
    }
}

/// The two numbers that a device gives, one after the other, as TLS has them: a sequence of two (RFC 3279, 2.2.3).
fn ecdsa(numbers: &[u8]) -> Vec<u8> {
    let (r, s) = numbers.split_at(numbers.len() / 2);
    let mut both = Vec::with_capacity(numbers.len() + 8);
    for number in [r, s] {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = &number[zeros.min(number.len().saturating_sub(1))..];
        let sign = usize::from(number.first().is_some_and(|byte| byte & 0x80 != 0));
        both.extend([0x02, (number.len() + sign) as u8]);
        both.extend(std::iter::repeat_n(0, sign));
        both.extend_from_slice(number);
    }
    // Of P-384 at most 102 bytes.
    let mut out = vec![0x30, both.len() as u8];
    out.append(&mut both);
    out
}

// DigestInfo without its digest (RFC 8017, section 9.2, note 1).
const SHA256_INFO: &[u8] = &[
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];
const SHA384_INFO: &[u8] = &[
    0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00,
    0x04, 0x30,
];
const SHA512_INFO: &[u8] = &[
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00,
    0x04, 0x40,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_signature_become_a_sequence() {
        let mut numbers = vec![0; 64];
        (numbers[31], numbers[32]) = (5, 0x80);
        let mut expected = vec![0x30, 38, 2, 1, 5, 2, 33, 0, 0x80];
        expected.extend([0; 31]);
        assert_eq!(ecdsa(&numbers), expected);
        assert_eq!(ecdsa(&[0; 64]), [0x30, 6, 2, 1, 0, 2, 1, 0]);
    }
}
