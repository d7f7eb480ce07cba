//! A real gRPC client and a real gRPC server, of Python's library.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use weir_test::{Server, both_drivers, require_program, skip};

use super::tls::own;

/// A Python that has the library: the system's own first, where packages of the system are.
fn python() -> Option<PathBuf> {
    let has = |python: &PathBuf| {
        let import = Command::new(python).args(["-c", "import grpc"]).stderr(Stdio::null()).status();
        import.is_ok_and(|status| status.success())
    };
    let candidates = [Some(PathBuf::from("/usr/bin/python3")), require_program("python3")];
    let found = candidates.into_iter().flatten().find(has);
    if found.is_none() {
        skip("Python has no grpc (python3-grpcio)");
    }
    found
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/grpc_peer.py");

/// The server; it ends with its input.
struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: u16,
}

impl Peer {
    fn start(python: &PathBuf) -> Peer {
        let mut command = Command::new(python);
        command.arg(SCRIPT).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let port = line(&mut lines).parse().expect("a port");
        Peer { child, lines, port }
    }
}

fn line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It may be ending on its own already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn ask(python: &PathBuf, arguments: &[&str]) {
    let output = Command::new(python).arg(SCRIPT).arg("ask").args(arguments).output().expect("python runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("all calls well"), "{text}");
}

both_drivers! {
    /// The health protocol, as a real server speaks it.
    fn a_real_server_is_checked(driver) {
        let Some(python) = python() else { return };
        let peer = Peer::start(&python);
        let group = |name: &str, service: &str| format!(
            "upstream {name} {{ server 127.0.0.1:{}; health_check type=grpc timeout=60s grpc_service={service}; }}",
            peer.port);
        let server = Server::builder(&format!(
            "http {{ {} {} {} server {{ listen 127.0.0.1:%%PORT%%; http2 on; location / {{ grpc_pass grpc://up; }} }} }}",
            group("up", "t.T mandatory"), group("resting", "resting"), group("unknown", "unknown")))
            .driver(driver).start();
        assert!(server.error_log_line("in upstream \"up\"").contains("peer is healthy"));
        assert!(server.error_log_line("in upstream \"resting\"").contains("the service is NOT_SERVING"));
        assert!(server.error_log_line("in upstream \"unknown\"").contains("the gRPC status was 5"));
    }

    /// Calls of all four kinds, large messages, errors with metadata, deadlines, many at once; cleartext and TLS.
    fn a_real_client_calls_a_real_server(driver) {
        let Some(python) = python() else { return };
        let mut peer = Peer::start(&python);
        let pair = own("localhost");
        let server = Server::builder(&format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; }} client_max_body_size 0;
                ssl_certificate a.crt; ssl_certificate_key a.key;
                server {{ listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; http2 on;
                    location / {{ grpc_pass grpc://u; }} }} }}", peer.port))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        ask(&python, &[&server.addr(0).to_string()]);
        assert_eq!(line(&mut peer.lines), "given up", "cancelling reached the server");
        let ca = server.dir().path().join("a.crt");
        ask(&python, &[&server.addr(1).to_string(), &ca.to_string_lossy()]);
    }
}
