//! Go's client, which asks the most of flow control: two WINDOW_UPDATE frames for each 4 KB that it has read, and every
//! request that meets the end of a connection again on another one.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use weir_test::{Server, ServerSignal, both_drivers, require_program, wait_for};

use super::tls::own;

/// The client, built once for all tests of this program.
fn client() -> Option<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let go = require_program("go")?;
    let mut built = BUILT.lock().expect("nobody panics while it builds");
    if built.is_none() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/go_client.go");
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let program = directory.join(format!("go_client-{}", std::process::id()));
        let mut command = Command::new(go);
        command.args(["build", "-o"]).arg(&program).arg(source).current_dir(&directory);
        command.envs([("GOTOOLCHAIN", "local"), ("GOPROXY", "off"), ("GOFLAGS", ""), ("CGO_ENABLED", "0")]);
        if std::env::var_os("HOME").is_none() && std::env::var_os("GOCACHE").is_none() {
            command.env("GOCACHE", directory.join("go-cache"));
        }
        let output = command.output().expect("go runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        *built = Some(program);
    }
    built.clone()
}

#[track_caller]
fn ask(program: &PathBuf, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("the client runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("all well"), "{text}");
}

fn serve(workers: u32, driver: weir_test::Driver) -> Server {
    let pair = own("localhost");
    let server = Server::builder(&conf(workers, "1"))
        .file("a.crt", &pair.certificate)
        .file("a.key", &pair.key)
        .file("files/medium", vec![b'x'; 400_000])
        .driver(driver)
        .start();
    let big = std::fs::File::create(server.dir().path().join("files/big")).expect("the directory is there");
    big.set_len(BIG).expect("a sparse file");
    server
}

/// `version` is what a reload changes.
fn conf(workers: u32, version: &str) -> String {
    format!(
        "worker_processes {workers}; http {{ ssl_certificate a.crt; ssl_certificate_key a.key; access_log off; root files;
            keepalive_requests 1000000; client_max_body_size 0; client_body_buffer_size 64k;
            server {{ listen 127.0.0.1:%%PORT_0%% ssl; http2 on; add_header X-Version {version};
                location /few {{ keepalive_requests 20; try_files /medium =404; }}
                location /length {{ proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_request_buffering off;
                    proxy_http_version 1.1; }} }}
            server {{ listen 127.0.0.1:%%PORT_2%% ssl; http2 on; keepalive_requests 20; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; location / {{ client_body_in_file_only clean;
                echo_read_request_body; echo $content_length; }} }} }}"
    )
}

/// A file that no client has done with in the time of a burst of the limits.
const BIG: u64 = 256 << 20;

/// A client that asks until it is asked to end.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// One that has got its first response.
    fn start(program: &PathBuf, url: &str) -> Running {
        let mut command = Command::new(program);
        command.args(["until", "12", url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the client runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert_eq!(line, "begun\n");
        Running { child, lines }
    }

    /// Lets it end what it has begun; nothing may have failed.
    #[track_caller]
    fn end(mut self) {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("it ends").success() && text.starts_with("all well"), "{text}");
    }
}

both_drivers! {
    fn a_fast_download_is_not_taken_for_a_flood(driver) {
        let Some(go) = client() else { return };
        for workers in [1, 4] {
            let server = serve(workers, driver);
            let url = |path: &str| format!("https://{}{path}", server.addr(0));
            ask(&go, &["get", "2", "1", &url("/big")]);
            ask(&go, &["get", "600", "30", &url("/medium")]);
            assert!(!server.error_log().contains("flood"), "{}", server.error_log());
        }
    }

    fn uploads_are_not_taken_for_a_flood(driver) {
        let Some(go) = client() else { return };
        let server = serve(1, driver);
        let url = format!("https://{}/length", server.addr(0));
        ask(&go, &["put", "2", "1", "50000000", &url]);
        ask(&go, &["put", "200", "30", "400000", &url]);
        assert!(!server.error_log().contains("flood"), "{}", server.error_log());
    }

    /// Twelve at once, while connections end for having had their number of requests, for a reload, and for a stop: what was
    /// taken gets its response, and what was not is asked for again.
    fn no_request_is_lost_where_connections_end(driver) {
        let Some(go) = client() else { return };
        let mut server = serve(1, driver);
        let url = |server: &Server, at: usize| format!("https://{}/medium", server.addr(at));
        ask(&go, &["get", "1000", "12", &url(&server, 2)]);
        let running = Running::start(&go, &url(&server, 0));
        for round in 2..6 {
            server.reload(&conf(1, &round.to_string()));
            let begun = || (server.error_log().matches("reconfiguring").count() >= round - 1).then_some(());
            wait_for("the reload", begun);
        }
        running.end();
        let running = Running::start(&go, &url(&server, 0));
        server.signal(ServerSignal::Quit);
        running.end();
        assert!(server.wait_exit().status.success());
    }
}
