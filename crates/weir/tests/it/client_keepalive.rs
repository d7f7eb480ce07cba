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
}
