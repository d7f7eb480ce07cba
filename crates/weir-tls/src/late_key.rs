//! Keys that are made when they are used first.
//!
//! Making an ECDSA key from its file takes a tenth of a millisecond, most of it to see that its halves fit, and a kilobyte.
//! A server with a hundred thousand certificates uses few of them, and must start at once. So here the public half is
//! taken as the file has it, which is enough to recognize another certificate's key; a file whose halves don't fit is
//! noticed by the first handshake.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::der::{self, EC, RSA};

/// A key whose file has its public half.
pub(crate) struct LateKey {
    der: PrivateKeyDer<'static>,
    algorithm: SignatureAlgorithm,
    /// `None` inside: the file is no key.
    made: OnceLock<Option<Arc<dyn SigningKey>>>,
}

impl LateKey {
    /// `Err`: RSA and ECDSA keys only, and of these only those with the public half beside the private one.
    pub(crate) fn new(der: PrivateKeyDer<'static>) -> Result<LateKey, PrivateKeyDer<'static>> {
        match public(&der) {
            Some((algorithm, _)) => Ok(LateKey { der, algorithm, made: OnceLock::new() }),
            None => Err(der),
        }
    }

    fn key(&self) -> Option<&Arc<dyn SigningKey>> {
        self.made.get_or_init(|| any_supported_type(&self.der).ok()).as_ref()
    }
}

impl SigningKey for LateKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.key()?.choose_scheme(offered)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        public(&self.der).map(|(_, info)| SubjectPublicKeyInfoDer::from(info))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }
}

impl fmt::Debug for LateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Late")
    }
}

/// What kind of key it is, and its public half as certificates have it (RFC 5280, section 4.1.2.7).
fn public(key: &PrivateKeyDer<'_>) -> Option<(SignatureAlgorithm, Vec<u8>)> {
    match key {
        PrivateKeyDer::Pkcs1(key) => rsa(key.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(key) => ec(key.secret_sec1_der(), None),
        PrivateKeyDer::Pkcs8(key) => pkcs8(key.secret_pkcs8_der()),
        _ => None,
    }
}

/// RFC 5958, section 2.
fn pkcs8(der: &[u8]) -> Option<(SignatureAlgorithm, Vec<u8>)> {
    let (key, _) = der::expect(der, der::SEQUENCE)?;
    let (_version, rest) = der::expect(key, der::INTEGER)?;
    let (algorithm, rest) = der::expect(rest, der::SEQUENCE)?;
    let (inner, _) = der::expect(rest, der::OCTETS)?;
    let (oid, parameters) = der::expect(algorithm, der::OID)?;
    match oid {
        RSA => rsa(inner),
        EC => ec(inner, Some(der::element(parameters)?.all)),
        _ => None,
    }
}

/// RFC 8017, appendix A.1.2: modulus and public exponent are first.
fn rsa(der: &[u8]) -> Option<(SignatureAlgorithm, Vec<u8>)> {
    let (key, _) = der::expect(der, der::SEQUENCE)?;
    let (_version, numbers) = der::expect(key, der::INTEGER)?;
    let modulus = der::element(numbers).filter(|it| it.tag == der::INTEGER)?;
    let exponent = der::element(modulus.rest).filter(|it| it.tag == der::INTEGER)?;
    let public = der::encode(der::SEQUENCE, &[modulus.all, exponent.all]);
    const NULL: &[u8] = &[5, 0];
    Some((SignatureAlgorithm::RSA, info(RSA, NULL, &[&[0], &public])))
}

/// RFC 5915, section 3; `curve`: as the container names it.
fn ec(der: &[u8], curve: Option<&[u8]>) -> Option<(SignatureAlgorithm, Vec<u8>)> {
    let (key, _) = der::expect(der, der::SEQUENCE)?;
    let (_version, rest) = der::expect(key, der::INTEGER)?;
    let (_private, mut rest) = der::expect(rest, der::OCTETS)?;
    let mut curve = curve;
    const PARAMETERS: u8 = 0xa0;
    if let Some((own, after)) = der::expect(rest, PARAMETERS) {
        curve = curve.or(Some(own));
        rest = after;
    }
    const PUBLIC: u8 = 0xa1;
    let (public, _) = der::expect(rest, PUBLIC)?;
    let (bits, _) = der::expect(public, der::BITS)?;
    Some((SignatureAlgorithm::ECDSA, info(EC, curve?, &[bits])))
}

fn info(oid: &[u8], parameters: &[u8], bits: &[&[u8]]) -> Vec<u8> {
    let oid = der::encode(der::OID, &[oid]);
    let algorithm = der::encode(der::SEQUENCE, &[&oid, parameters]);
    der::encode(der::SEQUENCE, &[&algorithm, &der::encode(der::BITS, bits)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    fn der(pair: &KeyPair) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(pair.serialize_der()).into()
    }

    #[test]
    fn the_public_half_is_what_the_whole_key_has() {
        for kind in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
            let pair = KeyPair::generate_for(kind).expect("a key");
            let whole = any_supported_type(&der(&pair)).expect("a key");
            let late = LateKey::new(der(&pair)).expect("its public half is there");
            assert_eq!(late.public_key(), whole.public_key());
            assert_eq!(late.algorithm(), whole.algorithm());
            assert!(late.made.get().is_none());
            let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ECDSA_NISTP384_SHA384];
            let scheme = |key: &dyn SigningKey| key.choose_scheme(&schemes).map(|it| it.scheme());
            assert_eq!(scheme(&late), scheme(&*whole));
            assert!(late.made.get().is_some());
        }
    }

    #[test]
    fn another_certificate_s_key_is_told_without_making_it() {
        let (own, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let certificate = rcgen::CertificateParams::default().self_signed(&own).expect("signed").pem();
        let chain = || crate::certificate::chain(certificate.as_bytes()).expect("a certificate");
        let late =
            |pair: &KeyPair| crate::key::read_late(pair.serialize_pem().as_bytes(), &[]).expect("a key");
        assert!(crate::Certificate::new(chain(), late(&own), None).is_ok());
        let error = crate::Certificate::new(chain(), late(&other), None).expect_err("another key");
        assert_eq!(error.to_string(), "key values mismatch");
    }

    #[test]
    fn a_key_without_its_public_half_is_none() {
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        assert!(LateKey::new(der(&pair)).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            pkcs8(&bytes);
            rsa(&bytes);
            ec(&bytes, None);
        }
    }
}
