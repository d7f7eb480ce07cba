//! What comes of requests: their parts, sections that wait, priorities, GOAWAY.

use super::*;
use crate::header::KnownField;
use crate::priority::Priority;

fn taken(output: &mut Vec<u8>) -> Vec<u8> {
    std::mem::take(output)
}

#[test]
fn a_request_comes_in_any_pieces() {
    let frames = [
        frame(0x21, b"grease"),
        with(&[("content-length", "6"), ("x", "y")]),
        frame(kind::DATA, b"abc"),
        frame(kind::DATA, b""),
        frame(0x40 * 0x1f + 0x21, b""),
        frame(kind::DATA, b"def"),
        headers(&[("grpc-status", "0")]),
        frame(0x21, b"more"),
    ];
    let bytes = frames.concat();
    for size in 1..=bytes.len() {
        for end in [StreamEnd::More, StreamEnd::Last] {
            let mut server = server();
            let (mut events, content) = received(&mut server, 0, &bytes, size, end).expect("a request");
            if end == StreamEnd::More {
                events.extend(received(&mut server, 0, b"", 1, StreamEnd::Last).expect("its end").0);
            }
            assert_eq!(events, ["head", "data", "trailers", "end"], "{size}");
            assert_eq!(content, b"abcdef");
            assert_eq!(server.section().items.len(), 1);
            server.forget(0);
            assert!(server.decoder_output().is_empty(), "all was read");
        }
    }
}

#[test]
fn a_head_is_a_message_of_which_the_size_is_known() {
    let mut server = server();
    let bytes = with(&[("content-length", "6"), ("user-agent", "x")]);
    let (used, event) = server.receive(8, &bytes, StreamEnd::More).expect("a request");
    assert_eq!((used, event), (bytes.len(), Some(H3Event::Head { end: StreamEnd::More })));
    assert_eq!((server.checked(), server.block_len()), (Ok(()), bytes.len() - 2));
    let (message, section) = (*server.message(), server.section());
    assert_eq!(message.method.map(|method| method.of(&section.text)), Some(&b"POST"[..]));
    assert_eq!((message.content_length, message.pseudo), (Some(6), 4));
    assert_eq!(section.items[5].name.known, KnownField::UserAgent);
    assert_eq!(server.next_stream(), 12);
}

#[test]
fn fields_above_the_limits_are_left_out() {
    let mut server = server();
    let bytes = headers(&[&GET[..], &[("x", "y"); 60]].concat());
    server.receive(0, &bytes, StreamEnd::Last).expect("a request");
    assert!(server.section().too_large && server.checked().is_ok());
    assert_eq!(server.section().items.len(), 50);
}

/// A section that needs the first `required` entries of a table of 128, and refers to the last of them.
fn waiting(required: u8) -> Vec<u8> {
    let fields = [0xd1, 0xd7, 0xc1, 0x50, 1, b'a', 0x80];
    frame(kind::HEADERS, &[&[required + 1, 0][..], &fields].concat())
}

/// The encoder stream: its type, a capacity of 4,096, and entries `x: 0`, `x: 1` …
fn entries(count: u8) -> Vec<u8> {
    let inserts = (0..count).flat_map(|number| [0x41, b'x', 1, b'0' + number]);
    [2, 0x3f, 0xe1, 0x1f].into_iter().chain(inserts).collect()
}

#[test]
fn sections_wait_for_the_table_and_go_on_in_any_order() {
    let instructions = entries(3);
    for cut in 0..=instructions.len() {
        let mut server = server();
        let (early, late) = instructions.split_at(cut);
        server.receive_uni(ENCODER, early, StreamEnd::More).expect("instructions");
        let mut blocked = Vec::new();
        for (id, required) in [(0, 3), (4, 1)] {
            let bytes = [waiting(required), frame(kind::DATA, b"abc")].concat();
            let (used, event) = server.receive(id, &bytes, StreamEnd::Last).expect("a request");
            let Some(H3Event::Blocked) = event else {
                assert_eq!(event, Some(H3Event::Head { end: StreamEnd::More }));
                server.receive(id, &bytes[used..], StreamEnd::Last).expect("content");
                continue;
            };
            assert_eq!(used, bytes.len() - 5, "the rest stays with the caller");
            assert_eq!(server.receive(id, &bytes[used..], StreamEnd::Last), Ok((0, Some(H3Event::Blocked))));
            blocked.push((id, bytes[used..].to_vec()));
        }
        assert!(server.unblocked().is_none());
        server.receive_uni(ENCODER, late, StreamEnd::More).expect("instructions");
        while let Some(id) = server.unblocked() {
            let at = blocked.iter().position(|(blocked, _)| *blocked == id).expect("one that waits");
            let (_, rest) = blocked.remove(at);
            assert_eq!(
                server.receive(id, b"", StreamEnd::More),
                Ok((0, Some(H3Event::Head { end: StreamEnd::More })))
            );
            let value = server.section().items.last().expect("a field").value.of(&server.section().text);
            assert_eq!(value, if id == 0 { b"2" } else { b"0" });
            let content = H3Event::Data { range: 2..5, end: StreamEnd::Last };
            let (used, event) = server.receive(id, &rest, StreamEnd::Last).expect("content");
            assert_eq!((used, event), (5, Some(content)));
        }
        assert!(blocked.is_empty());
        // Of both orders, which the cut decides, the table's entries are acknowledged once.
        let output = taken(server.decoder_output());
        assert!([&[0x80, 0x84][..], &[0x84, 0x80], &[0x84, 0x80, 2]].contains(&&output[..]), "{output:?}");
        assert_eq!(server.held, 0);
    }
}

#[test]
fn a_section_that_has_waited_may_be_the_whole_request() {
    let mut server = server();
    let bytes = waiting(1);
    assert_eq!(server.receive(0, &bytes, StreamEnd::Last), Ok((bytes.len(), Some(H3Event::Blocked))));
    assert!(server.held_bytes() >= bytes.len() - 2);
    server.receive_uni(ENCODER, &entries(1), StreamEnd::More).expect("instructions");
    assert_eq!((server.unblocked(), server.unblocked()), (Some(0), None));
    assert_eq!(
        server.receive(0, b"", StreamEnd::Last),
        Ok((0, Some(H3Event::Head { end: StreamEnd::Last })))
    );
    assert_eq!(server.receive(0, b"", StreamEnd::Last), Ok((0, None)));
}

#[test]
fn no_more_streams_wait_than_may() {
    let mut server = server();
    for id in [0, 4] {
        assert_eq!(
            server.receive(id, &waiting(1), StreamEnd::More).map(|(_, event)| event),
            Ok(Some(H3Event::Blocked))
        );
    }
    let failed = server.receive(8, &waiting(1), StreamEnd::More).expect_err("too many");
    assert_eq!(failed.code, H3ErrorCode::QpackDecompressionFailed);
    // One that is forgotten waits no longer, and one that need not wait does not.
    server.forget(4);
    server.forget(8);
    assert_eq!(
        server.receive(12, &waiting(2), StreamEnd::More).map(|(_, event)| event),
        Ok(Some(H3Event::Blocked))
    );
    server.receive_uni(ENCODER, &entries(1), StreamEnd::More).expect("instructions");
    assert_eq!(
        server.receive(16, &waiting(2), StreamEnd::More).map(|(_, event)| event),
        Ok(Some(H3Event::Blocked))
    );
    assert_eq!((server.unblocked(), server.unblocked()), (Some(0), None));
    assert_eq!(taken(server.decoder_output()), [0x44, 0x48, 1]);
}

#[test]
fn streams_that_are_left_are_cancelled_for_the_table() {
    let mut server = server();
    server.receive(0, &headers(&GET), StreamEnd::Last).expect("a request");
    server.receive(4, &headers(&GET), StreamEnd::More).expect("a request");
    server.receive(8, &headers(&GET)[..5], StreamEnd::More).expect("a piece of one");
    server.receive(12, b"", StreamEnd::Last).expect("none");
    [0, 4, 8, 12, 16].into_iter().for_each(|id| server.forget(id));
    server.peer_reset(20).expect("one reset");
    assert_eq!(taken(server.decoder_output()), [0x44, 0x48, 0x4c, 0x54]);
    assert_eq!(server.held, 0);
}

#[test]
fn priorities_are_those_of_the_head_until_they_are_updated() {
    let of = |urgency, incremental| Priority { urgency, incremental };
    let mut server = server();
    let update = |id: u8, value: &str| frame(kind::PRIORITY_UPDATE, &[&[id], value.as_bytes()].concat());
    server.receive_uni(CONTROL, &update(4, "u=1"), StreamEnd::More).expect("before its stream");
    server.receive_uni(CONTROL, &update(0, "u=7"), StreamEnd::More).expect("before its stream");
    assert_eq!(server.early.len(), 2);
    server.receive_uni(CONTROL, &update(0, "u=3, i"), StreamEnd::More).expect("once more");
    assert_eq!(server.early.len(), 2);
    server.early.clear();
    server.receive_uni(CONTROL, &update(4, "u=1"), StreamEnd::More).expect("before its stream");
    for id in [0, 4] {
        let bytes = with(&[("priority", "u=5, i")]);
        server.receive(id, &bytes, StreamEnd::More).expect("a request");
    }
    assert_eq!([0, 4, 8].map(|id| server.priority(id)), [of(5, true), of(1, false), of(3, false)]);
    server.receive_uni(CONTROL, &update(0, "u=0"), StreamEnd::More).expect("after its head");
    assert_eq!(server.priority(0), of(0, false));
    server.forget(0);
    server.receive_uni(CONTROL, &update(0, "u=0"), StreamEnd::More).expect("after its end");
    assert!(server.early.is_empty());
    for id in 0..200_u64 {
        let mut payload = Vec::new();
        varint::write(&mut payload, 4 * id + 400);
        server
            .receive_uni(CONTROL, &frame(kind::PRIORITY_UPDATE, &payload), StreamEnd::More)
            .expect("one of many");
    }
    assert_eq!(server.early.len(), 128);
}

#[test]
fn requests_after_goaway_are_rejected() {
    let mut server = server();
    server.receive(0, &headers(&GET), StreamEnd::More).expect("a request");
    let mut out = Vec::new();
    assert!(!server.is_ending());
    server.go_away(server.next_stream(), &mut out);
    server.go_away(8, &mut out);
    server.go_away(4, &mut out);
    assert_eq!(out, [7, 1, 4], "it can't grow, and is said once");
    assert!(server.is_ending());
    let bytes = headers(&GET);
    let (used, event) = server.receive(4, &bytes, StreamEnd::Last).expect("a late request");
    let rejected = H3ErrorCode::RequestRejected;
    assert!(matches!(event, Some(H3Event::Reset { code, .. }) if code == rejected) && used == bytes.len());
    assert_eq!(server.receive(4, b"", StreamEnd::Last), Ok((0, None)));
    assert_eq!(server.receive(0, &frame(kind::DATA, b"a"), StreamEnd::Last).map(|(used, _)| used), Ok(3));
    server.go_away(0, &mut out);
    assert_eq!(out[3..], [7, 1, 0]);
}

#[test]
fn a_request_that_comes_once_more_is_known() {
    let mut server = server();
    server.receive_uni(ENCODER, &entries(1), StreamEnd::More).expect("instructions");
    let fields = |server: &H3Connection| (server.section().items.len(), server.section().text.clone());
    let (mut numbers, bytes) = (Vec::new(), waiting(1));
    for id in [0, 4, 8] {
        server.receive(id, &bytes, StreamEnd::Last).expect("a request");
        assert!(server.checked().is_ok() && server.message().pseudo == 4);
        numbers.push(server.section_number());
    }
    assert_eq!((numbers[0], numbers[1]), (numbers[1], numbers[2]));
    assert_eq!(taken(server.decoder_output()), [0x80, 0x84, 0x88], "each is acknowledged");
    let before = fields(&server);
    // The same fields as trailers, and then as a request.
    server.receive(12, &bytes, StreamEnd::More).expect("a request");
    let (_, event) = server.receive(12, &bytes, StreamEnd::Last).expect("its trailers");
    assert!(matches!(event, Some(H3Event::Reset { code: H3ErrorCode::Message, .. })));
    assert!(server.checked().is_err());
    server.receive(16, &bytes, StreamEnd::Last).expect("a request");
    assert_eq!((server.checked(), fields(&server)), (Ok(()), before));
    // With an entry more, the same bytes may say something else.
    server.receive_uni(ENCODER, &[0x41, b'x', 1, b'9'], StreamEnd::More).expect("an entry");
    server.receive(20, &bytes, StreamEnd::Last).expect("a request");
    assert!(server.section_number() > numbers[2]);
    // Without the entry it is an error.
    server.receive_uni(ENCODER, &[0x20], StreamEnd::More).expect("a capacity");
    let failed = server.receive(24, &bytes, StreamEnd::Last).expect_err("its entry has gone");
    assert_eq!(failed.code, H3ErrorCode::QpackDecompressionFailed);
}

#[test]
fn a_length_without_content_is_the_fault_of_one_request() {
    let mut server = server();
    let bytes = with(&[("content-length", "3")]);
    for (id, end) in [(0, StreamEnd::More), (4, StreamEnd::Last), (8, StreamEnd::More), (12, StreamEnd::Last)]
    {
        server.receive(id, &bytes, end).expect("a request");
        assert_eq!(server.checked().is_ok(), end == StreamEnd::More, "{id}");
    }
}

#[test]
fn what_responses_repeat_is_referred_to_when_it_is_acknowledged() {
    let (mut client, mut server) = (H3Connection::client(CONFIG), server());
    let mut settings = Vec::new();
    client.begin_control(&mut settings);
    assert!(H3Settings::read(&settings[3..]).is_ok_and(|settings| !settings.connect_protocol), "it asks");
    let mut server_of = H3Connection::new(CONFIG);
    server_of.receive_uni(2, &settings, StreamEnd::More).expect("settings");
    assert_eq!(server_of.remote().map(|settings| settings.table), Some(4096));
    assert_eq!(server.remote().map(|settings| settings.table), Some(63), "another client's");
    assert!(client.remote().is_none());
    client.receive_uni(7, &[2], StreamEnd::More).expect("an encoder");
    server_of.receive_uni(10, &[3], StreamEnd::More).expect("a decoder");
    let mut sizes = Vec::new();
    for id in [0, 4, 8, 12] {
        let mut out = Vec::new();
        server_of.head(id, &mut out, |coder, out| {
            coder.status(200, out);
            coder.known(KnownField::Server, b"weir", out);
            coder.known(KnownField::ContentType, b"text/html", out);
        });
        client.receive_uni(7, &taken(server_of.encoder_output()), StreamEnd::More).expect("instructions");
        let (_, event) = client.receive(id, &out, StreamEnd::Last).expect("a response");
        assert_eq!(event, Some(H3Event::Head { end: StreamEnd::Last }));
        assert_eq!(client.section().items.len(), 3);
        server_of.receive_uni(10, &taken(client.decoder_output()), StreamEnd::More).expect("acknowledgments");
        sizes.push(out.len());
    }
    assert!(sizes[1] > 10 && sizes[2] == 7 && sizes[3] == 7, "{sizes:?}");
    server.encoder().begin(&mut Vec::new());
}

#[test]
fn a_type_may_come_in_pieces_and_be_longer_than_it_needs_to_be() {
    for bytes in [&[0x40, 0, 4, 0][..], &[0x80, 0, 0, 0, 4, 0], &[0xc0, 0, 0, 0, 0, 0, 0, 0, 4, 0]] {
        for cut in 0..=bytes.len() {
            let mut server = H3Connection::new(CONFIG);
            let (first, second) = bytes.split_at(cut);
            server.receive_uni(2, first, StreamEnd::More).expect("a piece of a control stream");
            server.receive_uni(2, second, StreamEnd::More).expect("the rest");
            assert_eq!(server.remote(), Some(&H3Settings::default()), "{cut}");
        }
    }
}

#[test]
fn memory_is_counted() {
    let mut server = server();
    let before = server.held_bytes();
    assert!(before < 8192, "{before}");
    server.receive_uni(14, &[0xc0, 0], StreamEnd::More).expect("a piece of a type");
    server
        .receive_uni(CONTROL, &[&[0x80, 0x0f, 7, 0, 0x43, 0xe8][..], &[b' '; 900]].concat(), StreamEnd::More)
        .expect("a piece");
    let uni = server.held_bytes();
    assert!((before + 900..before + 2000).contains(&uni), "{before} {uni}");
    server
        .receive(0, &[&[1, 0x48, 0][..], &[0; 2000]].concat(), StreamEnd::More)
        .expect("a piece of a section");
    let section = server.held_bytes();
    assert!((uni + 2000..uni + 6000).contains(&section), "{uni} {section}");
    for id in 0..100_u64 {
        server.receive(4 * id + 4, &[], StreamEnd::More).expect("a stream");
    }
    assert!(
        (section + 5000..section + 30_000).contains(&server.held_bytes()),
        "{section} {}",
        server.held_bytes()
    );
}

#[test]
fn our_streams_begin_with_their_types_and_settings() {
    let server = H3Connection::new(CONFIG);
    let (mut control, mut decoder, mut encoder) = (Vec::new(), Vec::new(), Vec::new());
    server.begin_control(&mut control);
    server.begin_decoder(&mut decoder);
    server.begin_encoder(&mut encoder);
    assert_eq!((&decoder[..], &encoder[..]), (&[3][..], &[2][..]));
    assert_eq!(control[..2], [0, 4]);
    let settings = H3Settings::read(&control[3..]).expect("settings");
    let expected = H3Settings { table: 4096, blocked: 2, connect_protocol: true, ..H3Settings::default() };
    assert_eq!(settings, expected);
    let none = H3Config { table: 0, blocked: 0, connect_protocol: false, ..CONFIG };
    let mut control = Vec::new();
    H3Connection::new(none).begin_control(&mut control);
    assert_eq!(control.len(), 3 + 3, "a setting without meaning is all");
}
