//! A server whose master was killed: it serves on, obeys commands, and gives its sockets to the next master.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use weir_test::{Server, ServerSignal, TestServerBuilder, both_drivers};

use super::*;

/// A master and its server, which responds with `word` at a port and at a unix socket.
fn conf(workers: usize, word: &str, more: &str) -> String {
    format!(
        "master_process on; master_gone serve; worker_processes {workers};
         http {{ {more} server {{ listen 127.0.0.1:%%PORT%%; listen unix:%%DIR%%/u.sock; return 200 {word}; }} }}"
    )
}

fn builder(workers: usize) -> TestServerBuilder {
    Server::builder(&conf(workers, "a", ""))
        .allow("the master process is gone")
        .allow("[emerg]")
        .allow("[alert]")
}

/// Kills the master; the server that it leaves.
#[track_caller]
fn orphaned(server: &mut Server) -> u32 {
    let child = server_of(server.pid(), None);
    support::says::ready(server);
    server.signal(ServerSignal::Kill);
    let _ = server.wait_exit();
    let line = server.error_log_line("the master process is gone");
    assert!(line.contains("[alert]") && line.contains("serves on"), "{line}");
    child
}

/// Another master on the same configuration, which ends with the test.
struct NextMaster(Child);

impl NextMaster {
    fn start(server: &Server) -> NextMaster {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("-p").arg(server.dir().path()).args(["-c", "nginx.conf", "-e", "error.log"]);
        NextMaster(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs"))
    }

    #[track_caller]
    fn fails(mut self) {
        assert!(!self.0.wait().expect("our child").success());
    }

    #[track_caller]
    fn quits(mut self) {
        kill(self.0.id(), "QUIT");
        assert!(self.0.wait().expect("our child").success());
    }
}

impl Drop for NextMaster {
    fn drop(&mut self) {
        // Its server would serve on.
        let _ = Command::new("pkill").args(["-KILL", "-P", &self.0.id().to_string()]).status();
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn rewritten(server: &Server, from: &str, to: &str) {
    let text = server.dir().read("nginx.conf");
    assert!(text.contains(from), "{text}");
    server.dir().write("nginx.conf", text.replace(from, to));
}

both_drivers! {
    fn it_serves_on_and_obeys_commands(driver) {
        for workers in [1, 4] {
            let mut server = builder(workers).start();
            let mut kept = server.client();
            assert_eq!(kept.get("/").text(), "a");
            let mut child = 0;
            let failed = under_load(server.addr(0), |load| {
                load.wait(50);
                child = orphaned(&mut server);
                load.wait(100);
            });
            assert_eq!((failed, kept.get("/").text()), (0, "a".to_owned()));
            let reload = weir(&server, &["-s", "reload"]);
            let said = String::from_utf8_lossy(&reload.stderr).into_owned();
            assert!(!reload.status.success() && said.contains("takes over"), "{said}");
            assert!(weir(&server, &["-s", "reopen"]).status.success());
            let _ = server.error_log_line("reopening logs");
            assert_eq!(server.get("/").text(), "a");
            assert!(weir(&server, &["-s", "quit"]).status.success());
            drop(kept);
            wait_gone(child);
            assert!(TcpStream::connect(server.addr(0)).is_err());
        }
    }

    fn the_next_master_takes_over_under_load(driver) {
        for workers in [1, 4] {
            let mut server = builder(workers).start();
            let mut next = None;
            let failed = under_load(server.addr(0), |load| {
                load.wait(50);
                let child = orphaned(&mut server);
                rewritten(&server, "return 200 a", "return 200 b");
                next = Some(NextMaster::start(&server));
                wait_gone(child);
                load.wait(50);
            });
            let log = server.error_log();
            assert_eq!(failed, 0, "{log}");
            assert!(log.contains("taking over from server process "), "{log}");
            assert_eq!(server.get("/").text(), "b");
            let unix = server.dir().path().join("u.sock");
            assert!(UnixStream::connect(&unix).is_ok());
            // It is a master as any other: it can be asked, and reloads.
            support::says::says(&["top", "workers", "-b", "-d", "0"], &support::says::of(&server));
            rewritten(&server, "return 200 b", "return 200 c");
            assert!(weir(&server, &["-s", "reload"]).status.success());
            assert_eq!(server.get("/").text(), "c");
            next.expect("started").quits();
            assert!(!unix.exists() && !server.dir().path().join("nginx.pid").exists(), "removed by the last master");
        }
    }

    /// Wrong configuration, a port that others have, a script that fails in the server process, and a death in the middle: the
    /// server without a master serves on, and the one after takes over.
    fn a_next_master_that_fails_changes_nothing(driver) {
        let mut server = builder(2).start();
        let child = orphaned(&mut server);
        let good = server.dir().read("nginx.conf");
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("bound").port();
        for (from, to) in [
            ("return 200 a", "retrun 200 a".to_owned()),
            ("listen unix:", format!("listen 127.0.0.1:{port}; listen unix:")),
            ("http {", "http { init_by_lua_block { error('no') }".to_owned()),
            ("http {", "http { init_worker_by_lua_block { os.exit(7) }".to_owned()),
        ] {
            rewritten(&server, from, &to);
            NextMaster::start(&server).fails();
            assert_eq!(server.get("/").text(), "a", "{to}");
            server.dir().write("nginx.conf", &good);
        }
        rewritten(&server, "http {", "http { init_by_lua_block { os.execute('touch begun; sleep 2') }");
        let next = NextMaster::start(&server);
        let _ = server.error_log_line("takes the listening sockets over");
        kill(next.0.id(), "KILL");
        drop(next);
        assert_eq!(server.get("/").text(), "a");
        server.dir().write("nginx.conf", &good);
        let next = NextMaster::start(&server);
        wait_gone(child);
        assert_eq!(server.get("/").text(), "a");
        next.quits();
    }
}
