//! Idle connections that any worker may take: what overflows the workers' own [pools](crate::pool::worker_pool), and what they have
//! not used for a while.
//!
//! They are bare sockets, registered with no event loop. A worker that takes one peeks first whether its server has
//! closed it. The lock is held for a few instructions (9 ns without contention, a peek is 345, a connection 43,000), and
//! not taken at all where there is nothing to be had. It is only tried: a worker that has lost its core while it holds
//! the lock costs another one a new connection, and not the time until it is back.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use weir_rt::net::{SockAddr, is_silent};

use crate::connection::parked::ParkedSocket;
use weir_engine::worker::UpstreamCloseReason;

/// What becomes of the place that a connection had in its worker's own pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnPlace {
    /// The worker keeps it: it is full again, or needed.
    Kept,
    /// It stays empty and counts for all workers.
    Lent,
}

/// The connections of one upstream.
#[derive(Debug, Default)]
pub(crate) struct SharedIdle {
    /// As long as the list, for callers that only look.
    count: AtomicUsize,
    list: Mutex<IdleList>,
    /// When a worker swept it last, in milliseconds of the loops' clock.
    swept: AtomicU64,
}

#[derive(Debug, Default)]
struct IdleList {
    /// The one that is idle for the shortest time is last.
    parked: Vec<ParkedSocket>,
    /// How many there may be, not counting the places that are lent.
    most: usize,
    /// Places of workers' own pools that are empty because their connections are here.
    lent: usize,
}

impl IdleList {
    fn insert(&mut self, parked: ParkedSocket) {
        let at = self.parked.partition_point(|other| other.since <= parked.since);
        self.parked.insert(at, parked);
    }

    /// Takes out those beyond the limit that have been idle for longest.
    fn excess(&mut self) -> Vec<ParkedSocket> {
        let excess = self.parked.len().saturating_sub(self.most + self.lent);
        let excess: Vec<ParkedSocket> = self.parked.drain(..excess).collect();
        excess.iter().for_each(|parked| parked.end.ends(UpstreamCloseReason::KeepaliveFull));
        excess
    }
}

impl SharedIdle {
    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Adds one, which has left `place`. Beyond `most` and the places that are lent the oldest is closed.
    ///
    /// # Errors
    /// The one that was to be added: another thread holds the list.
    pub(crate) fn push(
        &self,
        parked: ParkedSocket,
        most: usize,
        place: OwnPlace,
    ) -> Result<(), ParkedSocket> {
        let mut parked = Some(parked);
        self.change(|list| {
            list.most = most;
            list.lent += usize::from(place == OwnPlace::Lent);
            parked.take().into_iter().for_each(|parked| list.insert(parked));
            list.excess()
        });
        parked.map_or(Ok(()), Err)
    }

    /// This many places are used by workers again; `false`: not yet.
    pub(crate) fn repay(&self, places: usize) -> bool {
        self.change(|list| {
            list.lent -= places.min(list.lent);
            list.excess()
        })
        .is_some()
    }

    /// One to `addr`, bound so, that its server has not closed, the newest; those that it has closed are closed here, too.
    pub(crate) fn take(&self, addr: &SockAddr, bind: Option<&SockAddr>) -> Option<ParkedSocket> {
        while !self.is_empty() {
            let found = self.change(|list| {
                let same = |parked: &ParkedSocket| parked.addr == *addr && parked.bind.as_ref() == bind;
                list.parked.iter().rposition(same).map(|at| list.parked.remove(at))
            })??;
            if is_silent(found.fd.as_raw_fd()) {
                return Some(found);
            }
            found.end.ends(UpstreamCloseReason::Idle);
        }
        None
    }

    /// Closes those for which `why` has a reason.
    pub(crate) fn close_where(&self, why: impl Fn(&ParkedSocket) -> Option<UpstreamCloseReason>) {
        let goes = |parked: &mut ParkedSocket| match why(parked) {
            Some(reason) => {
                parked.end.ends(reason);
                true
            }
            None => false,
        };
        self.change(|list| list.parked.extract_if(.., goes).collect::<Vec<_>>());
    }

    /// Whether this worker is to look for connections of no use: one of all does so, every `every` milliseconds.
    pub(crate) fn is_to_be_swept(&self, now: u64, every: u64) -> bool {
        let last = self.swept.load(Relaxed);
        // The workers' looks are `every` apart, too: half of it leaves none out.
        now.saturating_sub(last) >= every / 2
            && self.swept.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    /// Takes out those that their servers have closed. Each is missing while it is looked at; no lock is held.
    pub(crate) fn sweep(&self) -> Vec<ParkedSocket> {
        let (mut all_closed, mut at) = (Vec::new(), 0);
        loop {
            let block = self.change(|list| {
                let end = list.parked.len().min(at + BLOCK);
                list.parked.drain(at.min(end)..end).collect::<Vec<_>>()
            });
            let Some(block) = block.filter(|block| !block.is_empty()) else { return all_closed };
            let (good, closed): (Vec<_>, Vec<_>) =
                block.into_iter().partition(|parked| is_silent(parked.fd.as_raw_fd()));
            at += good.len();
            closed.iter().for_each(|parked| parked.end.ends(UpstreamCloseReason::Idle));
            all_closed.extend(closed);
            // What can't be put back is closed like what can't be parked.
            let mut good = good;
            for _ in 0..PUTS {
                let put = self.change(|list| {
                    good.drain(..).for_each(|parked| list.insert(parked));
                    list.excess()
                });
                if put.is_some() {
                    break;
                }
            }
            good.iter().for_each(|parked| parked.end.ends(UpstreamCloseReason::KeepaliveFull));
        }
    }

    /// Changes the list, unless another thread has held its lock for too long. What `change` returns is dropped, and
    /// with it closed, when the lock is free again.
    fn change<T>(&self, change: impl FnOnce(&mut IdleList) -> T) -> Option<T> {
        let mut list = self.list()?;
        let result = change(&mut list);
        self.count.store(list.parked.len(), Relaxed);
        drop(list);
        Some(result)
    }

    fn list(&self) -> Option<MutexGuard<'_, IdleList>> {
        for _ in 0..TRIES {
            match self.list.try_lock() {
                Ok(list) => return Some(list),
                Err(TryLockError::Poisoned(list)) => return Some(list.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}

impl Drop for SharedIdle {
    fn drop(&mut self) {
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        list.parked.iter().for_each(|parked| parked.end.ends(UpstreamCloseReason::Reload));
    }
}

/// How often the lock is tried: some microseconds, many times what a holder needs that runs.
const TRIES: usize = 200;
/// How often it is tried to put back what was looked at.
const PUTS: usize = 20;
/// This many connections are looked at together: ten microseconds.
const BLOCK: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use weir_engine::worker::{UpstreamCloseProtocol, UpstreamEnd};

    use super::*;

    fn parked_since(fd: OwnedFd, addr: SockAddr, since: u64) -> ParkedSocket {
        let end = UpstreamEnd::of(UpstreamCloseProtocol::Http1);
        ParkedSocket { fd, addr, bind: None, state: Arc::default(), requests: 1, opened: 0, since, end }
    }

    fn parked(port: u16) -> (ParkedSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let addr = format!("127.0.0.1:{port}").parse().expect("an address");
        (parked_since(ours.into(), addr, 0), theirs)
    }

    #[test]
    fn the_newest_is_taken_and_the_oldest_closed() {
        let common = SharedIdle::default();
        let (one, _a) = parked(1);
        let (two, b) = parked(2);
        let (three, _c) = parked(2);
        let addr = two.addr.clone();
        let newest = three.fd.as_raw_fd();
        [one, two, three]
            .into_iter()
            .for_each(|parked| assert!(common.push(parked, 2, OwnPlace::Kept).is_ok()));
        assert_eq!(common.count(), 2, "the oldest went");
        assert_eq!(common.take(&addr, None).map(|parked| parked.fd.as_raw_fd()), Some(newest));
        drop(b);
        assert!(common.take(&addr, None).is_none() && common.is_empty(), "its server has closed it");
    }

    #[test]
    fn those_of_servers_that_left_are_closed() {
        let common = SharedIdle::default();
        let ((one, _a), (two, _b)) = (parked(1), parked(2));
        let addr = one.addr.clone();
        assert!(common.push(one, 8, OwnPlace::Kept).is_ok() && common.push(two, 8, OwnPlace::Kept).is_ok());
        common.close_where(|parked| (parked.addr != addr).then_some(UpstreamCloseReason::Removed));
        assert_eq!(common.count(), 1);
    }

    /// A worker whose own connections are here may keep as many fewer, so that all together are never more than configured.
    #[test]
    fn places_are_lent_until_their_worker_uses_them_again() {
        let common = SharedIdle::default();
        let mut theirs = Vec::new();
        for (number, place) in
            [OwnPlace::Kept, OwnPlace::Kept, OwnPlace::Lent, OwnPlace::Lent].into_iter().enumerate()
        {
            let (one, end) = parked(u16::try_from(number).expect("a small number"));
            theirs.push(end);
            assert!(common.push(one, 2, place).is_ok());
        }
        assert_eq!(common.count(), 4);
        assert!(common.repay(1));
        assert_eq!(common.count(), 3);
        assert!(common.repay(9));
        assert_eq!(common.count(), 2);
    }

    #[test]
    fn a_sweep_finds_what_servers_have_closed_and_keeps_the_order() {
        let common = SharedIdle::default();
        let (mut theirs, mut gone) = (Vec::new(), Vec::new());
        for since in [3, 1, 2].into_iter().chain(4..100) {
            let (ours, end) = UnixStream::pair().expect("a pair");
            if since % 3 == 0 { &mut gone } else { &mut theirs }.push(end);
            let addr = "127.0.0.1:1".parse().expect("an address");
            assert!(common.push(parked_since(ours.into(), addr, since), 100, OwnPlace::Kept).is_ok());
        }
        drop(gone);
        assert_eq!(
            common.sweep().iter().map(|parked| parked.since).collect::<Vec<_>>(),
            (3..100).step_by(3).collect::<Vec<_>>()
        );
        let left: Vec<_> = common.list().expect("free").parked.iter().map(|parked| parked.since).collect();
        assert_eq!(left, (1..100).filter(|since| since % 3 != 0).collect::<Vec<_>>());
    }

    /// The lock of a worker that has lost its core is not waited for.
    #[test]
    fn a_held_lock_is_passed_by() {
        let common = SharedIdle::default();
        let ((one, _a), (two, _b)) = (parked(1), parked(2));
        let addr = one.addr.clone();
        assert!(common.push(one, 8, OwnPlace::Kept).is_ok());
        let held = common.list();
        assert!(
            common.take(&addr, None).is_none()
                && common.push(two, 8, OwnPlace::Lent).is_err()
                && !common.repay(1)
        );
        drop(held);
        assert!(common.take(&addr, None).is_some());
    }

    #[test]
    fn one_worker_sweeps_for_all() {
        let common = SharedIdle::default();
        assert!(common.is_to_be_swept(10_000, 500));
        assert!(!common.is_to_be_swept(10_100, 500));
        assert!(common.is_to_be_swept(10_490, 500));
    }
}
