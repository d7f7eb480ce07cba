//! Access logs, from requests to the lines in files.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Log, Rewrite, Static};
use weir_server::{Server, ServerOptions};
use weir_test::{Client, TempDir, wait_for};

static MODULES: [ModuleDef; CORE_MODULES.len() + 3] =
    with_core(&[ModuleDef::of::<Log>(), ModuleDef::of::<Rewrite>(), ModuleDef::of::<Static>()]);

struct Site {
    directory: TempDir,
    address: SocketAddr,
    _server: Server,
}

impl Site {
    /// `http` is in the http block, `server` in its server; `DIR` is the directory.
    fn new(http: &str, server: &str) -> Site {
        let directory = TempDir::new();
        let address = SocketAddr::from(([127, 0, 0, 1], weir_test::free_port()));
        let text = format!(
            "error_log DIR/error.log; worker_processes 2; events {{ }}
            http {{ {http} server {{ listen {address}; root DIR; {server} }} }}"
        );
        let text = text.replace("DIR", &directory.path().display().to_string());
        let configuration =
            weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let server = Server::start(Arc::new(configuration), ServerOptions::default()).expect("starts");
        Site { directory, address, _server: server }
    }

    fn get(&self, path: &str, fields: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
        let mut client = Client::connect(self.address);
        client.request(request);
        // The line is written when the connection ends; another worker's could overtake it before.
        client.expect_close();
    }

    /// The file's lines, once there are `count`.
    fn lines(&self, name: &str, count: usize) -> Vec<String> {
        wait_for(&format!("{count} lines in {name}"), || {
            let path = self.directory.path().join(name);
            let lines: Vec<_> = std::fs::read_to_string(path).ok()?.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
    }
}

#[test]
fn combined_is_byte_for_byte_nginx() {
    let site = Site::new("", "access_log DIR/a.log; location / { return 200 hello; }");
    site.get("/x?y=%22", "Referer: http://from/\r\nUser-Agent: q\"\\\u{e9}\r\nAuthorization: Basic dTpw\r\n");
    let line = site.lines("a.log", 1).remove(0);
    let (before, after) = line.split_once('[').expect("a time");
    let (time, after) = after.split_once(']').expect("a time");
    assert_eq!(before, "127.0.0.1 - u ");
    assert_eq!(after, " \"GET /x?y=%22 HTTP/1.1\" 200 5 \"http://from/\" \"q\\x22\\x5C\\xC3\\xA9\"");
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert!(shape.starts_with("00/") && shape.contains(":00:00:00 ") && shape.len() == 26, "{time}");
}

#[test]
fn formats_conditions_and_several_logs() {
    let site = Site::new(
        "log_format a '$status ' '$body_bytes_sent [$http_x]';
        log_format j escape=json '{\"x\":\"$http_x\",\"t\":$request_time,\"none\":\"$http_none\"}';
        log_format n escape=none '$uri$http_none';
        access_log DIR/all.log a;",
        "location / { return 200 hello; }
        location /off { access_log off; return 204; }
        location /own { access_log DIR/j.log j; access_log DIR/n.log n if=$arg_log; return 204; }",
    );
    site.get("/", "X: a\"b\r\n");
    site.get("/off", "");
    site.get("/own?log=1", "X: a\"b\r\n");
    site.get("/own/2?log=0", "");
    site.get("/own/3", "");
    site.get("/none-such", "");
    assert_eq!(site.lines("all.log", 2), ["200 5 [a\\x22b]", "200 5 [-]"]);
    assert_eq!(site.lines("n.log", 1), ["/own"]);
    let json = site.lines("j.log", 3);
    let time = json[0].strip_prefix("{\"x\":\"a\\\"b\",\"t\":").and_then(|rest| rest.split(',').next());
    assert!(time.is_some_and(|time| time.parse::<f64>().is_ok()), "{}", json[0]);
    assert!(json[1].ends_with(",\"none\":\"\"}"), "{}", json[1]);
}

#[test]
fn every_request_of_a_connection_has_its_line() {
    let site = Site::new(
        "log_format p '$pipe $connection_requests $request_length $status';",
        "access_log DIR/a.log p; location / { return 204; }",
    );
    let mut client = Client::connect(site.address);
    let one = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(one.repeat(3));
    for _ in 0..3 {
        client.response();
    }
    client.send("NONSENSE\r\n\r\n").response();
    let lines = site.lines("a.log", 4);
    let length = one.len();
    assert_eq!(lines[0], format!(". 1 {length} 204"));
    assert_eq!(lines[2], format!("p 3 {length} 204"));
    assert!(lines[3].ends_with(" 400"), "{lines:?}");
}

#[test]
fn paths_with_variables_open_files_where_the_root_is() {
    let site = Site::new(
        "log_format u $uri;",
        "access_log DIR/$arg_n.log u;
        location / { return 204; }
        location /cached { open_log_file_cache max=2 inactive=1m; return 204; }
        location /rootless { root DIR/nothing-here; return 204; }",
    );
    site.get("/rootless?n=none", "");
    for path in ["/1?n=one", "/cached/2?n=one", "/cached/3?n=one", "/cached/4?n=two"] {
        site.get(path, "");
    }
    assert_eq!(site.lines("one.log", 3), ["/1", "/cached/2", "/cached/3"]);
    assert_eq!(site.lines("two.log", 1), ["/cached/4"]);
    assert!(!site.directory.path().join("none.log").exists());
    let errors = site.lines("error.log", 1);
    assert!(
        errors[0].contains("nothing-here\" existence failed (2: No such file or directory), client: "),
        "{errors:?}"
    );
}

#[test]
fn the_end_of_the_server_writes_what_is_buffered() {
    let site =
        Site::new("log_format u $uri;", "access_log DIR/a.log u buffer=64k; location / { return 204; }");
    (0..20).for_each(|n| site.get(&format!("/{n}"), ""));
    let Site { directory, _server: server, .. } = site;
    drop(server);
    let text = directory.read("a.log");
    let mut lines: Vec<u32> = text.lines().filter_map(|line| line.strip_prefix('/')?.parse().ok()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..20).collect::<Vec<_>>());
}
