//! Frames: their nine bytes of head, types and flags (RFC 9113 sections 4.1 and 6).

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload in bytes, without this head of 9.
    pub length: u32,
    /// The frame's type, a number of RFC 9113 section 6.
    pub kind: u8,
    /// The frame's flags, bits by type.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
}

/// Bytes of a frame's head.
pub const HEAD: usize = 9;

/// Types of frames.
pub mod kind {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    /// RFC 9218 section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// DATA, HEADERS: nothing follows on the stream.
pub const END_STREAM: u8 = 1;
/// SETTINGS, PING: an acknowledgement.
pub(super) const ACK: u8 = 1;
/// HEADERS, CONTINUATION: the header block is whole.
pub(super) const END_HEADERS: u8 = 4;
/// DATA, HEADERS: the first byte says how many at the end are padding.
pub(super) const PADDED: u8 = 8;
/// HEADERS: five bytes of RFC 7540's priority are before the block.
pub(super) const PRIORITY_FLAG: u8 = 32;

impl FrameHead {
    /// The frame head (RFC 9113, section 4.1) at the start of `input`; `None` while `input` has fewer than 9 bytes. The
    /// reserved bit of the stream identifier is ignored.
    #[inline]
    pub fn read(input: &[u8]) -> Option<FrameHead> {
        let [a, b, c, kind, flags, w, x, y, z] = *input.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]);
        // The reserved bit means nothing.
        let stream = u32::from_be_bytes([w, x, y, z]) & 0x7fff_ffff;
        Some(FrameHead { length, kind, flags, stream })
    }

    /// The frame head as it is sent.
    #[inline]
    pub fn bytes(self) -> [u8; HEAD] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [w, x, y, z] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, w, x, y, z]
    }

    /// True when the bit `flag` is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHead { length: payload.len() as u32, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Appends a RST_STREAM frame.
pub(super) fn reset(out: &mut Vec<u8>, stream: u32, code: super::ErrorCode) {
    write(out, kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame; stream 0 is the connection.
pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends a GOAWAY frame.
pub(super) fn goaway(out: &mut Vec<u8>, last: u32, code: super::ErrorCode) {
    let mut payload = [0; 8];
    let (first, second) = payload.split_at_mut(4);
    first.copy_from_slice(&last.to_be_bytes());
    second.copy_from_slice(&(code as u32).to_be_bytes());
    write(out, kind::GOAWAY, 0, 0, &payload);
}

/// The payload of a padded frame without its padding; `None` where the padding is longer than what it pads.
pub(super) fn unpadded(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead { length: 0x1_0203, kind: 4, flags: 1, stream: 0x7fff_fffe };
        assert_eq!(FrameHead::read(&head.bytes()), Some(head));
        assert_eq!(FrameHead::read(&[0; 8]), None);
        let reserved = FrameHead::read(&[0, 0, 0, 0, 0, 0x80, 0, 0, 3]);
        assert_eq!(reserved.map(|head| head.stream), Some(3));
    }

    #[test]
    fn padding_is_cut_off() {
        let head = |flags| FrameHead { length: 0, kind: 0, flags, stream: 1 };
        assert_eq!(unpadded(head(0), b"\x02ab"), Some(&b"\x02ab"[..]));
        assert_eq!(unpadded(head(PADDED), b"\x02abc"), Some(&b"a"[..]));
        assert_eq!(unpadded(head(PADDED), b"\x03abc"), Some(&b""[..]));
        assert_eq!(unpadded(head(PADDED), b"\x04abc"), None);
        assert_eq!(unpadded(head(PADDED), b""), None);
    }
}
