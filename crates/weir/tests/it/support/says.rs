//! What the program says to a command.

use std::ffi::OsStr;
use std::process::{Command, Output};

use weir_test::{Server, wait_for};

/// Runs the program with `words` and `place`, which says which server it asks.
pub(crate) fn run<W: AsRef<OsStr>>(words: &[&str], place: &[W]) -> Output {
    let weir = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).args(place).output();
    weir.expect("the program runs")
}

/// What it says, which must be a success.
#[track_caller]
pub(crate) fn says<W: AsRef<OsStr>>(words: &[&str], place: &[W]) -> String {
    let output = run(words, place);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {text}{errors}");
    text.into_owned()
}

/// Waits until the server answers commands: its control socket comes after its ports.
#[track_caller]
pub(crate) fn ready(server: &Server) {
    wait_for("control socket", || server.dir().path().join("nginx.pid.sock").exists().then_some(()));
}

/// Waits until the server has made all files that a start makes: the last is the outcome that `-s reload` reads.
#[track_caller]
pub(crate) fn started(server: &Server) {
    wait_for("file of the outcome", || server.dir().path().join("nginx.pid.status").exists().then_some(()));
    ready(server);
}

/// How a command learns of a server that the harness started.
pub(crate) fn of(server: &Server) -> [&OsStr; 4] {
    ["-c".as_ref(), "nginx.conf".as_ref(), "-p".as_ref(), server.dir().path().as_os_str()]
}
