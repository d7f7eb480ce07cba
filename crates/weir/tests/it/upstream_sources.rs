//! `source`: lists of servers from a file, a URL, etcd and Consul; what is used when they can't be read.
//!
//! etcd is Debian's, as a real process. Consul is in no package of Debian 12, so its API is spoken by a server of the
//! test, as its documentation has it.

use crate::support::tls as support;

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use weir_test::{Backend, Client, Server, TempDir, both_drivers, free_port, require_program, wait_for};

fn address(backend: &Backend) -> String {
    format!("127.0.0.1:{}", backend.port())
}

fn backends() -> [Backend; 2] {
    [Backend::answering("a"), Backend::answering("b")]
}

fn conf(lines: &str) -> String {
    format!(
        "worker_processes 2; admin 127.0.0.1:%%PORT_1%%;
         http {{ upstream u {{ {lines} }}
         server {{ listen 127.0.0.1:%%PORT_0%% reuseport; location / {{ proxy_pass http://u; }} }} }}"
    )
}

/// The upstream as `/upstreams` shows it.
fn shown(server: &Server) -> String {
    let address = server.addr(1);
    wait_for("admin listener", || TcpStream::connect(address).is_ok().then_some(()));
    Client::connect(address).request("GET /upstreams/u HTTP/1.1\r\nHost: localhost\r\n\r\n").text()
}

/// Waits until the upstream has these servers, then sees that all requests are theirs.
#[track_caller]
fn served_by(server: &Server, backend: &Backend, body: &str) {
    let wanted = format!("\"servers\":[{{\"server\":\"{}\"", address(backend));
    wait_for("the list", || shown(server).contains(&wanted).then_some(()));
    for _ in 0..6 {
        assert_eq!(server.client().get("/").text(), body);
    }
}

/// Replaces the file as a whole, so that nothing reads half of it.
fn replace(server: &Server, text: impl AsRef<[u8]>) {
    let new = server.dir().write("new.json", text);
    std::fs::rename(new, server.dir().path().join("list.json")).expect("one folder");
}

/// Waits until this list is stored.
fn kept(server: &Server, list: &str) -> String {
    let path = server.dir().path().join("upstream_lists/u.json");
    wait_for("the list on disk", || std::fs::read_to_string(&path).ok().filter(|kept| kept == list))
}

/// A state that a test sets and servers wait for.
#[derive(Default)]
struct Board {
    /// Counts from 1 when something is set.
    now: Mutex<(u64, String)>,
    changed: Condvar,
}

impl Board {
    fn set(&self, text: String) {
        let mut now = self.now.lock().expect("no panics");
        *now = (now.0 + 1, text);
        self.changed.notify_all();
    }

    fn read(&self) -> (u64, String) {
        self.now.lock().expect("no panics").clone()
    }

    /// What is set once it is not number `seen`, or soon.
    fn behind(&self, seen: u64) -> (u64, String) {
        let now = self.now.lock().expect("no panics");
        let (now, _) = self
            .changed
            .wait_timeout_while(now, weir_test::DEADLINE, |now| now.0 == seen)
            .expect("no panics");
        now.clone()
    }
}

/// The part of a head between two texts.
fn between<'h>(head: &'h str, from: &str, to: &str) -> Option<&'h str> {
    Some(head.split_once(from)?.1.split_once(to)?.0)
}

/// etcd, ended with the test.
struct Etcd {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Etcd {
    fn start() -> Option<Etcd> {
        let program = require_program("etcd")?;
        let (port, dir) = (free_port(), TempDir::new());
        let child = Etcd::run(&program, port, &dir);
        Some(Etcd { child, port, dir }.ready())
    }

    fn run(program: &std::path::Path, port: u16, dir: &TempDir) -> Child {
        let (client, peer) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()));
        Command::new(program)
            .args(["--data-dir", &dir.path().join("etcd").display().to_string(), "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it is a program")
    }

    fn ready(self) -> Etcd {
        wait_for("etcd", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok().then_some(())?;
            let health = Client::connect(([127, 0, 0, 1], self.port).into())
                .request("GET /health HTTP/1.1\r\nHost: etcd\r\n\r\n");
            health.text().contains("\"true\"").then_some(())
        });
        self
    }

    fn call(&self, path: &str, body: &str) {
        let length = body.len();
        let answer = Client::connect(([127, 0, 0, 1], self.port).into()).request(format!(
            "POST /v3/kv/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    fn put(&self, key: &str, value: &str) {
        self.call("put", &format!("{{\"key\":\"{}\",\"value\":\"{}\"}}", base64(key), base64(value)));
    }

    fn delete(&self, key: &str) {
        self.call("deleterange", &format!("{{\"key\":\"{}\"}}", base64(key)));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = &self.dir;
    }
}

fn base64(text: &str) -> String {
    let mut out = Vec::new();
    weir_http::base64::encode(text.as_bytes(), &mut out);
    String::from_utf8(out).expect("digits")
}

both_drivers! {
    /// A file that is replaced, broken, and gone: the last good list serves, and is the next start's.
    fn a_file_is_watched(driver) {
        let backends = backends();
        let (a, b) = (address(&backends[0]), address(&backends[1]));
        let conf = conf("source file %%DIR%%/list.json interval=10ms;");
        let server = Server::builder(&conf).file("list.json", format!("[\"{a}\"]")).start();
        served_by(&server, &backends[0], "a");
        replace(&server, format!("{{\"servers\":[{{\"server\":\"{b}\"}}]}}"));
        served_by(&server, &backends[1], "b");
        replace(&server, "[");
        let line = server.error_log_line("keeps its servers");
        assert!(line.contains("[error]") && line.contains("list.json: no JSON at byte 1"), "{line}");
        served_by(&server, &backends[1], "b");
        assert!(shown(&server).contains("\"error\":\"no JSON at byte 1\""), "{}", shown(&server));
        std::fs::remove_file(server.dir().path().join("list.json")).expect("it is there");
        assert!(server.error_log_line("stat()").contains("[error]"));
        served_by(&server, &backends[1], "b");
        // Started where there is nothing but what was stored.
        let kept = kept(&server, &format!("[{{\"server\":\"{b}\"}}]"));
        drop(server);
        let again = Server::builder(&conf).file("upstream_lists/u.json", &kept).start();
        served_by(&again, &backends[1], "b");
        replace(&again, format!("[\"{a}\"]"));
        served_by(&again, &backends[0], "a");
    }

    /// A URL is asked whether anything is new; what it can't say changes nothing.
    fn a_url_is_polled(driver) {
        let backends = backends();
        let board = Arc::new(Board::default());
        board.set(format!("[\"{}\"]", address(&backends[0])));
        let (shared, same) = (board.clone(), Arc::new(Board::default()));
        let not_modified = same.clone();
        let origin = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                let (number, text) = shared.read();
                if text.is_empty() {
                    visit.send("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
                } else if head.contains(&format!("If-None-Match: \"{number}\"\r\n")) {
                    not_modified.set(head);
                    visit.send(format!("HTTP/1.1 304 Not Modified\r\nETag: \"{number}\"\r\n\r\n"));
                } else {
                    let length = text.len();
                    visit.send(format!("HTTP/1.1 200 OK\r\nETag: \"{number}\"\r\nTransfer-Encoding: chunked\r\n\r\n"));
                    let (first, rest) = text.split_at(length / 2);
                    visit.send(format!("{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n", first.len(), rest.len()));
                }
            }
        });
        let server = Server::start(&conf(&format!(
            "source url http://127.0.0.1:{}/list interval=10ms token=secret;", origin.port()
        )));
        served_by(&server, &backends[0], "a");
        wait_for("a question whether anything is new", || (same.read().0 > 0).then_some(()));
        let head = same.read().1;
        assert!(head.starts_with("GET /list HTTP/1.1\r\n") && head.contains("Authorization: Bearer secret\r\n"), "{head}");
        board.set(format!("[\"{}\"]", address(&backends[1])));
        served_by(&server, &backends[1], "b");
        board.set(String::new());
        assert!(server.error_log_line("keeps its servers").contains("the status was 500"));
        board.set("{}".to_owned());
        wait_for("another error", || shown(&server).contains("a list of servers is an array").then_some(()));
        served_by(&server, &backends[1], "b");
        board.set(format!("[\"{}\"]", address(&backends[0])));
        served_by(&server, &backends[0], "a");
        assert!(shown(&server).contains("\"error\":null"));
    }

    /// Over TLS: the server must have a certificate for its name, or address, from whom the line or the system trusts.
    fn a_url_over_tls_is_polled(driver) {
        let backends = backends();
        let ca = support::authority("ca");
        let (named, unnamed) = (ca.issue("127.0.0.1"), ca.issue("other.example"));
        let origin = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_certificate named.crt; ssl_certificate_key named.key; root html; }
             server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate unnamed.crt; ssl_certificate_key unnamed.key; root html; } }",
        )
        .file("named.crt", &named.certificate)
        .file("named.key", &named.key)
        .file("unnamed.crt", &unnamed.certificate)
        .file("unnamed.key", &unnamed.key)
        .file("html/list", format!("[\"{}\"]", address(&backends[0])))
        .start();
        let follow = |port: usize, words: &str| {
            let line = format!("source url https://127.0.0.1:{}/list interval=10ms {words};", origin.port(port));
            Server::builder(&conf(&line)).file("ca.crt", &ca.certificate).start()
        };
        let server = follow(0, "trusted_certificate=ca.crt");
        served_by(&server, &backends[0], "a");
        let new = origin.dir().write("html/new", format!("[\"{}\"]", address(&backends[1])));
        // As long as the one before, and maybe of the same second: then its ETag would be the same.
        let later = SystemTime::now() + Duration::from_secs(60);
        std::fs::File::options().append(true).open(&new).expect("just made").set_modified(later).expect("its owner");
        std::fs::rename(new, origin.dir().path().join("html/list")).expect("one folder");
        served_by(&server, &backends[1], "b");
        served_by(&follow(1, "verify=off"), &backends[1], "b");
        for (port, words, why) in [
            (1, "trusted_certificate=ca.crt", "upstream SSL certificate does not match \"127.0.0.1\""),
            (0, "", "upstream SSL certificate verify error: "),
        ] {
            if words.is_empty() && !std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").is_file() {
                weir_test::skip("the system has no trusted certificates");
                continue;
            }
            let server = follow(port, words);
            assert!(server.error_log_line("keeps its servers").contains(why), "{}", server.error_log());
            assert_eq!(server.get("/").status, 502, "nobody is known");
        }
    }

    /// A list in one key, and servers that register themselves under a prefix.
    fn etcd_is_watched(driver) {
        let Some(etcd) = Etcd::start() else { return };
        let backends = backends();
        let (a, b) = (address(&backends[0]), address(&backends[1]));
        etcd.put("/weir/orders", &format!("[\"{a}\"]"));
        let at = format!("etcd http://127.0.0.1:{}", etcd.port);
        let server = Server::start(&conf(&format!("source {at} key=/weir/orders;")));
        served_by(&server, &backends[0], "a");
        etcd.put("/weir/orders", &format!("[{{\"server\":\"{b}\",\"weight\":2}}]"));
        served_by(&server, &backends[1], "b");
        etcd.delete("/weir/orders");
        assert!(server.error_log_line("keeps its servers").contains("there is no such key"));
        etcd.put("/weir/orders", &format!("[\"{a}\"]"));
        served_by(&server, &backends[0], "a");

        let server = Server::start(&conf(&format!("source {at} prefix=/weir/group/;")));
        wait_for("nobody", || shown(&server).contains("\"servers\":[]").then_some(()));
        etcd.put("/weir/group/1", &a);
        served_by(&server, &backends[0], "a");
        etcd.put("/weir/group/2", &format!("{{\"server\":\"{b}\"}}"));
        etcd.delete("/weir/group/1");
        served_by(&server, &backends[1], "b");
    }

    /// etcd dies: nothing changes; it comes back: what has changed meanwhile comes.
    fn etcd_may_go_away(driver) {
        let Some(mut etcd) = Etcd::start() else { return };
        let program = require_program("etcd").expect("it ran");
        let backends = backends();
        etcd.put("k", &format!("[\"{}\"]", address(&backends[0])));
        let conf = conf(&format!("source etcd http://127.0.0.1:{} key=k;", etcd.port));
        let server = Server::start(&conf);
        served_by(&server, &backends[0], "a");
        etcd.child.kill().expect("our child");
        etcd.child.wait().expect("our child");
        wait_for("the error", || shown(&server).contains("\"error\":\"").then_some(()));
        served_by(&server, &backends[0], "a");
        let kept = kept(&server, &format!("[{{\"server\":\"{}\"}}]", address(&backends[0])));
        // Another start without it, with what was stored.
        let without = Server::builder(&conf).file("upstream_lists/u.json", &kept).start();
        served_by(&without, &backends[0], "a");
        drop(without);
        let child = Etcd::run(&program, etcd.port, &etcd.dir);
        etcd.child = child;
        let etcd = etcd.ready();
        etcd.put("k", &format!("[\"{}\"]", address(&backends[1])));
        served_by(&server, &backends[1], "b");
    }

    /// Blocking queries: each gets its response when the index it names is not the newest.
    fn consul_is_followed(driver) {
        let backends = backends();
        let ports = [backends[0].port(), backends[1].port()];
        let instance = |port: u16| {
            format!("[{{\"Node\":{{\"Address\":\"127.0.0.1\"}},\"Service\":{{\"Address\":\"\",\"Port\":{port}}}}}]")
        };
        let board = Arc::new(Board::default());
        board.set(instance(ports[0]));
        let (shared, asked) = (board.clone(), Arc::new(Board::default()));
        let note = asked.clone();
        let consul = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                let index = between(&head, "index=", "&").and_then(|index| index.parse().ok()).unwrap_or(0);
                note.set(head);
                let (number, text) = shared.behind(index);
                let length = text.len();
                visit.send(format!(
                    "HTTP/1.1 200 OK\r\nX-Consul-Index: {number}\r\nContent-Length: {length}\r\n\r\n{text}"
                ));
            }
        });
        let server = Server::start(&conf(&format!(
            "source consul http://127.0.0.1:{} service=orders tag=blue token=secret;", consul.port()
        )));
        served_by(&server, &backends[0], "a");
        wait_for("the waiting query", || asked.read().1.contains("&index=1&").then_some(()));
        let head = asked.read().1;
        assert!(head.starts_with("GET /v1/health/service/orders?passing=1&tag=blue&index=1&wait=60s HTTP/1.1"), "{head}");
        assert!(head.contains("X-Consul-Token: secret\r\n"), "{head}");
        board.set(instance(ports[1]));
        served_by(&server, &backends[1], "b");
        board.set("[]".to_owned());
        wait_for("nobody", || (server.get("/").status == 502).then_some(()));
        board.set(instance(ports[0]));
        served_by(&server, &backends[0], "a");
    }

    fn what_is_written_wrongly_is_refused(driver) {
        for (lines, message) in [
            ("source file;", "invalid number of arguments in \"source\" directive"),
            ("source ftp a;", "invalid parameter \"ftp\""),
            ("source etcd http://127.0.0.1;", "\"source\" must have \"key\" parameter"),
            ("source etcd http://127.0.0.1 key=a service=b;", "\"source etcd\" has no parameter \"service\""),
            ("source consul http://127.0.0.1;", "\"source\" must have \"service\" parameter"),
            ("source url https://127.0.0.1/ trusted_certificate=none.crt;", "none.crt\") failed (SSL: error:80000002:system library::No such file"),
            ("source url http://127.0.0.1/ verify=off;", "are for sources with \"https://\""),
            ("source url https://127.0.0.1/ verify=maybe;", "invalid parameter \"verify=maybe\""),
            ("source file a; source file b;", "\"source\" directive is duplicate"),
            ("state a; server 127.0.0.1:1;", "\"state\" is incompatible with \"server\""),
        ] {
            let exit = Server::builder(&conf(lines)).run(&["-t"]);
            assert!(!exit.status.success() && exit.stderr.contains(message), "{lines}: {exit}");
        }
    }

    /// The admin listener has no say where a source has.
    fn a_source_s_list_is_its_own(driver) {
        let conf = conf("source file %%DIR%%/list.json;");
        let server = Server::builder(&conf).file("list.json", "[\"127.0.0.1:1\"]").start();
        wait_for("the list", || shown(&server).contains("127.0.0.1:1").then_some(()));
        let answer = Client::connect(server.addr(1)).request(
            "DELETE /upstreams/u/servers/127.0.0.1:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        );
        assert_eq!((answer.status, answer.text().contains("those of its source")), (409, true));
    }
}
