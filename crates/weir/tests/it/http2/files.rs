//! Files on streams: their bytes are read when their stream's turn comes, from memory or from the disk.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;

use weir_http::h2::ErrorCode;
use weir_test::{Server, both_drivers, wait_for};

use super::client::Client;
use crate::support::pattern;

const CONF: &str = "http { open_file_cache max=100; log_format t '$uri $status $body_bytes_sent'; access_log %%DIR%%/access.log t;
    server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%/html;
        location /frames/ { alias %%DIR%%/html/; http2_chunk_size 1000; } } }";
const BIG: usize = 3_000_000;

fn started(driver: weir_test::Driver) -> Server {
    let files = Server::builder(CONF).driver(driver).allow("file was truncated while");
    ["a", "b", "c", "d"]
        .into_iter()
        .fold(files, |files, name| files.file(&format!("html/{name}"), pattern(BIG)))
        .start()
}

/// Drops what the page cache has of a file; tmpfs keeps its files.
fn forget(file: &Path) {
    let dropped = Command::new("dd")
        .arg(format!("of={}", file.display()))
        .args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"])
        .status();
    assert!(dropped.expect("dd is everywhere").success());
}

both_drivers! {
    /// The stream whose file has to be read from the disk waits, the others go on.
    fn files_that_are_not_in_memory_come_whole_beside_others(driver) {
        let server = started(driver);
        let expected = pattern(BIG);
        for way in ["/", "/frames/"] {
            for name in ["a", "c"] {
                forget(&server.dir().path().join("html").join(name));
            }
            let mut client = Client::connect(server.addr(0));
            // By turns, and one after the other.
            let incremental = [("priority", "u=3, i")];
            let keys: Vec<_> = ["a", "b", "c", "d", "a", "c"].into_iter().enumerate().map(|(at, name)| {
                client.open("GET", &format!("{way}{name}"), if at % 3 == 0 { &[] } else { &incremental[..] }, None)
            }).collect();
            for key in keys {
                let answer = client.answer(key);
                assert!(answer.status == 200 && answer.body == expected, "{} bytes", answer.body.len());
            }
        }
    }

    /// Pieces in memory stand between pieces of the file; windows open by a few bytes.
    fn ranges_and_small_windows_get_the_same_bytes(driver) {
        let server = started(driver);
        let ranges = [("range", "bytes=0-9,100000-400000,5-5,2000000-2000099,-70000")];
        let mut first = Vec::new();
        for window in [700, 5000, 16_383, 16_384, 1 << 20] {
            forget(&server.dir().path().join("html/a"));
            let mut client = Client::with_window(server.addr(0), window);
            let key = client.open("GET", "/a", &ranges, None);
            // A boundary that is a number and differs.
            let answer = client.answer(key);
            assert_eq!(answer.status, 206);
            let kind = answer.field("content-type").expect("of several parts");
            let boundary = kind.rsplit('=').next().expect("a boundary").to_owned();
            let text = answer.text().replace(&boundary, "BOUNDARY");
            if first.is_empty() {
                first = text.clone().into_bytes();
                assert!(first.len() > 370_000);
            }
            assert!(text.as_bytes() == first, "a window of {window}");
        }
    }

    /// What was announced cannot come any more: the stream is reset, and the connection serves others.
    fn a_file_that_is_cut_while_it_is_sent_resets_its_stream(driver) {
        let server = started(driver);
        let mut client = Client::with_window(server.addr(0), 20_000);
        client.reads = false;
        let key = client.get("/a");
        client.until("the first bytes", |client| client.answers[&key].body.len() == 20_000);
        let file = OpenOptions::new().write(true).open(server.dir().path().join("html/a")).expect("it is there");
        file.set_len(30_000).expect("it is ours");
        client.open_window(key, BIG as u32);
        let answer = client.answer(key);
        assert_eq!(answer.reset, Some(ErrorCode::Internal));
        assert!(answer.body.len() <= 30_000 && answer.body[..20_000] == pattern(BIG)[..20_000]);
        let _ = server.error_log_line("file was truncated while it was sent");
        client.reads = true;
        assert_eq!(client.fetch("/b").body.len(), BIG);
        let line = wait_for("its line", || {
            fs::read_to_string(server.dir().path().join("access.log")).ok()?.lines().find(|line| line.starts_with("/a ")).map(str::to_owned)
        });
        assert_eq!(line, format!("/a 200 {}", answer.body.len()));
    }
}
