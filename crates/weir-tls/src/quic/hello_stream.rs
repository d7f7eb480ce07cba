//! The bytes of CRYPTO frames (RFC 9000, section 19.6), which may come in any order, in pieces, and more than once, put together
//! to a ClientHello.

use std::ops::Range;

use crate::hello_fields::HelloFields;

/// The beginning of a connection's handshake, as far as it was received.
#[derive(Debug, Default)]
pub(super) struct HelloStream {
    bytes: Vec<u8>,
    /// What of `bytes` was received, in order and with gaps between.
    received: Vec<Range<usize>>,
}

/// What a stream begins with.
#[derive(Debug)]
pub(super) enum HelloStart {
    Incomplete,
    Whole(Box<HelloFields>),
    /// That is no ClientHello, or too long.
    Wrong,
}

/// Bytes of a ClientHello that is read: several times what the longest keys of post-quantum groups and a large ticket take.
pub(super) const MOST: usize = 16 * 1024;
/// Gaps that may be open at a time. Clients that shuffle their hello make some ten of them.
const GAPS: usize = 128;
const CLIENT_HELLO: u8 = 1;
/// Of a message's type and length.
const HEADER: usize = 4;

impl HelloStream {
    /// Takes a frame's bytes, which belong at `offset`. `false`: that is more than is read.
    #[must_use]
    pub(super) fn put(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(from) = usize::try_from(offset).ok().filter(|from| *from <= MOST) else { return false };
        let end = from + data.len();
        if end > MOST {
            return false;
        }
        if data.is_empty() {
            return true;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[from..end].copy_from_slice(data);
        self.note(from..end);
        self.received.len() <= GAPS
    }

    /// Joins `new` with the ranges that it touches.
    fn note(&mut self, new: Range<usize>) {
        let first = self.received.partition_point(|it| it.end < new.start);
        let after = self.received.partition_point(|it| it.start <= new.end);
        let touched = &self.received[first..after];
        let start = touched.first().map_or(new.start, |it| it.start.min(new.start));
        let end = touched.last().map_or(new.end, |it| it.end.max(new.end));
        self.received.splice(first..after, std::iter::once(start..end));
    }

    /// Reads the message, if it is whole.
    pub(super) fn start(&self) -> HelloStart {
        let length = self.received.first().filter(|it| it.start == 0).map_or(0, |it| it.end);
        let bytes = &self.bytes[..length];
        if bytes.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return HelloStart::Wrong;
        }
        let Some(head) = bytes.get(..HEADER) else { return HelloStart::Incomplete };
        let end = HEADER + (usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]));
        if end > MOST {
            return HelloStart::Wrong;
        }
        match bytes.get(HEADER..end).map(HelloFields::parse) {
            None => HelloStart::Incomplete,
            Some(Some(fields)) => HelloStart::Whole(Box::new(fields)),
            Some(None) => HelloStart::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hello_fields::tests::message;

    fn hello() -> Vec<u8> {
        let message = message();
        [&[1, 0, 0, message.len() as u8], &message[..]].concat()
    }

    fn is_whole(stream: &HelloStream) -> bool {
        matches!(stream.start(), HelloStart::Whole(fields) if fields.server_name.as_deref() == Some("ex.de"))
    }

    proptest! {
        /// Pieces of any size in any order, some of them twice: it is whole with the last one and not before.
        #[test]
        fn pieces_may_come_in_any_order(cuts in prop::collection::vec(1_usize..100, 0..20), seed in any::<u64>()) {
            let hello = hello();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < hello.len()).collect();
            cuts.extend([0, hello.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let mut pieces: Vec<Range<usize>> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            let count = pieces.len();
            for at in 0..count {
                pieces.swap(at, (seed as usize).wrapping_mul(at + 7) % count);
            }
            let mut stream = HelloStream::default();
            for (at, piece) in pieces.iter().enumerate() {
                prop_assert!(!is_whole(&stream), "{at} of {count}");
                for _ in 0..=seed % 2 {
                    prop_assert!(stream.put(piece.start as u64, &hello[piece.clone()]));
                }
            }
            prop_assert!(is_whole(&stream));
            prop_assert_eq!(stream.received.clone(), vec![0..hello.len()]);
        }

        /// Ranges stay in order with gaps between, and cover what was put.
        #[test]
        fn ranges_are_joined(pieces in prop::collection::vec((0_usize..200, 1_usize..30), 1..40)) {
            let mut stream = HelloStream::default();
            let mut covered = [false; 256];
            for (from, length) in pieces {
                prop_assert!(stream.put(from as u64, &vec![7; length]));
                covered[from..from + length].fill(true);
            }
            prop_assert!(stream.received.windows(2).all(|pair| pair[0].end < pair[1].start));
            let inside = |at: usize| stream.received.iter().any(|it| it.contains(&at));
            prop_assert!((0..256).all(|at| covered[at] == inside(at)));
        }
    }

    #[test]
    fn a_hello_may_overlap_itself_and_more_may_follow_it() {
        let hello = [hello(), vec![20, 0, 0, 1, 5]].concat();
        let mut stream = HelloStream::default();
        assert!(stream.put(30, &hello[30..]) && stream.put(10, &hello[10..60]));
        assert!(matches!(stream.start(), HelloStart::Incomplete));
        assert!(stream.put(0, &hello[..11]) && is_whole(&stream));
    }

    #[test]
    fn what_is_read_is_bounded() {
        let mut stream = HelloStream::default();
        assert!(stream.put(MOST as u64, &[]) && stream.put(MOST as u64 - 1, &[1]));
        for (offset, data) in
            [(MOST as u64, &[1][..]), (u64::MAX, &[]), (u64::MAX, &[1]), (MOST as u64 - 1, &[1, 2])]
        {
            assert!(!stream.put(offset, data), "{offset}");
        }
        let mut stream = HelloStream::default();
        let taken = (0..1000).take_while(|n| stream.put(2 * n, &[1])).count();
        assert_eq!((taken, stream.received.len()), (GAPS, GAPS + 1));
    }

    #[test]
    fn what_is_no_hello_is_seen_early() {
        for (wrong, what) in
            [(&[2][..], "a type"), (&[1, 0, 0x40, 0], "a length"), (&[1, 0, 0, 2, 3, 3], "a message")]
        {
            let mut stream = HelloStream::default();
            assert!(stream.put(0, wrong));
            assert!(matches!(stream.start(), HelloStart::Wrong), "{what}");
        }
        let mut stream = HelloStream::default();
        assert!(stream.put(1, &[9; 50]) && matches!(stream.start(), HelloStart::Incomplete));
    }
}
