//! How the descriptors of the process are shared out, so that a request that was accepted can be served.
//!
//! A connection of a client needs one descriptor, and its request may need another for an upstream server or a file.
//! Without a limit each descriptor that is freed goes to the next client that waits in a listener's queue: with 64
//! descriptors and 200 clients 198 requests got 502. So clients get no more than leaves a [reserve](DescriptorShares),
//! the rest waits in the kernel's queues, and connecting to an upstream server waits for a descriptor.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_rt::file::errno::{EMFILE, ENFILE};
use weir_rt::net::{self, SockAddr};
use weir_rt::process::{self, ResourceLimit};

use crate::log::{self, LogLevel};

/// The shares, of a limit (`RLIMIT_NOFILE`, which `worker_rlimit_nofile` sets) and what the process itself needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorShares {
    limit: u64,
    /// How many connections of clients there may be.
    clients: u64,
    /// Descriptors reserved for upstream connections and files.
    reserve: u64,
}

impl DescriptorShares {
    /// `own`: descriptors that are open before the first client comes.
    fn new(limit: u64, own: u64) -> DescriptorShares {
        let left = limit.saturating_sub(own);
        let reserve = (limit / 4).min(left / 2).min(RESERVE_MOST);
        DescriptorShares { limit, clients: left - reserve, reserve }
    }

    /// Numbers from this on are for files: a new descriptor has the lowest number that is free.
    fn upstreams_below(&self) -> u64 {
        self.limit - self.reserve / 4
    }
}

/// The most connections a worker may have, and what says so. As text: why there can be no more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// How many client connections a worker may have at once.
    pub most: u64,
    /// It is the descriptors that limit, not `worker_connections`.
    pub(crate) by_descriptors: bool,
}

impl ConnectionLimit {
    /// No limit on the number of connections.
    pub const NONE: ConnectionLimit = ConnectionLimit { most: u64::MAX, by_descriptors: false };

    /// The limit of each worker, where the configuration has `worker_connections`.
    pub fn of_worker(worker_connections: u64) -> ConnectionLimit {
        let share = of_clients();
        let by_descriptors = share < worker_connections;
        ConnectionLimit { most: share.min(worker_connections), by_descriptors }
    }

    /// Of which level it is to be logged that it is reached: those of nginx, for accept() and for connections.
    pub(crate) fn level(&self) -> LogLevel {
        if self.by_descriptors { LogLevel::Crit } else { LogLevel::Alert }
    }
}

impl fmt::Display for ConnectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SHARES.get().filter(|_| self.by_descriptors) {
            None => write!(f, "{} worker_connections are not enough", self.most),
            Some(DescriptorShares { limit, clients, reserve }) => write!(
                f,
                "accepting waits (24: Too many open files): {clients} connections and a reserve of {reserve} for upstreams \
                 and files are all that the limit of {limit} allows, raise worker_rlimit_nofile"
            ),
        }
    }
}

/// How many connections of clients each worker may have for want of descriptors.
pub(crate) fn of_clients() -> u64 {
    // Once for each connection, and nothing depends on its order to other memory.
    EACH.load(Ordering::Relaxed)
}

/// Divides the process's file descriptors (`RLIMIT_NOFILE`) among `workers`, a number of threads: sets how many client
/// connections each may have, at least 1. The first call measures; it comes when the process has opened all that it
/// needs itself, and before the first client. If the limit can't be read, it logs that at `alert`, and changes nothing.
pub fn share_out(workers: usize) {
    let measured = || {
        let (limit, _) = process::limit(ResourceLimit::OpenFiles)?;
        // The lowest number that is free, which says how many are open: nothing has been closed yet.
        let own = File::open("/")?.as_raw_fd().unsigned_abs();
        io::Result::Ok(DescriptorShares::new(limit, own.into()))
    };
    let shares = match SHARES.get().map_or_else(measured, |shares| Ok(*shares)) {
        Ok(shares) => *SHARES.get_or_init(|| shares),
        Err(error) => {
            log::cycle(LogLevel::Alert, &format_args!("the limit of open files can't be read: {error}"));
            return;
        }
    };
    EACH.store((shares.clients / workers.max(1) as u64).max(1), Ordering::Relaxed);
}

/// A socket for connecting to `addr`, as soon as there is a descriptor for it: for how long to wait is the caller's.
///
/// # Errors
/// The errno of socket(2), none for want of descriptors.
pub async fn socket_when_free(addr: &SockAddr) -> io::Result<OwnedFd> {
    made_when_free(|| net::stream_socket(addr)).await
}

/// As [`socket_when_free`], of datagrams.
///
/// # Errors
/// As [`socket_when_free`].
pub async fn datagrams_when_free(addr: &SockAddr) -> io::Result<OwnedFd> {
    made_when_free(|| net::datagram_socket(addr)).await
}

async fn made_when_free(make: impl Fn() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    let mut pause = FIRST_PAUSE;
    loop {
        match make() {
            Ok(socket) if !is_of_files(&socket) => return Ok(socket),
            Err(error) if !is_shortage(&error) => return Err(error),
            _ => {}
        }
        log_shortage();
        weir_rt::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn is_of_files(socket: &OwnedFd) -> bool {
    let number = u64::from(socket.as_raw_fd().unsigned_abs());
    SHARES.get().is_some_and(|shares| number >= shares.upstreams_below())
}

/// The process, or the system, has no descriptor left.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

fn log_shortage() {
    static LOGGED_MS: AtomicU64 = AtomicU64::new(0);
    let (now, before) = (weir_rt::clock::monotonic_ms(), LOGGED_MS.load(Ordering::Relaxed));
    if before != 0 && now < before + LOG_MS {
        return;
    }
    LOGGED_MS.store(now, Ordering::Relaxed);
    let limit = SHARES.get().map_or(0, |shares| shares.limit);
    let text = format_args!(
        "connecting to an upstream waits for a descriptor (24: Too many open files), the limit is {limit}, raise \
         worker_rlimit_nofile"
    );
    log::cycle(LogLevel::Crit, &text);
}

/// What was found at the start.
static SHARES: OnceLock<DescriptorShares> = OnceLock::new();
/// How many connections of clients each worker may have.
static EACH: AtomicU64 = AtomicU64::new(u64::MAX);

/// The largest reserve: a quarter of a million descriptors would not be what was asked for.
const RESERVE_MOST: u64 = 1024;
/// After how long a socket is tried again, first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_millis(32);
/// How often it is logged that connecting waits.
const LOG_MS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_and_never_more_than_half_of_what_is_left() {
        let shares = |limit, own| {
            let shares = DescriptorShares::new(limit, own);
            (shares.clients, shares.reserve, shares.upstreams_below())
        };
        assert_eq!(shares(64, 24), (24, 16, 60));
        assert_eq!(shares(1024, 24), (744, 256, 960));
        assert_eq!(shares(1_048_576, 30), (1_047_522, 1024, 1_048_320));
        assert_eq!(shares(40, 30), (5, 5, 39));
        assert_eq!(shares(20, 30), (0, 0, 20));
    }

    #[test]
    fn the_smaller_limit_counts_and_is_named() {
        let limit = ConnectionLimit { most: 8, by_descriptors: false };
        assert_eq!(limit.to_string(), "8 worker_connections are not enough");
        assert_eq!(ConnectionLimit::of_worker(512).most, 512);
        assert!(is_shortage(&io::Error::from_raw_os_error(24)));
    }
}
