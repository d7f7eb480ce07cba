//! Whether a certificate is trusted, with OpenSSL's verdicts: nginx shows them, and decides about the response by them.
//!
//! A path is built from the peer's certificate over those it sent and those that are trusted, up to a trusted one that
//! signed itself, or as far as it goes. Then everything along it is checked, in OpenSSL's order. nginx lets OpenSSL go on
//! after a problem of a client's certificate, so the verdict is about the last one found: what `optional_no_ca` lets pass
//! is a stranger's certificate, but not one that has expired. Of a server's certificate it is the first.

#[cfg(test)]
mod tests;

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{NSCertType, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_EXT_CERT_TYPE, OID_X509_EXT_NAME_CONSTRAINTS};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::issuer::{issued, signed_by};
use crate::revocation::RevocationLists;
use crate::verify_problem::VerifyProblem;

/// The certificates of trusted authorities.
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    /// Certificates that paths may lead to or over.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Revocation lists; if there is any, each certificate of a path needs one of its issuer.
    pub crls: Vec<Vec<u8>>,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePurpose {
    /// The certificate is a client's.
    Client,
    /// The certificate is a server's.
    Server,
}

/// Whether the first of `chain` is trusted for `purpose` at `now` (seconds since 1970), over `depth` others at most
/// between it and the trusted end.
///
/// # Errors
/// Why not.
pub fn check(
    chain: &[CertificateDer<'_>],
    trust: &TrustStore,
    depth: usize,
    purpose: CertificatePurpose,
    now: u64,
) -> Result<(), VerifyProblem> {
    verified(chain, trust, depth, purpose, now).map(drop)
}

/// As [`check`], with `now` in seconds since 1970; gives the certificates from the first of `chain` to the trusted end.
///
/// # Errors
/// As [`check`].
pub fn verified(
    chain: &[CertificateDer<'_>],
    trust: &TrustStore,
    depth: usize,
    purpose: CertificatePurpose,
    now: u64,
) -> Result<Vec<CertificateDer<'static>>, VerifyProblem> {
    let sent: Vec<X509Certificate<'_>> = chain.iter().filter_map(|der| read(der)).collect();
    if sent.len() != chain.len() || sent.is_empty() {
        return Err(VerifyProblem::MALFORMED);
    }
    let trusted: Vec<X509Certificate<'_>> = trust.certificates.iter().filter_map(|der| read(der)).collect();
    let now = i64::try_from(now).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    let now = now.ok_or(VerifyProblem::MALFORMED)?;
    let (path, mut problems) = CertificatePath::build(&sent, &trusted, depth);
    path.check(&trust.crls, purpose, now, &mut problems);
    // nginx lets OpenSSL go on after each problem where certificates to trust are configured: the last counts.
    let verdict = match purpose {
        CertificatePurpose::Server if trust.certificates.is_empty() => problems.first(),
        _ => problems.last(),
    };
    if let Some(problem) = verdict {
        return Err(*problem);
    }
    let all = || chain.iter().chain(&trust.certificates);
    let of = |parsed: &&X509Certificate<'_>| {
        all().find(|der| read(der).is_some_and(|it| same(&it, parsed))).cloned()
    };
    Ok(path.0.iter().filter_map(of).map(CertificateDer::into_owned).collect())
}

fn read(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

/// Certificates from the peer's own to a trusted root, or as far as there are any.
struct CertificatePath<'p, 'c>(Vec<&'p X509Certificate<'c>>);

/// A path that gets no further than this is refused: OpenSSL stops at 100 as well.
const MAX_PATH: usize = 100;

impl<'p, 'c> CertificatePath<'p, 'c> {
    /// The path, and why it leads to no trusted authority.
    fn build(
        sent: &'p [X509Certificate<'c>],
        trusted: &'p [X509Certificate<'c>],
        depth: usize,
    ) -> (CertificatePath<'p, 'c>, Vec<VerifyProblem>) {
        let mut path = vec![&sent[0]];
        // The certificate itself and the trusted end do not count.
        let longest = depth.saturating_add(2).min(MAX_PATH);
        let mut over_trusted = false;
        loop {
            let last = path[path.len() - 1];
            let is_trusted = trusted.iter().any(|it| same(it, last));
            let too_long = (path.len() > longest - 1).then_some(VerifyProblem::TOO_LONG);
            if issued(last, last) {
                let problem = match (is_trusted, path.len()) {
                    (true, _) => return (CertificatePath(path), Vec::new()),
                    (false, 1) => VerifyProblem::SELF_SIGNED,
                    (false, _) => VerifyProblem::SELF_SIGNED_IN_CHAIN,
                };
                return (CertificatePath(path), too_long.into_iter().chain([problem]).collect());
            }
            over_trusted |= is_trusted && path.len() > 1;
            let fresh = |it: &&X509Certificate<'_>| !path.iter().any(|used| same(used, it));
            let from_trusted = trusted.iter().filter(fresh).find(|it| issued(it, last));
            let next = from_trusted.or_else(|| {
                if over_trusted { None } else { sent[1..].iter().filter(fresh).find(|it| issued(it, last)) }
            });
            match next {
                Some(next) if path.len() < longest => path.push(next),
                _ => {
                    let problem =
                        if over_trusted { VerifyProblem::NO_ISSUER } else { VerifyProblem::NO_LOCAL_ISSUER };
                    return (CertificatePath(path), too_long.into_iter().chain([problem]).collect());
                }
            }
        }
    }

    /// What is wrong along it, in OpenSSL's order: uses, revocation, signatures and times.
    fn check(
        &self,
        crls: &[Vec<u8>],
        purpose: CertificatePurpose,
        now: ASN1Time,
        problems: &mut Vec<VerifyProblem>,
    ) {
        let path = &self.0;
        for (at, certificate) in path.iter().enumerate() {
            problems.extend(extensions(certificate).err());
            if at == 0 {
                problems.extend(leaf_purpose(certificate, purpose, path.len() == 1).err());
            } else {
                problems.extend(authority(certificate, at - 1, purpose));
            }
        }
        if !crls.is_empty() {
            let lists = RevocationLists::read(crls);
            for (at, certificate) in path.iter().enumerate() {
                let issuer =
                    path.get(at + 1).or_else(|| issued(certificate, certificate).then_some(certificate));
                problems.extend(match issuer {
                    Some(issuer) => lists.problems(certificate, issuer, now),
                    None => lists.problems_without_issuer(certificate),
                });
            }
        }
        self.signatures_and_times(now, problems);
    }

    /// From the far end. That end's own signature proves nothing (many old roots have one of SHA-1), and it is not
    /// looked at where the path breaks off.
    fn signatures_and_times(&self, now: ASN1Time, problems: &mut Vec<VerifyProblem>) {
        let path = &self.0;
        for (at, certificate) in path.iter().enumerate().rev() {
            match path.get(at + 1) {
                None if issued(certificate, certificate) => {}
                None if at == 0 => problems.push(VerifyProblem::UNVERIFIED_LEAF),
                None => continue,
                Some(issuer) => {
                    let usage = issuer.key_usage().ok().flatten();
                    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
                        problems.push(VerifyProblem::NO_CERT_SIGN);
                    }
                    if !signed_by(certificate, issuer) {
                        problems.push(VerifyProblem::BAD_SIGNATURE);
                    }
                }
            }
            let validity = certificate.validity();
            if now < validity.not_before {
                problems.push(VerifyProblem::NOT_YET_VALID);
            }
            if now > validity.not_after {
                problems.push(VerifyProblem::EXPIRED);
            }
        }
    }
}

fn same(a: &X509Certificate<'_>, b: &X509Certificate<'_>) -> bool {
    std::ptr::eq(a, b)
        || (a.tbs_certificate.as_ref() == b.tbs_certificate.as_ref()
            && a.signature_value == b.signature_value)
}

/// What a certificate says of itself must be understood.
fn extensions(certificate: &X509Certificate<'_>) -> Result<(), VerifyProblem> {
    for extension in certificate.extensions() {
        if extension.oid == OID_X509_EXT_NAME_CONSTRAINTS {
            return Err(VerifyProblem::NAME_CONSTRAINTS); // nothing here holds names to them
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
            return Err(VerifyProblem::CRITICAL);
        }
    }
    Ok(())
}

fn leaf_purpose(
    certificate: &X509Certificate<'_>,
    purpose: CertificatePurpose,
    alone: bool,
) -> Result<(), VerifyProblem> {
    extended(certificate, purpose)?;
    let fits = |kind: NSCertType| match purpose {
        CertificatePurpose::Client => kind.ssl_client(),
        CertificatePurpose::Server => kind.ssl_server(),
    };
    if netscape(certificate)?.is_some_and(|kind| !fits(kind)) {
        return Err(VerifyProblem::PURPOSE);
    }
    match certificate.key_usage() {
        Ok(Some(usage)) => {
            let signs = usage.value.digital_signature() || usage.value.key_agreement();
            let server = purpose == CertificatePurpose::Server && usage.value.key_encipherment();
            // A self-signed root signs certificates.
            if signs || server || (alone && usage.value.key_cert_sign()) {
                Ok(())
            } else {
                Err(VerifyProblem::PURPOSE)
            }
        }
        Ok(None) => Ok(()),
        Err(_) => Err(VerifyProblem::MALFORMED),
    }
}

/// What Netscape's extension says a certificate is for.
fn netscape(certificate: &X509Certificate<'_>) -> Result<Option<NSCertType>, VerifyProblem> {
    let found = certificate.tbs_certificate.get_extension_unique(&OID_X509_EXT_CERT_TYPE);
    match found.map_err(|_| VerifyProblem::MALFORMED)?.map(|it| it.parsed_extension()) {
        None => Ok(None),
        Some(ParsedExtension::NSCertType(kind)) => Ok(Some(*kind)),
        Some(_) => Err(VerifyProblem::MALFORMED),
    }
}

fn extended(certificate: &X509Certificate<'_>, purpose: CertificatePurpose) -> Result<(), VerifyProblem> {
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) => {
            let usage = usage.value;
            let fits = match purpose {
                CertificatePurpose::Client => usage.client_auth,
                CertificatePurpose::Server => usage.server_auth,
            };
            if fits { Ok(()) } else { Err(VerifyProblem::PURPOSE) }
        }
        Err(_) => Err(VerifyProblem::MALFORMED),
    }
}

/// Why a certificate may not issue others, `below` of them authorities themselves.
fn authority(
    certificate: &X509Certificate<'_>,
    below: usize,
    purpose: CertificatePurpose,
) -> Vec<VerifyProblem> {
    let (Ok(usage), Ok(constraints)) = (certificate.key_usage(), certificate.basic_constraints()) else {
        return vec![VerifyProblem::MALFORMED];
    };
    let signs = usage.is_none_or(|usage| usage.value.key_cert_sign());
    let is_authority = match &constraints {
        Some(constraints) => constraints.value.ca,
        // Old roots say nothing.
        None => issued(certificate, certificate) && certificate.extensions().is_empty(),
    };
    let valid = signs && is_authority;
    let most = constraints.and_then(|it| it.value.path_len_constraint);
    [
        (!valid).then_some(VerifyProblem::INVALID_CA),
        // OpenSSL finds that it is no authority for this purpose either.
        if valid { extended(certificate, purpose).err() } else { Some(VerifyProblem::PURPOSE) },
        most.is_some_and(|most| below > most as usize).then_some(VerifyProblem::PATH_LENGTH),
    ]
    .into_iter()
    .flatten()
    .collect()
}
