//! H2O's configuration files: served, and what is wrong with them shown at its place in the YAML.

use crate::support::tls;

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use weir_test::{Backend, Client, TempDir, free_port, wait_for};

/// A server of a YAML file, ended with the test.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn weir(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("-p").arg(dir.path()).args(["-c", "h2o.yaml"]).args(args);
    command
}

fn start(dir: &TempDir, port: u16) -> Served {
    let globals = "daemon off; master_process off;";
    let child = weir(dir, &["-g", globals]).stdout(Stdio::null()).spawn().expect("the binary was built");
    let served = Served { child, address: ([127, 0, 0, 1], port).into() };
    wait_for("the server to listen", || TcpStream::connect(served.address).ok());
    served
}

/// What `-t` says of `text`.
fn tested(text: &str) -> String {
    let dir = TempDir::new();
    std::fs::create_dir(dir.path().join("logs")).expect("a fresh folder");
    dir.write("h2o.yaml", text);
    let Output { stderr, .. } = weir(&dir, &["-t"]).output().expect("the binary was built");
    String::from_utf8_lossy(&stderr).replace(&dir.path().display().to_string(), "DIR")
}

/// Files, a proxy, a redirect and logs of a file as H2O's own manual has them.
#[test]
fn a_file_of_h2o_is_served() {
    let (dir, backend, port) = (TempDir::new(), Backend::answering("from behind"), free_port());
    let directory = dir.path().display();
    let text = format!(
        "num-threads: 1\nlisten:\n  port: {port}\n  host: 127.0.0.1\nhosts:\n  \"example.com\":\n    paths:\n      /:\n        file.dir: {directory}/site\n        header.add: \"X-From: yaml\"\n      /img:\n        file.dir: {directory}/pictures\n      /app:\n        proxy.reverse.url: http://127.0.0.1:{}\n      /old:\n        redirect: {{ status: 301, url: http://new/ }}\n    access-log:\n      path: {directory}/access.log\n      format: '%h \"%r\" %>s %b %{{X-A}}i'\npid-file: {directory}/h2o.pid\nerror-log: {directory}/error.log\n",
        backend.port(),
    );
    dir.write("h2o.yaml", text);
    dir.write("site/index.html", "the index");
    dir.write("pictures/a.png", "a picture");
    let served = start(&dir, port);
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nX-A: b\r\nConnection: close\r\n\r\n");
        Client::connect(served.address).request(head)
    };
    let index = get("/");
    assert_eq!((index.status, &index.text()[..]), (200, "the index"));
    assert_eq!((index.field("X-From"), index.field("Content-Type")), (Some("yaml"), Some("text/html")));
    let picture = get("/img/a.png");
    assert_eq!((&picture.text()[..], picture.field("Content-Type")), ("a picture", Some("image/png")));
    assert_eq!(get("/app/x").text(), "from behind");
    let bare = get("/img?q");
    assert_eq!((bare.status, bare.field("Location").is_some_and(|to| to.ends_with("/img/?q"))), (301, true));
    let moved = get("/old/a%20b?c=d");
    assert_eq!((moved.status, moved.field("Location")), (301, Some("http://new/a%20b?c=d")));
    let line = wait_for("the log", || dir.read("access.log").lines().nth(4).map(str::to_owned));
    let size = moved.body.len();
    assert_eq!(line, format!("127.0.0.1 \"GET /old/a%20b?c=d HTTP/1.1\" 301 {size} b"));
}

/// Errors of the translation and of the directives are at their place in the YAML.
#[test]
fn errors_stand_where_the_yaml_has_them() {
    for (text, expected) in [
        (
            "listen: 80\nhots:\n",
            "[emerg] unknown directive \"hots\" in DIR/h2o.yaml:2:1\nhots:\n^^^^\ndid you mean \"hosts\"?\n",
        ),
        ("listen: 0.0.0.0\n", "[emerg] invalid port \"0.0.0.0\" in DIR/h2o.yaml:1:9\n"),
        (
            "limit-request-body: much\nlisten: 80\nhosts:\n  a:\n    paths:\n      /:\n        file.dir: x\n",
            "[emerg] \"client_max_body_size\" directive invalid value in DIR/h2o.yaml:1:21\nlimit-request-body: much\n                    ^^^^\n",
        ),
        (
            "listen: 80\nhosts:\n  a:\n    paths:\n      /:\n        proxy.reverse.url: gopher://x\n",
            "[emerg] invalid URL prefix in DIR/h2o.yaml:6:28\n",
        ),
    ] {
        let said = tested(text);
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(said.ends_with("test failed\n"), "{said}");
    }
}

/// `listen: ssl:`, with a handshake.
#[test]
fn a_file_of_h2o_with_tls_is_served() {
    let (dir, port, pair) = (TempDir::new(), free_port(), tls::own("a.example.com"));
    std::fs::create_dir(dir.path().join("logs")).expect("a fresh folder");
    let directory = dir.path().display();
    dir.write("index.html", "over TLS");
    dir.write("a.crt", &pair.certificate);
    dir.write("a.key", &pair.key);
    dir.write(
        "h2o.yaml",
        format!(
            "listen:\n  host: 127.0.0.1\n  port: {port}\n  ssl:\n    certificate-file: a.crt\n    key-file: a.key\n\
             pid-file: {directory}/h2o.pid\nhosts:\n  a.example.com:\n    paths:\n      /:\n        file.dir: {directory}\n"
        ),
    );
    let served = start(&dir, port);
    for tls13 in [false, true] {
        let config = tls::client(tls13, None);
        let mut it = tls::TlsClient::connect(served.address, "a.example.com", &config);
        assert_eq!(it.facts().peer, pair.shown().chain());
        assert_eq!(it.get("/", "a.example.com").text(), "over TLS");
    }
}
