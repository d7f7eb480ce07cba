//! Trees of one and the same request: by nginx's names where the configuration is nginx's, by H2O's where it is H2O's.

use std::ffi::OsStr;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use weir_test::{Backend, Client, Server, TempDir, both_drivers, free_port, wait_for};

use crate::conf_yaml::{Served, start_file};
use crate::support::says;

/// More than the 100 bytes from which H2O compresses.
const LONG: &str = "a line of text, which is there several times and so gets shorter; \
    a line of text, which is there several times and so gets shorter;";

/// The handlers and filters in the tree of a request for `path`, in order: what the location has, and no steps or phases.
fn modules(address: SocketAddr, place: [&OsStr; 4], path: &str) -> Vec<String> {
    let mut trace = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["trace", "--all", "--once", "--match", path])
        .args(place)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: br\r\nConnection: close\r\n\r\n"
    );
    // The question may arrive after some of these.
    wait_for("trace", || {
        Client::connect(address).request(head.as_str());
        trace.try_wait().expect("our child")
    });
    let mut tree = String::new();
    trace.stdout.take().expect("piped").read_to_string(&mut tree).expect("text");
    let rows = tree.lines().filter_map(|line| line.split_once("-> "));
    let name = |(indent, rest): (&str, &str)| {
        let name = rest.split("  ").next().unwrap_or(rest).trim().to_owned();
        (indent.len() > 2 || name == "errordoc" || name == "special_response").then_some(name)
    };
    let own = |name: &String| !["header", "write", "not_modified", "range"].contains(&name.as_str());
    rows.filter_map(name).filter(own).collect()
}

/// Requests, with what their trees say by nginx's names and by H2O's.
const EXPECTED: &[(&str, &[&str], &[&str])] = &[
    (
        "/a.txt",
        &[
            "index",
            "static",
            "throttle_response",
            "edit_headers",
            "profile",
            "gzip",
            "brotli",
            "zstd",
            "brotli",
            "log",
        ],
        &[
            "file.index",
            "file",
            "throttle_response",
            "headers",
            "server_timing",
            "compress gzip",
            "compress br",
            "compress zstd",
            "compress br",
            "access_log",
        ],
    ),
    ("/missing", &["special_response"], &["errordoc"]),
    ("/app/x", &["proxy"], &["proxy"]),
    ("/old/x", &["rewrite", "special_response"], &["redirect", "special_response"]),
    ("/status", &["status_json"], &["status"]),
    ("/old-age/x", &["edit_headers"], &["expires"]),
];

#[track_caller]
fn assert_modules(address: SocketAddr, place: [&OsStr; 4], is_h2o: bool) {
    for (path, nginx, h2o) in EXPECTED {
        let found = modules(address, place, path);
        let (expected, others) = if is_h2o { (h2o, nginx) } else { (nginx, h2o) };
        for name in *expected {
            assert!(found.iter().any(|found| found.ends_with(name)), "{path}: {name} in {found:?}");
        }
        for name in others.iter().filter(|name| !expected.contains(name)) {
            assert!(!found.iter().any(|found| found == name), "{path}: {name} in {found:?}");
        }
    }
}

const NGINX: &str =
    "worker_processes %WORKERS%; events { } http { gzip on; gzip_types text/plain; brotli on; zstd on;
    brotli_types text/plain; zstd_types text/plain; server_timing on; throttle_response on;
    server { listen 127.0.0.1:%%PORT%% reuseport; types { text/plain txt; } access_log access.log;
    location / { root site; index index.html; error_page 404 /gone.txt; edit_header add 'X-A: b'; }
    location /app/ { proxy_pass http://127.0.0.1:%BACKEND%; }
    location /old/ { return 301 http://new/; }
    location /old-age/ { alias site/; edit_header merge 'Cache-Control: max-age=60'; }
    location = /status { status_json; } } }";

both_drivers! {
    fn an_nginx_conf_has_nginx_s_names(driver) {
        for workers in ["1", "2"] {
            let backend = Backend::answering("from behind");
            let conf = NGINX.replace("%WORKERS%", workers).replace("%BACKEND%", &backend.port().to_string());
            let server = Server::builder(&conf).file("site/a.txt", LONG).file("site/gone.txt", "gone").start();
            says::ready(&server);
            assert_modules(server.addr(0), says::of(&server), false);
        }
    }
}

fn h2o(directory: &str, port: u16, backend: u16, workers: u16) -> String {
    format!(
        "num-threads: {workers}\nlisten: {{ port: {port}, host: 127.0.0.1 }}\npid-file: {directory}/h2o.pid\n\
         error-log: {directory}/error.log\naccess-log: {directory}/access.log\ncompress: ON\nserver-timing: ON\n\
         throttle-response: ON\nhosts:\n  example.com:\n    paths:\n      /:\n        file.dir: {directory}/site\n        \
         header.add: 'X-A: b'\n        error-doc: {{ status: 404, url: /gone.txt }}\n      /app:\n        \
         proxy.reverse.url: http://127.0.0.1:{backend}\n      /old:\n        redirect: {{ status: 301, url: http://new/ }}\n      \
         /old-age:\n        file.dir: {directory}/site\n        expires: 1 minute\n      /status:\n        status: ON\n"
    )
}

/// A server of a file of H2O, in its directory.
fn started(dir: &TempDir, backend: u16, workers: u16) -> Served {
    let (directory, port) = (dir.path().display().to_string(), free_port());
    dir.write("h2o.conf", h2o(&directory, port, backend, workers));
    dir.write("site/a.txt", LONG);
    dir.write("site/gone.txt", "gone");
    let served = start_file(dir, "h2o.conf", port, "daemon off; master_process off;");
    wait_for("control socket", || dir.path().join("h2o.pid.sock").exists().then_some(()));
    served
}

#[test]
fn a_file_of_h2o_has_h2o_s_names() {
    for workers in [1, 2] {
        let (dir, backend) = (TempDir::new(), Backend::answering("from behind"));
        let served = started(&dir, backend.port(), workers);
        let place = ["-c".as_ref(), "h2o.conf".as_ref(), "-p".as_ref(), dir.path().as_os_str()];
        assert_modules(served.address, place, true);
        // What is said without serving, too.
        let url = format!("http://example.com:{}/a.txt", served.address.port());
        let plan = says::says(&["explain-config", &url], &place);
        assert!(plan.contains("content         file.index, file\n") && !plan.contains("static"), "{plan}");
    }
}
