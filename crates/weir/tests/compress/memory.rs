//! What stalled clients cost: an upper bound of what a response through filters takes, whatever its length.

use std::io::Write;
use std::net::TcpStream;

use weir_test::{Server, both_drivers};

const CONF: &str = "
    events { worker_connections 512; }
    worker_processes 1;
    http {
        types { text/html html; }
        charset_map koi8-r utf-8 { }
        gzip on;
        gzip_comp_level 6;
        server {
            listen 127.0.0.1:%%PORT_0%% sndbuf=16k;
            root %%DIR%%/html;
            location /fast/ { alias %%DIR%%/html/; gzip_comp_level 1; }
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
    /// Level 1, level 6, and behind other filters: 256 KB a client at most, whatever the allocator adds.
    fn stalled_clients_cost_at_most_256_kb_each(driver) {
        // Digits that are packed to half their size: little work until the client's buffers are full.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let page: String = (0..128 * 1024).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{state:016x}")
        }).collect();
        let server = Server::builder(CONF).driver(driver).file("html/page.html", page).start();
        for location in ["fast", "plain", "chain"] {
            let path = if location == "plain" { "/page.html".to_owned() } else { format!("/{location}/page.html") };
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
            // What the worker keeps, whoever asks.
            let kept = stalled(&server, &request, 2);
            drop(kept);
            let before = server.resident_bytes();
            let clients = stalled(&server, &request, CLIENTS);
            let grown = server.resident_bytes().saturating_sub(before);
            assert!(grown <= CLIENTS as u64 * 256 * 1024 + SPARE, "{location}: {grown} bytes");
            drop(clients);
        }
    }
}

/// Clients that have sent `request`, got the first bytes of the answer and read no more. The server goes on until it waits
/// for them; it was in the middle of that if less is measured, so the bound holds in any case.
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

const CLIENTS: usize = 16;
/// Empty vectors that a worker keeps for answers to come.
const SPARE: u64 = 1 << 20;
