//! Idle connections that any worker may take: what overflows the workers' own [pools](super::pool).
//!
//! They are bare sockets, registered with no event loop. Whoever takes one peeks first whether its server has closed it.
//! The lock is held for a few instructions (9 ns without contention, a peek is 345, a connection 43,000), and not taken
//! at all where there is nothing to be had.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_rt::net::{SockAddr, is_silent};

/// The connections of one group.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// As long as the list, for those who only look.
    count: AtomicUsize,
    /// The one kept last is last.
    list: Mutex<Vec<Parked>>,
}

/// A connection that nobody watches.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) fd: OwnedFd,
    pub(super) addr: SockAddr,
    /// The local address that its server's `bind=` names.
    pub(super) bind: Option<SockAddr>,
    /// Requests it has taken.
    pub(super) requests: u64,
    /// Milliseconds of the loops' clock: when it was opened, and idle from.
    pub(super) opened: u64,
    pub(super) since: u64,
}

impl Common {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Adds one; beyond `most` the oldest is closed.
    pub(super) fn push(&self, parked: Parked, most: usize) {
        let evicted = {
            let mut list = self.list();
            let evicted = if list.len() >= most && !list.is_empty() { Some(list.remove(0)) } else { None };
            list.push(parked);
            self.count.store(list.len(), Relaxed);
            evicted
        };
        drop(evicted);
    }

    /// One to `addr`, bound so, that its server has not closed, the newest; those that it has closed are closed here, too.
    pub(super) fn take(&self, addr: &SockAddr, bind: Option<&SockAddr>) -> Option<Parked> {
        while !self.is_empty() {
            let found = {
                let mut list = self.list();
                let at =
                    list.iter().rposition(|parked| parked.addr == *addr && parked.bind.as_ref() == bind)?;
                let found = list.remove(at);
                self.count.store(list.len(), Relaxed);
                found
            };
            if is_silent(found.fd.as_raw_fd()) {
                return Some(found);
            }
        }
        None
    }

    /// Closes those that do not `stay`, and those that their servers have closed.
    pub(super) fn keep_only(&self, stay: impl Fn(&Parked) -> bool) {
        let closed = {
            let mut list = self.list();
            let all = std::mem::take(&mut *list);
            let good = |parked: &Parked| stay(parked) && is_silent(parked.fd.as_raw_fd());
            let (good, closed): (Vec<_>, Vec<_>) = all.into_iter().partition(good);
            *list = good;
            self.count.store(list.len(), Relaxed);
            closed
        };
        drop(closed);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Parked>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn parked(port: u16) -> (Parked, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let addr = format!("127.0.0.1:{port}").parse().expect("an address");
        (Parked { fd: ours.into(), addr, bind: None, requests: 1, opened: 0, since: 0 }, theirs)
    }

    #[test]
    fn the_newest_is_taken_and_the_oldest_closed() {
        let common = Common::default();
        let (one, _a) = parked(1);
        let (two, b) = parked(2);
        let (three, _c) = parked(2);
        let addr = two.addr.clone();
        let newest = three.fd.as_raw_fd();
        [one, two, three].into_iter().for_each(|parked| common.push(parked, 2));
        assert_eq!(common.list().len(), 2, "the oldest went");
        assert_eq!(common.take(&addr, None).map(|parked| parked.fd.as_raw_fd()), Some(newest));
        drop(b);
        assert!(common.take(&addr, None).is_none() && common.is_empty(), "its server has closed it");
    }

    #[test]
    fn those_of_servers_that_left_are_closed() {
        let common = Common::default();
        let ((one, _a), (two, _b)) = (parked(1), parked(2));
        let addr = one.addr.clone();
        common.push(one, 8);
        common.push(two, 8);
        common.keep_only(|parked| parked.addr == addr);
        assert_eq!(common.list().len(), 1);
    }
}
