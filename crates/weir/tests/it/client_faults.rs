//! Clients that are slow, leave half-way or keep sending: each gets nginx's response and exactly one log line.

use crate::support;

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use weir_test::{ConnectionEnd, DEADLINE, Server, both_drivers, read_some, wait_for};

use support::{final_log, get, settled, upload, wait_open_files};

/// `FILE` is larger than what the sockets of both sides hold.
const BIG: usize = 16 << 20;

/// A server with `settings` at its level.
fn started(settings: &str) -> Server {
    let conf = format!(
        "http {{ log_format t '$status $body_bytes_sent \"$request_completion\" \"$request\"';
        access_log %%DIR%%/access.log t;
        server {{ listen 127.0.0.1:%%PORT%%; root html; {settings}
            location /return {{ return 200 \"ok\\n\"; }}
            location /small {{ client_max_body_size 1k; return 200 \"ok\\n\"; }}
            location /unbounded {{ client_max_body_size 0; root html; }} }} }}"
    );
    Server::builder(&conf)
        .file("html/a.txt", "file\n")
        .file("html/unbounded/a.txt", "")
        .file("html/big", support::pattern(BIG))
        .start()
}

/// The log lines of a server whose clients are gone.
#[track_caller]
fn assert_logged(server: Server, lines: &[&str]) {
    assert_eq!(final_log(server), lines);
}

both_drivers! {
    /// A client that leaves while its response is doled out is not sent to any more: 16 MB would take half a year.
    fn who_leaves_a_limited_answer_ends_it(driver) {
        let server = started("limit_rate 1;");
        let mut client = server.client();
        client.send(get("/big"));
        assert!(client.peek(1).is_ok());
        drop(client);
        let line = server.access_log_lines(1).remove(0);
        assert!(line.starts_with("200 ") && line.ends_with(" \"\" \"GET /big HTTP/1.1\""), "{line}");
        let _ = server.error_log_line("while sending response to client");
    }

    /// nginx: `client_header_timeout` ends in silence, with 408 in the log.
    fn a_slow_head_is_cut_off(driver) {
        let server = started("client_header_timeout 3s;");
        let mut nothing = server.client();
        let mut half = server.client();
        half.send("GET /return HTTP/1.1\r\nHost: a\r\nX: y");
        let mut line = server.client();
        line.send("GET /retu");
        for client in [&mut nothing, &mut half, &mut line] {
            client.expect_close();
        }
        let _ = server.error_log_line("client timed out (110: Connection timed out) while reading client request headers");
        let mut lines = final_log(server);
        lines.sort();
        assert_eq!(lines, ["408 0 \"\" \"GET /retu\"", "408 0 \"\" \"GET /return HTTP/1.1\""]);
    }

    /// A drip of bytes does not lengthen the time for a head.
    fn a_dripping_head_is_cut_off(driver) {
        let server = started("client_header_timeout 3s;");
        let mut client = server.client();
        client.send("GET /return HTTP/1.1\r\nX: ");
        let cut = wait_for("end of the drip", || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            client.try_send("y").err()
        });
        assert!(matches!(cut.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset), "{cut}");
        assert_logged(server, &["408 0 \"\" \"GET /return HTTP/1.1\""]);
    }

    /// Between requests a connection ends after `keepalive_timeout`, in silence and without a line.
    fn an_idle_connection_ends_after_its_time(driver) {
        let server = started("keepalive_timeout 1s;");
        let mut client = server.client();
        assert_eq!(client.get("/return").text(), "ok\n");
        client.expect_close();
        assert_logged(server, &["200 3 \"OK\" \"GET /return HTTP/1.1\""]);
    }

    /// nginx: a client that does not take its response is cut off after `send_timeout`; the line has what was sent.
    fn a_client_that_does_not_read_is_cut_off(driver) {
        for (reset, end) in [("off", ConnectionEnd::Closed), ("on", ConnectionEnd::Reset)] {
            let server = started(&format!("send_timeout 3s; reset_timedout_connection {reset};"));
            let before = settled(&server);
            let mut client = server.client();
            client.send(get("/big"));
            client.peek(1).expect("the answer has begun");
            let _ = server.error_log_line("client timed out (110: Connection timed out) while sending");
            wait_open_files(&server, before);
            let (received, how) = client.rest();
            assert_eq!(how, end, "reset_timedout_connection {reset}");
            assert!(received.len() < BIG);
            let lines = final_log(server);
            let [line] = &lines[..] else { panic!("{lines:?}") };
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!((words[0], words[2]), ("200", "\"\""), "{line}");
            let sent: usize = words[1].parse().expect("a number");
            assert!(sent > 0 && sent < BIG, "{line}");
        }
    }

    /// FIN after the request: the response still comes, however long, and the connection ends.
    fn a_half_closed_client_gets_its_answer(driver) {
        let server = started("");
        for (request, length) in [(get("/return"), 3), (get("/big"), BIG), (upload("/return", 3) + "abc", 3)] {
            let mut client = server.client();
            client.send(&request).half_close();
            assert_eq!(client.response().body.len(), length);
            client.expect_close();
        }
        let mut client = server.client();
        client.send(get("/return").repeat(3)).half_close();
        for _ in 0..3 {
            assert_eq!(client.response().text(), "ok\n");
        }
        client.expect_close();
        assert!(final_log(server).iter().all(|line| line.starts_with("200 ") && line.contains("\"OK\"")));
    }

    /// Each way to leave, in each state: one line with nginx's status, none where nothing was asked.
    fn leaving_before_the_answer_is_logged_once(driver) {
        let states: &[(&str, String, &[&str])] = &[
            ("before a byte", String::new(), &[]),
            ("in the line", "GET /retu".to_owned(), &["400 0 \"\" \"GET /retu\""]),
            ("in the head", "GET /return HTTP/1.1\r\nHost: a\r\nX: ".to_owned(), &["400 0 \"\" \"GET /return HTTP/1.1\""]),
            ("in the second head", get("/return") + "GET /a.txt HTTP/1.1\r\n", &["200 3 \"OK\" \"GET /return HTTP/1.1\"", "400 0 \"\" \"GET /a.txt HTTP/1.1\""]),
        ];
        for (name, sent, lines) in states {
            for by_reset in [false, true] {
                if by_reset && sent.contains("\r\n\r\n") {
                    // What a reset finds unread is gone: nothing to expect of it.
                    continue;
                }
                let server = started("");
                let before = settled(&server);
                let mut client = server.client();
                wait_for("accepted connection", || (server.open_files() > before).then_some(()));
                client.send(sent);
                if by_reset {
                    support::wait_taken(&client);
                    client.abort();
                } else {
                    drop(client);
                }
                wait_open_files(&server, before);
                assert_eq!(final_log(server), *lines, "{name}, {}", if by_reset { "RST" } else { "FIN" });
            }
        }
    }

    /// An upload to `return`, which does not read it: the response comes at once; how the rest of it ends changes
    /// nothing.
    fn leaving_within_an_upload_is_logged_once(driver) {
        for by_reset in [false, true] {
            let server = started("");
            let before = settled(&server);
            let mut client = server.client();
            client.send(upload("/return", 1000) + "abc");
            assert_eq!(client.response().text(), "ok\n");
            if by_reset { client.abort() } else { drop(client) }
            wait_open_files(&server, before);
            assert_logged(server, &["200 3 \"OK\" \"POST /return HTTP/1.1\""]);
        }
    }

    /// In the middle of a response: 200, as far as it went, and no `OK`.
    fn leaving_within_an_answer_is_logged_once(driver) {
        for by_reset in [false, true] {
            let server = started("");
            let before = settled(&server);
            let mut client = server.client();
            client.send(get("/big"));
            client.peek(100_000).expect("the answer has begun");
            if by_reset { client.abort() } else { drop(client) }
            wait_open_files(&server, before);
            let lines = final_log(server);
            let [line] = &lines[..] else { panic!("{lines:?}") };
            let sent: usize = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
            assert!(line.starts_with("200 ") && line.ends_with(" \"\" \"GET /big HTTP/1.1\""), "{line}");
            assert!((90_000..BIG).contains(&sent), "{line}");
        }
    }

    /// After a response, idle: the line is the response's alone.
    fn leaving_after_the_answer_is_logged_once(driver) {
        for by_reset in [false, true] {
            let server = started("");
            let before = settled(&server);
            let mut client = server.client();
            assert_eq!(client.get("/a.txt").status, 200);
            if by_reset { client.abort() } else { drop(client) }
            wait_open_files(&server, before);
            assert_logged(server, &["200 5 \"OK\" \"GET /a.txt HTTP/1.1\""]);
        }
    }

    /// The bodies that fit are read away, and the next request is found after them.
    fn a_connection_goes_on_behind_a_body_nobody_read(driver) {
        let server = started("");
        let mut client = server.client();
        client.send(upload("/return", 5) + "abcde" + &get("/a.txt"));
        assert_eq!(client.response().text(), "ok\n");
        assert_eq!(client.response().text(), "file\n");
        // The body comes after the response.
        client.send(upload("/return", 200_000));
        assert_eq!(client.response().text(), "ok\n");
        client.send(support::pattern(200_000)).send(get("/a.txt"));
        assert_eq!(client.response().text(), "file\n");
        client.send("POST /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        assert_eq!(client.response().status, 405);
        client.send("5\r\nabcde\r\n0\r\n\r\n").send(get("/a.txt"));
        assert_eq!(client.response().text(), "file\n");
    }

    /// Lingering close: the response of a request that is refused while its body still comes is not lost to a reset.
    fn a_refused_upload_gets_its_answer(driver) {
        let server = started("lingering_time 90s; lingering_timeout 90s;");
        let body = support::pattern(BIG);
        for (path, status, close) in [("/small", 413, true), ("/unbounded/a.txt", 405, false)] {
            let mut stream = TcpStream::connect(server.addr(0)).expect("it listens");
            stream.set_read_timeout(Some(DEADLINE)).expect("not zero");
            stream.set_write_timeout(Some(DEADLINE)).expect("not zero");
            stream.write_all(upload(path, BIG).as_bytes()).expect("taken");
            let sent = stream.write_all(&body);
            assert!(sent.is_ok(), "{path}: the server reads on: {sent:?}");
            let mut answer = Vec::new();
            let mut piece = [0; 4096];
            // To the end of the connection, which has to be a FIN, or of the head.
            while close || !answer.windows(4).any(|end| end == b"\r\n\r\n") {
                match read_some(&mut stream, &mut piece).unwrap_or_else(|error| panic!("{path}: {error}")) {
                    0 => break,
                    count => answer.extend_from_slice(&piece[..count]),
                }
            }
            let text = String::from_utf8_lossy(&answer);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {text}");
            assert_eq!(text.contains("Connection: close\r\n"), close, "{path}: {text}");
            // The server may have closed its side already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// nginx, `lingering_time`: reading away is bounded.
    fn lingering_ends(driver) {
        let server = started("lingering_time 1s; lingering_timeout 1s;");
        let before = settled(&server);
        let mut client = server.client();
        client.send(upload("/small", BIG));
        let refused = client.response();
        client.expect_close();
        // This side stays open and sends nothing.
        wait_open_files(&server, before);
        assert_logged(server, &[&format!("413 {} \"OK\" \"POST /small HTTP/1.1\"", refused.body.len())]);
    }

    fn a_length_that_is_too_large_gets_413_before_its_body(driver) {
        let server = started("");
        let mut client = server.client();
        let response = client.request(upload("/small", 1025));
        assert_eq!(response.status, 413);
        assert!(!response.keeps_alive());
        let _ = server.error_log_line("client intended to send too large body: 1025 bytes");
        let mut client = server.client();
        assert_eq!(client.request(upload("/small", 1024) + &"x".repeat(1024)).status, 200);
        // A client that asked first gets an error instead of "continue".
        let mut client = server.client();
        let refused = client.request("POST /small HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1025\r\n\r\n");
        assert_eq!(refused.status, 413);
    }

    /// As in nginx: what `error_page` makes of an error is no reason to ask for the body, unless it takes the error away.
    fn the_page_of_an_error_asks_for_no_body(driver) {
        let conf = "http { server { listen 127.0.0.1:%%PORT%%; location = /page { return 200 page; }
            location /keeps/ { error_page 404 /page; } location /takes/ { error_page 404 = /page; }
            location /to200/ { error_page 404 =200 /page; } location /to503/ { error_page 404 =503 /page; } } }";
        let server = Server::builder(conf).allow("No such file").start();
        for (path, statuses) in
            [("/keeps/", &[404][..]), ("/to503/", &[503]), ("/takes/", &[100, 200]), ("/to200/", &[100, 200])]
        {
            let mut client = server.client();
            client.send(format!("POST {path}x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"));
            let got: Vec<u16> = statuses.iter().map(|_| client.response().status).collect();
            assert_eq!(got, statuses, "{path}");
        }
    }

    /// A client that waits for "continue" gets it, or its final response at once; one that does not wait is not
    /// confused by it.
    fn expectations_are_met(driver) {
        let server = started("");
        let expect = "POST /return HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
        let mut waits = server.client();
        waits.send(expect);
        let mut response = waits.response();
        if response.status == 100 {
            waits.send("abc");
            response = waits.response();
        }
        assert_eq!((response.status, response.text().as_str()), (200, "ok\n"));
        if response.keeps_alive() {
            support::assert_serves(&mut waits, "/a.txt", "file\n");
        }
        let mut hurries = server.client();
        hurries.send(format!("{expect}abc{}", get("/a.txt")));
        let mut response = hurries.response();
        if response.status == 100 {
            response = hurries.response();
        }
        assert_eq!((response.status, response.text().as_str()), (200, "ok\n"));
        if response.keeps_alive() {
            assert_eq!(hurries.response().text(), "file\n");
        } else {
            hurries.expect_close();
        }
    }

    /// HTTP/1.0 and `Connection: close`: the response, then FIN, with nothing lost after it.
    fn a_close_that_was_asked_for_is_orderly(driver) {
        let server = started("");
        for request in ["GET /big HTTP/1.0\r\n\r\n", "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"] {
            let mut client = server.client();
            assert_eq!(client.request(request).body.len(), BIG);
            client.expect_close();
        }
    }
}
