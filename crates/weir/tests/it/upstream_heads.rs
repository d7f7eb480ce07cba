//! Heads that are known from what they come from, a server's head that came before or a cached response: they are those that
//! would be composed, whatever the settings.

use std::fs;

use weir_test::{Backend, Client, Server, both_drivers, wait_for};

/// What the server responds to `/N`.
const RESPONSES: &[&str] = &[
    "200 OK\r\nServer: own\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nX-Own: 1\r\nx-OWN: 2\r\n\r\nhello",
    "200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\nvary: Cookie\r\nCache-Control: max-age=60\r\n\r\nhello",
    "200 Fine\r\nContent-Type: text/html;charset=\"UTF-8\"\r\nContent-Length: 5\r\n\r\nhello",
    "200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\nContent-Type: text/html\r\nSet-Cookie: a=b; path=/1\r\n\r\nhello",
    "200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n",
    "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nX-Accel-Charset: utf-8\r\nX-Accel-Limit-Rate: 100000\r\nX-Accel-Buffering: no\r\n\r\nhello",
    "301 Moved Permanently\r\nLocation: http://u/next\r\nRefresh: 3; url=http://u/next\r\nContent-Length: 5\r\n\r\nmoved",
    "404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nnever",
    "206 Partial Content\r\nContent-Range: bytes 0-4/10\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
    "204 No Content\r\nContent-Type: text/plain\r\n\r\n",
    "200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\nKeep-Alive: timeout=9\r\n\r\n",
];
/// Settings of locations.
const SETTINGS: &[&str] = &[
    "",
    "add_header X-Frame-Options DENY; add_header X-Always 1 always; add_header x-OWN 3;",
    "add_header X-Uri $uri;",
    "add_header ETag '\"own\"';",
    "proxy_pass_header Server;",
    "proxy_pass_header Date; proxy_hide_header X-Own;",
    "proxy_redirect http://u/ /$arg_a/; proxy_cookie_path / /$arg_a/;",
    "proxy_force_ranges on;",
    "proxy_ignore_headers X-Accel-Charset X-Accel-Limit-Rate X-Accel-Buffering;",
    "proxy_pass_trailers on;",
    "proxy_buffering off;",
    "proxy_intercept_errors on; error_page 404 /404.txt;",
    "charset utf-8; override_charset on;",
    "gzip on; gzip_min_length 1; gzip_vary on; gzip_types text/plain;",
    "expires 1h;",
    "keepalive_timeout 5 7;",
    "keepalive_timeout 0;",
    "server_tokens off; max_ranges 0;",
    "sub_filter_once off; sub_filter hello goodbye;",
    "add_trailer X-Trailer value;",
    "proxy_cache one; proxy_cache_valid any 1h; proxy_ignore_headers Set-Cookie Cache-Control Vary;",
    "proxy_cache one; proxy_cache_valid any 1h; add_header X-Frame-Options DENY;",
    "proxy_cache one; proxy_cache_valid any 1h; proxy_cache_bypass $arg_a;",
    "proxy_cache one; proxy_cache_valid 200 1h; proxy_force_ranges on; chunked_transfer_encoding off;",
    "if ($arg_a) { add_header X-If yes; }",
];
/// Requests: version and fields.
const REQUESTS: &[(&str, &str, &str)] = &[
    ("GET", "1.1", ""),
    ("GET", "1.1", "Connection: close\r\n"),
    ("GET", "1.0", ""),
    ("GET", "1.1", "Range: bytes=1-2\r\n"),
    ("GET", "1.1", "If-None-Match: \"a\"\r\nAccept-Encoding: gzip\r\n"),
    ("GET", "1.1", ""),
    ("HEAD", "1.1", ""),
    ("GET", "1.1", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"),
    ("GET", "1.1", ""),
];

fn backend() -> Backend {
    Backend::start(|visit| {
        while let Some(head) = visit.head() {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let number =
                path.trim_start_matches('/').split('?').next().and_then(|number| number.parse().ok());
            let Some(response) = number.and_then(|number: usize| RESPONSES.get(number)) else { return };
            let (top, _) = response.split_once("\r\n\r\n").expect("a head ends");
            // A response to HEAD has no body.
            let response =
                if head.starts_with("HEAD ") { format!("{top}\r\n\r\n") } else { (*response).to_owned() };
            visit.send(format!("HTTP/1.1 {response}"));
        }
    })
}

/// Each of the settings twice: at `/N/`, and at `/rN/` with a filter whose fields are not known before, so that each head is
/// composed.
fn conf(port: u16, more: &str) -> String {
    let locations: String = SETTINGS
        .iter()
        .enumerate()
        .map(|(at, settings)| {
            format!(
                "location /{at}/ {{ proxy_pass http://u/; {settings} }}
                 location /r{at}/ {{ proxy_pass http://u/; {settings} header_filter_by_lua 'local a = 1'; }}"
            )
        })
        .collect();
    format!(
        "http {{ keepalive_requests 1000000; {more} proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
        upstream u {{ server 127.0.0.1:{port}; keepalive 8; }}
        server {{ listen 127.0.0.1:%%PORT%%; location = /404.txt {{ return 404 gone; }} {locations} }} }}"
    )
}

/// Head, without its date, and body.
fn ask(
    server: &Server,
    client: &mut Client,
    path: &str,
    request: &(&str, &str, &str),
) -> (Vec<String>, Vec<u8>) {
    let (method, version, fields) = request;
    let response = client.request(format!("{method} {path} HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
    if !response.keeps_alive() {
        *client = server.client();
    }
    let passing = |line: &&str| {
        // Of one that was expired it depends on the second.
        !["Date: ", "Expires: ", "Cache-Control: max-age=3"].iter().any(|name| line.starts_with(name))
            || line.ends_with("1994 08:49:37 GMT")
    };
    (response.head_text().lines().filter(passing).map(str::to_owned).collect(), response.body)
}

/// Has the response cached, if it can be: a response that is being stored is another one than that from the cache.
fn fill(server: &Server, backend: &Backend, path: &str) {
    let mut client = server.client();
    for _ in 0..20 {
        let before = backend.heads();
        ask(server, &mut client, path, &REQUESTS[0]);
        if backend.heads() == before {
            break;
        }
    }
}

both_drivers! {
    fn known_heads_are_those_that_would_be_composed(driver) {
        let backend = backend();
        let server = Server::builder(&conf(backend.port(), "")).start();
        let (mut one, mut other) = (server.client(), server.client());
        for (at, settings) in SETTINGS.iter().enumerate() {
            for number in 0..RESPONSES.len() {
                if settings.contains("proxy_cache") {
                    fill(&server, &backend, &format!("/{at}/{number}?a=b"));
                    fill(&server, &backend, &format!("/r{at}/{number}?a=b"));
                }
                for round in 0..2 {
                    for request in REQUESTS {
                        let known = ask(&server, &mut one, &format!("/{at}/{number}?a=b"), request);
                        let mut composed = ask(&server, &mut other, &format!("/r{at}/{number}?a=b"), request);
                        // Redirects have the location's path in them.
                        composed.0.iter_mut().for_each(|line| *line = line.replace("/r", "/"));
                        assert_eq!(known, composed, "{settings} {number} {round} {request:?}");
                    }
                }
            }
        }
    }

    /// What a log sees of a response is the same, known or not.
    fn logs_see_the_fields_of_known_responses(driver) {
        let backend = backend();
        let format = "log_format f '$uri $status $sent_http_etag $sent_http_content_type $sent_http_last_modified $sent_http_content_length $sent_http_x_own $sent_http_x_frame_options $upstream_http_x_own $upstream_http_server $upstream_status $body_bytes_sent'; access_log access.log f;";
        let server = Server::builder(&conf(backend.port(), format)).start();
        let mut client = server.client();
        let paths = ["/0/0", "/0/1", "/0/2", "/1/0", "/1/7", "/21/0", "/21/1"];
        for path in paths {
            for _ in 0..10 {
                client.get(path);
            }
        }
        let text = wait_for("lines", || {
            let text = fs::read_to_string(server.dir().path().join("access.log")).unwrap_or_default();
            (text.lines().count() == 10 * paths.len()).then_some(text)
        });
        let lines: Vec<&str> = text.lines().collect();
        for (path, lines) in paths.iter().zip(lines.chunks(10)) {
            // The first fills the cache, and has a server's status.
            assert!(lines[1..].iter().all(|line| *line == lines[1]), "{path} {lines:?}");
        }
        assert!(lines[5].contains(" \\x22a\\x22 text/plain Sun, 06 Nov 1994 08:49:37 GMT 5 1, 2 - 1, 2 own "), "{}", lines[5]);
    }

    fn another_head_is_not_taken_for_the_one_before(driver) {
        let backend = Backend::start(|visit| {
            let mut number = 0;
            while visit.head().is_some() {
                number += 1;
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Number: {}\r\n\r\n{:02}", number / 7, number % 100));
            }
        });
        let server = Server::builder(&conf(backend.port(), "")).start();
        let mut client = server.client();
        for number in 1..60 {
            let response = client.get("/1/0");
            assert_eq!(response.field("x-number"), Some(&*(number / 7).to_string()));
            assert_eq!((response.text(), response.all("x-frame-options").len()), (format!("{number:02}"), 1));
        }
    }

    fn a_reload_changes_the_heads_of_cached_responses(driver) {
        let backend = backend();
        let with = |value: &str| conf(backend.port(), &format!("add_header X-Version {value};"));
        let mut server = Server::builder(&with("v0")).start();
        for number in 0..4 {
            let version = format!("v{number}");
            if number > 0 {
                server.reload(&with(&version));
            }
            let mut client = server.client();
            wait_for(&version, || {
                client = server.client();
                (client.get("/20/0").field("x-version") == Some(&version)).then_some(())
            });
            for _ in 0..6 {
                assert_eq!(client.get("/20/0").all("x-version"), [&*version]);
                assert_eq!(client.get("/0/0").all("x-version"), [&*version]);
            }
        }
    }
}
