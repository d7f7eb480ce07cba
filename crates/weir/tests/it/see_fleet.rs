//! `weir top --hosts`: several servers added up, by what their admin listeners say.

use std::net::TcpListener;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_http::json::JsonValue;
use weir_test::{Backend, Client, Driver, Server, both_drivers, wait_for};

use crate::support::says as said;

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; admin unix:%%DIR%%/admin.sock;
    admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
    http { server { listen 127.0.0.1:%%PORT_0%%; keepalive_requests 1000000;
        location / { return 200 ok; }
        location = /gone { return 502; }
        location = /proxied { proxy_pass http://127.0.0.1:%%BACKEND%%; } } }";

fn started(driver: Driver, workers: &str, backend: u16) -> Server {
    let conf = CONF.replace("%%WORKERS%%", workers).replace("%%BACKEND%%", &backend.to_string());
    let server = Server::builder(&conf).driver(driver).start();
    wait_for("the admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    server
}

fn asks(server: &Server, path: &str, count: usize) {
    let mut client = server.client();
    for _ in 0..count {
        let _ = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
}

fn top(words: &[&str]) -> Output {
    said::run(&[&["top"], words].concat(), &[] as &[&str])
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The rows of a table as JSON, which the command prints.
fn rows(words: &[&str]) -> Vec<JsonValue> {
    let output = top(&[words, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    JsonValue::parse(&output.stdout).expect("JSON").list().expect("rows").to_vec()
}

fn field(row: &JsonValue, key: &str) -> String {
    match row.field(key) {
        Some(JsonValue::Text(text)) => text.clone(),
        Some(JsonValue::Number(text)) => text.to_string(),
        _ => String::new(),
    }
}

both_drivers! {
    /// As of one server: nobody learns anything from an empty table.
    fn of_idle_servers_all_time_is_shown(driver) {
        let backend = Backend::answering("from afar");
        let server = started(driver, "1", backend.port());
        asks(&server, "/", 3);
        let hosts = format!("127.0.0.1:{}", server.addr(1).port());
        let shown = wait_for("the requests", || {
            let shown = text(&top(&["-d", "50ms", "-b", "--hosts", &hosts]));
            shown.contains("\n/ ").then_some(shown)
        });
        assert!(shown.ends_with("no request ended in the last 50.0 ms: this is all since the server began\n"), "{shown}");
    }

    fn servers_are_added_up(driver) {
        let backend = Backend::answering("from afar");
        let (one, other) = (started(driver, "1", backend.port()), started(driver, "3", backend.port()));
        asks(&one, "/", 30);
        asks(&other, "/", 70);
        asks(&other, "/gone", 10);
        asks(&one, "/proxied", 4);
        let hosts = format!("{},{}", one.addr(1), other.addr(1));
        let all = |view: &str| rows(&[view, "--hosts", &hosts, "-d", "0"]);
        // Counts come a little after responses.
        let routes = wait_for("all requests", || {
            let rows = all("routes");
            let by = rows.iter().find(|row| field(row, "location") == "/")?;
            // All since the start, in requests a second over the longer time.
            field(by, "requests_per_second").parse::<f64>().is_ok_and(|rate| rate > 0.0).then_some(rows)
        });
        let gone = routes.iter().find(|row| field(row, "location") == "= /gone").expect("a row");
        assert_eq!(field(gone, "share_502"), "1.000000", "{gone:?}");
        let hosts_rows = all("hosts");
        let names: Vec<String> = hosts_rows.iter().map(|row| field(row, "host")).collect();
        assert_eq!(names, [one.addr(1).to_string(), other.addr(1).to_string()]);
        let upstreams = all("upstreams");
        assert_eq!(field(&upstreams[0], "peer"), format!("127.0.0.1:{}", backend.port()), "{upstreams:?}");
        // Idle clients have left both: four connections.
        wait_for("the closes", || {
            let rows = all("closes");
            let idle = rows.iter().find(|row| field(row, "reason") == "idle")?;
            (field(idle, "total") == "4").then_some(())
        });
        assert!(all("modules").iter().any(|row| field(row, "module").contains("rewrite")));
    }

    /// Rates of an interval are the sum of both servers'; one that is not there is named, and holds up nobody.
    fn a_server_that_is_missing_is_named_and_the_others_are_shown(driver) {
        let backend = Backend::answering("");
        let server = started(driver, "2", backend.port());
        // It takes connections and never responds.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let silent = silent.local_addr().map(|address| (silent, address)).expect("bound");
        let nobody = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
        // A server that is no Weir.
        let hosts = format!("{},{},{},127.0.0.1:{}", server.addr(1), silent.1, nobody, backend.port());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    asks(&server, "/", 20);
                }
            });
            let table = text(&top(&["routes", "-b", "-d", "300ms", "--hosts", &hosts]));
            done.store(true, Relaxed);
            assert!(table.lines().any(|line| line.starts_with("/ ")), "{table}");
            assert!(table.contains(&format!("{}: does not respond in time", silent.1)), "{table}");
            assert!(table.contains(&format!("{nobody}: does not respond: ")), "{table}");
            assert!(table.contains(&format!("127.0.0.1:{}: what responds is no admin listener", backend.port())), "{table}");
        });
        let none = top(&["routes", "-b", "--hosts", &nobody.to_string()]);
        assert!(!none.status.success() && String::from_utf8_lossy(&none.stderr).contains("does not respond"), "{none:?}");
    }

    fn tokens_and_unix_sockets_are_for_fleets_too(driver) {
        let server = started(driver, "1", 9);
        let token = server.dir().path().join("token");
        std::fs::write(&token, "0123456789abcdef\n").expect("a file");
        let token = token.to_str().expect("a path").to_owned();
        let (locked, unix) = (server.addr(2).to_string(), format!("unix:{}/admin.sock", server.dir().path().display()));
        assert_eq!(rows(&["hosts", "--hosts", &locked, "-d", "0", "--token-file", &token]).len(), 1);
        assert_eq!(rows(&["hosts", "--hosts", &format!("{unix},{locked}"), "-d", "0", "--token-file", &token]).len(), 2);
        let without = top(&["--hosts", &locked, "-b", "-d", "0"]);
        assert!(String::from_utf8_lossy(&without.stderr).contains("--token-file"), "{without:?}");
        let totals = Client::connect(server.addr(2)).request("GET /totals HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(totals.status, 401, "without a token nothing is shown");
    }
}

#[test]
fn mistakes_are_reported() {
    for (words, message) in [
        (&["--hosts", ""][..], "needs the addresses of admin listeners"),
        (&["--hosts", "a/b"], "no address of an admin listener"),
        (&["--hosts", "127.0.0.1:1", "--token-file", "/nonexistent"], "/nonexistent"),
    ] {
        let output = top(words);
        assert!(!output.status.success(), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(message), "{output:?}");
    }
}
