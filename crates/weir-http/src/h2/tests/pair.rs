//! A client and a server, bytes cut anywhere, content both ways, streams given up at random.
//!
//! After each step both sides' books are checked against each other: no side sends more than it may, nothing is lost,
//! and what a stream's content was is what came.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::*;
use super::frames::CONFIG;
use crate::hpack::FieldIndexing;

/// Numbers from a seed (xorshift): a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most.max(1)
    }
}

/// One side, what it has to send, and what it got of each stream.
struct Side {
    conn: H2Connection,
    /// Composed and not yet delivered.
    wire: Vec<u8>,
    /// Delivered and not yet taken.
    input: Vec<u8>,
    streams: HashMap<StreamKey, Stream>,
    held: Vec<StreamKey>,
}

#[derive(Default)]
struct Stream {
    number: u64,
    left: u64,
    sent: u64,
    got: u64,
    unused: u64,
    ended: bool,
    reset: bool,
}

/// The byte at `at` of the content of stream `number`.
fn byte(number: u64, at: u64) -> u8 {
    (number * 31 + at * 7 + at / 251) as u8
}

impl Side {
    fn new(role: H2Role) -> Side {
        let mut wire = Vec::new();
        let conn = match role {
            H2Role::Server => H2Connection::server(&CONFIG, &mut wire),
            H2Role::Client => H2Connection::client(&CONFIG, &mut wire),
        };
        Side { conn, wire, input: Vec::new(), streams: HashMap::new(), held: Vec::new() }
    }

    /// Sends data as long as there is some, in frames of at most `most` bytes.
    fn pump(&mut self, most: u64) {
        loop {
            let next = self.conn.next_stream();
            let Some(DataGrant { key, len, end }) = self.conn.next_data_of(most, &mut self.wire) else {
                return;
            };
            if len > 0 {
                let (first, allowed) = next.expect("content was sent");
                assert!(first == key && len <= allowed.min(most), "{len} of {next:?}, at most {most}");
            }
            assert!(len == 0 || !self.held.contains(&key), "a stream that is held has no turn");
            let stream = self.streams.get_mut(&key).expect("a stream that is there");
            let from = stream.sent;
            self.wire.extend((from..from + len).map(|at| byte(stream.number, at)));
            stream.sent += len;
            assert!(!end || stream.left == 0);
        }
    }

    /// Holds the stream whose turn it is.
    fn hold(&mut self) {
        if let Some((key, _)) = self.conn.next_stream() {
            self.conn.hold(key);
            self.held.push(key);
            assert!(self.conn.next_stream().is_none_or(|(next, _)| next != key));
        }
    }

    fn resume(&mut self) {
        self.held.drain(..).for_each(|key| self.conn.resume(key));
    }

    /// Takes what came; the server responds to new streams by what they send.
    fn receive(&mut self, answer: u64) {
        loop {
            let received = self.conn.receive(&self.input, 1000, &mut self.wire);
            let (used, event) = received.expect("both keep to the protocol");
            let Some(event) = event else {
                self.input.drain(..used);
                return;
            };
            self.event(event, answer);
            self.input.drain(..used);
        }
    }

    fn event(&mut self, event: H2Event, answer: u64) {
        match event {
            H2Event::Head { key, end } => {
                let text = self.conn.section().text.clone();
                let item = self.conn.section().items.iter().find(|item| item.label.of(&text) == b"number");
                let number = item.map_or(0, |item| {
                    String::from_utf8_lossy(item.value.of(&text)).parse().expect("a number")
                });
                let stream = self.streams.entry(key).or_default();
                stream.ended |= end;
                if stream.number != 0 {
                    assert_eq!(stream.number, number);
                    return;
                }
                (stream.number, stream.left) = (number, answer);
                self.conn.head(key, StreamEnd::More, &mut self.wire, |coder, out| {
                    coder.status(200, out);
                    coder.field(b"number", number.to_string().as_bytes(), FieldIndexing::Allowed, out);
                });
                self.offer(key, answer, StreamEnd::Last);
            }
            H2Event::Data { key, range, end } => {
                let stream = self.streams.get_mut(&key).expect("a stream that is there");
                let bytes = &self.input[range];
                for (at, found) in (stream.got..).zip(bytes) {
                    assert_eq!(*found, byte(stream.number, at));
                }
                stream.got += bytes.len() as u64;
                stream.unused += bytes.len() as u64;
                stream.ended |= end;
            }
            H2Event::Reset { key, .. } => {
                self.streams.get_mut(&key).expect("a stream that is there").reset = true;
            }
            H2Event::Interim { .. }
            | H2Event::Trailers { .. }
            | H2Event::Malformed { .. }
            | H2Event::GoAway { .. } => {
                panic!("{event:?}")
            }
        }
    }

    fn offer(&mut self, key: StreamKey, bytes: u64, end: StreamEnd) {
        self.conn.offer(key, bytes, end);
        if end == StreamEnd::Last
            && let Some(stream) = self.streams.get_mut(&key)
        {
            stream.left = 0;
        }
    }

    /// Uses what came of all streams, and forgets those that are over.
    fn tidy(&mut self) {
        for (key, stream) in &mut self.streams {
            self.conn.consumed(*key, std::mem::take(&mut stream.unused), &mut self.wire);
        }
        let over: Vec<StreamKey> =
            self.streams.keys().filter(|key| self.conn.is_closed(**key)).copied().collect();
        for key in over {
            self.conn.release(key, &mut self.wire);
            self.streams.remove(&key);
            self.held.retain(|held| *held != key);
        }
    }
}

struct Pair {
    client: Side,
    server: Side,
    random: Random,
    opened: u64,
}

impl Pair {
    fn step(&mut self) {
        let most = 1 + self.random.below(40_000);
        match self.random.below(12) {
            0 | 1 => self.open(),
            2 => self.give_up(),
            3 => self.client.pump(most),
            4 => self.server.pump(most),
            5 => self.client.tidy(),
            6 => self.server.tidy(),
            7 => self.client.hold(),
            8 => self.server.hold(),
            9 if most.is_multiple_of(2) => self.client.resume(),
            9 => self.server.resume(),
            _ => self.deliver(),
        }
        self.check();
    }

    fn open(&mut self) {
        let (number, bytes) = (self.opened + 1, self.random.below(200_000));
        let urgency = self.random.below(8) as u8;
        let key = self.client.conn.open(StreamEnd::More, &mut self.client.wire, |coder, out| {
            coder.pseudo(":method", b"POST", out);
            coder.pseudo(":scheme", b"http", out);
            coder.pseudo(":path", b"/", out);
            coder.field(b"number", number.to_string().as_bytes(), FieldIndexing::Allowed, out);
        });
        // The server has room for four; what it has not forgotten yet counts.
        let Some(key) = key else { return };
        self.opened = number;
        self.client.streams.insert(key, Stream { number, ..Stream::default() });
        self.client.conn.prioritize(key, Priority { urgency, incremental: number % 2 == 0 });
        self.client.offer(key, bytes, StreamEnd::Last);
    }

    fn give_up(&mut self) {
        if self.random.below(4) > 0 {
            return;
        }
        let side = if self.random.below(2) == 0 { &mut self.client } else { &mut self.server };
        let keys = side.conn.keys();
        if let Some(key) = keys.get(self.random.below(keys.len() as u64) as usize) {
            side.conn.reset(*key, ErrorCode::Cancel, &mut side.wire);
        }
    }

    /// Moves some bytes each way, cut anywhere.
    fn deliver(&mut self) {
        let answer = self.random.below(150_000);
        let (from, to) = (&mut self.client, &mut self.server);
        let most = (self.random.below(40_000) as usize).min(from.wire.len());
        to.input.extend(from.wire.drain(..most));
        let back = (self.random.below(40_000) as usize).min(to.wire.len());
        from.input.extend(to.wire.drain(..back));
        self.client.receive(0);
        self.server.receive(answer);
    }

    fn check(&self) {
        for side in [&self.client, &self.server] {
            for (key, stream) in &side.streams {
                assert!(side.conn.id(*key) > 0 || stream.reset);
                assert!(stream.unused <= u64::from(CONFIG.stream_window), "more than the window");
            }
            assert!(side.conn.streams() <= side.streams.len());
        }
    }

    /// Goes on until nothing moves.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            for side in [&mut self.client, &mut self.server] {
                side.resume();
                side.pump(u64::MAX);
                side.tidy();
            }
            self.deliver();
            if self.client.streams.is_empty() && self.server.streams.is_empty() {
                return;
            }
        }
        panic!("streams that never end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_nothing_is_lost_and_all_ends(seed in 1_u64..u64::MAX, steps in 1_usize..300) {
        let (client, server) = (Side::new(H2Role::Client), Side::new(H2Role::Server));
        let mut pair = Pair { client, server, random: Random(seed), opened: 0 };
        for _ in 0..steps {
            pair.step();
        }
        pair.settle();
        prop_assert_eq!(pair.client.conn.streams() + pair.server.conn.streams(), 0);
    }
}

/// What a server comes to when it gets `bytes` in pieces that end at `cuts`.
fn told(bytes: &[u8], cuts: &[usize]) -> (Vec<String>, Vec<u8>) {
    let mut out = Vec::new();
    let mut server = H2Connection::server(&CONFIG, &mut out);
    let (mut said, mut held) = (Vec::new(), Vec::new());
    let mut content = 0;
    for pair in [&[0], cuts, &[bytes.len()]].concat().windows(2) {
        held.extend_from_slice(&bytes[pair[0]..pair[1]]);
        loop {
            let (used, event) = match server.receive(&held, 1, &mut out) {
                Ok(found) => found,
                Err(failure) => {
                    said.push(failure.to_string());
                    return (said, out);
                }
            };
            match event {
                // However content is cut, there is as much of it.
                Some(H2Event::Data { range, end, .. }) => {
                    content += range.len();
                    if end {
                        said.push(format!("{content} bytes"));
                    }
                }
                Some(event) => said.push(format!("{event:?}")),
                None => {
                    held.drain(..used);
                    break;
                }
            }
            held.drain(..used);
        }
    }
    (said, out)
}

#[test]
fn where_bytes_are_cut_changes_nothing() {
    let mut bytes = Vec::new();
    let mut client = H2Connection::client(&CONFIG, &mut bytes);
    let key = client.open(StreamEnd::More, &mut bytes, |coder, out| {
        coder.pseudo(":method", b"POST", out);
        coder.pseudo(":scheme", b"http", out);
        coder.pseudo(":path", b"/path", out);
    });
    let key = key.expect("streams are free");
    client.offer(key, 10, StreamEnd::Last);
    client.next_data(&mut bytes).expect("ten bytes");
    bytes.extend_from_slice(b"0123456789");
    // A padded frame of a second stream, a PING, and what is wrong at last.
    bytes.extend_from_slice(b"\0\0\x07\x01\x04\0\0\0\x03\x83\x86\x84\x41\x01a\xbe");
    bytes.extend_from_slice(b"\0\0\x06\0\x09\0\0\0\x03\x02abc\0\0");
    bytes.extend_from_slice(b"\0\0\x08\x06\0\0\0\0\0pingpong\0\0\0\x08\0\0\0\0\0");
    let whole = told(&bytes, &[]);
    assert!(whole.0.iter().any(|said| said.contains("10 bytes")) && whole.0.len() > 4, "{:?}", whole.0);
    for first in 0..bytes.len() {
        assert_eq!(told(&bytes, &[first]), whole, "cut at {first}");
        let second = (first + 3).min(bytes.len());
        assert_eq!(told(&bytes, &[first, second]), whole, "cut at {first} and {second}");
    }
    let each: Vec<usize> = (1..bytes.len()).collect();
    assert_eq!(told(&bytes, &each), whole);
}
