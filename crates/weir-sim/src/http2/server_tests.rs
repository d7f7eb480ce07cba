//! Tests of the server: what it says, and what Weir must not send.

use std::collections::BTreeMap;

use super::frame::{self, ACK, END_HEADERS, END_STREAM, Frame, FrameReader, PREFACE, kind};
use super::hpack::{FieldForm, FieldPair, encode};
use super::server::{Http2Server, ServerWish};
use super::server_plan::{ContentCredit, Http2ServerPlan};

fn server() -> Http2Server {
    let plan = Http2ServerPlan {
        seed: 1,
        table: 4096,
        most_streams: 2,
        window: 10,
        credit: ContentCredit::AtOnce,
        data: 1000,
        gap: 0,
        form: FieldForm::Plain,
        pings: None,
        cut: None,
    };
    Http2Server::new(plan, 0)
}

fn head(stream: u32, flags: u8, path: &str) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "sim")];
    let fields: Vec<FieldPair> = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    frame::frame(kind::HEADERS, END_HEADERS | flags, stream, &encode(&fields, FieldForm::Plain))
}

/// What the server has to say once these frames have come; its faults come after.
fn said(server: &mut Http2Server, frames: &[Vec<u8>]) -> (Vec<Frame>, Vec<String>) {
    let mut tries = BTreeMap::new();
    server.receive(1, &[PREFACE, &frame::settings(&[]), &frames.concat()].concat());
    for now in (0..20).map(|at| at * 1000) {
        server.step(now, &mut tries);
    }
    let mut reader = FrameReader::default();
    reader.add(&server.output().drain(..).collect::<Vec<u8>>());
    (std::iter::from_fn(|| reader.next_frame()).collect(), server.take_lines())
}

/// The kinds of the frames of a stream, in order.
fn kinds(frames: &[Frame], stream: u32) -> Vec<u8> {
    frames.iter().filter(|frame| frame.stream == stream).map(|frame| frame.kind).collect()
}

#[test]
fn a_request_is_responded_to_as_its_path_says() {
    for (path, expected) in [
        ("/framed/grpc/plain?n=7&size=4", &[kind::HEADERS, kind::DATA, kind::HEADERS][..]),
        ("/framed/proxy/length?n=7&size=4", &[kind::HEADERS, kind::DATA]),
        ("/framed/grpc/head?n=7&size=4", &[kind::HEADERS]),
        ("/framed/proxy/cut?n=7&size=4", &[kind::HEADERS, kind::DATA, kind::RST_STREAM]),
        ("/framed/proxy/refused?n=7&size=4", &[kind::RST_STREAM]),
        ("/framed/proxy/silent?n=7&size=4", &[]),
    ] {
        let (frames, lines) = said(&mut server(), &[head(1, END_STREAM, path)]);
        assert_eq!((kinds(&frames, 1), lines), (expected.to_vec(), Vec::new()), "{path}");
    }
}

#[test]
fn goaway_ends_the_connection_after_what_it_still_does() {
    let frames = [
        head(1, END_STREAM, "/framed/proxy/length?n=1&size=4"),
        head(3, END_STREAM, "/framed/proxy/goaway?n=2&size=4"),
    ];
    let mut server = server();
    let (frames, lines) = said(&mut server, &frames);
    let goaway = frames.iter().find(|frame| frame.kind == kind::GOAWAY).expect("one");
    assert_eq!((goaway.number(0), server.wish()), (2, ServerWish::Close));
    assert_eq!((kinds(&frames, 1), lines), (vec![kind::HEADERS, kind::DATA], vec!["gd n=2".to_owned()]));
}

#[test]
fn what_must_not_come_is_a_fault() {
    let length = |stream| head(stream, 0, "/framed/proxy/length?n=7&size=4");
    let acknowledged = || frame::frame(kind::SETTINGS, ACK, 0, b"");
    let data = |bytes: &[u8]| frame::frame(kind::DATA, END_STREAM, 1, bytes);
    for (what, frames) in [
        ("above the stream's window", vec![acknowledged(), length(1), data(b"n=7;n=7;n=7;")]),
        ("another content", vec![length(1), data(b"n=8;")]),
        ("more streams", vec![acknowledged(), length(1), length(3), length(5)]),
        ("not the next one", vec![length(3), length(1)]),
        ("idle", vec![data(b"n")]),
        ("a second RST_STREAM", vec![length(1), frame::of_number(3, 1, 8), frame::of_number(3, 1, 8)]),
        ("nobody asks", vec![head(1, END_STREAM, "/else")]),
        ("acknowledgement of nothing", vec![acknowledged(), acknowledged()]),
    ] {
        let (_, lines) = said(&mut server(), &frames);
        assert!(
            lines.iter().any(|line| line.starts_with("bad ") && line.contains(what)),
            "{what}: {lines:?}"
        );
    }
}
