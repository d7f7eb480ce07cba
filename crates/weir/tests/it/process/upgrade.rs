//! USR2, WINCH, HUP and QUIT: another binary, and back.

use weir_test::{Server, ServerSignal, both_drivers, wait_for};

use super::*;

/// Starts another master, and waits until its server is there: its number, and that of the master.
pub(crate) fn upgrade(pid: &Path, master: u32) -> (u32, u32) {
    kill(master, "USR2");
    let new = pid_in(pid, Some(master));
    assert_eq!(pid_in(&pid.with_file_name("nginx.pid.oldbin"), None), master);
    (new, server_of(new, None))
}

both_drivers! {
    /// The "Must show": there and back and there under load, and no request fails.
    fn upgrade_and_rollback_under_load(driver) {
        for reuseport in ["", "reuseport"] {
            let mut server = Server::start(&format!(
                "master_process on; worker_processes 2; http {{ server {{ listen 127.0.0.1:%%PORT%% {reuseport}; return 200 a; }} }}"
            ));
            let (pid, old) = (server.dir().path().join("nginx.pid"), server.pid());
            let old_server = server_of(old, None);
            let mut last = 0;
            let failed = under_load(server.addr(0), |load| {
                load.wait(50);
                let (new, _) = upgrade(&pid, old);
                // The old server leaves, both masters stay.
                kill(old, "WINCH");
                wait_gone(old_server);
                load.wait(50);
                // Back: the old master's server first, then the new master goes.
                kill(old, "HUP");
                server_of(old, None);
                kill(new, "QUIT");
                wait_gone(new);
                assert_eq!(pid_in(&pid, Some(new)), old);
                assert!(!pid.with_file_name("nginx.pid.oldbin").exists());
                load.wait(50);
                // Back without HUP: the end of the new master brings the server back.
                let (new, _) = upgrade(&pid, old);
                let child = server_of(old, None);
                kill(old, "WINCH");
                wait_gone(child);
                kill(new, "QUIT");
                server_of(old, Some(child));
                wait_gone(new);
                assert_eq!(pid_in(&pid, Some(new)), old);
                load.wait(50);
                // There for good.
                let (new, _) = upgrade(&pid, old);
                kill(old, "QUIT");
                wait_gone(old);
                load.wait(50);
                last = new;
            });
            let log = server.error_log();
            kill(last, "QUIT");
            wait_gone(last);
            assert!(server.wait_exit().status.success());
            assert_eq!(failed, 0, "{reuseport}\n{log}");
            assert!(log.contains("using inherited sockets from \""), "{log}");
            assert!(!pid.exists(), "removed by the last master");
        }
    }
}

both_drivers! {
    /// The new binary's server, and one that a reload starts beside the old one, begin their timers as any other.
    fn timers_of_a_start_run_in_new_processes(driver) {
        let text = |more: &str| format!(
            "master_process on; worker_processes 2; {more} events {{}} http {{ lua_shared_dict seen 64k;
                init_worker_by_lua_block {{ ngx.timer.at(0, function() ngx.shared.seen:incr('ran', 1, 0) end) }}
                server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{
                    ngx.print(require('ngx.process').get_master_pid(), ' ', os.getenv 'MORE', ' ', ngx.shared.seen:get('ran')) }} }} }} }}");
        let mut server = Server::builder(&text("")).driver(driver).start();
        let (pid, old) = (server.dir().path().join("nginx.pid"), server.pid());
        let ran = |server: &Server, master: u32, more: &str| {
            let wanted = format!("{master} {more} 2");
            wait_for(&wanted, || (server.get("/").text() == wanted).then_some(()));
        };
        ran(&server, old, "nil");
        // Its environment has changed: that is another process.
        server.reload(&text("env MORE=1;"));
        ran(&server, old, "1");
        let (new, _) = upgrade(&pid, old);
        kill(old, "QUIT");
        ran(&server, new, "1");
        kill(new, "QUIT");
        wait_gone(new);
        assert!(server.wait_exit().status.success());
    }
}

/// A reload that is under way when the new master is started leaves the pid file, and the control socket, to that one, and so
/// does the old one's end.
#[test]
fn a_reload_ends_beside_the_new_master() {
    let mut server = Server::start(&answering("v").replace("http {", SLOW));
    let (pid, old) = (server.dir().path().join("nginx.pid"), server.pid());
    // By one shell: the second comes before the server process can have ended what the first began.
    kill(old, &format!("HUP {old}; kill -USR2"));
    let new = pid_in(&pid, Some(old));
    server_of(new, None);
    assert_eq!(pid_in(&pid.with_file_name("nginx.pid.oldbin"), None), old);
    kill(old, "QUIT");
    wait_gone(old);
    assert!(server.wait_exit().status.success());
    assert_eq!(pid_in(&pid, None), new);
    assert!(weir_see_top(&server), "the new one's");
    kill(new, "QUIT");
    wait_gone(new);
    assert!(!pid.exists(), "removed by the last master");
}

/// A binary that does not come up leaves everything as it was.
#[test]
fn a_failed_upgrade_is_taken_back() {
    let mut server = Server::start(&answering("v"));
    let (pid, master) = (server.dir().path().join("nginx.pid"), server.pid());
    let good = server.dir().read("nginx.conf");
    server.dir().write("nginx.conf", good.replace("return", "retrun"));
    server.signal(ServerSignal::Usr2);
    let line = server.error_log_line("new binary process");
    assert!(line.contains("start new binary process"), "{line}");
    let _ = server.error_log_line("exited with code 1");
    wait_for("pid file", || pid.exists().then_some(()));
    assert_eq!(pid_in(&pid, None), master);
    assert!(!pid.with_file_name("nginx.pid.oldbin").exists());
    assert_eq!(server.get("/").text(), "v");
    server.dir().write("nginx.conf", good.replace("200 v", "200 w"));
    assert!(weir(&server, &["-s", "reload"]).status.success());
    assert_eq!(server.get("/").text(), "w");
}

/// `weir trace` finds the server of each master by its pid file, before and after.
#[test]
fn the_control_socket_goes_with_the_pid_file() {
    let mut server = Server::start(&answering("v"));
    let (pid, old) = (server.dir().path().join("nginx.pid"), server.pid());
    let sites = || weir_see_top(&server);
    assert!(sites(), "the first");
    let (new, _) = upgrade(&pid, old);
    assert!(sites(), "the new master's");
    kill(new, "QUIT");
    wait_gone(new);
    assert_eq!(pid_in(&pid, Some(new)), old);
    assert!(sites(), "the old one's again");
    assert!(server.quit().status.success());
}

/// Each start and reload takes half a second.
const SLOW: &str =
    "http { init_by_lua_block { local began = os.clock() while os.clock() < began + 0.5 do end }";

fn weir_see_top(server: &Server) -> bool {
    let directory = server.dir().path();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["trace", "--sites", "-p"])
        .arg(directory)
        .args(["-c", "nginx.conf"])
        .output()
        .expect("the program runs");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}
