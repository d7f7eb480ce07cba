//! Which request made which wait inside the loop.
//!
//! When the loop's wait ends, everything it woke for is ready; what runs first makes the rest wait. So each request's
//! delay since the turn began is known to be the sum of the stretches that ran before it in the same turn.
//!
//! In a turn of less than a millisecond no request waits for long, and nothing is accounted: its stretches are only
//! noted. A turn that turns out to be longer is accounted from its beginning.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::LoopRun;
use crate::site::Site;

/// What one route lost to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteBlame {
    /// The route whose requests were ready and had to wait.
    pub victim: Site,
    /// The route whose requests ran meanwhile; [`Site::OTHER`] is the loop itself, and routes beyond those that a turn
    /// distinguishes.
    pub culprit: Site,
    /// Ticks that requests of `victim` waited.
    pub ticks: u64,
    /// Number of such waits.
    pub times: u64,
}

/// What ran in this turn of the loop.
#[derive(Debug)]
pub(super) struct LoopTurn {
    stamp: Cell<u64>,
    /// Turns of fewer ticks are not accounted.
    short: u64,
    /// Its stretches as long as it was short, `noted` of them.
    notes: Box<[Cell<LoopRun>; NOTES]>,
    noted: Cell<usize>,
    /// Each stretch is accounted by now, and what ran is summed up by route, `len` of them.
    is_long: Cell<bool>,
    ran: [Cell<(Site, u64)>; ROUTES],
    len: Cell<usize>,
}

impl LoopTurn {
    pub(super) fn new(short: u64) -> LoopTurn {
        let nothing = LoopRun { turn: 0, start: 0, end: 0, route: Site::NONE, queued: false };
        LoopTurn {
            stamp: Cell::new(0),
            short,
            notes: Box::new(std::array::from_fn(|_| Cell::new(nothing))),
            noted: Cell::new(0),
            is_long: Cell::new(false),
            ran: [const { Cell::new((Site::NONE, 0)) }; ROUTES],
            len: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn ran(&self, run: LoopRun, ledger: &BlameLedger) {
        if self.stamp.get() != run.turn {
            self.stamp.set(run.turn);
            self.noted.set(0);
            self.is_long.set(false);
        }
        let noted = self.noted.get();
        match self.notes.get(noted) {
            Some(note) if run.end.saturating_sub(run.turn) < self.short && !self.is_long.get() => {
                note.set(run);
                self.noted.set(noted + 1);
            }
            _ => self.account(run, ledger),
        }
    }

    /// Accounts a stretch of a turn that is long, or has more of them than can be noted.
    #[cold]
    #[inline(never)]
    fn account(&self, run: LoopRun, ledger: &BlameLedger) {
        if !self.is_long.replace(true) {
            self.len.set(0);
            for note in &self.notes[..self.noted.get()] {
                self.account_one(note.get(), ledger);
            }
        }
        self.account_one(run, ledger);
    }

    /// Charges the delay of a request to what ran before it.
    fn account_one(&self, run: LoopRun, ledger: &BlameLedger) {
        if run.queued {
            let mut delay = run.start.saturating_sub(run.turn);
            for entry in &self.ran[..self.len.get()] {
                let (culprit, ticks) = entry.get();
                let ticks = ticks.min(delay);
                delay -= ticks;
                ledger.add(run.route, culprit, ticks, 1);
            }
            if delay > 0 {
                ledger.add(run.route, Site::OTHER, delay, 1);
            }
        }
        self.add(run.route, run.end.saturating_sub(run.start));
    }

    fn add(&self, route: Site, ticks: u64) {
        let ran = &self.ran[..self.len.get()];
        if let Some(entry) = ran.iter().find(|entry| entry.get().0 == route) {
            entry.set((route, entry.get().1 + ticks));
        } else if ran.len() + 1 < ROUTES {
            self.ran[ran.len()].set((route, ticks));
            self.len.set(ran.len() + 1);
        } else {
            let last = &self.ran[ROUTES - 1];
            let before = if ran.len() == ROUTES { last.get().1 } else { 0 };
            last.set((Site::OTHER, before + ticks));
            self.len.set(ROUTES);
        }
    }
}

/// The sums, by victim and culprit: a table of fixed size with one writer.
#[derive(Debug)]
pub(super) struct BlameLedger {
    /// [`PAIRS`] of them, and one for what they have no room for.
    entries: Box<[BlameEntry]>,
}

#[derive(Debug, Default)]
struct BlameEntry {
    /// Victim and culprit; 0 while free.
    pair: AtomicU64,
    ticks: AtomicU64,
    times: AtomicU64,
}

impl BlameLedger {
    pub(super) fn new() -> BlameLedger {
        BlameLedger { entries: (0..=PAIRS).map(|_| BlameEntry::default()).collect() }
    }

    pub(super) fn add(&self, victim: Site, culprit: Site, ticks: u64, times: u64) {
        let entry = self.entry(victim, culprit);
        entry.ticks.store(entry.ticks.load(Relaxed).wrapping_add(ticks), Relaxed);
        entry.times.store(entry.times.load(Relaxed).wrapping_add(times), Relaxed);
    }

    /// The pair's entry; that of "other" in a full neighbourhood.
    #[inline]
    fn entry(&self, victim: Site, culprit: Site) -> &BlameEntry {
        let pair = pair(victim, culprit);
        let at = (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize;
        for step in 0..PROBES {
            let entry = &self.entries[(at + step) % PAIRS];
            match entry.pair.load(Relaxed) {
                0 => {
                    entry.pair.store(pair, Relaxed);
                    return entry;
                }
                other if other == pair => return entry,
                _ => {}
            }
        }
        let rest = &self.entries[PAIRS];
        rest.pair.store(self::pair(Site::OTHER, Site::OTHER), Relaxed);
        rest
    }

    pub(super) fn read(&self) -> Vec<RouteBlame> {
        let used = self.entries.iter().filter(|entry| entry.pair.load(Relaxed) != 0);
        let mut all: Vec<RouteBlame> = used
            .map(|entry| {
                let pair = entry.pair.load(Relaxed);
                RouteBlame {
                    victim: Site((pair >> 16) as u16),
                    culprit: Site(pair as u16),
                    ticks: entry.ticks.load(Relaxed),
                    times: entry.times.load(Relaxed),
                }
            })
            .collect();
        all.sort_by_key(|blame| std::cmp::Reverse(blame.ticks));
        all
    }
}

#[inline]
fn pair(victim: Site, culprit: Site) -> u64 {
    USED | u64::from(victim.0) << 16 | u64::from(culprit.0)
}

/// Routes that one turn distinguishes; the last place is for all others.
const ROUTES: usize = 8;
/// Number of pairs of routes that are counted separately: 24 bytes each.
const PAIRS: usize = 1024;
/// Neighbours that are looked at for a pair.
const PROBES: usize = 16;
/// Stretches that are noted of a short turn: a request that never waits takes a few microseconds.
const NOTES: usize = 256;
/// Ticks of a turn that is not accounted: 0.7 ms at 3 GHz. What it delays is less than a client can distinguish from
/// the network, and accounting it would cost each of its requests a hundred instructions.
pub(super) const SHORT: u64 = 1 << 21;
const USED: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(turn: u64, route: u16, start: u64, end: u64) -> LoopRun {
        LoopRun { turn, start, end, route: Site(route), queued: true }
    }

    fn ticks(ledger: &BlameLedger, victim: u16, culprit: u16) -> Option<u64> {
        let all = ledger.read();
        let pair = |blame: &&RouteBlame| (blame.victim, blame.culprit) == (Site(victim), Site(culprit));
        all.iter().find(pair).map(|blame| blame.ticks)
    }

    #[test]
    fn a_delay_is_charged_to_what_ran_before() {
        let (turn, ledger) = (LoopTurn::new(0), BlameLedger::new());
        turn.ran(run(1_000, 70, 1_010, 1_510), &ledger);
        turn.ran(run(1_000, 71, 1_510, 1_710), &ledger);
        turn.ran(run(1_000, 70, 1_720, 1_800), &ledger);
        assert_eq!(ticks(&ledger, 70, 70), Some(500));
        assert_eq!(ticks(&ledger, 70, 71), Some(200));
        assert_eq!(ticks(&ledger, 71, 70), Some(500));
        // What no request ran is the loop's: 10 before the first, 10 of the second's, 20 of the third's.
        assert_eq!((ticks(&ledger, 70, 1), ticks(&ledger, 71, 1)), (Some(30), Some(10)));
        let sum: u64 = ledger.read().iter().map(|blame| blame.ticks).sum();
        assert_eq!(sum, 10 + 510 + 720, "every tick of delay has its culprit");
    }

    #[test]
    fn a_turn_begins_with_a_clean_sheet_and_pipelined_requests_did_not_wait() {
        let (turn, ledger) = (LoopTurn::new(0), BlameLedger::new());
        turn.ran(run(1_000, 70, 1_000, 9_000), &ledger);
        turn.ran(LoopRun { queued: false, ..run(1_000, 71, 9_000, 9_500) }, &ledger);
        turn.ran(run(10_000, 72, 10_000, 10_100), &ledger);
        assert!(ledger.read().is_empty());
    }

    #[test]
    fn a_turn_that_becomes_long_is_accounted_from_its_beginning_and_a_short_one_is_not() {
        let (turn, ledger) = (LoopTurn::new(1_000), BlameLedger::new());
        for n in 0..9u64 {
            turn.ran(run(5_000, 70, 5_000 + n * 100, 5_100 + n * 100), &ledger);
        }
        turn.ran(run(50_000, 70, 50_000, 50_100), &ledger);
        turn.ran(run(50_000, 71, 50_100, 50_900), &ledger);
        assert!(ledger.read().is_empty(), "short ones");
        turn.ran(run(50_000, 72, 50_900, 51_000), &ledger);
        assert_eq!((ticks(&ledger, 71, 70), ticks(&ledger, 72, 70)), (Some(100), Some(100)));
        assert_eq!(ticks(&ledger, 72, 71), Some(800));
        turn.ran(run(50_000, 70, 51_000, 51_100), &ledger);
        assert_eq!(ledger.read().iter().map(|blame| blame.ticks).sum::<u64>(), 100 + 900 + 1_000);
    }

    #[test]
    fn more_requests_than_are_noted_are_accounted_however_short_the_turn() {
        let (turn, ledger) = (LoopTurn::new(u64::MAX), BlameLedger::new());
        let mut sum = 0;
        for n in 0..2 * NOTES as u64 {
            turn.ran(run(1_000, 70, 1_000 + n, 1_001 + n), &ledger);
            sum += n;
        }
        assert_eq!(ledger.read().iter().map(|blame| blame.ticks).sum::<u64>(), sum);
    }

    #[test]
    fn many_routes_in_one_turn_are_summed_up() {
        let (turn, ledger) = (LoopTurn::new(0), BlameLedger::new());
        for n in 0..20 {
            turn.ran(
                LoopRun { queued: n == 19, ..run(0, 100 + n, u64::from(n) * 10, u64::from(n + 1) * 10) },
                &ledger,
            );
        }
        assert_eq!(ticks(&ledger, 119, 100), Some(10));
        assert_eq!(ticks(&ledger, 119, 1), Some(120), "12 routes that had no place of their own");
    }

    #[test]
    fn a_full_ledger_loses_names_and_no_time() {
        let ledger = BlameLedger::new();
        for n in 0..5_000u16 {
            ledger.add(Site(n), Site(n / 2), 3, 1);
        }
        assert_eq!(ledger.read().iter().map(|blame| blame.ticks).sum::<u64>(), 15_000);
    }
}
