//! Connections between requests: how long they are kept alive, and what is logged when no request comes.

use crate::support;

use weir_test::{Client, Server, ServerSignal, both_drivers};

use support::get;

both_drivers! {
    fn a_location_says_how_many_requests_a_connection_takes(driver) {
        let server = Server::start(
            "http { keepalive_requests 2; server { listen 127.0.0.1:%%PORT%%;
                location / { return 200; } location /more { keepalive_requests 4; return 200; } } }",
        );
        for (path, count) in [("/", 2), ("/more", 4)] {
            let mut client = server.client();
            for number in 1..=count {
                assert_eq!(client.request(get(path)).keeps_alive(), number < count, "{path} {number}");
            }
            client.expect_close();
        }
    }

    /// nginx's words at `info`: with context before the first request, without between requests.
    fn who_leaves_is_logged(driver) {
        let server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT%%; return 200; }
                server { listen 127.0.0.1:%%PORT_1%%; client_header_timeout 3s; return 200; } }",
        );
        let (addr, short) = (server.addr(0), server.addr(1));
        let check = |reported: &str, context: &str| {
            let line = server.error_log_line(reported);
            assert!(line.ends_with(&format!("{reported}{context}")), "{line}");
        };
        let address = format!(", client: 127.0.0.1, server: {addr}");
        drop(server.client());
        check("client closed connection while waiting for request", &address);
        Client::connect(short).expect_close();
        let address = format!(", client: 127.0.0.1, server: {short}");
        check("client timed out (110: Connection timed out) while waiting for request", &address);
        server.client().request(get("/"));
        check("client 127.0.0.1 closed keepalive connection", "");
        server.client().send("GET / HT");
        let request = ", client: 127.0.0.1, server: , request: \"GET / HT\"";
        check("client prematurely closed connection while reading client request line", request);
        server.client().send(get("/") + "GET /").response();
        let request = ", client: 127.0.0.1, server: , request: \"GET /\"";
        check("client prematurely closed connection while reading client pipelined request line", request);
        Client::connect(short).send("GET / HTTP/1.1\r\n").expect_close();
        let request = ", client: 127.0.0.1, server: , request: \"GET / HTTP/1.1\"";
        check("client timed out (110: Connection timed out) while reading client request headers", request);
    }

    /// Clients that have just had a response may send one more request while the server ends.
    fn a_graceful_stop_waits_for_keepalive_min_timeout(driver) {
        let mut server = Server::start(
            "http { keepalive_min_timeout 30s; server { listen 127.0.0.1:%%PORT%%;
                location / { return 200 kept; } } }",
        );
        let mut client = server.client();
        assert!(client.request(get("/")).keeps_alive());
        server.signal(ServerSignal::Quit);
        let _ = server.error_log_line("gracefully shutting down");
        let answer = client.request(get("/"));
        assert_eq!((&*answer.text(), answer.keeps_alive()), ("kept", false));
        client.expect_close();
    }

    /// A head that comes again is not read again: that changes nothing, in a pipeline and one at a time, beside heads of
    /// the same length that differ, with bodies and without, on several connections, over a reload.
    fn heads_that_come_again_are_those_that_they_are(driver) {
        let mut server = Server::start(TWO_HOSTS);
        let head = |path: &str, host: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        let requests = [
            (head("/1?v=2", "a", "X: 1\r\n"), "GET /1?v=2 HTTP/1.1|a|1|2|"),
            (head("/1?v=2", "a", "X: 2\r\n"), "GET /1?v=2 HTTP/1.1|a|2|2|"),
            (head("/1?v=3", "a", "X: 1\r\n"), "GET /1?v=3 HTTP/1.1|a|1|3|"),
            (head("/1?v=2", "b", "X: 1\r\n"), "b's /1"),
            (head("/1?v=2", "a", "Y: 1\r\n"), "GET /1?v=2 HTTP/1.1|a||2|"),
            (head("/1", "a", "Content-Length: 5\r\n") + "GET /", "GET /1 HTTP/1.1|a|||5"),
            (head("/1", "a", "Content-Length: 0\r\n"), "GET /1 HTTP/1.1|a|||0"),
        ];
        let mut clients = [server.client(), server.client()];
        for round in 0..4 {
            for (request, expected) in requests.iter().chain(requests.iter().rev()) {
                for client in &mut clients {
                    assert_eq!(client.request(request).text(), *expected);
                    // Twice in one piece, and another one after it.
                    client.send(request.repeat(2) + &requests[round].0);
                    for expected in [*expected, *expected, requests[round].1] {
                        assert_eq!(client.response().text(), expected);
                    }
                }
            }
            if round == 1 {
                server.reload(TWO_HOSTS);
            }
        }
        // What is wrong is refused after what is right, however alike they are.
        let (request, expected) = &requests[0];
        for wrong in [request.replace("X: 1", "X: \0"), request.replace("Host: a", "Host:a b").replace("X: 1", "X:")] {
            let mut client = server.client();
            client.send(request.repeat(2) + &wrong);
            for _ in 0..2 {
                assert_eq!(client.response().text(), *expected);
            }
            assert_eq!(client.response().status, 400);
            client.expect_close();
        }
    }
}

/// Two servers that say what they were asked for.
const TWO_HOSTS: &str = "http {
    server { listen 127.0.0.1:%%PORT%%; server_name a;
        location / { return 200 \"$request|$host|$http_x|$arg_v|$content_length\"; } }
    server { listen 127.0.0.1:%%PORT%%; server_name b; return 200 \"$host's $uri\"; } }";
