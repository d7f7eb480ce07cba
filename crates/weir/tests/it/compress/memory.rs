//! What stalled clients cost: an upper bound of what a response through filters takes, whatever its length.

use std::io::{Read, Write};
use std::net::TcpStream;

use weir_test::{DEADLINE, ReceivedPart, Response, Server, both_drivers};

const CONF: &str = "
    events { worker_connections 512; }
    worker_processes 1;
    http {
        types { text/html html; }
        # On a busy machine a client waits for its turn longer than a minute.
        send_timeout 1h;
        charset_map koi8-r utf-8 { }
        gzip on;
        gzip_comp_level 6;
        brotli on;
        zstd on;
        server {
            listen 127.0.0.1:%%PORT_0%% sndbuf=16k;
            root %%DIR%%/html;
            location /fast/ { alias %%DIR%%/html/; gzip_comp_level 1; brotli_comp_level 1; }
            location /dense/ { alias %%DIR%%/html/; zstd_comp_level 6; }
            location /long/ {
                alias %%DIR%%/html/;
                gzip_comp_level 1;
                sub_filter_once off;
                sub_filter abc ABCD;
            }
            location /chain/ {
                alias %%DIR%%/html/;
                subs_filter b c;
                sub_filter_once off;
                sub_filter a b;
                charset utf-8;
                source_charset koi8-r;
                ssi on;
            }
        }
    }";

both_drivers! {
    /// Whatever the coding and its level, and after other filters: 256 KB a client at most, whatever the allocator
    /// adds, and what the worker has for all of them.
    fn stalled_clients_cost_at_most_256_kb_each(driver) {
        let page = digits(2 << 20);
        for (path, coding) in [
            ("/fast/page.html", "gzip"),
            ("/page.html", "gzip"),
            ("/chain/page.html", "gzip"),
            ("/page.html", "br"),
            ("/page.html", "zstd"),
            ("/dense/page.html", "zstd"),
        ] {
            // A new one each time: it has no memory that others have left.
            let server = Server::builder(CONF).driver(driver).file("html/page.html", &page).start();
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {coding}\r\n\r\n");
            // More than a worker has compressors, some of them put away: what that takes it has already.
            let kept = stalled(&server, &request, if coding == "br" { 20 } else { 10 });
            let before = server.resident_bytes();
            let clients = stalled(&server, &request, CLIENTS);
            let grown = server.resident_bytes().saturating_sub(before);
            // Brotli's eight have 4 MB each and are made again: how much of that is in use changes.
            let spare = if coding == "br" { SPARE + (4 << 20) } else { SPARE };
            assert!(grown <= CLIENTS as u64 * 256 * 1024 + spare, "{coding} {path}: {grown} bytes");
            drop((kept, clients));
        }
    }

    /// A client whose compressor others have taken gets all of its response when it reads on.
    fn a_stalled_client_may_read_on(driver) {
        let page = digits(640 << 10);
        let server = Server::builder(CONF).driver(driver).file("html/page.html", &page).start();
        for (path, coding) in [("/fast/page.html", "br"), ("/page.html", "zstd")] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: {coding}\r\n\r\n");
            for mut client in stalled(&server, &request, 10) {
                let mut bytes = Vec::new();
                client.set_read_timeout(Some(DEADLINE)).expect("it is a socket");
                client.read_to_end(&mut bytes).expect("a whole answer");
                let parsed = Response::parse(&bytes, ReceivedPart::All).expect("a right response");
                let (response, _) = parsed.expect("a whole response");
                assert_eq!(response.field("Content-Encoding"), Some(coding));
                let unpacked = match coding {
                    "br" => weir_sys::brotli::decompress(&response.body, page.len()).expect("a whole stream"),
                    _ => zstd::stream::decode_all(&response.body[..]).expect("whole frames"),
                };
                assert!(unpacked == page.as_bytes(), "{coding}");
            }
        }
    }

    /// A file of 1 GB through sub_filter and gzip: what a client that reads nothing costs does not follow its length.
    fn a_gigabyte_costs_a_stalled_client_1_mb(driver) {
        let builder = Server::builder(CONF).driver(driver).file("html/page.html", digits(8 << 20));
        let path = builder.dir().join("html/page.html");
        // After the digits a hole: no client gets that far before it stalls.
        let file = std::fs::File::options().write(true).open(path).expect("our file");
        file.set_len(1 << 30).expect("a sparse file");
        let server = builder.start();
        let request = "GET /long/page.html HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n";
        let kept = stalled(&server, request, 2);
        drop(kept);
        // What the server reads for itself meanwhile (symbols, unwind tables) comes once, what a client costs each time.
        let grown = [(); 3].map(|()| {
            let before = server.resident_bytes();
            let _client = stalled(&server, request, 1);
            server.resident_bytes().saturating_sub(before)
        });
        assert!(grown.iter().any(|grown| *grown <= 1 << 20), "{grown:?} bytes");
    }
}

/// Text that is packed to half its size: little work until the client's buffers are full.
fn digits(length: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    };
    (0..length / 16).map(|_| next()).collect()
}

/// Clients that have sent `request`, got the first bytes of the response and read no more. The server goes on until it
/// waits for them; it was in the middle of that if less is measured, so the bound holds in any case.
fn stalled(server: &Server, request: &str, count: usize) -> Vec<TcpStream> {
    let clients: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut client = TcpStream::connect(server.addr(0)).expect("it listens");
            client.write_all(request.as_bytes()).expect("the server reads");
            client
        })
        .collect();
    for client in &clients {
        let mut byte = [0];
        assert_eq!(client.peek(&mut byte).expect("an answer"), 1);
    }
    // Each of these comes after a turn for all the others.
    for _ in 0..10 {
        assert_eq!(server.get("/none").status, 404);
    }
    clients
}

const CLIENTS: usize = 12;
/// Empty vectors that a worker keeps for responses to come.
const SPARE: u64 = 1 << 20;
