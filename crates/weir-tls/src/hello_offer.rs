//! Hellos that no handshake can come of, with the alerts that TLS and OpenSSL have for them. rustls says handshake_failure
//! for most.

use crate::hello_fields::HelloFields;
use crate::suites::ProtocolVersions;

/// What a ClientHello offers and has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HelloOffer {
    tls12: bool,
    tls13: bool,
    signatures: bool,
    groups: bool,
    key_share: bool,
    /// An earlier session.
    psk: bool,
    early_data: bool,
}

/// Why a handshake cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnfitHello {
    /// The alert's number (RFC 8446, section 6).
    pub(crate) alert: u8,
    /// OpenSSL's words.
    pub(crate) text: &'static str,
}

impl HelloOffer {
    pub(crate) fn of(hello: &HelloFields) -> HelloOffer {
        let has = |kind| hello.extension_of(kind).is_some();
        let (tls12, tls13) = match hello.supported_versions() {
            Some(versions) => (versions.contains(&TLS12), versions.contains(&TLS13)),
            // Without the extension a later version means 1.2 (RFC 8446, section 4.2.1).
            None => (hello.versions.first().is_some_and(|version| *version >= TLS12), false),
        };
        HelloOffer {
            tls12,
            tls13,
            signatures: has(SIGNATURES),
            groups: has(GROUPS),
            key_share: has(KEY_SHARE),
            psk: has(PRE_SHARED_KEY),
            early_data: has(EARLY_DATA),
        }
    }

    /// Whether the client sends early data to a server that has these versions.
    pub(crate) fn early_data(&self, protocols: ProtocolVersions) -> bool {
        self.early_data && self.tls13 && protocols.tls13
    }

    /// Why a server that has these versions cannot go on; what else is wrong rustls says.
    pub(crate) fn unfit(&self, protocols: ProtocolVersions) -> Option<UnfitHello> {
        let tls13 = self.tls13 && protocols.tls13;
        if !(tls13 || self.tls12 && protocols.tls12) {
            return Some(UnfitHello { alert: 70, text: "error:0A000102:SSL routines::unsupported protocol" });
        }
        // RFC 8446, section 9.2.
        let missing = |text| Some(UnfitHello { alert: 109, text });
        match self {
            _ if !tls13 || self.psk => None,
            HelloOffer { signatures: false, .. } => {
                missing("error:0A000070:SSL routines::missing sigalgs extension")
            }
            HelloOffer { key_share: false, .. } => {
                missing("error:0A000065:SSL routines::no suitable key share")
            }
            HelloOffer { groups: false, .. } => {
                missing("error:0A0000D1:SSL routines::missing supported groups extension")
            }
            _ => None,
        }
    }
}

const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;
const GROUPS: u16 = 10;
const SIGNATURES: u16 = 13;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const KEY_SHARE: u16 = 51;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_openssls() {
        let both = ProtocolVersions::default();
        let whole = HelloOffer {
            tls12: true,
            tls13: true,
            signatures: true,
            groups: true,
            key_share: true,
            ..HelloOffer::default()
        };
        let alert = |offer: HelloOffer, protocols| offer.unfit(protocols).map(|it| it.alert);
        let old = ProtocolVersions { tls12: true, tls13: false };
        assert_eq!(alert(whole, both), None);
        assert_eq!(alert(HelloOffer::default(), both), Some(70));
        assert_eq!(alert(HelloOffer { tls12: false, ..whole }, old), Some(70));
        assert_eq!(
            alert(HelloOffer { tls13: false, ..whole }, ProtocolVersions { tls12: false, tls13: true }),
            Some(70)
        );
        for lacks in [
            HelloOffer { signatures: false, ..whole },
            HelloOffer { groups: false, ..whole },
            HelloOffer { key_share: false, ..whole },
        ] {
            assert_eq!(alert(lacks, both), Some(109));
            assert_eq!(alert(lacks, old), None, "TLS 1.2 needs none of them");
            assert_eq!(alert(HelloOffer { psk: true, ..lacks }, both), None);
        }
    }
}
