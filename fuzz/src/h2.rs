//! HTTP/2: header blocks, and a server's side of a connection.

use weir_http::h2::{Config, Connection, Event, PREFACE};
use weir_http::hpack::{Decoder, Encoder, Indexing, Limits, Section};

/// Two header blocks on one table; what was read is written, and read again the same.
pub fn hpack(data: &[u8]) {
    let limits = Limits { text: 4096, fields: 64 };
    let (mut decoder, mut section) = (Decoder::new(512), Section::default());
    for block in data.chunks(data.len().div_ceil(2).max(1)) {
        if decoder.decode(block, limits, &mut section).is_err() {
            return;
        }
        assert!(section.text.len() <= limits.text && section.items.len() <= limits.fields);
        let mut out = Vec::new();
        let mut encoder = Encoder::new();
        encoder.begin(&mut out);
        for item in &section.items {
            let (name, value) = (item.label.of(&section.text), item.value.of(&section.text));
            encoder.field(name, value, Indexing::Allowed, &mut out);
        }
        let mut again = Section::default();
        Decoder::new(4096).decode(&out, limits, &mut again).expect("what was written is good");
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
    let headers = Limits { text: 4096, fields: 64 };
    let config = Config {
        max_streams: 8,
        stream_window: 65_535,
        window: 1 << 20,
        headers,
        max_frame: 32_768,
        connect_protocol: true,
    };
    let (mut out, mut held, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut server = Connection::server(&config, &mut out);
    for piece in [PREFACE, data].concat().chunks(size) {
        held.extend_from_slice(piece);
        loop {
            let (used, event) = match server.receive(&held, 1, &mut out) {
                Ok(found) => found,
                Err(failure) => return (out, bytes, Some(failure.reason)),
            };
            assert!(used <= held.len());
            match event {
                Some(Event::Data { range, .. }) => {
                    assert!(range.end <= used);
                    bytes += range.len();
                }
                Some(Event::Head { key, .. }) => {
                    let _malformed = server.checked();
                    server.head(key, true, &mut out, |coder, out| coder.status(204, out));
                }
                Some(Event::Malformed { key, .. } | Event::Trailers { key } | Event::Reset { key, .. }) => {
                    server.release(key, &mut out);
                }
                Some(Event::Interim { .. } | Event::GoAway { .. }) => {}
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
