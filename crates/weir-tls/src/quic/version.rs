//! Versions of QUIC by their numbers, and keys of Initial packets, which anybody can compute (RFC 9001, section 5.2).

use quinn_proto::crypto::{KeyPair, Keys, UnsupportedVersion};
use quinn_proto::{ConnectionId, Side};
use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{self, Version};

/// How the version of this number is served. Drafts that quinn-proto takes have the salts of the 29th, or those of RFC 9001.
pub(super) fn version_of(number: u32) -> Result<Version, UnsupportedVersion> {
    match number {
        0xff00_001d..=0xff00_0020 => Ok(Version::V1Draft),
        1 | 0xff00_0021 | 0xff00_0022 => Ok(Version::V1),
        _ => Err(UnsupportedVersion),
    }
}

/// The keys of Initial packets to and from `id`. Their suite is fixed, whatever `ssl_ciphers` says.
pub(super) fn initial_keys(version: Version, id: &[u8], side: rustls::Side) -> quic::Keys {
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        unreachable!("it is a suite of TLS 1.3");
    };
    suite.quic_suite().expect("rustls has QUIC for this suite").keys(id, side, version)
}

/// The same for quinn-proto.
pub(super) fn packet_keys(version: Version, id: &ConnectionId, side: Side) -> Keys {
    let side = if side.is_client() { rustls::Side::Client } else { rustls::Side::Server };
    for_quinn(initial_keys(version, id, side))
}

/// rustls' keys as quinn-proto has them.
pub(super) fn for_quinn(keys: quic::Keys) -> Keys {
    let quic::Keys { local, remote } = keys;
    Keys {
        header: KeyPair { local: Box::new(local.header), remote: Box::new(remote.header) },
        packet: KeyPair { local: Box::new(local.packet), remote: Box::new(remote.packet) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_quinns() {
        for number in quinn_proto::DEFAULT_SUPPORTED_VERSIONS {
            assert!(version_of(*number).is_ok(), "{number:x}");
        }
        for number in [0, 2, 0xff00_001c, 0xff00_0023, 0x6b33_43cf] {
            assert!(version_of(number).is_err(), "{number:x}");
        }
    }
}
