//! The tasks, of any thread, that are notified when something about an upstream's servers changes.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::block::upstream::Upstream;

/// Counts what changes about the servers of an upstream: the list, settings, checks, failures that take one out.
#[derive(Default)]
pub(crate) struct ChangeNotice {
    count: AtomicU64,
    waiting: Mutex<NoticeWait>,
}

#[derive(Default)]
struct NoticeWait {
    made: u64,
    wakers: HashMap<u64, Waker>,
}

impl ChangeNotice {
    fn lock(&self) -> MutexGuard<'_, NoticeWait> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has changed.
    pub(crate) fn tell(&self) {
        let mut waiting = self.lock();
        self.count.fetch_add(1, Relaxed);
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_values().for_each(Waker::wake);
    }
}

impl fmt::Debug for ChangeNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count.fmt(f)
    }
}

/// A place among those that wait; it is given up when this is dropped.
struct NoticePlace<'g> {
    changes: &'g ChangeNotice,
    id: u64,
}

impl Drop for NoticePlace<'_> {
    fn drop(&mut self) {
        self.changes.lock().wakers.remove(&self.id);
    }
}

impl Upstream {
    /// How much has changed about its servers since it was made: another number means that something has.
    pub fn changes(&self) -> u64 {
        self.changes.count.load(Relaxed)
    }

    /// Has those look that wait in [`Upstream::changed`].
    pub fn wake_waiting(&self) {
        self.changes.tell();
    }

    /// Waits until [`Upstream::changes`] is no longer `seen`, and gives what it is then.
    pub async fn changed(self: Arc<Self>, seen: u64) -> u64 {
        let id = {
            let mut waiting = self.changes.lock();
            waiting.made += 1;
            waiting.made
        };
        let place = NoticePlace { changes: &self.changes, id };
        poll_fn(|cx| {
            let mut waiting = place.changes.lock();
            let now = place.changes.count.load(Relaxed);
            if now != seen {
                return Poll::Ready(now);
            }
            waiting.wakers.insert(id, cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::*;
    use crate::block::upstream::UpstreamOrigin;
    use crate::connection::keepalive_limits::KeepaliveLimits;
    use crate::peer::balance::BalanceMethod;
    use crate::peer::members::UpstreamMembers;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn who_waits_is_woken_once_and_who_left_is_not() {
        let upstream = Upstream::new(
            "u",
            BalanceMethod::RoundRobin,
            KeepaliveLimits::default(),
            UpstreamMembers::default(),
            UpstreamOrigin::Block,
        );
        let upstream = Arc::new(upstream);
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut waits = pin!(upstream.clone().changed(0));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        {
            let mut leaves = Box::pin(upstream.clone().changed(0));
            assert!(leaves.as_mut().poll(&mut cx).is_pending());
        }
        upstream.changes.tell();
        upstream.changes.tell();
        assert_eq!(count.0.load(Relaxed), 1);
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Ready(2));
        let mut late = pin!(upstream.clone().changed(1));
        assert_eq!(late.as_mut().poll(&mut cx), Poll::Ready(2));
    }
}
