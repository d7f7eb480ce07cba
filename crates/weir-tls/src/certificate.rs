//! Certificates with their keys, as `ssl_certificate` and `ssl_certificate_key` name them.

use std::sync::Arc;

pub use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey};

use crate::error::{Error, content};
use crate::{der, facts, pem, revocation};

/// How long using a key takes, and so where that is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyEffort {
    /// Below half a millisecond: anywhere.
    Short,
    /// A signature with RSA of 2,048 bits takes 0.3 ms, one of 3,072 bits three times as long: where no connection
    /// waits for it.
    Long,
    /// As long as a device takes, which is waited for.
    Device,
}

/// A chain of certificates with the key of the first.
#[derive(Clone, Debug)]
pub struct Certificate(pub(crate) Arc<CertifiedKey>, KeyEffort);

impl Certificate {
    /// Whether `other` is a clone of this one.
    pub fn is_same(&self, other: &Certificate) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Puts a chain and its key together; `ocsp` is stapled.
    ///
    /// # Errors
    /// The key is another certificate's, in OpenSSL's words.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn SigningKey>,
        ocsp: Option<Vec<u8>>,
    ) -> Result<Certificate, Error> {
        let first = chain.first().ok_or_else(|| content(NO_CERTIFICATE))?;
        if facts::public_key(first).is_none() {
            return Err(content(MALFORMED));
        }
        Certificate::new_late(chain, key, ocsp)
    }

    /// As [`Certificate::new`], for very many: of the certificate nothing but its key is looked at.
    ///
    /// # Errors
    /// As there; what is wrong within the certificate may be noticed by clients first.
    pub fn new_late(
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn SigningKey>,
        ocsp: Option<Vec<u8>>,
    ) -> Result<Certificate, Error> {
        let first = chain.first().ok_or_else(|| content(NO_CERTIFICATE))?;
        if let Some(public) = key.public_key() {
            let own = facts::public_key_within(first).ok_or_else(|| content(MALFORMED))?;
            if own != public.as_ref() {
                return Err(content("key values mismatch"));
            }
        }
        let long = crate::key::rsa_bits(&*key).is_some_and(|bits| bits >= LONG_BITS);
        let effort = if long { KeyEffort::Long } else { KeyEffort::Short };
        Ok(Certificate(Arc::new(CertifiedKey { cert: chain, key, ocsp }), effort))
    }

    /// The certificate with another OCSP response to staple, as encoded; `None`: with none.
    #[must_use]
    pub fn with_ocsp(&self, ocsp: Option<Vec<u8>>) -> Certificate {
        let CertifiedKey { cert, key, .. } = &*self.0;
        Certificate(Arc::new(CertifiedKey { cert: cert.clone(), key: key.clone(), ocsp }), self.1)
    }

    /// The certificate, marked as one whose key is in a device.
    #[must_use]
    pub fn in_device(self) -> Certificate {
        Certificate(self.0, KeyEffort::Device)
    }

    /// How long using its key takes.
    pub fn effort(&self) -> KeyEffort {
        self.1
    }

    /// The chain, the server's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.cert
    }

    /// The private key of the server's own certificate, which signs in handshakes.
    pub fn key(&self) -> &Arc<dyn SigningKey> {
        &self.0.key
    }
}

/// The certificates of `text`, in order. Of a trusted certificate with auxiliary data that data is left out.
///
/// # Errors
/// There is no certificate, or a block of the text is malformed.
pub fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let mut chain = Vec::new();
    for block in pem::whole(text).ok_or_else(|| content("bad base64 decode"))? {
        if matches!(block.label.as_str(), "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE") {
            let element = der::element(&block.bytes).ok_or_else(|| content("bad certificate encoding"))?;
            chain.push(CertificateDer::from(element.all.to_vec()));
        }
    }
    if chain.is_empty() {
        return Err(content(NO_CERTIFICATE));
    }
    // There may be very many, mostly of one certificate.
    chain.shrink_to_fit();
    Ok(chain)
}

/// Certificates as encoded, one after the other.
///
/// # Errors
/// There is no certificate, or one is malformed.
pub fn chain_of_der(der: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let (mut rest, mut chain) = (der, Vec::new());
    while !rest.is_empty() || chain.is_empty() {
        let malformed = || content("bad certificate encoding");
        let element = der::element(rest).ok_or_else(malformed)?;
        facts::public_key(element.all).ok_or_else(malformed)?;
        chain.push(CertificateDer::from(element.all.to_vec()));
        rest = element.rest;
    }
    Ok(chain)
}

/// The revocation lists of `text`.
///
/// # Errors
/// There is no list, or one is malformed.
pub fn crls(text: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let blocks = pem::blocks(text).into_iter();
    let lists: Vec<Vec<u8>> =
        blocks.filter(|block| block.label == "X509 CRL").map(|block| block.bytes).collect();
    if lists.is_empty() {
        return Err(content("no start line: Expecting: X509 CRL"));
    }
    // What can't be read would be as if it were not there.
    match lists.iter().all(|list| revocation::read(list).is_some()) {
        true => Ok(lists),
        false => Err(content("bad CRL encoding")),
    }
}

/// An encoded certificate (DER) as PEM.
pub fn to_pem(certificate: &[u8]) -> String {
    pem::encode("CERTIFICATE", certificate)
}

/// See [`KeyEffort::Long`].
const LONG_BITS: usize = 3072;
const MALFORMED: &str = "the certificate is malformed";
const NO_CERTIFICATE: &str = "no start line: Expecting: TRUSTED CERTIFICATE";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chains_stand_one_behind_the_other() {
        let signed = || {
            let key = rcgen::KeyPair::generate().expect("a key");
            rcgen::CertificateParams::default().self_signed(&key).expect("signed").der().to_vec()
        };
        let (first, second) = (signed(), signed());
        let chain = chain_of_der(&[&first[..], &second].concat()).expect("two certificates");
        assert_eq!(chain.iter().map(|it| it.to_vec()).collect::<Vec<_>>(), [first.clone(), second]);
        for wrong in [&first[..first.len() - 1], &[], &[&first[..], b"x"].concat()] {
            assert!(chain_of_der(wrong).is_err(), "{} bytes", wrong.len());
        }
    }

    #[test]
    fn a_key_is_found_without_looking_at_the_rest() {
        let (key, other) = (rcgen::KeyPair::generate(), rcgen::KeyPair::generate());
        let (key, other) = (key.expect("a key"), other.expect("a key"));
        let signed = rcgen::CertificateParams::new(vec!["a.example.com".to_owned()]).expect("a name");
        let der = signed.self_signed(&key).expect("signed").der().to_vec();
        assert_eq!(facts::public_key_within(&der).map(<[u8]>::to_vec), facts::public_key(&der));
        for end in 0..der.len() {
            assert_eq!(facts::public_key_within(&der[..end]), None);
        }
        let made = |key: &rcgen::KeyPair| {
            let key = crate::key::from_der(&key.serialize_der()).expect("a key");
            Certificate::new_late(vec![CertificateDer::from(der.clone())], key, None)
        };
        assert!(made(&key).is_ok());
        assert_eq!(made(&other).expect_err("another's").to_string(), "key values mismatch");
    }

    #[test]
    fn lists_are_read_from_their_blocks_or_refused() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut authority = rcgen::CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let own = authority.self_signed(&key).expect("signed").der().to_vec();
        let params = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2025, 1, 1),
            next_update: rcgen::date_time_ymd(2026, 1, 1),
            crl_number: rcgen::SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&rcgen::Issuer::new(authority, &key)).expect("signed").der().to_vec();
        let (list_text, own_text) = (pem::encode("X509 CRL", &list), to_pem(&own));
        assert_eq!(chain(own_text.as_bytes()).expect("a certificate"), [CertificateDer::from(own)]);
        let both = format!("{own_text}{list_text}{list_text}");
        assert_eq!(crls(both.as_bytes()).expect("two lists"), [list.clone(), list.clone()]);
        assert!(crls(own_text.as_bytes()).is_err());
        let cut = pem::encode("X509 CRL", &list[..list.len() - 1]);
        assert!(crls(format!("{list_text}{cut}").as_bytes()).is_err());
    }

    #[test]
    fn a_clone_is_the_same() {
        let made = || {
            let key = rcgen::KeyPair::generate().expect("a key");
            let own = rcgen::CertificateParams::default().self_signed(&key).expect("signed");
            let key = crate::key::from_der(&key.serialize_der()).expect("a key");
            Certificate::new(vec![own.der().clone()], key, None).expect("its own key")
        };
        let (first, second) = (made(), made());
        assert!(first.is_same(&first.clone()) && !first.is_same(&second));
        assert!(!first.is_same(&first.with_ocsp(None)));
        assert_eq!((first.effort(), first.chain().len()), (KeyEffort::Short, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(chain_of_der(&bytes).is_err(), "no certificate is that short");
        }
    }
}
