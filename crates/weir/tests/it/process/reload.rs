//! HUP and `-s reload`.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use weir_test::{Client, Server, ServerSignal, both_drivers, wait_for};

use super::*;
use crate::support::assert_serves;

both_drivers! {
    /// The "Must show": an address and a log that only root may open come with a reload; old connections live.
    fn a_reload_brings_what_only_root_may_open(driver) {
        let conf = |rest: &str| format!(
            "master_process on; http {{ server {{ listen 127.0.0.1:%%PORT_0%%; return 200 a; }} {rest} }}"
        );
        let two = "server { listen 127.0.0.1:%%PORT_1%%; return 200 b; access_log %%DIR%%/secret/b.log; }";
        let builder = Server::builder(&conf("server { listen 127.0.0.1:%%PORT_1%%; return 200 c; }"));
        let secret = builder.dir().join("secret");
        fs::create_dir(&secret).expect("ours");
        fs::write(secret.join("b.log"), "").expect("ours");
        fs::set_permissions(secret.join("b.log"), fs::Permissions::from_mode(0o600)).expect("ours");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("ours");
        let mut server = builder.start();
        let child = server_of(server.pid(), None);
        server.reload(&conf(""));
        wait_for("refused connection", || TcpStream::connect(server.addr(1)).is_err().then_some(()));
        let mut kept = server.client();
        assert_serves(&mut kept, "/", "a");
        server.reload(&conf(two));
        wait_for("second address", || TcpStream::connect(server.addr(1)).is_ok().then_some(()));
        let mut other = Client::connect(server.addr(1));
        assert_serves(&mut other, "/x", "b");
        assert_serves(&mut kept, "/", "a");
        wait_for("line", || server.dir().read("secret/b.log").contains("GET /x ").then_some(()));
        assert_eq!(server_of(server.pid(), None), child, "the same process");
        let mode = fs::metadata(secret.join("b.log")).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Twenty reloads under load, with other addresses each time and workers that come and go: no request fails.
    fn reloads_under_load_fail_no_request(driver) {
        for reuseport in ["", "reuseport"] {
            let conf = |n: usize| format!(
                "master_process on; worker_processes {}; http {{
                server {{ listen 127.0.0.1:%%PORT_0%% {reuseport}; return 200 v{n}; }}
                server {{ listen 127.0.0.1:%%PORT_{}%%; return 200 o; }} }}",
                1 + n % 3, 1 + n % 2
            );
            let text = conf(0).replace("%%PORT_1%%; return", "%%PORT_1%%; listen 127.0.0.1:%%PORT_2%%; return");
            let mut server = Server::start(&text);
            let failed = under_load(server.addr(0), |load| {
                for n in 1..=20 {
                    server.reload(&conf(n));
                    let wanted = format!("v{n}");
                    wait_for(&wanted, || (server.get("/").text() == wanted).then_some(()));
                    // All workers have left the address that is wanted again next.
                    let left = server.addr(2 - n % 2);
                    wait_for("end of the other address", || TcpStream::connect(left).is_err().then_some(()));
                    load.wait(5);
                }
            });
            assert_eq!(failed, 0, "{}", server.error_log());
        }
    }

    /// A large configuration is freed aside when its last request has ended, the first one, too, which came from the master.
    fn a_large_configuration_is_freed_when_nothing_uses_it(driver) {
        let idle: String = (0..1100).map(|n| format!("server {{ listen 127.0.0.1:%%PORT%%; server_name s{n}; }}")).collect();
        let conf = |word: &str| format!(
            "master_process on; http {{ server {{ listen 127.0.0.1:%%PORT%% default_server; return 200 {word};
            location /held {{ proxy_pass http://127.0.0.1:1; }} }} {idle} }}"
        );
        let mut server = Server::start(&conf("v0"));
        let pid = server_of(server.pid(), None);
        for n in 1..=3 {
            let mut held = TcpStream::connect(server.addr(0)).expect("listens");
            let head = "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
            held.write_all(head.as_bytes()).expect("open");
            held.read_exact(&mut [0; "HTTP/1.1 100 Continue".len()]).expect("the body is waited for");
            server.reload(&conf(&format!("v{n}")));
            wait_for("next configuration", || (server.get("/").text() == format!("v{n}")).then_some(()));
            wait_for("thread that waits", || has_thread(pid, "weir retire").then_some(()));
            drop(held);
            wait_for("end of the thread", || (!has_thread(pid, "weir retire")).then_some(()));
        }
        assert_eq!(server_of(server.pid(), None), pid, "the same process");
    }
}

/// What is wrong is found before or after the signal; either way it is said, and nothing changes.
#[test]
fn a_reload_tells_how_it_went() {
    let mut server = Server::start(&answering("v0"));
    let write = |server: &Server, text: &str| server.dir().write("nginx.conf", text);
    let good = server.dir().read("nginx.conf");
    let said = |server: &Server| {
        let output = weir(server, &["-s", "reload"]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // The outcome is waited for: the first request after it sees the new one.
    write(&server, &good.replace("v0", "v1"));
    assert_eq!(said(&server), (true, String::new()));
    assert_eq!(server.get("/").text(), "v1");
    // Found by the command itself.
    write(&server, &good.replace("return", "retrun"));
    let (ok, text) = said(&server);
    assert!(!ok && text.contains("[emerg] unknown directive \"retrun\""), "{text}");
    // The same by a signal: the log says it.
    server.signal(ServerSignal::Hup);
    let line = server.error_log_line("unknown directive \"retrun\"");
    assert!(line.contains("[emerg]"), "{line}");
    // Found by the server only: another process has the address.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback binds");
    let port = taken.local_addr().expect("bound").port();
    let more = format!("server {{ listen 127.0.0.1:{port}; }} server {{");
    write(&server, &good.replacen("server {", &more, 1));
    let (ok, text) = said(&server);
    let wanted = format!("bind() to 127.0.0.1:{port} failed (98: Address already in use)");
    assert!(
        !ok && text.contains(&format!("[emerg] {wanted}")) && text.contains("the configuration before stays"),
        "{text}"
    );
    assert!(server.error_log_line(&wanted).contains("[emerg]"));
    assert_eq!(server.get("/").text(), "v1");
    write(&server, &good.replace("v0", "v2"));
    assert_eq!(said(&server), (true, String::new()));
    assert_eq!(server.get("/").text(), "v2");
}

/// The server gets the texts that the master has read: it may not read them itself.
#[test]
fn included_files_may_be_roots_alone() {
    let conf = "master_process on; http { include conf.d/*.conf; }";
    let one = "server { listen 127.0.0.1:PORT; include words; }";
    let port = weir_test::free_port();
    let builder = Server::builder(conf)
        .file("conf.d/one.conf", one.replace("PORT", &port.to_string()))
        .file("words", "return 200 v0;");
    let close =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    close(&builder.dir().join("conf.d"), 0o700);
    close(&builder.dir().join("words"), 0o600);
    let mut server = builder.start();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let text = || Client::connect(address).get("/").text();
    assert_eq!(text(), "v0");
    server.dir().write("conf.d/one.conf", one.replace("PORT", &port.to_string()).replace("words", "other"));
    let other = server.dir().write("other", "return 200 v1;");
    close(&other, 0o600);
    server.signal(ServerSignal::Hup);
    wait_for("v1", || (text() == "v1").then_some(()));
}

/// What a process can't change of itself takes another process; requests do not notice.
#[test]
fn another_user_takes_another_process() {
    if !is_root() {
        return weir_test::skip("only root can change users");
    }
    let mut server = Server::start(&format!("user root; {}", answering("root")));
    let first = server_of(server.pid(), None);
    // Its name depends on the distribution.
    let groups = fs::read_to_string("/etc/group").expect("Linux has it");
    let group = if groups.contains("\nnobody:") { "nobody" } else { "nogroup" };
    let failed = under_load(server.addr(0), |load| {
        load.wait(50);
        server.reload(&format!("user nobody {group}; {}", answering("nobody")));
        let _ = server.error_log_line(&format!("worker process {first} exited with code 0"));
        load.wait(50);
    });
    assert_eq!(failed, 0);
    let second = server_of(server.pid(), Some(first));
    assert!(status(second).contains("\nUid:\t65534\t"), "{}", status(second));
    assert_eq!(server.get("/").text(), "nobody");
}

/// The pid file moves with its line; a unix socket's file goes with its line, and with the server.
#[test]
fn files_follow_the_configuration() {
    let conf = |pid: &str, sockets: &str| {
        format!(
            "pid %%DIR%%/{pid}; master_process on; http {{ server {{ listen 127.0.0.1:%%PORT%%; {sockets} return 200 {pid}; }} }}"
        )
    };
    let both = "listen unix:%%DIR%%/a.sock; listen unix:%%DIR%%/b.sock;";
    let mut server = Server::start(&conf("nginx.pid", both));
    let exists = |server: &Server, name: &str| server.dir().path().join(name).exists();
    assert!(exists(&server, "a.sock") && exists(&server, "b.sock"));
    wait_for("control socket", || exists(&server, "nginx.pid.sock").then_some(()));
    server.reload(&conf("other.pid", "listen unix:%%DIR%%/a.sock;"));
    wait_for("other pid file", || exists(&server, "other.pid").then_some(()));
    wait_for("end of the socket", || (!exists(&server, "b.sock")).then_some(()));
    wait_for("end of the old pid file", || (!exists(&server, "nginx.pid")).then_some(()));
    wait_for("the other control socket", || exists(&server, "other.pid.sock").then_some(()));
    assert!(exists(&server, "a.sock"));
    assert_eq!(Client::connect_unix(&server.dir().path().join("a.sock")).get("/").text(), "other.pid");
    assert!(server.quit().status.success());
    for name in ["a.sock", "other.pid", "other.pid.sock", "other.pid.status"] {
        assert!(!exists(&server, name), "{name}");
    }
}

/// When the process that is to take over can't start, the one before goes on as if nothing had been asked.
#[test]
fn a_new_process_that_cannot_start_changes_nothing() {
    let mut server = Server::builder(&answering("v0")).allow("RLIMIT_NOFILE").start();
    let child = server_of(server.pid(), None);
    let good = server.dir().read("nginx.conf");
    // Too few for the descriptors of a worker.
    server.dir().write("nginx.conf", format!("worker_rlimit_nofile 9; {}", good.replace("v0", "v1")));
    let failed = under_load(server.addr(0), |load| {
        load.wait(20);
        let output = weir(&server, &["-s", "reload"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("exited with code 2 before it was ready"),
            "{said}"
        );
        load.wait(20);
    });
    assert_eq!((failed, server.get("/").text().as_str()), (0, "v0"));
    assert_eq!(server_of(server.pid(), None), child);
    server.dir().write("nginx.conf", good.replace("v0", "v2"));
    assert!(weir(&server, &["-s", "reload"]).status.success());
    assert_eq!(server.get("/").text(), "v2");
    // Several at once: each gets its response.
    server.dir().write("nginx.conf", good.replace("v0", "v3"));
    support::together(4, |_| assert!(weir(&server, &["-s", "reload"]).status.success()));
    assert_eq!(server.get("/").text(), "v3");
    server.signal(ServerSignal::Hup);
    assert!(server.quit().status.success());
}

/// Whether a process has a thread of this name.
fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default())
        .any(|comm| comm.trim() == name)
}
