//! Frames: their heads, which may come in pieces, and types (RFC 9114 section 7).

use super::varint;

/// Types of frames.
pub mod kind {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const DATA: u64 = 0;
    pub const HEADERS: u64 = 1;
    pub(crate) const CANCEL_PUSH: u64 = 3;
    pub(crate) const SETTINGS: u64 = 4;
    pub(crate) const PUSH_PROMISE: u64 = 5;
    pub(crate) const GOAWAY: u64 = 7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
    /// RFC 9218 section 7.2: of a request's stream.
    pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// RFC 9218 section 7.2: of a push.
    pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;
}

/// Whether a frame of this type is HTTP/2's, and has no meaning here (RFC 9114 section 11.2.1).
pub(super) const fn is_reserved(kind: u64) -> bool {
    matches!(kind, 2 | 6 | 8 | 9)
}

/// What precedes a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) kind: u64,
    /// Bytes of the payload.
    pub(super) length: u64,
}

impl FrameHead {
    /// The head at the front of `input`, and how many bytes it has.
    #[inline]
    fn read(input: &[u8]) -> Option<(FrameHead, usize)> {
        let (kind, first) = varint::read(input)?;
        let (length, second) = varint::read(input.get(first..)?)?;
        Some((FrameHead { kind, length }, first + second))
    }
}

/// What has come of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartialHead {
    /// Two integers of eight bytes.
    bytes: [u8; 16],
    len: u8,
}

impl PartialHead {
    /// Nothing of one has come.
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Takes the head that goes on at the front of `input`: how many bytes of that, and the head when it is whole.
    #[inline]
    pub(super) fn take(&mut self, input: &[u8]) -> (usize, Option<FrameHead>) {
        if self.len == 0
            && let Some((head, used)) = FrameHead::read(input)
        {
            return (used, Some(head));
        }
        for (at, byte) in input.iter().enumerate() {
            if let Some(place) = self.bytes.get_mut(usize::from(self.len)) {
                *place = *byte;
                self.len += 1;
            }
            let come = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
            if let Some((head, _)) = FrameHead::read(come) {
                self.len = 0;
                return (at + 1, Some(head));
            }
        }
        (input.len(), None)
    }
}

/// Appends the head of a frame whose payload has `length` bytes.
#[inline]
pub fn frame_head(kind: u64, length: u64, out: &mut Vec<u8>) {
    varint::write(out, kind);
    varint::write(out, length);
}

/// Appends a frame whose payload is an integer.
pub(super) fn integer(kind: u64, value: u64, out: &mut Vec<u8>) {
    frame_head(kind, varint::length(value) as u64, out);
    varint::write(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_in_any_pieces() {
        for (kind, length) in [(0, 0), (1, 0x4000), (0xf_0700, 7), (varint::MOST, varint::MOST)] {
            let mut out = Vec::new();
            frame_head(kind, length, &mut out);
            let expected = Some(FrameHead { kind, length });
            for cut in 0..=out.len() {
                let mut partial = PartialHead::default();
                let (first, rest) = out.split_at(cut);
                let whole = cut == out.len();
                assert_eq!(partial.take(first), (cut, expected.filter(|_| whole)));
                assert_eq!(partial.is_empty(), cut == 0 || whole);
                if !whole {
                    assert_eq!(partial.take(&[rest, b"more"].concat()), (rest.len(), expected));
                    assert!(partial.is_empty());
                }
            }
        }
    }
}
