//! Socket logs that modules write lines to, `weir.log` of scripts: one for each server, shared by all that name it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::writer;
use super::{HostNames, RemoteLog, SenderHandle};

/// A socket log. The caller that writes never waits: lines are queued, 8 MiB at most, and sent by a thread.
pub struct SocketLog {
    handle: SenderHandle,
    written: AtomicU64,
    dropped: AtomicU64,
}

/// What became of a log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLogState {
    /// Lines that were taken.
    pub written: u64,
    /// Number of lines that were dropped, since more than 8 MiB of them waited.
    pub dropped: u64,
    /// Bytes of lines that wait to be sent.
    pub waiting: u64,
    /// True when the server could be reached, or was not needed yet.
    pub up: bool,
}

/// All that were opened; one that is no longer used and has nothing queued is removed at the next opening.
static OPEN: Mutex<Vec<Arc<SocketLog>>> = Mutex::new(Vec::new());
/// Servers that logs may go to.
const SERVERS: usize = 256;

impl SocketLog {
    /// The log to `tcp://host:port`, `udp://host:port` or `unix:/path`.
    ///
    /// # Errors
    /// What is wrong with the name, or that there are too many logs.
    pub fn open(name: &str, names: HostNames) -> Result<Arc<SocketLog>, String> {
        let words = |what: &str| format!("{what} \"{name}\"");
        let remote =
            RemoteLog::read(name, names).map_err(words)?.ok_or_else(|| words("invalid log server"))?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.iter().find(|log| log.handle.0.remote.name == name) {
            return Ok(known.clone());
        }
        open.retain(|log| Arc::strong_count(log) > 1 || log.state().waiting > 0);
        if open.len() >= SERVERS {
            return Err("too many log servers".to_owned());
        }
        let log = Arc::new(SocketLog {
            handle: SenderHandle::new(&remote),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        open.push(log.clone());
        Ok(log)
    }

    /// Queues a line, which ends with its newline; `false`: too many wait, it is lost and counted.
    pub fn write(&self, line: &[u8]) -> bool {
        let sent = self.handle.send(line, writer::is_threaded()).is_ok();
        if sent { &self.written } else { &self.dropped }.fetch_add(1, Relaxed);
        sent
    }

    /// How many lines were taken and dropped so far, how many bytes wait, and whether the server is reached.
    pub fn state(&self) -> SocketLogState {
        let state = self.handle.0.lock();
        SocketLogState {
            written: self.written.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            waiting: state.bytes as u64,
            up: !state.down,
        }
    }
}

/// Waits until all is sent, as far as servers can be reached; `limit` each at most.
pub(crate) fn drain(limit: Duration) {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    open.iter().for_each(|log| log.handle.drain(limit));
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use weir_test::free_listener;

    use super::*;

    #[test]
    fn lines_arrive_and_the_same_server_is_the_same_log() {
        let listener = free_listener();
        let name = format!("tcp://{}", listener.local_addr().expect("bound"));
        let log = SocketLog::open(&name, HostNames::Refused).expect("a server");
        assert!(Arc::ptr_eq(&log, &SocketLog::open(&name, HostNames::Refused).expect("a server")));
        assert!(log.write(b"one\n") && log.write(b"two\n"));
        let (stream, _) = listener.accept().expect("connected");
        stream.set_read_timeout(Some(weir_test::DEADLINE)).expect("a socket");
        let lines: Vec<_> = BufReader::new(stream).lines().take(2).map(|line| line.expect("text")).collect();
        assert_eq!(lines, ["one", "two"]);
        assert_eq!((log.state().written, log.state().dropped), (2, 0));
    }

    #[test]
    fn what_does_not_fit_is_lost_and_counted() {
        let name = format!("tcp://{}", free_listener().local_addr().expect("bound"));
        let log = SocketLog::open(&name, HostNames::Refused).expect("a server");
        let line = [&[b'x'; (1 << 20) - 1][..], b"\n"].concat();
        let taken = (0..10).filter(|_| log.write(&line)).count();
        let state = log.state();
        assert_eq!((taken, state.written, state.dropped, state.waiting), (8, 8, 2, 8 << 20));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for (name, why) in [
            ("file", "invalid log server \"file\""),
            ("tcp://127.0.0.1", "no port in log server \"tcp://127.0.0.1\""),
            ("udp://name.example:1", "no address in log server \"udp://name.example:1\""),
            ("unix:", "invalid log server \"unix:\""),
        ] {
            assert_eq!(SocketLog::open(name, HostNames::Refused).err().as_deref(), Some(why));
        }
    }
}
