//! The files of examples/from-openresty/, which docs/guides/openresty-libraries.md shows, do what it says.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_test::{
    Backend, DEADLINE, NameReply, NameServer, Server, both_drivers, free_listener, free_port, wait_for,
};

/// A file of that directory, served; `ports` are the ports in it and those used here.
fn serve(name: &str, ports: &[(u16, u16)]) -> Server {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/from-openresty").join(name);
    let mut text = std::fs::read_to_string(path).expect("an example");
    for (there, here) in ports {
        assert!(text.contains(&format!(":{there}")), "{name} has no port {there}");
        text = text.replace(&format!(":{there}"), &format!(":{here}"));
    }
    let text = text.replace("127.0.0.1:8080;", "127.0.0.1:%%PORT%%; error_log %%DIR%%/error.log info;");
    Server::builder(&text).start()
}

/// Responds to each request with `word` and its path.
fn saying(word: &'static str) -> Backend {
    Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            visit.answer(&format!("{word} {path}"));
        }
    })
}

/// The next line of a log server's client.
fn line(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line in time");
    line.trim_end().to_owned()
}

fn accept(listener: &TcpListener) -> BufReader<impl Read> {
    let (stream, _) = listener.accept().expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    BufReader::new(stream)
}

both_drivers! {
    fn names_outlive_their_name_servers(driver) {
        let backend = saying("api");
        let dead = free_port();
        let dns = NameServer::start(|asked| match &*asked.name {
            "api.example" => NameReply::Addresses(vec![Ipv4Addr::LOCALHOST.into()], 0),
            _ => NameReply::Code(3),
        });
        let server = serve("domain.conf", &[(5301, dead), (5302, dns.address().port()), (8001, backend.port())]);
        wait_for("an address of the name", || (server.get("/x").text() == "api /x").then_some(()));
        assert_eq!(server.get("/addresses?name=nowhere.example").text(), "no addresses: Host not found\n");
        assert!(server.get("/addresses?name=api.example").text().starts_with("127.0.0.1"));
        dns.set(|_| NameReply::Silence);
        wait_for("a stale answer", || (server.get("/addresses?name=api.example").text() == "127.0.0.1 (stale)\n").then_some(()));
        assert_eq!(server.get("/y").text(), "api /y");
    }

    fn servers_are_checked_listed_and_replaced(driver) {
        let (first, second, third) = (saying("first"), saying("second"), saying("third"));
        let store = Backend::start(|visit| {
            while visit.bytes(5).is_some() {
                visit.send("value\n");
            }
        });
        let ports = [(8001, first.port()), (8002, second.port()), (8003, free_port()), (8004, store.port())];
        let server = serve("checkups.conf", &ports);
        assert_eq!(server.get("/x").text(), "first /x");
        wait_for("a value", || (server.get("/store").text() == "value\n").then_some(()));
        let reported = format!("127.0.0.1:{} up\n127.0.0.1:{} up\n", first.port(), second.port());
        wait_for("both are well", || (server.get("/status").text() == reported).then_some(()));
        drop(first);
        wait_for("the first is unhealthy", || server.get("/status").text().contains(" unhealthy\n").then_some(()));
        assert_eq!(server.get("/x").text(), "second /x");
        let list = format!("[\"127.0.0.1:{}\"]", third.port());
        let head = format!("POST /servers HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{list}", list.len());
        assert_eq!(server.client().request(head).text(), "true\n");
        assert_eq!(server.get("/x").text(), "third /x");
    }

    fn a_value_is_looked_up_once(driver) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                count.fetch_add(1, Ordering::SeqCst);
                match head.contains("/none") {
                    true => visit.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
                    false => visit.answer("value"),
                };
            }
        });
        let server = serve("shcache.conf", &[(8001, backend.port())]);
        for _ in 0..3 {
            assert_eq!(server.get("/some").text(), "value");
            assert_eq!(server.get("/none").status, 404);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    fn lines_go_to_log_servers(driver) {
        let (usual, own) = (free_listener(), free_listener());
        let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
        let server = serve("logger-socket.conf", &[(5140, port(&usual)), (5141, port(&own))]);
        assert_eq!(server.get("/x").text(), "done\n");
        assert_eq!(line(&mut accept(&usual)), "127.0.0.1 200 /x");
        assert_eq!(line(&mut accept(&own)), "script: 200 /x");
        let figures = server.get("/figures").text();
        assert!(figures.contains("\"written\":1") && figures.contains("\"dropped\":0"), "{figures}");
    }

    fn a_table_survives_a_redirect(driver) {
        assert_eq!(serve("ctxdump.conf", &[]).get("/t1").text(), "site: unknown\n");
    }
}
