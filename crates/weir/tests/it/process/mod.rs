//! A master and its server: what happens when one of them dies, gets a command, or is replaced, and what clients see
//! of it.

use crate::support;

mod commands;
mod gone;
mod logs;
mod privileged;
mod races;
mod rebuild;
mod reload;
mod respawn;
mod starts;
mod survival;
mod systemd;
pub(crate) mod upgrade;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;

use support::StopAtEnd;
use weir_test::{DEADLINE, Server, wait_for};

/// A configuration with a master that responds with `word`.
fn answering(word: &str) -> String {
    format!("master_process on; http {{ server {{ listen 127.0.0.1:%%PORT%%; return 200 {word}; }} }}")
}

fn is_root() -> bool {
    status(std::process::id()).contains("\nUid:\t0\t")
}

/// /proc/PID/status; empty when there is no such process.
fn status(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// What `ps` shows of a process.
fn title(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// The server process below a master, once there is one that is not `other`.
#[track_caller]
pub(crate) fn server_of(master: u32, other: Option<u32>) -> u32 {
    wait_for("server process", || {
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).ok()?;
        let mut pids = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
        pids.find(|pid| Some(*pid) != other && title(*pid) == "weir: server")
    })
}

#[track_caller]
pub(crate) fn wait_gone(pid: u32) {
    // A zombie has no memory.
    wait_for("end of the process", || (!status(pid).contains("VmRSS")).then_some(()));
}

/// Sends a signal by its name, of those that the harness does not know too.
#[track_caller]
pub(crate) fn kill(pid: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(status.expect("a shell").success(), "kill -{name} {pid}");
}

/// The number in a pid file, once it is another one than `other`.
#[track_caller]
fn pid_in(path: &Path, other: Option<u32>) -> u32 {
    wait_for("pid file", || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n')?.parse().ok().filter(|pid| Some(*pid) != other)
    })
}

/// Runs `weir` on the server's configuration with further arguments.
fn weir(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("-p").arg(server.dir().path()).args(["-c", "nginx.conf", "-e", "command.log"]);
    command.args(arguments).output().expect("the program runs")
}

/// Clients that ask all the time, each request on a connection of its own.
#[derive(Clone, Copy)]
struct Load<'t> {
    address: SocketAddr,
    stop: &'t AtomicBool,
    asked: &'t AtomicUsize,
    failed: &'t AtomicUsize,
}

impl<'t> Load<'t> {
    fn start<'scope>(self, scope: &'scope Scope<'scope, '_>, threads: usize)
    where
        't: 'scope,
    {
        for _ in 0..threads {
            scope.spawn(move || {
                while !self.stop.load(Ordering::Acquire) {
                    match ask(self.address) {
                        Ok(()) => self.asked.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            eprintln!("a request failed: {error}");
                            self.failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            });
        }
    }

    /// Waits until `more` further requests have had a response.
    #[track_caller]
    fn wait(self, more: usize) {
        let wanted = self.asked.load(Ordering::Relaxed) + more;
        wait_for("answers under load", || (self.asked.load(Ordering::Relaxed) >= wanted).then_some(()));
    }
}

/// One request on a connection of its own; anything but a whole response with status 200 is an error.
fn ask(address: SocketAddr) -> Result<(), String> {
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| error.to_string())?;
    let whole = answer.starts_with(b"HTTP/1.1 200 ") && answer.windows(4).any(|end| end == b"\r\n\r\n");
    if whole { Ok(()) } else { Err(format!("answer {:?}", String::from_utf8_lossy(&answer))) }
}

/// Runs `body` while clients ask `server`, and returns how many of their requests failed.
fn under_load(server: SocketAddr, body: impl FnOnce(Load<'_>)) -> usize {
    let (stop, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let load = Load { address: server, stop: &stop, asked: &asked, failed: &failed };
    std::thread::scope(|scope| {
        load.start(scope, 4);
        let _stops = StopAtEnd(&stop);
        body(load);
    });
    failed.load(Ordering::Relaxed)
}
