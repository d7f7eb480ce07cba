//! Whether a certificate is trusted, with OpenSSL's verdicts: nginx shows them, and answers by them.
//!
//! A path is built from the peer's certificate over those it sent and those that are trusted, up to a trusted one that
//! signed itself. Then everything along it is checked. nginx lets OpenSSL go on after a problem, so the verdict is
//! about the last one found; the order here is OpenSSL's.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::extensions::{NSCertType, ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_CERT_TYPE, OID_X509_EXT_NAME_CONSTRAINTS,
    OID_X509_EXT_SUBJECT_KEY_IDENTIFIER,
};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::revocation::RevocationLists;
use crate::verify::{algorithms, verify};

/// What is trusted.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Certificates that paths may lead to or over.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Revocation lists; if there is any, each certificate of a path needs one of its issuer.
    pub crls: Vec<Vec<u8>>,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's.
    Client,
    /// A server's.
    Server,
}

/// A verdict of OpenSSL's: its number and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `X509_V_ERR_...`
    pub code: u16,
    /// What it says.
    pub text: &'static str,
}

macro_rules! problems {
    ($($name:ident $code:literal $text:literal),* $(,)?) => {
        #[allow(missing_docs, reason = "each is OpenSSL's of that name")]
        impl Problem {
            $(pub const $name: Problem = Problem { code: $code, text: $text };)*
        }

        const ALL: &[Problem] = &[$(Problem::$name),*];
    };
}

problems! {
    NO_ISSUER 2 "unable to get issuer certificate",
    NO_CRL 3 "unable to get certificate CRL",
    BAD_SIGNATURE 7 "certificate signature failure",
    NOT_YET_VALID 9 "certificate is not yet valid",
    EXPIRED 10 "certificate has expired",
    CRL_NOT_YET_VALID 11 "CRL is not yet valid",
    CRL_EXPIRED 12 "CRL has expired",
    CRL_SIGNATURE 8 "CRL signature failure",
    SELF_SIGNED 18 "self-signed certificate",
    SELF_SIGNED_IN_CHAIN 19 "self-signed certificate in certificate chain",
    NO_LOCAL_ISSUER 20 "unable to get local issuer certificate",
    UNVERIFIED_LEAF 21 "unable to verify the first certificate",
    TOO_LONG 22 "certificate chain too long",
    REVOKED 23 "certificate revoked",
    PATH_LENGTH 25 "path length constraint exceeded",
    PURPOSE 26 "unsuitable certificate purpose",
    CRITICAL 34 "unhandled critical extension",
    NO_CRL_SIGN 35 "key usage does not include CRL signing",
    CRL_CRITICAL 36 "unhandled critical CRL extension",
    CRL_SCOPE 44 "different CRL scope",
    NAME_CONSTRAINTS 51 "unsupported name constraint type",
    APPLICATION 50 "application verification failure",
    INVALID_CA 79 "invalid CA certificate",
    MALFORMED 1 "unspecified certificate verification error",
}

impl Problem {
    /// The one of this number; `None`: OpenSSL's `X509_V_OK`.
    pub fn of(code: u16) -> Option<Problem> {
        let text = "unknown certificate verification error";
        let known = || ALL.iter().copied().find(|it| it.code == code);
        (code != 0).then(|| known().unwrap_or(Problem { code, text }))
    }

    /// `optional_no_ca` lets these pass.
    pub fn is_about_trust(self) -> bool {
        matches!(self.code, 18..=21 | 27)
    }
}

/// Whether the first of `chain` is trusted for `purpose` at `now` (seconds since 1970), over `depth` others at most
/// between it and the trusted end.
///
/// # Errors
/// Why not.
pub fn check(
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    depth: usize,
    purpose: Purpose,
    now: u64,
) -> Result<(), Problem> {
    verified(chain, trust, depth, purpose, now).map(drop)
}

/// As [`check`]; the certificates from the first of `chain` to the trusted end.
///
/// # Errors
/// As [`check`].
pub fn verified(
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    depth: usize,
    purpose: Purpose,
    now: u64,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let sent: Vec<X509Certificate<'_>> = chain.iter().filter_map(|der| read(der)).collect();
    if sent.len() != chain.len() || sent.is_empty() {
        return Err(Problem::MALFORMED);
    }
    let trusted: Vec<X509Certificate<'_>> = trust.certificates.iter().filter_map(|der| read(der)).collect();
    // nginx lets OpenSSL go on after a client's problem: of a lone certificate it then finds the next one.
    let path = Path::build(&sent, &trusted).map_err(|problem| match (problem, purpose) {
        (Problem::UNVERIFIED_LEAF, Purpose::Server) => Problem::NO_LOCAL_ISSUER,
        _ => problem,
    })?;
    let now = i64::try_from(now).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    let now = now.ok_or(Problem::MALFORMED)?;
    path.check(&trust.crls, depth, purpose, now)?;
    let all = || chain.iter().chain(&trust.certificates);
    let of = |parsed: &&X509Certificate<'_>| {
        all().find(|der| read(der).is_some_and(|it| same(&it, parsed))).cloned()
    };
    Ok(path.0.iter().filter_map(of).map(CertificateDer::into_owned).collect())
}

fn read(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

/// Certificates from the peer's own to a trusted root.
struct Path<'p, 'c>(Vec<&'p X509Certificate<'c>>);

/// A path that gets no further than this is none: OpenSSL stops at 100 as well.
const MAX_PATH: usize = 100;

impl<'p, 'c> Path<'p, 'c> {
    fn build(
        sent: &'p [X509Certificate<'c>],
        trusted: &'p [X509Certificate<'c>],
    ) -> Result<Path<'p, 'c>, Problem> {
        let mut path = vec![&sent[0]];
        let mut over_trusted = false;
        loop {
            let Some(&last) = path.last() else { return Err(Problem::MALFORMED) };
            let is_trusted = trusted.iter().any(|it| same(it, last));
            if issued(last, last) {
                return match (is_trusted, path.len()) {
                    (true, _) => Ok(Path(path)),
                    (false, 1) => Err(Problem::SELF_SIGNED),
                    (false, _) => Err(Problem::SELF_SIGNED_IN_CHAIN),
                };
            }
            over_trusted |= is_trusted;
            let fresh = |it: &&X509Certificate<'_>| !path.iter().any(|used| same(used, it));
            let from_trusted = trusted.iter().filter(fresh).find(|it| issued(it, last));
            let next = from_trusted.or_else(|| {
                if over_trusted { None } else { sent[1..].iter().filter(fresh).find(|it| issued(it, last)) }
            });
            match next {
                Some(next) if path.len() < MAX_PATH => path.push(next),
                Some(_) => return Err(Problem::TOO_LONG),
                None if over_trusted => return Err(Problem::NO_ISSUER),
                None if path.len() == 1 => return Err(Problem::UNVERIFIED_LEAF),
                None => return Err(Problem::NO_LOCAL_ISSUER),
            }
        }
    }

    fn check(&self, crls: &[Vec<u8>], depth: usize, purpose: Purpose, now: ASN1Time) -> Result<(), Problem> {
        let path = &self.0;
        // The trusted end does not count.
        if path.len() > depth.saturating_add(2) {
            return Err(Problem::TOO_LONG);
        }
        for (at, certificate) in path.iter().enumerate() {
            extensions(certificate)?;
            if at == 0 {
                leaf_purpose(certificate, purpose, path.len() == 1)?;
            } else {
                authority(certificate, at - 1, purpose)?;
            }
        }
        if !crls.is_empty() {
            self.revocation(crls, purpose, now)?;
        }
        for (at, certificate) in path.iter().enumerate() {
            let issuer = path.get(at + 1).unwrap_or(certificate);
            if !signed_by(certificate, issuer) {
                return Err(Problem::BAD_SIGNATURE);
            }
            let validity = certificate.validity();
            if now < validity.not_before {
                return Err(Problem::NOT_YET_VALID);
            }
            if now > validity.not_after {
                return Err(Problem::EXPIRED);
            }
        }
        Ok(())
    }

    /// Of several problems the last counts for clients, the first for servers.
    fn revocation(&self, crls: &[Vec<u8>], purpose: Purpose, now: ASN1Time) -> Result<(), Problem> {
        let (mut found, lists) = (Ok(()), RevocationLists::read(crls));
        for (at, certificate) in self.0.iter().enumerate() {
            let issuer = self.0.get(at + 1).unwrap_or(certificate);
            for problem in lists.problems(certificate, issuer, now) {
                found = Err(problem);
                if purpose == Purpose::Server {
                    return found;
                }
            }
        }
        found
    }
}

pub(crate) type Algorithm = &'static dyn rustls::pki_types::SignatureVerificationAlgorithm;

/// The algorithms whose identifier of a signature begins with the object identifier `oid`.
pub(crate) fn all_with(all: &'static [Algorithm], oid: &[u8]) -> Vec<Algorithm> {
    let is = |it: &&Algorithm| {
        let id = it.signature_alg_id();
        crate::der::expect(id.as_ref(), crate::der::OID).is_some_and(|(own, _)| own == oid)
    };
    all.iter().filter(is).copied().collect()
}

fn same(a: &X509Certificate<'_>, b: &X509Certificate<'_>) -> bool {
    std::ptr::eq(a, b)
        || (a.tbs_certificate.as_ref() == b.tbs_certificate.as_ref()
            && a.signature_value == b.signature_value)
}

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

/// What a certificate says of itself must be understood.
fn extensions(certificate: &X509Certificate<'_>) -> Result<(), Problem> {
    for extension in certificate.extensions() {
        if extension.oid == OID_X509_EXT_NAME_CONSTRAINTS {
            return Err(Problem::NAME_CONSTRAINTS); // nothing here holds names to them
        }
        let known = matches!(
            extension.parsed_extension(),
            ParsedExtension::BasicConstraints(_)
                | ParsedExtension::KeyUsage(_)
                | ParsedExtension::ExtendedKeyUsage(_)
                | ParsedExtension::SubjectAlternativeName(_)
                | ParsedExtension::CertificatePolicies(_)
                | ParsedExtension::CRLDistributionPoints(_)
                | ParsedExtension::NSCertType(_)
                | ParsedExtension::SubjectKeyIdentifier(_)
                | ParsedExtension::AuthorityKeyIdentifier(_)
        );
        if extension.critical && !known {
            return Err(Problem::CRITICAL);
        }
    }
    Ok(())
}

fn leaf_purpose(certificate: &X509Certificate<'_>, purpose: Purpose, alone: bool) -> Result<(), Problem> {
    extended(certificate, purpose)?;
    let fits = |kind: NSCertType| match purpose {
        Purpose::Client => kind.ssl_client(),
        Purpose::Server => kind.ssl_server(),
    };
    if netscape(certificate)?.is_some_and(|kind| !fits(kind)) {
        return Err(Problem::PURPOSE);
    }
    match certificate.key_usage() {
        Ok(Some(usage)) => {
            let signs = usage.value.digital_signature() || usage.value.key_agreement();
            let server = purpose == Purpose::Server && usage.value.key_encipherment();
            // A root that stands for itself signs certificates.
            if signs || server || (alone && usage.value.key_cert_sign()) {
                Ok(())
            } else {
                Err(Problem::PURPOSE)
            }
        }
        Ok(None) => Ok(()),
        Err(_) => Err(Problem::MALFORMED),
    }
}

/// What Netscape's extension says a certificate is for.
fn netscape(certificate: &X509Certificate<'_>) -> Result<Option<NSCertType>, Problem> {
    let found = certificate.tbs_certificate.get_extension_unique(&OID_X509_EXT_CERT_TYPE);
    match found.map_err(|_| Problem::MALFORMED)?.map(|it| it.parsed_extension()) {
        None => Ok(None),
        Some(ParsedExtension::NSCertType(kind)) => Ok(Some(*kind)),
        Some(_) => Err(Problem::MALFORMED),
    }
}

fn extended(certificate: &X509Certificate<'_>, purpose: Purpose) -> Result<(), Problem> {
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) => {
            let usage = usage.value;
            let fits = match purpose {
                Purpose::Client => usage.client_auth,
                Purpose::Server => usage.server_auth,
            };
            if fits { Ok(()) } else { Err(Problem::PURPOSE) }
        }
        Err(_) => Err(Problem::MALFORMED),
    }
}

/// Whether a certificate may issue others, `below` of them authorities themselves.
fn authority(certificate: &X509Certificate<'_>, below: usize, purpose: Purpose) -> Result<(), Problem> {
    let usage = certificate.key_usage().map_err(|_| Problem::MALFORMED)?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err(Problem::INVALID_CA);
    }
    match certificate.basic_constraints().map_err(|_| Problem::MALFORMED)? {
        Some(constraints) if !constraints.value.ca => return Err(Problem::INVALID_CA),
        Some(constraints) => {
            if constraints.value.path_len_constraint.is_some_and(|most| below > most as usize) {
                return Err(Problem::PATH_LENGTH);
            }
        }
        // Old roots say nothing.
        None if issued(certificate, certificate) && certificate.extensions().is_empty() => {}
        None => return Err(Problem::INVALID_CA),
    }
    extended(certificate, purpose)
}
