//! What Initial packets look like (RFC 9000, section 17.2.2), and the frames that are allowed in them (section 12.4).

use std::ops::Range;

use quinn_proto::VarInt;
use quinn_proto::coding::Codec;

/// A packet with a long header, before anything of it is decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LongPacket {
    pub(super) kind: LongKind,
    pub(super) version: u32,
    /// Where the ID is that the packet goes to.
    pub(super) id: Range<usize>,
    /// Where the packet's number begins.
    pub(super) number: usize,
    /// Where the packet ends.
    pub(super) end: usize,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LongKind {
    Initial,
    /// Something else that has a length: others may follow it.
    Other,
}

/// Bytes that IDs of connections have at most (RFC 9000, section 17.2).
const MOST_ID: usize = 20;

impl LongPacket {
    /// Reads the header of a datagram's first packet; `None`: it has no long header with a length.
    pub(super) fn read(datagram: &[u8]) -> Option<LongPacket> {
        let mut r = PacketReader { all: datagram, at: 0 };
        let first = r.take(1).map(|at| datagram[at.start])?;
        if first & 0x80 == 0 {
            return None;
        }
        let version = r.take(4).map(|at| <[u8; 4]>::try_from(&datagram[at]))?.ok()?;
        let id = r.id()?;
        r.id()?;
        let kind = match first >> 4 & 3 {
            0 => LongKind::Initial,
            1 | 2 => LongKind::Other,
            _ => return None,
        };
        if kind == LongKind::Initial {
            let token = r.number()?;
            r.take(token)?;
        }
        let length = r.number()?;
        let rest = r.take(length)?;
        Some(LongPacket { kind, version: u32::from_be_bytes(version), id, number: rest.start, end: rest.end })
    }
}

/// A frame of an Initial packet, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InitialFrame<'p> {
    /// Bytes of the handshake, from this offset on.
    Crypto(u64, &'p [u8]),
    /// Padding, a ping, an acknowledgement, the end of the connection.
    Skipped,
}

/// Takes the next frame off `payload`, which is not empty. `None`: it is malformed, or not allowed there.
pub(super) fn next_frame<'p>(payload: &mut &'p [u8]) -> Option<InitialFrame<'p>> {
    let rest = std::mem::take(payload);
    let mut r = PacketReader { all: rest, at: 0 };
    let frame = match r.variable()? {
        PADDING | PING => InitialFrame::Skipped,
        kind @ (ACK | ACK_WITH_ECN) => {
            r.acknowledgement(kind == ACK_WITH_ECN)?;
            InitialFrame::Skipped
        }
        CRYPTO => {
            let offset = r.variable()?;
            let length = r.number()?;
            InitialFrame::Crypto(offset, &rest[r.take(length)?])
        }
        CONNECTION_CLOSE => {
            r.variable()?;
            r.variable()?;
            let length = r.number()?;
            r.take(length)?;
            InitialFrame::Skipped
        }
        _ => return None,
    };
    *payload = &rest[r.at..];
    Some(frame)
}

const PADDING: u64 = 0;
const PING: u64 = 1;
const ACK: u64 = 2;
const ACK_WITH_ECN: u64 = 3;
const CRYPTO: u64 = 6;
const CONNECTION_CLOSE: u64 = 0x1c;

struct PacketReader<'b> {
    all: &'b [u8],
    at: usize,
}

impl PacketReader<'_> {
    /// Where the next `length` bytes are.
    fn take(&mut self, length: usize) -> Option<Range<usize>> {
        let taken = self.at..self.at.checked_add(length)?;
        self.all.get(taken.clone())?;
        self.at = taken.end;
        Some(taken)
    }

    /// A number of variable length (RFC 9000, section 16).
    fn variable(&mut self) -> Option<u64> {
        let mut rest = &self.all[self.at..];
        let number = VarInt::decode(&mut rest).ok()?;
        self.at = self.all.len() - rest.len();
        Some(number.into_inner())
    }

    /// The same, of bytes that are here.
    fn number(&mut self) -> Option<usize> {
        usize::try_from(self.variable()?).ok()
    }

    /// An ID with its length of one byte.
    fn id(&mut self) -> Option<Range<usize>> {
        let length = self.take(1).map(|at| usize::from(self.all[at.start]))?;
        if length > MOST_ID { None } else { self.take(length) }
    }

    /// What follows the type of an ACK frame (RFC 9000, section 19.3).
    fn acknowledgement(&mut self, with_ecn: bool) -> Option<()> {
        self.variable()?;
        self.variable()?;
        let ranges = self.variable()?;
        self.variable()?;
        for _ in 0..ranges {
            self.variable()?;
            self.variable()?;
        }
        if with_ecn {
            for _ in 0..3 {
                self.variable()?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut payload: &[u8]) -> Option<Vec<InitialFrame<'_>>> {
        let mut frames = Vec::new();
        while !payload.is_empty() {
            frames.push(next_frame(&mut payload)?);
        }
        Some(frames)
    }

    #[test]
    fn frames_are_read() {
        let all = [
            &[0, 0, 1][..],
            &[2, 5, 0, 1, 0, 0, 1],
            &[3, 0, 0, 0, 0, 1, 0x40, 2, 3],
            &[6, 0x41, 0, 2, 7, 8],
            &[0x1c, 10, 6, 2, b'n', b'o'],
        ];
        let payload = all.concat();
        let mut read = frames(&payload).expect("all are well formed");
        read.retain(|it| *it != InitialFrame::Skipped);
        assert_eq!(read, [InitialFrame::Crypto(256, &[7, 8])]);
        for whole in &all[1..] {
            for cut in 1..whole.len() {
                assert_eq!(frames(&whole[..cut]), None, "{whole:?} cut at {cut}");
            }
        }
        // A stream's, the handshake's end, an application's close, more ranges than there are bytes.
        for wrong in [
            &[8, 0, 1][..],
            &[0x1e],
            &[0x1d, 0, 0],
            &[2, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        ] {
            assert_eq!(frames(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn headers_are_read() {
        let initial = [&[0xc0, 0, 0, 0, 1, 2, 8, 9, 1, 5, 3][..], b"tok", &[4, 1, 2, 3, 4, 99]].concat();
        let expected = LongPacket { kind: LongKind::Initial, version: 1, id: 6..8, number: 15, end: 19 };
        assert_eq!(LongPacket::read(&initial), Some(expected));
        for cut in 0..19 {
            assert_eq!(LongPacket::read(&initial[..cut]), None, "cut at {cut}");
        }
        let early = [0xd0, 0, 0, 0, 1, 0, 0, 1, 7];
        let expected = LongPacket { kind: LongKind::Other, version: 1, id: 6..6, number: 8, end: 9 };
        assert_eq!(LongPacket::read(&early), Some(expected));
        for (wrong, what) in
            [([0x40, 0, 0, 0, 1, 0, 0, 1, 7], "short"), ([0xf0, 0, 0, 0, 1, 0, 0, 1, 7], "Retry")]
        {
            assert_eq!(LongPacket::read(&wrong), None, "{what}");
        }
        let long = [&[0xc0, 0, 0, 0, 1, 21][..], &[0; 60]].concat();
        assert_eq!(LongPacket::read(&long), None, "an ID of 21 bytes");
    }
}
