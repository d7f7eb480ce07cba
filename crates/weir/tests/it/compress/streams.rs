//! Long bodies, slow clients, flushes.

use weir_test::{Client, ReceivedPart, Response, Server, both_drivers};

use crate::compress::sides::unpack;

const CONF: &str = "
    events { }
    http {
        types { text/html html; }
        log_format ratio '$gzip_ratio $status';
        access_log %%DIR%%/access.log ratio;
        gzip on;
        gzip_vary on;
        sendfile_max_chunk 0;
        server {
            listen 127.0.0.1:%%PORT_0%%;
            root %%DIR%%/html;
            location = /text { default_type text/html; return 200 'a text that is longer than twenty bytes'; }
        }
    }";

const GZIP: &str = "Host: localhost\r\nAccept-Encoding: gzip\r\n\r\n";

both_drivers! {
    /// A long file whose client does not read is neither read nor compressed ahead.
    fn a_stalled_client_costs_no_memory(driver) {
        let builder = Server::builder(CONF).driver(driver).file("html/small.html", "x".repeat(100_000));
        let noise = noise(10 << 20);
        std::fs::write(builder.dir().join("html/noise.html"), &noise).expect("our folder");
        let server = builder.start();
        let warm = server.client().request(format!("GET /small.html HTTP/1.1\r\n{GZIP}"));
        assert_eq!(unpack(&warm.body, 100_000), "x".repeat(100_000).into_bytes());
        // The first long response also fills what the worker keeps of traces.
        let mut first = server.client();
        first.send(format!("GET /noise.html HTTP/1.1\r\nConnection: close\r\n{GZIP}"));
        assert!(content(first, noise.len()) == noise);
        let before = server.resident_bytes();

        let mut stalled = server.client();
        stalled.send(format!("GET /noise.html HTTP/1.1\r\nConnection: close\r\n{GZIP}"));
        let head = stalled.peek(500).expect("the head and the first bytes").to_vec();
        assert!(String::from_utf8_lossy(&head).contains("Content-Encoding: gzip"));
        let other = server.client().request(format!("GET /text HTTP/1.1\r\n{GZIP}"));
        assert_eq!(other.status, 200);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown <= MOST, "{grown} bytes");

        // It may read on later.
        assert!(content(stalled, noise.len()) == noise);
    }

    /// `$gzip_ratio` is that of nginx: two digits, rounded; none where nothing was compressed.
    fn the_ratio_is_logged(driver) {
        let server = Server::builder(CONF).driver(driver).file("html/small.html", "x".repeat(100_000)).start();
        server.client().request(format!("GET /small.html HTTP/1.1\r\n{GZIP}"));
        server.get("/small.html");
        let lines = server.access_log_lines(2);
        let ratio: f64 = lines[0].split(' ').next().and_then(|ratio| ratio.parse().ok()).expect("a number");
        assert!(ratio > 100.0 && ratio < 1100.0, "{lines:?}");
        assert_eq!(lines[1], "- 200");
    }
}

/// What the only response of a connection means, `most` bytes at most; parsed at once, since it is long.
fn content(mut client: Client, most: usize) -> Vec<u8> {
    let (bytes, _) = client.rest();
    let parsed = Response::parse(&bytes, ReceivedPart::All).expect("a right response");
    let (response, _) = parsed.expect("a whole response");
    unpack(&response.body, most)
}

/// Bytes that can't be compressed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

/// What a response through gzip may take, with what the connection keeps for it.
const MOST: u64 = 1 << 20;
