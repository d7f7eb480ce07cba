//! Frames that cross the GOAWAY frame of a connection that ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_http::h2::ErrorCode;
use weir_test::{Backend, Driver, Server, ServerSignal, both_drivers, wait_for};

use super::attacks::frame;
use super::client::Client;

fn conf(port: u16, version: &str) -> String {
    format!(
        "http {{ proxy_read_timeout 600s; server {{ listen 127.0.0.1:%%PORT%%; http2 on; {version}
            location / {{ return 200 on; }} location /wait {{ proxy_pass http://127.0.0.1:{port}; }} }} }}"
    )
}

/// `POST /ok` with content to come, without tables.
const POST: &[u8] = b"\x83\x86\x04\x03/ok\x01\x01a";

/// An upstream server that responds when it may.
fn patient(may: &Arc<AtomicBool>) -> Backend {
    let may = may.clone();
    Backend::start(move |visit| {
        while visit.head().is_some() {
            wait_for("leave to answer", || may.load(Ordering::Relaxed).then_some(()));
            visit.answer("late");
        }
    })
}

/// This many requests wait while `end` ends their connection; then late frames of every kind come on streams above.
fn ignored(
    driver: Driver,
    waiting: u64,
    conf: impl Fn(u16) -> String,
    end: impl FnOnce(&mut Server, u16, &mut Client),
) {
    let may = Arc::new(AtomicBool::new(false));
    let backend = patient(&may);
    let mut server = Server::builder(&conf(backend.port())).driver(driver).start();
    let mut client = Client::connect(server.addr(0));
    let keys: Vec<_> = (0..waiting).map(|_| client.get("/wait")).collect();
    wait_for("the requests", || (backend.heads() as u64 == waiting).then_some(()));
    end(&mut server, backend.port(), &mut client);
    client.until("a GOAWAY frame", |client| client.goaway.is_some());
    let (last, code) = client.goaway.expect("waited for");
    assert_eq!(code, ErrorCode::No);
    for (id, late) in [
        (2, frame(0, 0, last + 2, &[0; 1000])),
        (4, frame(8, 0, last + 4, &[0, 0, 3, 232])),
        (6, frame(3, 0, last + 6, &[0, 0, 0, 8])),
        (8, frame(2, 0, last + 8, &[0, 0, 0, 0, 5])),
        (10, frame(1, 5, last + 10, b"\x00\x01x\x01y")),
    ] {
        client.raw(&[frame(1, 4, last + id, POST), late].concat());
    }
    may.store(true, Ordering::Relaxed);
    for key in keys {
        assert_eq!(client.answer(key).text(), "late");
    }
    client.until_closed();
    assert_eq!(client.goaway, Some((last, ErrorCode::No)));
}

both_drivers! {
    /// RFC 9113 section 6.8: they are ignored, and what runs goes on.
    fn late_frames_end_no_running_stream(driver) {
        ignored(driver, 2, |port| conf(port, "keepalive_requests 2;"), |_, _, _| {});
        let asked = |_: &mut Server, _: u16, client: &mut Client| {
            let _key = client.get("/");
        };
        ignored(driver, 2, |port| conf(port, "keepalive_requests 3;"), asked);
        // Each request may be the last one, and requests after it get no response.
        ignored(driver, 1, |port| conf(port, "keepalive_time 1ms;"), |_, _, client| {
            while client.goaway.is_none() {
                let key = client.get("/");
                client.until("an answer, or the end", |client| client.answers[&key].ended || client.goaway.is_some());
            }
        });
        ignored(driver, 2, |port| conf(port, ""), |server, _, _| server.signal(ServerSignal::Quit));
        ignored(driver, 2, |port| conf(port, ""), |server, port, client| {
            server.reload(&conf(port, "add_header X-New 1;"));
            let asked = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            wait_for("the new servers", || server.raw(asked).windows(5).any(|part| part == b"X-New").then_some(()));
            // By the new servers.
            assert_eq!(client.fetch("/").text(), "on");
        });
    }
}
