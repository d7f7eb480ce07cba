//! Reads a client's ClientHello out of its first datagrams, before the connection is accepted: a server chooses its configuration by
//! it, and may take its time. The datagrams themselves go on to quinn-proto.

use std::fmt;

use rustls::quic::DirectionalKeys;

use crate::hello_fields::HelloFields;

use super::hello_stream::{HelloStart, HelloStream};
use super::initial_frames::{InitialFrame, LongKind, LongPacket, next_frame};
use super::version;

/// See the module. One for each connection that begins.
#[derive(Default)]
pub struct InitialReader {
    /// What the client's packets are opened with, and the ID they are sent to: its first packet chooses both.
    opener: Option<InitialOpener>,
    stream: HelloStream,
    datagrams: usize,
}

/// How far a reader got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialProgress {
    /// More datagrams are needed.
    NeedsMore,
    /// The ClientHello is whole.
    Hello(Box<HelloFields>),
    /// No Initial packet of this client is in the datagram: it does not count.
    NotInitial,
    /// What the client sends breaks the rules, or is more than is read; no hello comes of it. The handshake itself says what is wrong.
    Malformed,
}

/// Datagrams of a client that are looked at: twice as many as the longest hello takes.
const DATAGRAMS: usize = 32;

impl InitialReader {
    /// A reader that has seen nothing.
    pub fn new() -> InitialReader {
        InitialReader::default()
    }

    /// Takes a datagram, the first or a later one of the same client.
    pub fn push(&mut self, datagram: &[u8]) -> InitialProgress {
        self.datagrams += 1;
        if self.datagrams > DATAGRAMS {
            return InitialProgress::Malformed;
        }
        let (mut rest, mut progress) = (datagram, InitialProgress::NotInitial);
        while let Some(packet) = LongPacket::read(rest) {
            let (this, next) = rest.split_at(packet.end);
            rest = next;
            if packet.kind == LongKind::Other {
                continue;
            }
            match self.packet(&packet, this) {
                InitialProgress::NotInitial => {}
                InitialProgress::NeedsMore => progress = InitialProgress::NeedsMore,
                end => return end,
            }
        }
        progress
    }

    fn packet(&mut self, packet: &LongPacket, bytes: &[u8]) -> InitialProgress {
        if self.opener.is_none() {
            self.opener = InitialOpener::new(packet.version, &bytes[packet.id.clone()]);
        }
        let Some(opener) = self.opener.as_mut().filter(|it| it.id == bytes[packet.id.clone()]) else {
            return InitialProgress::NotInitial;
        };
        let mut bytes = bytes.to_vec();
        let Some(payload) = opener.open(&mut bytes, packet.number) else {
            // Another's packet may have come first, or a damaged one: a good one chooses again.
            if !opener.has_opened {
                self.opener = None;
            }
            return InitialProgress::NotInitial;
        };
        self.push_payload(payload)
    }

    /// Takes the frames of a packet, without its header and decrypted.
    pub fn push_payload(&mut self, payload: &[u8]) -> InitialProgress {
        self.frames(payload).unwrap_or(InitialProgress::Malformed)
    }

    /// `None`: they are malformed, or are too much.
    fn frames(&mut self, mut payload: &[u8]) -> Option<InitialProgress> {
        if payload.is_empty() {
            return None; // RFC 9000, section 12.4
        }
        while !payload.is_empty() {
            match next_frame(&mut payload)? {
                InitialFrame::Skipped => {}
                InitialFrame::Crypto(offset, data) => self.stream.put(offset, data).then_some(())?,
            }
        }
        match self.stream.start() {
            HelloStart::Incomplete => Some(InitialProgress::NeedsMore),
            HelloStart::Whole(fields) => Some(InitialProgress::Hello(fields)),
            HelloStart::Wrong => None,
        }
    }
}

impl fmt::Debug for InitialReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InitialReader")
    }
}

/// Opens a client's Initial packets.
struct InitialOpener {
    keys: DirectionalKeys,
    id: Vec<u8>,
    /// The number after the largest that was opened.
    next: u64,
    has_opened: bool,
}

impl InitialOpener {
    /// `None`: the version is unknown.
    fn new(version: u32, id: &[u8]) -> Option<InitialOpener> {
        let version = version::version_of(version).ok()?;
        let keys = version::initial_keys(version, id, rustls::Side::Server).remote;
        Some(InitialOpener { keys, id: id.to_vec(), next: 0, has_opened: false })
    }

    /// Decrypts `packet`, whose number begins at `at`, in its place (RFC 9001, section 5.4). `None`: its keys are others.
    fn open<'p>(&mut self, packet: &'p mut [u8], at: usize) -> Option<&'p [u8]> {
        /// Bytes of the longest number, after which the sample begins.
        const NUMBER: usize = 4;
        const RESERVED: u8 = 0x0c;
        let (header, sample) = packet.split_at_mut_checked(at + NUMBER)?;
        let sample = sample.get(..self.keys.header.sample_len())?;
        let (first, rest) = header.split_first_mut()?;
        self.keys.header.decrypt_in_place(sample, first, &mut rest[at - 1..]).ok()?;
        let length = usize::from(*first & 3) + 1;
        let is_reserved = *first & RESERVED != 0;
        let number = expanded(&packet[at..at + length], self.next);
        let (header, payload) = packet.split_at_mut(at + length);
        let payload =
            self.keys.packet.decrypt_in_place(number, header, payload).ok().filter(|_| !is_reserved)?;
        (self.next, self.has_opened) = (self.next.max(number + 1), true);
        Some(payload)
    }
}

/// The packet number whose last bytes these are, the one next to `expected` (RFC 9000, appendix A.3).
fn expanded(last: &[u8], expected: u64) -> u64 {
    let window = 1_u64 << (8 * last.len());
    let last = last.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let candidate = expected & !(window - 1) | last;
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000, appendix A.3, and around the window's edges.
    #[test]
    fn numbers_are_expanded() {
        assert_eq!(expanded(&[0x9b, 0x32], 0xa82f_30ea + 1), 0xa82f_9b32);
        assert_eq!((expanded(&[0], 0), expanded(&[255], 0), expanded(&[200], 60)), (0, 255, 200));
        assert_eq!((expanded(&[3], 254), expanded(&[255], 256), expanded(&[128], 256)), (259, 255, 384));
        assert_eq!(expanded(&[255, 255, 255, 255], 1), 0xffff_ffff);
    }
}
