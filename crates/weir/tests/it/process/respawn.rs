//! Deaths and ends.

use std::net::TcpStream;
use std::time::Instant;

use weir_test::{Server, ServerSignal, both_drivers, wait_for};

use super::*;

both_drivers! {
    /// The "Must show": a crash under load is logged, and the next connection gets its response within 200 ms:
    /// the listening sockets stay open. The time is printed, not asserted: it is the machine's, too.
    fn a_server_that_crashes_is_there_again(driver) {
        let server = Server::builder(&answering("v")).allow("exited on signal 11").start();
        let first = server_of(server.pid(), None);
        wait_for("its title", || title(server.pid()).starts_with("weir: master process /").then_some(()));
        under_load(server.addr(0), |load| {
            load.wait(100);
            kill(first, "SEGV");
            let died = Instant::now();
            // Responses of the dying process do not count.
            wait_gone(first);
            wait_for("an answer", || ask(server.addr(0)).ok());
            println!("answers again after {} ms", died.elapsed().as_millis());
            load.wait(100);
        });
        let line = server.error_log_line("exited on signal 11");
        assert!(line.contains("[alert]") && line.contains(&format!("worker process {first} exited")), "{line}");
        assert_ne!(server_of(server.pid(), None), first);
    }

    /// What the workers did last is written down by the master, with how it ended, and can be had by the command.
    fn a_crash_leaves_a_record(driver) {
        let conf = answering("v").replace("return", "trace sample=1/1; return");
        let server = Server::builder(&conf).allow("exited on signal 11").start();
        let record = |path: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            command.args(["record", "--last-crash", "--socket"]).arg(server.dir().path().join("nginx.pid.sock"));
            command.args(["-o", path]).output().expect("the program runs")
        };
        let none = record("-");
        let said = String::from_utf8_lossy(&none.stderr).into_owned();
        assert!(!none.status.success() && said.contains("no server process has crashed here"), "{said}");
        let first = server_of(server.pid(), None);
        assert_eq!(server.get("/before-the-crash").text(), "v");
        // A worker that gets the signal itself can't be asked any more: the record of a moment before has the request.
        wait_for("the record of it", || remembered(first, b"GET /before-the-crash").then_some(()));
        kill(first, "SEGV");
        let line = server.error_log_line(&format!("what worker process {first} did last is in"));
        assert!(line.contains("nginx.pid.crash.pftrace"), "{line}");
        let record = record("-");
        assert!(record.status.success(), "{}", String::from_utf8_lossy(&record.stderr));
        let text = String::from_utf8_lossy(&record.stdout);
        let end = format!("server process {first} exited on signal 11");
        for part in ["GET /before-the-crash", "signal 11", &end] {
            assert!(text.contains(part), "no {part} in {text:?}");
        }
        server_of(server.pid(), Some(first));
        assert_eq!(server.get("/").text(), "v");
    }

    /// The directory of the pid file may belong to the server's user: a link that he puts there leads the master, which is
    /// root, nowhere.
    fn a_crash_record_is_not_written_through_a_link(driver) {
        let conf = answering("v").replace("return", "trace sample=1/1; return");
        let server = Server::builder(&conf).allow("exited on signal 11").start();
        let dir = server.dir().path();
        fs::write(dir.join("victim"), "as it was").expect("ours");
        let draft = dir.join("nginx.pid.crash.pftrace.new");
        std::os::unix::fs::symlink(dir.join("victim"), &draft).expect("ours");
        let first = server_of(server.pid(), None);
        assert_eq!(server.get("/before-the-crash").text(), "v");
        wait_for("the record of it", || remembered(first, b"GET /before-the-crash").then_some(()));
        kill(first, "SEGV");
        let _ = server.error_log_line(&format!("what worker process {first} did last is in"));
        assert_eq!(fs::read_to_string(dir.join("victim")).expect("there"), "as it was");
        assert!(!draft.is_symlink() && dir.join("nginx.pid.crash.pftrace").is_file());
        server_of(server.pid(), Some(first));
    }

    /// As in nginx one that is ended by itself comes back.
    fn a_server_that_is_told_to_end_comes_back(driver) {
        let server = Server::start(&answering("v"));
        let first = server_of(server.pid(), None);
        kill(first, "TERM");
        let line = server.error_log_line(&format!("worker process {first} exited with code 0"));
        assert!(line.contains("[notice]"), "{line}");
        let second = server_of(server.pid(), Some(first));
        assert_eq!(server.get("/").text(), "v");
        assert_ne!(first, second);
    }

    /// QUIT waits for the response under way; another TERM does not.
    fn a_second_signal_ends_what_the_first_waits_for(driver) {
        let conf = "master_process on; http { server { listen 127.0.0.1:%%PORT%%; client_max_body_size 1m; root html; } }";
        let mut server = Server::start(conf);
        let mut slow = server.client();
        slow.send("GET /none HTTP/1.1\r\nHo");
        // A connection without a request may be closed at once; one with half a head is waited for.
        wait_for("head on its way", || ask_any(&server).then_some(()));
        server.signal(ServerSignal::Quit);
        support::wait_refused(&server);
        slow.send("st: a\r\nConnection: close\r\n\r\n");
        assert_eq!(slow.response().status, 404);
        assert!(server.wait_exit().status.success());
        assert!(!server.dir().path().join("nginx.pid").exists(), "removed");

        let mut server = Server::start(conf);
        let mut slow = server.client();
        slow.send("GET /none HTTP/1.1\r\nHo");
        wait_for("head on its way", || ask_any(&server).then_some(()));
        server.signal(ServerSignal::Quit);
        support::wait_refused(&server);
        server.signal(ServerSignal::Term);
        assert!(server.wait_exit().status.success());
        slow.expect_close();
    }
}

/// Whether the memory that process `pid` shares with its master has `text` in it.
fn remembered(pid: u32, text: &[u8]) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let memory = files.map(|file| file.path()).find(|file| {
        file.read_link().is_ok_and(|name| name.to_string_lossy().contains("memfd:weir-remains"))
    });
    let record = memory.and_then(|memory| fs::read(memory).ok()).unwrap_or_default();
    record.windows(text.len()).any(|part| part == text)
}

/// Whether the server responds; what was sent before on other connections is read by then.
fn ask_any(server: &Server) -> bool {
    server.get("/").status == 404
}

/// An orphan could not be controlled, and it would keep the address.
#[test]
fn a_server_ends_with_its_master() {
    let mut server = Server::builder(&answering("v")).allow("the master process is gone").start();
    let child = server_of(server.pid(), None);
    server.signal(ServerSignal::Kill);
    assert!(!server.wait_exit().status.success());
    wait_gone(child);
    assert!(TcpStream::connect(server.addr(0)).is_err());
}

/// The server is the configured user's, nobody's without one; the master stays root.
#[test]
fn privileges_are_the_servers_alone() {
    if !is_root() {
        return weir_test::skip("only root has privileges to give up");
    }
    let uid = |pid: u32| {
        let status = status(pid);
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a living process");
        line.split_whitespace().nth(1).and_then(|uid| uid.parse::<u32>().ok()).expect("a number")
    };
    for (user, wanted) in [("", Some(65_534)), ("user root;", Some(0)), ("user daemon;", None)] {
        let server = Server::start(&format!("{user} {}", answering("v")));
        assert_eq!(uid(server.pid()), 0);
        let found = uid(server_of(server.pid(), None));
        match wanted {
            Some(wanted) => assert_eq!(found, wanted, "{user}"),
            None => assert_ne!(found, 0, "{user}"),
        }
    }
}

/// A server that can't even begin is not tried for ever: the start fails, with the reason.
#[test]
fn a_server_that_cannot_start_ends_the_start() {
    let directory_less = "pid /no/such/folder/nginx.pid; master_process on; http { }";
    let error = Server::builder(directory_less).run(&[]);
    assert!(!error.status.success());
    let wanted = "open() \"/no/such/folder/nginx.pid\" failed (2: No such file or directory)";
    assert!(error.stderr.contains(wanted), "{error}");
}

/// One that dies at once, again and again, is started less and less often, and goes on when the cause is gone.
#[test]
fn deaths_in_a_row_are_slowed_down() {
    let server =
        Server::builder(&answering("v")).allow("exited on signal 9").allow("soon after their start").start();
    let mut last = None;
    // On a busy machine not every start is followed soon enough.
    let line = wait_for("a pause", || {
        let child = server_of(server.pid(), last);
        kill(child, "KILL");
        last = Some(child);
        server.error_log().lines().find(|line| line.contains("soon after their start")).map(str::to_owned)
    });
    assert!(line.contains("[alert]") && line.contains("the next starts in"), "{line}");
    server_of(server.pid(), last);
    assert_eq!(server.get("/").text(), "v");
}

/// Debian's CVE-2016-1247 in nginx: logs in a directory of the server's user, opened by root through a link of his.
#[test]
fn links_of_the_servers_user_are_not_followed() {
    if !is_root() {
        return weir_test::skip("only root can make links that belong to others");
    }
    let lines = "error_log logs/error.log; master_process on; http { access_log logs/access.log;
        server { listen 127.0.0.1:%%PORT%%; return 200 v; } }";
    for name in ["logs/access.log", "nginx.pid"] {
        let builder = Server::builder(lines).file("victim", "as it was").file("logs/error.log", "");
        let link = builder.dir().join(name);
        std::os::unix::fs::symlink(builder.dir().join("victim"), &link).expect("ours");
        std::os::unix::fs::lchown(&link, Some(12345), None).expect("we are root");
        let dir = builder.dir().to_owned();
        let exit = builder.try_start().expect_err("it must not start");
        assert!(!exit.status.success());
        assert!(exit.stderr.contains("40: Too many levels of symbolic links"), "{name}: {}", exit.stderr);
        assert!(exit.stderr.contains(name.rsplit('/').next().unwrap_or(name)), "{}", exit.stderr);
        let _ = dir;
    }
}
