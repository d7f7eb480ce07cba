//! brotli and zstd: what is compressed, by which coding, and that it unpacks to the same.

use weir_test::{Driver, Response, Server, both_drivers};

use crate::compress::sides::{files, unpack};

const CONF: &str = r#"
events { }
http {
    types { text/html html; text/css css; text/plain txt; application/json json; }
    default_type application/octet-stream;
    log_format ratio '$brotli_ratio $zstd_ratio $gzip_ratio';
    access_log %%DIR%%/access.log ratio;
    gzip_vary on;
    gzip on;
    brotli on;
    zstd on;
    server {
        listen 127.0.0.1:%%PORT_0%%;
        root %%DIR%%/html;
        location / { }
        location /br/ { alias %%DIR%%/html/; gzip off; zstd off; }
        location /zstd/ { alias %%DIR%%/html/; gzip off; brotli off; }
        location /off/ { alias %%DIR%%/html/; gzip off; brotli off; zstd off; }
        location /static/ { alias %%DIR%%/html/; gzip_static on; brotli_types *; zstd_types *; }
        location /types/ { alias %%DIR%%/html/; gzip off; brotli_types text/css; zstd_types application/json; }
        location /long/ { alias %%DIR%%/html/; gzip off; brotli_min_length 3000; zstd_min_length 1000; brotli_types *; zstd_types *; }
        location /if/ { alias %%DIR%%/html/; gzip off; zstd off; brotli off; if ($arg_br) { brotli on; } }
        location /most/ { alias %%DIR%%/html/; brotli_comp_level 11; brotli_window 16m; brotli_buffers 4 8k; zstd_comp_level 22; zstd_buffers 4 8k; }
        location /least/ { alias %%DIR%%/html/; brotli_comp_level 0; brotli_window 1k; zstd_comp_level 1; }
        location /echo {
            default_type text/html;
            echo "first"; echo_flush; echo_sleep 0.01; echo "second"; echo_flush; echo_sleep 0.01; echo "third";
        }
    }
}
"#;

fn start(driver: Driver) -> Server {
    files(Server::builder(CONF).driver(driver)).file("html/note.txt.gz", "packed before").start()
}

/// The server's response to a client that accepts this.
#[track_caller]
fn get(server: &Server, path: &str, accept: &str) -> Response {
    server.client().request(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n"))
}

/// The body as it was before it was compressed.
#[track_caller]
fn content(response: &Response) -> Vec<u8> {
    match response.field("content-encoding") {
        Some("br") => weir_sys::brotli::decompress(&response.body, MOST).expect("a whole stream"),
        Some("zstd") => zstd::stream::decode_all(&response.body[..]).expect("whole frames"),
        Some("gzip") => unpack(&response.body, MOST),
        _ => response.body.clone(),
    }
}

both_drivers! {
    /// The client's best liked; between equals the densest.
    fn the_best_liked_coding_is_made(driver) {
        let server = start(driver);
        let plain = server.get("/off/page.html").body;
        for (path, accept, expected) in [
            ("/page.html", "gzip, br, zstd", Some("br")),
            ("/page.html", "gzip, zstd", Some("zstd")),
            ("/page.html", "gzip", Some("gzip")),
            ("/page.html", "gzip;q=0.9, br;q=0.5, zstd;q=0.8", Some("gzip")),
            ("/page.html", "gzip;q=0.1, br;q=0.5, zstd;q=0.501", Some("zstd")),
            ("/page.html", "br;q=0, zstd;q=0.001", Some("zstd")),
            ("/page.html", "br;q=0, zstd;q=0, gzip;q=0", None),
            ("/page.html", "*", None),
            ("/page.html", "brotli", None),
            ("/br/page.html", "gzip, zstd", None),
            ("/br/page.html", "gzip, zstd, br;q=0.1", Some("br")),
            ("/zstd/page.html", "gzip, br, zstd;q=0.1", Some("zstd")),
            ("/off/page.html", "gzip, br, zstd", None),
            ("/if/page.html", "br", None),
            ("/if/page.html?br=1", "br", Some("br")),
            ("/most/page.html", "br", Some("br")),
            ("/most/page.html", "zstd", Some("zstd")),
            ("/least/page.html", "br", Some("br")),
            ("/least/page.html", "zstd", Some("zstd")),
        ] {
            let response = get(&server, path, accept);
            assert_eq!(response.field("content-encoding"), expected, "{path} {accept}");
            assert!(content(&response) == plain, "{path} {accept}");
            let etag = response.field("etag").expect("of a file");
            assert_eq!(etag.starts_with("W/"), expected.is_some(), "{path} {accept}");
            assert_eq!(response.field("accept-ranges").is_none(), expected.is_some(), "{path} {accept}");
            assert!(expected.is_none() || response.body.len() < plain.len() / 2, "{path} {accept}");
            let offered = !path.starts_with("/off/") && path != "/if/page.html";
            assert_eq!(response.field("vary"), offered.then_some("Accept-Encoding"), "{path} {accept}");
        }
    }

    /// Types and least lengths count for each coding alone.
    fn types_and_lengths_count_by_coding(driver) {
        let server = start(driver);
        for (path, expected) in [
            ("/types/page.html", Some("br")),
            ("/types/style.css", Some("br")),
            ("/types/data.json", Some("zstd")),
            ("/types/note.txt", None),
            ("/long/page.html", Some("br")),
            ("/long/note.txt", Some("zstd")),
            ("/long/noext", None),
            ("/short.html", None),
        ] {
            let response = get(&server, path, "br, zstd");
            assert_eq!(response.field("content-encoding"), expected, "{path}");
            let plain = server.get(&format!("/off/{}", path.rsplit('/').next().expect("a path"))).body;
            assert!(content(&response) == plain, "{path}");
        }
    }

    /// A file packed before is not packed again, whatever else the client takes.
    fn static_wins_over_dynamic(driver) {
        let server = start(driver);
        let response = get(&server, "/static/note.txt", "br, zstd, gzip;q=0.1");
        assert_eq!((response.field("content-encoding"), &response.body[..]), (Some("gzip"), &b"packed before"[..]));
        assert_eq!(get(&server, "/static/note.txt", "br, zstd").field("content-encoding"), Some("br"));
    }

    /// HEAD has the head of GET.
    fn head_tells_the_coding(driver) {
        let server = start(driver);
        for coding in ["br", "zstd"] {
            let mut client = server.client();
            client.send(format!("HEAD /page.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"));
            let response = client.response_to_head();
            assert_eq!(response.field("content-encoding"), Some(coding));
            assert_eq!(response.field("content-length"), None);
            client.send("GET /off/short.html HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().text(), "<h1>short</h1>\n");
        }
    }

    /// What is flushed on its way comes out whole, and the ratio of the coding that was used is logged.
    fn flushed_bodies_are_whole(driver) {
        let server = start(driver);
        for coding in ["br", "zstd"] {
            let response = get(&server, "/echo", coding);
            assert_eq!(response.field("content-encoding"), Some(coding));
            assert_eq!(String::from_utf8_lossy(&content(&response)), "first\nsecond\nthird\n");
        }
        let lines = server.access_log_lines(2);
        let used: Vec<Vec<bool>> =
            lines.iter().map(|line| line.split(' ').map(|ratio| ratio.parse::<f64>().is_ok()).collect()).collect();
        assert_eq!(used, [[true, false, false], [false, true, false]], "{lines:?}");
    }
}

#[test]
fn wrong_lines_are_refused() {
    for (line, message) in [
        ("brotli_comp_level 12", "value must be between 0 and 11"),
        (
            "brotli_window 3k",
            "\"brotli_window\" directive must be 1k, 2k, 4k, 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m",
        ),
        ("brotli_window 512", "4m, 8m or 16m"),
        ("brotli_window 1m; brotli_window 1m", "\"brotli_window\" directive is duplicate"),
        ("zstd_comp_level 0", "value must be between 1 and 22"),
        ("zstd maybe", "it must be \"on\" or \"off\""),
    ] {
        let conf = format!("events {{ }} http {{ {line}; server {{ listen 127.0.0.1:%%PORT_0%%; }} }}");
        let said = Server::builder(&conf).run(&["-t"]).to_string();
        assert!(said.contains(message), "{line}: {said}");
    }
}

/// More than any file here has.
const MOST: usize = 1 << 20;
