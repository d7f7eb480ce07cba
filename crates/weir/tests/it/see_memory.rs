//! What memory is held for: `weir_memory_bytes`, `weir top memory`, beside what the process takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use weir_test::{Backend, Client, Driver, Server, both_drivers, wait_for};

use crate::http2::client::Client as Http2Client;
use crate::support::says as said;
use crate::support::tls::{TlsClient, client as tls_settings, own};

const CONF: &str = "worker_processes %%WORKERS%%; worker_rlimit_nofile 8192; admin 127.0.0.1:%%PORT_1%%;
    events { worker_connections 4096; }
    http { keepalive_timeout 600s; keepalive_requests 10000; client_header_timeout 600s;
    upstream kept { server 127.0.0.1:%%BACKEND%%; keepalive 1024; }
    server { listen 127.0.0.1:%%PORT_0%%; http2 on;
        location / { return 200 hello; }
        location /kept { proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection ''; }
        location /upgraded { proxy_pass http://127.0.0.1:%%BACKEND%%; proxy_http_version 1.1; proxy_read_timeout 600s;
            proxy_set_header Connection upgrade; proxy_set_header Upgrade $http_upgrade; } }
    server { listen 127.0.0.1:%%PORT_2%% ssl; http2 on; ssl_certificate a.crt; ssl_certificate_key a.key;
        server_name a.example.com; return 200 tls; } }";

fn started(driver: Driver, workers: &str, backend: u16) -> Server {
    let pair = own("a.example.com");
    let conf = CONF.replace("%%WORKERS%%", workers).replace("%%BACKEND%%", &backend.to_string());
    let server = Server::builder(&conf)
        .file("a.crt", &pair.certificate)
        .file("a.key", &pair.key)
        .driver(driver)
        .start();
    said::ready(&server);
    server
}

/// Things and bytes of each kind, all workers together.
fn memory(server: &Server) -> BTreeMap<String, (u64, u64)> {
    let text =
        Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let mut all = BTreeMap::<String, (u64, u64)>::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, value)) = rest.split_once("} ") else { continue };
        let Some(kind) = labels.split("kind=\"").nth(1).and_then(|rest| rest.split('"').next()) else {
            continue;
        };
        let number = || value.parse::<u64>().expect("a number");
        match name {
            "weir_memory_bytes" => all.entry(kind.to_owned()).or_default().1 += number(),
            "weir_memory_things" => all.entry(kind.to_owned()).or_default().0 += number(),
            _ => {}
        }
    }
    all
}

/// Bytes of RAM that are the process's own.
fn anonymous(server: &Server) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", server.serving_pid());
    let text = std::fs::read_to_string(path).expect("a live process");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line about it");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
}

/// What keeps a connection of a kind open.
type Held = Box<dyn std::any::Any>;

/// Opens a connection of a kind, idle when this returns.
type Opens = fn(&Server) -> Held;

fn asked(server: &Server, request: &str, until: &str) -> Held {
    let mut client = server.client();
    client.send(request).until(until);
    Box::new(client)
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// The kinds: what opens one, and the kinds of memory that it takes besides timers and places.
const KINDS: &[(&str, Opens)] = &[
    ("http1", |server| asked(server, REQUEST, "hello")),
    ("http2", |server| {
        let mut client = Http2Client::connect(server.addr(0));
        assert_eq!(client.fetch("/").text(), "hello");
        Box::new(client)
    }),
    ("http1_tls", |server| {
        let mut client = TlsClient::connect(server.addr(2), "a.example.com", &tls_settings(true, None));
        assert_eq!(client.get("/", "a.example.com").text(), "tls");
        Box::new(client)
    }),
    ("tunnel", |server| {
        asked(
            server,
            "GET /upgraded HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "\r\n\r\n",
        )
    }),
];

/// The server's connections that are opened for each kind.
const MANY: u64 = 500;
/// Opened before: tables and pools have grown, code is in memory.
const FIRST: u64 = 100;

/// A server that upgrades what asks for it, and keeps everything open.
fn backend(go: &Arc<AtomicBool>) -> Backend {
    let go = go.clone();
    Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            if head.contains("websocket") {
                visit.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                );
                let _ = visit.bytes(1);
                return;
            }
            wait_for("all to be there", || go.load(SeqCst).then_some(()));
            visit.answer("kept");
        }
    })
}

fn things(server: &Server, kind: &str) -> u64 {
    memory(server).get(kind).map_or(0, |held| held.0)
}

/// By how many bytes the report of all kinds and the process grow with [`MANY`] connections of `kind`.
fn growth(driver: Driver, kind: &str, open: Opens) -> (i64, u64) {
    let go = Arc::new(AtomicBool::new(false));
    let backend = backend(&go);
    let server = started(driver, "1", backend.port());
    // Each buffer of io_uring's ring is in RAM from its first use on.
    (0..1100).for_each(|_| drop(asked(&server, REQUEST, "hello")));
    let mut held: Vec<Held> = (0..FIRST).map(|_| open(&server)).collect();
    wait_for("the first", || (things(&server, kind) == FIRST).then_some(()));
    // How stacks are walked is read once: for the first that is asked for, or after a second.
    said::says(&["bt", "0", "--raw"], &said::of(&server));
    let (before, ram) = (memory(&server), anonymous(&server));
    held.extend((0..MANY).map(|_| open(&server)));
    wait_for("all", || (things(&server, kind) == FIRST + MANY).then_some(()));
    let (after, ram) = (memory(&server), anonymous(&server) - ram);
    let grown = |kind: &str| {
        let of = |all: &BTreeMap<String, (u64, u64)>| all.get(kind).map_or(0, |held| held.1 as i64);
        of(&after) - of(&before)
    };
    let reported = after.keys().map(|kind| grown(kind)).sum();
    drop(held);
    wait_for("none", || (things(&server, kind) == 0).then_some(()));
    (reported, ram)
}

both_drivers! {
    /// What is reported of 500 connections of a kind, and of all that grew with them, is what the process grew by. What the process
    /// reads or touches for itself meanwhile comes once, so that one of three servers has to be right.
    fn reported_bytes_are_those_that_the_process_takes(driver) {
        for (kind, open) in KINDS {
            let mut seen = Vec::new();
            let right = (0..3).any(|_| {
                let (reported, taken) = growth(driver, kind, *open);
                seen.push((reported, taken));
                (0.7..1.4).contains(&(reported as f64 / taken as f64))
            });
            assert!(right, "{kind}: reported and taken: {seen:?}");
        }
    }

    fn connections_that_are_kept_alive_are_counted_where_they_are_kept(driver) {
        let go = Arc::new(AtomicBool::new(false));
        let backend = backend(&go);
        let server = started(driver, "1", backend.port());
        let waiting: Vec<Client> = (0..200)
            .map(|_| {
                let mut client = server.client();
                client.send("GET /kept HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        wait_for("all requests", || (backend.heads() == 200).then_some(()));
        assert_eq!(things(&server, "request"), 200);
        go.store(true, SeqCst);
        for mut client in waiting {
            client.until("kept");
        }
        wait_for("idle ones", || (things(&server, "upstream_idle") == 200).then_some(()));
        let (things, bytes) = memory(&server)["upstream_idle"];
        assert!((256..2048).contains(&(bytes / things)), "{bytes} for {things}");
        assert_eq!(memory(&server).get("request"), None);
    }

    /// With several workers idle connections are parked, and idle connections to servers become all workers'.
    fn parked_connections_and_the_table_of_top(driver) {
        let go = Arc::new(AtomicBool::new(true));
        let backend = backend(&go);
        let server = started(driver, "2", backend.port());
        let held: Vec<Held> = (0..20).map(|_| asked(&server, REQUEST, "hello")).collect();
        let _kept = asked(&server, "GET /kept HTTP/1.1\r\nHost: a\r\n\r\n", "kept");
        wait_for("parked ones", || (things(&server, "parked") == 21).then_some(()));
        wait_for("a shared one", || (things(&server, "upstream_shared") == 1).then_some(()));
        let table = said::says(&["top", "memory", "-b", "-d", "0"], &said::of(&server));
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.iter().any(|row| row[..2] == ["parked", "21"]), "{table}");
        let json = Client::connect(server.addr(1))
            .request("GET /top/memory?fmt=json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .text();
        assert!(json.contains("\"kind\":\"receive_buffers\"") && json.contains("\"bytes_each\":4"), "{json}");
        drop(held);
    }
}
