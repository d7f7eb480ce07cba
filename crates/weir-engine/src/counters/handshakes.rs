//! TLS handshakes of clients, counted: what they agreed upon, and why others failed.

use std::array;

use weir_tls::{HandshakeFailure, ResumedFrom, SessionFacts};

use super::{CloseSide, WorkerCounter};
use crate::explained_kinds::explained_kinds;

explained_kinds! {
    /// Why a client's TLS handshake failed.
    HandshakeFault: CloseSide =>
    /// Who was first: who broke it off, or did not go on.
    side;
    UnknownCa Client "unknown_ca" "The client does not trust the issuer of the certificate: alert 48."
    CertificateExpired Client "certificate_expired" "The client finds the certificate expired: alert 45."
    BadCertificate Client "bad_certificate" "The client refuses the certificate: alert 42, 43, 44, 46 or 113."
    VersionRefused Client "version_refused" "The client takes none of the versions: alert 70 or 86."
    Refused Client "refused" "The client finds nothing that suits it: alert 40, 47, 71, 109, 110 or 120."
    Canceled Client "canceled" "The client gave up: alert 0 or 90."
    OtherAlert Client "other_alert" "The client ended the handshake with another alert."
    Closed Client "closed" "The client closed the connection in the middle of the handshake."
    Reset Network "reset" "The connection was reset, or the way to the client is gone."
    Timeout Server "timeout" "The handshake was not complete within client_header_timeout."
    NotTls Server "not_tls" "What came is no TLS."
    NoVersion Server "no_version" "No version is in common: see ssl_protocols."
    NoCipher Server "no_cipher" "No cipher is in common, or none that fits a certificate: see ssl_ciphers."
    NoGroup Server "no_group" "No key exchange group is in common: see ssl_ecdh_curve."
    NoSignature Server "no_signature" "No signature scheme is in common, or none that fits a certificate."
    NoProtocol Server "no_protocol" "No application protocol is in common (ALPN)."
    NoServer Server "no_server" "The server that the name chose has no certificate, or ssl_reject_handshake."
    Script Server "script" "A script refused the handshake or failed, or the pattern of a server's name did."
    NoCertificate Server "no_certificate" "The certificate of this handshake could not be had: see the error log."
    ClientCertificate Server "client_certificate" "The client's certificate, or its signature, is invalid."
    Incompatible Server "incompatible" "The client lacks something that TLS needs."
    Misbehaved Server "misbehaved" "The client broke the rules of TLS, or its record could not be decrypted."
    Own Server "own_failure" "This side has failed: its key, or the system. See the error log."
}

impl HandshakeFault {
    /// What to count where TLS says that a handshake failed.
    pub fn of(failure: HandshakeFailure) -> HandshakeFault {
        match failure {
            HandshakeFailure::Alert(number) => HandshakeFault::of_alert(number),
            HandshakeFailure::NoTls => HandshakeFault::NotTls,
            HandshakeFailure::NoVersion => HandshakeFault::NoVersion,
            HandshakeFailure::NoCipher => HandshakeFault::NoCipher,
            HandshakeFailure::NoGroup => HandshakeFault::NoGroup,
            HandshakeFailure::NoSignature => HandshakeFault::NoSignature,
            HandshakeFailure::NoProtocol => HandshakeFault::NoProtocol,
            HandshakeFailure::Certificate => HandshakeFault::ClientCertificate,
            HandshakeFailure::Incompatible => HandshakeFault::Incompatible,
            HandshakeFailure::Decrypt | HandshakeFailure::Misbehaved => HandshakeFault::Misbehaved,
            HandshakeFailure::Own => HandshakeFault::Own,
        }
    }

    fn of_alert(number: u8) -> HandshakeFault {
        match number {
            48 => HandshakeFault::UnknownCa,
            45 => HandshakeFault::CertificateExpired,
            42 | 43 | 44 | 46 | 113 => HandshakeFault::BadCertificate,
            70 | 86 => HandshakeFault::VersionRefused,
            40 | 47 | 71 | 109 | 110 | 120 => HandshakeFault::Refused,
            0 | 90 => HandshakeFault::Canceled,
            _ => HandshakeFault::OtherAlert,
        }
    }
}

/// What is counted of a complete handshake: each handshake has one value of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandshakeTrait {
    /// Whether it resumed a session, and where that was.
    Session,
    /// The version.
    Version,
    /// The cipher suite.
    Cipher,
    /// The key exchange group.
    Group,
    /// The application protocol.
    Alpn,
    /// What became of the client's certificate, where one was asked for.
    ClientCertificate,
}

impl HandshakeTrait {
    /// All of them.
    pub const ALL: [HandshakeTrait; 6] = [
        HandshakeTrait::Session,
        HandshakeTrait::Version,
        HandshakeTrait::Cipher,
        HandshakeTrait::Group,
        HandshakeTrait::Alpn,
        HandshakeTrait::ClientCertificate,
    ];

    /// The word for it in labels and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            HandshakeTrait::Session => "session",
            HandshakeTrait::Version => "version",
            HandshakeTrait::Cipher => "cipher",
            HandshakeTrait::Group => "group",
            HandshakeTrait::Alpn => "alpn",
            HandshakeTrait::ClientCertificate => "client_certificate",
        }
    }

    /// The values that are counted one by one; what is none of them is `other`, after these.
    pub const fn values(self) -> &'static [&'static str] {
        match self {
            HandshakeTrait::Session => &[FULL, "ticket", "cache"],
            HandshakeTrait::Version => &["TLSv1.3", "TLSv1.2"],
            HandshakeTrait::Cipher => &[
                "TLS_AES_128_GCM_SHA256",
                "TLS_AES_256_GCM_SHA384",
                "TLS_CHACHA20_POLY1305_SHA256",
                "ECDHE-ECDSA-AES128-GCM-SHA256",
                "ECDHE-ECDSA-AES256-GCM-SHA384",
                "ECDHE-ECDSA-CHACHA20-POLY1305",
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-RSA-AES256-GCM-SHA384",
                "ECDHE-RSA-CHACHA20-POLY1305",
            ],
            HandshakeTrait::Group => {
                &["X25519MLKEM768", "X25519", "prime256v1", "secp384r1", "secp521r1", "none"]
            }
            HandshakeTrait::Alpn => &["h2", "http/1.1", "http/1.0", "none"],
            HandshakeTrait::ClientCertificate => &["verified", "refused", "none"],
        }
    }
}

/// A handshake with a key exchange of its own.
pub const FULL: &str = "full";
/// What is counted of values that are not counted one by one.
pub const OTHER: &str = "other";
/// Counters of each trait: of its values and of what is none of them.
const VALUES: usize = 10;

/// What a server made of a client's certificate that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownCertificate {
    /// It is trusted.
    Verified,
    /// It is not.
    Refused,
    /// The client has none.
    Absent,
}

/// TLS handshakes of clients: the counts of one worker, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub struct HandshakeCounters {
    traits: [[WorkerCounter; VALUES]; HandshakeTrait::ALL.len()],
    faults: [WorkerCounter; HandshakeFault::ALL.len()],
}

impl Default for HandshakeCounters {
    fn default() -> HandshakeCounters {
        HandshakeCounters {
            traits: array::from_fn(|_| array::from_fn(|_| WorkerCounter::default())),
            faults: array::from_fn(|_| WorkerCounter::default()),
        }
    }
}

impl HandshakeCounters {
    /// Counts a handshake that is complete; `shown`: what came of asking for the client's certificate, `None` where none
    /// was asked for. Only from the one writing thread.
    pub fn agreed(&self, facts: &SessionFacts, shown: Option<ShownCertificate>) {
        let session = match (facts.resumed, facts.resumed_from) {
            (false, _) => FULL,
            (true, Some(ResumedFrom::Ticket)) => "ticket",
            (true, _) => "cache",
        };
        let none = |name: &'static str| if name.is_empty() { "none" } else { name };
        self.count(HandshakeTrait::Session, session);
        self.count(HandshakeTrait::Version, facts.version);
        self.count(HandshakeTrait::Cipher, facts.cipher);
        self.count(HandshakeTrait::Group, none(facts.curve));
        let alpn = facts.alpn.as_deref().map_or("none", |name| str::from_utf8(name).unwrap_or(OTHER));
        self.count(HandshakeTrait::Alpn, alpn);
        if let Some(shown) = shown {
            let shown = match shown {
                ShownCertificate::Verified => "verified",
                ShownCertificate::Refused => "refused",
                ShownCertificate::Absent => "none",
            };
            self.count(HandshakeTrait::ClientCertificate, shown);
        }
    }

    fn count(&self, of: HandshakeTrait, value: &str) {
        let values = of.values();
        let at = values.iter().position(|known| *known == value).unwrap_or(values.len());
        self.traits[of as usize][at].add(1);
    }

    /// Counts one that failed. Only from the one writing thread.
    pub fn failed(&self, fault: HandshakeFault) {
        self.faults[fault as usize].add(1);
    }

    /// The values of a trait with how many handshakes had each so far.
    pub fn values(&self, of: HandshakeTrait) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let names = of.values().iter().copied().chain([OTHER]);
        names.zip(&self.traits[of as usize]).map(|(name, count)| (name, count.get()))
    }

    /// How many failed for this reason so far.
    pub fn fault(&self, fault: HandshakeFault) -> u64 {
        self.faults[fault as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_trait_has_room_for_its_values_and_others() {
        for of in HandshakeTrait::ALL {
            assert!(of.values().len() < VALUES, "{of:?}");
            assert!(!of.values().contains(&OTHER));
        }
        let offered = weir_tls::suites::default_suites().len();
        assert_eq!(HandshakeTrait::Cipher.values().len(), offered, "all that can be agreed upon");
        for group in weir_tls::suites::THERE_ARE.split(", ") {
            assert!(HandshakeTrait::Group.values().contains(&group), "{group}");
        }
        let names: BTreeSet<&str> = HandshakeFault::ALL.iter().map(|fault| fault.as_str()).collect();
        assert_eq!(names.len(), HandshakeFault::ALL.len());
        assert!(HandshakeFault::ALL.iter().all(|fault| fault.says().ends_with('.')));
    }

    #[test]
    fn a_handshake_counts_once_in_each_trait() {
        let counters = HandshakeCounters::default();
        let facts = SessionFacts {
            version: "TLSv1.3",
            cipher: "TLS_AES_256_GCM_SHA384",
            alpn: Some(b"\xffodd".to_vec()),
            resumed: true,
            resumed_from: Some(ResumedFrom::Ticket),
            ..SessionFacts::default()
        };
        counters.agreed(&facts, Some(ShownCertificate::Absent));
        counters.agreed(&SessionFacts { alpn: Some(b"h2".to_vec()), ..SessionFacts::default() }, None);
        let seen = |of| counters.values(of).filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        assert_eq!(seen(HandshakeTrait::Session), [(FULL, 1), ("ticket", 1)]);
        assert_eq!(seen(HandshakeTrait::Version), [("TLSv1.3", 1), (OTHER, 1)]);
        assert_eq!(seen(HandshakeTrait::Group), [("none", 2)]);
        assert_eq!(seen(HandshakeTrait::Alpn), [("h2", 1), (OTHER, 1)]);
        assert_eq!(seen(HandshakeTrait::ClientCertificate), [("none", 1)]);
    }

    #[test]
    fn alerts_are_the_client_s_and_what_is_not_in_common_ours() {
        for number in 0..=u8::MAX {
            assert_eq!(HandshakeFault::of(HandshakeFailure::Alert(number)).side(), CloseSide::Client);
        }
        assert_eq!(HandshakeFault::of(HandshakeFailure::NoCipher).side(), CloseSide::Server);
        assert_eq!(HandshakeFault::of(HandshakeFailure::Alert(48)), HandshakeFault::UnknownCa);
    }
}
