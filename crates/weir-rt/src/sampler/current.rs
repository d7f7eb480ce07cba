//! Where a thread is, in three words that the signal handler and the watchdog read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The place and the request a thread works on. One thread writes, by relaxed stores; its signal handler and other
/// threads read. Nothing is ordered: a reader may see the place of one instant and the request of the next.
#[derive(Debug, Default)]
pub struct CurrentWork {
    /// Site in the low 16 bits, route above it.
    place: AtomicU64,
    request: [AtomicU64; 2],
}

/// Sites by number, 0 for none, as the engine that writes them counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SitePlace {
    /// The innermost phase, handler, filter or step; 0 between those.
    pub site: u16,
    /// The location's site; 0 before it is known.
    pub route: u16,
}

impl SitePlace {
    #[inline]
    pub(super) fn pack(self) -> u64 {
        u64::from(self.site) | u64::from(self.route) << 16
    }

    #[inline]
    pub(super) fn unpack(word: u64) -> SitePlace {
        SitePlace { site: word as u16, route: (word >> 16) as u16 }
    }
}

impl CurrentWork {
    pub(super) const fn new() -> CurrentWork {
        CurrentWork { place: AtomicU64::new(0), request: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// From here on the thread is at `place`: one store.
    #[inline]
    pub fn set(&self, place: SitePlace) {
        self.place.store(place.pack(), Relaxed);
    }

    /// From here on it works for that request; 0 for none. Two stores.
    #[inline]
    pub fn set_request(&self, id: u128) {
        self.request[0].store((id >> 64) as u64, Relaxed);
        self.request[1].store(id as u64, Relaxed);
    }

    /// Notes that the thread works for no request: the loop itself runs.
    #[inline]
    pub fn clear(&self) {
        self.place.store(0, Relaxed);
        self.set_request(0);
    }

    /// The place that was set last.
    #[inline]
    pub fn place(&self) -> SitePlace {
        SitePlace::unpack(self.place.load(Relaxed))
    }

    /// The request that was set last; 0 for none.
    #[inline]
    pub fn request(&self) -> u128 {
        u128::from(self.request[0].load(Relaxed)) << 64 | u128::from(self.request[1].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_read_until_it_is_cleared() {
        let current = CurrentWork::new();
        let place = SitePlace { site: u16::MAX, route: 0x1234 };
        current.set(place);
        current.set_request(u128::MAX - 7);
        assert_eq!((current.place(), current.request()), (place, u128::MAX - 7));
        current.clear();
        assert_eq!((current.place(), current.request()), (SitePlace::default(), 0));
    }
}
