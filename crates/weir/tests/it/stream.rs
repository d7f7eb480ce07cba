//! `stream`: sessions over TCP, whatever protocol they speak.

use std::time::{Duration, Instant};

use weir_test::{
    Backend, BackendVisit, Client, ConnectionEnd, Server, TestServerBuilder, both_drivers, wait_for,
};

/// Sends back what comes, until the other side has said all.
fn echo(visit: &mut BackendVisit) {
    while let Some(byte) = visit.bytes(1) {
        visit.send(byte);
    }
}

/// What a session gets that sends nothing, and how it ends.
fn said(server: &Server, port: usize) -> (String, ConnectionEnd) {
    let (bytes, end) = Client::connect(server.addr(port)).rest();
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

fn stream(text: &str) -> TestServerBuilder {
    Server::builder(&format!("stream {{ {text} }}"))
}

both_drivers! {
    fn bytes_pass_both_ways_and_are_counted(driver) {
        let backend = Backend::start(echo);
        for workers in [1, 3] {
            let conf = format!("worker_processes {workers}; stream {{
                log_format t '$protocol $status $bytes_received $bytes_sent $upstream_addr $upstream_bytes_sent $upstream_bytes_received $session_time $upstream_connect_time';
                access_log %%DIR%%/access.log t;
                server {{ listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:{}; }} }}", backend.port());
            let server = Server::builder(&conf).driver(driver).start();
            let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
            for (at, client) in clients.iter_mut().enumerate() {
                let text = format!("session {at} says this");
                client.send(&text);
                client.until(&text);
            }
            drop(clients);
            for line in server.access_log_lines(5) {
                let expected = format!("TCP 200 19 19 127.0.0.1:{} 19 19 ", backend.port());
                assert!(line.starts_with(&expected), "{line}");
                let times: Vec<&str> = line[expected.len()..].split(' ').collect();
                assert!(times.iter().all(|time| time.parse::<f64>().is_ok()) && times.len() == 2, "{line}");
            }
        }
    }

    fn much_arrives_whole_in_both_directions(driver) {
        const MUCH: usize = 6_000_000;
        let backend = Backend::start(|visit| {
            let part = |at: usize| (at % 251) as u8;
            let sent: Vec<u8> = (0..MUCH).map(part).collect();
            let received = visit.bytes(MUCH);
            if received.as_deref() == Some(&sent[..]) {
                visit.send(sent);
            }
        });
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:{}; }}", backend.port()))
            .driver(driver).start();
        let mut client = server.client();
        let sent: Vec<u8> = (0..MUCH).map(|at| (at % 251) as u8).collect();
        client.send(&sent);
        assert!(client.bytes(MUCH) == sent);
        client.expect_close();
    }

    /// As nginx closes it: a client whose bytes nothing has read sees that it was not served.
    fn a_session_without_a_server_is_reset_where_bytes_are_unread(driver) {
        let (sender, sent) = std::sync::mpsc::channel::<()>();
        let sent = std::sync::Mutex::new(sent);
        let backend = Backend::start(move |visit| {
            visit.bytes(1);
            sent.lock().expect("no panic").recv().expect("the client has sent");
        });
        let server = stream(&format!(
            "server {{ listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:{}; proxy_ssl on; }}", backend.port()))
            .driver(driver).allow("SSL").start();
        let mut client = server.client();
        client.send("unread");
        sender.send(()).expect("the backend waits");
        assert_eq!(client.rest(), (Vec::new(), ConnectionEnd::Reset));
        let mut silent = server.client();
        sender.send(()).expect("the backend waits");
        assert_eq!(silent.rest(), (Vec::new(), ConnectionEnd::Closed));
    }

    fn a_session_ends_with_the_first_side_that_ends_unless_half_close_is_on(driver) {
        let backend = Backend::start(|visit| {
            while visit.bytes(1).is_some() {}
            visit.send("last words");
        });
        let to = format!("proxy_pass 127.0.0.1:{};", backend.port());
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%%; {to} }}
            server {{ listen 127.0.0.1:%%PORT_1%%; {to} proxy_half_close on; }}")).driver(driver).start();
        let rest = |port: usize| {
            let mut client = Client::connect(server.addr(port));
            client.send("all").half_close();
            String::from_utf8_lossy(&client.rest().0).into_owned()
        };
        assert_eq!((rest(0), rest(1)), (String::new(), "last words".to_owned()));
        assert!(server.error_log_line("client disconnected, bytes from/to client:3/0, bytes from/to upstream:0/3").contains("[info]"));
    }

    fn what_sessions_share_with_requests_holds_for_them(driver) {
        let server = stream("
            map $remote_addr $mapped { default other; 127.0.0.1 'from home'; }
            geo $net { default far; 127.0.0.0/8 near; }
            split_clients $remote_addr $part { 100% all; }
            limit_conn_zone $binary_remote_addr zone=one:1m;
            log_format t '$server_port $status $bytes_sent $limit_conn_status';
            access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT%%; set $own \"$mapped and\"; return \"$own $net $part $protocol $server_addr\"; }
            server { listen 127.0.0.1:%%PORT_1%%; deny 127.0.0.1; return no; }
            server { listen 127.0.0.1:%%PORT_2%% proxy_protocol; set_real_ip_from 127.0.0.0/8; allow 192.0.2.7; deny all;
                return '$remote_addr $realip_remote_addr $proxy_protocol_port'; }
            server { listen 127.0.0.1:%%PORT_3%%; limit_conn one 1; proxy_pass 127.0.0.1:%%PORT_4%%; }
            server { listen 127.0.0.1:%%PORT_4%% proxy_protocol; proxy_protocol_timeout 1h; return never; }
        ").driver(driver).start();
        let text = "from home and near all TCP 127.0.0.1".to_owned();
        assert_eq!(said(&server, 0), (text.clone(), ConnectionEnd::Closed));
        assert_eq!(said(&server, 1).0, "");
        assert!(server.error_log_line("access forbidden by rule, client: 127.0.0.1, server: 127.0.0.1:").contains("[error]"));
        let with_header = |header: &str| {
            let mut client = Client::connect(server.addr(2));
            client.send(header);
            String::from_utf8_lossy(&client.rest().0).into_owned()
        };
        assert_eq!(with_header("PROXY TCP4 192.0.2.7 192.0.2.1 1000 80\r\n"), "192.0.2.7 127.0.0.1 1000");
        assert_eq!(with_header("PROXY TCP4 192.0.2.8 192.0.2.1 1000 80\r\n"), "");
        assert_eq!(with_header("GET / HTTP/1.0\r\n\r\n"), "");
        let lines = server.access_log_lines(5);
        let port = |number: usize| server.port(number);
        let expected = [
            format!("{} 200 {} -", port(0), text.len()),
            format!("{} 403 0 -", port(1)),
            format!("{} 200 24 -", port(2)),
            format!("{} 403 0 -", port(2)),
            format!("{} 400 0 -", port(2)),
        ];
        assert_eq!(lines, expected);
        // It has its place as long as it says nothing: what it sends is no PROXY header.
        let first = Client::connect(server.addr(3));
        assert!(server.error_log_line(&format!("connected to 127.0.0.1:{}", port(3))).contains("[info]"));
        assert_eq!(wait_for("the second session is refused", || {
            said(&server, 3);
            server.access_log_lines(6).into_iter().find(|line| line.contains("REJECTED"))
        }), format!("{} 503 0 REJECTED", port(3)));
        drop(first);
    }

    fn the_next_server_is_connected_to_and_a_status_says_when_there_is_no_other(driver) {
        let backend = Backend::start(echo);
        let closed = weir_test::free_port();
        let server = stream(&format!("
            log_format t '$status $upstream_addr $upstream_cause';
            access_log %%DIR%%/access.log t;
            upstream some {{ server 127.0.0.1:{closed}; server 127.0.0.1:{}; }}
            server {{ listen 127.0.0.1:%%PORT%%; proxy_pass some; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; proxy_pass 127.0.0.1:{closed}; }}
            server {{ listen 127.0.0.1:%%PORT_2%%; set $to nowhere.example:1; proxy_pass $to; }}
            upstream first {{ server 127.0.0.1:{closed}; server 127.0.0.1:{} backup; }}
            server {{ listen 127.0.0.1:%%PORT_3%%; proxy_next_upstream off; proxy_pass first; }}
        ", backend.port(), backend.port())).driver(driver).start();
        let mut client = server.client();
        client.send("there and back");
        client.until("there and back");
        drop(client);
        let to = format!("127.0.0.1:{closed}, 127.0.0.1:{}", backend.port());
        assert_eq!(server.access_log_lines(1).remove(0), format!("200 {to} connect_refused, -"));
        said(&server, 1);
        assert_eq!(server.access_log_lines(2).remove(1), format!("502 127.0.0.1:{closed} connect_refused"));
        assert!(server.error_log_line("connect() failed (111: Connection refused) while connecting to upstream, client: 127.0.0.1, server: 127.0.0.1:").contains("[error]"));
        assert!(server.error_log_line("bytes from/to client:0/0, bytes from/to upstream:0/0").contains("[error]"));
        said(&server, 2);
        assert_eq!(server.access_log_lines(3).remove(2), "500 - -");
        said(&server, 3);
        assert_eq!(server.access_log_lines(4).remove(3), format!("502 127.0.0.1:{closed} connect_refused"));
    }

    fn rates_hold_each_direction_back(driver) {
        let backend = Backend::start(|visit| {
            let all = visit.bytes(3000).map_or(0, |bytes| bytes.len());
            visit.send(vec![b'x'; all]);
        });
        let to = format!("proxy_pass 127.0.0.1:{};", backend.port());
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%%; {to} proxy_upload_rate 1000; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; {to} proxy_download_rate 1000; }}")).driver(driver).start();
        for port in [0, 1] {
            let begun = Instant::now();
            let mut client = Client::connect(server.addr(port));
            client.send(vec![b'y'; 3000]);
            assert_eq!(client.bytes(3000).len(), 3000);
            // A second's bytes are free at its beginning.
            assert!(begun.elapsed() >= Duration::from_millis(1900), "{port}: {:?}", begun.elapsed());
        }
    }

    fn sessions_go_on_over_a_reload_and_a_stop_waits_for_them(driver) {
        let backend = Backend::start(echo);
        let conf = |extra: &str| format!("stream {{ server {{ listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:{}; }} {extra} }}", backend.port());
        let mut server = Server::builder(&conf("server { listen 127.0.0.1:%%PORT_1%%; return old; }")).driver(driver).start();
        let mut client = server.client();
        client.send("before");
        client.until("before");
        assert_eq!(said(&server, 1).0, "old");
        server.reload(&conf("server { listen 127.0.0.1:%%PORT_1%%; return new; }"));
        wait_for("the new configuration", || (said(&server, 1).0 == "new").then_some(()));
        client.send("after");
        client.until("after");
        // The address is gone, its session is not.
        server.reload("stream { server { listen 127.0.0.1:%%PORT_1%%; return last; } }");
        wait_for("the last configuration", || (said(&server, 1).0 == "last").then_some(()));
        client.send("still there");
        client.until("still there");
        server.signal(weir_test::ServerSignal::Quit);
        client.send("to the end");
        client.until("to the end");
        drop(client);
        assert!(server.wait_exit().status.success());
    }

    /// The variables and zones of both are apart, and requests know nothing of sessions.
    fn http_and_stream_are_served_by_one_program(driver) {
        let server = Server::builder("
            http { map $uri $kind { default request; } limit_conn_zone $uri zone=z:1m;
                server { listen 127.0.0.1:%%PORT%%; location / { limit_conn z 5; return 200 $kind; } } }
            stream { map $protocol $kind { default session; } limit_conn_zone $remote_addr zone=z:1m;
                server { listen 127.0.0.1:%%PORT_1%%; limit_conn z 5; return $kind; } }
        ").driver(driver).start();
        assert_eq!(server.get("/").text(), "request");
        assert_eq!(said(&server, 1).0, "session");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, message) in [
        ("stream { server { listen 127.0.0.1:%%PORT%%; } }", "no handler for server"),
        ("stream { server { return x; } }", "no \"listen\" is defined for server"),
        ("stream { server { listen 127.0.0.1:%%PORT%%; return $uri; } }", "unknown \"uri\" variable"),
        (
            "stream { server { listen 127.0.0.1:%%PORT%%; return x; gzip on; } }",
            "\"gzip\" directive is not allowed here",
        ),
        (
            "stream { server { listen 127.0.0.1:%%PORT%%; return x; location / { } } }",
            "\"location\" directive is not allowed here",
        ),
        ("stream { } stream { }", "\"stream\" directive is duplicate"),
        (
            "stream { server { listen 127.0.0.1:%%PORT%%; pass localhost:80; } }",
            "no addresses in pass \"localhost:80\"",
        ),
        (
            "stream { server { listen 127.0.0.1:%%PORT%% http2; return x; } }",
            "the \"http2\" parameter is not supported in \"stream\"",
        ),
        (
            "stream { server { listen 127.0.0.1:%%PORT%% ssl; return x; } }",
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive",
        ),
        ("stream { access_log logs/a.log; }", "log format is not specified"),
        ("stream { upstream u { server 127.0.0.1; } }", "no port in upstream \"127.0.0.1\""),
        (
            "stream { upstream u { server 127.0.0.1:1; ip_hash; } }",
            "\"ip_hash\" directive is not allowed here",
        ),
        (
            "stream { server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1; } }",
            "no port in upstream \"127.0.0.1\"",
        ),
        (
            "http { server { listen 127.0.0.1:%%PORT%%; } } stream { server { listen 127.0.0.1:%%PORT%%; return x; } }",
            "is listened on in \"http\" and in \"stream\"",
        ),
        (
            "http { server { listen 127.0.0.1:%%PORT%%; proxy_half_close on; } }",
            "\"proxy_half_close\" directive is not allowed here",
        ),
    ] {
        let exit = Server::builder(text).run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(message), "{text}: {}", exit.stderr);
    }
}
