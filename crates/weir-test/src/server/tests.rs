//! Tests of the harness itself, on a real nginx where there is one (it needs `daemon off` and `master_process off`
//! as Weir does, and has no io_uring).

use std::net::TcpListener;

use super::*;

const HELLO: &str = "http {\n server {\n listen 127.0.0.1:%%PORT%%;\n location / { root html; }\n \
                     location = /hi { return 200 hello; } } }";

#[test]
fn a_server_is_started_asked_and_stopped() {
    let Some(builder) = nginx(HELLO) else { return };
    let mut server = builder.file("html/a.txt", "file\n").start();
    let response = server.get("/hi");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    assert_eq!(server.get("/a.txt").text(), "file\n");
    assert_eq!(server.raw("GET /hi\r\n"), b"hello", "HTTP/0.9");
    assert!(server.open_files() > 3 && server.resident_bytes() > 100_000);
    let lines = server.access_log_lines(3);
    assert!(lines[0].contains("\"GET /hi HTTP/1.1\" 200 5"), "{lines:?}");
    assert!(server.quit().status.success());
}

#[test]
fn a_connection_is_kept_and_a_head_has_no_body() {
    let Some(builder) = nginx(HELLO) else { return };
    let server = builder.start();
    let mut client = server.client();
    assert_eq!(client.get("/hi").text(), "hello");
    client.send("GET /h").send("i HTTP/1.1\r\nHost: a\r\n").send("\r\n");
    assert_eq!(client.response().text(), "hello");
    let head = client.request("HEAD /hi HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.field("content-length"), head.body.len()), (Some("5"), 0));
    client.half_close().expect_close();
}

#[test]
fn a_client_aborts_and_quit_still_ends_the_server() {
    let Some(builder) = nginx(HELLO) else { return };
    let mut server = builder.start();
    let mut client = server.client();
    client.send("GET /hi HTTP/1.1\r\n");
    client.abort();
    // Whether it logs that depends on what it saw first, the bytes or the reset.
    assert_eq!(server.get("/hi").text(), "hello");
    assert!(server.quit().status.success());
}

#[test]
fn a_reload_keeps_directory_and_ports() {
    // nginx reloads only as master.
    let text = |answer: &str| {
        format!("master_process on; http {{ server {{ listen 127.0.0.1:%%PORT%%; return 200 {answer}; }} }}")
    };
    let Some(builder) = nginx(&text("one")) else { return };
    let mut server = builder.start();
    assert_eq!(server.get("/").text(), "one");
    server.reload(&text("two"));
    wait_for("new configuration", || (server.get("/").text() == "two").then_some(()));
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() {
    let Some(builder) = nginx("http {\n  no_such_thing 1;\n}") else { return };
    let exit = builder.try_start().expect_err("unknown directive");
    assert!(!exit.status.success());
    assert!(exit.stderr.contains("unknown directive \"no_such_thing\""), "{exit}");
    assert!(exit.stderr.contains("nginx.conf:2"), "{exit}");
}

#[test]
fn a_configuration_is_checked_without_starting() {
    let Some(builder) = nginx(HELLO) else { return };
    let exit = builder.run(&["-t"]);
    assert!(exit.status.success() && exit.stderr.contains("syntax is ok"), "{exit}");
}

#[test]
fn a_port_that_is_not_ours_is_no_reason_to_try_again() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
    let port = taken.local_addr().expect("bound").port();
    let Some(builder) = nginx(&format!("http {{ server {{ listen 127.0.0.1:{port}; }} }}")) else { return };
    let exit = builder.try_start().expect_err("the port is taken");
    assert!(exit.stderr.contains("(98: Address already in use)"), "{exit}");
    assert!(
        !exit.lost_a_port(&[]) && exit.lost_a_port(&[port]) || !exit.stderr.contains(&format!(":{port} "))
    );
}

#[test]
fn an_alert_fails_the_test_unless_allowed() {
    for allowed in [false, true] {
        let Some(builder) = nginx(HELLO) else { return };
        let builder = if allowed { builder.allow("made up") } else { builder };
        let server = builder.start();
        let log = server.dir().read("error.log") + "2026/11/21 00:00:00 [alert] 1#1: made up\n";
        server.dir().write("error.log", log);
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server)));
        let message = dropped.err().and_then(|panic| panic.downcast::<String>().ok());
        assert_eq!(message.is_some_and(|message| message.contains("made up")), !allowed);
    }
}

#[test]
fn a_killed_server_is_seen_as_exited() {
    let Some(builder) = nginx(HELLO) else { return };
    let mut server = builder.start();
    server.signal(ServerSignal::Kill);
    assert!(!server.wait_exit().status.success());
}
