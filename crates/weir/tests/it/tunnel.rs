//! `tunnel_pass`: connections for clients that ask with CONNECT.

use std::net::Ipv4Addr;

use weir_test::{Backend, BackendVisit, Client, ConnectionEnd, NameReply, NameServer, Server, both_drivers};

/// Sends back what comes, until the other side has said all.
fn echo(visit: &mut BackendVisit) {
    while let Some(byte) = visit.bytes(1) {
        visit.send(byte);
    }
}

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: client\r\n\r\n")
}

/// Whether bytes come back through the tunnel that `client` asked for.
fn passes(mut client: Client, authority: &str, fields: &str) -> bool {
    client.send(connect(authority).replace("\r\n\r\n", &format!("\r\n{fields}\r\n")));
    client.until("\r\n\r\n");
    client.send("there and back");
    client.until("there and back");
    client.half_close();
    client.rest().1 == ConnectionEnd::Closed
}

both_drivers! {
    fn bytes_pass_both_ways(driver) {
        let backend = Backend::start(echo);
        let conf = "http { log_format t '$status $body_bytes_sent $upstream_addr $upstream_status $host $request_port $uri $request_uri';
            server { listen 127.0.0.1:%%PORT%%; access_log %%DIR%%/access.log t; add_header X-Told yes; tunnel_pass; } }";
        let server = Server::builder(conf).driver(driver).start();
        let to = format!("127.0.0.1:{}", backend.port());
        let mut client = server.client();
        // What comes with the request is the tunnel's, too.
        client.send(connect(&to) + "early");
        client.until("\r\n\r\nearly");
        client.send("later");
        client.until("later");
        client.half_close();
        let (bytes, end) = client.rest();
        assert_eq!(end, ConnectionEnd::Closed);
        let text = String::from_utf8_lossy(&bytes);
        let head = text.strip_suffix("earlylater").expect("nothing but what was sent");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("Connection: close\r\nX-Told: yes\r\n\r\n"), "{head}");
        assert!(!head.contains("Content-") && !head.contains("Transfer-"), "{head}");
        let line = server.access_log_lines(1).remove(0);
        assert_eq!(line, format!("200 10 {to} - 127.0.0.1 {} / /", backend.port()));
    }

    /// Both counts of the simulation's seeds 3003 and 3012, and nginx's.
    fn bytes_of_an_upgraded_connection_are_counted(driver) {
        const HEAD: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let backend = Backend::start(|visit| {
            let asked = visit.head().expect("a request").len();
            visit.send(HEAD);
            while visit.bytes(1).is_some() {}
            visit.send(vec![b'x'; 100_000]);
            visit.send(format!("asked={asked:08}"));
        });
        let conf = format!("http {{ log_format t '$upstream_bytes_sent $upstream_bytes_received $upstream_response_length';
            server {{ listen 127.0.0.1:%%PORT%%; access_log %%DIR%%/access.log t;
            location / {{ proxy_pass http://127.0.0.1:{}; proxy_upgrade on; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").until("\r\n\r\n");
        client.send(vec![b'y'; 5000]).half_close();
        let (bytes, _) = client.rest();
        let asked: usize = String::from_utf8_lossy(&bytes[bytes.len() - 8..]).parse().expect("a number");
        let line = server.access_log_lines(1).remove(0);
        assert_eq!(line, format!("{} {} 0", asked + 5000, HEAD.len() + 100_000 + "asked=00000000".len()));
    }

    /// nginx cuts both directions at the first FIN.
    fn what_a_server_says_after_its_client_has_ended_arrives(driver) {
        const MUCH: usize = 3_000_000;
        let backend = Backend::start(|visit| {
            let upgraded = visit.peer().is_some() && visit.bytes(3).is_some_and(|bytes| bytes == b"GET");
            if upgraded {
                visit.head();
                visit.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
            }
            while visit.bytes(1).is_some() {}
            visit.send(vec![b'x'; MUCH]);
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; access_log off; tunnel_pass;
            location /up {{ proxy_pass http://127.0.0.1:{}; proxy_upgrade on; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let upgrade = "GET /up HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".to_owned();
        for request in [connect(&format!("127.0.0.1:{}", backend.port())), upgrade] {
            let mut client = server.client();
            client.send(&request);
            client.until("\r\n\r\n");
            client.send("all that is said").half_close();
            let (bytes, end) = client.rest();
            assert_eq!(end, ConnectionEnd::Closed, "{request}");
            let tail = bytes.iter().rev().take_while(|byte| **byte == b'x').count();
            assert_eq!(tail, MUCH, "{request}");
        }
    }

    /// The other way: what a client says after the end of its server.
    fn what_a_client_says_after_its_server_has_ended_arrives(driver) {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; tunnel_pass; } }").driver(driver).start();
        let mut client = server.client();
        client.send(connect(&format!("127.0.0.1:{port}")));
        let (mut there, _) = listener.accept().expect("the tunnel");
        std::io::Write::write_all(&mut there, b"last words").expect("connected");
        there.shutdown(std::net::Shutdown::Write).expect("connected");
        client.until("last words");
        client.send("and the client's").half_close();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut there, &mut said).expect("all arrives");
        assert_eq!(said, "and the client's");
        assert_eq!(client.rest().1, ConnectionEnd::Closed);
    }

    fn much_passes_through_small_buffers(driver) {
        let backend = Backend::start(echo_pieces);
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
            tunnel_pass; tunnel_buffer_size 1k; tunnel_socket_sndbuf 8k; tunnel_socket_rcvbuf 8k; } }").driver(driver).start();
        let mut client = server.client();
        client.send(connect(&format!("127.0.0.1:{}", backend.port())));
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(client.bytes(1));
        }
        for _ in 0..8 {
            client.send(vec![b'x'; PIECE]);
            assert!(client.bytes(PIECE).iter().all(|byte| *byte == b'x'));
        }
        client.half_close();
        client.expect_close();
    }

    fn goals_are_names_addresses_groups_and_variables(driver) {
        let backend = Backend::start(echo);
        let names = NameServer::start(|_| NameReply::Addresses(vec![Ipv4Addr::LOCALHOST.into()], 60));
        let conf = format!("http {{ resolver {}; resolver_timeout 5s;
            upstream group {{ server 127.0.0.1:{}; }}
            server {{ listen 127.0.0.1:%%PORT%%; tunnel_pass; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; location / {{ tunnel_pass group; }} }}
            server {{ listen 127.0.0.1:%%PORT_2%%; location / {{ if ($request_method = CONNECT) {{ tunnel_pass $http_to; }} }} }}
        }}", names.address(), backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let port = backend.port();
        let at = |number: usize| Client::connect(server.addr(number));
        assert!(passes(server.client(), &format!("Example.test:{port}"), ""));
        assert!(passes(at(1), "anything:1", ""));
        assert!(passes(at(2), "anything:1", &format!("To: 127.0.0.1:{port}\r\n")));
        assert!(passes(at(2), "anything:1", "To: group\r\n"));
    }

    fn what_is_no_goal_is_refused(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
                error_page 502 /50x; location / { tunnel_pass $host:$request_port; } location /50x { return 200 'none $request_method'; } }
            server { listen 127.0.0.1:%%PORT_1%%; } }").driver(driver)
            .allow("upstream").allow("connect() failed").start();
        let status = |request: &str| server.client().request(request).status;
        let cases = [
            (connect("a.test"), 400), (connect("a.test:"), 400), (connect(":1"), 400), (connect(":"), 400),
            (connect("a.test:1/"), 400), (connect("a.test:1?"), 400), (connect("u:p@a.test:1"), 400),
            (connect("http://a.test:1"), 400), (connect("127.0.0.1:65536"), 400), (connect("127.0.0.1:x"), 400),
            (connect("127.0.0.1:0"), 500),
            (connect("127.0.0.1:1").replace("HTTP/1.1", "HTTP/1.0"), 405),
            (connect("127.0.0.1:1").replace("Host: client\r\n", ""), 400),
            (connect("127.0.0.1:1").replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\na"), 400),
            (connect("127.0.0.1:1").replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(), 405),
        ];
        for (request, wanted) in cases {
            assert_eq!(status(&request), wanted, "{request}");
        }
        let _ = server.error_log_line("client sent CONNECT request with body while reading client request headers");
        let _ = server.error_log_line("client sent invalid host in request line while reading client request line");
        let _ = server.error_log_line("invalid port in upstream \"127.0.0.1:\"");
        let closed = weir_test::free_port();
        let answer = server.client().request(connect(&format!("127.0.0.1:{closed}")));
        assert_eq!((answer.status, answer.text()), (502, "none GET".to_owned()));
        let mut other = Client::connect(server.addr(1));
        assert_eq!(other.request(connect("127.0.0.1:1")).status, 405, "no tunnels in this server");
        let _ = server.error_log_line("client sent CONNECT method while reading client request headers");
    }

    fn who_asks_shows_a_password(driver) {
        let backend = Backend::start(echo);
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; auth_basic 'closed proxy';
                auth_basic_user_file users; tunnel_pass; location /any { return 200; } }
            server { listen 127.0.0.1:%%PORT_1%%; satisfy any; deny all; auth_basic x; auth_basic_user_file users; tunnel_pass; } }")
            .file("users", "plain:{PLAIN}password\n").driver(driver).allow("forbidden").start();
        let to = format!("127.0.0.1:{}", backend.port());
        let shown = "Proxy-Authorization: Basic cGxhaW46cGFzc3dvcmQ=\r\n";
        for number in [0, 1] {
            let refused = Client::connect(server.addr(number)).request(connect(&to));
            assert_eq!((refused.status, refused.field("WWW-Authenticate")), (407, None));
            assert!(refused.field("Proxy-Authenticate").is_some_and(|field| field.starts_with("Basic realm=")));
            assert!(passes(Client::connect(server.addr(number)), &to, shown));
        }
        let other = connect(&to).replace("\r\n\r\n", &format!("\r\n{}\r\n", shown.replace("Proxy-", "")));
        assert_eq!(server.client().request(other).status, 407);
    }

    fn silence_ends_a_tunnel(driver) {
        let backend = Backend::start(|visit| visit.hang());
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; tunnel_pass; tunnel_read_timeout 50ms; } }")
            .driver(driver).start();
        let mut client = server.client();
        client.send(connect(&format!("127.0.0.1:{}", backend.port())));
        client.until("\r\n\r\n");
        assert_eq!(client.rest().1, ConnectionEnd::Closed);
        let line = server.error_log_line("upstream timed out (110: Connection timed out) while proxying upgraded connection");
        assert!(line.contains("[info]"), "{line}");
    }
}

const PIECE: usize = 64 * 1024;

/// As [`echo`] with pieces, each whole before it is sent back.
fn echo_pieces(visit: &mut BackendVisit) {
    while let Some(piece) = visit.bytes(PIECE) {
        visit.send(piece);
    }
}
