//! Why connections and streams end: counted by reason and by who was first, in `weir top closes` and `/metrics`.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::http2::client::Client as Http2Client;
use crate::support::says as said;
use crate::support::tls::{TlsClient, client as tls_settings, own};

use weir_test::{Backend, Client, DEADLINE, Driver, Server, ServerSignal, both_drivers, wait_for};

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%;
    http { client_header_timeout 60s;
    server { listen 127.0.0.1:%%PORT_0%%; http2 on; root html;
        location / { return 200 hello; }
        location /kept { keepalive_timeout 1s; return 200 kept; }
        location /few { keepalive_requests 2; return 200 few; }
        location /old { keepalive_time 1ms; return 200 old; }
        location /off { keepalive_timeout 0; return 200 off; }
        location /none { return 444; }
        location /bad { return 500; }
        location /up { client_body_timeout 1s; echo_read_request_body; echo $request_body; }
        location /big { send_timeout 1s; sendfile on; }
        location /proxied { proxy_pass http://127.0.0.1:%%BACKEND%%; } }
    server { listen 127.0.0.1:%%PORT_2%%; client_header_timeout 1s; return 200 short; }
    server { listen 127.0.0.1:%%PORT_3%% proxy_protocol; return 200 proxied; }
    server { listen 127.0.0.1:%%PORT_4%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
        server_name a.example.com; client_header_timeout 1s; return 200 tls; } }";

fn started(driver: Driver, workers: &str, backend: u16) -> Server {
    let pair = own("a.example.com");
    let conf = CONF.replace("%%WORKERS%%", workers).replace("%%BACKEND%%", &backend.to_string());
    let server = Server::builder(&conf)
        .file("html/big/file", vec![b'x'; 32 << 20])
        .file("a.crt", &pair.certificate)
        .file("a.key", &pair.key)
        .allow("broken header")
        .driver(driver)
        .start();
    said::ready(&server);
    server
}

fn metrics(server: &Server) -> String {
    Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text()
}

/// The samples of a counter, by their labels.
fn samples(server: &Server, name: &str) -> BTreeMap<String, u64> {
    let text = metrics(server);
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    lines.map(|(labels, value)| (labels.to_owned(), value.parse().expect("a number"))).collect()
}

fn closed(server: &Server) -> BTreeMap<String, u64> {
    samples(server, "weir_connections_closed_total")
}

fn labels(protocol: &str, by: &str, reason: &str) -> String {
    format!("protocol=\"{protocol}\",by=\"{by}\",reason=\"{reason}\"")
}

/// Waits until connections have ended as `expected`.
fn settles(server: &Server, expected: &BTreeMap<String, u64>, what: &str) {
    let end = Instant::now() + DEADLINE;
    loop {
        let found = closed(server);
        if found == *expected {
            return;
        }
        assert!(Instant::now() < end, "{what}: {found:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What ends one connection, or several, of a server for one reason.
type Way = fn(&Server);

/// A sum over all workers of a gauge or counter.
fn sum(server: &Server, name: &str) -> u64 {
    samples(server, name).values().sum()
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn asks(server: &Server, path: &str) -> Client {
    let mut client = server.client();
    let _ = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

fn reset(server: &Server, address: usize, bytes: &str) {
    let mut client = Client::connect(server.addr(address));
    client.send(bytes);
    crate::support::wait_taken(&client);
    client.abort();
}

fn raw(server: &Server, address: usize, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr(address)).expect("the server listens");
    stream.write_all(bytes).expect("the server reads");
    stream
}

fn http2(server: &Server) -> Http2Client {
    let mut client = Http2Client::connect(server.addr(0));
    assert_eq!(client.fetch("/").text(), "hello");
    client
}

/// The beginning of a ClientHello's record, and no more of it.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
/// A ClientHello of TLS 1.0 with one cipher suite that nobody has.
const ODD_HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x01\
    0123456789abcdef0123456789abcdef\x00\x00\x02\xff\xfe\x01\x00";

/// Protocol, who was first, the reason, and what has it come to that.
const WAYS: &[(&str, &str, &str, Way)] = &[
    ("http1", "client", "unused", |server| drop(server.client())),
    ("http1", "client", "idle", |server| drop(asks(server, "/"))),
    ("http1", "client", "in_head", |server| {
        server.client().send("GET / HT");
    }),
    ("http1", "client", "in_body", |server| {
        server.client().send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    }),
    ("http1", "client", "in_response", |server| {
        server.client().send("GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n");
    }),
    ("http1", "client", "asked", |server| {
        let _ = server.client().send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").rest();
    }),
    ("http1", "client", "reset_idle", |server| {
        let mut client = server.client();
        let _ = client.request(REQUEST);
        client.abort();
    }),
    ("http1", "client", "reset", |server| reset(server, 0, "GET / HTTP/1.1\r\nHost: ")),
    ("http1", "server", "keepalive_timeout", |server| asks(server, "/kept").expect_close()),
    ("http1", "server", "keepalive_requests", |server| {
        let mut client = asks(server, "/few");
        let _ = client.request("GET /few HTTP/1.1\r\nHost: a\r\n\r\n");
        client.expect_close();
    }),
    ("http1", "server", "keepalive_time", |server| {
        let mut client = asks(server, "/");
        std::thread::sleep(Duration::from_millis(20));
        let _ = client.request("GET /old HTTP/1.1\r\nHost: a\r\n\r\n");
        client.expect_close();
    }),
    ("http1", "server", "keepalive_off", |server| asks(server, "/off").expect_close()),
    ("http1", "server", "header_timeout", |server| Client::connect(server.addr(2)).expect_close()),
    ("http1", "server", "body_timeout", |server| {
        let mut client = server.client();
        client.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
        let _ = client.rest();
    }),
    ("http1", "server", "send_timeout", |server| {
        let mut client = server.client();
        client.send("GET /big/file HTTP/1.1\r\nHost: a\r\n\r\n");
        let row = labels("http1", "server", "send_timeout");
        wait_for("the end of its time", || closed(server).contains_key(&row).then_some(()));
    }),
    ("http1", "server", "bad_request", |server| {
        let _ = server.client().send("GET / HTTP/9.1\r\nHost: a\r\n\r\n").rest();
    }),
    ("http1", "server", "error_status", |server| asks(server, "/bad").expect_close()),
    ("http1", "server", "no_response", |server| {
        server.client().send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n").expect_close();
    }),
    ("http1", "server", "proxy_protocol", |server| {
        Client::connect(server.addr(3)).send("GET / HTTP/1.1\r\n\r\n").expect_close();
    }),
    ("http2", "client", "idle", |server| drop(http2(server))),
    ("http2", "client", "goaway", |server| {
        let mut client = http2(server);
        client.raw(b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }),
    ("http2", "client", "in_response", |server| {
        let mut client = http2(server);
        client.get("/proxied");
        client.flush();
    }),
    ("http2", "server", "protocol_error", |server| {
        let mut client = http2(server);
        // A frame of SETTINGS on a stream.
        client.raw(b"\0\0\0\x04\0\0\0\0\x01");
        client.until_closed();
    }),
    ("tls", "client", "unused", |server| drop(raw(server, 4, b""))),
    ("tls", "client", "handshake_closed", |server| drop(raw(server, 4, HALF_HELLO))),
    ("tls", "server", "handshake_timeout", |server| {
        let stream = raw(server, 4, HALF_HELLO);
        let row = labels("tls", "server", "handshake_timeout");
        wait_for("the end of its time", || closed(server).contains_key(&row).then_some(()));
        drop(stream);
    }),
    ("tls", "server", "handshake_failed", |server| {
        let stream = raw(server, 4, ODD_HELLO);
        let row = labels("tls", "server", "handshake_failed");
        wait_for("the alert", || closed(server).contains_key(&row).then_some(()));
        drop(stream);
    }),
    ("http1", "client", "idle", |server| {
        let mut client = TlsClient::connect(server.addr(4), "a.example.com", &tls_settings(true, None));
        assert_eq!(client.get("/", "a.example.com").text(), "tls");
    }),
];

both_drivers! {
    /// Each way adds one to its own reason and to no other; at the end all that were accepted are accounted for.
    fn each_end_has_its_reason(driver) {
        let backend = Backend::start(|visit| {
            // It never responds.
            let _ = visit.head();
            let _ = visit.head();
        });
        for workers in ["1", "3"] {
            let server = started(driver, workers, backend.port());
            for (protocol, by, reason, way) in WAYS {
                let mut expected = closed(&server);
                way(&server);
                *expected.entry(labels(protocol, by, reason)).or_default() += 1;
                settles(&server, &expected, &format!("{workers} workers, {protocol} {by} {reason}"));
            }
            // No connection is lost or counted twice.
            wait_for("all to be closed", || (sum(&server, "weir_connections") + sum(&server, "weir_connections_parked") == 0).then_some(()));
            let ended: u64 = closed(&server).values().sum();
            assert_eq!(ended, sum(&server, "weir_connections_accepted_total"), "{:?}", closed(&server));
            let table = said::says(&["top", "closes", "-b", "-d", "0"], &said::of(&server));
            let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
            assert!(rows.iter().any(|row| row[..3] == ["http1", "client", "idle"] && row[5] == "2"), "{table}");
            assert!(rows.iter().any(|row| row[..3] == ["tls", "server", "handshake_failed"]), "{table}");
        }
    }

    fn streams_that_end_early_are_counted_by_code(driver) {
        let backend = Backend::start(|visit| {
            let _ = visit.head();
            let _ = visit.head();
        });
        let server = started(driver, "1", backend.port());
        let mut client = http2(&server);
        let key = client.get("/proxied");
        client.flush();
        wait_for("the request", || (backend.heads() > 0).then_some(()));
        client.reset(key);
        let of = |by: &str, code: &str| format!("by=\"{by}\",code=\"{code}\"");
        let name = "weir_http2_streams_reset_total";
        wait_for("the reset", || (samples(&server, name).get(&of("client", "CANCEL")) == Some(&1)).then_some(()));
        client.get("/proxied");
        client.flush();
        wait_for("the second request", || (backend.heads() > 1).then_some(()));
        drop(client);
        wait_for("its end", || (samples(&server, name).get(&of("connection", "connection")) == Some(&1)).then_some(()));
    }

    /// Idle connections of a server that stops; what a reload takes the address of; connections that were parked.
    fn ends_of_the_server_and_of_addresses_have_reasons(driver) {
        let conf = "worker_processes 2; admin 127.0.0.1:%%PORT_1%%; http {
            server { listen 127.0.0.1:%%PORT_0%%; return 200 one; }
            server { listen 127.0.0.1:%%PORT_2%%; return 200 two; } }";
        let mut server = Server::builder(conf).driver(driver).start();
        let mut kept = asks(&server, "/");
        let mut gone = Client::connect(server.addr(2));
        let _ = gone.request(REQUEST);
        // Long enough for both to be parked.
        wait_for("parked connections", || (sum(&server, "weir_connections_parked") == 2).then_some(()));
        server.reload(&conf.replace("server { listen 127.0.0.1:%%PORT_2%%; return 200 two; }", ""));
        gone.expect_close();
        wait_for("its count", || (closed(&server).get(&labels("http1", "server", "reload")) == Some(&1)).then_some(()));
        let _ = kept.request(REQUEST);
        server.signal(ServerSignal::Quit);
        kept.expect_close();
    }
}
