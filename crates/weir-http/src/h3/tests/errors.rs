//! Every error of RFC 9114, and that each ends what it should: the connection, or one stream.

use super::*;

/// What the server says to bytes of a request's stream, whole and in pieces.
fn on_request(bytes: &[u8], end: StreamEnd) -> Result<Vec<String>, H3ErrorCode> {
    let whole = received(&mut server(), 0, bytes, bytes.len().max(1), end);
    for size in 1..bytes.len() {
        assert_eq!(received(&mut server(), 0, bytes, size, end), whole, "{size}: {}", bytes.escape_ascii());
    }
    whole.map(|(events, _)| events).map_err(|failure| failure.code)
}

/// What the server says to bytes of the control stream, whole and in pieces.
fn on_control(bytes: &[u8]) -> Result<UniInterest, H3ErrorCode> {
    on_uni(&mut H3Connection::new(CONFIG), 2, bytes)
}

fn on_uni(conn: &mut H3Connection, id: u64, bytes: &[u8]) -> Result<UniInterest, H3ErrorCode> {
    let mut interest = Ok(UniInterest::Wanted);
    for byte in bytes.chunks(1) {
        interest = conn.receive_uni(id, byte, StreamEnd::More).map_err(|failure| failure.code);
        interest?;
    }
    let mut whole = H3Connection::new(CONFIG);
    whole.receive_uni(id, bytes, StreamEnd::More).map_err(|failure| failure.code).and(interest)
}

#[test]
fn frames_come_where_they_may() {
    let get = headers(&GET);
    for (frames, code) in [
        (frame(kind::DATA, b"a"), H3ErrorCode::FrameUnexpected),
        ([&get[..], &get[..8]].concat(), H3ErrorCode::Frame),
        (get[..1].to_vec(), H3ErrorCode::Frame),
        ([&get[..], &[0, 5, b'a']].concat(), H3ErrorCode::Frame),
        ([&get[..], &[0x21, 2, 0]].concat(), H3ErrorCode::Frame),
        (frame(kind::SETTINGS, &[]), H3ErrorCode::FrameUnexpected),
        (frame(kind::GOAWAY, &[0]), H3ErrorCode::FrameUnexpected),
        (frame(kind::CANCEL_PUSH, &[0]), H3ErrorCode::FrameUnexpected),
        (frame(kind::MAX_PUSH_ID, &[0]), H3ErrorCode::FrameUnexpected),
        (frame(kind::PUSH_PROMISE, &[0, 0, 0]), H3ErrorCode::FrameUnexpected),
        (frame(kind::PRIORITY_UPDATE, &[0]), H3ErrorCode::FrameUnexpected),
        (frame(kind::PRIORITY_UPDATE_PUSH, &[0]), H3ErrorCode::FrameUnexpected),
        (frame(2, &[0; 5]), H3ErrorCode::FrameUnexpected),
        (frame(6, &[0; 8]), H3ErrorCode::FrameUnexpected),
        (frame(8, &[0; 4]), H3ErrorCode::FrameUnexpected),
        ([get.clone(), frame(9, &[])].concat(), H3ErrorCode::FrameUnexpected),
        ([get.clone(), headers(&[]), headers(&[])].concat(), H3ErrorCode::FrameUnexpected),
        ([get.clone(), headers(&[]), frame(kind::DATA, b"a")].concat(), H3ErrorCode::FrameUnexpected),
        (frame(kind::HEADERS, &[]), H3ErrorCode::QpackDecompressionFailed),
        (frame(kind::HEADERS, &[0, 0, 0x80]), H3ErrorCode::QpackDecompressionFailed),
        (vec![1, 0x80, 0, 0x40, 1], H3ErrorCode::ExcessiveLoad),
    ] {
        assert_eq!(on_request(&frames, StreamEnd::Last), Err(code), "{}", frames.escape_ascii());
    }
}

#[test]
fn a_tunnel_has_content_alone() {
    let connect = headers(&[(":method", "CONNECT"), (":authority", "a:1")]);
    let frames = [connect.clone(), frame(kind::DATA, b"abc"), frame(0x21, b"x")].concat();
    assert_eq!(on_request(&frames, StreamEnd::Last), Ok(vec!["head".into(), "data".into(), "end".into()]));
    let trailers = [connect, headers(&[])].concat();
    assert_eq!(on_request(&trailers, StreamEnd::Last), Err(H3ErrorCode::FrameUnexpected));
}

#[test]
fn faults_of_one_stream_end_that_stream() {
    let five = with(&[("content-length", "5")]);
    for (frames, events) in [
        (Vec::new(), &["H3_REQUEST_INCOMPLETE"][..]),
        (frame(0x21, b"grease"), &["H3_REQUEST_INCOMPLETE"]),
        (headers(&GET), &["head", "end"]),
        ([headers(&GET), frame(kind::DATA, b"")].concat(), &["head", "end"]),
        ([headers(&GET), frame(0x40, b"x")].concat(), &["head", "end"]),
        ([five.clone(), frame(kind::DATA, b"abcde")].concat(), &["head", "data", "end"]),
        (
            [five.clone(), frame(kind::DATA, b"ab"), frame(kind::DATA, b"cde")].concat(),
            &["head", "data", "end"],
        ),
        ([five.clone(), frame(kind::DATA, b"abcdef")].concat(), &["head", "malformed"]),
        (
            [five.clone(), frame(kind::DATA, b"abcde"), frame(kind::DATA, b"f")].concat(),
            &["head", "data", "malformed"],
        ),
        ([five.clone(), headers(&[("a", "b")])].concat(), &["head", "malformed"]),
        (
            [five, frame(kind::DATA, b"abcde"), headers(&[("a", "b")])].concat(),
            &["head", "data", "trailers", "end"],
        ),
        ([headers(&POST), headers(&[(":path", "b")])].concat(), &["head", "H3_MESSAGE_ERROR"]),
    ] {
        let found = on_request(&frames, StreamEnd::Last).expect("the connection goes on");
        assert_eq!(found, events, "{}", frames.escape_ascii());
    }
}

#[test]
fn content_that_is_too_short_is_reported_at_its_end() {
    let frames = [with(&[("content-length", "5")]), frame(kind::DATA, b"abc")].concat();
    let mut short = server();
    let (events, content) =
        received(&mut short, 0, &frames, frames.len(), StreamEnd::More).expect("a request");
    assert_eq!((events.len(), &content[..]), (2, &b"abc"[..]));
    let (events, _) = received(&mut short, 0, b"", 1, StreamEnd::Last).expect("a stream's end");
    assert_eq!(events, ["malformed"]);
    // What is left of it is dropped.
    assert_eq!(short.receive(0, &frame(kind::SETTINGS, b""), StreamEnd::Last), Ok((2, None)));
    let mut at_once = server();
    let (events, _) = received(&mut at_once, 0, &frames, frames.len(), StreamEnd::Last).expect("a request");
    assert_eq!(events, ["head", "data", "malformed"]);
}

#[test]
fn malformed_requests_can_be_responded_to() {
    for (fields, wrong) in [
        (&[(":method", "GET")][..], "sent no :scheme header"),
        (&[("a", "b"), GET[0]], "sent out of order pseudo-headers"),
        (&[GET[0], GET[1], GET[2], ("Name", "x")], "sent invalid header name"),
        (&[GET[0], GET[1], GET[2], ("connection", "x")], "sent connection-specific header"),
        (&[GET[0], GET[1], GET[2], (":status", "200")], "sent unknown pseudo-header"),
        (&[GET[0], GET[1], GET[2], ("content-length", "5")], "sent invalid \"Content-Length\" header"),
    ] {
        let mut server = server();
        let bytes = headers(fields);
        let (used, event) = server.receive(0, &bytes, StreamEnd::Last).expect("the connection goes on");
        assert_eq!((used, event), (bytes.len(), Some(H3Event::Head { end: StreamEnd::Last })));
        assert_eq!(server.checked().map_err(|wrong| wrong.to_string()), Err(wrong.to_owned()));
        assert_eq!(server.receive(0, b"", StreamEnd::Last), Ok((0, None)), "the end is reported once");
    }
}

#[test]
fn the_control_stream_begins_with_settings_that_come_once() {
    let settings = [0, 4, 0];
    let after = |frame: Vec<u8>| [&settings[..], &frame].concat();
    for (bytes, code) in [
        (vec![0, 0, 1, b'a'], H3ErrorCode::MissingSettings),
        (vec![0, 0x21, 0], H3ErrorCode::MissingSettings),
        (vec![0, 7, 1, 0], H3ErrorCode::MissingSettings),
        (after(frame(kind::SETTINGS, &[])), H3ErrorCode::FrameUnexpected),
        (after(frame(kind::DATA, b"a")), H3ErrorCode::FrameUnexpected),
        (after(frame(kind::HEADERS, &[0, 0])), H3ErrorCode::FrameUnexpected),
        (after(frame(kind::PUSH_PROMISE, &[0])), H3ErrorCode::FrameUnexpected),
        (after(frame(2, &[0; 5])), H3ErrorCode::FrameUnexpected),
        (after(frame(6, &[0; 8])), H3ErrorCode::FrameUnexpected),
        (after(frame(8, &[0; 4])), H3ErrorCode::FrameUnexpected),
        (after(frame(9, &[])), H3ErrorCode::FrameUnexpected),
        (vec![0, 4, 2, 2, 0], H3ErrorCode::Settings),
        (vec![0, 4, 2, 8, 2], H3ErrorCode::Settings),
        (vec![0, 4, 4, 7, 1, 7, 1], H3ErrorCode::Settings),
        (vec![0, 4, 1, 7], H3ErrorCode::Frame),
        (vec![0, 4, 0x80, 1, 0, 0], H3ErrorCode::ExcessiveLoad),
        (after(frame(kind::GOAWAY, &[])), H3ErrorCode::Frame),
        (after(frame(kind::GOAWAY, &[0, 0])), H3ErrorCode::Frame),
        (after(frame(kind::GOAWAY, &[0x40])), H3ErrorCode::Frame),
        (after(frame(kind::MAX_PUSH_ID, &[0; 9])), H3ErrorCode::Frame),
        (after(frame(kind::CANCEL_PUSH, &[])), H3ErrorCode::Frame),
        (after(frame(kind::CANCEL_PUSH, &[0])), H3ErrorCode::Id),
        (after([frame(kind::GOAWAY, &[4]), frame(kind::GOAWAY, &[5])].concat()), H3ErrorCode::Id),
        (after([frame(kind::MAX_PUSH_ID, &[4]), frame(kind::MAX_PUSH_ID, &[3])].concat()), H3ErrorCode::Id),
        (after(frame(kind::PRIORITY_UPDATE, &[])), H3ErrorCode::Frame),
        (after(frame(kind::PRIORITY_UPDATE, &[1])), H3ErrorCode::Id),
        (after(frame(kind::PRIORITY_UPDATE, &[2])), H3ErrorCode::Id),
        (after(frame(kind::PRIORITY_UPDATE_PUSH, &[0])), H3ErrorCode::Id),
    ] {
        assert_eq!(on_control(&bytes), Err(code), "{}", bytes.escape_ascii());
    }
    let good = [
        frame(0x21, &[7; 5000]),
        frame(kind::GOAWAY, &[0xc0, 0, 0, 0, 0, 0, 0, 4]),
        frame(kind::GOAWAY, &[4]),
        frame(kind::PRIORITY_UPDATE, &[&[4][..], &[b' '; 4095]].concat()),
        frame(kind::MAX_PUSH_ID, &[4]),
        frame(kind::MAX_PUSH_ID, &[4]),
        frame(kind::PRIORITY_UPDATE, b"\x04u=1"),
    ];
    assert_eq!(on_control(&after(good.concat())), Ok(UniInterest::Wanted));
}

#[test]
fn streams_without_which_there_is_no_connection_stay_and_come_once() {
    for kind in [0, 2, 3_u8] {
        let begun = || {
            let mut server = H3Connection::new(CONFIG);
            let bytes: &[u8] = if kind == 0 { &[0, 4, 0] } else { &[kind] };
            assert_eq!(server.receive_uni(6, bytes, StreamEnd::More), Ok(UniInterest::Wanted));
            server
        };
        let closed = Err(H3Failure::CLOSED_CRITICAL_STREAM);
        assert_eq!(begun().receive_uni(6, b"", StreamEnd::Last).map(|_| ()), closed);
        assert_eq!(begun().reset_uni(6), closed);
        assert_eq!(H3Connection::new(CONFIG).receive_uni(6, &[kind], StreamEnd::Last).map(|_| ()), closed);
        let twice = begun().receive_uni(10, &[kind], StreamEnd::More).map_err(|failure| failure.code);
        assert_eq!(twice, Err(H3ErrorCode::StreamCreation));
    }
    assert_eq!(H3Failure::CLOSED_CRITICAL_STREAM.code, H3ErrorCode::ClosedCriticalStream);
}

#[test]
fn other_unidirectional_streams_may_end_and_are_dropped() {
    let mut server = server();
    let unwanted = Ok(UniInterest::Unwanted);
    assert_eq!(server.receive_uni(14, b"\x21grease", StreamEnd::More), unwanted);
    assert_eq!(server.receive_uni(14, &[0; 1000], StreamEnd::Last), unwanted);
    assert_eq!(server.receive_uni(18, b"\x40", StreamEnd::More), Ok(UniInterest::Wanted));
    assert_eq!(server.receive_uni(18, b"\x54more", StreamEnd::More), unwanted);
    assert_eq!(server.reset_uni(18), Ok(()));
    // Before its type has come it may be for anything.
    assert_eq!(server.receive_uni(22, b"\x80", StreamEnd::Last), Ok(UniInterest::Wanted));
    assert_eq!(server.receive_uni(26, b"", StreamEnd::More), Ok(UniInterest::Wanted));
    assert_eq!(server.reset_uni(26), Ok(()));
    let push = |conn: &mut H3Connection| {
        conn.receive_uni(3, &[1, 0], StreamEnd::More).map_err(|failure| failure.code)
    };
    assert_eq!(push(&mut server), Err(H3ErrorCode::StreamCreation));
    assert_eq!(push(&mut H3Connection::client(CONFIG)), Err(H3ErrorCode::Id));
}

#[test]
fn errors_of_qpack_have_their_codes() {
    let on =
        |id, bytes: &[u8]| server().receive_uni(id, bytes, StreamEnd::More).map_err(|failure| failure.code);
    assert_eq!(on(ENCODER, &[2, 0]), Err(H3ErrorCode::QpackEncoderStream));
    assert_eq!(on(DECODER, &[3, 0]), Err(H3ErrorCode::QpackDecoderStream));
    assert_eq!(on(DECODER, &[3, 0x80]), Err(H3ErrorCode::QpackDecoderStream));
    assert_eq!(on(DECODER, &[3, 0x44]), Ok(UniInterest::Wanted), "a stream that is cancelled");
}

#[test]
fn streams_of_other_kinds_are_refused() {
    for id in [1, 2, 3] {
        let received = server().receive(id, b"", StreamEnd::More).map_err(|failure| failure.code);
        assert_eq!(received, Err(H3ErrorCode::StreamCreation));
    }
}

/// A response that announces five bytes.
fn response(content: &[u8]) -> Vec<u8> {
    let head = headers(&[(":status", "200"), ("content-length", "5")]);
    [head, frame(kind::DATA, content), frame(0x21, b"")].concat()
}

#[test]
fn a_client_takes_nothing_that_only_clients_send() {
    let client = || {
        let mut client = H3Connection::client(CONFIG);
        client.receive_uni(3, &[0, 4, 0], StreamEnd::More).expect("settings");
        client
    };
    for (frames, code) in [
        (frame(kind::MAX_PUSH_ID, &[0]), H3ErrorCode::FrameUnexpected),
        (frame(kind::PRIORITY_UPDATE, b"\x00u=1"), H3ErrorCode::FrameUnexpected),
        (frame(kind::PRIORITY_UPDATE_PUSH, b"\x00u=1"), H3ErrorCode::FrameUnexpected),
        (frame(kind::GOAWAY, &[1]), H3ErrorCode::Id),
    ] {
        let received = client().receive_uni(3, &frames, StreamEnd::More).map_err(|failure| failure.code);
        assert_eq!(received, Err(code), "{}", frames.escape_ascii());
    }
    for (frames, outcome) in [
        (frame(kind::PUSH_PROMISE, &[0, 0, 0]), Err(H3ErrorCode::Id)),
        (Vec::new(), Ok("H3_GENERAL_PROTOCOL_ERROR")),
        (headers(&[(":status", "103")]), Ok("H3_MESSAGE_ERROR")),
        (headers(&[("a", "b")]), Ok("H3_MESSAGE_ERROR")),
        (headers(&[(":status", "200"), ("content-length", "5")]), Ok("head end")),
        (response(b"abcde"), Ok("head data end")),
        (response(b"abc"), Ok("head data malformed")),
        (response(b""), Ok("head end")),
        (response(b"abcdef"), Ok("head malformed")),
    ] {
        let found = received(&mut client(), 0, &frames, usize::MAX, StreamEnd::Last);
        let found = found.map(|(events, _)| events.join(" ")).map_err(|failure| failure.code);
        assert_eq!(found.as_deref().map_err(|code| *code), outcome, "{}", frames.escape_ascii());
    }
}

#[test]
fn floods_end_the_connection() {
    let request = [headers(&GET), frame(0x21, &[]).repeat(1005)].concat();
    let abuse = |conn: &mut H3Connection, frames: &[u8]| {
        received(conn, 0, frames, usize::MAX, StreamEnd::More).expect_err("too many").abuse
    };
    assert_eq!(abuse(&mut server(), &request), Some(H3Abuse::Unknown));
    let empty = [headers(&GET), frame(kind::DATA, b"").repeat(101)].concat();
    assert_eq!(abuse(&mut server(), &empty), Some(H3Abuse::Empty));
    let control = |frames: Vec<u8>| {
        server().receive_uni(CONTROL, &frames, StreamEnd::More).expect_err("too many").abuse
    };
    assert_eq!(control(frame(0x21, &[]).repeat(1001)), Some(H3Abuse::Unknown));
    assert_eq!(control(frame(kind::PRIORITY_UPDATE, b"\x04u=1").repeat(2001)), Some(H3Abuse::Priorities));
    assert_eq!(control(frame(kind::MAX_PUSH_ID, &[1]).repeat(101)), Some(H3Abuse::PushIds));
    assert_eq!(control(frame(kind::GOAWAY, &[1]).repeat(21)), Some(H3Abuse::GoAways));
    let allowed = [1, 0x80, 0, 0x40, 0];
    assert_eq!(server().receive(0, &allowed, StreamEnd::More), Ok((5, None)));
    let flood = [&[2, 0x3f, 0xe1, 0x1f, 0xc1, 0x7f, 0xa1, 0x1e][..], &[b'x'; 4000], &[0; 1000]].concat();
    let failed = server().receive_uni(ENCODER, &flood, StreamEnd::More).expect_err("too many");
    assert_eq!((failed.abuse, failed.code), (Some(H3Abuse::Table), H3ErrorCode::ExcessiveLoad));
    let mut faulty = server();
    let faults = [with(&[("Name", "x")]), headers(&[&GET[..], &[("x", "y"); 60]].concat())];
    let mut streams =
        (0..502).map(|stream| faulty.receive(4 * stream, &faults[stream as usize % 2], StreamEnd::Last));
    assert_eq!(streams.find_map(Result::err).and_then(|failed| failed.abuse), Some(H3Abuse::Resets));
    let large = [("x", "y"); 200].map(|_| ("a-long-name-of-a-field", "and-a-long-value-of-it-too"));
    let failed =
        received(&mut server(), 0, &headers(&large), usize::MAX, StreamEnd::More).expect_err("too large");
    assert_eq!((failed.abuse, failed.code), (Some(H3Abuse::Headers), H3ErrorCode::ExcessiveLoad));
}

#[test]
fn streams_that_are_reset_are_counted_unless_responses_pay() {
    let mut server = server();
    for round in 0..3000_u64 {
        let id = 4 * round;
        server.receive(id, &headers(&GET), StreamEnd::Last).expect("a request");
        server.head(id, &mut Vec::new(), |coder, out| coder.status(200, out));
        match round % 2 {
            0 => server.forget(id),
            _ => server.peer_reset(id).expect("half of them had a response"),
        }
    }
    let failed = (0..501).find_map(|round| server.peer_reset(12_000 + 4 * round).err()).expect("too many");
    assert_eq!(failed.abuse, Some(H3Abuse::Resets));
}

#[test]
fn many_sections_in_part_are_too_much() {
    let mut server = server();
    let begun = [&[1, 0x60, 0][..], &[0; 8000]].concat();
    let failed = (0..100).find_map(|stream| server.receive(4 * stream, &begun, StreamEnd::More).err());
    assert_eq!(failed.and_then(|failed| failed.abuse), Some(H3Abuse::Headers));
    assert!(server.held_bytes() < 600_000);
    (0..100).for_each(|stream| server.forget(4 * stream));
    assert_eq!(
        server.receive(400, &headers(&GET), StreamEnd::Last).map(|(_, event)| event.is_some()),
        Ok(true)
    );
}

#[test]
fn codes_are_known_by_their_numbers() {
    for number in (0x100..=0x110).chain(0x200..=0x202) {
        let code = H3ErrorCode::of(number);
        assert_eq!(code.number(), number);
        assert!(code.as_str().contains("H3_") || code.as_str().contains("QPACK_"));
    }
    assert_eq!([0, 0x111, 0x21, 0x203].map(H3ErrorCode::of), [H3ErrorCode::No; 4]);
}
