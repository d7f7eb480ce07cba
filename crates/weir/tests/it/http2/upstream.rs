//! `grpc_pass` and `proxy_http_version 2`: servers that are spoken to in HTTP/2.

use weir_http::h2::ErrorCode;
use weir_test::{Backend, Server, TestServerBuilder, both_drivers, wait_for};

use super::client::Client;
use super::peer::{BIG, Peer};
use super::tls::own;

fn conf(peer: &Peer, locations: &str) -> TestServerBuilder {
    Server::builder(&format!(
        "http {{ upstream u {{ server 127.0.0.1:{}; }}
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; proxy_http_version 2; {locations} }} }}",
        peer.port
    ))
}

/// An upstream of one server with a check.
fn checked(peer: &Peer, check: &str) -> TestServerBuilder {
    Server::builder(&format!(
        "http {{ upstream u {{ server 127.0.0.1:{}; {check} }}
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; {GRPC} }} }}",
        peer.port
    ))
}

fn websockets(peer: &Peer) -> TestServerBuilder {
    conf(
        peer,
        "location / { proxy_pass http://u; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }",
    )
}

/// The key of RFC 6455's example.
const UPGRADE: &str = "GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const GRPC: &str = "location / { grpc_pass grpc://u; }";
const FIELDS: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];

both_drivers! {
    /// What is sent in one direction does not wait for the end of the other.
    fn both_directions_go_on_at_once(driver) {
        let peer = Peer::start();
        let server = conf(&peer, GRPC).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let key = client.begin_body("/echo", &FIELDS);
        let mut expected = Vec::new();
        for round in 0..20 {
            let piece = format!("piece {round};").repeat(1 + round * 50);
            client.send(key, piece.as_bytes(), false);
            expected.extend_from_slice(piece.as_bytes());
            let len = expected.len();
            client.until("the echo", |client| client.answers[&key].body.len() == len);
        }
        client.send(key, b"", true);
        let answer = client.answer(key);
        assert_eq!((answer.status, answer.body), (200, expected));
        assert!(answer.trailers.contains(&("grpc-status".into(), "0".into())), "{:?}", answer.trailers);
        let seen = peer.seen();
        let field = |name: &str| seen.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        assert_eq!((field(":method"), field(":scheme"), field("te")), (Some("POST"), Some("http"), Some("trailers")));
        assert_eq!(field(":authority"), Some("u"));
    }

    /// Also those that come while the connection is being made.
    fn requests_share_a_connection(driver) {
        let peer = Peer::start();
        let server = conf(&peer, &format!("{GRPC} location /proxied/ {{ proxy_pass http://u/; }}")).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let keys: Vec<_> = (0..60).map(|_| client.get("/conn")).collect();
        for key in keys {
            assert_eq!(client.answer(key).text(), "1");
        }
        assert_eq!(client.fetch("/proxied/conn").text(), "1");
        assert_eq!(peer.seen().connections, 1);
    }

    /// Seed 6013 of the simulation: those that were busy when the last one was opened stayed for `keepalive_timeout`.
    fn idle_connections_are_as_many_as_keepalive_says(driver) {
        let peers = [Peer::start(), Peer::start(), Peer::start()];
        let servers: String = peers.iter().map(|peer| format!("server 127.0.0.1:{};", peer.port)).collect();
        let server = Server::builder(&format!("http {{ upstream u {{ {servers} keepalive 1; }}
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; {GRPC} }} }}")).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let keys: Vec<_> = peers.iter().map(|_| client.begin_body("/echo", &FIELDS)).collect();
        for key in &keys {
            client.send(*key, b"some", false);
            client.until("the echo", |client| client.answers[key].body.len() == 4);
        }
        let sum = |count: fn(&Peer) -> usize| peers.iter().map(count).sum::<usize>();
        assert_eq!((sum(|peer| peer.seen().connections), sum(|peer| peer.seen().ended)), (3, 0));
        for key in keys {
            client.send(key, b"", true);
            assert_eq!(client.answer(key).status, 200);
        }
        wait_for("two ends", || (sum(|peer| peer.seen().ended) == 2).then_some(()));
        assert_eq!(client.fetch("/conn").status, 200);
    }

    /// A WebSocket of either kind of client is a stream of the server's connection (RFC 8441), beside its other streams.
    fn websockets_are_streams_of_servers(driver) {
        let peer = Peer::start();
        let server = websockets(&peer).driver(driver).start();
        let mut old = server.client();
        old.send(UPGRADE);
        let head = old.response_to_head();
        let named = |name: &str| head.field(name).map(str::to_owned);
        assert_eq!((head.status, named("upgrade").as_deref()), (101, Some("websocket")));
        assert_eq!(named("sec-websocket-accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "RFC 6455 section 1.3");
        let seen = peer.seen().fields.clone();
        let field = |name: &str| seen.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        assert_eq!((field(":method"), field(":protocol"), field(":path")), (Some("CONNECT"), Some("websocket"), Some("/echo")));
        assert_eq!((field(":scheme"), field("sec-websocket-version")), (Some("http"), Some("13")));
        assert_eq!((field("upgrade"), field("connection"), field("sec-websocket-key")), (None, None, None));
        let mut new = Client::connect(server.addr(0));
        new.until("settings", |client| client.conn.remote().connect_protocol);
        let key = new.tunnel("websocket", "/echo", b"begin ");
        let large = "0123456789".repeat(20_000);
        for round in 0..3 {
            let word = format!("word {round};");
            old.send(&word);
            assert_eq!(old.bytes(word.len()), word.as_bytes());
            new.send(key, large.as_bytes(), false);
            let length = 6 + (round + 1) * large.len();
            new.until("the echo", |client| client.answers[&key].body.len() == length);
        }
        assert_eq!((new.answers[&key].status, peer.seen().connections), (200, 1));
        assert_eq!(new.fetch("/conn").text(), "1");
        old.abort();
        new.reset(key);
        wait_for("the end of both streams", || (peer.seen().resets.len() == 2).then_some(()));
        assert_eq!(new.fetch("/conn").text(), "1", "the connection stays");
    }

    /// A server whose settings do not allow them is not asked.
    fn a_server_without_websockets_is_not_asked_for_one(driver) {
        let peer = Peer::start_with(false);
        let server = websockets(&peer).driver(driver).start();
        let mut client = server.client();
        client.send(UPGRADE);
        assert_eq!(client.response().status, 502);
        assert!(server.error_log_line("WebSockets over HTTP/2").contains("upstream does not take"));
        assert_eq!(peer.seen().paths, [""; 0]);
    }

    /// A response other than success is passed on as it is.
    fn a_refused_websocket_is_an_answer(driver) {
        let peer = Peer::start();
        let server = websockets(&peer).driver(driver).start();
        let mut client = server.client();
        client.send(UPGRADE.replace("/echo", "/forbidden"));
        assert_eq!(client.response().status, 403);
    }

    /// gRPC's health protocol takes a server out and back.
    fn servers_are_checked_by_grpc(driver) {
        let peer = Peer::start();
        peer.seen().health = 2;
        let check = "health_check type=grpc grpc_service=pkg.Service interval=50ms timeout=60s;";
        let server = checked(&peer, check).driver(driver).start();
        let line = server.error_log_line("peer is unhealthy");
        assert!(line.contains("peer is unhealthy: the service is NOT_SERVING, health check of peer 127.0.0.1:"), "{line}");
        let mut client = Client::connect(server.addr(0));
        assert_eq!(client.fetch("/conn").status, 502);
        peer.seen().health = 1;
        assert!(server.error_log_line("peer is healthy").contains("[notice]"));
        assert_eq!(client.fetch("/conn").status, 200);
        assert!(peer.seen().paths.iter().any(|path| path == "/grpc.health.v1.Health/Check"));
    }

    /// A server without the health protocol says so, and may be well for all that.
    fn a_status_may_be_wanted(driver) {
        let peer = Peer::start();
        let server = checked(&peer, "health_check type=grpc interval=50ms timeout=60s;").driver(driver).start();
        let line = server.error_log_line("peer is unhealthy");
        assert!(line.contains("the gRPC status was 12"), "{line}");
        let with = "health_check type=grpc grpc_status=12 mandatory interval=50ms timeout=60s;";
        let server = checked(&peer, with).driver(driver).start();
        assert!(server.error_log_line("peer is healthy").contains("[notice]"));
        assert_eq!(Client::connect(server.addr(0)).fetch("/conn").status, 200);
    }

    /// An address alone has a connection for each request, as in nginx.
    fn what_is_not_kept_is_not_shared(driver) {
        let peer = Peer::start();
        let location = format!("location / {{ grpc_pass 127.0.0.1:{}; }}", peer.port);
        let server = conf(&peer, &location).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        assert_eq!((client.fetch("/conn").text(), client.fetch("/conn").text()), ("1".into(), "2".into()));
        wait_for("the end of both connections", || (peer.seen().ended == 2).then_some(()));
    }

    /// What a server has not begun with is sent again, content and all.
    fn refused_requests_are_sent_again(driver) {
        let peer = Peer::start();
        let server = conf(&peer, GRPC).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let key = client.open("POST", "/refused", &FIELDS, Some(b"hello"));
        assert_eq!(client.answer(key).status, 200);
        let key = client.get("/away");
        let answer = client.answer(key);
        assert_eq!((answer.status, answer.text()), (200, "2".to_owned()), "on another connection");
        let times = |path: &str| peer.seen().paths.iter().filter(|it| *it == path).count();
        assert_eq!((times("/refused"), times("/away")), (2, 2));
    }

    fn errors_reach_the_client(driver) {
        let peer = Peer::start();
        let server = conf(&peer, GRPC).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let key = client.open("POST", "/rejected", &FIELDS, Some(b"hello"));
        assert_eq!(client.answer(key).status, 502);
        let _ = server.error_log_line("upstream rejected request with error 2 while reading response header from upstream");
        let broken = client.fetch("/broken");
        assert!(broken.status == 502 || broken.reset.is_some(), "{broken:?}");
        let status = client.fetch("/status");
        assert_eq!((status.status, status.field("grpc-status"), status.body.len()), (200, Some("12"), 0));
        assert_eq!(client.fetch("/conn").status, 200);
    }

    /// A client that gives up ends its own stream and no other.
    fn who_gives_up_is_told_to_the_server(driver) {
        let peer = Peer::start();
        let server = conf(&peer, GRPC).driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        let silent = client.open("POST", "/silent", &FIELDS, Some(b"hello"));
        wait_for("the request", || peer.seen().paths.contains(&"/silent".to_owned()).then_some(()));
        client.reset(silent);
        wait_for("the reset", || peer.seen().resets.contains(&("/silent".into(), ErrorCode::Cancel)).then_some(()));
        let echo = client.begin_body("/echo", &FIELDS);
        client.send(echo, b"one", false);
        client.until("the echo", |client| client.answers[&echo].body.len() == 3);
        client.reset(echo);
        wait_for("the reset", || peer.seen().resets.contains(&("/echo".into(), ErrorCode::Cancel)).then_some(()));
        assert_eq!(client.fetch("/conn").text(), "1", "the connection stays");
    }

    /// A server sends no more than the client takes, and others on the same connection do not wait for it.
    fn a_slow_client_slows_its_own_stream(driver) {
        let peer = Peer::start();
        let server = conf(&peer, GRPC).driver(driver).start();
        let mut slow = Client::with_window(server.addr(0), 65_535);
        slow.reads = false;
        let big = slow.get("/big");
        slow.until("some of it", |client| client.answers[&big].body.len() == 65_535);
        let mut quick = Client::connect(server.addr(0));
        for _ in 0..20 {
            assert_eq!(quick.fetch("/conn").text(), "1");
        }
        assert!(peer.seen().sent["/big"] < BIG as u64 / 4, "{}", peer.seen().sent["/big"]);
        let mut reader = Client::connect(server.addr(0));
        assert_eq!(reader.fetch("/big").body.len(), BIG);
    }

    /// Content from memory, from a file, and as it comes; to a server that wants all of it first.
    fn content_of_any_size_goes_to_the_server(driver) {
        let peer = Peer::start();
        let server = conf(&peer, "client_max_body_size 0; location / { proxy_pass http://u; }
            location /now/ { proxy_pass http://u/; proxy_request_buffering off; }
            location /set/ { proxy_pass http://u/; proxy_set_body 'four'; }
            location /grpc/ { rewrite ^/grpc(.*) $1 break; grpc_pass u; }").driver(driver).start();
        for len in [0, 5, 16_384, 1_000_000] {
            for path in ["/whole", "/now/whole", "/grpc/whole"] {
                let body = vec![b'x'; len];
                let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
                let answer = server.client().request([head.as_bytes(), &body].concat());
                assert_eq!((answer.status, answer.text()), (200, len.to_string()), "HTTP/1 {path}");
                let mut client = Client::connect(server.addr(0));
                let key = client.open("POST", path, &[], Some(&body));
                assert_eq!(client.answer(key).text(), len.to_string(), "HTTP/2 {path}");
            }
        }
        assert_eq!(server.get("/set/whole").text(), "4");
        let chunked = "POST /now/whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(server.client().request(chunked).text(), "3");
    }

    /// A client of HTTP/1 gets a response while it still sends its content.
    fn clients_of_http_1_are_answered_while_they_send(driver) {
        let peer = Peer::start();
        let server = conf(&peer, GRPC).driver(driver).start();
        let mut client = server.client();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        client.until("abc\r\n");
        client.send("3\r\ndef\r\n");
        client.until("def\r\n");
        let answer = client.request("0\r\n\r\n");
        assert_eq!((answer.status, answer.text()), (200, "abcdef".to_owned()));
    }

    fn servers_are_asked_over_tls(driver) {
        let pair = own("a.example.com");
        let server = Server::builder("http { upstream s { server 127.0.0.1:%%PORT_1%%; }
            grpc_ssl_server_name on; grpc_ssl_name a.example.com; grpc_ssl_trusted_certificate a.crt; grpc_ssl_verify on;
            server { listen 127.0.0.1:%%PORT%%; http2 on; proxy_http_version 2;
                location / { grpc_pass grpcs://s; }
                location /one { grpc_pass grpcs://127.0.0.1:%%PORT_1%%; grpc_ssl_name b.example.com; }
                location /proxied { proxy_pass https://s; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; http2 on; ssl_certificate a.crt; ssl_certificate_key a.key;
                return 200 '$ssl_server_name $server_protocol $scheme $ssl_alpn_protocol'; } }")
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        assert_eq!(server.get("/").text(), "a.example.com HTTP/2.0 https h2");
        assert_eq!(server.get("/proxied").text(), " HTTP/2.0 https h2");
        assert_eq!(server.get("/one").status, 502, "another name");
        let _ = server.error_log_line("upstream SSL certificate does not match \"b.example.com\"");
    }

    /// A server that speaks HTTP/1 does not speak this.
    fn other_protocols_are_no_answers(driver) {
        let old = Backend::start(|visit| {
            while visit.bytes(24).is_some() {
                visit.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            }
        });
        let server = Server::builder(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ grpc_pass 127.0.0.1:{}; }} }} }}", old.port()))
            .driver(driver).start();
        assert_eq!(server.get("/").status, 502);
    }
}
