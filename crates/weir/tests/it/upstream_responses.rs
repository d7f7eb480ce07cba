//! Responses of servers on their way to clients: how fast they are read, what comes before them and after them.

use std::time::{Duration, Instant};

use weir_test::{Backend, Server, both_drivers};

/// A proxy to a server on `port`, with directives of its location.
fn proxy(port: u16, directives: &str) -> Server {
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_pass http://127.0.0.1:{port}; {directives} }} }} }}"
    );
    Server::builder(&conf).start()
}

/// A server that gives `hints`, then its response.
fn hinting(hints: &'static str) -> Backend {
    Backend::start(move |visit| {
        while visit.head().is_some() {
            visit.send(hints);
            visit.answer("body");
        }
    })
}

/// A server whose response has a trailer.
fn trailing() -> Backend {
    Backend::start(|visit| {
        while visit.head().is_some() {
            visit.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 7\r\nX-Hidden: 1\r\n\r\n",
            );
        }
    })
}

/// Everything that the response to `request` sends until the connection closes.
fn all(server: &Server, version: &str) -> String {
    let mut client = server.client();
    client.send(format!("GET /?h=1 HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"));
    String::from_utf8(client.rest().0).expect("it is text")
}

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Pad: 1\r\n\r\n";

both_drivers! {
    fn an_answer_is_read_no_faster_than_its_rate(driver) {
        let body = "x".repeat(4000);
        let sent = body.clone();
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                visit.answer(&sent);
            }
        });
        let server = proxy(backend.port(), "proxy_limit_rate $arg_rate;");
        let mut client = server.client();
        // Twice, so that a connection that was paused is used again.
        for _ in 0..2 {
            let began = Instant::now();
            assert_eq!(client.get("/?rate=2000").text(), body);
            assert!(began.elapsed() >= Duration::from_secs(1));
        }
        assert_eq!(client.get("/?rate=0").text(), body);
    }

    fn early_hints_pass_to_clients_of_http_1_1(driver) {
        let backend = hinting(HINTS);
        let server = proxy(backend.port(), "early_hints 0 $arg_h;");
        let text = all(&server, "1.1");
        let wanted = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(text.starts_with(wanted) && text.ends_with("\r\n\r\nbody"), "{text}");
        assert!(all(&server, "1.0").starts_with("HTTP/1.1 200 OK\r\n"));
    }

    /// Hints of the configuration come before those of the server, once, and not to clients of HTTP/1 that were not asked for.
    fn early_hint_lines_are_sent_before_the_handler_runs(driver) {
        let backend = hinting(HINTS);
        let lines = "early_hint Link '<$uri.css>; rel=preload'; early_hint X-Empty $arg_none; early_hint X-Kept yes;";
        let server = proxy(backend.port(), &format!("early_hints 0 $arg_h; {lines}"));
        let text = all(&server, "1.1");
        let wanted = "HTTP/1.1 103 Early Hints\r\nLink: </.css>; rel=preload\r\nX-Kept: yes\r\n\r\n\
            HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(text.starts_with(wanted) && text.ends_with("\r\n\r\nbody"), "{text}");
        assert!(all(&server, "1.0").starts_with("HTTP/1.1 200 OK\r\n"));
        for none in ["", "early_hints 0;"] {
            let text = all(&proxy(backend.port(), &format!("{none} {lines}")), "1.1");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{none}: {text}");
        }
        for wrong in ["early_hint 'A B' c;", "early_hint Content-Length 5;", "early_hint Connection close;"] {
            let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; {wrong} }} }}");
            let Err(refused) = Server::builder(&conf).try_start() else { panic!("{wrong}") };
            assert!(refused.stderr.contains("weir.conf:") || refused.stderr.contains(" in "), "{}", refused.stderr);
        }
    }

    fn early_hints_stay_behind_unless_they_are_wanted(driver) {
        let backend = hinting(HINTS);
        for directive in ["", "early_hints 0 $arg_none;"] {
            let text = all(&proxy(backend.port(), directive), "1.1");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{directive}: {text}");
        }
    }

    fn early_hints_of_http_1_0_are_no_answer(driver) {
        let backend = hinting("HTTP/1.0 103 Early Hints\r\n\r\n");
        let server = proxy(backend.port(), "early_hints 1;");
        assert!(all(&server, "1.1").starts_with("HTTP/1.1 502 "));
        let line = server.error_log_line(
            "upstream sent HTTP/1.0 response with early hints while reading response header from upstream",
        );
        assert!(line.contains("[error]"), "{line}");
    }

    fn a_trailer_passes_where_that_is_wanted(driver) {
        let backend = trailing();
        let server = proxy(
            backend.port(),
            "proxy_pass_trailers on; proxy_hide_header X-Hidden; add_trailer X-Own $upstream_trailer_x_sum;",
        );
        let text = all(&server, "1.1");
        assert!(text.ends_with("4\r\nbody\r\n0\r\nX-Sum: 7\r\nX-Own: 7\r\n\r\n"), "{text}");
        let server = proxy(backend.port(), "");
        let text = all(&server, "1.1");
        assert!(text.ends_with("4\r\nbody\r\n0\r\n\r\n"), "{text}");
    }
}
