//! Response heads, and heads we write read back by ourselves.

use proptest::prelude::*;

use super::super::*;
use crate::header::KnownField;
use crate::{Method, Version};

fn parse(text: &[u8]) -> Result<(HeadParse, ResponseHead), BadResponse> {
    let mut head = ResponseHead::default();
    head.parse(text, &HeadLimits::default()).map(|parse| (parse, head))
}

#[test]
fn status_lines_that_are_taken() {
    for (line, version, status, reason) in [
        ("HTTP/1.1 200 OK\r\n", Version::V11, 200, "OK"),
        ("HTTP/1.0 404 Not Found\n", Version::V10, 404, "Not Found"),
        ("HTTP/1.1 299 \r\n", Version::V11, 299, ""),
        ("HTTP/1.1 204\r\n", Version::V11, 204, ""),
        ("HTTP/1.7 100\n", Version::V11, 100, ""),
        ("HTTP/1.1 999 \u{e4}\tb\r\n", Version::V11, 999, "\u{e4}\tb"),
    ] {
        let buf = [line, "\r\nrest"].concat().into_bytes();
        let Ok((HeadParse::Complete, head)) = parse(&buf) else { panic!("{line}") };
        assert_eq!((head.version, head.status, head.reason.of(&buf)), (version, status, reason.as_bytes()));
        assert_eq!(head.len, buf.len() - 4);
    }
}

#[test]
fn a_head_that_is_read_again_keeps_its_memory() {
    let (_, mut head) = parse(b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n").expect("a good head");
    let room = head.fields.capacity();
    assert!(room >= 2);
    head.clear();
    assert_eq!((head.fields.len(), head.fields.capacity(), head.status), (0, room, 0));
}

#[test]
fn heads_that_are_refused() {
    use BadResponse::*;
    for (head, bad) in [
        ("HTTP/2.0 200 OK\r\n", VersionNotSupported),
        ("HTTP/0.9 200 OK\r\n", InvalidStatusLine),
        ("HTTP/1.1  200 OK\r\n", InvalidStatusLine),
        ("HTTP/1.1 20 OK\r\n", InvalidStatusLine),
        ("HTTP/1.1 2000 OK\r\n", InvalidStatusLine),
        ("HTTP/1.1 099 OK\r\n", InvalidStatusLine),
        ("HTTP/1.1 200 O\rK\r\n", InvalidStatusLine),
        ("HTTP/1.1 200 O\0K\r\n", InvalidStatusLine),
        ("\r\nHTTP/1.1 200 OK\r\n", InvalidStatusLine),
        ("HTTP/1.1 2## OK\r\n", InvalidStatusLine),
        ("hello", InvalidStatusLine),
        ("HTTP/1.1 200 OK\r\n a: b\r\n", Field(BadRequest::ObsFold)),
        ("HTTP/1.1 200 OK\r\na : b\r\n", Field(BadRequest::SpaceBeforeColon)),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n", ContentLengthInvalid),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n", ContentLengthInvalid),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n", TransferEncoding),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", TransferEncoding),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", TransferEncoding),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", BothLengths),
    ] {
        assert_eq!(parse(head.as_bytes()).map(|_| ()), Err(bad), "{}", head.escape_debug());
        assert!(bad.message().starts_with("upstream sent "));
    }
}

#[test]
fn the_body_ends_where_rfc_9112_says() {
    use BodyLength::*;
    for (head, method, length) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", Method::Get, Bytes(5)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Head, None),
        ("HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", Method::Get, None),
        ("HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", Method::Get, None),
        ("HTTP/1.1 100 x\r\n\r\n", Method::Post, None),
        ("HTTP/1.1 200 x\r\n\r\n", Method::Connect, None),
        ("HTTP/1.1 502 x\r\nContent-Length: 0\r\n\r\n", Method::Connect, Bytes(0)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n", Method::Get, Chunked),
        ("HTTP/1.1 200 OK\r\n\r\n", Method::Get, UntilClose),
    ] {
        let Ok((HeadParse::Complete, head)) = parse(head.as_bytes()) else { panic!("{head}") };
        assert_eq!(head.body_length(method), length, "{head:?}");
    }
}

#[test]
fn what_we_write_we_read() {
    let mut out = Vec::new();
    for status in 100..=999 {
        out.clear();
        status_line(&mut out, status);
        field(&mut out, b"Server", b"weir");
        content_length(&mut out, u64::from(status));
        field(&mut out, b"Connection", b"close");
        end(&mut out);
        let Ok((HeadParse::Complete, head)) = parse(&out) else { panic!("{}", out.escape_ascii()) };
        assert_eq!(head.status, status);
        // What an interim response says of its framing means nothing (RFC 9110 section 8.6).
        let length = (!matches!(status, 100 | 102..=199)).then_some(u64::from(status));
        assert_eq!(head.content_length, length);
        assert_eq!(head.field(KnownField::Server).map(|field| field.value.of(&out)), Some(&b"weir"[..]));
        assert!(!head.keep_alive());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_split_gives_what_the_whole_gives(
        reason in "[ -~\r\n\0]{0,6}", name in "[A-Za-z_ :-]{0,12}", value in "[ -~\t\r\n]{0,20}", chunked in any::<bool>(),
    ) {
        let coding = if chunked { "Transfer-Encoding: chunked\r\n" } else { "Content-Length: 3\n" };
        let buf = format!("HTTP/1.1 200 {reason}\r\n{coding}{name}: {value}\r\n\r\n").into_bytes();
        let whole = parse(&buf);
        for length in 0..buf.len() {
            match (parse(&buf[..length]), &whole) {
                (Ok((HeadParse::Incomplete { .. }, _)), _) => {}
                (Ok((HeadParse::Complete, part)), Ok((HeadParse::Complete, head))) => {
                    prop_assert_eq!(format!("{part:?}"), format!("{head:?}"));
                }
                (Err(part), Err(bad)) => prop_assert_eq!(part, *bad),
                (part, _) => prop_assert!(false, "{part:?}, {whole:?}"),
            }
        }
    }
}

#[test]
fn a_copy_has_what_the_head_has() {
    let (_, head) =
        parse(b"HTTP/1.1 201 Made\r\nContent-Length: 7\r\nETag: \"a\"\r\n\r\n").expect("a good head");
    let (_, mut copy) = parse(b"HTTP/1.0 404 x\r\nServer: s\r\n\r\n").expect("a good head");
    copy.copy_from(&head);
    assert_eq!((copy.status, copy.content_length, copy.fields.len()), (201, Some(7), 2));
    assert_eq!(format!("{copy:?}"), format!("{head:?}"));
}
