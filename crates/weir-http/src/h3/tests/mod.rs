//! Connections: by hand-made bytes, and against each other.

mod errors;
mod pair;
mod requests;

use super::*;
use crate::coder::FieldIndexing;
use crate::hpack::SectionLimits;
use crate::message::StreamEnd;
use crate::qpack::QpackEncoder;

pub(super) const CONFIG: H3Config = H3Config {
    table: 4096,
    longest: 4096,
    blocked: 2,
    limits: SectionLimits::new(4096, 50),
    connect_protocol: true,
};

/// Identifiers of the client's unidirectional streams.
pub(super) const CONTROL: u64 = 2;
pub(super) const ENCODER: u64 = 6;
pub(super) const DECODER: u64 = 10;

/// A server that has a client's settings.
pub(super) fn server() -> H3Connection {
    let mut server = H3Connection::new(CONFIG);
    let settings = [0, 4, 4, 1, 0x3f, 7, 0];
    assert_eq!(server.receive_uni(CONTROL, &settings, StreamEnd::More), Ok(UniInterest::Wanted));
    server
}

pub(super) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame_head(kind, payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

/// A HEADERS frame of literals and static references.
pub(super) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut block) = (QpackEncoder::new(), Vec::new());
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Not, &mut block);
    }
    encoder.finish(0, &mut block);
    frame(kind::HEADERS, &block)
}

pub(super) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];
pub(super) const POST: [(&str, &str); 4] = [(":method", "POST"), GET[1], GET[2], GET[3]];

pub(super) fn with(more: &[(&'static str, &'static str)]) -> Vec<u8> {
    headers(&[&POST[..], more].concat())
}

/// What comes of a stream whose bytes come in pieces of `size` bytes, the content joined; the end's event is the same
/// whether it comes with the last bytes or alone.
pub(super) fn received(
    conn: &mut H3Connection,
    id: u64,
    bytes: &[u8],
    size: usize,
    end: StreamEnd,
) -> Result<(Vec<String>, Vec<u8>), H3Failure> {
    let (mut events, mut content) = (Vec::new(), Vec::new());
    let mut pieces: Vec<&[u8]> = bytes.chunks(size).collect();
    if pieces.is_empty() {
        pieces.push(&[]);
    }
    let count = pieces.len();
    for (at, piece) in pieces.into_iter().enumerate() {
        let end = if at + 1 == count { end } else { StreamEnd::More };
        let mut rest = piece;
        loop {
            let (used, event) = conn.receive(id, rest, end)?;
            if let Some(H3Event::Data { range, .. }) = &event {
                assert!(range.end <= used);
                content.extend_from_slice(&rest[range.clone()]);
            }
            rest = &rest[used..];
            match event {
                None => break,
                Some(H3Event::Blocked) => return Ok((events, content)),
                Some(event) => note(&event, &mut events),
            }
        }
        assert!(rest.is_empty());
    }
    Ok((events, content))
}

/// The names of events; an end that is part of another one is the same as one by itself, and content is noted once.
fn note(event: &H3Event, events: &mut Vec<String>) {
    let (name, ended) = match event {
        H3Event::Head { end } => ("head".to_owned(), *end == StreamEnd::Last),
        H3Event::Data { end, .. } => ("data".to_owned(), *end == StreamEnd::Last),
        H3Event::Trailers { end } => ("trailers".to_owned(), *end == StreamEnd::Last),
        H3Event::Interim => ("interim".to_owned(), false),
        H3Event::Blocked => ("blocked".to_owned(), false),
        H3Event::End => (String::new(), true),
        H3Event::Malformed { .. } => ("malformed".to_owned(), false),
        H3Event::Reset { code, .. } => (code.as_str().to_owned(), false),
    };
    let is_noted = name == "data" && events.last().is_some_and(|last| last == "data");
    if !name.is_empty() && !is_noted {
        events.push(name);
    }
    if ended {
        events.push("end".to_owned());
    }
}
