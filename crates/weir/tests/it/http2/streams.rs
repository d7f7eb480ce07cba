//! Requests and responses on streams, and how connections end.

use weir_http::h2::ErrorCode;
use weir_test::{Backend, Server, both_drivers, wait_for};

use crate::http2::client::{Answer, Client};

/// Content that shows where a piece is missing.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + ((at / 7 + at / 1001) % 26) as u8).collect()
}

both_drivers! {
    fn both_versions_are_served_on_one_port(driver) {
        let server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT%%; http2 on; server_name one;
                return 200 \"$request|$server_protocol|$http2|$host|$http_host|$http_cookie|$connection_requests\"; } }",
        );
        assert!(server.get("/a").text().starts_with("GET /a HTTP/1.1|HTTP/1.1||localhost|localhost||1"));
        let mut client = Client::connect(server.addr(0));
        let key = client.open("GET", "/b?c", &[("cookie", "a=b"), ("x-y", "z"), ("cookie", "c=d")], None);
        let answer = client.answer(key);
        assert_eq!(answer.text(), "GET /b?c HTTP/2.0|HTTP/2.0|h2c|localhost|localhost|a=b; c=d|1");
        assert_eq!((answer.status, answer.field("content-type")), (200, Some("text/plain")));
        assert!(answer.field("connection").is_none() && answer.field("date").is_some());
        let head = client.open("HEAD", "/", &[], None);
        let answer = client.answer(head);
        assert!(answer.body.is_empty() && answer.field("content-length").is_some());
        let lines = server.access_log_lines(3);
        assert!(lines[1].contains("\"GET /b?c HTTP/2.0\" 200 "), "{lines:?}");
    }

    fn files_of_all_sizes_come_whole_on_many_streams(driver) {
        let big = pattern(1_500_000);
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%; } }")
            .file("small", "small\n").file("big", &big).file("empty", "").start();
        let mut client = Client::connect(server.addr(0));
        let keys: Vec<_> = (0..60).map(|at| (at, client.get(["/small", "/big", "/empty"][at % 3]))).collect();
        for (at, key) in keys {
            let answer = client.answer(key);
            let expected: &[u8] = [b"small\n", &big[..], b""][at % 3];
            assert!(answer.status == 200 && answer.body == expected, "{at}: {} bytes", answer.body.len());
        }
        let key = client.open("GET", "/big", &[("range", "bytes=1000-1999")], None);
        let answer = client.answer(key);
        assert_eq!((answer.status, &answer.body[..]), (206, &big[1000..2000]));
        assert_eq!(client.fetch("/none").status, 404);
    }

    fn uploads_pass_filters_and_servers_behind(driver) {
        let server = Server::start(
            "http { client_max_body_size 0; gzip on; gzip_min_length 1; gzip_types *;
                server { listen 127.0.0.1:%%PORT_0%%; http2 on;
                    location / { proxy_pass http://127.0.0.1:%%PORT_1%%; }
                    location /straight { proxy_request_buffering off; proxy_http_version 1.1;
                        proxy_pass http://127.0.0.1:%%PORT_1%%; }
                    location /limited { client_max_body_size 10; proxy_pass http://127.0.0.1:%%PORT_1%%; } }
                server { listen 127.0.0.1:%%PORT_1%%; client_body_buffer_size 2m;
                    location / { echo_read_request_body; echo_request_body; } } }",
        );
        let body = pattern(700_000);
        let mut client = Client::connect(server.addr(0));
        for path in ["/", "/straight"] {
            let length = body.len().to_string();
            let reported = client.open("POST", path, &[("content-length", &length)], Some(&body));
            let untold = client.open("PUT", path, &[], Some(&body));
            for key in [reported, untold] {
                let answer = client.answer(key);
                assert!(answer.status == 200 && answer.body == body, "{path}: {answer:?}");
            }
        }
        let key = client.open("POST", "/limited", &[("content-length", "11")], Some(b"01234567890"));
        assert_eq!(client.answer(key).status, 413);
        let key = client.open("POST", "/", &[("content-length", "5")], Some(b"too long"));
        let answer = client.answer(key);
        assert_eq!(answer.reset.or(Some(ErrorCode::Protocol)), Some(ErrorCode::Protocol));
        let key = client.open("POST", "/", &[("accept-encoding", "gzip")], Some(&body));
        let answer = client.answer(key);
        assert_eq!(answer.field("content-encoding"), Some("gzip"));
        assert!(answer.body.len() < body.len() / 2);
    }

    fn trailers_and_interim_answers_are_frames(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.send("HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        });
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; http2 on;
                location / {{ add_trailer X-End $status; return 200 body; }}
                location /own {{ early_hint Link </a>; root files; error_page 404 = @other; }}
                location @other {{ early_hint Link </b>; stub_status; }}
                location /hints {{ early_hints 1; proxy_pass http://127.0.0.1:{}; }} }} }}",
            backend.port()
        ));
        let mut client = Client::connect(server.addr(0));
        let answer = client.fetch("/");
        assert_eq!((answer.text().as_str(), &answer.trailers[..]), ("body", &[("x-end".into(), "200".into())][..]));
        let answer = client.fetch("/own");
        assert_eq!((answer.interim, answer.status), (vec![103], 200), "once, wherever the request is sent");
        let answer = client.fetch("/hints");
        assert_eq!((answer.interim, answer.status, &answer.body[..]), (vec![103], 200, &b"ok"[..]));
    }

    /// Blocks are cached and sent again: also between others that put new fields into the client's table, and old ones
    /// out.
    fn a_response_says_the_same_each_time(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; http2 on; root files;
                location /new { add_header X-New $arg_n$arg_n$arg_n; return 200 new; } } }")
            .file("files/a.txt", "a").file("files/b.html", "bb").file("files/c", "ccc").driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let fields = |answer: &Answer| {
            let lasting = answer.fields.iter().filter(|(name, _)| name != "date");
            lasting.cloned().collect::<Vec<_>>()
        };
        let paths = ["/a.txt", "/b.html", "/c"];
        let first = paths.map(|path| client.fetch(path));
        assert_eq!(first[1].field("content-length"), Some("2"));
        for round in 0..60 {
            let keys = paths.map(|path| client.get(path));
            for (key, first) in std::iter::zip(keys, &first) {
                let answer = client.answer(key);
                assert_eq!((fields(&answer), &answer.body), (fields(first), &first.body), "{round}");
                assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")));
            }
            if round % 3 == 0 {
                // Twice, so that it is worth an entry of 100 bytes.
                let n = format!("{round:030}");
                let path = format!("/new?n={n}");
                for _ in 0..2 {
                    assert_eq!(client.fetch(&path).field("x-new"), Some(&*n.repeat(3)));
                }
            }
        }
    }

    /// RFC 9218: urgent streams leave first, also when they become urgent later. All three responses wait whole for
    /// their windows; that of the first opens first, so that however the bytes are cut nothing else may leave before.
    fn urgent_streams_leave_first(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%; } }")
            .file("file", pattern(60_000)).start();
        let mut client = Client::with_window(server.addr(0), 0);
        let keys = ["u=6", "u=5", "u=4"].map(|value| client.open("GET", "/file", &[("priority", value)], None));
        client.until("three heads", |client| client.answers.values().all(|answer| answer.status == 200));
        let mut out = b"\0\0\x07\x10\0\0\0\0\0\0\0\0\x01u=0".to_vec();
        for key in keys {
            client.conn.widen(key, 65_535, &mut out);
        }
        client.raw(&out);
        client.until("all", |client| client.answers.values().all(|answer| answer.ended));
        let firsts = client.order.iter().take_while(|key| **key == keys[0]).count();
        assert!(firsts > 0 && !client.order[firsts..].contains(&keys[0]), "{:?}", client.order);
    }

    fn a_connection_ends_after_keepalive_requests_and_when_idle(driver) {
        let server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT_0%%; http2 on; keepalive_requests 3; return 200 $connection_requests; }
                server { listen 127.0.0.1:%%PORT_1%%; http2 on; keepalive_timeout 1s; return 200; } }",
        );
        let mut client = Client::connect(server.addr(0));
        for number in 1..=3 {
            assert_eq!(client.fetch("/").text(), number.to_string());
        }
        client.until_closed();
        assert_eq!(client.goaway, Some((5, ErrorCode::No)));
        let mut client = Client::connect(server.addr(1));
        assert_eq!(client.fetch("/").status, 200);
        client.until_closed();
        assert_eq!(client.goaway, Some((1, ErrorCode::No)));
    }

    /// The first request has the time that one of HTTP/1 has, whether its head comes late or in pieces.
    fn without_keepalive_there_is_one_request_however_late_it_comes(driver) {
        let server = Server::builder(
            "http { keepalive_timeout 0; server { listen 127.0.0.1:%%PORT%%; http2 on; return 200 ok; } }",
        ).driver(driver).start();
        for cut in [0, 4, 12] {
            let mut link = super::counts::Link::open(&server, 1 << 20);
            let head = super::attacks::frame(1, 5, 1, b"\x82\x86\x84\x41\x01a");
            link.send(&head[..cut]);
            // Nothing is to happen in this time.
            std::thread::sleep(std::time::Duration::from_millis(50));
            link.send(&head[cut..]);
            link.read_to_end();
            assert_eq!((link.body(1), link.over(1)), (2, true), "{cut}");
        }
    }

    /// RFC 9113 section 6.9.3: what is sent before the settings are known may fill the usual window.
    fn content_that_comes_before_the_settings_are_known_is_taken(driver) {
        let server = Server::builder(
            "http { http2_recv_buffer_size 33; client_body_buffer_size 100k;
                server { listen 127.0.0.1:%%PORT%%; http2 on; http2_body_preread_size 10;
                    location / { content_by_lua_block { ngx.req.read_body() ngx.print(#ngx.req.get_body_data()) } } } }",
        ).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let keys = [65_000, 1, 500].map(|length| (length, client.open("POST", "/", &[], Some(&vec![b'x'; length]))));
        for (length, key) in keys {
            let answer = client.answer(key);
            assert_eq!((answer.status, answer.reset, answer.text()), (200, None, length.to_string()));
        }
        // By now they are.
        let key = client.open("POST", "/", &[], Some(&[b'x'; 2000]));
        assert_eq!(client.answer(key).text(), "2000");
    }

    /// What runs goes on, and the client is told (GOAWAY) to open a new connection for new requests.
    fn a_graceful_end_lets_streams_finish(driver) {
        let body = pattern(300_000);
        let conf = "http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%; } }";
        let mut server = Server::builder(conf).file("big", &body).start();
        let mut idle = Client::connect(server.addr(0));
        assert_eq!(idle.fetch("/none").status, 404);
        let mut busy = Client::with_window(server.addr(0), 65_535);
        busy.reads = false;
        let key = busy.get("/big");
        busy.until("a window", |client| client.answers[&key].body.len() == 65_535);
        server.signal(weir_test::ServerSignal::Quit);
        idle.until_closed();
        assert_eq!(idle.goaway, Some((1, ErrorCode::No)));
        busy.until("word of the end", |client| client.goaway.is_some());
        busy.reads = true;
        let mut out = Vec::new();
        busy.conn.consumed(key, 65_535, &mut out);
        busy.raw(&out);
        assert_eq!(busy.answer(key).body, body);
        busy.until_closed();
        assert!(server.wait_exit().status.success());
    }

    fn a_client_that_gives_up_ends_the_request_behind(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.hang();
        });
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; http2 on; location / {{ return 200 on; }}
                location /wait {{ proxy_pass http://127.0.0.1:{}; }} }} }}",
            backend.port()
        ));
        let mut client = Client::connect(server.addr(0));
        let key = client.get("/wait");
        wait_for("the request behind", || (backend.heads() > 0).then_some(()));
        client.reset(key);
        assert_eq!(client.fetch("/").text(), "on");
        let lines = server.access_log_lines(2);
        assert!(lines.iter().any(|line| line.contains("\"GET /wait HTTP/2.0\" 499 ")), "{lines:?}");
        let _line = server.error_log_line("client prematurely closed connection");
    }

    /// RFC 8441: what HTTP/1.1 opens by Upgrade is a stream here, both ways, with upstream servers that know nothing of
    /// it.
    fn a_websocket_is_a_stream(driver) {
        let backend = Backend::start(|visit| {
            let Some(head) = visit.head() else { return };
            assert!(head.contains("Upgrade: websocket\r\n") && head.to_lowercase().contains("sec-websocket-key: "));
            visit.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello ");
            while let Some(bytes) = visit.bytes(5) {
                visit.send(bytes.to_ascii_uppercase());
            }
        });
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; http2 on; proxy_http_version 1.1;
                proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
                location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}",
            backend.port()
        ));
        let mut client = Client::connect(server.addr(0));
        client.until("settings", |client| client.conn.remote().connect_protocol);
        let key = client.tunnel("websocket", "/chat", b"fromclient");
        client.until("an echo", |client| client.answers[&key].text() == "hello FROMCLIENT");
        assert_eq!((client.answers[&key].status, client.answers[&key].field("upgrade")), (200, None));
        client.reset(key);
        let lines = server.access_log_lines(1);
        assert!(lines[0].contains("\"CONNECT /chat HTTP/2.0\" 101 "), "{lines:?}");
    }

    fn http_1_upgrades_to_h2c(driver) {
        let server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT%%; http2 on; return 200 \"$request $http2 $http_upgrade.\"; } }",
        );
        let (mut client, key) = Client::upgrade(server.addr(0), "/a");
        assert_eq!(client.answer(key).text(), "GET /a HTTP/1.1 h2c .");
        let key = client.get("/c");
        assert_eq!(client.answer(key).text(), "GET /c HTTP/2.0 h2c .");
    }

    /// All of a request's body comes before the connection changes; a body that is too large or broken gets its error by HTTP/1.
    fn an_upgrade_may_have_a_body(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let length = head.to_ascii_lowercase().split("content-length: ").nth(1).map_or(0, |rest| {
                    rest.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0)
                });
                let body = visit.bytes(length).unwrap_or_default();
                visit.answer(&format!("{length} {}", String::from_utf8_lossy(&body)));
            }
        });
        let server = Server::builder(&format!(
            "http {{ client_max_body_size 100k; client_body_buffer_size 1k; server {{ listen 127.0.0.1:%%PORT%%; http2 on;
             location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port()
        )).allow("too large").allow("invalid chunked body").start();
        let long = "x".repeat(50_000);
        for (rest, shown) in [
            ("Content-Length: 3\r\n\r\nabc".to_owned(), "3 abc".to_owned()),
            ("Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n".to_owned(), "3 abc".to_owned()),
            (format!("Content-Length: 50000\r\n\r\n{long}"), format!("50000 {long}")),
        ] {
            let (mut client, key) = Client::upgrade_with(server.addr(0), "POST /a", &rest);
            assert_eq!(client.answer(key).text(), shown);
            assert_eq!(client.fetch("/b").text(), "0 ");
        }
        let refused = |rest: &str| {
            let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
            server.client().request(format!("{head}{rest}")).status
        };
        assert_eq!(refused("Content-Length: 1000000\r\n\r\n"), 413);
        assert_eq!(refused("Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
        assert_eq!(refused(&format!("Transfer-Encoding: chunked\r\n\r\n1e848\r\n{}\r\n0\r\n\r\n", "x".repeat(125_000))), 413);
    }
}
