//! Files that change: a request that starts after a change sees it, unless `open_file_cache` allows otherwise.

use crate::support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_test::{Client, Server, both_drivers, wait_for};

use support::{StopAtEnd, assert_serves, get};

const CONF: &str = "http { keepalive_requests 1000000; server { listen 127.0.0.1:%%PORT%%; root html; } }";

fn started(conf: &str) -> Server {
    Server::builder(conf).file("html/a.txt", "version 0").start()
}

/// Replaces a file as careful programs do: written aside, then renamed.
fn replace(directory: &Path, name: &str, content: &[u8]) {
    let aside = directory.join(format!("{name}.new"));
    fs::write(&aside, content).expect("the folder is ours");
    fs::rename(&aside, directory.join(name)).expect("the folder is ours");
}

/// A version's content: small ones fit in memory, large ones are sent from the file.
fn content(version: usize, large: bool) -> Vec<u8> {
    let mut content = format!("version {version}").into_bytes();
    if large {
        content.resize(300_000, b'.');
    }
    content
}

#[track_caller]
fn version(body: &[u8]) -> usize {
    let text = std::str::from_utf8(body).expect("ASCII").trim_end_matches('.');
    text.strip_prefix("version ").and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text:?}"))
}

both_drivers! {
    fn a_renamed_file_is_seen_by_the_next_request_of_the_connection(driver) {
        let server = started(CONF);
        let directory = server.dir().path().join("html");
        let mut client = server.client();
        let mut etags = Vec::new();
        for number in 1..200 {
            let large = number % 5 == 0;
            replace(&directory, "a.txt", &content(number, large));
            let response = client.get("/a.txt");
            assert!(response.body == content(number, large), "{number}: {response}");
            etags.push((response.field("etag").map(str::to_owned), response.body.len()));
        }
        assert!(etags.iter().all(|(etag, _)| etag.is_some()));
        // The tag is of the new file too: a conditional request with an old one gets its response in full.
        let old = etags[0].0.clone().expect("just checked");
        replace(&directory, "a.txt", b"other length");
        let again = client.request(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {old}\r\n\r\n"));
        assert_eq!((again.status, again.text().as_str()), (200, "other length"));
    }

    fn a_file_changed_in_place_is_seen_by_the_next_request(driver) {
        let server = started(CONF);
        let path = server.dir().path().join("html/a.txt");
        let mut client = server.client();
        for number in 1..200 {
            // The same length and, at the clock's grain, the same time: neither may be taken as a sign of no change.
            fs::write(&path, format!("version {}", number % 10)).expect("ours");
            assert_serves(&mut client, "/a.txt", &format!("version {}", number % 10));
        }
    }

    fn what_comes_and_goes_is_seen_by_the_next_request(driver) {
        let server = started(CONF);
        let directory = server.dir().path().join("html");
        let mut client = server.client();
        for _ in 0..20 {
            assert_serves(&mut client, "/a.txt", "version 0");
            fs::rename(directory.join("a.txt"), directory.join("b.txt")).expect("ours");
            assert_eq!(client.get("/a.txt").status, 404);
            assert_serves(&mut client, "/b.txt", "version 0");
            fs::create_dir(directory.join("a.txt")).expect("ours");
            assert_eq!(client.get("/a.txt").status, 301, "a folder");
            assert_eq!(client.get("/a.txt/").status, 403, "without index");
            fs::write(directory.join("a.txt/index.html"), "index").expect("ours");
            assert_serves(&mut client, "/a.txt/", "index");
            fs::remove_dir_all(directory.join("a.txt")).expect("ours");
            symlink("b.txt", directory.join("a.txt")).expect("ours");
            assert_serves(&mut client, "/a.txt", "version 0");
            fs::rename(directory.join("b.txt"), directory.join("a.txt")).expect("ours");
        }
    }

    /// `ln -sfn`, as releases are switched: the directory above the file changes.
    fn a_switched_link_above_the_file_is_seen(driver) {
        let server = started(CONF);
        let directory = server.dir().path().join("html");
        for release in ["r0", "r1"] {
            server.dir().write(&format!("html/{release}/f.txt"), release);
        }
        let mut client = server.client();
        for number in 0..50 {
            let release = format!("r{}", number % 2);
            symlink(&release, directory.join("new")).expect("ours");
            fs::rename(directory.join("new"), directory.join("current")).expect("ours");
            assert_serves(&mut client, "/current/f.txt", &release);
        }
    }

    /// Many connections asking for the same file share its opening, but never with a request that came before the
    /// change.
    fn under_load_no_request_sees_a_file_older_than_itself(driver) {
        let server = started(CONF);
        let directory = server.dir().path().join("html");
        let (done, seen, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let address = server.addr(0);
        std::thread::scope(|scope| {
            let _stops = StopAtEnd(&stop);
            let reader = || {
                let mut client = Client::connect(address);
                while !stop.load(Ordering::Acquire) {
                    let at_least = done.load(Ordering::Acquire);
                    let found = version(&client.get("/a.txt").body);
                    assert!(found >= at_least, "version {found} after {at_least} was there");
                    seen.fetch_add(1, Ordering::Release);
                }
            };
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(reader)).collect();
            for number in 1..=150 {
                replace(&directory, "a.txt", &content(number, number % 16 == 0));
                done.store(number, Ordering::Release);
                // Readers must get between the changes.
                let before = seen.load(Ordering::Acquire);
                wait_for("a reader", || {
                    let failed = readers.iter().any(|reader| reader.is_finished());
                    (failed || seen.load(Ordering::Acquire) > before).then_some(())
                });
            }
            stop.store(true, Ordering::Release);
            for reader in readers {
                reader.join().expect("no stale file");
            }
        });
    }

    /// Requests that came together may share one look at the file; the next batch looks again.
    fn pipelined_batches_look_again(driver) {
        let server = started(CONF);
        let directory = server.dir().path().join("html");
        let mut client = server.client();
        for number in 1..100 {
            replace(&directory, "a.txt", &content(number, false));
            client.send(get("/a.txt").repeat(8));
            for _ in 0..8 {
                assert_eq!(version(&client.response().body), number);
            }
        }
    }

    /// With `open_file_cache` its own time counts, for the content as well as for the name.
    fn a_cached_file_stays_until_it_is_looked_at_again(driver) {
        let server = started(
            "http { open_file_cache max=10; open_file_cache_valid 1h; server { listen 127.0.0.1:%%PORT%%; root html; } }",
        );
        let directory = server.dir().path().join("html");
        let mut client = server.client();
        for _ in 0..3 {
            assert_serves(&mut client, "/a.txt", "version 0");
        }
        replace(&directory, "a.txt", b"version 1");
        for _ in 0..10 {
            assert_serves(&mut client, "/a.txt", "version 0");
            assert_eq!(server.get("/a.txt").text(), "version 0");
        }
        // What is not in the cache is looked at.
        server.dir().write("html/b.txt", "another");
        assert_serves(&mut client, "/b.txt", "another");
    }

    fn a_cached_file_is_looked_at_again_after_its_time(driver) {
        let server = started(
            "http { open_file_cache max=10; open_file_cache_valid 1s; server { listen 127.0.0.1:%%PORT%%; root html; } }",
        );
        let directory = server.dir().path().join("html");
        let mut client = server.client();
        assert_serves(&mut client, "/a.txt", "version 0");
        replace(&directory, "a.txt", b"version 1");
        wait_for("new version", || (client.get("/a.txt").text() == "version 1").then_some(()));
        fs::remove_file(directory.join("a.txt")).expect("ours");
        wait_for("its end", || (client.get("/a.txt").status == 404).then_some(()));
    }

    /// `open_file_cache_errors off`: that a file is missing is not cached.
    fn a_missing_file_is_cached_only_when_asked(driver) {
        for (errors, status) in [("off", 200), ("on", 404)] {
            let server = started(&format!(
                "http {{ open_file_cache max=10; open_file_cache_valid 1h; open_file_cache_errors {errors};
                server {{ listen 127.0.0.1:%%PORT%%; root html; }} }}"
            ));
            let mut client = server.client();
            assert_eq!(client.get("/late.txt").status, 404);
            server.dir().write("html/late.txt", "late");
            assert_eq!(client.get("/late.txt").status, status, "open_file_cache_errors {errors}");
        }
    }

    /// A reload forgets what was cached.
    fn a_reload_empties_the_cache(driver) {
        let conf = "http { open_file_cache max=10; open_file_cache_valid 1h; server { listen 127.0.0.1:%%PORT%%; root html; } }";
        let mut server = started(conf);
        let mut client = server.client();
        assert_serves(&mut client, "/a.txt", "version 0");
        replace(&server.dir().path().join("html"), "a.txt", b"version 1");
        assert_serves(&mut client, "/a.txt", "version 0");
        server.reload(conf);
        wait_for("new version", || (server.get("/a.txt").text() == "version 1").then_some(()));
    }
}
