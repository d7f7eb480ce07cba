//! Servers of HTTP/2 that do what none may: floods, header sections that are far larger than their frames, trailers about
//! framing, content byte by byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_test::{Backend, BackendVisit, Server, TestServerBuilder, both_drivers, wait_for};

use super::attacks::frame;
use super::client::Client;

/// A server that takes requests and has `behave` respond on their streams; a connection ends with the other side's.
fn hostile(behave: impl Fn(&mut BackendVisit, u32) + Send + Sync + 'static) -> Backend {
    Backend::start(move |visit| {
        let preface = visit.bytes(weir_http::h2::PREFACE.len());
        if preface.is_none() || !visit.send(frame(4, 0, 0, &[])) {
            return;
        }
        while let Some((kind, stream, _)) = next(visit) {
            if kind == 1 {
                behave(visit, stream);
            }
        }
    })
}

/// The type, stream and payload of the next frame.
fn next(visit: &mut BackendVisit) -> Option<(u8, u32, Vec<u8>)> {
    let head = visit.bytes(9)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    let payload = visit.bytes(number(&head[..3]) as usize)?;
    Some((head[3], number(&head[5..]) & 0x7fff_ffff, payload))
}

/// A field that enters no table.
fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let mut field = vec![0, name.len() as u8];
    field.extend_from_slice(name.as_bytes());
    field.extend(length(value.len()));
    field.extend_from_slice(value);
    field
}

/// A length in seven bits, and more if it has to be (RFC 7541 section 5.1).
fn length(length: usize) -> Vec<u8> {
    match length.checked_sub(127) {
        None => vec![length as u8],
        Some(rest) if rest < 128 => vec![127, rest as u8],
        Some(rest) => vec![127, 128 | (rest & 127) as u8, (rest >> 7) as u8],
    }
}

/// An interim response whose field of 3,900 bytes enters the table as its newest entry.
fn filling(stream: u32) -> Vec<u8> {
    let mut block = field(":status", b"103");
    let entry = field("bomb", &[b'x'; 3900]);
    block.push(0x40);
    block.extend_from_slice(&entry[1..]);
    frame(1, 4, stream, &block)
}

fn conf(backend: &Backend, more: &str) -> TestServerBuilder {
    Server::builder(&format!(
        "http {{ upstream u {{ server 127.0.0.1:{} max_fails=0; }}
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; location / {{ grpc_pass u; }} {more} }} }}",
        backend.port()
    ))
}

/// `:status: 200`
const OK: u8 = 0x88;
/// Refers to the newest entry of the table.
const NEWEST: u8 = 0xbe;

both_drivers! {
    /// They would keep a request from ever timing out, and their server busy.
    fn interim_responses_without_end_end_their_request(driver) {
        let block = [field(":status", b"100")].concat();
        let flood = move |visit: &mut BackendVisit, stream| {
            for _ in 0..500 {
                if !visit.send(frame(1, 4, stream, &block).repeat(100)) { return }
            }
            visit.send([frame(1, 4, stream, &[OK]), frame(0, 1, stream, b"late")].concat());
        };
        let old = Backend::start(|visit| {
            if visit.head().is_some() {
                let _ = visit.send("HTTP/1.1 100 Continue\r\n\r\n".repeat(20_000));
                let _ = visit.answer("late");
            }
        });
        let backend = hostile(flood);
        let server = conf(&backend, &format!("location /old {{ proxy_pass http://127.0.0.1:{}; }}", old.port()))
            .driver(driver).start();
        assert_eq!(server.get("/").status, 502);
        let _ = server.error_log_line("upstream sent too many interim responses while reading response header from upstream");
        assert_eq!(server.get("/old").status, 502, "HTTP/1");
        let lines = server.error_log().matches("upstream sent too big early hints").count();
        assert!(lines <= 2, "{lines} lines for two requests");
    }

    /// Some hundred bytes of references expand to a megabyte.
    fn a_section_is_as_large_as_what_it_stands_for(driver) {
        let backend = hostile(|visit, stream| {
            // Path: the first stream of a connection gets a head, the next ones trailers.
            let bomb = [NEWEST; 250];
            let answer = match stream {
                1 => [filling(stream), frame(1, 5, stream, &[&[OK][..], &bomb].concat())].concat(),
                _ => [frame(1, 4, stream, &[OK]), frame(0, 0, stream, b"content"), frame(1, 5, stream, &bomb)].concat(),
            };
            visit.send(answer);
        });
        let server = conf(&backend, "").driver(driver).start();
        let mut client = Client::connect(server.addr(0));
        assert_eq!(client.fetch("/").status, 502);
        let _ = server.error_log_line("upstream sent too big header while reading response header from upstream");
        let broken = client.fetch("/");
        assert!(broken.reset.is_some() && broken.trailers.is_empty(), "{:?} {}", broken.reset, broken.trailers.len());
        let _ = server.error_log_line("upstream sent too big trailers while reading upstream");
    }

    /// A call that has failed says so in its trailer: one that was not read whole is not one.
    fn a_trailer_with_too_many_fields_is_no_trailer(driver) {
        let backend = hostile(|visit, stream| {
            let many = [field("a", b"b").repeat(2100), field("grpc-status", b"13")].concat();
            visit.send([frame(1, 4, stream, &[OK]), frame(0, 0, stream, b"content"), frame(1, 5, stream, &many)].concat());
        });
        let server = conf(&backend, "").driver(driver).start();
        let answer = Client::connect(server.addr(0)).fetch("/");
        assert!(answer.reset.is_some(), "{} fields", answer.trailers.len());
    }

    fn trailers_say_nothing_of_framing(driver) {
        let backend = hostile(|visit, stream| {
            let trailer: Vec<u8> = [("content-length", "3"), ("host", "evil"), ("set-cookie", "a=b"), ("content-encoding", "gzip"),
                ("cache-control", "public"), ("trailer", "x"), ("grpc-status", "0"), ("x-own", "yes")]
                .iter().flat_map(|(name, value)| field(name, value.as_bytes())).collect();
            visit.send([frame(1, 4, stream, &[OK]), frame(0, 0, stream, b"content"), frame(1, 5, stream, &trailer)].concat());
        });
        let server = conf(&backend, "").driver(driver).start();
        let answer = Client::connect(server.addr(0)).fetch("/");
        let own: Vec<_> = [("grpc-status", "0"), ("x-own", "yes")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!((answer.text().as_str(), answer.trailers), ("content", own));
        let text = String::from_utf8_lossy(&server.raw("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n")).into_owned();
        assert!(text.ends_with("0\r\ngrpc-status: 0\r\nx-own: yes\r\n\r\n"), "{text}");
    }

    /// Each has all streams looked through.
    fn goodbyes_without_end_end_the_connection(driver) {
        let goodbye = frame(7, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        let flood = goodbye.repeat(2000);
        let backend = hostile(move |visit, _| { visit.send(&flood); });
        let server = conf(&backend, "location /ok { return 200 ok; }").driver(driver).start();
        assert_eq!(server.get("/").status, 502);
        let _ = server.error_log_line("upstream sent too many GOAWAY frames (GOAWAY flood)");
        let mut client = Client::connect(server.addr(0));
        client.raw(&goodbye.repeat(2000));
        let _ = server.error_log_line("client sent too many GOAWAY frames (GOAWAY flood)");
    }

    /// What waits for a slow client takes about as much memory as it has bytes, though it came in frames of one.
    fn content_byte_by_byte_takes_no_more_memory(driver) {
        let done = Arc::new(AtomicUsize::new(0));
        let count = done.clone();
        let backend = hostile(move |visit, stream| {
            let piece = frame(0, 0, stream, b"x").repeat(1000);
            let mut sent = visit.send(frame(1, 4, stream, &[OK]));
            for _ in 0..WINDOW / 1000 {
                sent = sent && visit.send(&piece);
            }
            // What comes back says that all of it was read.
            let read = sent && visit.send(frame(6, 0, 0, b"all read"));
            while read && let Some((kind, ..)) = next(visit) {
                if kind == 6 {
                    count.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
        });
        // A connection for each: none is kept alive.
        let server = Server::builder(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; http2 on; location / {{ grpc_pass 127.0.0.1:{}; }}
                location /ok {{ return 200 ok; }} }} }}", backend.port())).driver(driver).start();
        assert_eq!(server.get("/ok").text(), "ok");
        let before = server.resident_bytes();
        let mut client = Client::with_window(server.addr(0), 0);
        let keys: Vec<_> = (0..STREAMS).map(|_| client.get("/")).collect();
        client.until("all heads", |client| keys.iter().all(|key| client.answers[key].status == 200));
        wait_for("all content", || (done.load(Ordering::SeqCst) == STREAMS).then_some(()));
        let more = server.resident_bytes().saturating_sub(before);
        assert!(more < LITTLE, "{} KB for {} KB", more >> 10, (STREAMS * WINDOW) >> 10);
    }
}

/// Bytes of content that may come on a stream before its client takes any, and a little less.
const WINDOW: usize = 250_000;
const STREAMS: usize = 8;
/// Of two megabytes each byte with its place in a queue and its block of memory would be 140.
const LITTLE: u64 = 48 << 20;
