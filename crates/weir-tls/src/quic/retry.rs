//! The tag of Retry packets (RFC 9001, section 5.8), by which clients see that they have not been damaged.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::quic::Version;

/// The tag of `packet`, with which an Initial packet to `id` was responded to.
pub(super) fn tag(version: Version, id: &[u8], packet: &[u8]) -> [u8; 16] {
    let (key, nonce) = match version {
        Version::V1Draft => (DRAFT_KEY, DRAFT_NONCE),
        _ => (KEY, NONCE),
    };
    let length = u8::try_from(id.len()).expect("IDs of connections have at most 20 bytes");
    let pseudo = [&[length], id, packet].concat();
    let key =
        LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("it is as long as the cipher's keys"));
    let sealed =
        key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(pseudo), &mut []);
    sealed.expect("nothing is too long").as_ref().try_into().expect("the cipher's tags have 16 bytes")
}

const KEY: [u8; 16] =
    [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e];
const NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
/// Of the drafts 29 to 32.
const DRAFT_KEY: [u8; 16] =
    [0xcc, 0xce, 0x18, 0x7e, 0xd0, 0x9a, 0x09, 0xd0, 0x57, 0x28, 0x15, 0x5a, 0x6c, 0xb9, 0x6b, 0xe1];
const DRAFT_NONCE: [u8; 12] = [0xe5, 0x49, 0x30, 0xf9, 0x7f, 0x21, 0x36, 0xf0, 0x53, 0x0a, 0x8c, 0x1c];

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9001, appendix A.4.
    #[test]
    fn the_tag_is_the_rfcs() {
        let id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let packet = b"\xff\x00\x00\x00\x01\x00\x08\xf0\x67\xa5\x50\x2a\x42\x62\xb5token";
        let expected = b"\x04\xa2\x65\xba\x2e\xff\x4d\x82\x90\x58\xfb\x3f\x0f\x24\x96\xba";
        assert_eq!(&tag(Version::V1, &id, packet), expected);
        assert_ne!(&tag(Version::V1Draft, &id, packet), expected);
    }
}
