//! Whether one certificate issued another: by their names and keys' identifiers, and by the signature.

use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::extensions::{ParsedExtension, X509Extension};
use x509_parser::oid_registry::{OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_SUBJECT_KEY_IDENTIFIER};

use crate::der;
use crate::signature_limits::algorithms;
use crate::verify::verify;

/// Whether `certificate` names `issuer` as its own: by name, and by the identifier of its key where both have one.
pub(crate) fn issued(issuer: &X509Certificate<'_>, certificate: &X509Certificate<'_>) -> bool {
    if issuer.subject().as_raw() != certificate.issuer().as_raw() {
        return false;
    }
    let authority = extension(certificate, &OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER);
    let own = extension(issuer, &OID_X509_EXT_SUBJECT_KEY_IDENTIFIER);
    match (authority.map(|it| it.parsed_extension()), own.map(|it| it.parsed_extension())) {
        (
            Some(ParsedExtension::AuthorityKeyIdentifier(authority)),
            Some(ParsedExtension::SubjectKeyIdentifier(own)),
        ) => authority.key_identifier.as_ref().is_none_or(|wanted| wanted == own),
        _ => true,
    }
}

fn extension<'p, 'c>(certificate: &'p X509Certificate<'c>, oid: &Oid<'_>) -> Option<&'p X509Extension<'c>> {
    certificate.tbs_certificate.get_extension_unique(oid).ok().flatten()
}

pub(crate) fn signed_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let signed = all_with(algorithms().all, certificate.signature_algorithm.oid().as_bytes());
    verify(&signed, issuer, certificate.tbs_certificate.as_ref(), &certificate.signature_value.data)
}

pub(crate) type VerifyAlgorithm = &'static dyn rustls::pki_types::SignatureVerificationAlgorithm;

/// The algorithms whose identifier of a signature begins with the object identifier `oid`.
pub(crate) fn all_with(all: &'static [VerifyAlgorithm], oid: &[u8]) -> Vec<VerifyAlgorithm> {
    let is = |it: &&VerifyAlgorithm| {
        let id = it.signature_alg_id();
        der::expect(id.as_ref(), der::OID).is_some_and(|(own, _)| own == oid)
    };
    all.iter().filter(is).copied().collect()
}
