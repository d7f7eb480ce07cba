//! Responses that are read ahead of slow clients: in memory, then in a file, so that servers are free early.

use crate::support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_test::{Backend, FcgiApp, FcgiOut, Server, both_drivers, wait_for};

use support::{get, pattern};

/// More than the sockets between a server and a client that reads nothing hold.
const BIG: usize = 16 << 20;

/// A server of one big response that says when it has sent it all.
fn giver(head: &'static str, chunks: usize) -> (Backend, Arc<AtomicUsize>) {
    let done = Arc::new(AtomicUsize::new(0));
    let given = done.clone();
    let body = pattern(BIG);
    let backend = Backend::start(move |visit| {
        visit.head();
        visit.send(head);
        for piece in body.chunks(BIG / chunks) {
            if head.contains("chunked") {
                visit.send(format!("{:x}\r\n", piece.len()));
                visit.send(piece);
                visit.send("\r\n");
            } else {
                visit.send(piece);
            }
        }
        if head.contains("chunked") {
            visit.send("0\r\n\r\n");
        }
        given.fetch_add(1, Ordering::SeqCst);
    });
    (backend, done)
}

fn proxy(backend: &Backend, directives: &str) -> Server {
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{}; {directives} }} }} }}",
        backend.port()
    );
    Server::builder(&conf).allow("temporary file").allow("temp/").start()
}

const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.0 200 OK\r\n\r\n";
/// What a server may need of memory beyond what it had.
const LITTLE: u64 = 12 << 20;

both_drivers! {
    fn a_server_is_free_before_a_slow_client_has_it_all(driver) {
        for (head, chunks) in [(LENGTH, 32), (CHUNKED, 977), (UNTIL_CLOSE, 1)] {
            let (backend, done) = giver(head, chunks);
            let server = proxy(&backend, "");
            let before = server.resident_bytes();
            let mut client = server.client();
            client.send(get("/"));
            wait_for("end of the server's part", || (done.load(Ordering::SeqCst) == 1).then_some(()));
            assert!(server.resident_bytes() < before + LITTLE, "{head}");
            let response = client.response();
            assert!(response.body == pattern(BIG), "{head}");
            let mut server = server;
            let log = server.quit().error_log;
            let line = log.lines().find(|line| line.contains("an upstream response is buffered")).unwrap_or(&log);
            assert!(line.contains("[warn]") && line.contains("/proxy_temp/") && line.contains("while reading upstream, client:")
                && line.contains("upstream: \"http://127.0.0.1:"), "{line}");
        }
    }

    /// Filters see the bytes of the file as they see those in memory.
    fn what_lies_in_the_file_is_filtered(driver) {
        let (backend, _) = giver(UNTIL_CLOSE, 1);
        let server = proxy(
            &backend,
            "sub_filter_types *; sub_filter_once off; sub_filter aaaaaaa 1234567; proxy_temp_path t 1 2;",
        );
        let mut client = server.client();
        client.send(get("/"));
        // That the server is rid of it would say nothing: sockets hold much of it.
        wait_for("file", || open_file(&server, "/t/1/00/"));
        let wanted = String::from_utf8(pattern(BIG)).expect("letters").replace("aaaaaaa", "1234567");
        assert!(client.response().text() == wanted);
        let mut server = server;
        assert!(server.quit().error_log.contains("/t/1/00/0000000001"));
    }

    fn the_file_s_limit_holds(driver) {
        for (directives, file) in [
            ("proxy_max_temp_file_size 0; proxy_busy_buffers_size 8k;", false),
            ("proxy_max_temp_file_size 1m; proxy_temp_file_write_size 16k;", true),
            ("proxy_buffering off;", false),
        ] {
            let (backend, done) = giver(LENGTH, 32);
            let server = proxy(&backend, directives);
            let mut client = server.client();
            client.send(get("/"));
            client.peek(1000).expect("it has begun");
            if file {
                wait_for("file", || open_file(&server, "proxy_temp"));
            }
            assert_eq!(done.load(Ordering::SeqCst), 0, "the rest waits for the client: {directives}");
            assert!(open_file(&server, "proxy_temp").unwrap_or(0) <= 1 << 20);
            assert!(client.response().body == pattern(BIG), "{directives}");
            let mut server = server;
            let log = server.quit().error_log;
            assert_eq!(log.contains("temporary file"), file, "{directives}: {log}");
        }
    }

    fn the_answer_says_whether_it_is_buffered(driver) {
        for (ignore, spilled) in [("", false), ("proxy_ignore_headers X-Accel-Buffering;", true)] {
            let (backend, done) = giver("HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\nX-Accel-Buffering: no\r\n\r\n", 32);
            let server = proxy(&backend, ignore);
            let mut client = server.client();
            client.send(get("/"));
            client.peek(1000).expect("it has begun");
            if spilled {
                wait_for("end of the server's part", || (done.load(Ordering::SeqCst) == 1).then_some(()));
                wait_for("file", || open_file(&server, "proxy_temp"));
            }
            assert!(client.response().body == pattern(BIG));
            let mut server = server;
            assert_eq!(server.quit().error_log.contains("temporary file"), spilled);
        }
    }

    /// nginx ends the response there; it needs no file, only the client's patience.
    fn without_a_place_for_the_file_the_response_comes_as_the_client_takes_it(driver) {
        let (backend, _) = giver(LENGTH, 32);
        // Slower than the server for certain, so that the file is asked for.
        let server = proxy(&backend, "limit_rate 6m;");
        std::fs::remove_dir_all(server.dir().path().join("proxy_temp")).expect("made at the start");
        let mut client = server.client();
        client.send(get("/"));
        assert!(client.response().body == pattern(BIG));
        let line = server.error_log_line("[crit]");
        assert!(
            line.contains("open() \"")
                && line.contains("failed (2: No such file or directory) while reading upstream"),
            "{line}"
        );
        assert_eq!(server.error_log().matches("[crit]").count(), 1);
    }

    fn records_are_taken_off_before_the_file(driver) {
        let app = FcgiApp::start(|_| {
            let mut out = vec![FcgiOut::Stdout(b"Content-Type: a/b\r\n\r\n".to_vec())];
            out.extend(pattern(BIG).chunks(60_000).map(|piece| FcgiOut::Stdout(piece.to_vec())));
            out.extend([FcgiOut::Stdout(Vec::new()), FcgiOut::End]);
            out
        });
        let conf = format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ fastcgi_pass 127.0.0.1:{}; }} }} }}",
            app.port()
        );
        let server = Server::builder(&conf).allow("temporary file").start();
        let mut client = server.client();
        client.send(get("/"));
        wait_for("file", || open_file(&server, "fastcgi_temp"));
        assert!(client.response().body == pattern(BIG));
    }
}

/// The size of a file that the server has open, whose name has, or had, `part` in it.
fn open_file(server: &Server, part: &str) -> Option<u64> {
    let directory = format!("/proc/{}/fd", server.serving_pid());
    let mut files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = |path: &Path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(part));
    let file = files.find(|file| named(&file.path()))?;
    std::fs::metadata(file.path()).ok().map(|meta| meta.len())
}
