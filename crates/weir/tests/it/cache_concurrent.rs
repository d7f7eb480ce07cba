//! What cases of a table can't show of the cache: many requests at once, fetching in the background, clients that
//! leave, reloads and restarts, files that others remove or damage, what is removed in time, and files of their own.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use support::{get, pattern, wait_taken};
use weir_test::{Backend, FcgiApp, FcgiOut, Response, Server, both_drivers, wait_for};

/// A configuration with a cache: `zone` are further parameters, `location` directives of `/`.
fn conf(backend: &Backend, zone: &str, location: &str) -> String {
    let port = backend.port();
    format!(
        "http {{ proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=one:1m {zone};
            server {{
                listen 127.0.0.1:%%PORT%%;
                add_header X-Cache $upstream_cache_status always;
                location / {{ proxy_pass http://127.0.0.1:{port}; proxy_cache one; {location} }}
            }}
        }}"
    )
}

/// Where a response came from, and its body.
fn reported(response: &Response) -> String {
    format!("{} {}", response.field("X-Cache").unwrap_or("-"), response.text())
}

/// The files below `folder`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(items) = fs::read_dir(directory) else { return Vec::new() };
    let paths = items.filter_map(|item| Some(item.ok()?.path()));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The sum that files of the cache have.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// A server that responds to its first request only when it may, and counts.
struct Held {
    backend: Backend,
    open: Arc<AtomicBool>,
    /// Requests that have their number.
    count: Arc<AtomicUsize>,
}

impl Held {
    /// Waits until the request of this number is there.
    #[track_caller]
    fn wait(&self, number: usize) {
        wait_for("a request at the backend", || (self.count.load(Ordering::SeqCst) == number).then_some(()));
    }
}

/// Requests after the first `free` ones get responses when the gate is open.
fn held(free: usize, fields: &'static str) -> Held {
    let open = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicUsize::new(0));
    let (gate, counted) = (open.clone(), count.clone());
    let backend = Backend::start(move |visit| {
        while visit.head().is_some() {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            if number > free {
                wait_for("the gate", || gate.load(Ordering::SeqCst).then_some(()));
            }
            let body = format!("answer {number}");
            let length = body.len();
            visit.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
        }
    });
    Held { backend, open, count }
}

both_drivers! {
    fn one_of_many_fetches_and_the_others_wait(driver) {
        let held = held(0, "");
        let server = Server::start(&conf(&held.backend, "", "proxy_cache_valid 1h; proxy_cache_lock on; \
            proxy_cache_lock_age 1h; proxy_cache_lock_timeout 1h;"));
        let mut clients: Vec<_> = (0..5).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send(get("/"));
        }
        clients.iter().for_each(wait_taken);
        held.open.store(true, Ordering::SeqCst);
        let mut all: Vec<_> = clients.iter_mut().map(|client| reported(&client.response())).collect();
        all.sort();
        assert_eq!(all, ["HIT answer 1", "HIT answer 1", "HIT answer 1", "HIT answer 1", "MISS answer 1"]);
        assert_eq!(held.backend.heads(), 1);
    }

    fn who_waits_too_long_asks_himself_and_keeps_nothing(driver) {
        let held = held(0, "");
        let server = Server::start(&conf(&held.backend, "", "proxy_cache_valid 1h; proxy_cache_lock on; \
            proxy_cache_lock_age 1h; proxy_cache_lock_timeout 100ms;"));
        let mut first = server.client();
        first.send(get("/"));
        held.wait(1);
        let mut second = server.client();
        second.send(get("/"));
        held.wait(2);
        held.open.store(true, Ordering::SeqCst);
        let mut both = [reported(&first.response()), reported(&second.response())];
        both.sort();
        assert_eq!(both, ["MISS answer 1", "MISS answer 2"]);
        assert_eq!(reported(&server.get("/")), "HIT answer 1", "the second was not kept");
    }

    fn what_is_too_old_is_served_while_a_newer_one_is_fetched(driver) {
        for (setting, fields) in [
            ("proxy_cache_use_stale updating;", "X-Accel-Expires: @1\r\n"),
            ("", "Cache-Control: stale-while-revalidate=100000000000\r\nX-Accel-Expires: @1\r\n"),
        ] {
            let held = held(1, fields);
            let server =
                Server::start(&conf(&held.backend, "", &format!("proxy_cache_background_update on; {setting}")));
            assert_eq!(reported(&server.get("/")), "MISS answer 1");
            assert_eq!(reported(&server.get("/")), "STALE answer 1");
            held.wait(2);
            assert_eq!(reported(&server.get("/")), "UPDATING answer 1");
            held.open.store(true, Ordering::SeqCst);
            wait_for("the newer answer", || (server.get("/").text() != "answer 1").then_some(()));
        }
    }

    fn who_comes_while_another_fetches_is_told_so(driver) {
        let held = held(1, "X-Accel-Expires: @1\r\n");
        let server = Server::start(&conf(&held.backend, "", "proxy_cache_use_stale updating;"));
        assert_eq!(reported(&server.get("/")), "MISS answer 1");
        let mut first = server.client();
        first.send(get("/"));
        held.wait(2);
        assert_eq!(reported(&server.get("/")), "UPDATING answer 1");
        held.open.store(true, Ordering::SeqCst);
        assert_eq!(reported(&first.response()), "EXPIRED answer 2");
    }

    fn an_answer_is_kept_though_its_client_has_left(driver) {
        let body = String::from_utf8(pattern(600_000)).expect("letters");
        let (open, sent) = (Arc::new(AtomicBool::new(false)), body.clone());
        let gate = open.clone();
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", sent.len(), &sent[..100_000]));
                wait_for("the gate", || gate.load(Ordering::SeqCst).then_some(()));
                visit.send(&sent[100_000..]);
            }
        });
        let server = Server::start(&conf(&backend, "", "proxy_cache_valid 1h; proxy_cache_lock on; \
            proxy_cache_lock_age 1h; proxy_cache_lock_timeout 1h;"));
        let mut client = server.client();
        client.send(get("/"));
        assert!(!client.peek(1).expect("the head").is_empty());
        client.abort();
        open.store(true, Ordering::SeqCst);
        // A request that comes now waits for it.
        let kept = server.get("/");
        assert_eq!((kept.field("X-Cache"), backend.heads()), (Some("HIT"), 1));
        assert!(kept.text() == body);
        let part = server.client().request("GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n");
        assert_eq!((part.status, backend.heads()), (200, 1), "the server has not said that it has ranges");
    }

    fn an_answer_that_ends_too_early_is_not_kept(driver) {
        let backend = Backend::start(|visit| {
            if visit.head().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            }
        });
        let server = Server::builder(&conf(&backend, "", "proxy_cache_valid 1h;")).allow("prematurely").start();
        for _ in 0..2 {
            let mut client = server.client();
            client.send(get("/"));
            assert!(client.try_response().is_err());
        }
        assert_eq!(backend.heads(), 2);
        let directory = server.dir().path().to_path_buf();
        wait_for("no file", || files(&directory.join("cache")).is_empty().then_some(()));
        wait_for("no temporary file", || files(&directory.join("proxy_temp")).is_empty().then_some(()));
    }

    fn a_large_answer_is_kept_and_served_whole_and_in_parts(driver) {
        let large = pattern(3_000_000);
        let body = large.clone();
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                visit.send(format!("HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nContent-Length: {}\r\n\r\n", body.len()));
                visit.send(&body);
            }
        });
        for aside in ["", "use_temp_path=off"] {
            let server = Server::start(&conf(&backend, aside, "proxy_cache_valid 1h; proxy_buffers 2 4k; \
                proxy_busy_buffers_size 4k;"));
            let mut client = server.client();
            for status in ["MISS", "HIT", "HIT"] {
                let response = client.get("/");
                assert_eq!(response.field("X-Cache"), Some(status));
                assert!(response.body == large, "{} bytes", response.body.len());
            }
            let part = client.request("GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=1000000-1999999\r\n\r\n");
            assert_eq!(part.status, 206);
            assert!(part.body == large[1_000_000..2_000_000]);
        }
        assert_eq!(backend.heads(), 2);
    }

    fn what_is_kept_stays_through_reloads_and_restarts(driver) {
        let backend = Backend::answering("kept");
        let text = conf(&backend, "", "proxy_cache_valid 1h;");
        let mut server = Server::start(&text);
        assert_eq!(reported(&server.get("/")), "MISS kept");
        server.reload(&text.replace("proxy_cache one;", "proxy_cache one; add_header X-New 1;"));
        wait_for("the new configuration", || server.get("/other").field("X-New").map(drop));
        let asked = backend.heads();
        assert_eq!((server.get("/").field("X-New"), backend.heads()), (Some("1"), asked));
        // Another server finds the files of this one.
        let key = format!("http://127.0.0.1:{}/", backend.port());
        let file = files(&server.dir().path().join("cache"))
            .into_iter()
            .find(|path| fs::read(path).is_ok_and(|bytes| has(&bytes, format!("KEY: {key}\n").as_bytes())))
            .expect("a file with the key");
        let bytes = fs::read(&file).expect("readable");
        let name = file.strip_prefix(server.dir().path()).expect("below it").to_str().expect("ASCII").to_owned();
        let asked = backend.heads();
        let second = Server::builder(&text).file(&name, bytes).start();
        assert_eq!(reported(&second.get("/")), "HIT kept");
        assert_eq!(backend.heads(), asked);
    }

    /// Files stand where the levels of before have put them.
    fn a_reload_with_other_levels_is_refused(driver) {
        let backend = Backend::answering("kept");
        let text = conf(&backend, "", "proxy_cache_valid 1h;");
        let mut server = Server::start(&text);
        assert_eq!(reported(&server.get("/")), "MISS kept");
        server.reload(&text.replace("levels=1:2", "levels=2").replace("add_header", "add_header X-New 1; add_header"));
        let line = server.error_log_line("cache \"one\" had previously different levels");
        assert!(line.contains("[emerg]"), "{line}");
        let kept = server.get("/");
        assert_eq!((reported(&kept).as_str(), kept.field("X-New")), ("HIT kept", None));
    }

    fn what_another_request_has_renewed_is_served_whole(driver) {
        let (taken, allowed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
        let (counted, gate) = (taken.clone(), allowed.clone());
        // Too long to be in memory.
        let body = pattern(100_000);
        let sent = body.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                wait_for("the gate", || (gate.load(Ordering::SeqCst) >= number).then_some(()));
                let fields = "ETag: \"a\"\r\nX-Accel-Expires: @1\r\n";
                if head.to_lowercase().contains("if-none-match") {
                    visit.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
                } else {
                    visit.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", sent.len()));
                    visit.send(&sent);
                }
            }
        });
        let server = Server::start(&conf(&backend, "", "proxy_cache_revalidate on;"));
        assert_eq!(server.get("/").field("X-Cache"), Some("MISS"));
        let mut clients = [server.client(), server.client()];
        for (number, client) in (2..).zip(&mut clients) {
            client.send(get("/"));
            wait_for("its request", || (taken.load(Ordering::SeqCst) == number).then_some(()));
        }
        // When the server has confirmed it to the second client, its file has new times for the first.
        for (number, client) in (2..).zip(&mut clients) {
            allowed.store(number, Ordering::SeqCst);
            let response = client.response();
            assert_eq!((response.status, response.field("X-Cache")), (200, Some("REVALIDATED")));
            assert!(response.body == body, "{} bytes", response.body.len());
        }
    }

    fn files_that_are_damaged_or_gone_are_fetched_anew(driver) {
        let backend = Backend::answering("whole");
        let server = Server::builder(&conf(&backend, "", "proxy_cache_valid 1h;"))
            .allow("cache file")
            .allow("open()")
            .allow("rename()")
            .start();
        assert_eq!(reported(&server.get("/")), "MISS whole");
        let file = files(&server.dir().path().join("cache")).remove(0);
        let whole = fs::read(&file).expect("readable");
        let mut expected = 1;
        let mut other = whole.clone();
        other[60] ^= 1;
        for bytes in [&b""[..], b"short", &whole[..whole.len() - 1], &other, &[b'x'; 500]] {
            // Another file, so that it is not taken for the one before, whatever the clock says.
            let aside = server.dir().path().join("aside");
            fs::write(&aside, bytes).expect("writable");
            fs::rename(&aside, &file).expect("writable");
            assert_eq!(reported(&server.get("/")), "MISS whole", "{} bytes", bytes.len());
            expected += 1;
            assert_eq!(reported(&server.get("/")), "HIT whole");
        }
        fs::remove_file(&file).expect("there");
        assert_eq!(reported(&server.get("/")), "MISS whole");
        fs::remove_file(&file).expect("there again");
        fs::create_dir(&file).expect("in its place");
        assert!(reported(&server.get("/")).ends_with("whole"));
        assert_eq!(backend.heads(), expected + 2);
    }

    /// One bit, anywhere: the times, the head, a body that is stored in memory and one that is sent from its file.
    fn a_flipped_bit_is_noticed(driver) {
        for size in [5_000, 3_000_000] {
            let large = pattern(size);
            let body = large.clone();
            let backend = Backend::start(move |visit| {
                while visit.head().is_some() {
                    visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-A: b\r\n\r\n", body.len()));
                    visit.send(&body);
                }
            });
            let text = conf(&backend, "", "proxy_cache_valid 1h; proxy_force_ranges on;");
            let server = Server::builder(&text).allow("cache file").start();
            let asked = |fields: &str| {
                server.client().request(format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"))
            };
            assert_eq!(asked("").field("X-Cache"), Some("MISS"));
            let file = files(&server.dir().path().join("cache")).remove(0);
            let whole = fs::read(&file).expect("readable");
            let start = whole.len() - size;
            for (at, fields) in [
                (18, ""), (27, ""), (50, ""), (start - 8, ""), (start, ""), (start + size / 2, ""), (whole.len() - 1, ""),
                // In another part than the one that is asked for.
                (start + size / 2, "Range: bytes=0-9\r\n"),
            ] {
                let mut other = whole.clone();
                other[at] ^= 4;
                let aside = server.dir().path().join("aside");
                fs::write(&aside, &other).and_then(|()| fs::rename(&aside, &file)).expect("writable");
                let response = asked(fields);
                assert_eq!(response.field("X-Cache"), Some("MISS"), "byte {at} of {}", whole.len());
                assert!(large.starts_with(&response.body) && !response.body.is_empty());
                // A request for a part may have it before the file is there.
                let again = wait_for("a hit", || Some(asked("")).filter(|hit| hit.field("X-Cache") == Some("HIT")));
                assert!(again.body == large, "byte {at}");
            }
            let line = server.error_log_line("has a body that does not fit its checksum");
            assert!(line.contains("[crit]") && line.contains(&*file.to_string_lossy()), "{line}");
        }
    }

    /// Sums and sizes are right, but the head announces another body: its client would wait for ever, or read too much.
    fn a_file_with_another_length_than_it_announces_is_fetched_again(driver) {
        let backend = Backend::answering("whole");
        let server = Server::builder(&conf(&backend, "", "proxy_cache_valid 1h;")).allow("cache file").start();
        assert_eq!(reported(&server.get("/")), "MISS whole");
        let file = files(&server.dir().path().join("cache")).remove(0);
        let whole = fs::read(&file).expect("readable");
        let field = b"Content-Length: ";
        let at = whole.windows(field.len()).position(|part| part == field).expect("a length") + field.len();
        for announced in [b'4', b'9'] {
            let mut other = whole.clone();
            other[at] = announced;
            let start = other.len() - "whole".len();
            // The sum is in bytes 12 to 15, and is of all from byte 56 to the body.
            let sum = crc32(&other[56..start]);
            other[12..16].copy_from_slice(&sum.to_le_bytes());
            let aside = server.dir().path().join("aside");
            fs::write(&aside, &other).and_then(|()| fs::rename(&aside, &file)).expect("writable");
            assert_eq!(reported(&server.get("/")), "MISS whole");
            assert_eq!(reported(&server.get("/")), "HIT whole");
        }
        let line = server.error_log_line("contains invalid header");
        assert!(line.contains("cache file"), "{line}");
    }

    /// What is damaged is removed at once, also where nothing comes to take its place.
    fn a_damaged_file_is_removed(driver) {
        let backend = Backend::answering("whole");
        let server = Server::builder(&conf(&backend, "", "proxy_cache_valid 1h;"))
            .allow("cache file").allow("connect() failed").allow("no live upstreams").start();
        assert_eq!(reported(&server.get("/")), "MISS whole");
        backend.kill();
        let file = files(&server.dir().path().join("cache")).remove(0);
        let mut bytes = fs::read(&file).expect("readable");
        *bytes.last_mut().expect("a body") ^= 1;
        let aside = server.dir().path().join("aside");
        fs::write(&aside, &bytes).and_then(|()| fs::rename(&aside, &file)).expect("writable");
        assert_eq!(server.get("/").status, 502);
        assert!(!file.exists());
    }

    /// Files of an earlier process are checked first, whatever requests come meanwhile.
    fn a_large_file_of_another_process_is_served(driver) {
        let large = pattern(9_000_000);
        let backend = Backend::answering(&String::from_utf8_lossy(&large.iter().map(|byte| byte & 0x7f).collect::<Vec<_>>()));
        let text = format!("worker_processes 2; {}", conf(&backend, "", "proxy_cache_valid 1h;"));
        let first = Server::start(&text);
        let fetched = first.get("/");
        assert_eq!(fetched.field("X-Cache"), Some("MISS"));
        let file = files(&first.dir().path().join("cache")).remove(0);
        let name = file.strip_prefix(first.dir().path()).expect("below it").to_str().expect("ASCII").to_owned();
        let second = Server::builder(&text).file(&name, fs::read(&file).expect("readable")).start();
        support::together(6, |_| {
            for _ in 0..3 {
                let response = second.get("/");
                assert_eq!(response.field("X-Cache"), Some("HIT"));
                assert!(response.body == fetched.body);
            }
        });
    }

    fn without_its_directory_answers_come_from_the_server(driver) {
        let backend = Backend::answering("all the same");
        let server = Server::builder(&conf(&backend, "", "proxy_cache_valid 1h;")).allow("failed (2:").start();
        fs::remove_dir_all(server.dir().path().join("cache")).expect("made at the start");
        for _ in 0..2 {
            assert_eq!(reported(&server.get("/")), "MISS all the same");
        }
        let line = server.error_log_line("while reading upstream");
        assert!(line.contains("[crit]") && line.contains("(2: No such file or directory)"), "{line}");
    }

    fn what_nobody_asks_for_is_removed(driver) {
        let backend = Backend::answering("for a second");
        let server = Server::start(&conf(&backend, "inactive=1s", "proxy_cache_valid 1h;"));
        assert_eq!(reported(&server.get("/")), "MISS for a second");
        let directory = server.dir().path().join("cache");
        wait_for("its end", || files(&directory).is_empty().then_some(()));
        assert_eq!(reported(&server.get("/")), "MISS for a second");
    }

    fn what_is_too_much_is_removed(driver) {
        let body = String::from_utf8(pattern(10_000)).expect("letters");
        let backend = Backend::answering(&body);
        let server = Server::start(&conf(&backend, "max_size=100k", "proxy_cache_valid 1h;"));
        for number in 0..40 {
            server.get(&format!("/{number}"));
        }
        let directory = server.dir().path().join("cache");
        // Twelve kilobytes a file, in whole blocks.
        wait_for("few files", || (files(&directory).len() <= 8).then_some(()));
        assert!(reported(&server.get("/0")).starts_with("MISS"), "the oldest goes first");
    }

    fn what_is_purged_is_gone(driver) {
        let backend = Backend::answering("purged");
        let server = Server::start(&conf(
            &backend,
            "",
            "proxy_cache_valid 1h; proxy_cache_key $uri; proxy_cache_purge $arg_purge;",
        ));
        for _ in 0..2 {
            assert_eq!(reported(&server.get("/a")), "MISS purged");
            assert_eq!(reported(&server.get("/a")), "HIT purged");
            assert_eq!(server.get("/a?purge=1").status, 204);
            assert_eq!(server.get("/a?purge=1").status, 404);
        }
    }

    fn answers_become_files_of_their_own(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let status = if head.contains("/missing") { "404 Not Found" } else { "200 OK" };
                visit.send(format!(
                    "HTTP/1.1 {status}\r\nContent-Length: 4\r\nLast-Modified: Mon, 28 Sep 1970 06:00:00 GMT\r\n\r\nfile"
                ));
            }
        });
        let port = backend.port();
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; root %%DIR%%/stored;
                location / {{
                    try_files $uri @fetch;
                }}
                location @fetch {{ proxy_pass http://127.0.0.1:{port}; proxy_store on; proxy_store_access user:rw group:r all:r; }}
                location /at/ {{ proxy_pass http://127.0.0.1:{port}; proxy_store %%DIR%%/other$uri; }}
            }} }}"
        ));
        for _ in 0..2 {
            let response = server.get("/a/b");
            assert_eq!((response.status, response.text().as_str()), (200, "file"));
            assert_eq!(response.field("Last-Modified"), Some("Mon, 28 Sep 1970 06:00:00 GMT"));
        }
        assert_eq!(backend.heads(), 1, "then it is a file");
        use std::os::unix::fs::PermissionsExt;
        let meta = fs::metadata(server.dir().path().join("stored/a/b")).expect("stored");
        assert_eq!(meta.permissions().mode() & 0o777, 0o644);
        assert_eq!(server.get("/missing").status, 404);
        assert!(!server.dir().path().join("stored/missing").exists());
        assert_eq!(server.get("/at/c").text(), "file");
        assert_eq!(server.dir().read("other/at/c"), "file");
    }

    /// nginx does not look at the client's conditions where it caches nothing; the server was asked without them.
    fn what_may_not_be_cached_goes_on_whatever_the_condition(driver) {
        let expired = "Expires: Thu, 01 Jan 1970 00:00:00 GMT";
        let fields = ["Cache-Control: private", "Cache-Control: no-store", "X-Accel-Expires: 0", "Set-Cookie: a=b", expired];
        for (field, status) in fields.map(|field| (field, 200)).into_iter().chain([("X-Up: 1", 412)]) {
            let backend = Backend::start(move |visit| {
                while visit.head().is_some() {
                    visit.send(format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 4\r\n\r\ntext"));
                }
            });
            let server = Server::start(&conf(&backend, "", "proxy_cache_valid 1h;"));
            let response = server.client().request("GET / HTTP/1.1\r\nHost: h\r\nIf-Match: \"other\"\r\n\r\n");
            assert_eq!(response.status, status, "{field}");
        }
    }

    fn other_protocols_have_caches_of_their_own(driver) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let app = FcgiApp::start(move |request| {
            log.lock().expect("no panic").push(request.param("HTTP_RANGE").to_owned());
            FcgiOut::answer("Content-Type: text/plain\r\nX-Accel-Expires: 100\r\n\r\nfrom the application")
        });
        let server = Server::start(&format!(
            "http {{ fastcgi_cache_path %%DIR%%/f keys_zone=one:1m;
                server {{ listen 127.0.0.1:%%PORT%%; add_header X-Cache $upstream_cache_status;
                    location / {{ fastcgi_pass 127.0.0.1:{}; fastcgi_cache one; fastcgi_cache_key $request_uri; }} }} }}",
            app.port()
        ));
        let ranged = server.client().request("GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n");
        assert_eq!(reported(&ranged), "MISS from the application");
        let response = server.get("/");
        assert_eq!(reported(&response), "HIT from the application");
        assert_eq!(response.field("Content-Type"), Some("text/plain"));
        assert_eq!(*asked.lock().expect("no panic"), [""], "the whole was asked for");
    }

    fn many_workers_and_clients_have_the_same_answers(driver) {
        let backend = Backend::answering("of all workers");
        let many = "proxy_cache_valid 1h; proxy_cache_lock on; proxy_cache_lock_age 1h; proxy_cache_lock_timeout 1h;";
        let text = format!("worker_processes 4; {}", conf(&backend, "", many));
        let server = Server::start(&text);
        let address = server.addr(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(move || {
                    let mut client = weir_test::Client::connect(address);
                    for number in 0..50 {
                        let response = client.get(&format!("/{}", number % 10));
                        assert_eq!(response.text(), "of all workers");
                    }
                });
            }
        });
        assert_eq!(backend.heads(), 10, "each was fetched once");
    }
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}
