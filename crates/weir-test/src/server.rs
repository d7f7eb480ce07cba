//! The real binary, started on a configuration text.

use std::fmt;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weir_sys::process::{ServerSignal, send_signal};

use crate::port::free_ports;
use crate::wait::poll_until;
use crate::{Client, ConnectionEnd, DEADLINE, Driver, Response, TempDir, conf, require_program, wait_for};

/// A running server; stopped by QUIT when dropped.
///
/// Dropping it fails the test when the server does not exit in time, or when its logs hold a line with `panicked`,
/// `[alert]` or `Sanitizer` that [`TestServerBuilder::allow`] does not allow.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Set once the process has been waited for.
    status: Option<ExitStatus>,
    dir: TempDir,
    ports: Vec<u16>,
    driver: Option<Driver>,
    http: String,
    master: bool,
    /// A signal may get lost: send it again (see [`nginx`]).
    insists: bool,
    allowed: Vec<String>,
}

impl Server {
    /// Starts the binary under test on `conf` and waits until it is ready.
    ///
    /// # Panics
    /// When there is no binary or it does not start, with what it says.
    #[must_use]
    #[track_caller]
    pub fn start(conf: &str) -> Self {
        Self::builder(conf).start()
    }

    /// As [`Self::start`], with the binary at `path`: `env!("CARGO_BIN_EXE_weir")` in the tests of its own crate.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    #[track_caller]
    pub fn start_bin(path: impl Into<PathBuf>, conf: &str) -> Self {
        Self::builder(conf).binary(path).start()
    }

    /// A server with more than a configuration text.
    #[must_use]
    #[track_caller]
    pub fn builder(conf: &str) -> TestServerBuilder {
        TestServerBuilder {
            conf: conf.to_owned(),
            binary: None,
            driver: Driver::current(),
            http: String::new(),
            master: std::env::var("WEIR_TEST_MASTER").as_deref() == Ok("on"),
            insists: false,
            dir: TempDir::new(),
            allowed: Vec::new(),
            environment: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// The server's directory: its prefix, with `nginx.conf`, `error.log`, `access.log` and `nginx.pid`.
    #[must_use]
    pub fn dir(&self) -> &TempDir {
        &self.dir
    }

    /// The port that `%%PORT_number%%` became.
    ///
    /// # Panics
    /// When the configuration has no such port.
    #[must_use]
    #[track_caller]
    pub fn port(&self, number: usize) -> u16 {
        self.ports[number]
    }

    /// The address of `%%PORT_number%%`.
    ///
    /// # Panics
    /// When the configuration has no such port.
    #[must_use]
    #[track_caller]
    pub fn addr(&self, number: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port(number)))
    }

    /// A new connection to the first port.
    ///
    /// # Panics
    /// When the connection is not accepted.
    #[must_use]
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.addr(0))
    }

    /// `GET path` on a connection of its own, which the request asks to close.
    ///
    /// # Panics
    /// When there is no right response.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.client().request(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Sends `bytes` on a connection of its own and returns all that comes until the server closes it.
    ///
    /// A server may close before it has read everything; whatever it sent is returned then too.
    ///
    /// # Panics
    /// When the server does not close, or resets: a client could lose the response (see [`Client::rest`] for tests of
    /// just that).
    #[track_caller]
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let mut client = self.client();
        // An early close shows in what is read below, as a reset or as a response cut short.
        let sent = client.try_send(bytes);
        let (received, end) = client.rest();
        let text = String::from_utf8_lossy(&received);
        assert!(end == ConnectionEnd::Closed, "connection reset behind {text:?}; sending: {sent:?}");
        received
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// When it has exited.
    #[track_caller]
    pub fn signal(&mut self, signal: ServerSignal) {
        assert!(self.exited().is_none(), "{signal:?}: the server has exited\n{}", self.logs());
        send_signal(self.pid(), signal).unwrap_or_else(|error| panic!("{signal:?}: {error}"));
    }

    /// Replaces the configuration (same directory, ports and driver) and asks the server to read it (HUP). The change
    /// shows in what it serves; wait for that with [`wait_for`].
    ///
    /// # Panics
    /// When the server has exited, or the text wants more ports than the first one.
    #[track_caller]
    pub fn reload(&mut self, text: &str) {
        assert!(conf::ports_wanted(text) <= self.ports.len(), "ports are chosen at the start");
        self.dir.write(CONF, self.complete(text));
        self.signal(ServerSignal::Hup);
    }

    /// Waits until the access log has `count` lines, and returns all it has.
    ///
    /// # Panics
    /// When they do not come.
    #[must_use]
    #[track_caller]
    pub fn access_log_lines(&self, count: usize) -> Vec<String> {
        let found = poll_until(DEADLINE, || {
            let lines = complete_lines(&self.dir.read(ACCESS_LOG));
            (lines.len() >= count).then_some(lines)
        });
        found.unwrap_or_else(|| {
            panic!("{count} lines of the access log wanted:\n{}{}", self.dir.read(ACCESS_LOG), self.logs())
        })
    }

    /// The error log as it is now.
    #[must_use]
    pub fn error_log(&self) -> String {
        self.dir.read(ERROR_LOG)
    }

    /// Waits for a line of the error log that contains `text`, and returns it.
    ///
    /// # Panics
    /// When it does not come.
    #[must_use]
    #[track_caller]
    pub fn error_log_line(&self, text: &str) -> String {
        let line = || complete_lines(&self.error_log()).into_iter().find(|line| line.contains(text));
        poll_until(DEADLINE, line).unwrap_or_else(|| panic!("no {text:?} in the error log\n{}", self.logs()))
    }

    /// What the process has written to its standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.dir.read(STDERR)
    }

    /// The process's number; the master's, if there is one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number of the process that has the connections: the master's child, or the one process.
    #[must_use]
    pub fn serving_pid(&self) -> u32 {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let is_server = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|title| title.starts_with(b"weir: server\0"))
        };
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_server).unwrap_or(pid)
    }

    /// Number of descriptors the serving process has open.
    ///
    /// # Panics
    /// When it has exited.
    #[must_use]
    #[track_caller]
    pub fn open_files(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.serving_pid());
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory}: {error}")).count()
    }

    /// Memory of the serving process that is in RAM, in bytes (`VmRSS`).
    ///
    /// # Panics
    /// When it has exited.
    #[must_use]
    #[track_caller]
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.serving_pid());
        let status = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.expect("a live process has resident memory") * 1024
    }

    /// Sends QUIT, waits until the process has exited, and gives its status.
    ///
    /// # Panics
    /// When it does not exit within the deadline (it is killed then).
    #[track_caller]
    pub fn quit(&mut self) -> ProcessExit {
        if self.exited().is_none() {
            self.signal(ServerSignal::Quit);
        }
        let end = Instant::now() + DEADLINE;
        while self.insists && Instant::now() < end && poll_until(INSIST_AFTER, || self.exited()).is_none() {
            // Not waited for yet, so the number is still its own.
            send_signal(self.pid(), ServerSignal::Quit).unwrap_or_else(|error| panic!("QUIT: {error}"));
        }
        self.wait_exit()
    }

    /// Waits until the process has exited by itself or by a signal sent before.
    ///
    /// # Panics
    /// When it does not within the deadline (it is killed then).
    #[track_caller]
    pub fn wait_exit(&mut self) -> ProcessExit {
        if poll_until(DEADLINE, || self.exited()).is_none() {
            self.kill();
            panic!("the server did not exit within {DEADLINE:?}\n{}", self.logs());
        }
        ProcessExit::of(&self.dir, self.status.expect("it was just seen"))
    }

    fn complete(&self, text: &str) -> String {
        let full = conf::complete(text, &self.http, self.dir.path(), &self.ports, self.driver, self.master);
        if self.insists { full } else { ended_with_master(full) }
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("it is our child");
        }
        self.status
    }

    fn kill(&mut self) {
        // An error says that it exited meanwhile, which waiting shows as well.
        let _ = self.child.kill();
        self.status = self.child.wait().ok();
    }

    fn logs(&self) -> String {
        format!("--- stderr\n{}--- error.log\n{}---", self.stderr(), tail(&self.error_log()))
    }

    fn forbidden_line(&self) -> Option<String> {
        let text = self.error_log() + &self.stderr();
        let bad = |line: &&str| FORBIDDEN.iter().any(|word| line.contains(word));
        let allowed = |line: &&str| self.allowed.iter().any(|text| line.contains(text.as_str()));
        text.lines().filter(bad).find(|line| !allowed(line)).map(str::to_owned)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            self.kill();
            eprintln!("{}", self.logs());
            return;
        }
        self.quit();
        if let Some(line) = self.forbidden_line() {
            panic!("in the log: {line}\n{}", self.logs());
        }
    }
}

/// A server to be started.
#[derive(Debug)]
pub struct TestServerBuilder {
    conf: String,
    binary: Option<PathBuf>,
    driver: Option<Driver>,
    http: String,
    master: bool,
    insists: bool,
    dir: TempDir,
    allowed: Vec<String>,
    environment: Vec<(String, String)>,
    /// Options of the shell's `ulimit`, and their values.
    limits: Vec<(char, u64)>,
}

impl TestServerBuilder {
    /// The binary to start instead of the usual one.
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// The event driver, instead of [`Driver::current`].
    #[must_use]
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = Some(driver);
        self
    }

    /// Puts directives at the beginning of the `http` block; what the text says itself comes after them.
    #[must_use]
    pub fn http(mut self, directives: &str) -> Self {
        self.http.push_str(&format!(" {directives}"));
        self
    }

    /// Puts a file into the server's directory.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    #[track_caller]
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.dir.write(name, content);
        self
    }

    /// Allows lines of the log that contain `text` although they would fail the test.
    #[must_use]
    pub fn allow(mut self, text: &str) -> Self {
        self.allowed.push(text.to_owned());
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server with this limit of open files. (Set later, by [`limit_open_files`](crate::limit_open_files),
    /// it does not count for accepts that io_uring has under way.)
    #[must_use]
    pub fn open_files(mut self, limit: u64) -> Self {
        self.limits.push(('n', limit));
        self
    }

    /// Starts the server with this limit of a file's size, in blocks of 512 bytes.
    #[must_use]
    pub fn file_blocks(mut self, limit: u64) -> Self {
        self.limits.push(('f', limit));
        self
    }

    /// The server's directory, to prepare more than files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Panics
    /// When it does not start, with what it says.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|exit| panic!("the server did not start: {exit}"))
    }

    /// Starts the server; for configurations that may be wrong.
    ///
    /// # Errors
    /// [`ProcessExit`] when it exits before it is ready.
    ///
    /// # Panics
    /// When there is no binary, or it neither gets ready nor exits.
    #[track_caller]
    pub fn try_start(self) -> Result<Server, ProcessExit> {
        let mut tries = 1;
        let (child, ports) = loop {
            let ports = free_ports(conf::ports_wanted(&self.conf));
            match self.start_once(&ports) {
                Ok(child) => break (child, ports),
                Err(exit) if tries < PORT_TRIES && exit.lost_a_port(&ports) => {
                    eprintln!("a port was taken meanwhile: trying others");
                    self.dir.write(ERROR_LOG, "");
                    tries += 1;
                }
                Err(exit) => return Err(exit),
            }
        };
        let Self { dir, driver, http, master, insists, allowed, .. } = self;
        Ok(Server { child, status: None, dir, ports, driver, http, master, insists, allowed })
    }

    /// Runs the binary on this configuration with further `arguments` (`-t`, `-T`, …) until it exits.
    ///
    /// # Panics
    /// When there is no binary, or it does not exit within the deadline.
    #[must_use]
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> ProcessExit {
        let ports = free_ports(conf::ports_wanted(&self.conf));
        let mut child = self.spawn(&ports, arguments);
        let status = poll_until(DEADLINE, || child.try_wait().expect("it is our child"));
        let Some(status) = status else {
            // It may exit between the last look and this line.
            let _ = child.kill();
            panic!("{arguments:?} did not exit within {DEADLINE:?}");
        };
        ProcessExit::of(&self.dir, status)
    }

    #[track_caller]
    fn start_once(&self, ports: &[u16]) -> Result<Child, ProcessExit> {
        let mut child = self.spawn(ports, &[]);
        let status = wait_for("pid file", || {
            let ready = self.dir.read(PID).ends_with('\n');
            if ready { Some(None) } else { child.try_wait().expect("it is our child").map(Some) }
        });
        match status {
            None => Ok(child),
            Some(status) => Err(ProcessExit::of(&self.dir, status)),
        }
    }

    #[track_caller]
    fn spawn(&self, ports: &[u16], arguments: &[&str]) -> Child {
        let Self { conf, http, driver, master, .. } = self;
        let full = conf::complete(conf, http, self.dir.path(), ports, *driver, *master);
        self.dir.write(CONF, if self.insists { full } else { ended_with_master(full) });
        fs::create_dir_all(self.dir.path().join("logs"))
            .unwrap_or_else(|error| panic!("mkdir logs: {error}"));
        let binary = self.binary.clone().unwrap_or_else(binary_under_test);
        let output = |name| File::create(self.dir.path().join(name)).expect("the folder is ours");
        let mut command = Command::new(&binary);
        if !self.limits.is_empty() {
            let limits: String =
                self.limits.iter().map(|(option, limit)| format!("ulimit -{option} {limit} && ")).collect();
            command = Command::new("sh");
            command.args(["-c", &format!("{limits}exec \"$0\" \"$@\"")]).arg(&binary);
        }
        command
            .arg("-p")
            .arg(format!("{}/", self.dir.path().display()))
            .args(["-c", CONF, "-e", ERROR_LOG])
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output(STDOUT))
            .stderr(output(STDERR))
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", binary.display()))
    }
}

/// The real nginx on `conf`, for comparing with it; `None` (with the reason printed) where it is not installed.
///
/// Its temporary paths are in the server's directory, since those of a packaged nginx belong to root. QUIT is repeated
/// until it exits: without a master nginx looks for signals only after an event, and one that comes between that look
/// and its wait is not seen until the next event.
///
/// # Panics
/// When it is not installed and `WEIR_REQUIRE=all`.
#[must_use]
#[track_caller]
pub fn nginx(conf: &str) -> Option<TestServerBuilder> {
    let nginx = require_program("nginx")?;
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: Vec<_> = paths.iter().map(|name| format!("{name}_temp_path %%DIR%%/{name}_temp;")).collect();
    let builder = Server::builder(conf).binary(nginx).driver(Driver::Epoll).http(&paths.join(" "));
    Some(TestServerBuilder { insists: true, master: false, ..builder })
}

/// How a process ended, and what it left.
#[derive(Clone, Debug)]
pub struct ProcessExit {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The error log.
    pub error_log: String,
}

impl ProcessExit {
    fn of(dir: &TempDir, status: ExitStatus) -> Self {
        let (stdout, stderr) = (dir.read(STDOUT), dir.read(STDERR));
        Self { status, stdout, stderr, error_log: dir.read(ERROR_LOG) }
    }

    /// nginx's and Weir's words for a bind that failed, on a port that we chose.
    fn lost_a_port(&self, ports: &[u16]) -> bool {
        let said = format!("{}{}", self.stderr, self.error_log);
        let taken = |line: &str| line.contains("bind()") && line.contains("(98: ");
        let ours = |line: &str| ports.iter().any(|port| line.contains(&format!(":{port} ")));
        said.lines().any(|line| taken(line) && ours(line))
    }
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- stderr\n{}--- error.log\n{}---", self.status, self.stderr, tail(&self.error_log))
    }
}

impl std::error::Error for ProcessExit {}

/// `WEIR_BIN`, else `weir` beside the directory of the test executable: `target/debug/weir` for
/// `target/debug/deps/some_test-0123`.
#[track_caller]
fn binary_under_test() -> PathBuf {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("Linux knows it");
    let beside = test.ancestors().skip(1).take(2).map(|dir| dir.join("weir")).find(|path| path.is_file());
    beside.unwrap_or_else(|| panic!("no weir near {}: build it, or set WEIR_BIN", test.display()))
}

/// The text for a server that ends with its master, which a failed test kills, unless it says what it does then.
fn ended_with_master(text: String) -> String {
    let is_weir = std::env::var_os("WEIR_BIN").is_none_or(|path| path.to_string_lossy().ends_with("weir"));
    let has_master = text.contains("master_process on") && !text.contains("master_gone");
    if has_master && is_weir { format!("master_gone quit; {text}") } else { text }
}

/// Lines that are ended; the last one may still be under way.
fn complete_lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

/// The last lines of a log, for a failed test's output.
fn tail(text: &str) -> String {
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].concat()
}

const CONF: &str = "nginx.conf";
const PID: &str = "nginx.pid";
const ERROR_LOG: &str = "error.log";
const ACCESS_LOG: &str = "access.log";
const STDOUT: &str = "stdout.log";
const STDERR: &str = "stderr.log";
/// What no test may leave in a log: a panic, nginx's word for a bug of its own, a sanitizer's finding.
const FORBIDDEN: [&str; 3] = ["panicked", "[alert]", "Sanitizer"];
/// Starts until a lost port is an error: each loss is already rare.
const PORT_TRIES: usize = 5;
const INSIST_AFTER: Duration = Duration::from_millis(300);
const LINES_SHOWN: usize = 60;

#[cfg(test)]
mod tests;
