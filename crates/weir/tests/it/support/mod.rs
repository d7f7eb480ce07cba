//! What several of these test files need.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod browser;
pub(crate) mod faults;
pub(crate) mod inside;
pub(crate) mod otlp;
pub(crate) mod page;
pub(crate) mod repeated;
pub(crate) mod restricted;
pub(crate) mod says;
pub(crate) mod softhsm;
pub(crate) mod tls;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use weir_test::{Client, Server, limit_open_files, wait_for};

/// `GET path`, keeping the connection.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// The head of an upload of `length` bytes.
pub(crate) fn upload(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
}

/// Distinct content of `length` bytes, so that pieces at a wrong place show.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    // Unoptimised, sixteen MiB take a second, and a test program needs them dozens of times.
    static LONG: OnceLock<Vec<u8>> = OnceLock::new();
    let made = |length: usize| (0..length).map(|at| b'a' + ((at / 7 + at / 1001) % 26) as u8).collect();
    match length {
        0x8_0000..=0x100_0000 => LONG.get_or_init(|| made(0x100_0000))[..length].to_vec(),
        _ => made(length),
    }
}

/// Stops the server and returns its whole access log: nothing can be added to it any more.
#[track_caller]
pub(crate) fn final_log(mut server: Server) -> Vec<String> {
    let exit = server.quit();
    assert!(exit.status.success(), "{exit}");
    server.dir().read("access.log").lines().map(str::to_owned).collect()
}

/// Waits until the server refuses connections.
#[track_caller]
pub(crate) fn wait_refused(server: &Server) {
    // A socket that is open and not accepted from lets a plain connect hang when its queue is full.
    let refused = || TcpStream::connect_timeout(&server.addr(0), Duration::from_secs(1)).is_err();
    wait_for("refused connection", || refused().then_some(()));
}

/// The number of descriptors the server has open while it has no connection.
#[track_caller]
pub(crate) fn settled(server: &Server) -> usize {
    // The pid file is there before the control socket is.
    let foreign = std::env::var_os("WEIR_BIN").is_some_and(|path| !path.to_string_lossy().ends_with("weir"));
    wait_for("control socket", || {
        (foreign || server.dir().path().join("nginx.pid.sock").exists()).then_some(())
    });
    server.client().half_close().expect_close();
    // The client sees the end before the server has closed its side: the number is taken when it stays.
    let (mut count, mut same) = (server.open_files(), 0);
    wait_for("settled number of descriptors", || {
        let now = server.open_files();
        same = if now == count { same + 1 } else { 0 };
        count = now;
        (same >= 25).then_some(())
    });
    count
}

/// Waits until the server has at most `count` descriptors open.
#[track_caller]
pub(crate) fn wait_open_files(server: &Server, count: usize) {
    wait_for(&format!("return to {count} descriptors"), || (server.open_files() <= count).then_some(()));
}

/// User and system time the process has used, in clock ticks (hundredths of a second).
pub(crate) fn cpu_ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.serving_pid())).expect("the server lives");
    // The second field is a name in parentheses, which may hold spaces.
    let fields = &stat[stat.rfind(')').expect("the name's end") + 2..];
    let fields: Vec<&str> = fields.split(' ').collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

/// Lifts the soft limit of open files of this process to the hard one, and returns that.
pub(crate) fn lift_open_files() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").expect("Linux has it");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("always listed");
    let hard: u64 = line.split_whitespace().nth(4).and_then(|word| word.parse().ok()).unwrap_or(1024);
    limit_open_files(std::process::id(), hard).unwrap_or_else(|error| panic!("limit {hard}: {error}"));
    hard
}

/// Runs `work` on `count` threads and returns what each gave.
pub(crate) fn together<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Checks that the connection still serves requests.
#[track_caller]
pub(crate) fn assert_serves(client: &mut Client, path: &str, text: &str) {
    let response = client.get(path);
    assert_eq!((response.status, response.text().as_str()), (200, text), "{response}");
}

/// Waits until the server has read all that `client` sent: a reset would take unread bytes away.
#[track_caller]
pub(crate) fn wait_taken(client: &Client) {
    let local = client.local_addr().port();
    let wanted = format!(":{local:04X}");
    wait_for("read by the server", || {
        let table = fs::read_to_string("/proc/net/tcp").expect("Linux has it");
        // Column 2 is the peer's address, column 4 "bytes unsent:bytes unread".
        let line = table
            .lines()
            .find(|line| line.split_whitespace().nth(2).is_some_and(|peer| peer.ends_with(&wanted)))?;
        line.split_whitespace().nth(4).is_some_and(|queues| queues.ends_with(":00000000")).then_some(())
    });
}

/// Ends what looks at the flag when its scope ends, by a panic too: a scope waits for its threads, and would for ever.
pub(crate) struct StopAtEnd<'t>(pub(crate) &'t AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Clients that ask all the time.
#[derive(Clone, Copy)]
pub(crate) struct Load<'t> {
    pub(crate) address: SocketAddr,
    pub(crate) stop: &'t AtomicBool,
    pub(crate) asked: &'t AtomicUsize,
}

impl Load<'_> {
    /// Sends requests until it is stopped, on one connection or on new ones; a connection may only end when a response
    /// says so.
    pub(crate) fn ask(self, keep: bool) {
        let mut client = Client::connect(self.address);
        while !self.stop.load(Ordering::Acquire) {
            client.send(get("/"));
            let answer = client.try_response();
            let response = answer.unwrap_or_else(|error| panic!("a failed request: {error}"));
            assert!(response.status == 200 && response.text().starts_with('v'), "{response}");
            if !keep || !response.keeps_alive() {
                client = Client::connect(self.address);
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}
