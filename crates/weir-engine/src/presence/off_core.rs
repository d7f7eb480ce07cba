//! What a request's thread did not run while the request did, as far as the kernel was asked.

use std::cell::Cell;

/// Ticks asleep in calls that block and ticks ready without a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffCoreTicks {
    pub(crate) asleep: u64,
    pub(crate) no_core: u64,
}

impl OffCoreTicks {
    pub(crate) fn sum(self) -> u64 {
        self.asleep + self.no_core
    }

    fn plus(self, other: OffCoreTicks) -> OffCoreTicks {
        OffCoreTicks { asleep: self.asleep + other.asleep, no_core: self.no_core + other.no_core }
    }
}

/// Of one request: all of it, and of the stretch that it has to itself at present. That is asked for when the stretch ends, and
/// before, where the request's price is wanted while it runs (`$trace_cpu`).
#[derive(Debug, Default)]
pub(crate) struct OffCoreSums {
    all: Cell<OffCoreTicks>,
    stretch: Cell<OffCoreTicks>,
}

impl OffCoreSums {
    /// A request begins.
    #[inline]
    pub(crate) fn begin(&self) {
        self.all.set(OffCoreTicks::default());
        self.stretch.set(OffCoreTicks::default());
    }

    /// A stretch begins.
    pub(crate) fn resumed(&self) {
        self.stretch.set(OffCoreTicks::default());
    }

    /// So much was found since the last time. Returns what the stretch has lost so far.
    pub(crate) fn add(&self, found: OffCoreTicks) -> OffCoreTicks {
        self.all.set(self.all.get().plus(found));
        self.stretch.set(self.stretch.get().plus(found));
        self.stretch.get()
    }

    /// Of the request so far.
    pub(crate) fn all(&self) -> OffCoreTicks {
        self.all.get()
    }

    /// Of the stretch so far.
    pub(crate) fn stretch(&self) -> OffCoreTicks {
        self.stretch.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_what_all_its_stretches_lost() {
        let (sums, found) = (OffCoreSums::default(), |asleep, no_core| OffCoreTicks { asleep, no_core });
        assert_eq!(sums.add(found(5, 1)), found(5, 1));
        assert_eq!(sums.add(found(2, 0)), found(7, 1), "asked for in the middle");
        sums.resumed();
        assert_eq!(sums.add(found(0, 3)), found(0, 3));
        assert_eq!((sums.all(), sums.all().sum(), sums.stretch()), (found(7, 4), 11, found(0, 3)));
        sums.begin();
        assert_eq!((sums.all(), sums.stretch()), (found(0, 0), found(0, 0)));
    }
}
