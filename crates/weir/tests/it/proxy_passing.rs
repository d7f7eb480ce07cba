//! What a proxy does besides passing on: heads that repeat themselves, bodies that are reported after they went,
//! upgrades, the PROXY protocol, retry budgets, connections that are closed before the server closes them.

use crate::support;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir_test::{Backend, Server, both_drivers, free_port, read_some, wait_for};

use support::{final_log, upload};

fn serve(http: &str, directives: &str) -> Server {
    let conf = format!(
        "http {{ log_format t '$status $cause [$upstream_status]'; access_log %%DIR%%/access.log t; {http}
            server {{ listen 127.0.0.1:%%PORT%%; {directives} }} }}"
    );
    Server::builder(&conf).allow("upstream").allow("connect()").start()
}

fn to(port: u16, directives: &str) -> Server {
    serve("", &format!("location / {{ proxy_pass http://127.0.0.1:{port}; {directives} }}"))
}

/// A port at which nothing accepts, with so many waiting that no further connection is taken.
fn full() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let filled = std::iter::from_fn(connect).collect();
    (listener, filled)
}

both_drivers! {
    /// nginx's `auto_redirect`: of a path that no location has, to the proxied location that has it with a slash, by that
    /// location's settings. What is expected is nginx's response.
    fn a_path_without_its_slash_is_redirected_only_where_no_location_has_it(driver) {
        let backend = Backend::answering("backend");
        let pass = format!("proxy_pass http://127.0.0.1:{};", backend.port());
        let server = serve(
            "log_format where '$uri $status';",
            &format!(
                "add_header X-Of server; return 404 none;
                location /a {{ return 200 own; }} location /a/ {{ {pass} }}
                location ^~ /b {{ return 200 own; }} location ^~ /b/ {{ {pass} }}
                location = /c {{ return 200 own; }} location /c/ {{ {pass} }}
                location /d/ {{ add_header X-Of location; access_log %%DIR%%/d.log where; {pass} }}
                location = /e/ {{ {pass} }}
                location = /f/ {{ return 200 exact; }} location /f/ {{ add_header X-Of prefix; {pass} }}
                location /g {{ location ^~ /g/ {{ {pass} }} return 200 outer; }}
                location /h {{ return 200 outer; location /h {{ return 200 inner; }} location /h/ {{ {pass} }} }}
                location ~ ^/i {{ location /i/ {{ add_header X-Of location; {pass} }} return 200 pattern; }}
                location ~ ^/j {{ return 200 pattern; }} location /j/ {{ {pass} }}
                location /k/ {{ internal; {pass} }}
                location /l/ {{ client_max_body_size 1; {pass} }}
                location /m/ {{ return 200 no_proxy; }}
                location /n/ {{ {pass} }} location /n-o/ {{ {pass} }} location /n.o/ {{ {pass} }}"
            ).replacen("return 404 none;", "", 1),
        );
        let ask = |request: String| {
            let response = server.client().request(request);
            let of = |name| response.field(name).unwrap_or("").to_owned();
            let location = of("location");
            let to = location.strip_prefix("http://localhost").unwrap_or(&location);
            let to = to.find('/').map_or("", |at| &to[at..]).to_owned();
            let text = if response.status == 200 { response.text() } else { String::new() };
            (response.status, to + &text, of("x-of"))
        };
        let get = |path: &str| ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        for (path, status, said, of) in [
            ("/a", 200, "own", "server"),
            ("/b", 200, "own", "server"),
            ("/c", 200, "own", "server"),
            ("/d?x=1", 301, "/d/?x=1", "location"),
            ("/e", 301, "/e/", "server"),
            ("/f", 301, "/f/", "server"),
            ("/g", 301, "/g/", "server"),
            ("/h", 200, "inner", "server"),
            ("/i", 200, "backend", "location"),
            ("/j", 301, "/j/", "server"),
            ("/k", 404, "", ""),
            ("/m", 404, "", ""),
            ("/n", 301, "/n/", "server"),
            ("/n-o", 301, "/n-o/", "server"),
            ("/n.o", 301, "/n.o/", "server"),
        ] {
            assert_eq!(get(path), (status, said.to_owned(), of.to_owned()), "{path}");
        }
        assert_eq!(ask(upload("/l", 5) + "hello").0, 413);
        wait_for("the location's log", || (server.dir().read("d.log") == "/d 301\n").then_some(()));
    }

    fn what_an_answer_says_twice_is_heard_once(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let fields = match head.split(' ').nth(1) {
                    Some("/length") => "Content-Length: 0\r\n",
                    _ => "Expires: foo\r\nexpires: bar\r\nETag: \"1\"\r\nETag: \"2\"\r\nLink: a\r\nLink: b\r\nX-A: 1\r\nX-A: 2\r\n",
                };
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n"));
            }
        });
        let server = to(backend.port(), "");
        let response = server.get("/");
        let all = |name: &str| {
            let fields = response.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            fields.map(|(_, value)| value.clone()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(
            ["expires", "etag", "link", "x-a"].map(all),
            ["foo", "\"1\"", "a,b", "1,2"]
        );
        let line = server.error_log_line("duplicate header line");
        assert!(line.contains("[warn]") && line.contains(
            "upstream sent duplicate header line: \"expires: bar\", previous value: \"Expires: foo\", ignored while reading \
             response header from upstream, client: "
        ), "{line}");
        assert_eq!(server.get("/length").status, 502);
        let line = server.error_log_line("previous value: \"Content-Length: 0\"");
        assert!(line.contains("[error]"), "{line}");
    }

    fn fields_for_the_proxy_act(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nX-Accel-Limit-Rate: 5000\r\nContent-Length: 1\r\n\r\nx");
            }
        });
        for (directives, rate) in [("", "5000"), ("proxy_ignore_headers X-Accel-Limit-Rate;", "0")] {
            let server = to(backend.port(), &format!("add_header X-Rate $limit_rate; {directives}"));
            let response = server.get("/");
            let fields = ["x-rate", "x-accel-limit-rate"].map(|name| response.field(name));
            assert_eq!(fields, [Some(rate), None], "{directives}");
        }
    }

    /// As far as `client_body_buffer_size` holds it.
    fn a_body_that_was_passed_on_is_known(driver) {
        let backend = Backend::start(|visit| {
            let head = visit.head().unwrap_or_default();
            let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
            visit.bytes(length);
            visit.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        });
        let server = to(
            backend.port(),
            "proxy_request_buffering off; client_body_buffer_size 1k; proxy_intercept_errors on; error_page 404 /page; \
             } location /page { return 200 \"[$request_body]\";",
        );
        let mut client = server.client();
        assert_eq!(client.request(upload("/", 5) + "hello").text(), "[hello]");
        assert_eq!(server.client().request(upload("/", 1024) + &"x".repeat(1024)).text().len(), 1026);
        assert_eq!(server.client().request(upload("/", 1025) + &"x".repeat(1025)).text(), "[]");
    }

    /// The name was resolved for the other location; there is no resolver.
    fn an_address_that_another_location_names_needs_no_resolver(driver) {
        let backend = Backend::answering("there");
        let port = backend.port();
        let server = serve(
            "",
            &format!("location / {{ proxy_pass http://localhost:{port}; }} location /var {{ proxy_pass http://$arg_to; }}"),
        );
        assert_eq!(server.get(&format!("/var?to=LOCALHOST:{port}")).text(), "there");
        assert_eq!(server.get("/var?to=localhost:1").status, 502);
    }

    /// One location's address is another one for each request, on one connection and on several, with a body and without:
    /// what one request has found out is no other's.
    fn a_computed_address_is_that_of_its_request(driver) {
        let backend = |name: &'static str| Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                let length = head.to_ascii_lowercase().split_once("content-length: ").map_or(0, |(_, rest)| {
                    rest.split("\r\n").next().and_then(|length| length.parse().ok()).unwrap_or(0)
                });
                let body = visit.bytes(length).unwrap_or_default();
                let host = head.split_once("Host: ").and_then(|(_, rest)| rest.split("\r\n").next()).unwrap_or_default();
                let line = head.split("\r\n").next().unwrap_or_default();
                visit.answer(&format!("{name} {line} {host} {}", String::from_utf8_lossy(&body)));
            }
        });
        let (one, two) = (backend("one"), backend("two"));
        let server = serve(
            &format!(
                "upstream one {{ server 127.0.0.1:{}; keepalive 4; }} upstream two {{ server 127.0.0.1:{}; keepalive 4; }}",
                one.port(),
                two.port()
            ),
            &format!(
                "location / {{ set $a http; if ($arg_s) {{ set $a $arg_s; }} set $uri_of $arg_u; proxy_http_version 1.1; proxy_set_header Connection '';
                    proxy_next_upstream off; proxy_pass $a://$arg_h$uri_of; }}
                location /fixed {{ proxy_pass http://127.0.0.1:{}; }}",
                one.port()
            ),
        );
        let port = two.port();
        let rows = [
            ("h=one", 200, "one GET /?h=one HTTP/1.1 one "),
            ("h=two", 200, "two GET /?h=two HTTP/1.1 two "),
            ("h=two&u=/x", 200, "two GET /x HTTP/1.1 two "),
            ("h=two&u=?x", 200, "two GET /?x HTTP/1.1 two "),
            ("h=TWO&u=/y?z", 200, "two GET /y?z HTTP/1.1 TWO "),
            ("h=one&u=/x", 200, "one GET /x HTTP/1.1 one "),
            ("h=one%20&u=/x", 502, ""),
            ("h=one:81&u=/x", 502, ""),
            ("h=&u=/x", 500, ""),
            ("s=gopher&h=one", 500, ""),
            ("h=127.0.0.1:PORT&u=/x", 200, "two GET /x HTTP/1.1 127.0.0.1:PORT "),
            ("h=127.0.0.1:1&u=/x", 502, ""),
            ("h=none.example&u=/x", 502, ""),
            ("h=one&u=/x", 200, "one GET /x HTTP/1.1 one "),
        ];
        let mut kept = server.client();
        for round in 0..3 {
            for (query, status, text) in rows {
                let (query, text) = (query.replace("PORT", &port.to_string()), text.replace("PORT", &port.to_string()));
                let mut own = server.client();
                let client = if round == 0 { &mut own } else { &mut kept };
                let response = client.request(format!("GET /?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
                assert_eq!(response.status, status, "{query}: {response}");
                if status == 200 {
                    assert_eq!(response.text(), text, "{query}");
                    let posted = format!("POST /?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
                    let posted = client.request(posted);
                    assert_eq!(posted.text(), format!("{text}body").replace("GET", "POST"), "{query}");
                }
                if status == 500 {
                    kept = server.client();
                }
            }
        }
    }

    fn one_directive_passes_upgrades_on(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let head = head.to_ascii_lowercase();
                if !head.contains("upgrade: websocket\r\n") {
                    assert!(!head.contains("upgrade"), "{head}");
                    visit.answer("plain");
                    continue;
                }
                assert!(head.contains("connection: upgrade\r\n") && head.contains("sec-websocket-key: x\r\n"), "{head}");
                visit.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
                while let Some(byte) = visit.bytes(1) {
                    visit.send(&byte);
                }
                return;
            }
        });
        let server = to(backend.port(), "proxy_upgrade on;");
        assert_eq!(server.get("/").text(), "plain");
        let mut client = server.client();
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
        let response = client.request(request);
        assert_eq!((response.status, response.field("upgrade")), (101, Some("websocket")), "{response}");
        client.send("echo");
        assert_eq!(client.bytes(4), b"echo");
    }

    fn servers_are_told_who_the_client_is(driver) {
        for version in ["on", "v2"] {
            let backend = Backend::start(|visit| {
                let first = visit.bytes(6).unwrap_or_default();
                let from = if first == b"PROXY " {
                    let mut line = Vec::new();
                    while !line.ends_with(b"\r\n") {
                        line.extend(visit.bytes(1).expect("a line"));
                    }
                    let line = String::from_utf8(line).expect("text");
                    line.split(' ').nth(3).expect("a port").to_owned()
                } else {
                    let rest = visit.bytes(22).expect("addresses");
                    assert_eq!(&rest[6..14], [0x21, 0x11, 0, 12, 127, 0, 0, 1]);
                    u16::from_be_bytes([rest[18], rest[19]]).to_string()
                };
                while visit.head().is_some() {
                    visit.answer(&from);
                }
            });
            let server = serve(
                &format!("upstream u {{ server 127.0.0.1:{}; }}", backend.port()),
                &format!("location / {{ proxy_pass http://u; proxy_protocol {version}; }}"),
            );
            for _ in 0..3 {
                let mut client = server.client();
                let port = client.local_addr().port().to_string();
                assert_eq!(client.get("/").text(), port, "{version}");
            }
            assert_eq!(backend.visits(), 3, "a connection is one client's");
        }
    }

    fn retries_have_a_budget(driver) {
        let ports = [free_port(), free_port(), free_port()];
        let servers: String = ports.iter().map(|port| format!("server 127.0.0.1:{port} max_fails=0;")).collect();
        let server = serve(
            &format!("upstream u {{ {servers} retry_budget 50% min=0; }}"),
            "location / { proxy_pass http://u; }",
        );
        for _ in 0..4 {
            assert_eq!(server.get("/").status, 502);
        }
        // Half a retry is earned by each request.
        assert_eq!(
            final_log(server),
            ["502 retry_budget [502]", "502 retry_budget [502, 502]", "502 retry_budget [502]", "502 retry_budget [502, 502]"]
        );
    }

    fn a_server_that_hangs_at_connect_is_passed_over(driver) {
        let ((hung, _filled), alive) = (full(), Backend::answering("alive"));
        let port = hung.local_addr().expect("it is bound").port();
        let server = serve(
            &format!("upstream u {{ server 127.0.0.1:{port} fail_timeout=1h; server 127.0.0.1:{} backup; }}", alive.port()),
            "location / { proxy_pass http://u; proxy_connect_timeout 1s; }",
        );
        for _ in 0..3 {
            assert_eq!(server.get("/").text(), "alive");
        }
        assert_eq!(final_log(server), ["200 - [504, 200]", "200 - [200]", "200 - [200]"]);
    }

    /// The server closes what is idle for a second; after two such ends the proxy is first.
    fn idle_times_of_servers_are_learned(driver) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let closed_first = Arc::new(AtomicBool::new(false));
        let closed = closed_first.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let closed = closed.clone();
                thread::spawn(move || one_second(stream, &closed));
            }
        });
        let server = serve(&format!("upstream u {{ server 127.0.0.1:{port}; }}"), "location / { proxy_pass http://u; }");
        wait_for("end of a connection from this side", || {
            assert_eq!(server.get("/").status, 200);
            thread::sleep(Duration::from_millis(1900));
            closed_first.load(Ordering::SeqCst).then_some(())
        });
    }
}

/// Responds, and closes what is idle for a second; notes when the other side closes before.
fn one_second(mut stream: TcpStream, closed: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("not zero");
    let mut bytes = [0; 4096];
    loop {
        match read_some(&mut stream, &mut bytes) {
            Ok(0) => return closed.store(true, Ordering::SeqCst),
            Ok(_) => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("it reads"),
            Err(_) => return,
        }
    }
}

#[test]
fn mistakes_are_told() {
    for (text, message) in [
        ("upstream u { server 127.0.0.1:1; retry_budget 5; }", "invalid value \"5\""),
        ("upstream u { server 127.0.0.1:1; retry_budget 5% max=3; }", "invalid parameter \"max=3\""),
        ("server { proxy_protocol v3; }", "invalid value \"v3\""),
        (
            "server { proxy_upgrade h2c; }",
            "HTTP/2 can't be passed: its requests would be seen by no location",
        ),
        ("server { proxy_upgrade on websocket; }", "invalid parameter \"on\""),
    ] {
        let Err(exit) = Server::builder(&format!("http {{ {text} }}")).try_start() else {
            panic!("{text}: loaded")
        };
        assert!(exit.to_string().contains(message), "{text}: {exit}");
    }
}
