//! Readiness notification.

use std::os::unix::net::UnixDatagram;

use weir_test::{Server, ServerSignal};

use super::*;

/// The next message that has a line `wanted`.
#[track_caller]
fn message(socket: &UnixDatagram, wanted: &str) -> String {
    let mut buffer = [0; 1024];
    loop {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {wanted:?}: {error}"));
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.lines().any(|line| line == wanted) {
            return text;
        }
    }
}

#[test]
fn systemd_is_told_how_it_goes() {
    for master in ["on", "off"] {
        let conf = answering("v0").replace("master_process on", &format!("master_process {master}"));
        let builder = Server::builder(&conf);
        let path = builder.dir().join("notify");
        let socket = UnixDatagram::bind(&path).expect("ours");
        socket.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let mut server = builder.env("NOTIFY_SOCKET", &path.to_string_lossy()).start();
        let pid = server.pid();
        message(&socket, &format!("MAINPID={pid}")).lines().find(|line| *line == "READY=1").expect("ready");
        server.signal(ServerSignal::Hup);
        let text = message(&socket, "RELOADING=1");
        let stamp = text.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(stamp.and_then(|stamp| stamp.parse::<u64>().ok()).is_some(), "{text}");
        message(&socket, "READY=1");
        server.dir().write("nginx.conf", "nonsense;");
        server.signal(ServerSignal::Hup);
        message(&socket, "RELOADING=1");
        assert!(message(&socket, "READY=1").contains("failed"));
        server.signal(ServerSignal::Quit);
        message(&socket, "STOPPING=1");
        assert!(server.wait_exit().status.success());
    }
}

/// The process that systemd looks at changes with an upgrade.
#[test]
fn systemd_is_told_of_another_main_process() {
    let builder = Server::builder(&answering("v0"));
    let path = builder.dir().join("notify");
    let socket = UnixDatagram::bind(&path).expect("ours");
    socket.set_read_timeout(Some(DEADLINE)).expect("a socket");
    let mut server = builder.env("NOTIFY_SOCKET", &path.to_string_lossy()).start();
    message(&socket, &format!("MAINPID={}", server.pid()));
    server.signal(ServerSignal::Usr2);
    let new = pid_in(&server.dir().path().join("nginx.pid"), Some(server.pid()));
    message(&socket, &format!("MAINPID={new}"));
    server.signal(ServerSignal::Quit);
    assert_eq!(
        message(&socket, &format!("MAINPID={new}")),
        format!("MAINPID={new}"),
        "the old one says it, too"
    );
    assert!(server.wait_exit().status.success());
    kill(new, "QUIT");
    wait_gone(new);
}
