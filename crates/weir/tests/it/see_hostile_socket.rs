//! Commands at a control socket that another user has made: they end in time, with a reason, and what they print moves
//! no terminal.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use weir_test::{TempDir, wait_for};

/// A socket whose server says `answer` to each question.
fn socket(directory: &TempDir, name: &str, answer: fn(&mut UnixStream)) -> PathBuf {
    let path = directory.path().join(name);
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut input = BufReader::new(stream.try_clone().expect("a descriptor more"));
            if input.read_line(&mut line).is_ok() {
                answer(&mut input.into_inner());
            }
        }
    });
    path
}

/// The program under test, which must end.
fn run(words: &[&str], socket: &PathBuf) -> Output {
    let program = std::env::var_os("WEIR_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into());
    let mut command = Command::new(program);
    command.args(words).arg("--socket").arg(socket);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let pid = child.id();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_for("end of the command", || child.try_wait().expect("our child"));
    }));
    if ended.is_err() {
        child.kill().expect("our child");
        panic!("{words:?} does not end: process {pid}");
    }
    child.wait_with_output().expect("our child")
}

fn errors(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn an_answer_without_end_is_an_error() {
    let directory = TempDir::new();
    let endless = socket(&directory, "endless", |stream| {
        let frame = [&b"out 65536\n"[..], &[b'a'; 65536]].concat();
        while stream.write_all(&frame).is_ok() {}
    });
    let said = errors(&run(&["bt", "--raw"], &endless));
    assert!(said.contains("longer than 64 MB"), "{said}");
    let longest = socket(&directory, "longest", |stream| while stream.write_all(&[b'o'; 65536]).is_ok() {});
    let said = errors(&run(&["bt", "--raw"], &longest));
    assert!(said.contains("speaks something else"), "{said}");
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let directory = TempDir::new();
    let silent = socket(&directory, "silent", |_| std::thread::sleep(Duration::from_secs(3600)));
    let said = errors(&run(&["reqs"], &silent));
    assert!(said.contains("takes too long"), "{said}");
}

#[test]
fn escape_sequences_are_printed_as_text() {
    let directory = TempDir::new();
    let rude = socket(&directory, "rude", |stream| {
        let text = "GET /\x1b]0;title\x07 \u{9b}2J\rok\n";
        write!(stream, "out {}\n{text}done 0\n", text.len()).expect("the command reads");
    });
    for words in [&["reqs"][..], &["bt", "--raw"], &["top"], &["blocked", "--raw"], &["slow", "--json"]] {
        let output = run(words, &rude);
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text, "GET /\\x1B]0;title\\x07 \\x9B2J\\x0Dok\n", "{words:?}");
    }
    let failing = socket(&directory, "failing", |stream| {
        write!(stream, "fail 8\n\x1b[2Jno\r\n").expect("the command reads");
    });
    assert_eq!(errors(&run(&["reqs"], &failing)), "weir: \\x1B[2Jno\\x0D\n\n");
}
