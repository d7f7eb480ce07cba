//! Clients that do too much, too little, or what they may not.

use weir_http::h2::ErrorCode;
use weir_test::{Server, both_drivers, wait_for};

use crate::http2::client::Client;

const CONF: &str = "http { send_timeout 200ms; server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%;
    location /ok { return 200 ok; } } }";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET /ok`, without tables.
const GET: &[u8] = b"\x82\x86\x04\x03/ok\x01\x01a";

/// Far above what a thousand streams take that hold nothing of their content, and far below what 32 KB of each would be.
const LITTLE: u64 = 48 << 20;

both_drivers! {
    fn floods_end_the_connection_and_have_a_name_in_the_log(driver) {
        let server = Server::start(CONF);
        let resets = |at: u32| [frame(1, 5, 2 * at + 1, GET), frame(3, 0, 2 * at + 1, &[0, 0, 0, 8])].concat();
        let continuation = |at: u32| frame(if at == 0 { 1 } else { 9 }, 0, 1, if at == 0 { GET } else { b"" });
        let bomb = [&b"\x82\x86\x84\x01\x01a\x40\x7f\xa1\x1e"[..], &[b'x'; 4000], b"\0"].concat();
        let floods: [(&str, Vec<u8>); 6] = [
            ("rapid reset", (0..2000).flat_map(resets).collect()),
            ("CONTINUATION flood", (0..1000).flat_map(continuation).collect()),
            ("PING flood", frame(6, 0, 0, &[0; 8]).repeat(5000)),
            ("SETTINGS flood", frame(4, 0, 0, &[]).repeat(1000)),
            ("header bomb", [frame(1, 5, 1, &bomb), frame(1, 5, 3, &[0xbe; 16_000])].concat()),
            ("WINDOW_UPDATE flood", frame(8, 0, 0, &[0, 0, 0, 1]).repeat(200_000)),
        ];
        for (name, flood) in floods {
            let mut client = Client::connect(server.addr(0));
            for piece in flood.chunks(16_000) {
                client.raw(piece);
            }
            let _line = server.error_log_line(name);
        }
        let mut client = Client::connect(server.addr(0));
        assert_eq!(client.fetch("/ok").text(), "ok");
    }

    fn malformed_requests_are_answered_and_their_streams_reset(driver) {
        let server = Server::start(CONF);
        let mut client = Client::connect(server.addr(0));
        for fields in [("Upper", "x"), ("connection", "close"), ("te", "gzip"), ("a", "b\nc"), ("host", "other")] {
            let key = client.open("GET", "/ok", &[fields], None);
            client.until("a status", |client| client.answers[&key].status > 0);
            assert_eq!(client.answers[&key].status, 400, "{fields:?}");
        }
        for method in ["get", "GET /x"] {
            let key = client.open(method, "/ok", &[], None);
            client.until("a status", |client| client.answers[&key].status > 0);
            assert_eq!(client.answers[&key].status, 400, "{method}");
        }
        let key = client.open("GET", "/ok", &[("Upper", "x")], None);
        client.until("a reset", |client| client.answers[&key].reset.is_some());
        assert_eq!(client.answers[&key].reset, Some(ErrorCode::Protocol));
        let key = client.open("CONNECT", "/ok", &[], None);
        assert_eq!(client.answer(key).status, 405);
        let long = "x".repeat(40_000);
        let key = client.open("GET", "/ok", &[("x-long", &long)], None);
        assert_eq!(client.answer(key).status, 400);
        assert_eq!(client.fetch("/ok").text(), "ok");
    }

    /// A client that never opens its window holds a response for `send_timeout` only.
    fn a_window_that_never_opens_ends_its_stream(driver) {
        let server = Server::builder(CONF).file("big", vec![b'x'; 300_000]).file("medium", vec![b'x'; 10_000]).start();
        let mut client = Client::with_window(server.addr(0), 1000);
        client.reads = false;
        let key = client.get("/big");
        client.until("a reset", |client| client.answers[&key].reset.is_some());
        assert_eq!(client.answers[&key].body.len(), 1000);
        // So does one whose exchange is over.
        let key = client.get("/medium");
        client.until("a reset", |client| client.answers[&key].reset.is_some());
        assert_eq!(client.answers[&key].body.len(), 1000);
        assert_eq!(client.fetch("/ok").text(), "ok", "the connection lives");
    }

    /// A file stays on the disk until its stream's window opens, and what such connections did take goes back to the system.
    fn windows_that_never_open_hold_little_memory(driver) {
        let server = Server::builder(
            "http { send_timeout 600s; server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%; location /ok { return 200 ok; } } }")
            .file("file", vec![b'x'; 200_000]).start();
        assert_eq!(Client::connect(server.addr(0)).fetch("/ok").text(), "ok");
        let before = server.resident_bytes();
        let stalled = || {
            let mut client = Client::with_window(server.addr(0), 0);
            client.until("settings", |client| client.conn.is_settled());
            for _ in 0..100 {
                let _key = client.get("/file");
            }
            client.until("all heads", |client| client.answers.values().all(|answer| answer.status == 200));
            client
        };
        let clients: Vec<_> = (0..10).map(|_| stalled()).collect();
        let during = server.resident_bytes();
        assert!(during < before + LITTLE, "{} KB more with a thousand streams", (during - before) >> 10);
        drop(clients);
        wait_for("memory that comes back", || (server.resident_bytes() < before + LITTLE / 2).then_some(()));
        assert_eq!(Client::connect(server.addr(0)).fetch("/ok").text(), "ok");
    }

    fn a_server_without_http_2_is_not_asked_by_it(driver) {
        let server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT%%; http2 on; return 200 on; }
                server { listen 127.0.0.1:%%PORT%%; server_name off; return 200 off; } }",
        );
        let mut client = Client::connect(server.addr(0));
        assert_eq!(client.fetch("/").text(), "on");
        assert_eq!(client.fetch_from("off", "/").status, 421);
    }

    fn a_preface_that_is_none_is_http_1(driver) {
        let server = Server::start(CONF);
        let answer = server.raw("PRI * HTTP/2.0\r\n\r\nxxxxxxxx");
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
        // A preface in pieces is one all the same.
        let mut socket = server.client();
        for piece in weir_http::h2::PREFACE.chunks(5) {
            socket.send(piece);
        }
        assert_eq!(socket.bytes(9)[3], 4, "SETTINGS");
    }

    /// The response to a request with a body that is refused while its connection fails is nobody's: nothing waits for it.
    fn a_connection_that_fails_beside_a_refused_request_ends(driver) {
        let mut server = Server::builder(CONF).driver(driver).start();
        // `x`, of 40,000 bytes: more than a head may have, and no bomb.
        let head = [&b"\x83\x86\x84\x01\x01a\x00\x01x\x7f\xc1\xb7\x02"[..], &[b'f'; 40_000]].concat();
        let pieces: Vec<&[u8]> = head.chunks(16_000).collect();
        let [first, second, third] = pieces[..] else { panic!("{} pieces", pieces.len()) };
        let request = [frame(1, 0, 1, first), frame(9, 0, 1, second), frame(9, 4, 1, third)].concat();
        let flood = frame(8, 0, 0, &[0, 0, 0, 1]).repeat(6000);
        let mut socket = server.client();
        socket.send([&weir_http::h2::PREFACE[..], &frame(4, 0, 0, &[]), &request, &flood].concat());
        let _ = server.error_log_line("WINDOW_UPDATE flood");
        drop(socket);
        server.signal(weir_test::ServerSignal::Quit);
        assert!(server.wait_exit().status.success());
    }
}
