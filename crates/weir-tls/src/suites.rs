//! Versions, cipher suites and groups by the names that OpenSSL's users know.

use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, DEFAULT_KX_GROUPS, default_provider};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use crate::error::{Error, content};
use crate::p521::SECP521R1;
use crate::record_seal::all_suites;
use crate::secrets::NotedRandom;

/// The versions of TLS that are allowed (`ssl_protocols`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolVersions {
    /// True when TLS 1.2 is allowed.
    pub tls12: bool,
    /// True when TLS 1.3 is allowed.
    pub tls13: bool,
}

impl Default for ProtocolVersions {
    fn default() -> ProtocolVersions {
        ProtocolVersions { tls12: true, tls13: true }
    }
}

impl ProtocolVersions {
    pub(crate) fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        let wanted = [(self.tls13, &TLS13), (self.tls12, &TLS12)];
        wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, version)| version).collect()
    }
}

/// What rustls is to use.
pub(crate) fn provider(
    suites: &[SupportedCipherSuite],
    groups: &[&'static dyn SupportedKxGroup],
) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: suites.to_vec(),
        kx_groups: groups.to_vec(),
        secure_random: &NotedRandom,
        ..default_provider()
    }
}

/// All suites, in the order of preference where nothing else is wanted: AES-128 first in TLS 1.2 costs a tenth less
/// than AES-256 and is as good.
pub fn default_suites() -> Vec<SupportedCipherSuite> {
    all_suites().to_vec()
}

/// The suites that an OpenSSL cipher list selects, those of TLS 1.3 before them: they are not affected by it.
///
/// # Errors
/// None is left, in OpenSSL's words, and what there is.
pub fn select(list: &str) -> Result<Vec<SupportedCipherSuite>, Error> {
    let mut chosen: Vec<&LegacySuite> = Vec::new();
    let mut killed: Vec<&LegacySuite> = Vec::new();
    for word in list.split([':', ',', ' ', ';']).filter(|word| !word.is_empty()) {
        let (word, special) = word.split_once('@').map_or((word, None), |(word, name)| (word, Some(name)));
        special.map_or(Ok(()), check_special)?;
        let (action, name) = match word.as_bytes().first() {
            Some(b @ (b'!' | b'-' | b'+')) => (Some(*b), &word[1..]),
            Some(_) => (None, word),
            None => continue,
        };
        let meant: Vec<&LegacySuite> = LEGACY.iter().filter(|suite| suite.is(name)).collect();
        let is_meant = |it: &&LegacySuite| meant.iter().any(|meant| meant.name == it.name);
        match action {
            Some(b'!') => {
                chosen.retain(|it| !is_meant(it));
                killed.extend(meant);
            }
            Some(b'-') => chosen.retain(|it| !is_meant(it)),
            Some(_) => {
                let (moved, kept): (Vec<&LegacySuite>, Vec<&LegacySuite>) =
                    chosen.into_iter().partition(is_meant);
                chosen = kept.into_iter().chain(moved).collect();
            }
            None => {
                let dead = |it: &&LegacySuite| killed.iter().any(|killed| killed.name == it.name);
                let new = meant.into_iter().filter(|it| !dead(it));
                let new: Vec<&LegacySuite> =
                    new.filter(|it| !chosen.iter().any(|c| c.name == it.name)).collect();
                chosen.extend(new);
            }
        }
    }
    if chosen.is_empty() {
        return Err(content(format!(
            "no cipher match: of TLS 1.2 there are {}",
            LEGACY.iter().map(|suite| suite.name).collect::<Vec<_>>().join(":")
        )));
    }
    let tls13 = all_suites().iter().filter(|suite| suite.tls13().is_some()).copied();
    Ok(tls13.chain(chosen.iter().filter_map(|legacy| by_number(legacy.number))).collect())
}

/// Checks what comes after `@` in a cipher list. `STRENGTH` is the order that there is. Up to level 2 all that there is is
/// strong enough (112 bits: RSA of 2048 bits, curves of 224); keys and groups of higher levels are not distinguished here.
fn check_special(name: &str) -> Result<(), Error> {
    match name.strip_prefix("SECLEVEL=") {
        Some("0" | "1" | "2") => Ok(()),
        Some("3" | "4" | "5") => Err(content(format!(
            "invalid command: \"@{name}\" can't be had, security levels end with 2 here"
        ))),
        None if name == "STRENGTH" => Ok(()),
        _ => Err(content(format!("invalid command: \"@{name}\""))),
    }
}

/// The ciphers that a list in OpenSSL's words and one of TLS 1.3's names choose together; all where neither is given.
///
/// # Errors
/// As [`select`] and [`select_tls13`].
pub fn chosen(list: Option<&str>, tls13: Option<&str>) -> Result<Vec<SupportedCipherSuite>, Error> {
    let mut suites = list.map_or(Ok(default_suites()), select)?;
    if let Some(tls13) = tls13 {
        suites.retain(|suite| suite.tls13().is_none());
        suites.splice(0..0, select_tls13(tls13)?);
    }
    Ok(suites)
}

/// The suites of TLS 1.3 that a list (`ssl_conf_command Ciphersuites`) names, in its order. What can't be had is left out
/// ([`lacking_tls13`]).
///
/// # Errors
/// A name is unknown, or none is left: a list without any would leave TLS 1.2 alone.
pub fn select_tls13(list: &str) -> Result<Vec<SupportedCipherSuite>, Error> {
    let mut suites = Vec::new();
    for name in names(list) {
        let number = tls13_number(name).ok_or_else(|| content(format!("no cipher match: \"{name}\"")))?;
        suites.extend(by_number(number));
    }
    match suites.is_empty() {
        true => Err(content(format!("no cipher match: there is none of \"{list}\""))),
        false => Ok(suites),
    }
}

/// The names of a list of suites of TLS 1.3 that OpenSSL knows and that can't be had here.
pub fn lacking_tls13(list: &str) -> Vec<&str> {
    let lacks = |name: &&str| tls13_number(name).is_some_and(|number| by_number(number).is_none());
    names(list).filter(lacks).collect()
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(':').filter(|name| !name.is_empty())
}

/// The number of the suite of TLS 1.3 that OpenSSL calls `name` (RFC 8446, appendix B.4).
fn tls13_number(name: &str) -> Option<u16> {
    let known = SUITES.iter().find(|(number, known)| number >> 8 == 0x13 && *known == name);
    known.map(|(number, _)| *number)
}

fn by_number(number: u16) -> Option<SupportedCipherSuite> {
    all_suites().iter().copied().find(|suite| u16::from(suite.suite()) == number)
}

/// A suite of TLS 1.2, with the words that select it in a cipher list.
struct LegacySuite {
    number: u16,
    name: &'static str,
    words: &'static [&'static str],
}

impl LegacySuite {
    /// Whether `name`, or each of several joined by `+`, selects it.
    fn is(&self, name: &str) -> bool {
        const ALL: [&str; 12] = [
            "ALL",
            "DEFAULT",
            "COMPLEMENTOFDEFAULT",
            "HIGH",
            "ECDHE",
            "EECDH",
            "kEECDH",
            "kECDHE",
            "AEAD",
            "TLSv1.2",
            "ECDH",
            "FIPS",
        ];
        let one = |word: &str| {
            (ALL.contains(&word) && word != "COMPLEMENTOFDEFAULT")
                || self.words.contains(&word)
                || self.name == word
        };
        name.split('+').all(one)
    }
}

macro_rules! legacy {
    ($($number:literal $name:literal [$($word:literal)*]),* $(,)?) => {
        /// In OpenSSL's order of its list `ALL`.
        const LEGACY: &[LegacySuite] = &[$(LegacySuite { number: $number, name: $name, words: &[$($word),*] }),*];
    };
}

legacy! {
    0xc02c "ECDHE-ECDSA-AES256-GCM-SHA384" ["aECDSA" "ECDSA" "AESGCM" "AES" "AES256" "SHA384" "SUITEB192" "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"],
    0xc030 "ECDHE-RSA-AES256-GCM-SHA384" ["aRSA" "RSA" "AESGCM" "AES" "AES256" "SHA384" "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
    0xcca9 "ECDHE-ECDSA-CHACHA20-POLY1305" ["aECDSA" "ECDSA" "CHACHA20" "SHA256" "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"],
    0xcca8 "ECDHE-RSA-CHACHA20-POLY1305" ["aRSA" "RSA" "CHACHA20" "SHA256" "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"],
    0xc02b "ECDHE-ECDSA-AES128-GCM-SHA256" ["aECDSA" "ECDSA" "AESGCM" "AES" "AES128" "SHA256" "SUITEB128" "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
    0xc02f "ECDHE-RSA-AES128-GCM-SHA256" ["aRSA" "RSA" "AESGCM" "AES" "AES128" "SHA256" "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
}

/// The groups where nothing else is wanted.
pub fn default_groups() -> Vec<&'static dyn SupportedKxGroup> {
    DEFAULT_KX_GROUPS.to_vec()
}

/// The groups of a list like `X25519:prime256v1`; `auto` is the default. What can't be had is left out ([`lacking_groups`]).
///
/// # Errors
/// None is left.
pub fn select_groups(list: &str) -> Result<Vec<&'static dyn SupportedKxGroup>, Error> {
    if list == "auto" {
        return Ok(default_groups());
    }
    let mut groups: Vec<&'static dyn SupportedKxGroup> = Vec::new();
    for group in group_words(list).filter_map(|(name, _)| group(name)) {
        if !groups.iter().any(|it| it.name() == group.name()) {
            groups.push(group);
        }
    }
    if groups.is_empty() {
        return Err(Error::Unsupported(format!("none of these groups can be had; there are {THERE_ARE}")));
    }
    Ok(groups)
}

/// The names of a list that can't be had here, but for those after `?`, which may be unknown.
pub fn lacking_groups(list: &str) -> Vec<&str> {
    let lacks = |(name, optional): &(&str, bool)| !optional && *name != "auto" && group(name).is_none();
    group_words(list).filter(lacks).map(|(name, _)| name).collect()
}

/// The groups that can be had.
pub const THERE_ARE: &str = "X25519MLKEM768, X25519, prime256v1, secp384r1, secp521r1";

/// Names, and whether they may be unknown.
fn group_words(list: &str) -> impl Iterator<Item = (&str, bool)> {
    let words = list.split([':', '/']).filter(|word| !word.is_empty());
    words.map(|word| (word.trim_start_matches(['?', '*']), word.contains('?')))
}

fn group(name: &str) -> Option<&'static dyn SupportedKxGroup> {
    let (number, _) = GROUPS.iter().find(|(_, names)| names.iter().any(|n| n.eq_ignore_ascii_case(name)))?;
    group_of(NamedGroup::from(*number))
}

/// The group of this number, if it can be had.
pub(crate) fn group_of(name: NamedGroup) -> Option<&'static dyn SupportedKxGroup> {
    ALL_KX_GROUPS.iter().copied().chain([SECP521R1]).find(|group| group.name() == name)
}

/// OpenSSL's name of a version.
pub(crate) fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "unknown",
    }
}

/// OpenSSL's name of a suite that was agreed upon.
pub(crate) fn suite_name(suite: CipherSuite) -> &'static str {
    known_suite(u16::from(suite)).unwrap_or("unknown")
}

/// How OpenSSL describes the suite of this name: key exchange, authentication, encryption.
pub(crate) fn parts(name: &str) -> (&'static str, &'static str, &'static str) {
    let encryption = match name {
        name if name.contains("CHACHA20") => "CHACHA20/POLY1305(256)",
        name if name.contains("256") && name.contains("SHA384") => "AESGCM(256)",
        _ => "AESGCM(128)",
    };
    match name {
        name if name.starts_with("TLS_") => ("any", "any", encryption),
        name if name.starts_with("ECDHE-ECDSA") => ("ECDH", "ECDSA", encryption),
        _ => ("ECDH", "RSA", encryption),
    }
}

/// The suites of these that the versions have.
pub(crate) fn of_versions(
    suites: &[SupportedCipherSuite],
    protocols: ProtocolVersions,
) -> Vec<SupportedCipherSuite> {
    let has = |suite: &&SupportedCipherSuite| match suite.tls13() {
        Some(_) => protocols.tls13,
        None => protocols.tls12,
    };
    suites.iter().filter(has).copied().collect()
}

/// With ChaCha20 and Poly1305 (RFC 8446, RFC 7905).
pub(crate) fn is_chacha(suite: u16) -> bool {
    matches!(suite, 0x1303 | 0xcca8..=0xccaa)
}

/// OpenSSL's name of the cipher suite with this number, such as `ECDHE-RSA-AES128-GCM-SHA256`; also of suites that only
/// clients offer. `None` for unknown numbers.
pub fn known_suite(number: u16) -> Option<&'static str> {
    SUITES.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

/// OpenSSL's name of a group; empty if it is unknown.
pub fn group_name(number: u16) -> &'static str {
    GROUPS.iter().find(|(n, _)| *n == number).map_or("", |(_, names)| names[0])
}

/// The name of a signature scheme (RFC 8446, section 4.2.3); empty if it is unknown.
pub fn signature_name(number: u16) -> &'static str {
    SIGNATURES.iter().find(|(n, _)| *n == number).map_or("", |(_, name)| name)
}

/// The number of the signature scheme of this name.
pub(crate) fn signature_number(name: &str) -> Option<u16> {
    SIGNATURES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

/// The number of the first scheme whose name begins and ends so.
pub(crate) fn signature_number_between(begin: &str, end: &str) -> Option<u16> {
    let fits = |(_, name): &&(u16, &str)| name.starts_with(begin) && name.ends_with(end);
    SIGNATURES.iter().find(fits).map(|(number, _)| *number)
}

const SIGNATURES: &[(u16, &str)] = &[
    (0x0403, "ecdsa_secp256r1_sha256"),
    (0x0503, "ecdsa_secp384r1_sha384"),
    (0x0603, "ecdsa_secp521r1_sha512"),
    (0x0303, "ecdsa_sha224"),
    (0x0203, "ecdsa_sha1"),
    (0x0804, "rsa_pss_rsae_sha256"),
    (0x0805, "rsa_pss_rsae_sha384"),
    (0x0806, "rsa_pss_rsae_sha512"),
    (0x0809, "rsa_pss_pss_sha256"),
    (0x080a, "rsa_pss_pss_sha384"),
    (0x080b, "rsa_pss_pss_sha512"),
    (0x0401, "rsa_pkcs1_sha256"),
    (0x0501, "rsa_pkcs1_sha384"),
    (0x0601, "rsa_pkcs1_sha512"),
    (0x0301, "rsa_pkcs1_sha224"),
    (0x0201, "rsa_pkcs1_sha1"),
    (0x0807, "ed25519"),
    (0x0808, "ed448"),
    (0x0904, "mldsa44"),
    (0x0905, "mldsa65"),
    (0x0906, "mldsa87"),
];

/// The name that OpenSSL prints comes first.
const GROUPS: &[(u16, &[&str])] = &[
    (0x001d, &["X25519"]),
    (0x0017, &["prime256v1", "secp256r1", "P-256"]),
    (0x0018, &["secp384r1", "P-384"]),
    (0x0019, &["secp521r1", "P-521"]),
    (0x001e, &["X448"]),
    (0x11ec, &["X25519MLKEM768"]),
    (0x11eb, &["SecP256r1MLKEM768"]),
    (0x11ed, &["SecP384r1MLKEM1024"]),
    (0x0200, &["MLKEM512"]),
    (0x0201, &["MLKEM768"]),
    (0x0202, &["MLKEM1024"]),
    (0x0100, &["ffdhe2048"]),
    (0x0101, &["ffdhe3072"]),
    (0x0102, &["ffdhe4096"]),
    (0x0103, &["ffdhe6144"]),
    (0x0104, &["ffdhe8192"]),
];

const SUITES: &[(u16, &str)] = &[
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (0xc02f, "ECDHE-RSA-AES128-GCM-SHA256"),
    (0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (0xc030, "ECDHE-RSA-AES256-GCM-SHA384"),
    (0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (0xcca8, "ECDHE-RSA-CHACHA20-POLY1305"),
    (0xccaa, "DHE-RSA-CHACHA20-POLY1305"),
    (0x009e, "DHE-RSA-AES128-GCM-SHA256"),
    (0x009f, "DHE-RSA-AES256-GCM-SHA384"),
    (0xc023, "ECDHE-ECDSA-AES128-SHA256"),
    (0xc024, "ECDHE-ECDSA-AES256-SHA384"),
    (0xc027, "ECDHE-RSA-AES128-SHA256"),
    (0xc028, "ECDHE-RSA-AES256-SHA384"),
    (0xc009, "ECDHE-ECDSA-AES128-SHA"),
    (0xc00a, "ECDHE-ECDSA-AES256-SHA"),
    (0xc013, "ECDHE-RSA-AES128-SHA"),
    (0xc014, "ECDHE-RSA-AES256-SHA"),
    (0x0067, "DHE-RSA-AES128-SHA256"),
    (0x006b, "DHE-RSA-AES256-SHA256"),
    (0x0033, "DHE-RSA-AES128-SHA"),
    (0x0039, "DHE-RSA-AES256-SHA"),
    (0x009c, "AES128-GCM-SHA256"),
    (0x009d, "AES256-GCM-SHA384"),
    (0x003c, "AES128-SHA256"),
    (0x003d, "AES256-SHA256"),
    (0x002f, "AES128-SHA"),
    (0x0035, "AES256-SHA"),
    (0x00ff, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"),
    (0x5600, "TLS_FALLBACK_SCSV"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let suites = select(list).expect("some").into_iter().filter(|suite| suite.tls13().is_none());
        suites.map(|suite| suite_name(suite.suite())).collect()
    }

    #[test]
    fn cipher_lists_select_what_openssl_selects_of_these_suites() {
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), 6);
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA"), ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(
            names("ECDHE+AESGCM:!aRSA"),
            ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"]
        );
        assert_eq!(
            names("aRSA:+CHACHA20:-AES256"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"]
        );
        assert_eq!(names("!ECDSA:ALL").len(), 3);
        assert_eq!(select("RSA+AES128:ALL").expect("some").len(), 9, "TLS 1.3 stays");
    }

    #[test]
    fn security_levels_that_would_not_be_kept_are_refused() {
        for list in ["DEFAULT@SECLEVEL=2", "@SECLEVEL=0:ALL", "HIGH:@STRENGTH"] {
            assert_eq!(names(list).len(), 6, "{list}");
        }
        for list in [
            "DEFAULT@SECLEVEL=3",
            "ALL:@SECLEVEL=5",
            "ALL:@SECLEVEL=9",
            "ALL:@SECLEVEL",
            "ALL:@x",
            "@SECLEVEL=2",
        ] {
            assert!(select(list).is_err(), "{list}");
        }
    }

    #[test]
    fn a_list_of_suites_of_tls13_is_never_empty() {
        let count = |list| select_tls13(list).map(|suites| suites.len()).ok();
        assert_eq!(count("TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384"), Some(1));
        assert_eq!(
            lacking_tls13("TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384:x"),
            ["TLS_AES_128_CCM_SHA256"]
        );
        for list in
            ["", ":", "TLS_AES_128_CCM_SHA256", "x:TLS_AES_256_GCM_SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        {
            assert_eq!(count(list), None, "{list}");
        }
    }

    #[test]
    fn suites_are_described_and_belong_to_versions() {
        assert_eq!(parts("TLS_AES_256_GCM_SHA384"), ("any", "any", "AESGCM(256)"));
        assert_eq!(parts("ECDHE-RSA-AES128-GCM-SHA256"), ("ECDH", "RSA", "AESGCM(128)"));
        assert_eq!(parts("ECDHE-ECDSA-CHACHA20-POLY1305"), ("ECDH", "ECDSA", "CHACHA20/POLY1305(256)"));
        let count = |tls12, tls13| of_versions(&default_suites(), ProtocolVersions { tls12, tls13 }).len();
        assert_eq!((count(true, false), count(false, true), count(true, true)), (6, 3, 9));
    }

    #[test]
    fn a_list_without_any_is_refused() {
        for list in ["AES128-SHA", "DES-CBC3-SHA:!aNULL", "NULL", ""] {
            let error = select(list).expect_err("nothing is left").to_string();
            assert!(error.starts_with("no cipher match"), "{error}");
        }
    }

    #[test]
    fn groups_by_any_of_their_names() {
        let names = |list: &str| -> Vec<&str> {
            let groups = select_groups(list).expect("known");
            groups.iter().map(|group| group_name(u16::from(group.name()))).collect()
        };
        assert_eq!(names("X25519:P-256:secp384r1"), ["X25519", "prime256v1", "secp384r1"]);
        assert_eq!(names("?x448:prime256v1"), ["prime256v1"]);
        assert_eq!(names("auto").first(), Some(&"X25519MLKEM768"));
        assert_eq!(names("auto").len(), default_groups().len());
        assert_eq!(
            names("x448:P-521:nothing:secp521r1"),
            ["secp521r1"],
            "each once, what can't be had left out"
        );
        assert_eq!(lacking_groups("x448:P-521:?ffdhe2048:nothing"), ["x448", "nothing"]);
        assert!(select_groups("x448").is_err());
    }
}
