//! Files of at most 128 KB: written by the loop where the file system is quick, else by threads (`small_file_writes`). Bytes,
//! names and the order of requests are the same.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_test::{Backend, Server, both_drivers, wait_for};

use crate::http2::client::Client as H2Client;
use support::{get, pattern, settled};

/// Around the sizes at which something changes: none, less than a buffer, one write, the largest small file and one more,
/// several writes.
const SIZES: [usize; 7] = [0, 1, 5_000, 65_536, 131_072, 131_073, 700_000];
const POLICIES: [&str; 3] = ["auto", "threads", "loop"];

fn conf(workers: usize, policy: &str, place: &str, backend: &Backend) -> String {
    let upstream = format!("proxy_pass http://127.0.0.1:{};", backend.port());
    format!(
        "worker_processes {workers};
        http {{ client_body_temp_path {place}/body 1; proxy_temp_path {place}/proxy; client_max_body_size 0;
            proxy_cache_path {place}/cache levels=1:2 keys_zone=c:1m; proxy_cache_valid any 1h;
            client_body_buffer_size 1k; small_file_writes {policy};
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; log_not_found off;
                location /files/ {{ alias {place}/files/; dav_methods PUT; create_full_put_path on; }}
                location /echo {{ {upstream} }}
                location /only {{ client_body_in_file_only clean; {upstream} }}
                location /store/ {{ proxy_store %%DIR%%/{place}/stored$uri; {upstream} }}
                location /stored/ {{ alias {place}/stored/; }}
                location /cache/ {{ proxy_cache c; {upstream} add_header X-Cache $upstream_cache_status; }}
                location /ok {{ return 200 ok; }} }} }}"
    )
}

/// The upstream server: sends a body back; a GET of `/.../N` gets N bytes.
fn backend() -> Backend {
    Backend::start(|visit| {
        while let Some(head) = visit.head() {
            let lower = head.to_ascii_lowercase();
            let body = match lower.split("content-length: ").nth(1) {
                Some(rest) => {
                    let length = rest.split("\r\n").next().expect("a line").parse().expect("a number");
                    visit.bytes(length).unwrap_or_default()
                }
                None => {
                    let path = head.split(' ').nth(1).expect("a path");
                    pattern(path.rsplit('/').next().expect("a name").parse().expect("a number"))
                }
            };
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            visit.send(&body);
        }
    })
}

fn put(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Small files that loops have written, and stalls, of `weir use`.
fn small_files(server: &Server) -> (u64, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output =
        command.args(["use", "-t", "1ms", "--json", "-c", "nginx.conf", "-p"]).arg(server.dir().path());
    let output = output.output().expect("weir runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.split('{').find(|row| row.contains("small files")).unwrap_or_else(|| panic!("{text}"));
    let number = |after: &str, until: &str| {
        let value = row.split(after).nth(1).and_then(|rest| rest.split(until).next());
        value
            .and_then(|value| value.rsplit(['"', ' ']).next()?.parse().ok())
            .unwrap_or_else(|| panic!("{row}"))
    };
    (number("\"saturation\":\"", " writes"), number("\"since_start\":\"", " stalls"))
}

/// All of what writes files, by both versions, in one size; `round` makes names of its own.
fn write_all(server: &Server, size: usize, round: usize) {
    let body = pattern(size);
    let mut client = server.client();
    let mut h2 = H2Client::connect(server.addr(0));
    for (version, status) in [(1, 201), (2, 204)] {
        let path = format!("/files/{round}/{size}");
        let mut ask = |method: &str, path: &str, body: Option<&[u8]>| match (version, body) {
            (1, Some(body)) => {
                let response = client.request(put(method, path, body));
                (response.status, response.body)
            }
            (1, None) => {
                let response = client.get(path);
                (response.status, response.body)
            }
            _ => {
                let key = h2.open(method, path, &[], body);
                let answer = h2.answer(key);
                (answer.status, answer.body)
            }
        };
        assert_eq!(ask("PUT", &path, Some(&body)).0, status, "{version} {size}");
        let read = ask("GET", &path, None);
        assert!(read.0 == 200 && read.1 == body, "{version} {size}: {} bytes", read.1.len());
        for place in ["/echo", "/only"] {
            let echo = ask("POST", place, Some(&body));
            assert!(echo.0 == 200 && echo.1 == body, "{version} {place} {size}: {} bytes", echo.1.len());
        }
        for path in [
            format!("/store/{round}/{size}"),
            format!("/cache/{round}/{size}"),
            format!("/cache/{round}/{size}"),
        ] {
            let read = ask("GET", &path, None);
            assert!(read.0 == 200 && read.1 == body, "{version} {path}: {} bytes", read.1.len());
        }
    }
    let stored = server.dir().path().join(format!("{PLACE}/stored/store/{round}/{size}"));
    assert!(wait_for("stored", || fs::read(&stored).ok()) == body);
}

/// Where the files are, below the server's directory.
const PLACE: &str = "place";

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn make_places(place: &Path) {
    for name in ["files", "stored", "body", "proxy", "cache"] {
        fs::create_dir_all(place.join(name)).expect("ours");
    }
}

both_drivers! {
    fn all_ways_write_the_same_bytes_on_whichever_thread(driver) {
        for (policy, workers) in POLICIES.into_iter().flat_map(|policy| [(policy, 1), (policy, 4)]) {
            let backend = backend();
            let builder = Server::builder(&conf(workers, policy, PLACE, &backend)).driver(driver);
            make_places(&builder.dir().join(PLACE));
            let server = builder.allow("a client request body is buffered to a temporary file").start();
            for (round, size) in SIZES.into_iter().enumerate() {
                write_all(&server, size, round);
            }
            let (on_loops, _) = small_files(&server);
            match policy {
                "threads" => assert_eq!(on_loops, 0),
                "loop" => assert!(on_loops > 20, "{on_loops}"),
                // Depends on the disk of this machine.
                _ => {}
            }
            // Nothing is left of what was written aside.
            for name in ["body", "proxy"] {
                let left = files(&server.dir().path().join(PLACE).join(name));
                assert!(left.is_empty(), "{left:?}");
            }
            settled(&server);
        }
    }

    /// `aio threads` and `aio_write` ask for threads; what was written in so many words counts more.
    fn who_asks_for_threads_gets_them(driver) {
        for (settings, on_loop) in [
            ("aio threads; small_file_writes loop;", true),
            ("aio threads=pool;", false),
            ("aio threads;", false),
            ("aio_write on;", false),
        ] {
            let server = Server::builder(&format!(
                "http {{ client_body_temp_path body; {settings}
                    server {{ listen 127.0.0.1:%%PORT%%; location / {{ root html; dav_methods PUT; }} }} }}"
            ))
            .file("html/a", "")
            .driver(driver)
            .start();
            let mut client = server.client();
            for number in 0..60 {
                let path = format!("/{number}");
                assert_eq!(client.request(put("PUT", &path, b"bytes")).status, 201);
            }
            assert_eq!(small_files(&server).0 > 0, on_loop, "{settings}");
        }
    }

    /// What was written in a turn of the loop is not hidden by a file that was opened earlier in it.
    fn what_was_put_is_there_for_the_next_request_of_a_pipeline(driver) {
        let backend = backend();
        let builder = Server::builder(&conf(1, "loop", PLACE, &backend)).driver(driver);
        make_places(&builder.dir().join(PLACE));
        let conf = builder.start();
        let mut client = conf.client();
        assert_eq!(client.request(put("PUT", "/files/x", b"before")).status, 201);
        for number in 0..20 {
            let body = format!("after {number}");
            let all = [get("/files/x").into_bytes(), put("PUT", "/files/x", body.as_bytes()), get("/files/x").into_bytes()];
            client.send(all.concat());
            let before = client.response().text();
            assert_eq!(client.response().status, 204);
            let after = client.response().text();
            assert_ne!(before, body);
            assert_eq!(after, body, "{before}");
        }
    }
}
