//! TLS handshakes of clients, all workers added up: for `tls`, `/metrics` and `weir why`.

use std::collections::BTreeMap;

use weir_engine::worker::{FULL, HandshakeCounters, HandshakeFault, HandshakeTrait};
use weir_trace::Histogram;

use crate::source::WorkerThread;

/// What was counted until one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandshakeCounts {
    traits: BTreeMap<(u8, &'static str), u64>,
    faults: BTreeMap<HandshakeFault, u64>,
    /// How long complete ones took, in ticks: full ones, and those that resumed a session.
    pub(crate) times: [Histogram; 2],
}

impl HandshakeCounts {
    /// What `workers` have counted.
    pub(crate) fn of(workers: &[WorkerThread]) -> HandshakeCounts {
        let mut all = HandshakeCounts::default();
        for worker in workers {
            let Some(counters) = worker.counters.handshakes_so_far() else { continue };
            all.add(counters);
            let times = worker.recorder.handshakes();
            all.times.iter_mut().zip(&times).for_each(|(sum, times)| sum.merge(times));
        }
        all
    }

    fn add(&mut self, counters: &HandshakeCounters) {
        for of in HandshakeTrait::ALL {
            for (value, count) in counters.values(of).filter(|(_, count)| *count > 0) {
                *self.traits.entry((of as u8, value)).or_default() += count;
            }
        }
        let faults = HandshakeFault::ALL.iter().map(|&fault| (fault, counters.fault(fault)));
        for (fault, count) in faults.filter(|(_, count)| *count > 0) {
            *self.faults.entry(fault).or_default() += count;
        }
    }

    /// What came after `before`, an older count of the same things.
    pub(crate) fn since(&self, before: &HandshakeCounts) -> HandshakeCounts {
        let mut left = self.clone();
        let less = |count: &mut u64, was: Option<&u64>| *count = count.saturating_sub(*was.unwrap_or(&0));
        left.traits.iter_mut().for_each(|(key, count)| less(count, before.traits.get(key)));
        left.faults.iter_mut().for_each(|(fault, count)| less(count, before.faults.get(fault)));
        left.times = std::array::from_fn(|at| self.times[at].since(&before.times[at]));
        left
    }

    /// The values of a trait that were seen, in their order, with how many handshakes had each.
    pub(crate) fn values(&self, of: HandshakeTrait) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let order = of.values().iter().copied().chain([weir_engine::worker::OTHER]);
        order.filter_map(move |value| Some((value, *self.traits.get(&(of as u8, value))?)))
    }

    /// Why some failed, and how many.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (HandshakeFault, u64)> + '_ {
        self.faults.iter().map(|(fault, count)| (*fault, *count))
    }

    /// How many were complete.
    pub(crate) fn complete(&self) -> u64 {
        self.values(HandshakeTrait::Session).map(|(_, count)| count).sum()
    }

    /// How many failed.
    pub(crate) fn failed(&self) -> u64 {
        self.faults.values().sum()
    }

    /// How many of the complete ones resumed no session.
    pub(crate) fn full(&self) -> u64 {
        self.values(HandshakeTrait::Session).find(|(value, _)| *value == FULL).map_or(0, |(_, count)| count)
    }
}
