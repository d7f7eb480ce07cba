//! Request heads: the rules of RFC 9112 and nginx, one line each.

use proptest::prelude::*;

use super::super::*;
use super::{complete, facts, parse};
use crate::header::{Field, KnownField};
use crate::{Method, Version};

/// `GET / HTTP/1.1`, `Host`, then `fields`, then the empty line.
fn with_fields(fields: &str) -> Vec<u8> {
    ["GET / HTTP/1.1\r\nHost: a\r\n", fields, "\r\n"].concat().into_bytes()
}

#[test]
fn request_lines_that_are_taken() {
    for (line, method, target, version) in [
        ("GET / HTTP/1.1\r\n", Method::Get, "/", Version::V11),
        ("GET / HTTP/1.0\r\n", Method::Get, "/", Version::V10),
        ("GET / HTTP/1.00\r\n", Method::Get, "/", Version::V10),
        ("GET / HTTP/1.2\r\n", Method::Get, "/", Version::V11),
        ("GET / HTTP/1.999\r\n", Method::Get, "/", Version::V11),
        ("GET / HTTP/1.1\n", Method::Get, "/", Version::V11),
        ("GET   /a?b=c&d#e   HTTP/1.1  \r\n", Method::Get, "/a?b=c&d#e", Version::V11),
        ("\r\n\n\r\r\nPOST /x HTTP/1.1\r\n", Method::Post, "/x", Version::V11),
        ("M-SEARCH /x HTTP/1.1\r\n", Method::Other, "/x", Version::V11),
        ("_ /x HTTP/1.1\r\n", Method::Other, "/x", Version::V11),
        ("OPTIONS * HTTP/1.1\r\n", Method::Options, "*", Version::V11),
        ("CONNECT a.b:443 HTTP/1.1\r\n", Method::Connect, "a.b:443", Version::V11),
        ("CONNECT [::1]:443 HTTP/1.1\r\n", Method::Connect, "[::1]:443", Version::V11),
        ("GET /%00%zz//../\u{e4} HTTP/1.1\r\n", Method::Get, "/%00%zz//../\u{e4}", Version::V11),
    ] {
        let buf = [line, "\r\n"].concat().into_bytes();
        let head = complete(&buf);
        assert_eq!((head.method, head.version), (method, version), "{line}");
        assert_eq!(head.target.of(&buf), target.as_bytes(), "{line}");
        assert_eq!(head.len, buf.len());
        assert_eq!(head.absolute, None);
        assert_eq!(head.line.of(&buf), line.trim_matches(['\r', '\n']).as_bytes());
    }
}

#[test]
fn a_control_byte_in_a_value_is_found_wherever_the_next_lines_end() {
    for padding in 0..200 {
        for (byte, bad) in [('\r', BadRequest::BareCr), ('\0', BadRequest::InvalidValue)] {
            let head = with_fields(&format!("X: a{byte}b\r\nY: {}\r\nZ: z\r\n", "y".repeat(padding)));
            assert_eq!(parse(&head).map(|_| ()), Err(bad), "{padding}");
        }
    }
}

#[test]
fn http09_is_a_line_alone_and_only_get() {
    for line in ["GET /\r\n", "GET /\n", "GET / \r\n", "GET /a?b\n"] {
        let buf = [line, "next"].concat().into_bytes();
        let head = complete(&buf);
        assert_eq!((head.version, head.len), (Version::V09, line.len()));
        assert!(head.protocol.is_empty() && !head.keep_alive());
    }
    assert_eq!(parse(b"POST /\r\n").map(|_| ()), Err(BadRequest::InvalidMethod09));
}

#[test]
fn absolute_targets_are_taken_apart() {
    for (target, scheme, authority, path) in [
        ("http://a/", "http", "a", "/"),
        ("HTTP://A.b-c:80/d?e", "HTTP", "A.b-c:80", "/d?e"),
        ("http://a", "http", "a", ""),
        ("http://a:", "http", "a:", ""),
        ("http://a?x=y", "http", "a", "?x=y"),
        ("https://[2001:db8::1]:8443/x", "https", "[2001:db8::1]:8443", "/x"),
        ("svn+ssh://a/b", "svn+ssh", "a", "/b"),
    ] {
        let buf = format!("GET {target} HTTP/1.1\r\nHost: z\r\n\r\n").into_bytes();
        let head = complete(&buf);
        let absolute = head.absolute.expect("an absolute target");
        assert_eq!(head.target.of(&buf), target.as_bytes());
        assert_eq!(absolute.scheme.of(&buf), scheme.as_bytes());
        assert_eq!(absolute.authority.of(&buf), authority.as_bytes());
        assert_eq!(absolute.path.of(&buf), path.as_bytes());
        assert_eq!(head.path(), absolute.path);
    }
}

#[test]
fn request_lines_that_are_refused() {
    use BadRequest::*;
    for (line, bad, status) in [
        ("get / HTTP/1.1\r\n", InvalidMethod, 400),
        ("Get / HTTP/1.1\r\n", InvalidMethod, 400),
        (" GET / HTTP/1.1\r\n", InvalidMethod, 400),
        ("GET\t/ HTTP/1.1\r\n", InvalidMethod, 400),
        ("GET\r\n", InvalidMethod, 400),
        ("\x16\x03\x01", InvalidMethod, 400),
        ("PRI * HTTP/2.0\r\n", InvalidTarget, 400),
        ("GET * HTTP/1.1\r\n", InvalidTarget, 400),
        ("OPTIONS *x HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET \\x HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET ?x HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET /a\tb HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET /a\0b HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET /a\x7f HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET /a b HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET /a\rb HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET http:/a HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET http:///a HTTP/1.1\r\n", InvalidHost, 400),
        ("GET http://u@a/ HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET http://a:b/ HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET http://[::1/ HTTP/1.1\r\n", InvalidTarget, 400),
        ("GET http://a\r\n", InvalidTarget, 400),
        ("GET a HTTP/1.1\r\n", InvalidTarget, 400),
        ("CONNECT a HTTP/1.1\r\n", InvalidTarget, 400),
        ("CONNECT a: HTTP/1.1\r\n", InvalidTarget, 400),
        ("CONNECT /a HTTP/1.1\r\n", InvalidHost, 400),
        ("CONNECT a:1/ HTTP/1.1\r\n", InvalidTarget, 400),
        ("CONNECT a:1\r\n", InvalidTarget, 400),
        ("GET / http/1.1\r\n", InvalidTarget, 400),
        ("GET / HTTP/0.9\r\n", InvalidVersion, 400),
        ("GET / HTTP/1\r\n", InvalidVersion, 400),
        ("GET / HTTP/1.\r\n", InvalidVersion, 400),
        ("GET / HTTP/1.1000\r\n", InvalidVersion, 400),
        ("GET / HTTP/1.1x\r\n", InvalidVersion, 400),
        ("GET / HTTP/1.1 x\r\n", InvalidVersion, 400),
        ("GET / HTTP/1.1\rx\n", InvalidVersion, 400),
        ("GET / HTTPS/1.1\r\n", InvalidVersion, 400),
        ("GET / HTTP/2.0\r\n", VersionNotSupported, 505),
        ("GET / HTTP/10.1\r\n", VersionNotSupported, 505),
        ("GET / HTTP/9\r\n", VersionNotSupported, 505),
    ] {
        assert_eq!(parse(line.as_bytes()).map(|_| ()), Err(bad), "{}", line.escape_debug());
        assert_eq!((bad.status(), bad.action()), (status, "reading client request line"));
    }
}

#[test]
fn a_refused_line_is_kept_for_the_access_log() {
    let (mut head, buf) = (RequestHead::default(), b"\r\nGET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(head.parse(buf, &HeadLimits::default()), Err(BadRequest::InvalidTarget));
    assert_eq!(head.line.of(buf), b"GET /a\0b HTTP/1.1");
    assert_eq!(head.offending.of(buf), b"GET /a");
}

#[test]
fn fields_that_are_refused() {
    use BadRequest::*;
    for (fields, bad, status) in [
        (" folded: x\r\n", ObsFold, 400),
        ("A: b\r\n c\r\n", ObsFold, 400),
        ("A: b\r\n\tc\r\n", ObsFold, 400),
        ("A : b\r\n", SpaceBeforeColon, 400),
        ("A\t: b\r\n", SpaceBeforeColon, 400),
        ("Content-Length : 1\r\n", SpaceBeforeColon, 400),
        (": b\r\n", InvalidName, 400),
        ("A\0: b\r\n", InvalidName, 400),
        ("Connection\0: b\r\n", InvalidName, 400),
        ("Content\rLength: 1\r\n", MissingColon, 400),
        ("A\x7f: b\r\n", InvalidName, 400),
        ("A\r\n", MissingColon, 400),
        ("A\nB: c\r\n", MissingColon, 400),
        ("A: b\0c\r\n", InvalidValue, 400),
        ("A: b\rc\r\n", BareCr, 400),
        ("A: b\r\r\n", BareCr, 400),
        ("A: b\r\n\rX: y\r\n", BareCr, 400),
        ("Host: a\r\n", RepeatedHost, 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", ContentLengthRepeated, 400),
        ("Content-Length: 1, 1\r\n", ContentLengthInvalid, 400),
        ("Content-Length: +1\r\n", ContentLengthInvalid, 400),
        ("Content-Length: -1\r\n", ContentLengthInvalid, 400),
        ("Content-Length: 0x1\r\n", ContentLengthInvalid, 400),
        ("Content-Length: 1 2\r\n", ContentLengthInvalid, 400),
        ("Content-Length:\r\n", ContentLengthInvalid, 400),
        ("Content-Length: 9223372036854775808\r\n", ContentLengthInvalid, 400),
        ("Content-Length: 18446744073709551617\r\n", ContentLengthInvalid, 400),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", BothLengths, 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", BothLengths, 400),
        ("Transfer-Encoding: gzip\r\n", TransferEncodingUnknown, 501),
        ("Transfer-Encoding: gzip, chunked\r\n", TransferEncodingUnknown, 501),
        ("Transfer-Encoding: identity\r\n", TransferEncodingUnknown, 501),
        ("Transfer-Encoding:\r\n", TransferEncodingUnknown, 501),
        ("Transfer-Encoding: \x0bchunked\r\n", TransferEncodingUnknown, 501),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            RepeatedField(KnownField::TransferEncoding),
            400,
        ),
        ("If-Range: a\r\nif-range: a\r\n", RepeatedField(KnownField::IfRange), 400),
        ("Expect: 100-continue\r\nExpect: 100-continue\r\n", RepeatedField(KnownField::Expect), 400),
    ] {
        assert_eq!(parse(&with_fields(fields)).map(|_| ()), Err(bad), "{}", fields.escape_debug());
        assert_eq!((bad.status(), bad.action()), (status, "reading client request headers"));
    }
    let http10 = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse(http10).map(|_| ()), Err(TransferEncodingHttp10));
}

#[test]
fn names_are_classified_and_values_trimmed() {
    let buf =
        with_fields("X_y:1\nX!: 2\r\n\u{fc}:3\r\nACCEPT:  \t a\tb \t \r\nEmpty:\r\nBlank: \t \r\nX-Z:c\r\n");
    let head = complete(&buf);
    let seen: Vec<_> = head
        .fields
        .iter()
        .map(|field| (field.known, field.valid, field.underscore, field.name.of(&buf), field.value.of(&buf)))
        .collect();
    assert_eq!(
        seen,
        [
            (KnownField::Host, true, false, &b"Host"[..], &b"a"[..]),
            (KnownField::Other, false, true, b"X_y", b"1"),
            (KnownField::Other, false, false, b"X!", b"2"),
            (KnownField::Other, false, false, "\u{fc}".as_bytes(), b"3"),
            (KnownField::Accept, true, false, b"ACCEPT", b"a\tb"),
            (KnownField::Other, true, false, b"Empty", b""),
            (KnownField::Other, true, false, b"Blank", b""),
            (KnownField::Other, true, false, b"X-Z", b"c"),
        ]
    );
    assert_eq!((head.host, head.host_count), (Some(0), 1));
    assert_eq!(head.field(KnownField::Accept).map(|field| field.value.of(&buf)), Some(&b"a\tb"[..]));
    assert_eq!(head.field(KnownField::Cookie), None);
}

#[test]
fn framing_and_connection_facts() {
    let head =
        complete(&with_fields("Content-Length: 012\r\nConnection: TE, Upgrade\r\nConnection: close\r\n"));
    assert_eq!((head.content_length, head.chunked, head.has_body()), (Some(12), false, true));
    assert_eq!(head.connection, ConnectionTokens { close: true, keep_alive: false, upgrade: true, te: true });
    assert!(!head.keep_alive());

    let head = complete(&with_fields("Transfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n"));
    assert!(head.chunked && head.expect_continue && !head.expect_other && head.keep_alive());
    assert!(complete(&with_fields("Expect: cake\r\n")).expect_other);
    assert!(!complete(&with_fields("Content-Length: 0\r\n")).has_body());

    for (head, keeps) in [
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nConnection: closed\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", false),
    ] {
        let head = complete(head.as_bytes());
        assert_eq!((head.keep_alive(), head.expect_continue), (keeps, false));
    }
}

#[test]
fn only_http11_needs_a_host() {
    assert_eq!(complete(b"GET / HTTP/1.0\r\n\r\n").require_host(), Ok(()));
    assert_eq!(complete(b"GET / HTTP/1.1\r\nHost:\r\n\r\n").require_host(), Ok(()));
    for head in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"GET http://a/ HTTP/1.1\r\n\r\n"] {
        assert_eq!(complete(head).require_host(), Err(BadRequest::MissingHost));
    }
}

/// What is left out later does not count, wherever it is, in one piece or byte by byte.
#[test]
fn fields_that_are_left_out_do_not_count() {
    use crate::header::IgnoredFields::{Invalid, InvalidOrUnderscored, None as Counted};
    let lines = |names: &[&str]| names.iter().map(|name| format!("{name}: x\r\n")).collect::<String>();
    for (names, ignored, whole) in [
        (&["A", "B_B", "C", "D", "E E"][..], Counted, false),
        (&["A", "B_B", "C", "D"], Counted, false),
        (&["A", "B_B", "C"], Counted, true),
        (&["A", "B_B", "C", "D"], Invalid, false),
        (&["A", "B_B", "C", "D"], InvalidOrUnderscored, true),
        (&["A", "B+B", "C+C", "D", "E", "F+"], Invalid, true),
        (&["A+", "B+", "C+", "D+", "E", "F", "G", "H+"], Invalid, true),
        (&["A+", "B+", "C+", "D+", "E", "F", "G", "H+", "I"], Invalid, false),
    ] {
        let limits = HeadLimits { max_fields: 3, ignored, ..HeadLimits::default() };
        let text = format!("GET / HTTP/1.1\r\n{}\r\n", lines(names));
        let mut head = RequestHead::default();
        let wanted = if whole { Ok(HeadParse::Complete) } else { Err(BadRequest::TooManyFields) };
        assert_eq!(head.parse(text.as_bytes(), &limits), wanted, "{names:?} {ignored:?}");
        let mut head = RequestHead::default();
        let mut pieces = (1..=text.len()).map(|end| head.parse(&text.as_bytes()[..end], &limits));
        let last = pieces.find(|read| !matches!(read, Ok(HeadParse::Incomplete { .. })));
        assert_eq!(last, Some(wanted), "{names:?} {ignored:?} in pieces");
    }
}

#[test]
fn limits_do_not_depend_on_how_the_bytes_arrive() {
    let limits = HeadLimits { max_line: 20, max_head: 60, max_fields: 3, ..HeadLimits::default() };
    let mut head = RequestHead::default();
    let mut parse = |text: &str| head.parse(text.as_bytes(), &limits);
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(length - 16));
    assert_eq!(parse(&line(20)), Ok(HeadParse::Incomplete { in_line: false }));
    assert_eq!(parse(&line(21)), Err(BadRequest::LineTooLong));
    assert_eq!(parse(&line(21)[..19]), Ok(HeadParse::Incomplete { in_line: true }));
    assert_eq!(parse(&line(21)[..20]), Err(BadRequest::LineTooLong));
    let start = line(18);
    let head = |rest: &str| [&start, rest].concat();
    assert_eq!(
        parse(&head(&format!("A: {}\r\n", "b".repeat(15)))),
        Ok(HeadParse::Incomplete { in_line: false })
    );
    assert_eq!(parse(&head(&format!("A: {}\r\n", "b".repeat(16)))), Err(BadRequest::FieldTooLong));
    assert_eq!(parse(&head(&format!("A: {}", "b".repeat(17)))), Err(BadRequest::FieldTooLong));
    assert_eq!(parse(&head("A: b\nB: c\nC: d\n\n")), Ok(HeadParse::Complete));
    assert_eq!(parse(&head("A: b\nB: c\nC: d\n\r")), Ok(HeadParse::Incomplete { in_line: false }));
    assert_eq!(parse(&head("A: b\nB: c\nC: d\nD: e\n\n")), Err(BadRequest::TooManyFields));
    let whole = |length: usize| head(&format!("A: bbbbbbbbbbbb\r\nB: {}\r\n\r\n", "c".repeat(length - 42)));
    assert_eq!(whole(57).len(), 57);
    let max_head = |max_head| HeadLimits { max_head, ..limits };
    let mut head = RequestHead::default();
    assert_eq!(head.parse(whole(57).as_bytes(), &max_head(57)), Ok(HeadParse::Complete));
    assert_eq!(head.parse(whole(57).as_bytes(), &max_head(56)), Err(BadRequest::HeadTooLarge));
    assert_eq!(head.parse(["\r\n", &whole(57)].concat().as_bytes(), &max_head(57)), Ok(HeadParse::Complete));
    assert_eq!((BadRequest::LineTooLong.status(), BadRequest::HeadTooLarge.status()), (414, 494));
}

#[test]
fn pipelined_heads_end_where_the_next_begins() {
    let (one, two) = (with_fields("Accept: x\r\n"), b"\r\nHEAD /2 HTTP/1.1\r\n\r\n");
    let both = [&one[..], two].concat();
    let mut head = complete(&both);
    assert_eq!(head.len, one.len());
    assert_eq!(head.parse(&both[head.len..], &HeadLimits::default()), Ok(HeadParse::Complete));
    assert_eq!((head.method, head.leading_crlf, head.fields.len()), (Method::Head, 2, 0));
}

#[test]
fn may_be_complete_never_misses_the_end() {
    for ending in ["\r\n\r\n", "\n\n", "\n\r\n", "\r\n\n"] {
        for filler in [10, 5000] {
            let buf = format!("GET / HTTP/1.1\r\nA: {}\r\nB: c{ending}", "b".repeat(filler)).into_bytes();
            for from in 1..buf.len() {
                assert!(may_be_complete(&buf, from), "{from} of {}", buf.len());
            }
        }
    }
    assert!(may_be_complete(b"GET /\n", 3), "HTTP/0.9 ends with its line");
    assert!(may_be_complete(b"GET / HTTP/1.1\r\nX : y", 22), "what is wrong is found however it was cut");
    assert!(!may_be_complete(format!("GET /{}", "a".repeat(5000)).as_bytes(), 5000));
    assert!(may_be_complete(b"", 0) && may_be_complete(b"x", 7));
}

#[test]
fn a_head_byte_by_byte_is_parsed_a_bounded_number_of_times() {
    let buf = with_fields(&"Name: value\r\n".repeat(900));
    let parses = (4097..buf.len()).filter(|&length| may_be_complete(&buf[..length], length - 1)).count();
    assert!(parses < 10, "{parses}");
}

/// Pieces that make good and bad heads likely.
fn head_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"GET / HTTP/1.1\r\n"[..],
        b"POST http://a:1/b HTTP/1.0\r\n",
        b"GET /\n",
        b"GET ",
        b"/x",
        b" HTTP/1.1\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\n",
        b"X_y",
        b"A b",
        b"Cookie",
        b": ",
        b":",
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\0",
        b"\t",
        b" ",
        b"\xff",
        b"0123456789abcdefghijklmnopqrstuvwxyz",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// A prefix is incomplete, or gives what the whole gives, and never less room than the whole takes.
    #[test]
    fn every_split_gives_what_the_whole_gives(buf in head_bytes()) {
        let whole = parse(&buf);
        for length in 0..buf.len() {
            match (parse(&buf[..length]), &whole) {
                (Ok((HeadParse::Incomplete { .. }, _)), _) => {}
                (Ok((HeadParse::Complete, part)), Ok((HeadParse::Complete, head))) => {
                    prop_assert!(length >= head.len);
                    prop_assert_eq!(facts(&part), facts(head));
                }
                (Err(part), Err(bad)) => prop_assert_eq!(part, *bad),
                (part, _) => prop_assert!(false, "{}: {part:?}, {whole:?}", buf[..length].escape_ascii()),
            }
        }
    }

    #[test]
    fn spans_lie_in_the_head_and_in_order(buf in head_bytes()) {
        if let Ok((HeadParse::Complete, head)) = parse(&buf) {
            prop_assert!(head.len <= buf.len());
            let mut last = head.line.end;
            for field in &head.fields {
                prop_assert!(last <= field.name.start && field.name.start < field.name.end);
                prop_assert!(field.name.end < field.value.start && field.value.start <= field.value.end);
                last = field.value.end;
            }
            prop_assert!(last as usize <= head.len);
        }
    }
}

#[test]
fn a_head_that_is_changed_knows_its_fields() {
    let mut head = complete(b"GET / HTTP/1.1\r\nAccept: a\r\nHost: x\r\n\r\n");
    let names = |head: &RequestHead| head.fields.iter().map(|field| field.known).collect::<Vec<_>>();
    let has = |head: &RequestHead, known: KnownField| head.may_have(KnownFieldSet::of(&[known]));
    let all = [KnownField::Accept, KnownField::Host, KnownField::Range, KnownField::Upgrade];
    assert_eq!(all.map(|known| has(&head, known)), [true, true, false, false]);
    assert!(head.may_have(KnownFieldSet::of(&all)) && !head.may_have(KnownFieldSet::of(&all[2..])));
    let host = head.fields[1];
    head.retain_fields(|field| field.known != KnownField::Host);
    assert_eq!((names(&head), head.require_host().is_err()), (vec![KnownField::Accept], true));
    head.push_field(Field { known: KnownField::Upgrade, ..host });
    assert!(has(&head, KnownField::Upgrade) && head.require_host().is_err());
    head.push_field(host);
    assert_eq!(names(&head), [KnownField::Accept, KnownField::Upgrade, KnownField::Host]);
    assert!(head.require_host().is_ok());
}

#[test]
fn a_long_head_is_read_again_where_it_may_have_ended() {
    let head = |bytes: usize, end: &str| [&vec![b'a'; bytes][..], end.as_bytes()].concat();
    for (buf, from, expected) in [
        (head(8191, ""), 5000, false),
        (head(8192, ""), 5000, true),
        (head(6000, "\n"), 6000, true),
        ([&b"GET\n"[..], &head(6000, "\r\n")].concat(), 6004, false),
        ([&b"GET\n"[..], &head(6000, "\r\n\r\n")].concat(), 6004, true),
        (head(4096, ""), 4000, true),
        (head(4097, ""), 4090, true),
        (head(4098, ""), 4097, false),
    ] {
        assert_eq!(may_be_complete(&buf, from), expected, "{} after {from}", buf.len());
    }
}
