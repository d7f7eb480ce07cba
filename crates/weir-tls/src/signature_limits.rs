//! Which signatures a handshake may use, where a configuration narrows them (OpenSSL's `SignatureAlgorithms`).

use std::sync::Arc;

use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::error::{Error, content};
use crate::suites;

/// The schemes of signatures that one side of a handshake is limited to, by their numbers (RFC 8446 section 4.2.3).
#[derive(Clone, Debug, Default)]
pub struct SignatureLimits {
    /// Those that the peer may use; `None`: all that can be verified.
    pub peer: Option<Arc<[u16]>>,
    /// Those that the own keys are used with; `None`: all that they can make.
    pub own: Option<Arc<[u16]>>,
}

/// A list of signature algorithms as it was read.
#[derive(Debug)]
pub struct SignatureList<'l> {
    /// The schemes, in order; there is one at least.
    pub schemes: Vec<u16>,
    /// What OpenSSL knows and this program cannot make nor verify.
    pub lacking: Vec<&'l str>,
}

/// The signatures that can be verified.
pub(crate) fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Reads a list in OpenSSL's words: names of schemes (`rsa_pss_rsae_sha256`), or a kind of key and a hash (`ECDSA+SHA256`,
/// `RSA-PSS+SHA384`), between colons.
///
/// # Errors
/// A word is unknown, or nothing of the list can be had.
pub fn select_signatures(list: &str) -> Result<SignatureList<'_>, Error> {
    let available = algorithms().supported_schemes();
    let (mut schemes, mut lacking) = (Vec::new(), Vec::new());
    for word in list.split(':') {
        let scheme =
            scheme(word).ok_or_else(|| content(format!("unknown signature algorithm \"{word}\"")))?;
        match available.contains(&SignatureScheme::from(scheme)) {
            true if !schemes.contains(&scheme) => schemes.push(scheme),
            true => {}
            false => lacking.push(word),
        }
    }
    match schemes.is_empty() {
        true => Err(content("none of these signature algorithms can be had")),
        false => Ok(SignatureList { schemes, lacking }),
    }
}

fn scheme(word: &str) -> Option<u16> {
    let Some((key, hash)) = word.split_once('+') else {
        return suites::signature_number(word);
    };
    let begin = match key {
        "RSA" => "rsa_pkcs1_",
        "RSA-PSS" | "PSS" => "rsa_pss_rsae_",
        "ECDSA" => "ecdsa_",
        _ => return None,
    };
    let end = match hash {
        "SHA1" => "sha1",
        "SHA224" => "sha224",
        "SHA256" => "sha256",
        "SHA384" => "sha384",
        "SHA512" => "sha512",
        _ => return None,
    };
    suites::signature_number_between(begin, end)
}

/// `key`, which makes signatures of the schemes `own` only.
pub(crate) fn limited(key: &Arc<CertifiedKey>, own: Option<&Arc<[u16]>>) -> Arc<CertifiedKey> {
    let Some(own) = own else { return key.clone() };
    let CertifiedKey { cert, key, ocsp } = &**key;
    let limited = LimitedKey { key: key.clone(), schemes: own.clone() };
    Arc::new(CertifiedKey { cert: cert.clone(), key: Arc::new(limited), ocsp: ocsp.clone() })
}

/// Whether a scheme is among those that a list allows; without one all are.
pub(crate) fn allows(list: Option<&Arc<[u16]>>, scheme: SignatureScheme) -> bool {
    list.is_none_or(|list| list.contains(&u16::from(scheme)))
}

/// A key that is used with some schemes only.
#[derive(Debug)]
struct LimitedKey {
    key: Arc<dyn SigningKey>,
    schemes: Arc<[u16]>,
}

impl SigningKey for LimitedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let both: Vec<SignatureScheme> =
            offered.iter().copied().filter(|scheme| allows(Some(&self.schemes), *scheme)).collect();
        self.key.choose_scheme(&both)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let list = select_signatures(list).expect("it can be had");
        list.schemes.iter().map(|number| suites::signature_name(*number)).collect()
    }

    #[test]
    fn lists_are_read_in_openssls_words() {
        assert_eq!(
            names("RSA-PSS+SHA256:PSS+SHA384:RSA+SHA512:ECDSA+SHA256:ed25519:rsa_pss_rsae_sha256"),
            [
                "rsa_pss_rsae_sha256",
                "rsa_pss_rsae_sha384",
                "rsa_pkcs1_sha512",
                "ecdsa_secp256r1_sha256",
                "ed25519"
            ]
        );
        let list = select_signatures("ed448:ECDSA+SHA1:ECDSA+SHA384").expect("one is left");
        assert_eq!(list.lacking, ["ed448", "ECDSA+SHA1"]);
    }

    #[test]
    fn what_openssl_does_not_know_is_refused() {
        for list in ["", "x", "RSA+MD5", "DH+SHA256", "RSA+SHA256:", "rsa+sha256", "ed448"] {
            assert!(select_signatures(list).is_err(), "{list}");
        }
    }
}
