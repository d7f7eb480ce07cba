//! H2O's configuration files: served, and what is wrong with them shown at its place in the YAML.

use crate::support::tls;

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use weir_test::{Backend, Client, TempDir, free_port, require_program, wait_for};

/// A server of a YAML file, ended with the test.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn weir(dir: &TempDir, file: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("-p").arg(dir.path()).args(["-c", file]).args(args);
    command
}

fn start(dir: &TempDir, port: u16) -> Served {
    start_file(dir, "h2o.yaml", port, "daemon off; master_process off;")
}

pub(crate) fn start_file(dir: &TempDir, file: &str, port: u16, globals: &str) -> Served {
    let child =
        weir(dir, file, &["-g", globals]).stdout(Stdio::null()).spawn().expect("the binary was built");
    let served = Served { child, address: ([127, 0, 0, 1], port).into() };
    wait_for("the server to listen", || TcpStream::connect(served.address).ok());
    served
}

/// What `-t` says of `text`.
fn tested(text: &str) -> String {
    let dir = TempDir::new();
    std::fs::create_dir(dir.path().join("logs")).expect("a fresh folder");
    dir.write("h2o.yaml", text);
    let Output { stderr, .. } = weir(&dir, "h2o.yaml", &["-t"]).output().expect("the binary was built");
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
            "[emerg] invalid URL \"gopher://x\" in DIR/h2o.yaml:6:28\n",
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
        let config = tls::client_of(tls13, None, "h2", true);
        let it = tls::TlsClient::connect(served.address, "a.example.com", &config);
        assert_eq!(it.facts().alpn.as_deref(), Some(&b"h2"[..]));
    }
}

fn ask(served: &Served, request: &str) -> weir_test::Response {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: any\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    Client::connect(served.address).request(head)
}

/// A file as distributions ship it, seen by its content: whatever its name, with logs to programs, a status page and a name
/// of the server with spaces; by one process and by a master with its server.
#[test]
fn a_distribution_s_file_is_served() {
    for globals in ["daemon off; master_process off;", "daemon off; user root; master_gone quit;"] {
        let (dir, port) = (TempDir::new(), free_port());
        let directory = dir.path().display();
        dir.write("site/index.html", "the site");
        dir.write(
            "h2o.conf",
            format!(
                "# as shipped\nserver-name: \"h2o (Some)\"\naccess-log: \"| cat >> {directory}/access.log\"\nerror-log: {directory}/error.log\n\
                 pid-file: {directory}/h2o.pid\nlisten:\n  port: {port}\n  host: 127.0.0.1\nnum-threads: 2\nhosts:\n  default:\n    paths:\n      /:\n        \
                 file.dir: {directory}/site\n      /server-status:\n        status: ON\n"
            ),
        );
        let tested = weir(&dir, "h2o.conf", &["-t"]).output().expect("the binary was built");
        assert!(tested.status.success(), "{tested:?}");
        // The program would make it.
        assert!(!dir.path().join("access.log").exists(), "a test of a configuration starts no program");
        let served = start_file(&dir, "h2o.conf", port, globals);
        let index = ask(&served, "GET /");
        assert_eq!(
            (index.status, &index.text()[..], index.field("Server")),
            (200, "the site", Some("h2o (Some)"))
        );
        let status = ask(&served, "GET /server-status/json");
        assert_eq!(status.status, 200);
        assert!(status.text().contains("\"server-version\": \"h2o (Some)\",\n"), "{}", status.text());
        assert!(status.text().contains("\"worker-threads\": 2,\n"), "{}", status.text());
        assert_eq!(ask(&served, "GET /server-status/other").status, 404);
        let log = wait_for("the program to have written", || {
            Some(dir.read("access.log")).filter(|log| log.lines().count() == 3)
        });
        assert!(log.starts_with("127.0.0.1 - - ["), "{log}");
        // Two workers may have them in another order.
        assert!(log.contains("\"GET /server-status/json HTTP/1.1\" 200 "), "{log}");
    }
}

/// Whatever becomes of a file, the one that reads H2O's language is told by its content: a file called as H2O's are that is
/// nginx's is read as that.
#[test]
fn an_nginx_conf_with_a_yaml_name_is_one() {
    let said = tested("events { }\nhttp { no_such; }\n");
    assert!(said.contains("unknown directive \"no_such\" in DIR/h2o.yaml:2:8"), "{said}");
}

/// HTTP/2 is on without a word about it: by prior knowledge, by `Upgrade`, which can be refused, and by ALPN.
#[test]
fn http2_is_on() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    for (more, upgraded) in [("", 101), ("http1-upgrade-to-http2: OFF\n", 200)] {
        let (dir, port) = (TempDir::new(), free_port());
        let directory = dir.path().display();
        dir.write("index.html", "page");
        dir.write(
            "h2o.yaml",
            format!(
                "{more}listen: {{port: {port}, host: 127.0.0.1}}\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\n\
                 hosts:\n  a:\n    paths:\n      /: {{file.dir: {directory}}}\n"
            ),
        );
        let served = start(&dir, port);
        let mut client = Client::connect(served.address);
        let frame = client.send(preface).bytes(9);
        // A frame of SETTINGS on stream 0.
        assert_eq!((frame[3], &frame[5..9]), (4, &[0; 4][..]));
        let response = Client::connect(served.address).request(upgrade);
        assert_eq!(response.status, upgraded, "{more}");
    }
}

/// The handlers of a path are tried one after the other: what is no file goes to the next, whatever the method.
#[test]
fn handlers_are_tried_one_after_the_other() {
    let (dir, backend, port) = (TempDir::new(), Backend::answering("from behind"), free_port());
    let directory = dir.path().display();
    dir.write("site/a.txt", "a file");
    dir.write("site/bare/b.txt", "");
    dir.write("second/c.txt", "of the second");
    dir.write(
        "h2o.yaml",
        format!(
            "listen: {{port: {port}, host: 127.0.0.1}}\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\nnum-threads: 8\n\
             header.set: \"X-A: outer\"\nhosts:\n  a:\n    header.append: \"X-A: host\"\n    paths:\n      /:\n        - file.dir: {directory}/site\n        \
             - proxy.reverse.url: http://127.0.0.1:{backend}/base\n        - header.merge: \"X-A: host\"\n          header.add: \"X-A: last\"\n      \
             /two:\n        - file.dir: {directory}/site\n        - file.dir: {directory}/second\n      /in:\n        file.dir: {directory}/second\n        \
             redirect: {{url: /two, internal: YES}}\n      /one:\n        file.file: {directory}/site/a.txt\n",
            backend = backend.port(),
        ),
    );
    let served = start(&dir, port);
    for (request, status, text) in [
        ("GET /a.txt", 200, "a file"),
        ("GET /b.txt", 200, "from behind"),
        ("GET /bare/", 200, "from behind"),
        ("PUT /b.txt", 200, "from behind"),
        ("PUT /a.txt", 405, "method not allowed"),
        ("GET /two/a.txt", 200, "a file"),
        ("GET /two/c.txt", 200, "of the second"),
        ("GET /two/d.txt", 404, "not found"),
        ("GET /in/a.txt", 200, "a file"),
        ("GET /in/c.txt", 200, "of the second"),
        ("GET /one", 200, "a file"),
        ("GET /one/whatever", 200, "a file"),
    ] {
        let response = ask(&served, request);
        assert_eq!((response.status, &response.text()[..]), (status, text), "{request}");
    }
    assert_eq!(ask(&served, "PUT /a.txt").field("Allow"), Some("GET, HEAD"));
    assert_eq!(ask(&served, "GET /a.txt").all("X-A"), ["outer, host", "last"]);
    let missing = ask(&served, "GET /two/d.txt");
    assert_eq!(missing.field("Content-Type"), Some("text/plain; charset=utf-8"));
}

/// `expires` counts from its status on, `error-doc` keeps the status, and types are the file's.
#[test]
fn responses_are_changed_as_the_file_says() {
    let (dir, port) = (TempDir::new(), free_port());
    let directory = dir.path().display();
    dir.write("a.one", "1".repeat(200));
    dir.write("e.html", "nothing here");
    dir.write(
        "h2o.yaml",
        format!(
            "listen: {{port: {port}, host: 127.0.0.1}}\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\nexpires: 1 hour\n\
             file.mime.addtypes: {{\"text/one\": {{extensions: [.one], is_compressible: ON}}}}\ncompress: [gzip]\nhosts:\n  a:\n    \
             error-doc: {{status: [404, 410], url: /e.html}}\n    paths:\n      /: {{file.dir: {directory}, file.dirlisting: ON}}\n"
        ),
    );
    let served = start(&dir, port);
    let found = ask(&served, "GET /a.one");
    assert_eq!(
        (found.field("Content-Type"), found.field("Cache-Control")),
        (Some("text/one"), Some("max-age=3600"))
    );
    let head = "GET /a.one HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    let packed = Client::connect(served.address).request(head);
    assert_eq!(packed.field("Content-Encoding"), Some("gzip"));
    let missing = ask(&served, "GET /none");
    assert_eq!((missing.status, &missing.text()[..]), (404, "nothing here"));
    assert_eq!(missing.field("Cache-Control"), None);
    let listing = ask(&served, "GET /logs/../");
    assert!(listing.text().contains("<LI><A HREF=\"a.one\">a.one</A>"), "{}", listing.text());
}

/// `X-Reproxy-URL` leads to a path of the host and, fetched with the path's settings, to other servers and their redirects;
/// `X-Compress-Hint` decides whatever the type.
#[test]
fn what_an_application_asks_for_is_done() {
    let app = Backend::start(|visit| {
        while let Some(head) = visit.head() {
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let field = match path {
                "/moved" => {
                    let _sent = visit.send(format!(
                        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {query}\r\n\r\n"
                    ));
                    return;
                }
                "/hint" => format!("X-Compress-Hint: {query}\r\nContent-Type: some/thing\r\n"),
                "/shown" => String::new(),
                _ => format!("X-Reproxy-URL: {query}\r\n"),
            };
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{field}\r\n{head}", head.len()));
        }
    });
    let (dir, port) = (TempDir::new(), free_port());
    let directory = dir.path().display();
    dir.write("files/a.txt", "a file");
    dir.write(
        "h2o.yaml",
        format!(
            "listen: {{port: {port}, host: 127.0.0.1}}\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\n\
             reproxy: ON\nmax-delegations: 3\ncompress: [gzip]\nfile.index: []\nhosts:\n  own.test:\n    paths:\n      \
             /: {{proxy.reverse.url: \"http://127.0.0.1:{app}\", header.add: \"X-Path: 1\"}}\n      \
             /files: {{file.dir: {directory}/files}}\n      /off: {{proxy.reverse.url: \"http://127.0.0.1:{app}/x\", reproxy: OFF}}\n",
            app = app.port(),
        ),
    );
    let served = start(&dir, port);
    let here = format!("http://127.0.0.1:{}", app.port());
    for url in ["/files/a.txt", "http://own.test/files/a.txt", "//own.test/files/a.txt"] {
        let response = ask(&served, &format!("POST /x?{url}"));
        assert_eq!(
            (response.status, &response.text()[..], response.field("X-Path")),
            (200, "a file", None),
            "{url}"
        );
    }
    for url in [format!("{here}/shown"), format!("{here}/moved?/shown"), format!("{here}/moved?{here}/shown")]
    {
        let response = ask(&served, &format!("POST /x?{url}"));
        let text = response.text();
        assert!(text.starts_with("GET /shown HTTP/1.1\r\n"), "{url}: {text}");
        assert!(text.contains(&format!("\r\nHost: 127.0.0.1:{}\r\n", app.port())), "{url}: {text}");
        assert_eq!(response.field("X-Path"), Some("1"), "{url}");
    }
    assert_eq!(ask(&served, &format!("GET /x?{}", "/x?".repeat(4))).status, 502);
    assert_eq!(ask(&served, "GET /off?/files/a.txt").field("X-Reproxy-URL"), Some("/files/a.txt"));
    assert_eq!(ask(&served, "GET /files/").status, 404);
    for (hint, coding) in
        [("on", Some("gzip")), ("gzip", Some("gzip")), ("br", None), ("off", None), ("auto", None)]
    {
        let head = format!(
            "GET /hint?{hint} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        );
        let response = Client::connect(served.address).request(head);
        assert_eq!(
            (response.field("Content-Encoding"), response.field("X-Compress-Hint")),
            (coding, None),
            "{hint}"
        );
    }
}

/// Steps of `when: early` make a response 103, `ENFORCE` a trailer, and a document of another server keeps the status.
#[test]
fn responses_have_hints_trailers_and_documents_of_others() {
    let document = Backend::start(|visit| {
        while let Some(head) = visit.head() {
            visit.answer(head.split("\r\n").next().unwrap_or_default());
        }
    });
    let (dir, port) = (TempDir::new(), free_port());
    let directory = dir.path().display();
    dir.write("a.txt", "a file");
    dir.write(
        "h2o.yaml",
        format!(
            "listen: {{port: {port}, host: 127.0.0.1}}\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\n\
             send-informational: all\nserver-timing: ENFORCE\naccess-log: {{path: {directory}/access.log, format: '%{{http1.request-index}}x \
             %{{ssl.negotiated-protocol}}x %{{proxy.response-bytes-body}}x'}}\nheader.add: {{header: 'Link: </a.css>; rel=preload', when: early}}\n\
             error-doc: {{status: 404, url: 'http://127.0.0.1:{}/lost?a'}}\nhosts:\n  a:\n    paths:\n      /:\n        file.dir: {directory}\n        \
             header.set: {{header: 'X-Both: 1', when: all}}\n      /off: {{file.dir: {directory}, server-timing: OFF}}\n",
            document.port()
        ),
    );
    let served = start(&dir, port);
    let all = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        String::from_utf8(Client::connect(served.address).send(head).rest().0).expect("it is text")
    };
    let text = all("/a.txt");
    let hints =
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Both: 1\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(text.starts_with(hints), "{text}");
    assert!(text.contains("\r\nX-Both: 1\r\n") && text.matches("Link:").count() == 1, "{text}");
    assert!(text.contains("\r\n\r\n6\r\na file\r\n0\r\nserver-timing: total;dur="), "{text}");
    let off = all("/off/a.txt");
    assert!(off.ends_with("\r\n\r\na file") && !off.contains("iming"), "{off}");
    let lost = all("/none");
    assert!(
        lost.contains("HTTP/1.1 404 Not Found\r\n") && lost.contains("GET /lost?a HTTP/1.1\r\n"),
        "{lost}"
    );
    let lines = wait_for("the log", || Some(dir.read("access.log")).filter(|log| log.lines().count() == 3));
    assert!(lines.starts_with("1 - -\n1 - -\n1 - ") && !lines.ends_with("- -\n"), "{lines}");
}

/// The client that the PROXY header names is the client; `Upgrade` is refused where another port of the host has TLS, too.
#[test]
fn listeners_have_what_the_file_says_of_them() {
    let (dir, ports, pair) = (TempDir::new(), weir_test::free_ports(2), tls::own("a.test"));
    let (directory, backend) = (
        dir.path().display(),
        Backend::start(|visit| {
            let head = visit.head().unwrap_or_default();
            visit.answer(&head);
        }),
    );
    dir.write("a.crt", &pair.certificate);
    dir.write("a.key", &pair.key);
    dir.write(
        "h2o.yaml",
        format!(
            "listen: {{port: {}, host: 127.0.0.1, proxy-protocol: ON}}\nlisten: {{port: {}, host: 127.0.0.1, ssl: {{certificate-file: a.crt, \
             key-file: a.key, ocsp-update-interval: 0}}}}\nhttp1-upgrade-to-http2: OFF\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\n\
             hosts:\n  a.test:\n    paths:\n      /: {{proxy.reverse.url: \"http://127.0.0.1:{}\"}}\n",
            ports[0], ports[1], backend.port()
        ),
    );
    let served = start(&dir, ports[0]);
    let head = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let response = Client::connect(served.address)
        .request(format!("PROXY TCP4 192.0.2.1 127.0.0.1 1000 2000\r\n{head}"));
    assert_eq!(response.status, 200);
    assert!(response.text().contains("\r\nX-Forwarded-For: 192.0.2.1\r\n"), "{}", response.text());
}

/// The guide names every key that is known, and none that is not.
#[test]
fn the_guide_has_every_key() {
    let guide = include_str!("../../../../docs/guides/from-h2o.md");
    let words: Vec<&str> = guide.split('`').skip(1).step_by(2).collect();
    for (name, refused) in weir_conf::h2o_keys() {
        assert!(words.contains(&name), "{name} is not in the guide");
        let after =
            guide.split("## Refused").nth(1).and_then(|text| text.split(".\n").next()).expect("a heading");
        assert_eq!(after.contains(&format!("`{name}`")), refused, "{name}");
    }
}

/// A FastCGI server that says which script it was asked for, and ends with the pipe that its shell watches.
const RESPONDER: &str = r#"
import os, socket, struct
listening = socket.socket(fileno=0)
while True:
    stream = listening.accept()[0].makefile("rwb")
    parameters = b""
    while True:
        _, kind, request, length, padding, _ = struct.unpack(">BBHHBB", stream.read(8))
        content = stream.read(length)
        stream.read(padding)
        if kind == 4:
            parameters += content
        if kind == 5 and not content:
            break
    name = b"PATH_INFO"
    at = parameters.find(name)
    info = parameters[at + len(name):].split(b"\x0b")[0].split(b"\x0c")[0][:2] if at >= 0 else b"-"
    text = b"Content-Type: text/plain\r\n\r\n" + str(os.getpid()).encode() + b" " + info
    stream.write(struct.pack(">BBHHBB", 1, 6, request, len(text), 0, 0) + text)
    stream.write(struct.pack(">BBHHBB", 1, 3, request, 8, 0, 0) + bytes(8))
    stream.flush()
"#;

/// `fastcgi.spawn` starts a program once for all workers, starts it again when it has ended, and ends it with the server.
#[test]
fn a_fastcgi_program_is_started() {
    let Some(_python) = require_program("python3") else { return };
    let (dir, port) = (TempDir::new(), free_port());
    let directory = dir.path().display();
    dir.write("responder.py", RESPONDER);
    dir.write("site/a.php", "");
    dir.write(
        "h2o.yaml",
        format!(
            "listen: {{port: {port}, host: 127.0.0.1}}\nerror-log: {directory}/error.log\npid-file: {directory}/h2o.pid\nnum-threads: 4\nhosts:\n  \
             a:\n    paths:\n      /: {{file.dir: {directory}/site}}\nfile.custom-handler:\n  extension: .php\n  \
             fastcgi.spawn: \"exec python3 {directory}/responder.py\"\n"
        ),
    );
    let served = start(&dir, port);
    let pid = |request: &str| {
        let response = ask(&served, request);
        assert_eq!(response.status, 200, "{}", dir.read("error.log"));
        let text = response.text();
        text.split(' ').next().and_then(|pid| pid.parse::<u32>().ok()).expect("a number")
    };
    let first = pid("GET /a.php");
    for _ in 0..8 {
        assert_eq!(pid("GET /a.php/b"), first);
    }
    assert_eq!(ask(&served, "GET /none.php").status, 404);
    let ended = |pid: u32| {
        wait_for("the program to end", || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (state.is_empty() || state.contains(") Z ")).then_some(())
        });
    };
    let killed = Command::new("kill").arg(first.to_string()).status().expect("there is a kill");
    assert!(killed.success());
    ended(first);
    // Its shell may be a moment behind it.
    let second = wait_for("another program", || {
        let response = ask(&served, "GET /a.php");
        (response.status == 200).then(|| response.text())
    });
    let second = second.split(' ').next().and_then(|pid| pid.parse::<u32>().ok()).expect("a number");
    assert_ne!(second, first);
    drop(served);
    ended(second);
}
