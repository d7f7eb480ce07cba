//! HTTP/2: header blocks, and a server's side of a connection.

use weir_http::h2::{H2Config, H2Connection, H2Event, PREFACE, StreamEnd};
use weir_http::hpack::{DecodedSection, FieldIndexing, HpackDecoder, HpackEncoder, SectionLimits};

/// Two header blocks on one table; what was read is written, and read again the same.
pub fn hpack(data: &[u8]) {
    let limits = SectionLimits::new(4096, 64);
    let (mut decoder, mut section) = (HpackDecoder::new(512), DecodedSection::default());
    for block in data.chunks(data.len().div_ceil(2).max(1)) {
        if decoder.decode(block, limits, &mut section).is_err() {
            return;
        }
        assert!(section.text.len() <= limits.text && section.items.len() <= limits.fields);
        let mut out = Vec::new();
        let mut encoder = HpackEncoder::new();
        encoder.begin(&mut out);
        for item in &section.items {
            let (name, value) = (item.label.of(&section.text), item.value.of(&section.text));
            encoder.field(name, value, FieldIndexing::Allowed, &mut out);
        }
        let mut again = DecodedSection::default();
        HpackDecoder::new(4096).decode(&out, limits, &mut again).expect("what was written is good");
        assert_eq!(again.text, section.text);
        assert_eq!(again.items, section.items);
    }
}

/// Frames behind a preface, taken whole and in pieces: the same comes of both, what is taken was there, and each stream
/// that begins can be answered and forgotten.
pub fn h2_frames(data: &[u8]) {
    let whole = served(data, usize::MAX);
    let size = usize::from(data.first().copied().unwrap_or(1)).max(1);
    assert_eq!(served(data, size), whole);
}

fn served(data: &[u8], size: usize) -> (Vec<u8>, usize, Option<&'static str>) {
    let headers = SectionLimits::new(4096, 64);
    let config = H2Config {
        max_streams: 8,
        stream_window: 65_535,
        window: 1 << 20,
        headers,
        max_frame: 32_768,
        connect_protocol: true,
    };
    let (mut out, mut held, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut server = H2Connection::server(&config, &mut out);
    for piece in [PREFACE, data].concat().chunks(size) {
        held.extend_from_slice(piece);
        loop {
            let (used, event) = match server.receive(&held, 1, &mut out) {
                Ok(found) => found,
                Err(failure) => return (out, bytes, Some(failure.reason)),
            };
            assert!(used <= held.len());
            match event {
                Some(H2Event::Data { range, .. }) => {
                    assert!(range.end <= used);
                    bytes += range.len();
                }
                Some(H2Event::Head { key, .. }) => {
                    let _malformed = server.checked();
                    server.head(key, StreamEnd::Last, &mut out, |coder, out| coder.status(204, out));
                }
                Some(
                    H2Event::Malformed { key, .. } | H2Event::Trailers { key } | H2Event::Reset { key, .. },
                ) => {
                    server.release(key, &mut out);
                }
                Some(H2Event::Interim { .. } | H2Event::GoAway { .. }) => {}
                None => {
                    held.drain(..used);
                    break;
                }
            }
            held.drain(..used);
        }
    }
    (out, bytes, None)
}

/// What a server sends to a client with three requests, taken whole and in pieces: the same comes of both, and each stream has a
/// head once, content and trailers between it and the end, and nothing behind the end.
pub fn h2_responses(data: &[u8]) {
    let whole = asked(data, usize::MAX);
    let size = usize::from(data.first().copied().unwrap_or(1)).max(1);
    assert_eq!(asked(data, size), whole);
}

/// How far a response has come.
#[derive(Clone, Debug, Default, PartialEq)]
struct Response {
    head: bool,
    over: bool,
    content: Vec<u8>,
}

fn asked(data: &[u8], size: usize) -> ([Response; 3], Option<&'static str>) {
    let headers = SectionLimits::new(4096, 64);
    let config = H2Config {
        max_streams: 0,
        stream_window: 65_535,
        window: 1 << 20,
        headers,
        max_frame: 16_384,
        connect_protocol: false,
    };
    let (mut out, mut held) = (Vec::new(), Vec::new());
    let mut client = H2Connection::client(&config, &mut out);
    let mut keys = Vec::new();
    for _ in 0..3 {
        let opened = client.open(StreamEnd::Last, &mut out, |coder, out| {
            coder.field(b":method", b"GET", FieldIndexing::Allowed, out);
        });
        keys.extend(opened);
    }
    let mut responses = <[Response; 3]>::default();
    for piece in data.chunks(size) {
        held.extend_from_slice(piece);
        loop {
            let (used, event) = match client.receive(&held, 1, &mut out) {
                Ok(found) => found,
                Err(failure) => return (responses, Some(failure.reason)),
            };
            assert!(used <= held.len());
            let Some(event) = event else {
                held.drain(..used);
                break;
            };
            let of = |key| keys.iter().position(|open| *open == key).expect("a stream that was opened");
            match event {
                H2Event::Interim { key } => assert!(!responses[of(key)].head && !responses[of(key)].over),
                H2Event::Head { key, end } => {
                    let response = &mut responses[of(key)];
                    assert!(!response.head && !response.over);
                    (response.head, response.over) = (true, end);
                }
                H2Event::Data { key, range, end } => {
                    let response = &mut responses[of(key)];
                    assert!(response.head && !response.over && range.end <= used);
                    client.consumed(key, range.len() as u64, &mut out);
                    response.content.extend_from_slice(&held[range]);
                    response.over = end;
                }
                H2Event::Trailers { key } => {
                    let response = &mut responses[of(key)];
                    assert!(response.head && !response.over);
                    response.over = true;
                }
                H2Event::Malformed { key, .. } => {
                    client.reset(key, weir_http::h2::ErrorCode::Protocol, &mut out);
                    responses[of(key)].over = true;
                }
                H2Event::Reset { key, .. } => responses[of(key)].over = true,
                H2Event::GoAway { .. } => {}
            }
            held.drain(..used);
        }
    }
    (responses, None)
}
