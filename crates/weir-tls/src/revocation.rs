//! Whether a certificate is revoked, by lists as OpenSSL chooses and judges them (RFC 5280, section 6.3.3).
//!
//! Of the lists of a certificate's issuer the one that fits best is taken: it has no critical extension that is not
//! understood, it is in force, and its scope has the certificate in it; of several the newest. What is wrong with that one
//! is the verdict, so a file without a list that fits lets no client in. Indirect lists, and those of some reasons
//! only, are not taken, as OpenSSL without its extended support has it. Delta lists do not replace a whole one; what
//! they revoke beside it counts.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
    OID_X509_EXT_DELTA_CRL_INDICATOR, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT,
    OID_X509_EXT_SUBJECT_KEY_IDENTIFIER,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer};
use x509_parser::revocation_list::RevokedCertificate;
use x509_parser::time::ASN1Time;
use x509_parser::x509::ReasonCode;

use crate::der;
use crate::issuer::all_with;
use crate::signature_limits::algorithms;
use crate::verify::verify;
use crate::verify_problem::VerifyProblem;

/// The lists of a file.
pub(crate) struct RevocationLists<'l>(Vec<CertificateRevocationList<'l>>);

impl<'l> RevocationLists<'l> {
    /// Those that can be read; a file with another is refused when it is loaded.
    pub(crate) fn read(lists: &'l [Vec<u8>]) -> RevocationLists<'l> {
        RevocationLists(lists.iter().filter_map(|list| read(list)).collect())
    }

    /// What is wrong with `certificate`, in OpenSSL's order.
    pub(crate) fn problems(
        &self,
        certificate: &X509Certificate<'_>,
        issuer: &X509Certificate<'_>,
        now: ASN1Time,
    ) -> Vec<VerifyProblem> {
        let of_issuer = || self.0.iter().filter(|list| is_from(list, issuer));
        let whole = of_issuer().filter_map(|list| CandidateList::new(list, certificate, now));
        let Some(best) = whole.max_by_key(CandidateList::fitness) else { return vec![VerifyProblem::NO_CRL] };
        let mut problems = best.problems(issuer, now);
        let listed = |list: &CertificateRevocationList<'_>| {
            entry(list, certificate)
                .is_some_and(|it| !matches!(it.reason_code(), Some((_, ReasonCode::RemoveFromCRL))))
        };
        let by_delta = of_issuer().any(|list| is_delta(list) && listed(list) && is_signed(list, issuer));
        if listed(best.list) || by_delta {
            problems.push(VerifyProblem::REVOKED);
        }
        problems
    }

    /// The problems of a certificate whose issuer is not known: no list is one of a known authority.
    pub(crate) fn problems_without_issuer(&self, certificate: &X509Certificate<'_>) -> Vec<VerifyProblem> {
        let of_issuer = || self.0.iter().filter(|it| it.issuer().as_raw() == certificate.issuer().as_raw());
        if of_issuer().next().is_none() {
            return vec![VerifyProblem::NO_CRL];
        }
        let revoked = of_issuer().any(|list| entry(list, certificate).is_some());
        [Some(VerifyProblem::NO_CRL_ISSUER), revoked.then_some(VerifyProblem::REVOKED)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// A list, if `der` is one.
pub(crate) fn read(der: &[u8]) -> Option<CertificateRevocationList<'_>> {
    CertificateRevocationList::from_der(der).ok().map(|(_, list)| list)
}

/// A list that may say something of a certificate.
struct CandidateList<'c, 'l> {
    list: &'c CertificateRevocationList<'l>,
    /// It has no critical extension that is not understood.
    understood: bool,
    /// The certificate is within its scope.
    in_scope: bool,
    in_force: Result<(), VerifyProblem>,
}

impl<'c, 'l> CandidateList<'c, 'l> {
    fn new(
        list: &'c CertificateRevocationList<'l>,
        certificate: &X509Certificate<'_>,
        now: ASN1Time,
    ) -> Option<CandidateList<'c, 'l>> {
        if is_delta(list) {
            return None;
        }
        let scope = match extension(list, &OID_X509_EXT_ISSUER_DISTRIBUTION_POINT) {
            Some(extension) => RevocationScope::parse(extension.value)?,
            None => RevocationScope::default(),
        };
        if scope.partial {
            return None;
        }
        Some(CandidateList {
            list,
            understood: is_understood(list),
            in_scope: scope.has(certificate),
            in_force: in_force(list, now),
        })
    }

    /// OpenSSL's order of preference.
    fn fitness(&self) -> (bool, bool, bool, i64) {
        (self.understood, self.in_scope, self.in_force.is_ok(), self.list.last_update().timestamp())
    }

    fn problems(&self, issuer: &X509Certificate<'_>, now: ASN1Time) -> Vec<VerifyProblem> {
        let signs = !matches!(issuer.key_usage(), Ok(Some(usage)) if !usage.value.crl_sign());
        [
            (!signs).then_some(VerifyProblem::NO_CRL_SIGN),
            (!self.in_scope).then_some(VerifyProblem::CRL_SCOPE),
            in_force(self.list, now).err(),
            (!is_signed(self.list, issuer)).then_some(VerifyProblem::CRL_SIGNATURE),
            (!self.understood).then_some(VerifyProblem::CRL_CRITICAL),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Whether `issuer` is the issuer that the list names, by the identifier of its key where both have one.
fn is_from(list: &CertificateRevocationList<'_>, issuer: &X509Certificate<'_>) -> bool {
    if list.issuer().as_raw() != issuer.subject().as_raw() {
        return false;
    }
    let authority = extension(list, &OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER).map(|it| it.parsed_extension());
    let own =
        issuer.tbs_certificate.get_extension_unique(&OID_X509_EXT_SUBJECT_KEY_IDENTIFIER).ok().flatten();
    match (authority, own.map(|it| it.parsed_extension())) {
        (
            Some(ParsedExtension::AuthorityKeyIdentifier(authority)),
            Some(ParsedExtension::SubjectKeyIdentifier(own)),
        ) => authority.key_identifier.as_ref().is_none_or(|wanted| wanted == own),
        _ => true,
    }
}

fn is_signed(list: &CertificateRevocationList<'_>, issuer: &X509Certificate<'_>) -> bool {
    let signed = all_with(algorithms().all, list.signature_algorithm.oid().as_bytes());
    verify(&signed, issuer, list.tbs_cert_list.as_ref(), &list.signature_value.data)
}

fn in_force(list: &CertificateRevocationList<'_>, now: ASN1Time) -> Result<(), VerifyProblem> {
    if list.last_update() > now {
        return Err(VerifyProblem::CRL_NOT_YET_VALID);
    }
    match list.next_update() {
        Some(next) if now > next => Err(VerifyProblem::CRL_EXPIRED),
        _ => Ok(()),
    }
}

fn is_delta(list: &CertificateRevocationList<'_>) -> bool {
    extension(list, &OID_X509_EXT_DELTA_CRL_INDICATOR).is_some()
}

/// Whether all that is critical in it, and in its entries, is known here.
fn is_understood(list: &CertificateRevocationList<'_>) -> bool {
    let known = |it: &&X509Extension<'_>| {
        it.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT
            || it.oid == OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER
            || it.oid == OID_X509_EXT_DELTA_CRL_INDICATOR
    };
    let mut entries = list.iter_revoked_certificates().flat_map(RevokedCertificate::extensions);
    !entries.any(|it| it.critical) && list.extensions().iter().filter(|it| it.critical).all(|it| known(&it))
}

fn entry<'c, 'l>(
    list: &'c CertificateRevocationList<'l>,
    certificate: &X509Certificate<'_>,
) -> Option<&'c RevokedCertificate<'l>> {
    list.iter_revoked_certificates().find(|it| it.raw_serial() == certificate.raw_serial())
}

fn extension<'c>(
    list: &'c CertificateRevocationList<'_>,
    oid: &x509_parser::der_parser::Oid<'_>,
) -> Option<&'c X509Extension<'c>> {
    list.tbs_cert_list.find_extension(oid)
}

/// An issuingDistributionPoint (RFC 5280, section 5.2.5).
#[derive(Default)]
struct RevocationScope<'e> {
    /// Names of the place that it is for, as encoded; empty: it is not for one.
    names: Vec<&'e [u8]>,
    only_users: bool,
    only_authorities: bool,
    only_attributes: bool,
    /// It is indirect, or of some reasons only.
    partial: bool,
}

impl<'e> RevocationScope<'e> {
    /// `None`: it says something that is not understood.
    fn parse(value: &'e [u8]) -> Option<RevocationScope<'e>> {
        let (mut rest, after) = der::expect(value, der::SEQUENCE)?;
        let mut scope = RevocationScope::default();
        while !rest.is_empty() {
            let part = der::element(rest)?;
            let is_set = part.content.iter().any(|byte| *byte != 0);
            match part.tag {
                0xa0 => scope.names = names(part.content)?,
                0x81 => scope.only_users = is_set,
                0x82 => scope.only_authorities = is_set,
                0x83 => scope.partial = true,
                0x84 => scope.partial |= is_set,
                0x85 => scope.only_attributes = is_set,
                _ => return None,
            }
            rest = part.rest;
        }
        after.is_empty().then_some(scope)
    }

    fn has(&self, certificate: &X509Certificate<'_>) -> bool {
        let is_authority = matches!(certificate.basic_constraints(), Ok(Some(it)) if it.value.ca);
        let kind = if is_authority { !self.only_users } else { !self.only_authorities };
        kind && !self.only_attributes && (self.names.is_empty() || self.is_named_by(certificate))
    }

    /// Whether the certificate says that the list of this place is for it, for all reasons.
    fn is_named_by(&self, certificate: &X509Certificate<'_>) -> bool {
        let found = certificate.tbs_certificate.get_extension_unique(&OID_X509_EXT_CRL_DISTRIBUTION_POINTS);
        let Some((mut rest, _)) =
            found.ok().flatten().and_then(|extension| der::expect(extension.value, der::SEQUENCE))
        else {
            return false;
        };
        while let Some(point) = der::element(rest) {
            // A point with reasons or another issuer has more parts.
            let named = der::element(point.content).filter(|it| it.tag == 0xa0 && it.rest.is_empty());
            let named = named.and_then(|it| names(it.content)).unwrap_or_default();
            if named.iter().any(|name| self.names.contains(name)) {
                return true;
            }
            rest = point.rest;
        }
        false
    }
}

/// The full names of a DistributionPointName, as encoded.
fn names(content: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut rest, after) = der::expect(content, 0xa0)?;
    let mut names = Vec::new();
    while !rest.is_empty() {
        let name = der::element(rest)?;
        names.push(name.all);
        rest = name.rest;
    }
    (after.is_empty() && !names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SerialNumber, SigningKey,
    };
    use rustls::pki_types::CertificateDer;

    use crate::chain::{self, CertificatePurpose, TrustStore};
    use crate::verify_problem::VerifyProblem;
    use crate::{der, facts};

    /// 2025-06-01.
    const NOW: u64 = 1_748_736_000;

    struct Authority {
        key: KeyPair,
        der: CertificateDer<'static>,
        leaf: CertificateDer<'static>,
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    impl Authority {
        /// With a leaf of number 5, which has these extensions beside.
        fn new(extensions: Vec<rcgen::CustomExtension>) -> Authority {
            let [key, own] = [(); 2].map(|()| KeyPair::generate().expect("a key"));
            let mut ca = params("ca");
            ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let der = ca.self_signed(&key).expect("signed").der().clone();
            let mut leaf = params("leaf");
            leaf.serial_number = Some(SerialNumber::from(5u64));
            leaf.custom_extensions = extensions;
            let leaf = leaf.signed_by(&own, &Issuer::from_params(&ca, &key)).expect("signed").der().clone();
            Authority { key, der, leaf }
        }

        /// A list of the year `begins` to 2040 that has `serials`, with extensions as encoded.
        fn list(&self, begins: &str, ends: &str, serials: &[u8], extensions: &[Vec<u8>]) -> Vec<u8> {
            let time = |year: &str| der::encode(0x17, &[format!("{year}0101000000Z").as_bytes()]);
            let entry = |serial: &u8| der::encode(der::SEQUENCE, &[&[2, 1, *serial], &time("20")]);
            let entries: Vec<u8> = serials.iter().flat_map(entry).collect();
            let revoked = if entries.is_empty() { entries } else { der::encode(der::SEQUENCE, &[&entries]) };
            let extensions = match extensions {
                [] => Vec::new(),
                some => der::encode(0xa0, &[&der::encode(der::SEQUENCE, &[&some.concat()])]),
            };
            let issuer = facts::raw_subject(&self.der).expect("a name");
            let parts: [&[u8]; 7] =
                [&[2, 1, 1], ECDSA, &issuer, &time(begins), &time(ends), &revoked, &extensions];
            let signed = der::encode(der::SEQUENCE, &parts);
            let signature = [vec![0], self.key.sign(&signed).expect("signed")].concat();
            der::encode(der::SEQUENCE, &[&signed, ECDSA, &der::encode(der::BITS, &[&signature])])
        }

        fn verdict(&self, crls: Vec<Vec<u8>>, purpose: CertificatePurpose) -> Result<(), VerifyProblem> {
            let trust = TrustStore { certificates: vec![self.der.clone()], crls };
            chain::check(std::slice::from_ref(&self.leaf), &trust, 1, purpose, NOW)
        }
    }

    const ECDSA: &[u8] = &[0x30, 0x0a, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

    /// A critical extension `2.5.29.number`.
    fn critical(number: u8, content: &[u8]) -> Vec<u8> {
        der::encode(
            der::SEQUENCE,
            &[&[6, 3, 0x55, 0x1d, number, 1, 1, 0xff], &der::encode(der::OCTETS, &[content])],
        )
    }

    /// An issuingDistributionPoint with one part.
    fn scope(part: &[u8]) -> Vec<u8> {
        critical(28, &der::encode(der::SEQUENCE, &[part]))
    }

    const ONLY_USERS: &[u8] = &[0x81, 1, 0xff];
    const ONLY_AUTHORITIES: &[u8] = &[0x82, 1, 0xff];
    const SOME_REASONS: &[u8] = &[0x83, 2, 6, 0x40];
    const INDIRECT: &[u8] = &[0x84, 1, 0xff];
    const ONLY_ATTRIBUTES: &[u8] = &[0x85, 1, 0xff];

    #[test]
    fn a_revoked_certificate_stays_revoked_whatever_lists_there_are_beside() {
        let ca = Authority::new(Vec::new());
        let base = ca.list("21", "40", &[5], &[]);
        let delta = || critical(27, &[2, 1, 1]);
        let others = [
            ca.list("24", "40", &[], &[scope(ONLY_AUTHORITIES)]),
            ca.list("24", "40", &[], &[scope(ONLY_ATTRIBUTES)]),
            ca.list("24", "40", &[], &[scope(SOME_REASONS)]),
            ca.list("24", "40", &[], &[scope(INDIRECT)]),
            ca.list("24", "40", &[], &[scope(&[0x86, 1, 0xff])]),
            ca.list("24", "40", &[], &[delta()]),
            ca.list("24", "40", &[], &[critical(99, &[5, 0])]),
            ca.list("30", "40", &[], &[]),
            ca.list("22", "23", &[], &[]),
        ];
        for (at, other) in others.iter().enumerate() {
            for purpose in [CertificatePurpose::Client, CertificatePurpose::Server] {
                let both = vec![base.clone(), other.clone()];
                assert_eq!(ca.verdict(both, purpose), Err(VerifyProblem::REVOKED), "{at} {purpose:?}");
                assert!(ca.verdict(vec![other.clone()], purpose).is_err(), "{at} alone");
            }
        }
        let newer = ca.list("24", "40", &[], &[scope(ONLY_USERS)]);
        assert_eq!(
            ca.verdict(vec![base, newer], CertificatePurpose::Client),
            Ok(()),
            "the newest of its scope counts"
        );
    }

    #[test]
    fn what_is_wrong_with_the_only_list_is_said_as_openssl_does() {
        let ca = Authority::new(Vec::new());
        let alone = |begins, ends, extensions: &[Vec<u8>]| {
            ca.verdict(vec![ca.list(begins, ends, &[], extensions)], CertificatePurpose::Client)
                .map_err(|it| it.code)
        };
        assert_eq!(alone("24", "40", &[]), Ok(()));
        assert_eq!(alone("24", "40", &[scope(ONLY_USERS)]), Err(44), "the authority needs a list as well");
        assert_eq!(alone("24", "40", &[scope(ONLY_AUTHORITIES)]), Err(44));
        assert_eq!(alone("24", "40", &[scope(INDIRECT)]), Err(3));
        assert_eq!(alone("24", "40", &[critical(27, &[2, 1, 1])]), Err(3));
        assert_eq!(alone("24", "40", &[critical(99, &[5, 0])]), Err(36));
        assert_eq!(alone("30", "40", &[]), Err(11));
        assert_eq!(alone("22", "23", &[]), Err(12));
        let base = || ca.list("24", "40", &[], &[]);
        let delta = ca.list("25", "40", &[5], &[critical(27, &[2, 1, 1])]);
        assert_eq!(
            ca.verdict(vec![base(), delta], CertificatePurpose::Client),
            Err(VerifyProblem::REVOKED),
            "a delta adds"
        );
        let other = Authority::new(Vec::new());
        assert!(ca.verdict(vec![other.list("24", "40", &[], &[])], CertificatePurpose::Client).is_err());
    }

    /// The place of a list must be one that the certificate names.
    #[test]
    fn a_list_of_a_place_is_for_the_certificates_that_name_it() {
        let names =
            |url: &str| der::encode(0xa0, &[&der::encode(0xa0, &[&der::encode(0x86, &[url.as_bytes()])])]);
        let point = |parts: &[&[u8]]| der::encode(der::SEQUENCE, &[&der::encode(der::SEQUENCE, parts)]);
        let here = "http://a/1.crl";
        let with = |content: Vec<u8>| {
            Authority::new(vec![rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 31], content)])
        };
        for (ca, expected) in [
            (with(point(&[&names(here)])), Ok(())),
            (with(point(&[&names("http://a/2.crl")])), Err(VerifyProblem::REVOKED)),
            (with(point(&[&names(here), &[0x81, 2, 6, 0x40]])), Err(VerifyProblem::REVOKED)),
            (Authority::new(Vec::new()), Err(VerifyProblem::REVOKED)),
        ] {
            // The older one is for all, and has the certificate.
            let newer = ca.list("24", "40", &[], &[scope(&names(here))]);
            let lists = vec![ca.list("21", "40", &[5], &[]), newer];
            assert_eq!(ca.verdict(lists, CertificatePurpose::Client), expected);
        }
    }

    #[test]
    fn netscapes_kind_of_certificate_counts() {
        for (bits, client, server) in [(0x80, true, false), (0x40, false, true), (0xc0, true, true)] {
            let kind = rcgen::CustomExtension::from_oid_content(
                &[2, 16, 840, 1, 113_730, 1, 1],
                vec![3, 2, 0, bits],
            );
            let ca = Authority::new(vec![kind]);
            let verdict = |purpose| ca.verdict(Vec::new(), purpose);
            let expected = |fits: bool| if fits { Ok(()) } else { Err(VerifyProblem::PURPOSE) };
            assert_eq!(verdict(CertificatePurpose::Client), expected(client));
            assert_eq!(verdict(CertificatePurpose::Server), expected(server));
        }
    }
}
