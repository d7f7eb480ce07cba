//! Responses that begin before their requests have ended: both go on, each at its own pace.

use crate::support;

use weir_test::{Backend, BackendVisit, ConnectionEnd, Server, both_drivers};

use support::{pattern, upload};

fn proxy(backend: &Backend, directives: &str) -> Server {
    let conf = format!(
        "http {{ client_max_body_size 0; upstream u {{ server 127.0.0.1:{}; keepalive 4; }}
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u;
            proxy_http_version 1.1; proxy_set_header Connection ''; proxy_request_buffering off; {directives} }} }} }}",
        backend.port()
    );
    Server::builder(&conf).allow("upstream").allow("temp").start()
}

/// Sends each of `sizes` bytes of the request's body back before it reads the next ones.
fn echo(visit: &mut BackendVisit, sizes: &[usize]) -> Option<()> {
    visit.head()?;
    let length: usize = sizes.iter().sum();
    visit.send(format!("HTTP/1.1 200 OK\r\nX-Visit: {}\r\nContent-Length: {length}\r\n\r\n", visit.number));
    for size in sizes {
        let piece = visit.bytes(*size)?;
        visit.send(piece);
    }
    Some(())
}

both_drivers! {
    fn an_answer_comes_while_its_request_is_sent(driver) {
        let backend = Backend::start(|visit| while echo(visit, &[3, 3, 3]).is_some() {});
        for directives in ["", "proxy_buffering off;"] {
            let server = proxy(&backend, directives);
            let mut client = server.client();
            for _ in 0..2 {
                client.send(upload("/", 9)).send("abc");
                client.until("\r\n\r\nabc");
                client.send("def");
                client.until("\r\n\r\nabcdef");
                let answer = client.request("ghi");
                assert_eq!(answer.text(), "abcdefghi");
            }
        }
        assert_eq!(backend.visits(), 2, "each server's second request took the kept connection");
    }

    fn chunks_are_passed_on_as_they_come(driver) {
        let backend = Backend::start(|visit| {
            if !visit.head().is_some_and(|head| head.contains("Transfer-Encoding: chunked")) {
                visit.answer("");
                return;
            }
            visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            // Pieces of chunks may be joined: what counts is that all of it comes, with its end.
            let mut seen = Vec::new();
            let mut reported = 0;
            while !seen.ends_with(b"0\r\n\r\n") {
                let Some(byte) = visit.bytes(1) else { return };
                seen.extend_from_slice(&byte);
                let letters = seen.iter().filter(|byte| matches!(byte, b'x'..=b'z')).count();
                for _ in reported..letters {
                    visit.send("1\r\n!\r\n");
                }
                reported = letters;
            }
            visit.send("0\r\n\r\n");
        });
        let server = proxy(&backend, "proxy_buffering off;");
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
        client.until("\r\n!\r\n");
        client.send("1\r\ny\r\n");
        client.until("!\r\n1\r\n!\r\n");
        let answer = client.request("1\r\nz\r\n0\r\n\r\n");
        assert_eq!(answer.text(), "!!!");
        assert_eq!(server.get("/").status, 200, "the next one is none of this one's bytes");
    }

    /// Neither side takes anything before it has sent all: what is read ahead must not stop what is to be sent.
    fn who_sends_all_before_it_reads_is_served(driver) {
        const BIG: usize = 8 << 20;
        let backend = Backend::start(|visit| while echo(visit, &[1 << 16; BIG >> 16]).is_some() {});
        let server = proxy(&backend, "");
        let body = pattern(BIG);
        let mut client = server.client();
        client.send(upload("/", BIG)).send(&body);
        assert!(client.response().body == body, "the echo is what was sent");
    }

    fn an_answer_that_ends_first_ends_the_connection(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.bytes(3);
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
            visit.bytes(3);
            visit.send("def");
            visit.hang();
        });
        let server = proxy(&backend, "");
        let mut client = server.client();
        client.send(upload("/", 1000)).send("abc");
        client.until("\r\n\r\nabc");
        let answer = client.request("def");
        assert_eq!(answer.text(), "abcdef");
        assert_eq!(client.rest(), (Vec::new(), ConnectionEnd::Closed));
    }

    fn a_client_that_stops_sending_is_given_up(driver) {
        let backend = Backend::start(|visit| {
            echo(visit, &[3, 3]);
        });
        let server = proxy(&backend, "client_body_timeout 200ms;");
        let mut client = server.client();
        client.send(upload("/", 6)).send("abc");
        client.until("\r\n\r\nabc");
        assert!(!matches!(client.rest(), (bytes, _) if bytes.ends_with(b"def")));
        let _ = server.error_log_line("sending request body to upstream failed");
    }

    fn what_is_no_chunk_ends_it(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.bytes(6);
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
            visit.hang();
        });
        let server = proxy(&backend, "");
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
        client.until("\r\n\r\nabc");
        client.send("no chunk\r\n\r\n");
        assert_eq!(client.rest().0.last(), Some(&b'c'), "nothing follows");
        let _ = server.error_log_line("sending request body to upstream failed");
    }
}
