//! `weir trace --deep`: variables, patterns and files by name, and nothing of it while nobody asks.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use weir_test::{Client, Driver, Server, both_drivers, wait_for};

use crate::support::says as said;

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; http {
    map $http_user_agent $browser { ~Mozilla modern; ~*curl tool; default other; }
    server { listen 127.0.0.1:%%PORT_0%%; root html;
        location ~ \\.txt$ { add_header X-Browser $browser; }
        location ~ ^/(one|two)$ { return 200 $1; }
        location / { return 200 plain; } } }";

fn started(driver: Driver, workers: &str) -> Server {
    let server = Server::builder(&CONF.replace("%%WORKERS%%", workers))
        .file("html/a.txt", "0123456789")
        .allow("open()")
        .driver(driver)
        .start();
    said::ready(&server);
    server
}

/// `weir trace` with `words`, that waits for its requests; what it prints goes to a file.
struct Tracing {
    child: Child,
    out: PathBuf,
}

impl Tracing {
    fn start(server: &Server, words: &[&str]) -> Tracing {
        let out = server.dir().path().join(format!("trace-{}", words.join("").replace('/', "-")));
        let file = std::fs::File::create(&out).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("trace")
            .args(words)
            .args(said::of(server))
            .stdout(Stdio::from(file))
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        Tracing { child, out }
    }

    /// Asks until the command has what it wants, and gives that.
    fn text(mut self, mut ask: impl FnMut()) -> String {
        wait_for("the trace", || {
            ask();
            self.child.try_wait().expect("a child").map(|status| assert!(status.success()))
        });
        std::fs::read_to_string(&self.out).expect("text")
    }
}

fn asks(client: &mut Client, path: &str) -> String {
    client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\n\r\n")).text()
}

both_drivers! {
    fn variables_patterns_and_files_are_in_the_tree(driver) {
        for workers in ["1", "3"] {
            let server = started(driver, workers);
            let mut client = server.client();
            // It is known by now from the sight of its head, and is looked at all the same.
            for _ in 0..20 {
                assert_eq!(asks(&mut client, "/a.txt"), "0123456789");
            }
            let tracing = Tracing::start(&server, &["--deep", "--all", "/a.txt"]);
            let tree = tracing.text(|| drop(asks(&mut client, "/a.txt")));
            for part in ["regex ~ \\.txt$", "$browser", "regex ~ Mozilla", "regex ~* curl", "/html/a.txt"] {
                assert!(tree.contains(part), "{part} in {tree}");
            }
            let place = |part: &str| tree.find(part).expect("in the tree");
            assert!(place("$browser") < place("regex ~* curl"), "the map's patterns are inside: {tree}");
            let average = Tracing::start(&server, &["--deep", "--avg", "5", "/one"]);
            let average = average.text(|| drop(asks(&mut client, "/one")));
            assert!(average.contains("regex ~ ^/(one|two)$"), "{average}");
        }
    }

    fn nothing_of_it_is_recorded_when_nobody_asks(driver) {
        let server = started(driver, "1");
        let mut client = server.client();
        let tracing = Tracing::start(&server, &["--deep", "/a.txt"]);
        tracing.text(|| drop(asks(&mut client, "/a.txt")));
        let tracing = Tracing::start(&server, &["--all", "/a.txt"]);
        let tree = tracing.text(|| drop(asks(&mut client, "/a.txt")));
        assert!(!tree.contains("regex") && !tree.contains("$browser"), "{tree}");
        let metrics = Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        assert!(!metrics.contains("kind=\"function\"") && !metrics.contains("kind=\"file\""), "no series of it remain");
    }

    /// Paths are the client's choice: they take no numbers without an end, and responses are what they are without.
    fn a_flood_of_paths_is_bounded(driver) {
        let server = started(driver, "1");
        let mut client = server.client();
        let tracing = Tracing::start(&server, &["--deep", "-n", "200", "/f"]);
        let mut number = 0;
        let text = tracing.text(|| {
            number += 1;
            let response = client.request(format!("GET /f{number}.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(response.status, 404);
        });
        // Requests that came before the command did are not in it.
        assert_eq!(text.matches("/html/f").count(), 200, "{text}");
    }
}

#[test]
fn mistakes_are_reported() {
    let output = said::run(&["trace", "--deep", "--sites"], &[] as &[&str]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--deep goes with"), "{output:?}");
}
