//! The ClientHello, read without rustls: a server chooses its configuration by it, and scripts may look at all of it.
//!
//! [`HelloAcceptor`] collects records until the message is whole, however it is cut, and keeps them: the [`ReceivedHello`] that comes
//! out begins a [`crate::ServerHandshake`] with these very bytes.

use crate::alert::early_fatal_alert;
use crate::error::{Error, content};
use crate::hello_fields::HelloFields;
use crate::hello_offer::HelloOffer;

/// Collects a connection's first message. Each byte is looked at once, however small the records are.
#[derive(Debug, Default)]
pub struct HelloAcceptor {
    /// Records as received.
    records: Vec<u8>,
    /// Where what was not looked at begins.
    at: usize,
    /// Bytes of the record at `at` that are still to come.
    left: usize,
    /// What is in the records up to `at`: the message with its header.
    message: Vec<u8>,
}

/// Bytes of records that may be collected. The message itself is at most 64 KB (rustls takes no longer ones).
const MAX: usize = 80 * 1024;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const DECODE_ERROR: u8 = 50;

impl HelloAcceptor {
    /// Takes received bytes. `Some`: the message is whole (what follows it was taken as well).
    ///
    /// # Errors
    /// What came is no ClientHello; an alert for the peer is in `out`.
    pub fn handle(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<Option<ReceivedHello>, Error> {
        self.records.extend_from_slice(received);
        let refuse = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&early_fatal_alert(DECODE_ERROR));
            Err(content(text))
        };
        let end = match self.advance() {
            HelloProgress::Incomplete if self.records.len() > MAX => {
                return refuse(out, "the ClientHello is too long");
            }
            HelloProgress::Incomplete => return Ok(None),
            HelloProgress::Wrong => return refuse(out, "wrong version number"),
            HelloProgress::Whole(end) => end,
        };
        match HelloFields::parse(&self.message[4..end]) {
            Some(fields) => {
                let offer = HelloOffer::of(&fields);
                Ok(Some(ReceivedHello { records: self.take_records(end), fields, offer }))
            }
            None => refuse(out, "the ClientHello is malformed"),
        }
    }

    /// Looks at what came since the last time.
    fn advance(&mut self) -> HelloProgress {
        loop {
            let new = &self.records[self.at..];
            if self.left == 0 {
                match *new {
                    [kind, ..] if kind != HANDSHAKE => return HelloProgress::Wrong,
                    [_, major, ..] if major != 3 => return HelloProgress::Wrong,
                    _ => {}
                }
                let Some(header) = new.get(..5) else { return HelloProgress::Incomplete };
                self.left = usize::from(header[3]) << 8 | usize::from(header[4]);
                if self.left == 0 || self.left > 16 * 1024 + 256 {
                    return HelloProgress::Wrong;
                }
                self.at += 5;
                continue;
            }
            let piece = &new[..self.left.min(new.len())];
            if piece.is_empty() {
                return HelloProgress::Incomplete;
            }
            self.message.extend_from_slice(piece);
            (self.at, self.left) = (self.at + piece.len(), self.left - piece.len());
            if self.message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
                return HelloProgress::Wrong;
            }
            if let Some(head) = self.message.get(..4) {
                let length = usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]);
                if self.message.len() >= 4 + length {
                    return HelloProgress::Whole(4 + length);
                }
            }
        }
    }

    /// The records, for the handshake. A message in many small ones is put into as few as can be, since rustls looks at all
    /// of them with each; what is signed is the message.
    fn take_records(&mut self, end: usize) -> Vec<u8> {
        let records = std::mem::take(&mut self.records);
        let few = self.at <= end + 5 * (end / RECORD + 2);
        if few || self.left > 0 || self.message.len() > end {
            return records;
        }
        let mut joined = Vec::with_capacity(end + 64);
        for piece in self.message.chunks(RECORD) {
            joined.extend_from_slice(&[HANDSHAKE, records[1], records[2]]);
            joined.extend_from_slice(&(piece.len() as u16).to_be_bytes());
            joined.extend_from_slice(piece);
        }
        joined.extend_from_slice(&records[self.at..]);
        joined
    }

    /// True when nothing was received yet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

enum HelloProgress {
    Incomplete,
    Wrong,
    /// The message ends there.
    Whole(usize),
}

/// The most that a record holds.
const RECORD: usize = 16 * 1024;

/// A ClientHello, with the records it came in.
#[derive(Clone, Debug)]
pub struct ReceivedHello {
    pub(crate) records: Vec<u8>,
    /// What the client offers, by extension.
    pub fields: HelloFields,
    /// What a handshake can come of.
    pub(crate) offer: HelloOffer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello_fields::tests::message;

    /// The message in records of at most `size` bytes.
    fn records(size: usize) -> Vec<u8> {
        let message = message();
        let mut whole = vec![1, 0, 0, message.len() as u8];
        whole.extend(message);
        let mut out = Vec::new();
        for piece in whole.chunks(size) {
            out.extend([22, 3, 1, 0, piece.len() as u8]);
            out.extend(piece);
        }
        out
    }

    #[test]
    fn it_may_come_in_any_pieces_and_records() {
        for size in [1, 7, 50, 200] {
            let bytes = records(size);
            for cut in 1..bytes.len() {
                let (mut acceptor, mut out) = (HelloAcceptor::default(), Vec::new());
                let (first, second) = bytes.split_at(cut);
                assert!(acceptor.handle(first, &mut out).expect("good so far").is_none(), "{size} {cut}");
                let hello = acceptor.handle(second, &mut out).expect("good").expect("whole");
                let joined = records(200);
                let expected = if size > 7 { &bytes } else { &joined };
                assert_eq!((&hello.records, out.len()), (expected, 0), "{size} {cut}");
            }
        }
    }

    /// 80 KB in records of one byte, received one by one: with each looked at again this took a minute.
    #[test]
    fn small_records_are_looked_at_once() {
        let mut whole = vec![1, 0, 0x33, 0];
        whole.resize(13_000, 7);
        let (mut acceptor, mut out) = (HelloAcceptor::default(), Vec::new());
        for byte in whole {
            assert!(acceptor.handle(&[22, 3, 1, 0, 1, byte], &mut out).expect("good so far").is_none());
        }
        assert_eq!((acceptor.at, acceptor.message.len()), (78_000, 13_000));
    }

    #[test]
    fn what_follows_the_message_stays_behind_it() {
        let mut bytes = records(3);
        bytes.extend([20, 3, 3, 0, 1, 1]);
        let hello = HelloAcceptor::default().handle(&bytes, &mut Vec::new()).expect("good").expect("whole");
        assert_eq!(hello.records, [records(200), vec![20, 3, 3, 0, 1, 1]].concat());
    }

    #[test]
    fn what_is_no_hello_is_answered_with_an_alert() {
        for bad in [&b"GET / HTTP/1.1\r\n"[..], &[22, 3, 1, 0, 0], &[22, 2, 0], &[22, 3, 1, 0, 1, 2]] {
            let mut out = Vec::new();
            HelloAcceptor::default().handle(bad, &mut out).expect_err("no ClientHello");
            assert_eq!(out, [21, 3, 1, 0, 2, 2, 50]);
        }
    }
}
