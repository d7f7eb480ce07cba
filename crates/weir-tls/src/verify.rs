//! What rustls sees of a peer's certificate: that it is fine, if the peer has its key. Whether it is trusted is
//! checked after the handshake ([`crate::chain`]), since nginx responds to requests of an untrusted client.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::session::HandshakeNotes;
use crate::signature_limits::{algorithms, allows};

/// Takes any certificate of a client, or none.
#[derive(Debug)]
pub(crate) struct AnyClient {
    subjects: Vec<DistinguishedName>,
    schemes: Option<Arc<[u16]>>,
}

impl AnyClient {
    /// `schemes`: the signatures that are taken, if not all that can be verified are.
    pub(crate) fn new(subjects: Vec<DistinguishedName>, schemes: Option<Arc<[u16]>>) -> AnyClient {
        AnyClient { subjects, schemes }
    }
}

/// Takes any certificate of a server.
#[derive(Debug)]
pub(crate) struct AnyServer {
    /// The signatures that are taken, if not all that can be verified are.
    pub(crate) schemes: Option<Arc<[u16]>>,
}

/// What both sides' verifiers do with signatures; the two traits of rustls ask for the same methods.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            check_limit(self.schemes.as_ref(), signed.scheme)?;
            signature(message, certificate, signed, false)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            check_limit(self.schemes.as_ref(), signed.scheme)?;
            signature(message, certificate, signed, true)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            let mut schemes = algorithms().supported_schemes();
            schemes.retain(|scheme| allows(self.schemes.as_ref(), *scheme));
            schemes
        }
    };
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}

/// A peer that signs with a scheme that it was not offered is refused.
fn check_limit(schemes: Option<&Arc<[u16]>>, scheme: SignatureScheme) -> Result<(), Error> {
    match allows(schemes, scheme) {
        true => Ok(()),
        false => Err(Error::InvalidCertificate(CertificateError::BadSignature)),
    }
}

/// Whether `signed` is a signature of `message` by the key of `certificate`, which may be of any version of X.509.
fn signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    tls13: bool,
) -> Result<HandshakeSignatureValid, Error> {
    HandshakeNotes::note_peer(signed.scheme);
    let bad = |error: CertificateError| Error::InvalidCertificate(error);
    let algorithms = algorithms();
    let usable = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let (_, usable) = usable.ok_or_else(|| bad(CertificateError::BadSignature))?;
    if tls13 && !is_tls13(signed.scheme) {
        return Err(bad(CertificateError::BadSignature));
    }
    // TLS 1.3 binds a scheme to one kind of key, the first; TLS 1.2 lets any curve go with any hash.
    let usable = if tls13 { &usable[..usable.len().min(1)] } else { *usable };
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| bad(CertificateError::BadEncoding))?;
    match verify(usable, &parsed, message, signed.signature()) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(bad(CertificateError::BadSignature)),
    }
}

/// Whether one of `algorithms` is for the key of `certificate` and verifies `signature`.
pub(crate) fn verify(
    algorithms: &[&dyn SignatureVerificationAlgorithm],
    certificate: &X509Certificate<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let key = certificate.public_key();
    let Some(id) = algorithm_id(key.raw) else { return false };
    let mut fitting = algorithms.iter().filter(|algorithm| algorithm.public_key_alg_id().as_ref() == id);
    fitting.any(|it| it.verify_signature(&key.subject_public_key.data, message, signature).is_ok())
}

/// Whether `signature` is one of `message` by the key `spki`, with `scheme`.
#[cfg(feature = "pkcs11")]
pub(crate) fn by_key(spki: &[u8], scheme: SignatureScheme, message: &[u8], signature: &[u8]) -> bool {
    let Some((_, key)) = x509_parser::x509::SubjectPublicKeyInfo::from_der(spki).ok() else { return false };
    let Some(id) = algorithm_id(spki) else { return false };
    let all = algorithms();
    let usable = all.mapping.iter().find(|(it, _)| *it == scheme).map_or(&[][..], |(_, usable)| usable);
    let mut fitting = usable.iter().filter(|algorithm| algorithm.public_key_alg_id().as_ref() == id);
    fitting.any(|it| it.verify_signature(&key.subject_public_key.data, message, signature).is_ok())
}

/// The content of the AlgorithmIdentifier at the beginning of a SubjectPublicKeyInfo.
fn algorithm_id(spki: &[u8]) -> Option<&[u8]> {
    let (info, _) = crate::der::expect(spki, crate::der::SEQUENCE)?;
    crate::der::expect(info, crate::der::SEQUENCE).map(|(id, _)| id)
}

/// RFC 8446, section 4.2.3: no PKCS#1 padding and no SHA-1 in handshakes of TLS 1.3.
fn is_tls13(scheme: SignatureScheme) -> bool {
    use SignatureScheme as S;
    matches!(
        scheme,
        S::ECDSA_NISTP256_SHA256
            | S::ECDSA_NISTP384_SHA384
            | S::ECDSA_NISTP521_SHA512
            | S::RSA_PSS_SHA256
            | S::RSA_PSS_SHA384
            | S::RSA_PSS_SHA512
            | S::ED25519
            | S::ED448
    ) || u16::from(scheme) >> 8 == 0x09
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_of_tls_1_3_are_these() {
        use SignatureScheme as S;
        for (scheme, expected) in [
            (S::ECDSA_NISTP256_SHA256, true),
            (S::RSA_PSS_SHA512, true),
            (S::ED25519, true),
            (S::from(0x0904), true),
            (S::from(0x0804), true),
            (S::from(0x1909), false),
            (S::RSA_PKCS1_SHA256, false),
            (S::RSA_PKCS1_SHA1, false),
            (S::ECDSA_SHA1_Legacy, false),
        ] {
            assert_eq!(is_tls13(scheme), expected, "{scheme:?}");
        }
    }

    #[test]
    fn only_schemes_that_were_offered_are_taken() {
        let only: Arc<[u16]> = Arc::from([0x0403]);
        assert!(check_limit(None, SignatureScheme::ED25519).is_ok());
        assert!(check_limit(Some(&only), SignatureScheme::ECDSA_NISTP256_SHA256).is_ok());
        assert!(check_limit(Some(&only), SignatureScheme::ED25519).is_err());
        let client = AnyClient::new(vec![DistinguishedName::from(vec![1, 2])], Some(only));
        let hints: Vec<&[u8]> = client.root_hint_subjects().iter().map(AsRef::as_ref).collect();
        assert_eq!((hints, client.client_auth_mandatory()), (vec![&[1, 2][..]], false));
        assert_eq!(client.supported_verify_schemes(), [SignatureScheme::ECDSA_NISTP256_SHA256]);
        assert!(AnyServer { schemes: None }.supported_verify_schemes().len() > 5);
    }
}
