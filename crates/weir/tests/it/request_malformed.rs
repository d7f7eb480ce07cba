//! Requests that are wrong: each has nginx's status and ends its connection, so that nothing after it is taken for
//! a request.

use crate::support;

use weir_test::{ReceivedPart, Response, Server, both_drivers};

const CONF: &str = "http { server { listen 127.0.0.1:%%PORT%%; root html;
    location /return { return 200 \"ok\\n\"; }
    location /small { client_max_body_size 10; return 200 \"ok\\n\"; } } }";

/// Sends `request` with another one after it, and checks that only the first gets a response, with `status`.
#[track_caller]
fn refused(server: &Server, name: &str, status: u16, request: &[u8]) -> Response {
    let answered = server.raw([request, b"GET /return HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    let text = String::from_utf8_lossy(&answered);
    let parsed = Response::parse(&answered, ReceivedPart::All);
    let Ok(Some((response, taken))) = parsed else { panic!("{name}: {parsed:?} {text:?}") };
    assert_eq!(response.status, status, "{name}: {text:?}");
    assert!(!response.keeps_alive(), "{name}: {text:?}");
    assert_eq!(taken, answered.len(), "{name}: what is behind was answered: {text:?}");
    response
}

fn all_refused(status: u16, table: &[(&str, &str)]) {
    let server = Server::builder(CONF).file("html/a.txt", "file\n").start();
    for (name, request) in table {
        refused(&server, name, status, request.as_bytes());
    }
    assert_eq!(server.get("/return").text(), "ok\n", "others are served");
    let lines = server.access_log_lines(table.len() + 1);
    assert_eq!(lines.len(), table.len() + 1, "one line each: {lines:?}");
    let logged = format!("\" {status} ");
    assert!(lines[..table.len()].iter().all(|line| line.contains(&logged)), "{lines:?}");
}

/// A `Transfer-Encoding: chunked` upload with this body.
fn chunked(body: &str) -> String {
    format!("POST /return HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

both_drivers! {
    /// RFC 9112 2.2, 3, 5.1, 5.2; RFC 9110 5.5.
    fn lines_and_fields_with_wrong_bytes_get_400(driver) {
        all_refused(400, &[
            ("bare CR in a value", "GET /return HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"),
            ("bare CR in the target", "GET /ret\rurn HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("bare CR behind the line", "GET /return HTTP/1.1\rHost: a\r\n\r\n"),
            ("bare CR in a name", "GET /return HTTP/1.1\r\nHost: a\r\nX\r: b\r\n\r\n"),
            ("folded by a space", "GET /return HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"),
            ("folded by a tab", "GET /return HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n"),
            ("space before the first field", "GET /return HTTP/1.1\r\n Host: a\r\n\r\n"),
            ("space before the colon", "GET /return HTTP/1.1\r\nHost : a\r\n\r\n"),
            ("tab before the colon", "GET /return HTTP/1.1\r\nHost: a\r\nX\t: a\r\n\r\n"),
            ("no name", "GET /return HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n"),
            ("NUL in a value", "GET /return HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
            ("NUL in a name", "GET /return HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n"),
            ("NUL in the target", "GET /ret\0urn HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("control byte in the target", "GET /ret\x01urn HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("DEL in the target", "GET /ret\x7furn HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("control byte in a name", "GET /return HTTP/1.1\r\nHost: a\r\nX\x01: b\r\n\r\n"),
            ("space in the target", "GET /ret urn HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("method in small letters", "get /return HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("method that is no word", "G@T /return HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("target without slash", "GET return HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("version without minor", "GET /return HTTP/1\r\nHost: a\r\n\r\n"),
            ("version in small letters", "GET /return http/1.1\r\nHost: a\r\n\r\n"),
            ("version with more", "GET /return HTTP/1.1x\r\nHost: a\r\n\r\n"),
            ("the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03aaaaaaaaaaaa\r\n\r\n"),
        ]);
    }

    /// RFC 9112 6.1, 6.3: a request whose end others may see elsewhere is not served.
    fn lengths_that_can_be_read_in_two_ways_get_400(driver) {
        let post = "POST /return HTTP/1.1\r\nHost: a\r\n";
        let with = |name, fields: &str| (name, format!("{post}{fields}\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
        let table = [
            with("both", "Content-Length: 3\r\nTransfer-Encoding: chunked"),
            with("both, the other way", "Transfer-Encoding: chunked\r\nContent-Length: 3"),
            with("the same twice", "Content-Length: 3\r\nContent-Length: 3"),
            with("two", "Content-Length: 3\r\nContent-Length: 4"),
            with("a list", "Content-Length: 3, 3"),
            with("plus", "Content-Length: +3"),
            with("minus", "Content-Length: -3"),
            with("none", "Content-Length: "),
            with("letters", "Content-Length: 3x"),
            with("hexadecimal", "Content-Length: 0x3"),
            with("more than 64 bits", "Content-Length: 99999999999999999999"),
            with("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            ("chunked in HTTP/1.0", "POST /return HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()),
        ];
        all_refused(400, &table.each_ref().map(|(name, text)| (*name, text.as_str())));
    }

    fn codings_that_are_not_known_get_501(driver) {
        let table = ["gzip", "gzip, chunked", "identity"]
            .map(|coding| (coding, format!("POST /return HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n")));
        all_refused(501, &table.each_ref().map(|(name, text)| (*name, text.as_str())));
    }

    /// RFC 9112 7.1, also when nothing reads the body: what comes with the head is looked at before the response.
    fn wrong_chunks_get_400(driver) {
        let table = [
            ("LF behind the size", "3\nabc\r\n0\r\n\r\n"),
            ("LF behind the data", "3\r\nabc\n0\r\n\r\n"),
            ("LF at the end", "3\r\nabc\r\n0\n\n"),
            ("LF at the very end", "3\r\nabc\r\n0\r\n\n"),
            ("LF behind a trailer", "3\r\nabc\r\n0\r\nA: b\n\r\n"),
            ("a letter", "x\r\nabc\r\n0\r\n\r\n"),
            ("no size", "\r\nabc\r\n0\r\n\r\n"),
            ("minus", "-1\r\nabc\r\n0\r\n\r\n"),
            ("plus", "+3\r\nabc\r\n0\r\n\r\n"),
            ("0x", "0x3\r\nabc\r\n0\r\n\r\n"),
            ("more than 64 bits", "fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
            ("longer than its size", "3\r\nabcd\r\n0\r\n\r\n"),
            ("space before the size", " 3\r\nabc\r\n0\r\n\r\n"),
        ]
        .map(|(name, body)| (name, chunked(body)));
        all_refused(400, &table.each_ref().map(|(name, text)| (*name, text.as_str())));
    }

    /// nginx's rules for targets and hosts.
    fn targets_and_hosts_that_mean_nothing_get_400(driver) {
        let target = |name, target: &str| (name, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let host = |name, host: &str| (name, format!("GET /return HTTP/1.1\r\n{host}\r\n\r\n"));
        let table = [
            target("above the root", "/../a"),
            target("above the root, later", "/a/../../a"),
            target("above the root, encoded", "/%2e%2e/a"),
            target("encoded NUL", "/a%00"),
            target("no digits", "/a%zz"),
            target("one digit", "/a%4"),
            target("a percent sign", "/%"),
            host("slash", "Host: a/b"),
            host("space", "Host: a b"),
            host("two dots", "Host: a..b"),
            host("empty", "Host:"),
            host("none", "X: y"),
            host("two", "Host: a\r\nHost: b"),
            host("the same twice", "Host: a\r\nHost: a"),
            host("user", "Host: u@a"),
            host("port of letters", "Host: a:x"),
            host("open bracket", "Host: [::1"),
        ];
        all_refused(400, &table.each_ref().map(|(name, text)| (*name, text.as_str())));
    }

    fn versions_above_one_get_505_and_some_methods_405(driver) {
        all_refused(505, &[
            ("2.0", "GET /return HTTP/2.0\r\nHost: a\r\n\r\n"),
            ("9.9", "GET /return HTTP/9.9\r\nHost: a\r\n\r\n"),
        ]);
        all_refused(405, &[
            ("CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("TRACE", "TRACE /return HTTP/1.1\r\nHost: a\r\n\r\n"),
        ]);
    }

    /// `large_client_header_buffers 4 8k` is the default.
    fn long_lines_get_414_and_big_heads_400(driver) {
        let server = Server::start(CONF);
        let long = "a".repeat(9000);
        let line = format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = refused(&server, "long line", 414, line.as_bytes());
        assert!(response.text().contains("<h1>414 Request-URI Too Large</h1>"), "{response}");
        let field = format!("GET /return HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n");
        let many: String = (0..12).map(|number| format!("X{number}: {}\r\n", &long[..4000])).collect();
        let many = format!("GET /return HTTP/1.1\r\nHost: a\r\n{many}\r\n");
        for (name, request) in [("long field", field), ("many fields", many)] {
            let response = refused(&server, name, 400, request.as_bytes());
            let text = response.text();
            assert!(text.contains("<center>Request Header Or Cookie Too Large</center>"), "{response}");
        }
        let lines = server.access_log_lines(3);
        assert_eq!(lines.iter().filter(|line| line.contains("\" 400 ")).count(), 2, "{lines:?}");
    }

    /// A head that arrives byte by byte is judged like one that comes at once.
    fn pieces_change_nothing(driver) {
        let server = Server::start(CONF);
        let mut client = server.client();
        for byte in b"GET /return HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n" {
            client.send([*byte]);
        }
        assert_eq!(client.response().text(), "ok\n");
        for byte in b"POST /return HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: u\r\n\r\n" {
            client.send([*byte]);
        }
        assert_eq!(client.response().text(), "ok\n");
        assert_eq!(client.get("/return").text(), "ok\n", "nothing of the body is left");
        let bad = b"GET /return HTTP/1.1\r\nHost: a\r\nX : y";
        for byte in bad {
            if client.try_send([*byte]).is_err() {
                break;
            }
        }
        assert_eq!(client.response().status, 400);
    }

    /// What looks odd and is right.
    fn odd_requests_that_are_served(driver) {
        let server = Server::builder(CONF).file("html/a.txt", "file\n").start();
        for request in [
            "GET /return HTTP/1.1\nHost: a\n\n",
            "\r\n\r\nGET /return HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /return HTTP/1.2\r\nHost: a\r\n\r\n",
            "GET /return HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "GET http://a/return HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET //x/..//return HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /%72eturn HTTP/1.1\r\nHost: a\r\n\r\n",
            "FOO /return HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /return HTTP/1.1\r\nHost: A.\r\n\r\n",
            "GET /return HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
            "GET /return HTTP/1.1\r\nHost: a\r\nX_y: z\r\n\r\n",
            "GET /return HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n",
            "POST /return HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n3;a=b\r\nabc\r\n000\r\nT: u\r\n\r\n",
            "POST /return HTTP/1.1\r\nHost: a\r\nContent-Length: 0003\r\n\r\nabc",
        ] {
            let mut client = server.client();
            let response = client.request(request);
            assert_eq!((response.status, response.text().as_str()), (200, "ok\n"), "{request:?} {response}");
            support::assert_serves(&mut client, "/a.txt", "file\n");
        }
        assert_eq!(server.raw("GET /return\r\n"), b"ok\n", "HTTP/0.9");
    }

    /// RFC 9110 section 9.3.7: the server itself is asked, and lives. nginx says 400.
    fn options_for_the_server_get_200(driver) {
        let server = Server::start(CONF);
        let mut client = server.client();
        for _ in 0..2 {
            let response = client.request("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!((response.status, response.field("Content-Length"), response.keeps_alive()), (200, Some("0"), true));
        }
        support::assert_serves(&mut client, "/return", "ok\n");
        // A body is not taken for the next request.
        let text = server.raw("OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\nGET /return HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Connection: close") && !text.contains("ok\n"), "{text}");
        for wrong in ["GET * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *x HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n"] {
            assert_eq!(server.client().request(wrong).status, 400, "{wrong}");
        }
    }

    /// Random bytes and random cuts of a request: a response or none, never a lost connection that hangs.
    fn noise_is_answered_or_closed(driver) {
        let server = Server::start(CONF);
        let valid = b"POST /return?a=b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200 {
            let mut request = valid.to_vec();
            for _ in 0..3 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = (seed >> 32) as usize % request.len();
                request[at] = seed as u8;
            }
            let mut client = server.client();
            client.send(&request);
            client.half_close();
            // A reset is right where bytes were left unread; a timeout is what this looks for.
            client.rest();
        }
        assert_eq!(server.get("/return").text(), "ok\n");
    }
}
