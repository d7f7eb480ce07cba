//! How long a server leaves an idle connection open, learned from those that it closed: closing first loses no request
//! to a connection that was closed while the request was on its way.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What is known of a server. Written only when it closes a connection.
#[derive(Debug, Default)]
pub struct IdleTime {
    /// Milliseconds after which it closed a connection last; 0: it never did.
    last: AtomicU64,
    /// Milliseconds after which it closes them, as two agreed; 0: not known.
    learned: AtomicU64,
    /// The second of the system's monotonic clock in which that was learned.
    at: AtomicU64,
}

impl IdleTime {
    /// The server closed a connection that had been idle for `ms`. Two that agree within a quarter are believed; one
    /// alone may be a restart.
    pub(crate) fn closed_after(&self, ms: u64) {
        if ms < SHORTEST {
            return;
        }
        let last = self.last.swap(ms, Relaxed);
        if last.abs_diff(ms) <= last.max(ms) / 4 {
            self.learned.store(last.min(ms), Relaxed);
            self.at.store(seconds(), Relaxed);
        }
    }

    /// Milliseconds of idleness after which to close a connection before the server does: the learned time less a tenth
    /// and less [`LOOK`], but at least half of it. `None` if nothing was learned in the last [`MEMORY`] seconds: the
    /// server may have another configuration by now.
    pub fn limit(&self) -> Option<u64> {
        let learned = self.learned.load(Relaxed);
        if learned == 0 {
            return None;
        }
        if seconds().saturating_sub(self.at.load(Relaxed)) > MEMORY {
            self.learned.store(0, Relaxed);
            return None;
        }
        Some((learned - learned / 10).saturating_sub(LOOK).max(learned / 2))
    }
}

fn seconds() -> u64 {
    weir_rt::clock::monotonic_ns() / 1_000_000_000
}

/// Connections that end sooner prove nothing: the server may close after every response.
const SHORTEST: u64 = 100;
/// Seconds.
const MEMORY: u64 = 600;

/// Milliseconds between two looks at idle connections, at most.
pub(crate) const LOOK: u64 = 500;

#[cfg(test)]
mod tests {
    use super::IdleTime;

    #[test]
    fn two_that_agree_are_believed() {
        let idle = IdleTime::default();
        for (ms, limit) in [
            (50, None),
            (5_000, None),
            (300, None),
            (5_100, None),
            (5_400, Some(4_090)),
            (90_000, Some(4_090)),
        ] {
            idle.closed_after(ms);
            assert_eq!(idle.limit(), limit, "{ms}");
        }
        idle.closed_after(80_000);
        assert_eq!(idle.limit(), Some(71_500));
    }
}
