//! Starts that fail say why, those that can go well do, and a reload builds what the start has built.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weir_test::{Client, Driver, Server, TempDir, TestServerBuilder, both_drivers, require_program};

use super::*;

/// A server whose script fails when it begins. Epoll: memory for rings may be short, which would be another reason.
fn failing(master: &str) -> TestServerBuilder {
    Server::builder(&format!(
        "master_process {master}; http {{ init_by_lua_block {{ error('boom') }} server {{ listen 127.0.0.1:%%PORT%%; }} }}"
    ))
    .driver(Driver::Epoll)
}

/// The master used to end its child as soon as it knew of the failure, before the child had said why.
#[test]
fn every_failed_start_says_why() {
    for (master, starts) in [("on", 100), ("off", 10)] {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    for _ in 0..starts / 2 {
                        let exit = failing(master).try_start().expect_err("the script fails");
                        assert!(!exit.status.success(), "{exit}");
                        assert!(
                            exit.stderr.contains("boom"),
                            "master_process {master}: standard error: {exit}"
                        );
                        assert!(exit.error_log.contains("boom"), "master_process {master}: log: {exit}");
                    }
                });
            }
        });
    }
}

both_drivers! {
    /// What a new server process says of its failure is reported to the process that asked for the reload, and logged
    /// once.
    fn a_reload_that_needs_another_process_says_why_it_failed(driver) {
        let mut server = Server::start(&answering("v0"));
        wait_for("the first outcome", || server.dir().path().join("nginx.pid.status").exists().then_some(()));
        let broken = format!("env FOO=1; {}", answering("v1").replace("http {", "http { init_by_lua_block { error('boom') }"));
        let text = server.dir().read("nginx.conf");
        server.reload(&broken);
        let _ = server.error_log_line("boom");
        let _ = server.error_log_line("before it was ready");
        assert_eq!(server.get("/").text(), "v0");
        let output = weir(&server, &["-s", "reload"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("boom"), "{said}");
        let emergencies = server.error_log().lines().filter(|line| line.contains("[emerg]") && line.contains("boom")).count();
        assert_eq!(emergencies, 2, "one for each reload\n{}", server.error_log());
        server.dir().write("nginx.conf", text);
        assert!(weir(&server, &["-s", "reload"]).status.success());
    }
}

/// A process that the test itself has started, killed with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended. A master that is killed leaves its server.
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
            let end = Instant::now() + DEADLINE;
            while Instant::now() < end && self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Started {
    fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().expect("it is our child")
    }
}

/// Runs `program` with these arguments and then those of a server in `folder`.
fn start_in(directory: &TempDir, program: &str, arguments: &[&str]) -> Started {
    let output = fs::File::create(directory.path().join("stderr")).expect("ours");
    let mut command = Command::new(program);
    command.args(arguments).arg("-p").arg(directory.path()).args(["-c", "nginx.conf"]);
    Started(
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn().expect("the program runs"),
    )
}

/// A script without end holds the start up until it is stopped.
#[test]
fn a_start_that_hangs_can_be_ended() {
    let directory = TempDir::new();
    // The script may run as the user `nobody`.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    directory.write(
        "nginx.conf",
        "daemon off; pid nginx.pid; error_log error.log; events { }
         http { access_log off; init_by_lua_block { io.open(ngx.config.prefix() .. '/begun', 'w'):close() local t = os.time() while os.time() < t + 120 do end } }",
    );
    let mut server = start_in(&directory, env!("CARGO_BIN_EXE_weir"), &[]);
    wait_for("the script", || directory.path().join("begun").exists().then_some(()));
    kill(server.0.id(), "TERM");
    let status = wait_for("its end", || server.ended());
    let said = directory.read("stderr");
    assert!(
        !status.success() && said.contains("did not start: signal 15 came before it was ready"),
        "{said}"
    );
}

/// A network of its own, where port 80 is free; `None` where the system does not allow that.
fn own_network() -> Option<()> {
    require_program("unshare")?;
    let allowed = Command::new("unshare").args(["-n", "true"]).stderr(Stdio::null()).status();
    if is_root() && allowed.is_ok_and(|status| status.success()) {
        return Some(());
    }
    weir_test::skip("only root can have a network of its own");
    None
}

/// What root has started is reloaded as root's, though the process that serves is another user by then.
#[test]
fn a_server_without_listen_is_reloaded() {
    let Some(()) = own_network() else { return };
    for master in ["on", "off"] {
        let directory = TempDir::new();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let groups = fs::read_to_string("/etc/group").expect("Linux has it");
        let group = if groups.contains("\nnobody:") { "nobody" } else { "nogroup" };
        let conf = |word: &str| {
            format!(
                "daemon off; master_process {master}; user nobody {group}; pid nginx.pid; error_log error.log; events {{ }}
                 http {{ access_log off; server {{ return 200 {word}; }} server {{ listen unix:{}/s.sock; return 200 {word}; }} }}",
                directory.path().display()
            )
        };
        directory.write("nginx.conf", conf("v0"));
        let _server = start_in(&directory, "unshare", &["-n", env!("CARGO_BIN_EXE_weir")]);
        wait_for("its pid file", || directory.path().join("nginx.pid.status").exists().then_some(()));
        let socket = directory.path().join("s.sock");
        assert_eq!(Client::connect_unix(&socket).get("/").text(), "v0");
        directory.write("nginx.conf", conf("v1"));
        let mut reload = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output =
            reload.arg("-p").arg(directory.path()).args(["-c", "nginx.conf", "-s", "reload"]).output();
        let output = output.expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &directory.read("error.log");
        assert!(output.status.success(), "master_process {master}: {said}");
        wait_for("v1", || (Client::connect_unix(&socket).get("/").text() == "v1").then_some(()));
    }
}

/// A name in `listen` is looked up once: by the process that opens the socket.
#[test]
fn a_name_to_listen_on_is_reloaded() {
    let conf = |word: &str| answering(word).replace("127.0.0.1:", "localhost:");
    let mut server = Server::start(&conf("v0"));
    server.reload(&conf("v1"));
    wait_for("v1", || (server.get("/").text() == "v1").then_some(()));
}

both_drivers! {
    /// A server that was killed leaves the file of its socket; nothing listens on it.
    fn a_socket_that_a_killed_server_left_is_no_obstacle(driver) {
        for master in ["on", "off"] {
            let builder = Server::builder(&format!(
                "master_process {master}; http {{ server {{ listen unix:%%DIR%%/s.sock; return 200 v; }} }}"
            ));
            let path = builder.dir().join("s.sock");
            drop(UnixListener::bind(&path).expect("ours"));
            assert!(path.exists(), "nobody removes it");
            let _server = builder.start();
            assert_eq!(Client::connect_unix(&path).get("/").text(), "v", "master_process {master}");
        }
    }

    /// Anything else of that name stays.
    fn a_socket_in_use_and_a_file_stay(driver) {
        let directory = TempDir::new();
        let (socket, file) = (directory.path().join("s.sock"), directory.path().join("file"));
        let _listener = UnixListener::bind(&socket).expect("ours");
        fs::write(&file, "precious").expect("ours");
        for path in [&socket, &file] {
            let conf = format!("http {{ server {{ listen unix:{}; return 200 v; }} }}", path.display());
            let exit = Server::builder(&conf).try_start().expect_err("the name is taken");
            assert!(exit.stderr.contains("(98: Address already in use)"), "{exit}");
        }
        assert!(UnixStream::connect(&socket).is_ok(), "it is still listened on");
        assert_eq!(fs::read_to_string(&file).expect("it is still there"), "precious");
    }
}

/// `-e stderr`, as in nginx, is no file of that name.
#[test]
fn the_log_of_e_may_be_standard_error() {
    let directory = TempDir::new();
    directory.write(
        "nginx.conf",
        "pid nginx.pid; events { } http { access_log off; init_by_lua_block { error('boom') } nothing; }",
    );
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("-p").arg(directory.path()).args(["-c", "nginx.conf", "-e", "stderr"]).args(arguments);
        let output = command.current_dir(directory.path()).output().expect("the program runs");
        assert!(!output.status.success());
        assert!(!directory.path().join("stderr").exists(), "no file is made");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for arguments in [&["-t"][..], &["-g", "daemon off;"]] {
        let said = run(arguments);
        assert_eq!(said.matches("unknown directive \"nothing\"").count(), 1, "{said}");
    }
    let text = directory.read("nginx.conf").replace("nothing;", "");
    directory.write("nginx.conf", text);
    let said = run(&["-g", "daemon off;"]);
    assert!(said.contains("boom") && !directory.path().join("logs").exists(), "{said}");
}
