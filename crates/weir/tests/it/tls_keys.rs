//! Where slow private keys are used: on threads that give way to workers (`ssl_key_pool`).

use crate::support::tls as support;

use crate::support::softhsm;

use crate::support::says as said;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use softhsm::Token;
use support::{TlsClient, client, own};
use weir_test::{Server, both_drivers, wait_for};

/// sched(7)
const SCHED_BATCH: i64 = 3;

/// A thread as the kernel shows it.
struct Thread {
    policy: i64,
    nice: i64,
    /// The CPUs it may run on.
    cpus: String,
}

impl Thread {
    /// `None`: it has ended.
    fn read(task: &Path) -> Option<Thread> {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        // proc_pid_stat(5): fields from the third on follow the name.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields[number - 3].parse().expect("a number");
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        Some(Thread { nice: field(19), policy: field(41), cpus })
    }
}

/// The server's threads of that name.
fn threads(server: &Server, name: &str) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the server lives");
    let named = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
    tasks
        .filter_map(|task| Some(task.ok()?.path()))
        .filter(named)
        .filter_map(|task| Thread::read(&task))
        .collect()
}

/// Handshakes until there are threads of that name, and all of them give way by `nice`.
fn give_way(server: &Server, name: &str, most: usize, nice: i64) {
    // Threads take on less than what they were started with only.
    let own = Thread::read(Path::new("/proc/self")).expect("our own").nice;
    let free = Thread::read(Path::new(&format!("/proc/{}", server.pid()))).expect("the server lives").cpus;
    wait_for(name, || {
        TlsClient::connect(server.addr(0), "a.example.com", &client(true, None));
        let threads = threads(server, name);
        assert!(threads.len() <= most, "{} {name}", threads.len());
        let right = |it: &Thread| (it.policy, it.nice, &it.cpus) == (SCHED_BATCH, nice.max(own), &free);
        (!threads.is_empty() && threads.iter().all(right)).then_some(())
    });
}

both_drivers! {
    fn slow_keys_are_used_by_so_many_threads_that_give_way_so_far(driver) {
        let pair = own("a.example.com");
        let cores = std::thread::available_parallelism().expect("Linux tells").get();
        for (line, most, nice) in [
            ("", cores, 15),
            ("ssl_key_pool threads=2 nice=7;", 2, 7),
            ("ssl_key_pool nice=0;", cores, 0),
            ("ssl_key_pool threads=1 nice=3; worker_cpu_affinity auto;", 1, 3),
        ] {
            let server = Server::builder(&format!(
                "{line} http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
                    ssl_certificate a.crt; ssl_certificate_key a.key pool; return 200 a; }} }}"
            ))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
            give_way(&server, "weir keys", most, nice);
        }
    }

    fn threads_that_wait_for_devices_give_way_too(driver) {
        let pair = own("a.example.com");
        let place = Server::builder("");
        let Some(token) = Token::new(place.dir(), &pair.key) else { return };
        let server = Server::builder(&format!(
            "env SOFTHSM2_CONF; ssl_key_pool nice=5;
             http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
                ssl_certificate a.crt; ssl_certificate_key \"{}\"; return 200 a; }} }}",
            token.name("object=k", "pin-value=1234"),
        ))
        .env("SOFTHSM2_CONF", token.conf()).file("a.crt", &pair.certificate).driver(driver).start();
        give_way(&server, "weir devices", 32, 5);
    }

    fn handshakes_are_timed_by_cpu_time_once_that_is_wanted(driver) {
        let pair = own("a.example.com");
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
                ssl_certificate a.crt; ssl_certificate_key a.key; return 200 a; } }"
        )
        .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        said::ready(&server);
        let sites = || {
            TlsClient::connect(server.addr(0), "a.example.com", &client(true, None)).get("/", "a.example.com");
            said::says(&["trace", "--sites"], &said::of(&server))
        };
        assert!(!sites().contains("tls_cpu"));
        said::says(&["profile", "handshakes", "on"], &said::of(&server));
        wait_for("CPU time of handshakes", || sites().contains("tls_cpu").then_some(()));
        for wrong in [&["profile", "handshakes", "maybe"][..], &["profile", "handshakes", "on", "--for", "1m"]] {
            assert!(!said::run(wrong, &said::of(&server)).status.success(), "{wrong:?}");
        }
    }
}

/// A server with these lines and the files that they name; `fifo` is one that nothing writes to.
fn with_files(lines: &str) -> weir_test::TestServerBuilder {
    let pair = own("a.example.com");
    let builder = Server::builder(&format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com; {lines} return 200 a; }} }}"
    ))
    .file("a.crt", &pair.certificate)
    .file("a.key", &pair.key)
    .file("a.example.com.crt", &pair.certificate)
    .file("passwords", format!("{}\nright\n", "x".repeat(4096)));
    for name in ["fifo", "b.example.com.crt"] {
        let made = Command::new("mkfifo").arg(builder.dir().join(name)).status().expect("coreutils");
        assert!(made.success());
    }
    builder
}

#[test]
fn files_without_an_end_are_errors_with_their_place() {
    for (lines, expected) in [
        ("ssl_certificate a.crt; ssl_certificate_key fifo;", "Connection timed out"),
        ("ssl_certificate fifo; ssl_certificate_key a.key;", "Connection timed out"),
        ("ssl_certificate a.crt; ssl_certificate_key /dev/zero;", "File too large"),
        ("ssl_certificate /dev/zero; ssl_certificate_key a.key;", "File too large"),
        ("ssl_certificate a.crt; ssl_certificate_key a.key; ssl_crl /dev/zero;", "File too large"),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_password_file passwords;",
            "too long line in",
        ),
        ("ssl_certificate a.crt; ssl_certificate_key engine:pkcs11:;", "there are no engines"),
        ("ssl_certificate a.crt; ssl_certificate_key store:file:a.key;", "there are no key stores"),
        ("ssl_certificate a.crt; ssl_certificate_key data:;", "no start line"),
    ] {
        let exit = with_files(lines).run(&["-t"]);
        let said = &exit.stderr;
        assert!(!exit.status.success() && said.contains(expected), "{lines}: {said}");
        assert!(said.contains(".conf:"), "{lines}: {said}");
    }
}

both_drivers! {
    /// What a client's name chooses is neither waited for nor read without an end.
    fn a_handshake_waits_for_no_fifo(driver) {
        let server = with_files("ssl_certificate $ssl_server_name.crt; ssl_certificate_key a.key;").driver(driver).start();
        for _ in 0..3 {
            assert!(TlsClient::cut(server.addr(0), "b.example.com", &client(true, None), 1000).is_err());
        }
        let line = server.error_log_line("cannot load certificate");
        assert!(line.contains("it is no regular file") && line.contains("b.example.com.crt"), "{line}");
        let mut it = TlsClient::connect(server.addr(0), "a.example.com", &client(true, None));
        assert_eq!(it.get("/", "a.example.com").text(), "a");
    }
}
