//! The command line, and starting in the background.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use weir_test::{Server, TempDir, free_port};

use super::*;

/// Runs `weir` in a directory of its own on `conf`.
fn run(directory: &TempDir, conf: &str, arguments: &[&str]) -> (bool, String) {
    directory.write("nginx.conf", conf);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("-p").arg(directory.path()).args(["-c", "nginx.conf"]).args(arguments);
    let output = command.stdout(Stdio::null()).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.replace(&format!("{}/", directory.path().display()), ""))
}

/// An address that is in use is no mistake of the file; one that this machine has not is.
#[test]
fn a_test_tries_to_bind() {
    let directory = TempDir::new();
    let conf = |listen: &str| {
        format!("pid nginx.pid; events {{ }} http {{ access_log off; server {{ listen {listen}; }} }}")
    };
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
    let in_use = taken.local_addr().expect("bound").to_string();
    assert!(run(&directory, &conf(&in_use), &["-t"]).0);
    let (ok, said) = run(&directory, &conf("192.0.2.1:8000"), &["-t"]);
    let wanted = "bind() to 192.0.2.1:8000 failed (99: Cannot assign requested address)";
    assert!(!ok && said.contains(wanted), "{said}");
    assert!(run(&directory, &conf("unix:a.sock"), &["-t"]).0);
    assert!(!directory.path().join("a.sock").exists() && !directory.path().join("nginx.pid").exists());
    let (ok, said) = run(&directory, &conf("127.0.0.1:0").replace("nginx.pid", "a/nginx.pid"), &["-t"]);
    let wanted = "open() \"a/nginx.pid\" failed (2: No such file or directory)";
    assert!(!ok && said.contains(wanted), "{said}");
}

#[test]
fn signals_without_a_server_are_refused_in_nginx_words() {
    let directory = TempDir::new();
    let conf = "pid nginx.pid; events { }";
    for signal in ["stop", "quit", "reopen", "reload"] {
        let (ok, said) = run(&directory, conf, &["-s", signal]);
        assert!(
            !ok && said == "weir: [error] open() \"nginx.pid\" failed (2: No such file or directory)\n",
            "{said}"
        );
    }
    directory.write("nginx.pid", "word\n");
    let (ok, said) = run(&directory, conf, &["-s", "stop"]);
    assert!(!ok && said == "weir: [error] invalid PID number \"word\" in \"nginx.pid\"\n", "{said}");
    directory.write("nginx.pid", format!("{}\n", i32::MAX));
    let (ok, said) = run(&directory, conf, &["-s", "reload"]);
    assert!(
        !ok && said == format!("weir: [alert] kill({}, 1) failed (3: No such process)\n", i32::MAX),
        "{said}"
    );
}

/// As in nginx: only the server opens the logs that the configuration names.
#[test]
fn signals_make_no_logs() {
    let directory = TempDir::new();
    let conf = "pid nginx.pid; events { } http { access_log access.log; server { access_log deep/access.log;
        error_log deep/error.log; } }";
    let (ok, said) = run(&directory, conf, &["-s", "reload"]);
    assert!(
        !ok && said == "weir: [error] open() \"nginx.pid\" failed (2: No such file or directory)\n",
        "{said}"
    );
    assert!(!directory.path().join("access.log").exists());
}

/// What tools parse of `-V`.
#[test]
fn the_version_has_nginx_form() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("-V").output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("nginx version: nginx/1."), "{text}");
    assert!(lines[1].starts_with("built by rustc 1."), "{text}");
    let arguments = lines.iter().find_map(|line| line.strip_prefix("configure arguments: ")).expect("a line");
    assert!(arguments.split(' ').all(|argument| argument.starts_with("--")), "{arguments}");
    assert!(arguments.split(' ').any(|argument| argument == "--with-http_realip_module"), "{arguments}");
}

/// `daemon on`: the command comes back when connections are accepted, and the log gets what standard error got.
#[test]
fn a_daemon_serves_when_the_command_returns() {
    let directory = TempDir::new();
    let port = free_port();
    let conf = format!(
        "daemon on; pid nginx.pid; error_log error.log info; events {{ }} http {{ access_log off;
        server {{ listen 127.0.0.1:{port}; return 200 v; }} }}"
    );
    let (ok, said) = run(&directory, &conf, &[]);
    assert!(ok && said.is_empty(), "{said}");
    ask(SocketAddr::from(([127, 0, 0, 1], port))).expect("it serves");
    let master = pid_in(&directory.path().join("nginx.pid"), None);
    let child = server_of(master, None);
    let (ok, said) = run(&directory, &conf, &[]);
    let wanted = format!("bind() to 127.0.0.1:{port} failed (98: Address already in use)");
    assert!(!ok && said.contains(&wanted) && said.contains("still could not bind()"), "{said}");
    assert!(said.contains("\"ss -ltnp\" names it"), "{said}");
    assert_eq!(run(&directory, &conf, &["-s", "quit"]), (true, String::new()));
    wait_gone(master);
    wait_gone(child);
    assert!(!directory.path().join("nginx.pid").exists());
}

/// A listening socket by systemd's way: no privilege is needed for its port.
#[test]
fn sockets_are_taken_over_from_the_environment() {
    for variables in ["LISTEN_PID=$$ LISTEN_FDS=1", "NGINX='3;'"] {
        let directory = TempDir::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let address = listener.local_addr().expect("bound");
        directory.write(
            "nginx.conf",
            format!(
                "daemon off; pid nginx.pid; error_log error.log info; events {{ }} http {{ access_log off;
            server {{ listen {address}; return 200 v; }} }}"
            ),
        );
        let script = format!("exec 3<&0 </dev/null; {variables} exec \"$0\" -p \"$1\" -c nginx.conf");
        let mut child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_weir")])
            .arg(directory.path())
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let master = pid_in(&directory.path().join("nginx.pid"), None);
        assert_eq!(master, child.id());
        ask(address).expect("it serves");
        let reported = || directory.read("error.log").contains("using inherited sockets from \"3;\"");
        wait_for("its line", || reported().then_some(()));
        kill(master, "TERM");
        assert!(child.wait().expect("our child").success());
    }
}

/// Without a master everything but what needs one works.
#[test]
fn one_process_reloads_too() {
    let server =
        Server::start("master_process off; http { server { listen 127.0.0.1:%%PORT%%; return 200 v0; } }");
    assert!(title(server.pid()).contains("nginx.conf"), "nginx's title of one process is the command");
    let text = server.dir().read("nginx.conf");
    server.dir().write("nginx.conf", text.replace("v0", "v1"));
    assert!(weir(&server, &["-s", "reload"]).status.success());
    assert_eq!(server.get("/").text(), "v1");
    kill(server.pid(), "USR2");
    let line = server.error_log_line("there is no master process");
    assert!(line.contains("SIGUSR2"), "{line}");
}
