//! Heads of files that are known before they are made: they are those that would be composed, whatever the settings.

use std::fs;
use std::path::Path;

use weir_test::{Client, Server, both_drivers, wait_for};

/// Settings of locations; each is `/N/` with `alias html/`, so that all have the same files.
const SETTINGS: &[&str] = &[
    "",
    "etag off;",
    "max_ranges 0;",
    "default_type application/x-own; types { }",
    "default_type ''; types { }",
    "charset utf-8;",
    "override_charset on; charset koi8-r;",
    "add_header X-Frame-Options DENY; add_header X-Content-Type-Options nosniff always; add_header cache-control no-cache;",
    "add_header X-Uri $uri; add_header X-Encoding $http_accept_encoding;",
    "add_header ETag '\"own\"';",
    "add_header Last-Modified 'Sun, 06 Nov 1994 08:49:37 GMT';",
    "add_header Last-Modified '';",
    "add_header Date 'Sun, 06 Nov 1994 08:49:37 GMT'; add_header Connection own;",
    "add_header X-Empty '';",
    "expires 1h;",
    "expires epoch;",
    "expires max;",
    "expires modified 1h;",
    "expires $arg_expires;",
    "gzip on; gzip_min_length 1; gzip_vary on; gzip_types text/plain; gzip_http_version 1.0;",
    "gzip_static on; gzip_vary on;",
    "gunzip on;",
    "server_tokens off;",
    "keepalive_timeout 5 7;",
    "keepalive_timeout 0;",
    "if_modified_since before;",
    "add_trailer X-Trailer value;",
    "limit_rate 1m;",
    "userid on;",
    "sub_filter_once off; sub_filter hello goodbye;",
    "open_file_cache max=10; open_file_cache_valid 0;",
    "if ($arg_if) { add_header X-If yes; }",
    "set $limit_rate 0; if ($arg_expires) { expires 1d; }",
    "error_page 404 /0/a.txt;",
];
/// Fields of requests, some of which change what is sent.
const FIELDS: &[&str] = &[
    "",
    "Connection: close\r\n",
    "Accept-Encoding: gzip\r\n",
    "Range: bytes=1-2\r\n",
    "Range: bytes=0-0,2-3\r\n",
    "Range: bytes=900000-\r\n",
    "Range: bytes=1-2\r\nIf-Range: \"no\"\r\n",
    "If-None-Match: *\r\n",
    "If-Match: \"no\"\r\n",
    "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n",
    "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
];
const PATHS: &[&str] = &["a.txt", "a.html", "plain", "none.txt", "a.txt?expires=2h&if=1"];

fn conf(more: &str) -> String {
    let location =
        |(at, settings): (usize, &&str)| format!("location /{at}/ {{ alias html/; {settings} }}\n");
    let locations: String = SETTINGS.iter().enumerate().map(location).collect();
    format!(
        "http {{ keepalive_requests 1000000; {more}
        server {{ listen 127.0.0.1:%%PORT%%; {locations} }} }}"
    )
}

fn started(more: &str) -> Server {
    let hello = "hello ".repeat(20);
    let server = Server::builder(&conf(more))
        .file("html/a.txt", &hello)
        .file("html/a.html", &hello)
        .file("html/plain", "");
    server.start()
}

/// The lines of a response's head, without those that differ by the second or the client.
fn lines(head: &str) -> Vec<String> {
    let passing = |line: &&str| {
        !["Date: ", "Set-Cookie: ", "Expires: ", "Cache-Control: max-age"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    head.lines().filter(passing).map(str::to_owned).collect()
}

fn ask(server: &Server, client: &mut Client, request: &str) -> (Vec<String>, Vec<u8>) {
    let response = client.request(request);
    if !response.keeps_alive() || response.all("connection").contains(&"own") {
        *client = server.client();
    }
    let mut lines = lines(&response.head_text());
    // Parts have an unpredictable boundary.
    let parts = lines.iter().any(|line| line.contains("boundary="));
    lines.retain(|line| !line.contains("boundary="));
    (lines, if parts { Vec::new() } else { response.body })
}

/// Every setting with every request: the same response to the first of its kind and to one that comes after all others; its head is
/// that of HEAD, which is composed each time, where that has the same fields.
fn compare(server: &Server) {
    let mut client = server.client();
    for (at, settings) in SETTINGS.iter().enumerate() {
        let mut first = Vec::new();
        for round in 0..2 {
            let mut seen = Vec::new();
            for (path, version, fields) in requests() {
                let rest =
                    |method| format!("{method} /{at}/{path} HTTP/1.{version}\r\nHost: a\r\n{fields}\r\n");
                let response = ask(server, &mut client, &rest("GET"));
                // With a head that was read, that was recalled, and whose response was stored.
                for again in 1..4 {
                    assert_eq!(
                        ask(server, &mut client, &rest("GET")),
                        response,
                        "{settings} {again} {}",
                        rest("GET")
                    );
                }
                // As in nginx a HEAD has neither parts nor a body to be changed.
                let alike = ["sub_filter", "add_trailer"].iter().all(|setting| !settings.contains(setting));
                if fields.is_empty() && alike {
                    let head = ask(server, &mut client, &rest("HEAD")).0;
                    assert_eq!(response.0, head, "{} {}", settings, rest("GET"));
                }
                seen.push(response);
            }
            match round {
                0 => first = seen,
                _ => {
                    for ((asked, before), now) in requests().zip(&first).zip(&seen) {
                        assert_eq!(before, now, "{settings} {asked:?}");
                    }
                }
            }
        }
    }
}

fn requests() -> impl Iterator<Item = (&'static str, u8, &'static str)> {
    let versions = |path| [0, 1].into_iter().map(move |version| (path, version));
    let paths = PATHS.iter().flat_map(move |path| versions(*path));
    paths.flat_map(|(path, version)| FIELDS.iter().map(move |fields| (path, version, *fields)))
}

/// Replaces a file; its date is `age` seconds older than now.
fn replace(directory: &Path, text: &str, age: u64) {
    let aside = directory.join("new");
    fs::write(&aside, text).expect("the directory is ours");
    let date = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
    fs::File::options()
        .write(true)
        .open(&aside)
        .and_then(|file| file.set_modified(date))
        .expect("it is ours");
    fs::rename(&aside, directory.join("a.txt")).expect("the directory is ours");
}

both_drivers! {
    fn heads_of_files_are_those_that_would_be_composed(driver) {
        compare(&started(""));
    }

    fn a_changed_file_has_a_head_of_its_own(driver) {
        let server = started("");
        let directory = server.dir().path().join("html");
        let mut client = server.client();
        let mut known = Vec::new();
        for number in 0..60 {
            let text = "x".repeat(number % 4 + 1);
            replace(&directory, &text, 1000 * (number as u64 / 4 % 5));
            for at in [0, 1, 7, 30] {
                let (get, body) = ask(&server, &mut client, &format!("GET /{at}/a.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
                let (head, _) = ask(&server, &mut client, &format!("HEAD /{at}/a.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
                assert_eq!((&get, body), (&head, text.clone().into_bytes()), "{number} {at}");
                known.push(get);
            }
        }
        known.sort();
        known.dedup();
        assert!(known.len() > 20, "dates and lengths are in the heads: {}", known.len());
    }

    fn a_reload_changes_heads(driver) {
        for workers in [1, 3] {
            let with = |value: &str| conf(&format!("add_header X-Version {value}; server_tokens off;"));
            let mut server = started("add_header X-Version v0;");
            for number in 1..6 {
                let version = format!("v{number}");
                server.reload(&format!("worker_processes {workers}; {}", with(&version)));
                let mut client = server.client();
                wait_for(&version, || {
                    client = server.client();
                    (client.get("/0/a.txt").field("x-version") == Some(&version)).then_some(())
                });
                for _ in 0..3 {
                    assert_eq!(client.get("/0/a.txt").field("x-version"), Some(&*version));
                    assert_eq!(client.get("/1/a.txt").field("etag"), None);
                }
            }
        }
    }

    /// What a log or a script sees of a response is the same, known or not.
    fn logs_see_the_fields_of_known_heads(driver) {
        let server = started("log_format f '$status $sent_http_etag $sent_http_content_type $sent_http_accept_ranges $sent_http_last_modified $sent_http_content_length $sent_http_x_frame_options $bytes_sent $body_bytes_sent'; access_log access.log f;");
        let mut client = server.client();
        for at in [0, 7] {
            for _ in 0..4 {
                assert_eq!(client.get(&format!("/{at}/a.txt")).status, 200);
            }
        }
        let lines = wait_for("lines", || {
            let text = fs::read_to_string(server.dir().path().join("access.log")).unwrap_or_default();
            (text.lines().count() == 8).then_some(text)
        });
        let lines: Vec<&str> = lines.lines().collect();
        assert!(lines[..4].iter().all(|line| *line == lines[0]), "{lines:?}");
        assert!(lines[4..].iter().all(|line| *line == lines[4]), "{lines:?}");
        assert!(lines[0].starts_with("200 \\x22") && lines[0].contains("\\x22 text/plain bytes "), "{lines:?}");
        assert!(lines[4].contains(" DENY "), "{lines:?}");
    }
}
