//! Connections that live long go to other workers where shares stay uneven: after a reload with more workers, here.

use crate::http2::client;
use crate::support;
use crate::support::StopAtEnd;
use crate::support::tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tls::TlsClient;
use weir_http::h2::ErrorCode;
use weir_test::{Backend, Client, Server, both_drivers, wait_for};
use weir_tls::ClientConfig;

use support::{get, says};

/// A plain port, one of HTTP/2 and one of TLS; the backend speaks a protocol of its own after 101.
fn conf(workers: usize, pair: &tls::Pair, backend: &Backend) -> String {
    format!(
        r#"worker_processes {workers}; admin 127.0.0.1:%%PORT_3%%; events {{ worker_connections 256; }} http {{
        ssl_certificate "data:{}"; ssl_certificate_key "data:{}"; keepalive_timeout 600; keepalive_requests 1000000; server {{
        listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_2%% ssl;
        location / {{ content_by_lua_block {{ ngx.print(ngx.worker.id(), " ", ngx.var.connection) }} }}
        location /socket {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }}
        server {{ listen 127.0.0.1:%%PORT_1%%; http2 on; location / {{ content_by_lua_block {{ ngx.print(ngx.worker.id(), " ", ngx.var.connection) }} }} }} }}"#,
        pair.certificate,
        pair.key,
        backend.port(),
    )
}

/// A server behind WebSockets: says what it hears.
fn echo() -> Backend {
    Backend::start(|visit| {
        if visit.head().is_some() {
            visit.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            while let Some(bytes) = visit.bytes(4) {
                visit.send(bytes);
            }
        }
    })
}

const UPGRADE: &str = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

/// The worker and the connection's number, as a response says.
fn parts(text: &str) -> (usize, String) {
    let (worker, number) = text.trim().split_once(' ').unwrap_or_else(|| panic!("{text:?}"));
    (worker.parse().expect("a number"), number.to_owned())
}

/// A client that lives long; it connects again when the server asks for that, and counts it.
enum Lasting<'c> {
    H2(SocketAddr, Box<client::Client>, usize),
    Tls(SocketAddr, &'c ClientConfig, TlsClient, usize),
}

impl Lasting<'_> {
    /// Which worker responds.
    fn ask(&mut self) -> usize {
        match self {
            Lasting::H2(addr, client, moved) => loop {
                if client.goaway.is_none() {
                    let key = client.get("/");
                    let done =
                        |client: &client::Client| client.answers.get(&key).is_some_and(|answer| answer.ended);
                    client.until("an end", |client| done(client) || client.goaway.is_some());
                    if done(client) {
                        return parts(&client.answer(key).text()).0;
                    }
                }
                // Nothing that the server has taken is lost.
                assert!(matches!(client.goaway, Some((_, ErrorCode::No))));
                client.until_closed();
                (**client, *moved) = (client::Client::connect(*addr), *moved + 1);
            },
            Lasting::Tls(addr, config, client, moved) => {
                let response = client.get("/", "a");
                assert_eq!(response.status, 200, "{response}");
                if response.field("Connection") == Some("close") {
                    assert!(client.ends());
                    (*client, *moved) = (TlsClient::connect(*addr, "a", config), *moved + 1);
                }
                parts(&response.text()).0
            }
        }
    }

    fn moved(&self) -> usize {
        let (Lasting::H2(.., moved) | Lasting::Tls(.., moved)) = self;
        *moved
    }
}

fn shares(workers: impl Iterator<Item = usize>) -> BTreeMap<usize, usize> {
    let mut shares = BTreeMap::new();
    workers.for_each(|worker| *shares.entry(worker).or_insert(0) += 1);
    shares
}

/// Which worker responds, and the connection's number.
fn ask(client: &mut Client) -> (usize, String) {
    client.send(get("/"));
    parts(&client.response().text())
}

/// 1.3 times the mean, and two: the most of 12 connections that one of three workers may have.
const EVEN: usize = 12 / 3 * 13 / 10 + 2;

both_drivers! {
    /// Of 15 connections the only worker has, two more workers get theirs, one a second; WebSockets stay.
    fn clients_of_http2_and_tls_are_asked_to_connect_again(driver) {
        let (pair, backend) = (tls::own("a"), echo());
        let mut server = Server::start(&conf(1, &pair, &backend));
        let config = tls::client(true, None);
        let (h2, tls) = (server.addr(1), server.addr(2));
        let mut plain = server.client();
        plain.send(UPGRADE);
        assert_eq!(plain.response_to_head().status, 101);
        let mut sockets: Vec<TlsClient> = (0..2).map(|_| TlsClient::connect(tls, "a", &config)).collect();
        for socket in &mut sockets {
            socket.send(UPGRADE.as_bytes());
            let mut head = socket.bytes();
            while !head.ends_with(b"\r\n\r\n") {
                head.extend(socket.bytes());
            }
            assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
        }
        let mut clients: Vec<Lasting<'_>> = (0..6)
            .flat_map(|_| {
                let secure = Lasting::Tls(tls, &config, TlsClient::connect(tls, "a", &config), 0);
                [Lasting::H2(h2, Box::new(client::Client::connect(h2)), 0), secure]
            })
            .collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.ask(), 0));
        let began = Instant::now();
        server.reload(&conf(3, &pair, &backend));
        // With its WebSockets the first worker has eight then, the most that is even.
        wait_for("even shares", || {
            let shares = shares(clients.iter_mut().map(Lasting::ask));
            (shares.get(&0).copied().unwrap_or(0) <= 5 && shares.len() == 3).then_some(())
        });
        let moved: usize = clients.iter().map(Lasting::moved).sum();
        let seconds = began.elapsed();
        assert!(moved >= 7, "{moved}");
        // A worker with fewer than a hundred connections gives up one a second, once they have been uneven for three.
        assert!(seconds >= Duration::from_secs(moved as u64), "{moved} in {seconds:?}");
        let both = |wanted: fn(&Lasting<'_>) -> bool| clients.iter().filter(|client| wanted(client)).any(|client| client.moved() > 0);
        assert!(both(|client| matches!(client, Lasting::H2(..))) && both(|client| matches!(client, Lasting::Tls(..))));
        plain.send("ping");
        assert_eq!(plain.bytes(4), b"ping");
        for socket in &mut sockets {
            socket.send(b"ping");
            assert_eq!(socket.bytes(), b"ping");
        }
    }

    /// Clients of plain HTTP/1 see nothing of it: the connection is the same, whether it idles or asks all the time.
    fn plain_connections_go_on_at_other_workers(driver) {
        let (pair, backend) = (tls::own("a"), echo());
        let mut server = Server::start(&conf(1, &pair, &backend));
        let mut clients: Vec<Client> = (0..12).map(|_| server.client()).collect();
        let numbers: Vec<String> = clients.iter_mut().map(|client| ask(client).1).collect();
        server.reload(&conf(3, &pair, &backend));
        wait_for("even shares", || {
            let now: Vec<_> = clients.iter_mut().map(ask).collect();
            assert!(now.iter().map(|(_, number)| number).eq(&numbers), "{now:?}");
            let shares = shares(now.into_iter().map(|(worker, _)| worker));
            (shares.len() == 3 && shares.values().all(|&share| share <= EVEN)).then_some(())
        });
    }

    /// Those of a worker that leaves end at a quiet moment, as in nginx, unless they are parked: their clients are dealt.
    fn shares_are_even_after_a_reload_with_fewer_workers(driver) {
        let (pair, backend) = (tls::own("a"), echo());
        let mut server = Server::start(&conf(4, &pair, &backend));
        let mut clients: Vec<Client> = (0..12).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| { ask(client); });
        server.reload(&conf(3, &pair, &backend));
        wait_for("even shares", || {
            let mut again = |client: &mut Client| {
                let asked = client.try_send(get("/")).is_ok();
                match client.try_response() {
                    Ok(response) if asked => parts(&response.text()).0,
                    _ => {
                        *client = server.client();
                        ask(client).0
                    }
                }
            };
            let shares = shares(clients.iter_mut().map(&mut again));
            (shares.len() == 3 && shares.values().all(|&share| share <= EVEN)).then_some(())
        });
    }

    /// A worker that is late is looked at: whether its thread waits for a core, or computes.
    fn workers_without_a_core_are_told_from_stuck_ones(driver) {
        let (pair, backend) = (tls::own("a"), echo());
        let burn = "location /burn { content_by_lua_block { local t = os.clock() + tonumber(ngx.var.arg_s); repeat until os.clock() > t } }";
        let text = conf(3, &pair, &backend).replacen("location / {", &format!("{burn} location / {{"), 1);
        let server = Server::start(&text);
        let counted = |name: &str| -> u64 {
            let metrics = Client::connect(server.addr(3)).get("/metrics").text();
            let rows = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix("_total{")?.split(' ').nth(1));
            rows.map(|number| number.parse::<u64>().expect("a number")).sum()
        };
        // More threads than cores: of a worker and them one after the other has none.
        let stop = AtomicBool::new(false);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for _ in 0..cores * 2 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            wait_for("a worker that has lost its core", || {
                // A turn of ten milliseconds is longer than a core is had where others want it.
                let mut busy = server.client();
                busy.send(get("/burn?s=0.01"));
                (0..20).for_each(|_| drop(server.client()));
                busy.response();
                (counted("weir_turns_lost_core") > 0).then_some(())
            });
        });
        wait_for("a worker that computes", || {
            let mut busy = server.client();
            busy.send(get("/burn?s=0.2"));
            assert_eq!(server.get("/").status, 200);
            busy.response();
            (counted("weir_turns_stuck") > 0).then_some(())
        });
    }

    /// And the doctor says so, and what to do.
    fn a_worker_without_a_core_is_named(driver) {
        let (pair, backend) = (tls::own("a"), echo());
        let burn = "location /burn { content_by_lua_block { local t = os.clock() + 0.3; repeat until os.clock() > t } }";
        let text = conf(1, &pair, &backend).replacen("location / {", &format!("{burn} location / {{"), 1);
        let server = Server::start(&text);
        let stop = AtomicBool::new(false);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for _ in 0..cores * 2 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    server.client().get("/burn");
                }
            });
            wait_for("a doctor that names the worker", || {
                let said = says::says(&["doctor"], &says::of(&server));
                let line = said.lines().find(|line| line.starts_with("no   cores "))?;
                assert!(line.contains("worker 0 was ready and had no core") && line.contains("cpu.max"), "{line}");
                Some(())
            });
        });
    }

    /// Connections without requests count for other workers, too.
    fn idle_connections_count_for_workers_with_fewer(driver) {
        let (pair, backend) = (tls::own("a"), echo());
        let mut server = Server::start(&conf(1, &pair, &backend));
        let mut clients: Vec<Client> = (0..9).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
        server.reload(&conf(3, &pair, &backend));
        wait_for("even shares", || {
            let metrics = Client::connect(server.addr(3)).get("/metrics").text();
            let of = |name: &str| -> Vec<u64> {
                let rows = metrics.lines().filter_map(|line| line.strip_prefix(name)?.split(' ').nth(1));
                rows.map(|number| number.parse().expect("a number")).collect()
            };
            let (open, parked) = (of("weir_connections{"), of("weir_connections_parked{"));
            let shares: Vec<u64> = open.iter().zip(&parked).map(|(open, parked)| open + parked).collect();
            (shares.len() == 3 && shares.iter().sum::<u64>() == 9 && shares.iter().all(|&share| share <= 5)).then_some(())
        });
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    }
}
