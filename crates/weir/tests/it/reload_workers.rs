//! HUP with another number of workers: threads and sockets come and go, and no client notices.

use crate::support;

use std::collections::HashSet;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_test::{Client, Server, both_drivers, wait_for};

use support::{Load, StopAtEnd, assert_serves, get};

const EXITED: &str = "exited with code 0";

/// `workers` workers that respond with `word`; `listen` has more parameters.
fn conf(workers: usize, listen: &str, word: &str) -> String {
    format!(
        "worker_processes {workers}; admin 127.0.0.1:%%PORT_1%%; error_log %%DIR%%/error.log notice; http {{ keepalive_requests 1000000; client_header_timeout 600; server {{ listen 127.0.0.1:%%PORT%% {listen}; location / {{ return 200 {word}; }} location /big {{ root html; }} }} }}"
    )
}

/// What clients send to the socket of that number, how many bytes of it before the line goes, and how the response ends.
const BEGINNINGS: [(usize, &[u8], usize, &str); 10] = [
    (2, HTTP1, 0, "\r\n\r\nv"),
    (2, HTTP1, 7, "\r\n\r\nv"),
    (3, PROXIED, 0, "\r\n\r\nv"),
    (3, PROXIED, 7, "\r\n\r\nv"),
    (3, PROXIED, 48, "\r\n\r\nv"),
    (5, HTTP1, 0, "\r\n\r\nv"),
    (5, HTTP2, 0, DATA),
    (5, HTTP2, 7, DATA),
    (5, HTTP2, 24, DATA),
    (5, HTTP2, 33, DATA),
];
const HTTP1: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const PROXIED: &[u8] = b"PROXY TCP4 127.0.0.1 127.0.0.1 1000 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// The preface, SETTINGS, and HEADERS of a request on stream 1.
const HTTP2: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
/// The frame of its response's body.
const DATA: &str = "\0\0\x01\0\x01\0\0\0\x01v";

/// The workers' threads, and only theirs.
fn threads(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the server lives");
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("weir worker")).count()
}

/// Connections that workers have.
fn open(server: &Server) -> u64 {
    let metrics = Client::connect(server.addr(1)).get("/metrics").text();
    let rows = metrics.lines().filter_map(|line| line.strip_prefix("weir_connections{")?.split(' ').nth(1));
    rows.map(|number| number.parse::<u64>().expect("a number")).sum()
}

/// How often a worker ended with a configuration so far, and the numbers of those workers.
fn exits(server: &Server) -> (usize, HashSet<String>) {
    let log = server.error_log();
    let lines = log.lines().filter(|line| line.contains(EXITED));
    let number = |line: &str| line.split("worker process ").nth(1)?.split(' ').next().map(str::to_owned);
    let numbers: Vec<String> = lines.filter_map(number).collect();
    assert!(numbers.iter().all(|number| number.parse::<u32>().is_ok()), "{log}");
    (numbers.len(), numbers.into_iter().collect())
}

both_drivers! {
    /// The "Must show": twenty reloads with the worker count changed up and down and new connections opened
    /// throughout; nothing fails, nothing is reset, and in the end there are as many threads as configured.
    fn twenty_changes_of_the_number_of_workers_under_load(driver) {
        for listen in ["", "reuseport"] {
            let mut server = Server::start(&conf(2, listen, "v0"));
            let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
            let load = Load { address: server.addr(0), stop: &stop, asked: &asked };
            let mut first = server.client();
            std::thread::scope(|scope| {
                let _stops = StopAtEnd(&stop);
                let clients: Vec<_> = (0..6).map(|n| scope.spawn(move || load.ask(n % 3 == 0))).collect();
                for (number, workers) in [4, 1, 3, 2, 5, 1, 2, 4, 3, 1].into_iter().cycle().take(20).enumerate() {
                    let word = format!("v{}", number + 1);
                    server.reload(&conf(workers, listen, &word));
                    wait_for(&word, || {
                        let response = first.get("/");
                        if !response.keeps_alive() {
                            first = server.client();
                        }
                        (response.text() == word).then_some(())
                    });
                    let (before, more) = (asked.load(Ordering::Relaxed), 20);
                    wait_for("load", || (asked.load(Ordering::Relaxed) > before + more).then_some(()));
                }
                stop.store(true, Ordering::Release);
                for client in clients {
                    client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
            });
            assert!(asked.load(Ordering::Relaxed) > 400, "there was load");
            println!("{} requests, {listen:?}", asked.load(Ordering::Relaxed));
            assert!(!server.error_log().contains("[emerg]"), "{}", server.error_log());
            drop(first);
            wait_for("one worker", || (threads(&server) == 1).then_some(()));
        }
    }

    /// Connections that were not accepted yet when the number of workers fell, or the line went, get responses.
    fn what_waits_in_a_queue_is_answered(driver) {
        for listen in ["", "reuseport"] {
            let mut server = Server::start(&conf(4, listen, "v0"));
            for round in 1..=10 {
                let mut waiting: Vec<Client> = (0..40).map(|_| server.client()).collect();
                server.reload(&conf(if round % 2 == 0 { 4 } else { 1 }, listen, &format!("v{round}")));
                for client in &mut waiting {
                    assert_eq!(client.get("/").status, 200);
                }
            }
        }
    }

    /// A connection of a worker that is to end learns so by its next response; an idle one blocks nothing.
    fn a_worker_ends_with_its_last_connection(driver) {
        let mut server = Server::start(&conf(3, "reuseport", "v0"));
        // A thread gives itself its name.
        wait_for("three workers", || (threads(&server) == 3).then_some(()));
        // Those that have not asked yet stay with their workers.
        let mut clients: Vec<Client> = (0..24).map(|_| server.client()).collect();
        wait_for("connections", || (open(&server) == 24).then_some(()));
        server.reload(&conf(1, "reuseport", "v1"));
        wait_for("three ended", || (exits(&server).0 >= 3).then_some(()));
        let (mut kept, mut ended) = (0, 0);
        for client in &mut clients {
            let response = client.get("/");
            assert_eq!(response.text(), "v1");
            if response.keeps_alive() { kept += 1 } else { ended += 1 }
        }
        assert!(kept > 0 && ended > 0, "{kept} kept, {ended} ended");
        wait_for("one worker", || (threads(&server) == 1).then_some(()));
        server.reload(&conf(2, "reuseport", "v2"));
        wait_for("two workers", || (threads(&server) == 2).then_some(()));
        wait_for("one line of each worker and configuration", || (exits(&server).0 == 4).then_some(()));
    }

    /// A worker that only waited for its last connection takes new ones again.
    fn a_worker_is_called_back(driver) {
        let mut server = Server::start(&conf(4, "reuseport", "v0"));
        let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
        wait_for("connections", || (open(&server) == 40).then_some(()));
        for (number, workers) in [1, 4, 1, 4].into_iter().enumerate() {
            server.reload(&conf(workers, "reuseport", &format!("v{number}x")));
            wait_for("all ended", || (exits(&server).0 >= 4 * (number + 1)).then_some(()));
            wait_for("four threads", || (threads(&server) == 4).then_some(()));
        }
        for client in &mut clients {
            let response = client.get("/");
            assert!(response.keeps_alive() && response.text() == "v3x", "{response}");
        }
    }

    /// The line of a worker whose configuration is replaced comes when its last request is done, and not before.
    fn a_worker_tells_when_its_old_configuration_has_ended(driver) {
        const BIG: usize = 16 << 20;
        let mut server =
            Server::builder(&conf(2, "", "v0")).file("html/big", support::pattern(BIG)).start();
        let mut idle = server.client();
        assert_serves(&mut idle, "/", "v0");
        let mut slow = server.client();
        slow.send(get("/big"));
        slow.peek(1).expect("it has begun");
        server.reload(&conf(2, "", "v1"));
        wait_for("the other worker", || (exits(&server).0 == 1).then_some(()));
        assert_serves(&mut idle, "/", "v1");
        assert_eq!(exits(&server).0, 1, "a request goes on");
        assert!(slow.response().body == support::pattern(BIG), "the whole file");
        wait_for("both", || (exits(&server).0 == 2).then_some(()));
        assert_eq!(exits(&server).1.len(), 2);
        assert!(server.quit().status.success());
        assert_eq!(exits(&server).0, 4, "{}", server.error_log());
    }

    /// A `listen` line that changes what a connection begins with ends those that began otherwise, each with the
    /// request it is in; others go on.
    fn a_connection_of_another_protocol_ends_with_its_request(driver) {
        const BIG: usize = 16 << 20;
        let two = |parameter: &str, word: &str| format!(
            "error_log %%DIR%%/error.log notice; http {{ server {{ listen 127.0.0.1:%%PORT_0%% {parameter}; listen 127.0.0.1:%%PORT_1%%; location / {{ return 200 {word}; }} location /big {{ root html; }} }} }}"
        );
        let mut server = Server::builder(&two("", "v0")).file("html/big", support::pattern(BIG)).start();
        let (mut busy, mut idle, mut other) = (server.client(), server.client(), Client::connect(server.addr(1)));
        assert_serves(&mut idle, "/", "v0");
        assert_serves(&mut other, "/", "v0");
        busy.send(get("/big"));
        busy.peek(1).expect("it has begun");
        server.reload(&two("proxy_protocol", "v1"));
        wait_for("new configuration", || (Client::connect(server.addr(1)).get("/").text() == "v1").then_some(()));
        idle.expect_close();
        assert!(busy.response().body == support::pattern(BIG), "the whole file");
        busy.expect_close();
        assert_serves(&mut other, "/", "v1");
    }

    /// A `listen` line that goes: what waits in its queue gets its response, and the address is free.
    fn a_line_that_goes_resets_nobody(driver) {
        let one = "worker_processes 2; http { server { listen 127.0.0.1:%%PORT_0%%; return 200 v; } }";
        let two = "worker_processes 2; http { server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%%; return 200 v; } }";
        let mut server = Server::start(two);
        for _ in 0..5 {
            let mut waiting: Vec<Client> = (0..30).map(|_| Client::connect(server.addr(1))).collect();
            server.reload(one);
            for client in &mut waiting {
                let response = client.get("/");
                assert_eq!(response.text(), "v");
            }
            wait_for("refused", || TcpStream::connect(server.addr(1)).is_err().then_some(()));
            server.reload(two);
            wait_for("second address", || TcpStream::connect(server.addr(1)).is_ok().then_some(()));
        }
    }

    /// The same for clients that have connected and not sent a whole request, however far they have got in any protocol.
    fn a_line_that_goes_serves_those_that_have_not_asked(driver) {
        let pair = support::tls::own("a");
        let offered = support::tls::client(true, None);
        for workers in [1, 2] {
            let conf = |lines: &str| format!("worker_processes {workers}; admin 127.0.0.1:%%PORT_1%%; http {{ {lines} server {{ listen 127.0.0.1:%%PORT_0%%; return 200 v; }} }}");
            let lines = "ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
                server { listen 127.0.0.1:%%PORT_2%%; listen 127.0.0.1:%%PORT_3%% proxy_protocol; listen 127.0.0.1:%%PORT_4%% ssl; return 200 v; }
                server { listen 127.0.0.1:%%PORT_5%%; http2 on; return 200 v; }";
            let mut server = Server::builder(&conf(lines)).driver(driver).file("a.crt", &pair.certificate).file("a.key", &pair.key).start();
            let begin = |&(port, whole, sent, _): &(usize, &[u8], usize, &str)| {
                let mut client = Client::connect(server.addr(port));
                client.send(&whole[..sent]);
                client
            };
            let clients: Vec<Client> = BEGINNINGS.iter().map(begin).collect();
            let secure: Vec<_> = (0..4).map(|_| TcpStream::connect(server.addr(4)).expect("a server")).collect();
            wait_for("connections", || (open(&server) == (clients.len() + secure.len()) as u64).then_some(()));
            server.reload(&conf(""));
            wait_for("refused", || TcpStream::connect(server.addr(2)).is_err().then_some(()));
            for ((_, whole, sent, end), mut client) in BEGINNINGS.iter().zip(clients) {
                client.send(&whole[*sent..]);
                client.until(end);
            }
            for stream in secure {
                let mut client = support::tls::TlsClient::over(stream, "a", &offered, 1 << 20).expect("a handshake");
                assert_eq!(client.get("/", "a").text(), "v");
            }
        }
    }

    /// `worker_connections`: a client that comes when there are as many waits, and those that wait for a request make
    /// room.
    fn a_full_worker_makes_its_clients_wait(driver) {
        const BIG: usize = 16 << 20;
        let conf = "events { worker_connections 4; } error_log %%DIR%%/error.log notice; http { server { listen 127.0.0.1:%%PORT%%; root html; } }";
        let mut server = Server::builder(conf)
            .file("html/big", support::pattern(BIG))
            .file("html/a", "a")
            .allow("worker_connections are not enough")
            .start();
        let mut busy: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for client in &mut busy {
            client.send(get("/big"));
            client.peek(1).expect("it has begun");
        }
        let mut idle = server.client();
        assert_serves(&mut idle, "/a", "a");
        let mut next = server.client();
        assert_serves(&mut next, "/a", "a");
        idle.expect_close();
        let line = server.error_log_line("4 worker_connections are not enough, reusing connections");
        assert!(line.contains("[warn]"), "{line}");
        next.send(get("/big"));
        next.peek(1).expect("it has begun");
        let mut waiting = server.client();
        waiting.send(get("/a"));
        wait_for("alert", || {
            server.error_log().lines().any(|line| line.contains("[alert]") && line.ends_with("4 worker_connections are not enough")).then_some(())
        });
        assert!(busy.remove(0).response().body == support::pattern(BIG), "the whole file");
        assert_eq!(waiting.response().text(), "a");
        drop((busy, next));
        assert!(server.quit().status.success());
    }

    /// `worker_cpu_affinity`, also after a reload.
    fn workers_stay_on_their_cpus(driver) {
        let allowed = allowed_cpus();
        if !(allowed.trim().starts_with("0-") || allowed.trim().starts_with("0,1")) {
            // No program that could be installed changes that: nothing to require.
            return eprintln!("not shown: of the CPUs 0 and 1 this process may use {}", allowed.trim());
        }
        let conf = |affinity: &str| format!("worker_processes 2; {affinity} error_log %%DIR%%/error.log notice; http {{ server {{ listen 127.0.0.1:%%PORT%%; return 200 v; }} }}");
        let mut server = Server::builder(&conf("worker_cpu_affinity 1 1;")).allow("sched_setaffinity() failed").start();
        wait_for("CPU 0", || (cpus(&server) == ["0", "0"]).then_some(()));
        assert!(server.error_log_line("sched_setaffinity(): using cpu #0").contains("[notice]"));
        server.reload(&conf(""));
        wait_for("all CPUs", || {
            let cpus = cpus(&server);
            (cpus[0] != "0" && cpus[0] == cpus[1]).then_some(())
        });
        server.reload(&conf("worker_cpu_affinity auto;"));
        wait_for("one CPU each", || (cpus(&server) == ["0", "1"]).then_some(()));
        // Workers ask again what they may use: by then each is bound to one.
        server.reload(&conf("worker_cpu_affinity auto; worker_shutdown_timeout 1s;"));
        server.reload(&conf("worker_cpu_affinity auto;"));
        wait_for("still one CPU each", || (cpus(&server) == ["0", "1"]).then_some(()));
        let none = "1".to_owned() + &"0".repeat(700);
        server.reload(&conf(&format!("worker_cpu_affinity {none};")));
        let line = server.error_log_line("sched_setaffinity() failed");
        assert!(line.contains("[alert]") && line.ends_with("sched_setaffinity() failed (22: Invalid argument)"), "{line}");
    }

    /// The process was given one CPU, and not the first: `auto` gives out that one.
    fn affinity_auto_keeps_to_the_cpus_of_the_process(driver) {
        let allowed = allowed_cpus();
        let last = allowed.split([',', '-']).next_back().expect("never empty").to_owned();
        if allowed == last {
            return eprintln!("not shown: there is one CPU");
        }
        let conf = "worker_processes 2; worker_cpu_affinity auto; http { server { listen 127.0.0.1:%%PORT%%; return 200 v; } }";
        let builder = Server::builder(conf);
        let bound = builder.dir().join("bound");
        let script = format!("#!/bin/sh\nexec taskset -c {last} {} \"$@\"\n", env!("CARGO_BIN_EXE_weir"));
        fs::write(&bound, script).expect("written");
        fs::set_permissions(&bound, fs::Permissions::from_mode(0o755)).expect("the test's own file");
        let server = builder.binary(bound).driver(driver).start();
        wait_for("the CPU of the process", || (cpus(&server) == [last.clone(), last.clone()]).then_some(()));
        assert!(!server.error_log().contains("sched_setaffinity() failed"), "{}", server.error_log());
    }

    /// Threads that work for all workers do not share the one CPU of the worker that started them.
    fn helping_threads_are_not_bound_to_a_worker_s_cpu(driver) {
        let allowed = allowed_cpus();
        let conf = "worker_processes 2; worker_cpu_affinity auto; http {
            access_log %%DIR%%/access.log; proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
            server { listen 127.0.0.1:%%PORT%%; location / { return 200 v; }
                location /cached { proxy_cache z; proxy_pass http://127.0.0.1:%%PORT%%/; } } }";
        let server = Server::builder(conf).driver(driver).start();
        assert_eq!(server.client().get("/cached").text(), "v");
        for name in ["weir log", "weir cache"] {
            wait_for(name, || (cpus_of(&server, |thread| thread == name) == [allowed.clone()]).then_some(()));
        }
    }
}

fn allowed_cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let allowed =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("always listed");
    allowed.trim().to_owned()
}

/// The CPUs that each worker may use, as the system lists them.
fn cpus(server: &Server) -> Vec<String> {
    cpus_of(server, |name| name.starts_with("weir worker"))
}

/// The same of all threads whose name is `wanted`, in the order of their names.
fn cpus_of(server: &Server, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the server lives");
    let mut found: Vec<(String, String)> = tasks
        .filter_map(|task| {
            let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let field =
                |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
            Some((field("Name:")?, field("Cpus_allowed_list:")?))
        })
        .filter(|(name, _)| wanted(name))
        .collect();
    found.sort();
    found.into_iter().map(|(_, cpus)| cpus).collect()
}
