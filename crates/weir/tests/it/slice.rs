//! `slice`: responses fetched part by part, beside nginx.

use crate::support;

use std::fs;

use support::{final_log, pattern};
use weir_test::{Server, both_drivers};

const CONF: &str = r#"http {
    default_type text/plain;
    log_format parts '$request_uri $http_range';
    map $http_range $range { ~bytes=(.+) $1; }
    server {
        listen 127.0.0.1:%%PORT_0%%;
        access_log off;
        location / {
            slice 10;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%%PORT_1%%;
        }
        location ~ ^/re/(.*) {
            slice 16;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%%PORT_1%%/$1;
        }
        location /named { error_page 404 = @named; }
        location @named {
            slice 40;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%%PORT_1%%/text$is_args$args;
        }
        location /gzip/ {
            slice 10;
            gzip on; gzip_types text/plain; gzip_min_length 1;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%%PORT_1%%/;
        }
        location /off/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; add_header Asked "[$slice_range]"; }
        location /large {
            slice 16k;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%%PORT_1%%;
        }
    }
    server {
        listen 127.0.0.1:%%PORT_1%%;
        access_log %%DIR%%/access.log parts;
        root %%DIR%%;
        location /whole { max_ranges 0; alias %%DIR%%/text; }
        location /status {
            add_header Content-Range "bytes 0-9/30";
            if ($http_range = "bytes=10-19") { return 200 "0123456789"; }
            return 206 "0123456789";
        }
        location /etag { add_header Content-Range "bytes $range/30"; add_header ETag $http_range; return 206 "0123456789"; }
        location /crange { add_header Content-Range "bytes"; return 206 "0123456789"; }
        location /length { add_header Content-Range "bytes 0-9/*"; return 206 "0123456789"; }
        location /range1 { add_header Content-Range "bytes 0-10/30"; return 206 "0123456789a"; }
        location /range2 { add_header Content-Range "bytes 1-10/30"; return 206 "0123456789"; }
        location /none { return 404 none; }
    }
}"#;

const TEXT: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Path and fields, and what of the response is compared.
const WHOLE: &[(&str, &str, &str)] = &[
    ("/text", "", "200 36 - bytes 0123456789abcdefghijklmnopqrstuvwxyz"),
    ("/text", "Range: bytes=0-0\r\n", "206 1 bytes 0-0/36 - 0"),
    ("/text", "Range: bytes=8-11\r\n", "206 4 bytes 8-11/36 - 89ab"),
    ("/text", "Range: bytes=12-14\r\n", "206 3 bytes 12-14/36 - cde"),
    ("/text", "Range: bytes=15-34\r\n", "206 20 bytes 15-34/36 - fghijklmnopqrstuvwxy"),
    ("/text", "Range: bytes=30-\r\n", "206 6 bytes 30-35/36 - uvwxyz"),
    ("/text", "Range: bytes=-3\r\n", "206 3 bytes 33-35/36 - xyz"),
    ("/text", "Range: bytes=1-2,4-5\r\n", "200 36 - bytes 0123456789abcdefghijklmnopqrstuvwxyz"),
    (
        "/text",
        "Range: bytes=11-12\r\nIf-Range: \"none\"\r\n",
        "200 36 - bytes 0123456789abcdefghijklmnopqrstuvwxyz",
    ),
    ("/text", "Range: bytes=50-60\r\n", "416"),
    ("/text", "If-Match: \"none\"\r\n", "412"),
    ("/whole", "", "200 36 - - 0123456789abcdefghijklmnopqrstuvwxyz"),
    ("/none", "", "404"),
    ("/re/text", "Range: bytes=15-17\r\n", "206 3 bytes 15-17/36 - fgh"),
    ("/named", "", "200 36 - bytes 0123456789abcdefghijklmnopqrstuvwxyz"),
    ("/gzip/text", "", "200 36 - bytes 0123456789abcdefghijklmnopqrstuvwxyz"),
];

const BROKEN: &[(&str, &str)] = &[
    ("/status", "unexpected status code 200 in slice response"),
    ("/etag", "etag mismatch in slice response"),
    ("/crange", "invalid range in slice response"),
    ("/length", "no complete length in slice response"),
    ("/range1", "unexpected range in slice response: 0-11, expected: 0-10"),
    ("/range2", "unexpected range in slice response: 1-11, expected: 0-10"),
];

fn head(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n")
}

/// How this server responds to all of `WHOLE`, and what it asked for.
fn ask(server: Server) -> (Vec<String>, Vec<String>) {
    let outline = |path: &str, fields: &str| {
        let response = server.client().request(head(path) + "Connection: close\r\n" + fields + "\r\n");
        let field = |name| response.field(name).unwrap_or("-").to_owned();
        match response.status {
            200..=299 => [
                &response.status.to_string(),
                &field("Content-Length"),
                &field("Content-Range"),
                &field("Accept-Ranges"),
                &response.text(),
            ]
            .map(String::as_str)
            .join(" "),
            status => status.to_string(),
        }
    };
    let answers = WHOLE.iter().map(|(path, fields, _)| outline(path, fields)).collect();
    (answers, final_log(server))
}

both_drivers! {
    fn answers_are_put_together_from_parts(driver) {
        let server = Server::builder(CONF).file("text", TEXT).driver(driver).start();
        let (answers, asked) = ask(server);
        for ((path, fields, expected), answer) in WHOLE.iter().zip(&answers) {
            assert_eq!(answer, expected, "{path} {fields}");
        }
        let Some(nginx) = weir_test::nginx(&format!("events {{ }} {CONF}")) else { return };
        let (theirs, they_asked) = ask(nginx.file("text", TEXT).start());
        for ((path, fields, _), (ours, theirs)) in WHOLE.iter().zip(answers.iter().zip(&theirs)) {
            assert_eq!(ours, theirs, "nginx: {path} {fields}");
        }
        assert_eq!(asked, they_asked, "both ask for the same parts");
    }

    fn a_part_that_does_not_fit_breaks_the_answer_off(driver) {
        let server = Server::builder(CONF).file("text", TEXT).driver(driver).start();
        for (path, reason) in BROKEN {
            let mut client = server.client();
            client.send(head(path) + "Connection: close\r\n\r\n");
            assert!(client.try_response().is_err(), "{path} is not whole");
            let _ = server.error_log_line(reason);
        }
    }

    fn many_parts_pass_packed_and_unpacked(driver) {
        let large = pattern(700_000);
        let server = Server::builder(CONF).file("large", &large).file("text", TEXT).driver(driver).start();
        let response = server.client().request(head("/large") + "\r\n");
        assert!(response.body == large, "{} bytes", response.body.len());
        let response = server.client().request(head("/large") + "Range: bytes=100000-599999\r\n\r\n");
        assert!(response.body == large[100_000..600_000], "{} bytes", response.body.len());
        let packed = server.client().request(head("/gzip/text") + "Accept-Encoding: gzip\r\n\r\n");
        assert_eq!(packed.field("Content-Encoding"), Some("gzip"));
        let file = server.dir().path().join("packed.gz");
        fs::write(&file, &packed.body).expect("writable");
        let unpacked = std::process::Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip runs");
        assert_eq!(String::from_utf8_lossy(&unpacked.stdout), TEXT);
        assert_eq!(server.get("/off/text").field("Asked"), Some("[]"));
    }
}
