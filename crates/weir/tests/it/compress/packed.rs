//! What is compressed already: files beside the plain ones, and bodies that are unpacked.

use weir_test::{Server, TestServerBuilder, both_drivers};

use crate::compress::sides::{Sides, files, set_times};

const CONF: &str = r#"
events { }
http {
    types { text/html html; text/plain txt; }
    server_tokens off;
    gzip_vary on;
    server {
        listen 127.0.0.1:%%PORT_0%%;
        root %%DIR%%/html;
        gzip_static on;
        location / { }
        location /no_vary/ { alias %%DIR%%/html/; gzip_vary off; }
        location /always/ { alias %%DIR%%/html/; gzip_static always; }
        location /unpacked/ { alias %%DIR%%/html/; gzip_static always; gunzip on; }
        location /both/ { alias %%DIR%%/html/; gunzip on; gzip on; }
        location /off/ { alias %%DIR%%/html/; gzip_static off; }
        location /no_etag/ { alias %%DIR%%/html/; gzip_static always; gunzip on; etag off; gzip_vary off; }
        location /broken/ { alias %%DIR%%/html/; gzip_static always; gunzip on; }
    }
}
"#;

const REQUESTS: &[&str] = &[
    "GET /note.txt",
    "GET /note.txt gz",
    "HEAD /note.txt gz",
    "HEAD /note.txt",
    "POST /note.txt gz | Content-Length: 0",
    "GET /note.txt gz | Range: bytes=0-9",
    "GET /note.txt gz | Range: bytes=-4,0-1000000",
    "GET /note.txt gz | If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT",
    "GET /note.txt gz | Via: 1.1 proxy",
    "GET /note.txt HTTP/1.0 gz",
    "GET /page.html gz",
    "GET /page.html",
    "GET /short.html gz",
    "GET /short.html",
    "GET / gz",
    "GET /missing gz",
    "GET /no_vary/note.txt",
    "GET /no_vary/note.txt gz",
    "GET /always/note.txt",
    "GET /always/note.txt gz",
    "GET /always/page.html",
    "GET /unpacked/note.txt",
    "HEAD /unpacked/note.txt",
    "GET /unpacked/note.txt gz",
    "GET /unpacked/note.txt HTTP/1.0",
    "GET /unpacked/note.txt | Range: bytes=0-9",
    "GET /unpacked/note.txt gz | Range: bytes=0-9",
    "GET /unpacked/note.txt | Accept-Encoding: gzip;q=0",
    "GET /unpacked/note.txt gz | Via: 1.1 proxy",
    "GET /unpacked/several.txt",
    "GET /both/note.txt",
    "GET /both/note.txt gz",
    "GET /both/page.html gz",
    "GET /off/note.txt gz",
    "GET /no_etag/note.txt",
];

/// The plain files, some of them also packed; `several` has two members, `short.html.gz` is a directory.
fn packed(builder: TestServerBuilder) -> TestServerBuilder {
    let builder = files(builder);
    let note = std::fs::read(builder.dir().join("html/note.txt")).expect("ours");
    let twice = [pack(&note, 6), pack(b"and more", 1)].concat();
    let bomb = pack(&vec![0; BOMB], 9);
    assert!(bomb.len() * 900 < BOMB);
    let builder = builder
        .file("html/note.txt.gz", pack(&note, 6))
        .file("html/note.txt.br", "not really br")
        .file("html/note.txt.zst", "not really zstd")
        .file("html/several.txt.gz", twice)
        .file("html/short.html.gz/x", "")
        .file("html/cut.txt.gz", &pack(&note, 6)[..60])
        .file("html/wrong.txt.gz", "this is no gzip, whatever its name says")
        .file("html/bomb.txt.gz", bomb);
    set_times(&builder.dir().join("html"));
    builder
}

/// A gzip file of `text`.
fn pack(text: &[u8], level: i32) -> Vec<u8> {
    let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::new(level) };
    let mut out = vec![0; zlib_rs::compress_bound(text.len()) + 18];
    let (packed, code) = zlib_rs::compress_slice(&mut out, text, config);
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    packed.to_vec()
}

fn request(line: &str) -> String {
    let (before, behind) = line.split_once(" gz").unwrap_or((line, "-"));
    if behind.is_empty() || behind.starts_with(" |") {
        format!("{before} | Accept-Encoding: gzip{behind}")
    } else {
        line.to_owned()
    }
}

both_drivers! {
    /// Heads are equal, bodies mean the same.
    fn packed_files_are_served_and_unpacked_as_by_nginx(driver) {
        let sides = Sides::start(driver, CONF, packed);
        for line in REQUESTS {
            sides.ask(&request(line));
        }
        sides.assert_same();
        let unpacked = sides.ask("GET /unpacked/several.txt");
        assert!(unpacked.text().ends_with("and more") && unpacked.body.len() == 2008);
        // nginx says that this page is packed, which it is not.
        let request = "GET /note.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nRange: bytes=1000000-\r\n\r\n";
        let page = sides.ours.client().request(request);
        assert_eq!((page.status, page.field("content-encoding")), (416, None));
    }

    /// Of several packed files that one is served which the client likes best.
    fn the_best_liked_packed_file_is_served(driver) {
        let conf = CONF.replace("gzip_static on;", "gzip_static on; brotli_static on; zstd_static on;");
        let server = packed(Server::builder(&conf).driver(driver)).start();
        for (accept, expected) in [
            ("gzip, br, zstd", Some("br")),
            ("gzip, zstd", Some("zstd")),
            ("gzip;q=0.9, br;q=0.5, zstd;q=0.8", Some("gzip")),
            ("br;q=0, zstd;q=0.001", Some("zstd")),
            ("gzip", Some("gzip")),
            ("identity", None),
        ] {
            let text = format!("GET /note.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n");
            let response = server.client().request(text);
            assert_eq!(response.field("content-encoding"), expected, "{accept}");
            assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{accept}");
        }
    }

    /// Data that are no gzip, or end early, end the connection: the client sees that the body is not whole.
    fn broken_data_end_the_connection(driver) {
        let server = packed(Server::builder(CONF).driver(driver)).start();
        for (name, message) in [("cut", "gzip data ends early"), ("wrong", "no gzip header")] {
            let mut client = server.client();
            client.send(format!("GET /broken/{name}.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
            let (bytes, _) = client.rest();
            assert!(!bytes.ends_with(b"0\r\n\r\n"), "{name}");
            assert!(server.error_log_line(message).contains("[error]"), "{name}");
        }
    }

    /// 1000 times as much as it was: unpacked piece by piece, as the client takes it.
    fn a_bomb_costs_no_memory(driver) {
        let server = packed(Server::builder(CONF).driver(driver)).start();
        let bomb = "GET /unpacked/bomb.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let read = || {
            let mut client = server.client();
            client.send(bomb);
            client.rest().0.len()
        };
        assert!(read() > BOMB);
        let before = server.resident_bytes();
        let mut stalled = server.client();
        stalled.send(bomb);
        stalled.peek(500).expect("the head and the first bytes");
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown <= 1 << 20, "{grown} bytes");
        stalled.abort();
    }
}

/// Bytes of the bomb; packed it has a thousandth.
const BOMB: usize = 12 << 20;
