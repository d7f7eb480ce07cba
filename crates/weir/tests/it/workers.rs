//! Several workers: each has its share of the connections, and one that is stuck holds up only those it serves.

use crate::support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use weir_test::{Backend, Client, Server, both_drivers, wait_for};

use support::get;

/// Locations that say which worker answers, and one that blocks its worker until the file `go` is there; the file
/// `begun` says that it does. Bounded, so that a failed test ends.
const LOCATIONS: &str = r#"
    location / { content_by_lua_block { ngx.print(ngx.worker.id()) } }
    location /block { content_by_lua_block {
        io.open("%%DIR%%/begun", "w"):close()
        os.execute("for n in `seq 3000`; do [ -e %%DIR%%/go ] && exit; sleep 0.02; done")
        ngx.print(ngx.worker.id())
    } }
    location /burn { content_by_lua_block {
        io.open("%%DIR%%/begun", "w"):close()
        local ends = os.time() + 60
        while os.time() < ends do
            local go = io.open("%%DIR%%/go")
            if go then go:close() break end
        end
        ngx.print(ngx.worker.id())
    } }
    location /status { stub_status; }
    location /count { return 200 "$connection $connection_requests"; }
"#;

/// `workers` workers that listen as `listen` says.
fn conf(workers: usize, listen: &str) -> String {
    format!(
        "worker_processes {workers}; events {{ worker_connections 1024; }} http {{ keepalive_timeout 600; keepalive_requests 1000000; server {{ {listen} {LOCATIONS} }} }}"
    )
}

const TCP: &str = "listen 127.0.0.1:%%PORT%%;";

/// Which worker responds to the client.
fn worker(client: &mut Client) -> usize {
    let response = client.get("/");
    assert_eq!(response.status, 200, "{response}");
    response.text().trim().parse().unwrap_or_else(|_| panic!("{response}"))
}

/// How many of the clients each worker serves.
fn shares(clients: &[(usize, Client)]) -> BTreeMap<usize, usize> {
    let mut shares = BTreeMap::new();
    for (worker, _) in clients {
        *shares.entry(*worker).or_insert(0) += 1;
    }
    shares
}

/// This many clients connected at once, each with the worker that serves it.
fn at_once(count: usize, connect: impl Fn() -> Client) -> Vec<(usize, Client)> {
    let clients: Vec<Client> = (0..count).map(|_| connect()).collect();
    clients.into_iter().map(|mut client| (worker(&mut client), client)).collect()
}

/// Clients that all workers serve: one that has just begun, or has no processor, may get none of the first.
#[track_caller]
fn on_all(workers: usize, connect: impl Fn() -> Client) -> Vec<(usize, Client)> {
    wait_for("a share of each worker", || {
        let clients = at_once(workers * 10, &connect);
        (shares(&clients).len() == workers).then_some(clients)
    })
}

/// Whether no worker has more than 1.3 times the mean.
fn are_even(shares: &BTreeMap<usize, usize>, workers: usize) -> bool {
    let (all, largest) = (shares.values().sum::<usize>(), shares.values().max().copied().unwrap_or(0));
    largest * workers * 10 <= all * 13
}

/// Runs `attempt` until the shares are even: on a busy machine a worker that has no processor for long is passed over
/// like one that is stuck.
#[track_caller]
fn even_in_one_of_three(what: &str, attempt: impl Fn() -> Vec<BTreeMap<usize, usize>>) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let shares = attempt();
        if shares.iter().all(|shares| are_even(shares, 8)) {
            return;
        }
        seen.push(shares);
    }
    panic!("{what}: {seen:?}");
}

/// Blocks a worker by `path`; its client, and the worker's number once `go` was called.
struct Blocked {
    client: Client,
    go: std::path::PathBuf,
}

impl Blocked {
    fn begin(server: &Server, path: &str) -> Blocked {
        Blocked::on(server, path, server.client())
    }

    /// By the request of `client`.
    fn on(server: &Server, path: &str, mut client: Client) -> Blocked {
        let dir = server.dir().path();
        client.send(get(path));
        wait_for("the block", || dir.join("begun").exists().then_some(()));
        Blocked { client, go: dir.join("go") }
    }

    /// Ends it; the number of the worker.
    fn end(mut self) -> usize {
        touch(&self.go);
        self.client.response().text().trim().parse().expect("a worker's number")
    }
}

/// A server that responds when it has two requests.
fn in_pairs() -> Backend {
    let heads = AtomicUsize::new(0);
    Backend::start(move |visit| {
        while visit.head().is_some() {
            let whole = heads.fetch_add(1, SeqCst) / 2 * 2 + 2;
            wait_for("the other request", || (heads.load(SeqCst) >= whole).then_some(()));
            visit.answer("served");
        }
    })
}

/// Has both ask that server.
fn pair(one: &mut Client, other: &mut Client) {
    one.send(get("/proxied"));
    other.send(get("/proxied"));
    for client in [one, other] {
        assert_eq!(client.response().text(), "served");
    }
}

/// Connections that the workers have now, not counting those that are parked.
fn open_at_workers(server: &Server) -> u64 {
    open_at(server, 1)
}

/// The same, where the admin's address is number `admin`.
fn open_at(server: &Server, admin: usize) -> u64 {
    let metrics = Client::connect(server.addr(admin)).get("/metrics").text();
    let rows = metrics.lines().filter_map(|line| line.strip_prefix("weir_connections{")?.split(' ').nth(1));
    rows.map(|number| number.parse::<u64>().expect("a number")).sum()
}

fn touch(path: &Path) {
    std::fs::write(path, "").expect("the directory of the test");
}

both_drivers! {
    fn each_worker_has_its_share_of_connections_opened_at_once(driver) {
        for listen in [TCP, "listen 127.0.0.1:%%PORT%% reuseport;"] {
            even_in_one_of_three(listen, || {
                let server = Server::start(&conf(8, listen));
                vec![shares(&at_once(192, || server.client()))]
            });
        }
    }

    fn each_worker_has_its_share_of_connections_opened_one_by_one(driver) {
        even_in_one_of_three("192, 96 of them gone, 96 more", || {
            let server = Server::start(&conf(8, TCP));
            let one = || {
                let mut client = server.client();
                (worker(&mut client), client)
            };
            let mut clients: Vec<_> = (0..192).map(|_| one()).collect();
            let first = shares(&clients);
            clients.retain(|(worker, _)| *worker >= 4);
            let left = clients.len();
            wait_for("the others' end", || {
                let text = server.get("/status").text();
                // The one that asks is counted, too.
                text.starts_with(&format!("Active connections: {} ", left + 1)).then_some(())
            });
            clients.extend((left..192).map(|_| one()));
            vec![first, shares(&clients)]
        });
    }

    fn sockets_of_all_kinds_are_dealt(driver) {
        let server = Server::start(&conf(4, "listen unix:%%DIR%%/s; listen 127.0.0.1:%%PORT%% proxy_protocol;"));
        on_all(4, || Client::connect_unix(&server.dir().path().join("s")));
        on_all(4, || {
            let mut client = server.client();
            client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1000 2000\r\n");
            client
        });
    }

    /// Nothing here is a matter of time: the block lasts until all the others have been served.
    fn a_stuck_worker_gets_no_new_connections(driver) {
        for (workers, path) in [(2, "/block"), (2, "/burn"), (8, "/block")] {
            for listen in [TCP, "listen 127.0.0.1:%%PORT%% reuseport;"] {
                let server = Server::start(&conf(workers, listen));
                let blocked = Blocked::begin(&server, path);
                let clients = at_once(100, || server.client());
                let stuck = blocked.end();
                assert_eq!(shares(&clients).get(&stuck), None, "{workers} {path} {listen}");
            }
        }
    }

    /// An idle connection belongs to no worker: one that a stuck worker had is served by another, and is still the same.
    fn an_idle_connection_of_a_stuck_worker_is_served_by_another(driver) {
        for path in ["/block", "/burn"] {
            let server = Server::start(&format!("admin 127.0.0.1:%%PORT_1%%; {}", conf(2, TCP)));
            let mut clients = on_all(2, || server.client());
            let count = |client: &mut Client| {
                let text = client.get("/count").text();
                let (number, requests) = text.split_once(' ').expect("two numbers");
                (number.to_owned(), requests.parse::<u64>().expect("a number"))
            };
            let numbers: Vec<_> = clients.iter_mut().map(|(_, client)| count(client)).collect();
            wait_for("idle connections", || (open_at_workers(&server) == 0).then_some(()));
            assert!(server.get("/status").text().contains(&format!("Waiting: {}", clients.len())));
            let (_, first) = clients.remove(0);
            let blocked = Blocked::on(&server, path, first);
            for ((_, client), (number, requests)) in clients.iter_mut().zip(&numbers[1..]) {
                assert_eq!(count(client), (number.clone(), requests + 1), "{path}");
            }
            let now: Vec<usize> = clients.iter_mut().map(|(_, client)| worker(client)).collect();
            let stuck = blocked.end();
            assert!(!now.contains(&stuck), "{path}: {stuck} of {now:?}");
            assert!(server.error_log().is_empty() || !server.error_log().contains("[error]"));
        }
    }

    /// What a worker has not used for a while serves the others' requests, also while it is stuck.
    fn idle_connections_to_servers_are_of_use_to_all_workers(driver) {
        let backend = in_pairs();
        let text = conf(2, TCP).replace("server {", &format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }} server {{ location /proxied {{ proxy_pass http://u; }}", backend.port()));
        let server = Server::start(&format!("admin 127.0.0.1:%%PORT_1%%; {text}"));
        let mut clients = on_all(2, || server.client());
        let mut stuck = clients.remove(0);
        let other = clients.iter().position(|(worker, _)| *worker != stuck.0).expect("one of the other worker");
        let mut other = clients.remove(other);
        // One connection for each worker: both wait until the server has both.
        pair(&mut stuck.1, &mut other.1);
        assert_eq!(backend.visits(), 2);
        wait_for("connections for any worker", || {
            Client::connect(server.addr(1)).get("/use").text().contains("2 idle, 2 for any worker").then_some(())
        });
        let blocked = Blocked::on(&server, "/block", stuck.1);
        // The one worker that is left uses both.
        let mut more = server.client();
        pair(&mut other.1, &mut more);
        assert_eq!(backend.visits(), 2);
        blocked.end();
    }

    /// They end as they would with their worker.
    fn idle_connections_end_in_their_time_and_with_the_server(driver) {
        let text = conf(2, TCP).replace("keepalive_timeout 600", "keepalive_timeout 3");
        let server = Server::start(&text);
        for (_, mut client) in at_once(10, || server.client()) {
            client.expect_close();
        }
        let mut server = Server::start(&format!("admin 127.0.0.1:%%PORT_1%%; {}", conf(2, TCP)));
        let mut clients = at_once(10, || server.client());
        wait_for("idle connections", || (open_at_workers(&server) == 0).then_some(()));
        // What the client has closed meanwhile is known.
        clients.pop();
        wait_for("the end of one", || server.get("/status").text().contains("Waiting: 9").then_some(()));
        assert!(server.quit().status.success());
        clients.iter_mut().for_each(|(_, client)| client.expect_close());
    }

    /// A reload that takes the line away, or leaves one worker, finds the idle ones where they are.
    fn idle_connections_go_by_the_newest_configuration(driver) {
        let two = |listen: &str| format!("admin 127.0.0.1:%%PORT_2%%; {}", conf(2, listen));
        let mut server = Server::start(&two(&format!("{TCP} listen 127.0.0.1:%%PORT_1%%;")));
        let mut kept = at_once(6, || server.client());
        let mut gone = at_once(6, || Client::connect(server.addr(1)));
        wait_for("idle connections", || (open_at(&server, 2) == 0).then_some(()));
        server.reload(&two(TCP));
        gone.iter_mut().for_each(|(_, client)| client.expect_close());
        kept.iter_mut().for_each(|(_, client)| assert!(worker(client) < 2));
        wait_for("idle connections", || (open_at(&server, 2) == 0).then_some(()));
        server.reload(&format!("admin 127.0.0.1:%%PORT_2%%; {}", conf(1, TCP)));
        wait_for("their only worker", || (open_at(&server, 2) == 6).then_some(()));
        kept.iter_mut().for_each(|(_, client)| assert_eq!(worker(client), 0));
    }

    /// With as many idle connections as it may have, and all workers full, new clients are served all the same.
    fn full_workers_close_idle_connections_for_new_ones(driver) {
        let text = conf(2, TCP).replace("worker_connections 1024", "worker_connections 16");
        let server = Server::start(&text);
        let _idle = at_once(32, || server.client());
        for _ in 0..40 {
            assert_eq!(server.get("/").status, 200);
        }
        let line = server.error_log_line("16 worker_connections are not enough, reusing connections");
        assert!(line.contains("[warn]"), "{line}");
    }

    /// With no idle one, a client waits until another has left.
    fn a_client_waits_when_all_workers_are_full(driver) {
        let text = conf(2, TCP).replace("worker_connections 1024", "worker_connections 4");
        let server = Server::builder(&text).allow("worker_connections are not enough").start();
        // Connections that have not asked are not idle.
        let mut waiting: Vec<Client> = (0..8).map(|_| server.client()).collect();
        for client in &mut waiting {
            client.send("GET / HTTP/1.1\r\n");
        }
        let mut more: Vec<Client> = (0..6).map(|_| server.client()).collect();
        for client in &mut more {
            client.send(get("/"));
        }
        let line = server.error_log_line("4 worker_connections are not enough");
        assert!(line.contains("[alert]"), "{line}");
        waiting.drain(..6);
        for client in &mut more {
            assert_eq!(client.response().status, 200);
        }
    }

    fn workers_that_a_reload_adds_get_their_share(driver) {
        let mut server = Server::start(&conf(2, TCP));
        let _before = on_all(2, || server.client());
        // More than it takes to make the shares of those equal that are new.
        for workers in [8, 1, 3] {
            server.reload(&conf(workers, TCP));
            wait_for("shares", || {
                let clients = at_once(160, || server.client());
                (shares(&clients).len() == workers).then_some(())
            });
        }
    }
}
