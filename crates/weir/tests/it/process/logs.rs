//! USR1.

use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use weir_test::{Server, ServerSignal, both_drivers, wait_for};

use super::*;

both_drivers! {
    /// What a client has been sent is in the log, also when the server process is killed at once.
    fn a_killed_server_has_logged_its_responses(driver) {
        for workers in [1, 3] {
            let conf = format!(
                "master_process on; worker_processes {workers};
                 http {{ log_format n '$uri'; access_log %%DIR%%/access.log n; access_log %%DIR%%/other.log n;
                    server {{ listen 127.0.0.1:%%PORT%%; return 200 a; }} }}"
            );
            let server = Server::builder(&conf).allow("exited on signal 9").allow("did last is in").allow("soon after their start").start();
            let mut last = None;
            for round in 0..4 {
                let child = server_of(server.pid(), last);
                wait_for("the server", || TcpStream::connect(server.addr(0)).is_ok().then_some(()));
                let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
                // Many, so that the thread that writes gathers: lines come together then.
                for at in 0..40 {
                    assert_eq!(clients[at % 4].get(&format!("/{round}-{at}")).text(), "a");
                }
                kill(child, "KILL");
                last = Some(child);
                let wanted = |at: usize| format!("/{round}-{at}\n");
                for log in ["access.log", "other.log"] {
                    wait_for("all lines, once each", || {
                        let text = server.dir().read(log);
                        let times = |at| text.lines().filter(|line| **line == *wanted(at).trim_end()).count();
                        let most = (0..40).map(times).max().unwrap_or(0);
                        assert!(most < 2, "{log}: twice");
                        (0..40).all(|at| times(at) == 1).then_some(())
                    });
                }
            }
        }
    }

    /// The "Must show": logs in a directory that is root's alone are renamed and made again; no line is lost.
    fn logs_are_reopened_where_only_root_may(driver) {
        let builder = Server::builder(
            "master_process on; http { access_log %%DIR%%/secret/access.log; server { listen 127.0.0.1:%%PORT%%; return 200 a; } }",
        );
        let secret = builder.dir().join("secret");
        fs::create_dir(&secret).expect("ours");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("ours");
        let mut server = builder.start();
        server.get("/1");
        for (number, signalled) in [(1, true), (2, false)] {
            let old = secret.join(format!("access.log.{number}"));
            fs::rename(secret.join("access.log"), &old).expect("it is there");
            server.get(&format!("/{number}-late"));
            match signalled {
                true => server.signal(ServerSignal::Usr1),
                false => assert!(weir(&server, &["-s", "reopen"]).status.success()),
            }
            wait_for("new log", || secret.join("access.log").exists().then_some(()));
            let line = format!("GET /{number}-late ");
            wait_for("late line", || {
                let new = server.dir().read("secret/access.log");
                (fs::read_to_string(&old).expect("renamed") + &new).contains(&line).then_some(())
            });
            let path = format!("/{number}-new");
            wait_for("line in the new log", || {
                server.get(&path);
                server.dir().read("secret/access.log").contains(&path).then_some(())
            });
        }
        if is_root() {
            // As nginx does, so that its workers may.
            assert_eq!(fs::metadata(secret.join("access.log")).expect("there").uid(), 65_534);
        }
        let server_log = server.error_log();
        assert!(!server_log.contains("[emerg]"), "{server_log}");
    }
}
