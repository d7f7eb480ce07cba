//! What probes cost the probed process, between one hit and the next.
//!
//! On two functions of our own that do nothing it is measured beforehand. In the process itself it is more: its caches
//! are in use. But much of what is probed there does nothing either (filters that pass a response on), so the cheapest
//! tenth of all intervals of a kind is taken for what the probes take, once there are enough of them.

use weir_sys::perf::{ProbeCosts, RecordKind};

/// The cost by what the hits at both ends are.
#[derive(Debug, Default)]
pub(super) struct ProbeFloor {
    kinds: [EndPair; 6],
}

/// One pair of ends.
#[derive(Debug, Default)]
struct EndPair {
    cost: u64,
    /// The last intervals, nanoseconds.
    seen: Vec<u64>,
    next: usize,
}

/// What an interval began with.
#[derive(Clone, Copy)]
pub(super) struct ProbedEnd {
    pub(super) kind: RecordKind,
    /// Whether the first instruction of the function was stepped over.
    pub(super) stepped: bool,
}

impl ProbeFloor {
    pub(super) fn new(costs: ProbeCosts) -> ProbeFloor {
        let costs = [
            costs.entry_entry,
            costs.entry_return,
            costs.stepped_entry,
            costs.stepped_return,
            costs.return_entry,
            costs.return_return,
        ];
        ProbeFloor { kinds: costs.map(|cost| EndPair { cost, ..EndPair::default() }) }
    }

    /// What the probes took of an interval of `time`, that began with `from` and ended with `to`. `inside` a function intervals also teach what to expect.
    pub(super) fn cost(&mut self, from: ProbedEnd, to: RecordKind, time: u64, inside: bool) -> u64 {
        let at = match ((from.kind, from.stepped), to) {
            ((RecordKind::Entry, false), RecordKind::Entry) => 0,
            ((RecordKind::Entry, false), RecordKind::Return) => 1,
            ((RecordKind::Entry, true), RecordKind::Entry) => 2,
            ((RecordKind::Entry, true), RecordKind::Return) => 3,
            ((RecordKind::Return, _), RecordKind::Entry) => 4,
            ((RecordKind::Return, _), RecordKind::Return) => 5,
            // The thread stopped or went on in between: no probe's doing.
            _ => return 0,
        };
        let kind = &mut self.kinds[at];
        if inside {
            kind.learn(time);
        }
        kind.cost
    }
}

impl EndPair {
    fn learn(&mut self, time: u64) {
        if self.seen.len() < ROOM {
            self.seen.push(time);
        } else {
            self.seen[self.next % ROOM] = time;
        }
        self.next += 1;
        if self.next.is_multiple_of(OFTEN) {
            let mut sorted = self.seen.clone();
            sorted.sort_unstable();
            self.cost = sorted[sorted.len() / 10];
        }
    }
}

/// Intervals that are remembered.
const ROOM: usize = 1024;
/// How many must be new before the cost is found again.
const OFTEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_tenth_is_what_probes_cost() {
        let costs = ProbeCosts { entry_return: 1000, return_entry: 700, ..ProbeCosts::default() };
        let mut floor = ProbeFloor::new(costs);
        let mut ask = |time| {
            floor.cost(ProbedEnd { kind: RecordKind::Entry, stepped: false }, RecordKind::Return, time, true)
        };
        assert_eq!(ask(5000), 1000, "as it was measured");
        for n in 0..63 {
            ask(if n % 3 == 0 { 1500 } else { 9000 });
        }
        assert_eq!(ask(9000), 1500);
        assert_eq!(
            floor.cost(ProbedEnd { kind: RecordKind::Return, stepped: true }, RecordKind::Entry, 9, false),
            700,
            "nothing was learnt of these"
        );
        assert_eq!(
            floor.cost(ProbedEnd { kind: RecordKind::Off, stepped: false }, RecordKind::On, 9, true),
            0
        );
    }
}
