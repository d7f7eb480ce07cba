//! A server against single frames, right and wrong.

use super::super::*;
use crate::hpack::{FieldIndexing, HpackEncoder, SectionLimits};

pub(super) const CONFIG: H2Config = H2Config {
    max_streams: 4,
    stream_window: 65_535,
    window: 0x7fff_ffff,
    headers: SectionLimits::new(8192, 100),
    max_frame: MIN_FRAME,
    connect_protocol: true,
};

/// A server that has read the preface and settings, and what it says.
pub(super) struct Peer {
    pub(super) server: H2Connection,
    pub(super) out: Vec<u8>,
    encoder: HpackEncoder,
    pub(super) now: u64,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { length: payload.len() as u32, kind, flags, stream };
    [&head.bytes()[..], payload].concat()
}

impl Peer {
    pub(super) fn new() -> Peer {
        Peer::with(&CONFIG)
    }

    pub(super) fn with(config: &H2Config) -> Peer {
        let mut out = Vec::new();
        let server = H2Connection::server(config, &mut out);
        let mut peer = Peer { server, out, encoder: HpackEncoder::new(), now: 1000 };
        let begin = [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat();
        assert_eq!(peer.send(&begin), Ok(vec![]));
        peer.out.clear();
        peer
    }

    /// What comes of `bytes`, all of which are taken.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<Vec<H2Event>, ErrorCode> {
        let (mut at, mut events) = (0, Vec::new());
        loop {
            let received = self.server.receive(&bytes[at..], self.now, &mut self.out);
            let (used, event) = received.map_err(|failure| failure.code)?;
            at += used;
            match event {
                Some(event) => events.push(event),
                None => {
                    assert_eq!(at, bytes.len(), "all is taken");
                    return Ok(events);
                }
            }
        }
    }

    /// The block of a request with `fields` after the usual pseudo-header fields.
    pub(super) fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        self.encoder.begin(&mut out);
        let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
        for (name, value) in usual.iter().chain(fields) {
            self.encoder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Not, &mut out);
        }
        out
    }

    /// Opens a stream.
    pub(super) fn open(&mut self, id: u32, flags: u8, fields: &[(&str, &str)]) -> StreamKey {
        let block = self.block(fields);
        match self.send(&frame(kind::HEADERS, flags | 4, id, &block)).as_deref() {
            Ok([H2Event::Head { key, .. }]) => *key,
            other => panic!("{other:?}"),
        }
    }

    /// Types, streams and payloads of the frames that were sent, which are forgotten.
    pub(super) fn said(&mut self) -> Vec<(u8, u32, Vec<u8>)> {
        let (out, mut said) = (std::mem::take(&mut self.out), Vec::new());
        let mut rest = &out[..];
        while let Some(head) = FrameHead::read(rest) {
            let (this, behind) = rest.split_at(HEAD + head.length as usize);
            said.push((head.kind, head.stream, this[HEAD..].to_vec()));
            rest = behind;
        }
        assert!(rest.is_empty());
        said
    }
}

#[test]
fn both_sides_say_how_they_are_configured() {
    let config =
        H2Config { max_streams: 7, stream_window: 70_000, window: 80_000, max_frame: 20_000, ..CONFIG };
    let said = |out: &[u8]| {
        let head = FrameHead::read(out).expect("a frame");
        let (settings, rest) = out[HEAD..].split_at(head.length as usize);
        let mut read = H2Settings::default();
        assert_eq!((head.kind, read.read(settings)), (kind::SETTINGS, Ok(())));
        // The window of the connection is 65,535 bytes at first.
        assert_eq!(rest, frame(kind::WINDOW_UPDATE, 0, 0, &(80_000u32 - 65_535).to_be_bytes()));
        read
    };
    let mut out = Vec::new();
    H2Connection::server(&config, &mut out);
    let server = H2Settings {
        max_streams: Some(7),
        window: 70_000,
        max_frame: 20_000,
        connect_protocol: true,
        ..H2Settings::default()
    };
    assert_eq!(said(&out), server);
    out.clear();
    H2Connection::server(&H2Config { connect_protocol: false, ..config }, &mut out);
    assert_eq!(said(&out), H2Settings { connect_protocol: false, ..server });
    out.clear();
    H2Connection::client(&config, &mut out);
    let client = out.strip_prefix(PREFACE).expect("the preface");
    let expected = H2Settings { push: false, window: 70_000, max_frame: 20_000, ..H2Settings::default() };
    assert_eq!(said(client), expected);
}

#[test]
fn a_block_that_comes_again_says_what_it_said() {
    let mut peer = Peer::new();
    let text = |peer: &Peer| peer.server.section().text.escape_ascii().to_string();
    let (first, second) = (peer.block(&[("content-length", "5")]), peer.block(&[("x", "y")]));
    let mut id = 1;
    let mut open = |peer: &mut Peer, flags: u8, block: &[u8]| {
        let events = peer.send(&frame(kind::HEADERS, flags | 4, id, block)).expect("a request");
        let [H2Event::Head { key, .. }] = events[..] else { panic!("{events:?}") };
        id += 2;
        let checked = peer.server.checked().map(|message| message.content_length).ok();
        peer.server.release(key, &mut peer.out);
        checked
    };
    assert_eq!(open(&mut peer, 0, &first), Some(Some(5)));
    let said = text(&peer);
    // What is wrong with a request that ends there is not wrong with the next one.
    assert_eq!(open(&mut peer, 1, &first), None);
    assert_eq!(open(&mut peer, 0, &first), Some(Some(5)));
    assert_eq!(text(&peer), said);
    assert_eq!(open(&mut peer, 1, &second), Some(None));
    assert_ne!(text(&peer), said);
    assert_eq!(open(&mut peer, 0, &first), Some(Some(5)));
    assert_eq!(text(&peer), said);
    // The same bytes mean something else when an entry has come before the one that they name.
    let named = [&second[..], &[0x80 | 62]].concat();
    let entry = |value: u8| [&second[..], &[0x40, 1, b'n', 1, value]].concat();
    open(&mut peer, 1, &entry(b'1'));
    open(&mut peer, 1, &named);
    assert!(text(&peer).ends_with("n1"));
    open(&mut peer, 1, &entry(b'2'));
    open(&mut peer, 1, &named);
    assert!(text(&peer).ends_with("n2"), "{}", text(&peer));
}

/// RFC 9113 section 6.9.3.
#[test]
fn a_small_window_holds_once_it_is_acknowledged() {
    let mut peer = Peer::with(&H2Config { stream_window: 10, ..CONFIG });
    peer.open(1, 0, &[]);
    assert!(matches!(
        peer.send(&frame(kind::DATA, 0, 1, &[0; 15_000])).as_deref(),
        Ok([H2Event::Data { .. }])
    ));
    assert_eq!(peer.send(&frame(kind::SETTINGS, 1, 0, &[])), Ok(vec![]));
    peer.open(3, 0, &[]);
    assert!(matches!(peer.send(&frame(kind::DATA, 0, 3, &[0; 10])).as_deref(), Ok([H2Event::Data { .. }])));
    for stream in [1, 3] {
        let events = peer.send(&frame(kind::DATA, 0, stream, &[0; 1]));
        let [H2Event::Reset { code, .. }] = events.as_deref().expect("no error of the connection") else {
            panic!("{events:?}")
        };
        assert_eq!(*code, ErrorCode::FlowControl);
    }
}

#[test]
fn frames_that_end_a_connection() {
    let settings = |name: u16, value: u32| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let table: [(&str, Vec<u8>, ErrorCode); 24] = [
        ("DATA on 0", frame(0, 0, 0, b"x"), ErrorCode::Protocol),
        ("DATA on idle", frame(0, 0, 9, b"x"), ErrorCode::Protocol),
        ("padding", frame(1, 4 | 8, 9, b"\x05abc"), ErrorCode::Protocol),
        ("HEADERS on 0", frame(1, 4, 0, b""), ErrorCode::Protocol),
        ("even", frame(1, 4, 2, b"\x82"), ErrorCode::Protocol),
        ("own dependency", frame(1, 4 | 32, 9, b"\0\0\0\x09\0\x82"), ErrorCode::Protocol),
        ("bad block", frame(1, 4, 9, b"\x80"), ErrorCode::Compression),
        ("PRIORITY on 0", frame(2, 0, 0, &[0; 5]), ErrorCode::Protocol),
        ("short PRIORITY", frame(2, 0, 9, &[0; 4]), ErrorCode::FrameSize),
        ("RST_STREAM on 0", frame(3, 0, 0, &[0; 4]), ErrorCode::Protocol),
        ("RST_STREAM on idle", frame(3, 0, 9, &[0; 4]), ErrorCode::Protocol),
        ("short RST_STREAM", frame(3, 0, 1, &[0; 3]), ErrorCode::FrameSize),
        ("SETTINGS on 1", frame(4, 0, 1, &[]), ErrorCode::Protocol),
        ("SETTINGS, odd", frame(4, 0, 0, &[0; 5]), ErrorCode::FrameSize),
        ("ACK with content", frame(4, 1, 0, &[0; 6]), ErrorCode::FrameSize),
        ("window size", frame(4, 0, 0, &settings(4, 1 << 31)), ErrorCode::FlowControl),
        ("PUSH_PROMISE", frame(5, 0, 1, &[]), ErrorCode::Protocol),
        ("PING on 1", frame(6, 0, 1, &[0; 8]), ErrorCode::Protocol),
        ("short PING", frame(6, 0, 0, &[0; 7]), ErrorCode::FrameSize),
        ("GOAWAY on 1", frame(7, 0, 1, &[0; 8]), ErrorCode::Protocol),
        ("WINDOW_UPDATE of 0", frame(8, 0, 0, &[0; 4]), ErrorCode::Protocol),
        ("WINDOW_UPDATE of too much", frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), ErrorCode::FlowControl),
        ("CONTINUATION", frame(9, 4, 1, b""), ErrorCode::Protocol),
        ("too long", frame(0xbb, 0, 0, &[0; 16_385]), ErrorCode::FrameSize),
    ];
    for (name, bytes, code) in table {
        let mut peer = Peer::new();
        peer.open(1, 0, &[]);
        assert_eq!(peer.send(&bytes), Err(code), "{name}");
        let last = peer.said().pop().expect("a GOAWAY frame");
        assert_eq!((last.0, last.2[7]), (kind::GOAWAY, code as u8), "{name}");
        assert_eq!(peer.send(b"more"), Ok(vec![]), "nothing is taken any more");
    }
    let mut peer = Peer::new();
    assert_eq!(peer.send(&frame(1, 1, 1, b"\x82")), Ok(vec![]));
    assert_eq!(
        peer.send(&frame(6, 0, 0, &[0; 8])),
        Err(ErrorCode::Protocol),
        "between HEADERS and CONTINUATION"
    );
    let mut peer = Peer { server: H2Connection::server(&CONFIG, &mut Vec::new()), ..Peer::new() };
    assert_eq!(peer.send(b"PRI * HTTP/1.1"), Err(ErrorCode::Protocol));
}

#[test]
fn frames_are_as_long_as_the_settings_say() {
    let (mut out, longest) = (Vec::new(), 2 * MIN_FRAME);
    let config = H2Config { max_frame: longest, headers: SectionLimits::new(65_536, 100), ..CONFIG };
    let server = H2Connection::server(&config, &mut out);
    let mut peer = Peer { server, out, ..Peer::new() };
    let told = peer.said();
    let (name, value) = (5_u16.to_be_bytes(), longest.to_be_bytes());
    assert!(
        told[0].2.as_chunks::<6>().0.iter().any(|entry| *entry == *[&name[..], &value].concat()),
        "{told:?}"
    );
    peer.send(&[&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat()).expect("a preface");
    let long = "Z".repeat(30_000);
    peer.open(1, 1, &[("x", &long)]);
    assert_eq!(peer.send(&frame(0xbb, 0, 0, &vec![0; longest as usize])), Ok(vec![]));
    assert_eq!(peer.send(&frame(0xbb, 0, 0, &vec![0; longest as usize + 1])), Err(ErrorCode::FrameSize));
}

#[test]
fn frames_that_end_a_stream() {
    for (name, bytes, code) in [
        ("DATA behind the end", frame(0, 0, 3, b"x"), ErrorCode::StreamClosed),
        ("WINDOW_UPDATE of 0", frame(8, 0, 1, &[0; 4]), ErrorCode::Protocol),
        ("WINDOW_UPDATE of too much", frame(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), ErrorCode::FlowControl),
        ("trailers that do not end", frame(1, 4, 1, b""), ErrorCode::Protocol),
        ("pseudo-header in trailers", frame(1, 5, 1, b"\x82"), ErrorCode::Protocol),
        ("short PRIORITY", frame(2, 0, 1, &[0; 4]), ErrorCode::FrameSize),
    ] {
        let mut peer = Peer::new();
        peer.open(1, 0, &[]);
        peer.open(3, END_STREAM, &[]);
        let events = peer.send(&bytes).expect("the connection lives");
        assert!(
            matches!(events[..], [H2Event::Reset { code: found, reason: Some(_), .. }] if found == code),
            "{name}"
        );
        let (kind, _, payload) = peer.said().pop().expect("a RST_STREAM frame");
        assert_eq!((kind, payload[3]), (kind::RST_STREAM, code as u8), "{name}");
    }
    let mut peer = Peer::new();
    let key = peer.open(1, 0, &[("content-length", "3")]);
    let events = peer.send(&frame(0, END_STREAM, 1, b"ab")).expect("the connection lives");
    assert!(matches!(events[..], [H2Event::Malformed { key: found, .. }] if found == key));
}

#[test]
fn a_stream_that_was_reset_may_still_get_what_was_under_way() {
    let mut peer = Peer::new();
    let key = peer.open(1, 0, &[]);
    let mut out = Vec::new();
    peer.server.reset(key, ErrorCode::Cancel, &mut out);
    peer.server.release(key, &mut out);
    assert_eq!(peer.send(&frame(0, 0, 1, &[0; 100])), Ok(vec![]));
    let block = peer.block(&[]);
    assert_eq!(peer.send(&frame(1, 5, 1, &block)), Ok(vec![]));
    assert_eq!(peer.said(), []);
    // The peer knows now: what comes after that is an error.
    assert_eq!(peer.send(&frame(3, 0, 1, &[0; 4])), Ok(vec![]));
    assert_eq!(peer.send(&frame(0, 0, 1, b"x")), Ok(vec![]));
    assert_eq!(peer.said(), [(kind::RST_STREAM, 1, vec![0, 0, 0, 5])]);
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut peer = Peer::new();
    for id in [1, 3, 5, 7] {
        peer.open(id, END_STREAM, &[]);
    }
    let block = peer.block(&[]);
    assert_eq!(peer.send(&frame(1, 5, 9, &block)), Ok(vec![]));
    assert_eq!(peer.said(), [(kind::RST_STREAM, 9, vec![0, 0, 0, 7])]);
    let key = peer.server.keys()[0];
    peer.server.head(key, StreamEnd::Last, &mut Vec::new(), |coder, out| coder.status(204, out));
    peer.server.release(key, &mut Vec::new());
    peer.open(11, END_STREAM, &[]);
}

#[test]
fn settings_pings_and_what_nobody_knows() {
    let mut peer = Peer::new();
    assert_eq!(peer.send(&frame(6, 0, 0, b"12345678")), Ok(vec![]));
    assert_eq!(peer.send(&frame(4, 0, 0, &[])), Ok(vec![]));
    assert_eq!(peer.send(&frame(0x42, 0xff, 7, b"what")), Ok(vec![]));
    assert_eq!(peer.send(&frame(16, 0, 0, b"\0\0\0\x01u=1, i")), Ok(vec![]));
    assert_eq!(peer.said(), [(kind::PING, 0, b"12345678".to_vec()), (kind::SETTINGS, 0, vec![])]);
    let key = peer.open(1, 0, &[("priority", "u=5")]);
    assert_eq!(peer.server.priority(key), Priority { urgency: 1, incremental: true }, "the early one");
    assert_eq!(peer.send(&frame(16, 0, 0, b"\0\0\0\x01u=2")), Ok(vec![]));
    assert_eq!(peer.server.priority(key), Priority { urgency: 2, incremental: false });
    let goes = peer.send(&frame(7, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 11, b'x']));
    assert_eq!(goes, Ok(vec![H2Event::GoAway { last: 9, code: ErrorCode::EnhanceYourCalm }]));
}

#[test]
fn attacks_have_names() {
    let flood = |bytes: &dyn Fn(u32) -> Vec<u8>| {
        let mut peer = Peer::new();
        (0..30_000).find_map(|round| {
            let mut at = 0;
            let bytes = bytes(round);
            while at < bytes.len() {
                match peer.server.receive(&bytes[at..], 1000, &mut peer.out) {
                    Ok((_, Some(H2Event::Head { key, .. }))) => {
                        peer.server.release(key, &mut peer.out);
                    }
                    Ok(_) => {}
                    Err(failure) => return Some(failure.abuse),
                }
                at = bytes.len();
            }
            None
        })
    };
    let get = b"\x82\x86\x84\x41\x01a";
    let reset = |round: u32| match round % 2 {
        0 => frame(1, 5, round + 1, get),
        _ => frame(3, 0, round, &[0, 0, 0, 8]),
    };
    assert_eq!(flood(&reset), Some(Some(H2Abuse::Resets)));
    assert_eq!(flood(&|_| frame(6, 0, 0, &[0; 8])), Some(Some(H2Abuse::Pings)));
    assert_eq!(flood(&|_| frame(4, 0, 0, &[])), Some(Some(H2Abuse::Settings)));
    assert_eq!(flood(&|_| frame(2, 0, 9, &[0; 5])), Some(Some(H2Abuse::Priorities)));
    assert_eq!(flood(&|_| frame(8, 0, 0, &[0, 0, 0, 1])), Some(Some(H2Abuse::Windows)));
    assert_eq!(flood(&|_| frame(99, 0, 0, &[])), Some(Some(H2Abuse::Unknown)));
    let empty = |round: u32| if round == 0 { frame(1, 4, 1, get) } else { frame(9, 0, 1, b"") };
    assert_eq!(
        flood(&|round| if round == 0 { frame(1, 0, 1, get) } else { empty(round) }),
        Some(Some(H2Abuse::Continuations))
    );
    let bomb = |round: u32| frame(if round == 0 { 1 } else { 9 }, 0, 1, &[0x82; 16_000]);
    assert_eq!(flood(&bomb), Some(Some(H2Abuse::Headers)));
    let mut peer = Peer::new();
    peer.open(1, 0, &[]);
    let data = (0..200).find_map(|_| peer.send(&frame(0, 0, 1, b"")).err());
    assert_eq!(data, Some(ErrorCode::EnhanceYourCalm), "empty DATA frames");
}

#[test]
fn a_head_that_takes_too_long_is_given_up_and_the_connection_goes_on() {
    let mut peer = Peer::new();
    let block = peer.block(&[]);
    let bytes = frame(1, 5, 1, &block);
    let (first, rest) = bytes.split_at(12);
    assert_eq!(peer.server.receive(first, 1, &mut peer.out), Ok((0, None)));
    assert!(peer.server.expire_head(first, &mut peer.out));
    assert!(!peer.server.expire_head(first, &mut peer.out), "once");
    assert_eq!(peer.said(), [(kind::RST_STREAM, 1, vec![0, 0, 0, 1])]);
    assert_eq!(peer.send(&[first, rest].concat()), Ok(vec![]));
    peer.open(3, END_STREAM, &[]);
}

#[test]
fn a_connection_ends_behind_its_last_stream() {
    let mut peer = Peer::new();
    let key = peer.open(1, END_STREAM, &[]);
    peer.server.go_away(ErrorCode::No, &mut peer.out);
    peer.server.go_away(ErrorCode::No, &mut peer.out);
    assert_eq!(peer.said(), [(kind::GOAWAY, 0, vec![0, 0, 0, 1, 0, 0, 0, 0])]);
    let block = peer.block(&[]);
    assert_eq!(peer.send(&frame(1, 5, 3, &block)), Ok(vec![]), "not taken");
    assert!(!peer.server.is_over());
    peer.server.head(key, StreamEnd::Last, &mut peer.out, |coder, out| coder.status(200, out));
    peer.server.release(key, &mut peer.out);
    assert!(peer.server.is_over());
}
