//! Tests of [`super`].

use proptest::prelude::*;

use super::*;

fn complete(text: &str) -> Response {
    let (response, taken) =
        Response::parse(text.as_bytes(), ReceivedPart::SoFar).expect("right").expect("complete");
    assert_eq!(taken, text.len());
    response
}

fn malformed(text: &str) -> String {
    Response::parse(text.as_bytes(), ReceivedPart::All).expect_err("a server may not send this").0
}

#[test]
fn a_body_has_its_length() {
    let response = complete("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A:  b \r\nX-Empty:\r\n\r\nhi");
    assert_eq!((response.status, response.reason.as_str(), response.text().as_str()), (200, "OK", "hi"));
    assert_eq!(response.field("x-a"), Some("b"));
    assert_eq!(response.field("x-empty"), Some(""));
    assert_eq!(response.field("x-none"), None);
    assert!(response.keeps_alive());
}

#[test]
fn a_reason_may_be_empty_but_its_space_may_not() {
    assert_eq!(complete("HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n").reason, "");
    assert!(malformed("HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n").contains("no space"));
}

#[test]
fn chunks_and_trailers() {
    let response = complete(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n",
    );
    assert_eq!(response.text(), "hi0123456789");
    assert_eq!(response.chunks, [2, 10]);
    assert_eq!(response.trailers, [("X-T".to_owned(), "1".to_owned())]);
}

#[test]
fn what_has_no_body_ends_with_its_head() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let (response, taken) = Response::parse_to(RequestKind::Head, head.as_bytes(), ReceivedPart::SoFar)
        .expect("right")
        .expect("complete");
    assert_eq!((response.body.len(), taken), (0, head.len()));
    for text in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    ] {
        assert!(complete(text).body.is_empty());
    }
}

#[test]
fn without_a_length_the_body_goes_to_the_end() {
    let text = b"HTTP/1.0 200 OK\r\n\r\nall of it";
    assert_eq!(Response::parse(text, ReceivedPart::SoFar), Ok(None));
    let (response, _) = Response::parse(text, ReceivedPart::All).expect("right").expect("complete");
    assert_eq!(response.text(), "all of it");
    assert!(!response.keeps_alive());
}

#[test]
fn only_its_own_bytes_are_taken() {
    let two =
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nb";
    let (first, taken) = Response::parse(two, ReceivedPart::SoFar).expect("right").expect("complete");
    let (second, rest) =
        Response::parse(&two[taken..], ReceivedPart::SoFar).expect("right").expect("complete");
    assert_eq!((first.text(), second.status, taken + rest), ("a".to_owned(), 404, two.len()));
}

#[test]
fn what_a_server_may_not_send() {
    for (text, why) in [
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n\r\n", "bare CR"),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "field name"),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "no colon"),
        ("HTTP/1.1 20x OK\r\n\r\n", "status line"),
        ("HTTP/2 200 OK\r\n\r\n", "status line"),
        ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", "Content-Length"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", "more than one"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "more than one"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "Transfer-Encoding"),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "204"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n", "chunk size"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi!\r\n0\r\n\r\n", "longer"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", "ended"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", "ended"),
        ("HTTP/1.1 200 OK\r\n", "ended"),
    ] {
        assert!(malformed(text).contains(why), "{text:?}: {}", malformed(text));
    }
}

proptest! {
    /// Cut anywhere, a response is incomplete until its last byte, and never anything else.
    #[test]
    fn a_part_of_a_response_is_no_response(cut in 0_usize..107) {
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\nT: 1\r\n\r\n";
        let cut = cut.min(text.len() - 1);
        prop_assert_eq!(Response::parse(&text[..cut], ReceivedPart::SoFar), Ok(None));
        prop_assert!(Response::parse(&text[..cut], ReceivedPart::All).is_err());
    }

    #[test]
    fn any_bytes_are_parsed_without_a_crash(bytes in proptest::collection::vec(any::<u8>(), 0..80), head: bool, end: bool) {
        let with_start = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat();
        for bytes in [&bytes, &with_start] {
            let kind = if head { RequestKind::Head } else { RequestKind::Other };
            if let Ok(Some((_, taken))) = Response::parse_to(kind, bytes, ReceivedPart::of(end)) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
