//! What fails is seen to fail: the client gets an error, or a response that is visibly cut off, and the error log has a line.

use std::fs::OpenOptions;

use weir_test::{Backend, ConnectionEnd, FcgiApp, FcgiOut, Server, both_drivers, wait_for};

use crate::support::pattern;

/// Where the server that is asked breaks off.
const CUTS: [(&str, &str); 3] = [
    ("before", ""),
    ("in_head", "Content-Type: text/plain\r\nX-A"),
    ("in_body", "Content-Length: 10\r\n\r\nabc"),
];

/// What a server says to a request for a path, after its first line.
fn says(path: &str) -> Option<&'static str> {
    CUTS.iter().find(|(name, _)| path.contains(name)).map(|(_, text)| *text).filter(|text| !text.is_empty())
}

fn conf(proxied: u16, fastcgi: u16) -> String {
    let conf = "http { proxy_cache_path %%DIR%%/cache keys_zone=kept:1m; gzip_types *; gzip_min_length 1;
        server { listen 127.0.0.1:%%PORT%%;
            location /proxied/ { proxy_pass http://127.0.0.1:PROXIED; }
            location /unbuffered/ { proxy_buffering off; proxy_pass http://127.0.0.1:PROXIED; }
            location /cached/ { proxy_cache kept; proxy_cache_valid any 1h; proxy_pass http://127.0.0.1:PROXIED; }
            location /gzip/ { gzip on; gzip_proxied any; proxy_pass http://127.0.0.1:PROXIED; }
            location /fastcgi/ { fastcgi_param URI $uri; fastcgi_pass 127.0.0.1:FASTCGI; }
            location = /lua/rewrite { rewrite_by_lua_block { error('on purpose') } }
            location = /lua/access { access_by_lua_block { error('on purpose') } }
            location = /lua/content { content_by_lua_block { error('on purpose') } }
            location = /lua/said { content_by_lua_block { ngx.say('some') ngx.flush(true) error('on purpose') } }
            location = /lua/head { header_filter_by_lua_block { error('on purpose') } return 200 some; }
            location = /lua/body { body_filter_by_lua_block { error('on purpose') } return 200 some; }
        } }";
    conf.replace("PROXIED;", &format!("{proxied};")).replace("FASTCGI;", &format!("{fastcgi};"))
}

/// Whether the response, after which the connection ended, looks whole.
fn looks_whole(response: &str) -> bool {
    let Some((head, body)) = response.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    length.is_none_or(|length| length == body.len())
}

/// Whether the error log has, or gets, a line of a grave level about the request, which may be the last of several lines.
fn is_logged(server: &Server, path: &str) {
    let request = format!("\"GET {path} HTTP");
    wait_for(&format!("a line about {path}"), || {
        let light = |line: &str| ["[info]", "[notice]", "[warn]"].iter().any(|level| line.contains(level));
        server.error_log().lines().any(|line| !light(line) && line.contains(&request)).then_some(())
    });
}

both_drivers! {
    fn a_failure_is_an_error_or_visibly_cut_off_and_logged(driver) {
        let backend = Backend::start(|visit| {
            let Some(head) = visit.head() else { return };
            if let Some(text) = says(&head) {
                visit.send(format!("HTTP/1.1 200 OK\r\n{text}"));
            }
        });
        let fastcgi = FcgiApp::start(|request| {
            says(request.param("URI")).map(|text| FcgiOut::Stdout(text.into())).into_iter().collect()
        });
        let server = Server::builder(&conf(backend.port(), fastcgi.port())).allow("internal error").start();
        let mut paths: Vec<(String, bool)> = Vec::new();
        for source in ["proxied", "unbuffered", "cached", "gzip", "fastcgi"] {
            paths.extend(CUTS.map(|(cut, _)| (format!("/{source}/{cut}"), cut != "in_body")));
        }
        for (phase, refused) in [("rewrite", true), ("access", true), ("content", true), ("said", false), ("head", false), ("body", false)] {
            paths.push((format!("/lua/{phase}"), refused));
        }
        let mut wrong = Vec::new();
        for (path, refused) in paths {
            let mut client = server.client();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"));
            let response = String::from_utf8_lossy(&client.rest().0).into_owned();
            let error = ["HTTP/1.1 500 ", "HTTP/1.1 502 "].iter().any(|line| response.starts_with(line));
            if if refused { !error || !looks_whole(&response) } else { !error && looks_whole(&response) } {
                wrong.push(format!("{path}: {response:?}"));
            }
            // An application of FastCGI that leaves within its body is seen by the client, and has no line yet.
            if path != "/fastcgi/in_body" {
                is_logged(&server, &path);
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A client that keeps its connection waits for nothing else: it must see at once that the rest can't come.
    fn a_file_that_was_cut_ends_a_kept_connection(driver) {
        let conf = "http { open_file_cache max=9; server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/html; keepalive_timeout 1h; } }";
        for size in [200_000, 3_000_000] {
            let server = Server::builder(conf).driver(driver).file("html/a", pattern(size)).allow("a file was truncated").start();
            let mut client = server.client();
            assert_eq!(client.get("/a").body.len(), size);
            let file = OpenOptions::new().write(true).open(server.dir().path().join("html/a")).expect("it is there");
            file.set_len(10).expect("it is ours");
            client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
            let (bytes, end) = client.rest();
            assert_eq!(end, ConnectionEnd::Closed, "{size}");
            let response = String::from_utf8_lossy(&bytes).into_owned();
            assert!(response.starts_with("HTTP/1.1 200 ") && !looks_whole(&response), "{size}: {} bytes", bytes.len());
            let _ = server.error_log_line("sendfile() reported that a file was truncated");
            assert!(!server.error_log().contains("client 127.0.0.1 closed keepalive connection"));
        }
    }
}
