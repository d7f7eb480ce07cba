//! Logs to a socket: `tcp://host:port`, `udp://host:port`, `unix:/path`. Lines are text with their newlines, as in a
//! file; a datagram holds as many whole lines as fit.
//!
//! A loop of its own, one thread for all such logs, sends what the log thread gives it (`sender.rs`): a server that is
//! slow or gone holds up neither requests nor other logs. What waits is bounded, [`MOST`]; what does not fit is lost and
//! counted like lines of a full disk.

mod lines;
mod sender;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_conf::{Error, LineCx};
use weir_rt::net::SockAddr;

use crate::privileged;

pub(super) use lines::drain;
pub use lines::{SocketLog, SocketLogState};

/// Where a socket log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLog {
    /// As written.
    name: String,
    server: SockAddr,
    /// Datagrams.
    udp: bool,
}

/// What is done with a host that is a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostNames {
    /// The system is asked for its address, and waited for.
    LookedUp,
    /// It is an error.
    Refused,
}

impl RemoteLog {
    /// Reads argument 0 if it names a socket.
    ///
    /// # Errors
    /// `host not found in log server "x"`, `no port in log server "x"`.
    pub fn parse(line: &LineCx<'_>) -> Result<Option<RemoteLog>, Error> {
        let name = line.arg(0);
        RemoteLog::read(name, HostNames::LookedUp)
            .map_err(|what| line.fail_arg(0, format!("{what} \"{name}\"")))
    }

    /// The server that `name` names, if it is one.
    fn read(name: &str, names: HostNames) -> Result<Option<RemoteLog>, &'static str> {
        let (udp, rest) = match (name.strip_prefix("tcp://"), name.strip_prefix("udp://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ if name.starts_with("unix:") => {
                let server = name.parse().map_err(|_| "invalid log server")?;
                return Ok(Some(RemoteLog { name: name.to_owned(), server, udp: false }));
            }
            _ => return Ok(None),
        };
        let port = rest.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        port.filter(|port| *port > 0).ok_or("no port in log server")?;
        let server: SocketAddr = match rest.parse() {
            Ok(address) => address,
            Err(_) if names == HostNames::Refused => return Err("no address in log server"),
            Err(_) => {
                let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
                let found = port.and_then(|port| privileged::look_up(host, port).ok());
                found.and_then(|found| found.first().copied()).ok_or("host not found in log server")?
            }
        };
        Ok(Some(RemoteLog { name: name.to_owned(), server: server.into(), udp }))
    }

    fn connect(&self) -> io::Result<RemoteConnection> {
        let ip = |server: SocketAddr| match self.udp {
            true => {
                let socket = UdpSocket::bind((if server.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
                socket.connect(server)?;
                Ok(RemoteConnection::Udp(socket))
            }
            false => {
                let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(RemoteConnection::Tcp(stream))
            }
        };
        match &self.server {
            SockAddr::V4(server) => ip((*server).into()),
            SockAddr::V6(server) => ip((*server).into()),
            SockAddr::Unix(server) => {
                let stream = match (server.path(), server.abstract_name()) {
                    (Some(path), _) => UnixStream::connect(path)?,
                    (None, Some(name)) => {
                        UnixStream::connect_addr(&unix::SocketAddr::from_abstract_name(name)?)?
                    }
                    (None, None) => return Err(ErrorKind::InvalidInput.into()),
                };
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(RemoteConnection::Unix(stream))
            }
        }
    }
}

impl std::fmt::Display for RemoteLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A socket log that is open: its queue, which a task of the loop empties.
struct LogSender {
    remote: RemoteLog,
    state: Mutex<SenderState>,
    /// The caller that waits for the end of what waits to be sent.
    changed: Condvar,
    /// The first pause after a failure, and the longest.
    pauses: RetryPauses,
}

#[derive(Default)]
struct SenderState {
    /// Whole lines.
    queue: VecDeque<Vec<u8>>,
    /// Bytes in the queue and in what is being sent.
    bytes: usize,
    /// The task was started.
    runs: bool,
    /// It was notified that there is something to do, and has not looked since.
    reported: bool,
    /// The server can't be reached.
    down: bool,
    /// How often it could not be reached in a row.
    failures: u32,
    /// Lines that did not fit since it could not be reached.
    lost: u64,
    /// The log is closed: the task ends when nothing waits.
    closed: bool,
}

/// Pauses between attempts to reach a log server: doubled from the shortest to the longest.
#[derive(Clone, Copy)]
struct RetryPauses {
    shortest: Duration,
    longest: Duration,
}

/// Ends the sender's task with the log.
pub(super) struct SenderHandle(Arc<LogSender>);

impl SenderHandle {
    pub(super) fn new(remote: &RemoteLog) -> SenderHandle {
        SenderHandle::pausing(remote, RetryPauses { shortest: SHORTEST, longest: LONGEST })
    }

    fn pausing(remote: &RemoteLog, pauses: RetryPauses) -> SenderHandle {
        let (state, changed) = (Mutex::default(), Condvar::new());
        SenderHandle(Arc::new(LogSender { remote: remote.clone(), state, changed, pauses }))
    }

    /// Queues whole lines.
    ///
    /// # Errors
    /// `ENOBUFS` when too many wait; what starting the loop failed with; without threads, what sending failed with.
    pub(super) fn send(&self, bytes: &[u8], threaded: bool) -> io::Result<()> {
        if !threaded {
            return self.0.remote.connect()?.send(bytes).map_err(|(error, _)| error);
        }
        let mut state = self.0.lock();
        if state.bytes + bytes.len() > MOST {
            state.lost += lines(bytes);
            return Err(io::Error::from_raw_os_error(ENOBUFS));
        }
        if !state.runs {
            sender::start(&self.0)?;
            state.runs = true;
        }
        state.bytes += bytes.len();
        state.queue.push_back(bytes.to_vec());
        if !std::mem::replace(&mut state.reported, true) {
            sender::wake(&self.0);
        }
        Ok(())
    }

    /// Waits until all is sent, or the server can't be reached; `limit` at most.
    pub(super) fn drain(&self, limit: Duration) {
        let waits = |state: &mut SenderState| state.runs && state.bytes > 0 && !state.down;
        drop(self.0.changed.wait_timeout_while(self.0.lock(), limit, waits));
    }
}

impl Drop for SenderHandle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        if state.runs {
            sender::wake(&self.0);
        }
    }
}

impl LogSender {
    fn lock(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket of a process that has no threads yet.
enum RemoteConnection {
    Tcp(TcpStream),
    Udp(UdpSocket),
    Unix(UnixStream),
}

impl RemoteConnection {
    /// Sends all of `bytes`; else how many were sent.
    fn send(&mut self, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
        match self {
            RemoteConnection::Tcp(stream) => write_all(stream, bytes),
            RemoteConnection::Unix(stream) => write_all(stream, bytes),
            RemoteConnection::Udp(socket) => {
                let mut sent = 0;
                while sent < bytes.len() {
                    let datagram = datagram(&bytes[sent..]);
                    socket.send(datagram).map_err(|error| (error, sent))?;
                    sent += datagram.len();
                }
                Ok(())
            }
        }
    }
}

fn write_all(stream: &mut impl Write, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err((ErrorKind::WriteZero.into(), sent)),
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((error, sent)),
        }
    }
    Ok(())
}

/// The lines at the beginning of `bytes` that a datagram takes. A line that is longer goes alone.
fn datagram(bytes: &[u8]) -> &[u8] {
    let length = match whole_lines(bytes, DATAGRAM.min(bytes.len())) {
        0 => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
        lines => lines,
    };
    &bytes[..length]
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The length of the whole lines in the first `length` bytes.
fn whole_lines(bytes: &[u8], length: usize) -> usize {
    bytes[..length].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Bytes that wait for one server.
const MOST: usize = 8 << 20;
/// Bytes that are sent at once.
const BATCH: usize = 64 << 10;
/// Bytes of a datagram that passes any network whole.
const DATAGRAM: usize = 1400;
/// How long a server may take to accept a connection, or bytes.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause after a failure, and the longest.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// No buffer space available.
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use weir_test::free_listener;

    use super::*;

    fn remote(udp: bool, server: SocketAddr) -> RemoteLog {
        RemoteLog { name: format!("test://{server}"), server: server.into(), udp }
    }

    fn received(stream: TcpStream, count: usize) -> Vec<String> {
        stream.set_read_timeout(Some(weir_test::DEADLINE)).expect("a socket");
        BufReader::new(stream).lines().take(count).map(|line| line.expect("a line")).collect()
    }

    #[test]
    fn lines_wait_for_a_server_that_is_down_and_come_in_order() {
        let listener = free_listener();
        let server = listener.local_addr().expect("bound");
        let handle = SenderHandle::new(&remote(false, server));
        handle.send(b"1\n", true).expect("room");
        let (first, _) = listener.accept().expect("connected");
        assert_eq!(received(first, 1), ["1"], "and closed");
        drop(listener);
        handle.send(b"2\n", true).expect("room");
        handle.send(b"3\n4\n", true).expect("room");
        wait_while(&handle, |state| !state.down);
        let listener = TcpListener::bind(server).expect("its port again");
        let (second, _) = listener.accept().expect("connected again");
        assert_eq!(received(second, 3), ["2", "3", "4"]);
        wait_while(&handle, |state| state.bytes > 0 || state.down);
    }

    /// A minute is six hundred of the shortest pauses: here they are short.
    #[test]
    fn a_server_that_is_down_for_long_gets_what_fits_when_it_is_back() {
        let listener = free_listener();
        let server = listener.local_addr().expect("bound");
        drop(listener);
        let pauses = RetryPauses { shortest: Duration::from_micros(100), longest: Duration::from_millis(2) };
        let handle = SenderHandle::pausing(&remote(false, server), pauses);
        let batch = |from: usize| (from..from + 1000).map(|n| format!("{n:0>1023}\n")).collect::<String>();
        let mut sent = 0;
        while handle.send(batch(sent).as_bytes(), true).is_ok() {
            sent += 1000;
        }
        assert_eq!(sent, 8000, "a thousand lines are 1,024,000 bytes, eight times that fit into 8 MiB");
        wait_while(&handle, |state| state.failures < 600);
        assert!(handle.send(batch(sent).as_bytes(), true).is_err());
        {
            let state = handle.0.lock();
            assert_eq!((state.lost, state.bytes), (2000, 8000 * 1024));
        }
        let listener = TcpListener::bind(server).expect("its port again");
        let (stream, _) = listener.accept().expect("connected");
        let got = received(stream, sent);
        assert_eq!(got.len(), sent);
        assert!(
            got.iter().enumerate().all(|(n, line)| *line == format!("{n:0>1023}")),
            "in order, each once"
        );
        wait_while(&handle, |state| state.bytes > 0 || state.down || state.lost > 0);
    }

    #[test]
    fn a_slow_server_and_one_that_is_gone_hold_up_no_other() {
        let slow = free_listener();
        let gone = free_listener().local_addr().expect("bound");
        let slow_log = SenderHandle::new(&remote(false, slow.local_addr().expect("bound")));
        let gone_log = SenderHandle::new(&remote(false, gone));
        for handle in [&slow_log, &gone_log] {
            (0..7).for_each(|_| handle.send(&b"0123456\n".repeat(1 << 17), true).expect("room"));
        }
        let listener = free_listener();
        let handle = SenderHandle::new(&remote(false, listener.local_addr().expect("bound")));
        handle.send(b"at once\n", true).expect("room");
        assert_eq!(received(listener.accept().expect("connected").0, 1), ["at once"]);
        drop(slow);
    }

    /// Draining does not wait for a server that is down, as this one is until the loop has noticed.
    fn wait_while(handle: &SenderHandle, mut so: impl FnMut(&mut SenderState) -> bool) {
        let sender = &handle.0;
        let waited = sender.changed.wait_timeout_while(sender.lock(), weir_test::DEADLINE, &mut so);
        assert!(!waited.expect("not poisoned").1.timed_out());
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_lost_is_counted() {
        let listener = free_listener();
        let server = listener.local_addr().expect("bound");
        drop(listener);
        let handle = SenderHandle::new(&remote(false, server));
        let batch = b"0123456\n".repeat(1 << 17);
        let refused = (0..10).filter(|_| handle.send(&batch, true).is_err()).count();
        assert_eq!(refused, 2, "ten of one MiB into eight");
        let state = handle.0.lock();
        assert_eq!((state.lost, state.bytes), (2 << 17, MOST));
    }

    #[test]
    fn a_datagram_has_whole_lines() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(weir_test::DEADLINE)).expect("a socket");
        let handle = SenderHandle::new(&remote(true, socket.local_addr().expect("bound")));
        let long = format!("{}\n", "x".repeat(2000));
        let text = "0123456789abcdef012345678901234\n".repeat(50) + &long + "end\n";
        handle.send(text.as_bytes(), true).expect("room");
        let mut got = Vec::new();
        let mut sizes = Vec::new();
        while got.len() < text.len() {
            let mut datagram = [0; 4096];
            let size = socket.recv(&mut datagram).expect("a datagram");
            assert_eq!(datagram[size - 1], b'\n');
            got.extend_from_slice(&datagram[..size]);
            sizes.push(size);
        }
        assert_eq!((got, sizes), (text.into_bytes(), vec![1376, 224, 2001, 4]));
    }
}
