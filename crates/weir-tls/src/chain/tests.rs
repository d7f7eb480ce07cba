use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose as Extended,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose as Usage, NameConstraints, date_time_ymd,
};

use super::*;

/// 2025-06-01.
const NOW: u64 = 1_748_736_000;
use CertificatePurpose::{Client, Server};

/// A certificate with its key.
struct Link {
    params: CertificateParams,
    key: KeyPair,
    der: CertificateDer<'static>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn with(mut params: CertificateParams, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    change(&mut params);
    params
}

fn authority(name: &str) -> CertificateParams {
    with(params(name), |it| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))
}

impl Link {
    fn root(params: CertificateParams) -> Link {
        let key = KeyPair::generate().expect("a key");
        let der = params.self_signed(&key).expect("signed").der().clone();
        Link { params, key, der }
    }

    /// A certificate that this one has issued.
    fn issue(&self, params: CertificateParams) -> Link {
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::from_params(&self.params, &self.key);
        let der = params.signed_by(&key, &issuer).expect("signed").der().clone();
        Link { params, key, der }
    }
}

/// What is found where `sent` came and `trusted` are trusted.
fn found(
    sent: &[&Link],
    trusted: &[&Link],
    depth: usize,
    purpose: CertificatePurpose,
) -> Result<(), VerifyProblem> {
    at(sent, trusted, (depth, NOW), purpose)
}

fn at(
    sent: &[&Link],
    trusted: &[&Link],
    (depth, now): (usize, u64),
    purpose: CertificatePurpose,
) -> Result<(), VerifyProblem> {
    let chain: Vec<_> = sent.iter().map(|link| link.der.clone()).collect();
    let trust =
        TrustStore { certificates: trusted.iter().map(|link| link.der.clone()).collect(), crls: Vec::new() };
    check(&chain, &trust, depth, purpose, now)
}

/// Of a leaf, an intermediate and a root that is trusted.
fn of_three(
    root: CertificateParams,
    middle: CertificateParams,
    leaf: CertificateParams,
) -> [Result<(), VerifyProblem>; 2] {
    let root = Link::root(root);
    let middle = root.issue(middle);
    let leaf = middle.issue(leaf);
    [Client, Server].map(|purpose| found(&[&leaf, &middle], &[&root], 9, purpose))
}

#[test]
fn a_path_leads_from_the_leaf_to_what_is_trusted() {
    let root = Link::root(authority("root"));
    let first = root.issue(authority("first"));
    let second = first.issue(authority("second"));
    let leaf = second.issue(params("leaf"));
    let chain = [&leaf, &first, &second].map(|link| link.der.clone());
    let trust = TrustStore { certificates: vec![root.der.clone()], crls: Vec::new() };
    let path = verified(&chain, &trust, 2, Client, NOW).expect("it is trusted");
    assert_eq!(path, [&leaf, &second, &first, &root].map(|link| link.der.clone()));
    for (depth, of_sent, of_trusted) in [
        (2, Ok(()), Ok(())),
        (9, Ok(()), Ok(())),
        (1, Err(VerifyProblem::NO_LOCAL_ISSUER), Err(VerifyProblem::NO_ISSUER)),
        (0, Err(VerifyProblem::NO_LOCAL_ISSUER), Err(VerifyProblem::NO_ISSUER)),
    ] {
        assert_eq!(found(&[&leaf, &first, &second], &[&root], depth, Client), of_sent, "{depth}");
        assert_eq!(found(&[&leaf], &[&root, &first, &second], depth, Client), of_trusted, "{depth}");
    }
    // Of a server's certificate, where none is trusted, the first problem counts.
    assert_eq!(found(&[&leaf, &second, &first, &root], &[], 1, Server), Err(VerifyProblem::TOO_LONG));
    assert_eq!(
        found(&[&leaf, &second, &first, &root], &[], 3, Server),
        Err(VerifyProblem::SELF_SIGNED_IN_CHAIN)
    );
}

#[test]
fn what_leads_to_none_that_is_trusted_is_refused() {
    let (root, other) = (Link::root(authority("root")), Link::root(authority("other")));
    let middle = root.issue(authority("middle"));
    let leaf = middle.issue(params("leaf"));
    let alone = Link::root(params("alone"));
    for (sent, trusted, problem) in [
        (vec![&leaf, &middle], vec![&other], VerifyProblem::NO_LOCAL_ISSUER),
        (vec![&leaf], vec![&other], VerifyProblem::UNVERIFIED_LEAF),
        (vec![&leaf], vec![&root], VerifyProblem::UNVERIFIED_LEAF),
        (vec![&leaf, &middle, &root], vec![&other], VerifyProblem::SELF_SIGNED_IN_CHAIN),
        (vec![&leaf, &middle], vec![&middle], VerifyProblem::NO_ISSUER),
        (vec![&alone], vec![&other], VerifyProblem::SELF_SIGNED),
        (vec![&alone], vec![], VerifyProblem::SELF_SIGNED),
        (vec![], vec![&root], VerifyProblem::MALFORMED),
    ] {
        assert_eq!(found(&sent, &trusted, 9, Client), Err(problem));
    }
    assert_eq!(found(&[&alone], &[&alone], 9, Client), Ok(()));
    let wrong = [CertificateDer::from(vec![0x30, 0]), leaf.der.clone()];
    assert_eq!(check(&wrong, &TrustStore::default(), 9, Client, NOW), Err(VerifyProblem::MALFORMED));
    // A path of trusted certificates does not go on over those that were sent.
    assert_eq!(found(&[&leaf, &root], &[&middle], 9, Client), Err(VerifyProblem::NO_ISSUER));
}

#[test]
fn a_signature_is_by_the_issuers_key() {
    let (root, namesake) = (Link::root(authority("root")), Link::root(authority("root")));
    let leaf = namesake.issue(params("leaf"));
    assert_eq!(found(&[&leaf], &[&root], 9, Client), Err(VerifyProblem::BAD_SIGNATURE));
    let middle = namesake.issue(authority("middle"));
    let below = middle.issue(params("below"));
    assert_eq!(found(&[&below, &middle], &[&root], 9, Server), Err(VerifyProblem::BAD_SIGNATURE));
}

#[test]
fn all_along_the_path_are_in_force() {
    let day = date_time_ymd(2025, 6, 1);
    let until = |name: &str| with(authority(name), |it| it.not_after = day);
    let from = |name: &str| with(authority(name), |it| it.not_before = day);
    let whole = |name: &str| authority(name);
    for (make, now, problem) in [
        (&until as &dyn Fn(&str) -> CertificateParams, NOW + 1, VerifyProblem::EXPIRED),
        (&from, NOW - 1, VerifyProblem::NOT_YET_VALID),
    ] {
        for limited in 0..3 {
            let of = |at: usize, name: &str| if at == limited { make(name) } else { whole(name) };
            let root = Link::root(of(0, "root"));
            let middle = root.issue(of(1, "middle"));
            let leaf = middle.issue(of(2, "leaf"));
            let sent = [&leaf, &middle];
            assert_eq!(at(&sent, &[&root], (9, NOW), Client), Ok(()), "{limited}");
            assert_eq!(at(&sent, &[&root], (9, now), Client), Err(problem), "{limited}");
        }
    }
}

#[test]
fn only_an_authority_issues() {
    let usages = |key_usages: Vec<Usage>| with(authority("middle"), |it| it.key_usages = key_usages);
    let none = with(params("middle"), |it| it.is_ca = IsCa::ExplicitNoCa);
    for (middle, verdict) in [
        (authority("middle"), Ok(())),
        (usages(vec![Usage::KeyCertSign]), Ok(())),
        (usages(vec![Usage::DigitalSignature]), Err(VerifyProblem::NO_CERT_SIGN)),
        (none, Err(VerifyProblem::PURPOSE)),
        (params("middle"), Err(VerifyProblem::PURPOSE)),
    ] {
        let shown = format!("{:?} {:?}", middle.is_ca, middle.key_usages);
        assert_eq!(of_three(authority("root"), middle, params("leaf")), [verdict; 2], "{shown}");
    }
    // A root that says nothing of itself is none of the old ones without any extension only if it has one.
    let root = with(params("root"), |it| it.key_usages = vec![Usage::KeyCertSign]);
    assert_eq!(of_three(root, authority("middle"), params("leaf")), [Err(VerifyProblem::PURPOSE); 2]);
}

#[test]
fn an_authority_says_how_many_may_be_below_it() {
    let limited =
        |name, most| with(params(name), |it| it.is_ca = IsCa::Ca(BasicConstraints::Constrained(most)));
    let leaf = || params("leaf");
    assert_eq!(of_three(limited("root", 1), limited("middle", 0), leaf()), [Ok(()); 2]);
    assert_eq!(
        of_three(limited("root", 0), authority("middle"), leaf()),
        [Err(VerifyProblem::PATH_LENGTH); 2]
    );
}

#[test]
fn a_certificate_is_for_its_purpose_and_so_are_its_authorities() {
    let (fine, unfit) = (Ok(()), Err(VerifyProblem::PURPOSE));
    for (extended_key_usages, verdicts) in [
        (vec![], [fine, fine]),
        (vec![Extended::ClientAuth], [fine, unfit]),
        (vec![Extended::ServerAuth], [unfit, fine]),
        (vec![Extended::ClientAuth, Extended::ServerAuth], [fine, fine]),
        (vec![Extended::CodeSigning], [unfit, unfit]),
    ] {
        let leaf = with(params("leaf"), |it| it.extended_key_usages = extended_key_usages.clone());
        assert_eq!(
            of_three(authority("root"), authority("middle"), leaf),
            verdicts,
            "{extended_key_usages:?}"
        );
        let middle = with(authority("middle"), |it| it.extended_key_usages = extended_key_usages.clone());
        assert_eq!(of_three(authority("root"), middle, params("leaf")), verdicts, "{extended_key_usages:?}");
    }
    for (key_usages, verdicts) in [
        (vec![Usage::DigitalSignature], [fine, fine]),
        (vec![Usage::KeyAgreement], [fine, fine]),
        (vec![Usage::KeyEncipherment], [unfit, fine]),
        (vec![Usage::KeyCertSign], [unfit, unfit]),
        (vec![Usage::CrlSign], [unfit, unfit]),
    ] {
        let leaf = with(params("leaf"), |it| it.key_usages = key_usages.clone());
        assert_eq!(of_three(authority("root"), authority("middle"), leaf), verdicts, "{key_usages:?}");
        let alone = Link::root(with(params("alone"), |it| it.key_usages = key_usages.clone()));
        let signs = key_usages == [Usage::KeyCertSign];
        let expected = if signs { [fine, fine] } else { verdicts };
        assert_eq!(
            [Client, Server].map(|purpose| found(&[&alone], &[&alone], 9, purpose)),
            expected,
            "{key_usages:?} alone"
        );
    }
    // Netscape's: bits of the kinds, client and server.
    for (bits, verdicts) in [
        ([7, 0x80], [fine, unfit]),
        ([6, 0x40], [unfit, fine]),
        ([6, 0xc0], [fine, fine]),
        ([5, 0x20], [unfit, unfit]),
    ] {
        let content = [&[3, 2][..], &bits].concat();
        let kind = CustomExtension::from_oid_content(&[2, 16, 840, 1, 113_730, 1, 1], content);
        let leaf = with(params("leaf"), |it| it.custom_extensions = vec![kind]);
        assert_eq!(of_three(authority("root"), authority("middle"), leaf), verdicts, "{bits:?}");
    }
}

#[test]
fn what_is_critical_must_be_understood() {
    let extended = |params: CertificateParams, critical: bool| {
        let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        unknown.set_criticality(critical);
        with(params, |it| it.custom_extensions = vec![unknown])
    };
    for (critical, verdict) in [(false, Ok(())), (true, Err(VerifyProblem::CRITICAL))] {
        assert_eq!(
            of_three(authority("root"), authority("middle"), extended(params("leaf"), critical)),
            [verdict; 2]
        );
        assert_eq!(
            of_three(authority("root"), extended(authority("middle"), critical), params("leaf")),
            [verdict; 2]
        );
        assert_eq!(
            of_three(extended(authority("root"), critical), authority("middle"), params("leaf")),
            [verdict; 2]
        );
    }
    let names = NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".into())],
        excluded_subtrees: Vec::new(),
    };
    let middle = with(authority("middle"), |it| it.name_constraints = Some(names));
    assert_eq!(
        of_three(authority("root"), middle, params("leaf")),
        [Err(VerifyProblem::NAME_CONSTRAINTS); 2]
    );
}
