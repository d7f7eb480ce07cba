//! `limit_req` and `limit_conn`, from requests to statuses, headers and log lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use weir_engine::ModuleDef;
use weir_engine::conf::Configuration;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Headers, LimitConn, LimitReq, Rewrite, Static};
use weir_server::{Server, ServerOptions};
use weir_test::{Client, Response, TempDir, wait_for};

static MODULES: [ModuleDef; CORE_MODULES.len() + 5] = with_core(&[
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<LimitReq>(),
    ModuleDef::of::<LimitConn>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Static>(),
]);

struct Site {
    directory: TempDir,
    address: SocketAddr,
    server: Server,
}

impl Site {
    fn get(&self, path: &str, fields: &str) -> Response {
        Client::connect(self.address)
            .request(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"))
    }

    fn head(&self, path: &str) -> Response {
        let mut client = Client::connect(self.address);
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        client.response_to_head()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.directory.path().join(name), content).expect("writable");
    }

    /// `inside` in the server, after [`ZONES`]; `$limit_req_status` is the field `X-Req`.
    fn text(directory: &TempDir, address: SocketAddr, zones: &str, inside: &str) -> String {
        let root = directory.path().display();
        format!(
            "error_log {root}/error.log info; worker_processes 2; events {{ }} http {{ {zones}
            add_header X-Req $limit_req_status always; add_header X-Conn $limit_conn_status always;
            server {{ listen {address}; root {root}; {inside} }} }}"
        )
    }
}

fn load(text: &str) -> Arc<Configuration> {
    Arc::new(weir_engine::conf::test::load(text, &MODULES).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Statuses and `$limit_req_status` of this many requests.
fn answers(site: &Site, path: &str, count: usize) -> Vec<(u16, String)> {
    let answer = |_| {
        let response = site.get(path, "");
        (response.status, response.field("X-Req").unwrap_or("-").to_owned())
    };
    (0..count).map(answer).collect()
}

fn log(site: &Site, what: &str) -> String {
    let path = site.directory.path().join("error.log");
    wait_for(&format!("{what:?} in the log"), || {
        let text = std::fs::read_to_string(&path).ok()?;
        text.lines().find(|line| line.contains(what)).map(str::to_owned)
    })
}

const ZONES: &str = "limit_req_zone $uri zone=slow:1m rate=1r/m; limit_req_zone $uri zone=fast:1m rate=10r/s;
    limit_req_zone $http_x zone=by_x:1m rate=1r/m; limit_req_zone $scheme zone=all:1m rate=1r/m;
    limit_conn_zone $uri zone=conn:1m;";

fn site(inside: &str) -> Site {
    let directory = TempDir::new();
    let address = SocketAddr::from(([127, 0, 0, 1], weir_test::free_port()));
    let configuration = load(&Site::text(&directory, address, ZONES, inside));
    let server = Server::start(configuration, ServerOptions::default()).expect("starts");
    Site { directory, address, server }
}

#[test]
fn requests_above_the_rate_are_refused() {
    let site = site(
        "location /one { limit_req zone=slow; }
        location /two { limit_req zone=slow burst=1 nodelay; limit_req_status 429; limit_req_log_level warn; }
        location /dry { limit_req zone=slow; limit_req_dry_run on; }
        location /none { limit_req zone=by_x; }",
    );
    for name in ["one", "two", "dry", "none"] {
        site.write(name, "x");
    }
    let expect = |path, expected: &[(u16, &str)]| {
        let answers = answers(&site, path, expected.len());
        let answers: Vec<_> = answers.iter().map(|(status, text)| (*status, text.as_str())).collect();
        assert_eq!(answers, expected, "{path}");
    };
    expect("/one", &[(200, "PASSED"), (503, "REJECTED"), (503, "REJECTED")]);
    expect("/two", &[(200, "PASSED"), (200, "PASSED"), (429, "REJECTED")]);
    expect("/dry", &[(200, "PASSED"), (200, "REJECTED_DRY_RUN")]);
    expect("/none", &[(200, "-"), (200, "-")]);
    let line = log(&site, "limiting requests, excess: ");
    assert!(line.contains("[error]") && line.contains(" by zone \"slow\", client: 127.0.0.1"), "{line}");
    assert!(log(&site, "limiting requests, dry run, excess: ").contains("/dry"));
    assert!(log(&site, "GET /two").contains("[warn]"));
}

#[test]
fn requests_within_the_burst_wait() {
    let site = site("location / { limit_req zone=fast burst=5; }");
    site.write("f", "x");
    // On a busy machine a tenth of a second may pass between two requests, and then none waits.
    wait_for("two of three that wait for a tenth of a second", || {
        let begin = Instant::now();
        let answers = answers(&site, "/f", 3);
        let delayed = answers[1..].iter().all(|answer| *answer == (200, "DELAYED".to_owned()));
        (delayed && begin.elapsed().as_millis() >= 100).then_some(())
    });
    let line = log(&site, "delaying request, excess: ");
    assert!(line.contains("[warn]") && line.contains(", by zone \"fast\""), "{line}");
}

#[test]
fn every_zone_must_let_a_request_pass() {
    let site =
        site("location / { limit_req zone=by_x burst=1 nodelay; limit_req zone=all burst=2 nodelay; }");
    site.write("f", "x");
    let status = |x: &str| site.get("/f", &format!("X: {x}\r\n")).status;
    assert_eq!([status("a"), status("a")], [200, 200]);
    // Refused by the first zone: the second one does not count it.
    assert_eq!(status("a"), 503);
    assert_eq!([status("b"), status("c")], [200, 503]);
    assert!(log(&site, "by zone \"all\"").contains("limiting requests"));
}

#[test]
fn a_request_is_limited_once_wherever_it_goes() {
    let site = site("limit_req zone=slow burst=1 nodelay; error_page 404 /other;");
    site.write("other", "x");
    assert_eq!(answers(&site, "/gone", 1), [(404, "PASSED".to_owned())]);
    assert_eq!(answers(&site, "/other", 2), [(200, "PASSED".to_owned()), (200, "PASSED".to_owned())]);
}

#[test]
fn requests_at_a_time() {
    let site = site(
        "location /one { limit_conn conn 1; }
        location /dry { limit_conn conn 1; limit_conn_dry_run on; limit_conn_log_level notice; }",
    );
    // More than sockets take: the request lasts until its client goes.
    for name in ["one", "dry"] {
        let file = std::fs::File::create(site.directory.path().join(name)).expect("writable");
        file.set_len(64 << 20).expect("a file with a hole");
    }
    let begin = |path: &str| {
        let mut client = Client::connect(site.address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let head = client.response_to_head();
        assert_eq!((head.status, head.field("X-Conn")), (200, Some("PASSED")));
        client
    };
    let probe = |path: &str| {
        let head = site.head(path);
        (head.status, head.field("X-Conn").map(str::to_owned))
    };
    let first = begin("/one");
    assert_eq!(probe("/one"), (503, Some("REJECTED".to_owned())));
    assert!(log(&site, "limiting connections by zone \"conn\"").contains("[error]"));
    drop(first);
    wait_for("the place", || (probe("/one").0 == 200).then_some(()));

    let first = begin("/dry");
    assert_eq!(probe("/dry"), (200, Some("REJECTED_DRY_RUN".to_owned())));
    assert!(log(&site, "limiting connections, dry run, by zone \"conn\"").contains("[notice]"));
    drop(first);
}

#[test]
fn zones_live_through_reloads() {
    let site = site("location / { limit_req zone=slow; }");
    site.write("f", "x");
    assert_eq!(answers(&site, "/f", 2).iter().map(|a| a.0).collect::<Vec<_>>(), [200, 503]);
    let load = |zones: &str| {
        let inside = "location / { limit_req zone=slow; limit_req_status 429; }";
        load(&Site::text(&site.directory, site.address, zones, inside))
    };
    let zones = |key: &str, size: &str| {
        format!("limit_req_zone {key} zone=slow:{size} rate=1r/m; limit_conn_zone $uri zone=conn:1m;")
    };
    site.server.reload(load(ZONES)).expect("the same zones");
    assert_eq!(site.get("/f", "").status, 429);
    let error = site.server.reload(load(&zones("$args", "1m"))).unwrap_err();
    assert_eq!(
        error.0,
        "limit_req_zone \"slow\" uses the \"$args\" key while previously it used the \"$uri\" key"
    );
    site.server.reload(load(&zones("$uri", "2m"))).expect("another size");
    assert_eq!(site.get("/f", "").status, 200);
}
