//! What comes before and after a response of a server on its way to clients: interim responses and trailers, those among them
//! that no server should send.

use weir_test::{Backend, Server, both_drivers, wait_for};

use crate::http2::client::{Answer, Client as H2Client};

/// A proxy to a server on `port`, with directives of its location and of its `http` block.
fn proxy(port: u16, directives: &str, http: &str) -> Server {
    proxy_of(1, port, directives, http)
}

fn proxy_of(workers: usize, port: u16, directives: &str, http: &str) -> Server {
    let conf = format!(
        "worker_processes {workers};
         http {{ {http} server {{ listen 127.0.0.1:%%PORT%%; http2 on;
            location / {{ proxy_pass http://127.0.0.1:{port}; {directives} }} }} }}"
    );
    Server::builder(&conf).start()
}

/// A server whose responses are `before` and, unless the request is a HEAD, `after`.
fn saying(before: &str, after: &str) -> Backend {
    let (before, after) = (before.to_owned(), after.to_owned());
    Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            visit.send(&before);
            if !head.starts_with("HEAD ") {
                visit.send(&after);
            }
        }
    })
}

/// A server of responses in chunks with these lines as their trailer section.
fn trailing(lines: &str) -> Backend {
    saying(CHUNKED, &format!("4\r\nbody\r\n0\r\n{lines}\r\n"))
}

/// A server that gives `hints` before each response.
fn hinting(hints: &str) -> Backend {
    saying(&format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"), "body")
}

/// Everything that the response to a GET sends until the connection closes.
fn all(server: &Server, version: &str) -> String {
    asked(server, &format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

fn asked(server: &Server, request: &str) -> String {
    let mut client = server.client();
    client.send(request);
    String::from_utf8_lossy(&client.rest().0).into_owned()
}

fn fetched(server: &Server) -> Answer {
    H2Client::connect(server.addr(0)).fetch("/")
}

fn named<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const END: &str = "\r\n4\r\nbody\r\n0\r\n\r\n";

both_drivers! {
    /// With one worker and with several, to clients of all versions.
    fn trailers_reach_clients_of_all_versions(driver) {
        let backend = trailing("X-Sum: 7\r\nX-Sum: 8\r\nX-Hidden: 1\r\n");
        for workers in [1, 3] {
            let server = proxy_of(workers, backend.port(),
                "proxy_pass_trailers on; proxy_hide_header X-Hidden; add_trailer X-Own $upstream_trailer_x_sum;", "");
            // As nginx does, also where the client has not said `TE: trailers`.
            for te in ["", "TE: trailers\r\n"] {
                let text = asked(&server, &format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{te}\r\n"));
                assert!(text.ends_with("\r\n4\r\nbody\r\n0\r\nX-Sum: 7\r\nX-Sum: 8\r\nX-Own: 7, 8\r\n\r\n"), "{text}");
            }
            let text = all(&server, "1.0");
            assert!(text.ends_with("\r\n\r\nbody") && !text.contains("X-Sum"), "{text}");
            let answer = fetched(&server);
            assert_eq!(answer.text(), "body");
            assert_eq!(named(&answer.trailers, "x-sum"), ["7", "8"]);
            assert_eq!(named(&answer.trailers, "x-own"), ["7, 8"]);
            assert!(named(&answer.trailers, "x-hidden").is_empty());
        }
    }

    fn a_trailer_that_nobody_gets_may_be_anything(driver) {
        for lines in [
            format!("X-Long: {}\r\n", "y".repeat(70_000)),
            "X-Many: y\r\n".repeat(3000),
            "bad name: x\r\n".to_owned(),
            ":status: 500\r\n".to_owned(),
            "X: a\0b\r\n".to_owned(),
            "no colon\r\n".to_owned(),
        ] {
            let backend = trailing(&lines);
            let server = proxy(backend.port(), "", "");
            let shown = lines.get(..20).unwrap_or(&lines).escape_debug();
            let text = all(&server, "1.1");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(END), "{shown}: {text}");
            assert!(all(&server, "1.0").ends_with("\r\n\r\nbody"), "{shown}");
            let answer = fetched(&server);
            assert_eq!((answer.text().as_str(), answer.trailers.len()), ("body", 0), "{shown}");
            // The connection goes on with what follows.
            assert_eq!(server.client().get("/").text(), "body", "{shown}");
        }
    }

    fn a_trailer_that_is_passed_on_has_as_much_room_as_a_head(driver) {
        for lines in [format!("X-Long: {}\r\n", "y".repeat(9000)), "X-Many: y\r\n".repeat(900)] {
            let backend = trailing(&lines);
            let server = proxy(backend.port(), "proxy_pass_trailers on; proxy_buffer_size 4k;", "");
            let text = all(&server, "1.1");
            assert!(text.ends_with("\r\n4\r\nbody\r\n"), "cut off behind the body: {text}");
            let _ = server.error_log_line("upstream sent too big trailers while reading upstream");
            assert!(fetched(&server).reset.is_some());
            let large = "proxy_pass_trailers on; proxy_buffer_size 64k; proxy_buffers 4 64k;";
            let server = proxy(backend.port(), large, "");
            let text = all(&server, "1.1");
            assert!(text.ends_with(&format!("\r\n4\r\nbody\r\n0\r\n{lines}\r\n")), "{} bytes", text.len());
            assert!(!fetched(&server).trailers.is_empty());
        }
    }

    fn a_trailer_that_is_passed_on_must_be_well_formed(driver) {
        for (line, quoted) in [
            ("bad name: x", "\"bad\\x20...\""),
            (":status: 500", "\"\\x3a...\""),
            (" X: folded", "\"\\x20...\""),
            ("X: a\0b", "\"X: a\\x00...\""),
        ] {
            let backend = trailing(&format!("X-Sum: 7\r\n{line}\r\n"));
            let server = proxy(backend.port(), "proxy_pass_trailers on;", "");
            let text = all(&server, "1.1");
            assert!(text.ends_with("\r\n4\r\nbody\r\n") && !text.contains("X-Sum"), "{line:?}: {text}");
            let _ = server.error_log_line(&format!("upstream sent invalid trailer: {quoted} while reading upstream"));
            assert!(fetched(&server).reset.is_some(), "{line:?}");
        }
    }

    /// Framing, routing and control data do not come after a body (RFC 9110 section 6.5.1), and names that are none nowhere.
    fn trailers_never_become_headers(driver) {
        let backend = trailing(
            "X-Sum: 7\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: evil\r\nConnection: close\r\n\
             Set-Cookie: a=b\r\nX-Accel-Redirect: /x\r\nContent-Type: text/x\r\nContent-Encoding: gzip\r\nTrailer: a\r\n\
             Cache-Control: public\r\nLocation: /x\r\n\u{ff}: 1\r\nServer: x\r\nDate: y\r\n");
        let server = proxy(backend.port(), "proxy_pass_trailers on;", "");
        let text = all(&server, "1.1");
        assert!(text.ends_with("\r\n4\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n"), "{text}");
        let (head, _) = text.split_once("\r\n\r\n").expect("a head");
        for name in ["X-Sum", "Host", "Set-Cookie", "Content-Encoding", "Location"] {
            assert!(!head.contains(name), "{head}");
        }
        let answer = fetched(&server);
        assert_eq!((answer.text().as_str(), answer.trailers), ("body", vec![("x-sum".to_owned(), "7".to_owned())]));
    }

    fn trailers_of_cached_responses_are_not_stored(driver) {
        let backend = trailing("X-Sum: 7\r\n");
        let server = proxy(backend.port(),
            "proxy_pass_trailers on; proxy_cache c; proxy_cache_valid 1h; add_header X-C $upstream_cache_status;",
            "proxy_cache_path cached keys_zone=c:1m;");
        let text = all(&server, "1.1");
        assert!(text.contains("X-C: MISS") && text.ends_with("0\r\nX-Sum: 7\r\n\r\n"), "{text}");
        let hit = wait_for("a hit", || Some(all(&server, "1.1")).filter(|text| text.contains("X-C: HIT")));
        assert!(hit.ends_with("body") || hit.ends_with(END), "{hit}");
        let answer = fetched(&server);
        assert_eq!((answer.text().as_str(), answer.trailers.len(), backend.heads()), ("body", 0, 1));
    }

    /// Behind what filters make of the body; those of a subrequest are nobody's; a HEAD, a 204 and a 304 have none.
    fn trailers_beside_filters_and_without_bodies(driver) {
        let backend = saying(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
            "4\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n");
        let port = backend.port();
        let [empty, unchanged] = ["204 No Content", "304 Not Modified"].map(|status| saying(&format!("HTTP/1.1 {status}\r\n\r\n"), ""));
        let server = Server::start(&format!(
            "http {{ proxy_pass_trailers on; server {{ listen 127.0.0.1:%%PORT%%; http2 on;
                location /sub {{ proxy_pass http://127.0.0.1:{port}; sub_filter body corpse; }}
                location /gzip {{ proxy_pass http://127.0.0.1:{port}; gzip on; gzip_min_length 1; }}
                location /twice {{ proxy_pass http://127.0.0.1:{port}; add_after_body /after; }}
                location /after {{ proxy_pass http://127.0.0.1:{port}; add_trailer X-After 1; }}
                location /204 {{ proxy_pass http://127.0.0.1:{}; add_trailer X-After 1 always; }}
                location /304 {{ proxy_pass http://127.0.0.1:{}; add_trailer X-After 1 always; }} }} }}",
            empty.port(), unchanged.port()));
        let get = |path: &str| asked(&server, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n"));
        let text = get("/sub");
        assert!(text.ends_with("\r\n6\r\ncorpse\r\n0\r\nX-Sum: 7\r\n\r\n"), "{text}");
        let text = get("/gzip");
        assert!(text.contains("Content-Encoding: gzip") && text.ends_with("\r\n0\r\nX-Sum: 7\r\n\r\n"), "{text}");
        let text = get("/twice");
        assert!(text.ends_with("body\r\n0\r\nX-Sum: 7\r\n\r\n") && !text.contains("X-After"), "{text}");
        for (path, status) in [("/204", "204"), ("/304", "304")] {
            let text = get(path);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")) && text.ends_with("\r\n\r\n") && !text.contains("X-After"), "{text}");
            let answer = H2Client::connect(server.addr(0)).fetch(path);
            assert_eq!((answer.status.to_string().as_str(), answer.trailers.len()), (status, 0));
        }
        let text = asked(&server, "HEAD /gzip HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(text.ends_with("\r\n\r\n") && !text.contains("X-Sum"), "{text}");
        let mut client = H2Client::connect(server.addr(0));
        let key = client.open("HEAD", "/sub", &[], None);
        let answer = client.answer(key);
        assert_eq!((answer.status, answer.body.len(), answer.trailers.len()), (200, 0, 0));
        let answer = client.fetch("/twice");
        assert_eq!((answer.text().as_str(), named(&answer.trailers, "x-sum")), ("bodybody", vec!["7"]));
    }

    /// As in nginx they end here: a server must not take for a header what came after a body.
    fn trailers_of_requests_are_not_passed_on(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let body = visit.bytes(2).unwrap_or_default();
                visit.answer(&format!("{head}|{}", String::from_utf8_lossy(&body)));
            }
        });
        let server = proxy(backend.port(), "", "");
        let lines = "X-T: 1\r\nHost: evil\r\nContent-Length: 9\r\n";
        let text = asked(&server, &format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close, te\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n{lines}\r\n"));
        assert!(text.contains("\r\nContent-Length: 2\r\n") && text.ends_with("|ab"), "{text}");
        assert!(!text.contains("X-T") && !text.contains("evil") && !text.contains("TE: "), "{text}");
    }

    fn hints_without_fields_for_the_client_are_not_sent(driver) {
        for hints in ["HTTP/1.1 103 Early\r\n\r\n", "HTTP/1.1 103 Early\r\nX-Pad: 1\r\nDate: x\r\nX-Accel-Expires: 1\r\n\r\n"] {
            let backend = hinting(hints);
            let server = proxy(backend.port(), "early_hints 1;", "");
            let text = all(&server, "1.1");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert_eq!(fetched(&server).interim, [0; 0]);
        }
    }

    /// An interim response has no body, so what it says of one, and of the connection, is of no meaning (RFC 9110 section 8.6).
    fn hints_say_nothing_of_framing(driver) {
        let backend = hinting(
            "HTTP/1.1 103 Early\r\nLink: </a>\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\
             Keep-Alive: 1\r\nUpgrade: x\r\nTE: a\r\nTrailer: b\r\n\r\n\
             HTTP/1.1 103 Early\r\nLink: </b>\r\nContent-Length: many\r\nTransfer-Encoding: gzip\r\n\r\n\
             HTTP/1.1 102 Processing\r\nLink: </c>\r\nContent-Length: 8\r\n\r\n");
        let server = proxy(backend.port(), "early_hints 1;", "");
        let text = all(&server, "1.1");
        let wanted = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(text.starts_with(wanted) && text.ends_with("\r\n\r\nbody"), "{text}");
        assert_eq!(fetched(&server).interim, [103, 103]);
        assert!(all(&server, "1.0").starts_with("HTTP/1.1 200 OK\r\n"));
    }

    fn hints_are_counted(driver) {
        let backend = hinting("HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n");
        let server = proxy(backend.port(), "access_log counted.log c;", "log_format c '$upstream_bytes_received $upstream_response_length $status';");
        let _ = all(&server, "1.1");
        let log = server.dir().path().join("counted.log");
        let line = wait_for("the line", || std::fs::read_to_string(&log).ok().filter(|text| text.ends_with('\n')));
        let sent = "HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody".len();
        assert_eq!(line, format!("{sent} 4 200\n"));
    }

    /// All of them together may be as long as a head; those without end end their request, with and without `early_hints`.
    fn hints_are_bounded(driver) {
        let hint = "HTTP/1.1 103 Early\r\nLink: </a.css>; rel=preload\r\n\r\n";
        let backend = hinting(&hint.repeat(1000));
        let server = proxy(backend.port(), "early_hints 1; proxy_buffer_size 4k;", "");
        let text = all(&server, "1.1");
        let count = text.matches("103 Early Hints").count();
        assert_eq!(count, 4096 / hint.len(), "{text}");
        assert!(text.ends_with("\r\n\r\nbody"), "{text}");
        assert_eq!(fetched(&server).interim.len(), count);
        for directives in ["early_hints 1;", ""] {
            let backend = Backend::start(move |visit| {
                while visit.head().is_some() {
                    while visit.send(hint.repeat(100)) {}
                }
            });
            let server = proxy(backend.port(), directives, "");
            let text = all(&server, "1.1");
            assert!(text.contains("HTTP/1.1 502 Bad Gateway\r\n"), "{text}");
            let _ = server.error_log_line("upstream sent too many interim responses while reading response header from upstream");
            assert_eq!(fetched(&server).status, 502);
        }
    }

    /// The server is not asked before a body that is read first is there, and is not told of the client's wish.
    fn expect_is_met_here(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let _ = visit.bytes(3);
                visit.answer(&head);
            }
        });
        let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
        for directives in ["", "proxy_request_buffering off;"] {
            let server = proxy(backend.port(), directives, "");
            let mut client = server.client();
            client.send(post);
            assert_eq!(client.response().status, 100);
            client.send("abc");
            let response = client.response();
            assert!(response.status == 200 && !response.text().contains("Expect"), "{}", response.text());
        }
        // A body that never comes.
        let before = backend.heads();
        let server = proxy(backend.port(), "client_body_timeout 100ms;", "");
        let mut client = server.client();
        client.send(post);
        assert_eq!(client.response().status, 100);
        let _ = client.rest();
        assert_eq!(backend.heads(), before);
    }

    /// Where a configuration passes the wish on, the server's 100 is not taken for its response.
    fn expect_may_be_passed_on(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                assert!(head.contains("Expect: 100-continue"), "{head}");
                visit.send("HTTP/1.1 100 Continue\r\n\r\n");
                let _ = visit.bytes(3);
                visit.answer("taken");
            }
        });
        for directives in ["", "proxy_request_buffering off;"] {
            let server = proxy(backend.port(), &format!("proxy_set_header Expect $http_expect; {directives}"), "");
            let text = asked(&server,
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc");
            assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n") && text.ends_with("taken"), "{text}");
        }
    }
}
