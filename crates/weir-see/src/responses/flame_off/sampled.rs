//! By the stalls that worker and watchdog report, with the stacks that were taken of them. What requests have lost besides,
//! in turns that were too short for that, has its phase and module.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use weir_rt::clock;
use weir_server::housekeeping::{self, WorkerStall};
use weir_trace::{Site, SiteTable, SiteTotals};

use super::{OffPlace, OffStacks, OffTimes, blocked};
use crate::responses::reply::ReplyFailure;
use crate::source::{ServerSource, scale};

/// What is lost while `meanwhile` runs.
pub(super) fn record(
    source: &ServerSource,
    meanwhile: impl FnOnce() -> Result<(), ReplyFailure>,
) -> Result<OffStacks, ReplyFailure> {
    let (before, since) = (lost(source), clock::ticks());
    let seen = super::beside(meanwhile, |done| SeenStalls::gather(since, done))?;
    let SeenStalls { mut stacks, known, .. } = seen;
    for LostTicks { site, parts, .. } in unseen(since_then(&before, &lost(source)), known) {
        let place = OffPlace { route: Site::NONE, site, call: None, frames: Vec::new() };
        stacks.add(place, parts.times());
    }
    Ok(stacks)
}

/// Ticks in which a thread did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OffTicks {
    asleep: u64,
    no_core: u64,
}

impl OffTicks {
    fn is_nothing(self) -> bool {
        self == OffTicks::default()
    }

    fn times(self) -> OffTimes {
        OffTimes { times: 1, asleep_ns: scale(self.asleep), no_core_ns: scale(self.no_core) }
    }

    fn since(self, before: OffTicks) -> OffTicks {
        OffTicks {
            asleep: self.asleep.saturating_sub(before.asleep),
            no_core: self.no_core.saturating_sub(before.no_core),
        }
    }

    /// Takes away what both have, from both.
    fn settle(&mut self, other: &mut OffTicks) {
        let both =
            OffTicks { asleep: self.asleep.min(other.asleep), no_core: self.no_core.min(other.no_core) };
        (*self, *other) = (self.since(both), other.since(both));
    }
}

/// What was lost at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LostTicks {
    site: Site,
    location: String,
    parts: OffTicks,
}

/// What requests that have ended have lost, by site.
fn lost(source: &ServerSource) -> BTreeMap<Site, OffTicks> {
    let lost = |(site, totals): (Site, SiteTotals)| {
        let parts = OffTicks { asleep: totals.counts.asleep, no_core: totals.counts.no_core };
        (!parts.is_nothing()).then_some((site, parts))
    };
    source.totals().into_iter().filter_map(lost).collect()
}

fn since_then(before: &BTreeMap<Site, OffTicks>, after: &BTreeMap<Site, OffTicks>) -> Vec<LostTicks> {
    let lost = |(site, now): (&Site, &OffTicks)| LostTicks {
        site: *site,
        location: SiteTable::global().info(*site).location.to_string(),
        parts: now.since(before.get(site).copied().unwrap_or_default()),
    };
    after.iter().map(lost).collect()
}

/// What of `lost` is not in the stalls that are `known`. A stall knows where it was seen, the request's tree where it ran
/// longest, and in one turn several requests may have slept: so that nothing is counted twice, a stall explains what was
/// lost at its site, then what was lost in its location, then any.
fn unseen(mut lost: Vec<LostTicks>, mut known: Vec<LostTicks>) -> Vec<LostTicks> {
    let alike: [fn(&LostTicks, &LostTicks) -> bool; 3] =
        [|lost, known| lost.site == known.site, |lost, known| lost.location == known.location, |_, _| true];
    for alike in alike {
        for lost in &mut lost {
            for known in &mut known {
                if alike(lost, known) {
                    lost.parts.settle(&mut known.parts);
                }
            }
        }
    }
    lost.retain(|lost| !lost.parts.is_nothing());
    lost
}

/// The stalls of a recording. Only the last ones are there at any moment, and what is known of one grows; one that is not there
/// any more is added to the others.
struct SeenStalls {
    since: u64,
    /// By worker, oldest first.
    recent: HashMap<u16, Vec<WorkerStall>>,
    stacks: OffStacks,
    /// What they have lost as a whole, by site.
    known: Vec<LostTicks>,
}

impl SeenStalls {
    fn new(since: u64) -> SeenStalls {
        SeenStalls { since, recent: HashMap::new(), stacks: OffStacks::default(), known: Vec::new() }
    }

    /// Those that last at `since` or later, until `done`.
    fn gather(since: u64, done: &AtomicBool) -> SeenStalls {
        let mut seen = SeenStalls::new(since);
        loop {
            let last = done.load(Relaxed);
            if last {
                // Worker and watchdog report a stall one after the other.
                thread::sleep(blocked::SETTLED);
            }
            seen.look(housekeeping::handle().stalls());
            if last {
                seen.add_before(|_| u64::MAX, clock::ticks());
                return seen;
            }
            thread::sleep(EVERY);
        }
    }

    /// `stalls`: those that are remembered, oldest first.
    fn look(&mut self, stalls: Vec<WorkerStall>) {
        let mut oldest = HashMap::new();
        for one in stalls {
            oldest.entry(one.worker).or_insert(one.stall.start);
            if one.ongoing || one.stall.start + one.stall.duration >= self.since {
                self.put(one);
            }
        }
        // Of a worker that remembers none all are over.
        self.add_before(|worker| oldest.get(&worker).copied().unwrap_or(u64::MAX), u64::MAX);
    }

    /// Takes the place of what was known of the same stall: where they begin differs, as the one who reports it first may
    /// have seen only a part.
    fn put(&mut self, stall: WorkerStall) {
        let known = self.recent.entry(stall.worker).or_default();
        known.retain(|one| !one.stall.overlaps(&stall.stall));
        known.push(stall);
    }

    /// Those that began before what `start` says of their worker are final; what came of them until `until` counts.
    fn add_before(&mut self, start: impl Fn(u16) -> u64, until: u64) {
        for (worker, stalls) in &mut self.recent {
            let start = start(*worker);
            for WorkerStall { stall, ongoing, .. } in stalls.extract_if(.., |one| one.stall.start < start) {
                let span = RecordedSpan { since: self.since, until };
                let parts = span.of(&stall, ongoing);
                let (site, location) = (stall.sample.site, blocked::location(&stall));
                match self.known.iter_mut().find(|known| known.site == site && known.location == location) {
                    Some(known) => {
                        known.parts.asleep += parts.whole.asleep;
                        known.parts.no_core += parts.whole.no_core;
                    }
                    None => self.known.push(LostTicks { site, location, parts: parts.whole }),
                }
                let (call, frames) = (stall.syscall, stall.sample.frames);
                self.stacks.add(OffPlace { route: stall.route, site, call, frames }, parts.inside.times());
            }
        }
    }
}

/// From when to when is recorded, in ticks.
#[derive(Clone, Copy)]
struct RecordedSpan {
    since: u64,
    until: u64,
}

/// What a stall lost, as a whole and while it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StallParts {
    whole: OffTicks,
    inside: OffTicks,
}

impl RecordedSpan {
    fn of(self, stall: &weir_trace::LoopStall, ongoing: bool) -> StallParts {
        if ongoing && !stall.is_over {
            // Nothing is counted yet; a thread that sleeps has done so since, as far as is known.
            let lasts = self.until.saturating_sub(stall.start.max(self.since));
            let asleep = if matches!(stall.state, b'S' | b'D') { lasts } else { 0 };
            return StallParts { whole: OffTicks::default(), inside: OffTicks { asleep, no_core: 0 } };
        }
        let end = stall.start + stall.duration;
        let inside = end.min(self.until).saturating_sub(stall.start.max(self.since));
        let part =
            |ticks: u64| (u128::from(ticks) * u128::from(inside) / u128::from(stall.duration.max(1))) as u64;
        StallParts {
            whole: OffTicks { asleep: stall.asleep, no_core: stall.no_core },
            inside: OffTicks { asleep: part(stall.asleep), no_core: part(stall.no_core) },
        }
    }
}

/// How often stalls are looked at: the list of the last ones must not overflow in between.
const EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::LoopStall;

    fn off(asleep: u64, no_core: u64) -> OffTicks {
        OffTicks { asleep, no_core }
    }

    fn at(site: u16, location: &str, parts: OffTicks) -> LostTicks {
        LostTicks { site: Site(site), location: location.to_owned(), parts }
    }

    #[test]
    fn nothing_is_counted_twice() {
        let lost = || vec![at(1, "/a", off(100, 10)), at(2, "/a", off(50, 0)), at(3, "/b", off(30, 0))];
        let left = |known: Vec<LostTicks>| {
            unseen(lost(), known).into_iter().map(|one| (one.site.0, one.parts)).collect::<Vec<_>>()
        };
        assert_eq!(left(vec![]), [(1, off(100, 10)), (2, off(50, 0)), (3, off(30, 0))]);
        // The same site; then the location; a turn in which both slept.
        assert_eq!(left(vec![at(2, "/a", off(40, 5))]), [(1, off(100, 5)), (2, off(10, 0)), (3, off(30, 0))]);
        assert_eq!(left(vec![at(9, "/a", off(120, 10))]), [(2, off(30, 0)), (3, off(30, 0))]);
        assert_eq!(left(vec![at(3, "/b", off(60, 0))]), [(1, off(70, 10)), (2, off(50, 0))]);
        assert_eq!(left(vec![at(9, "-", off(1000, 1000))]), []);
    }

    fn stall(start: u64, duration: u64, asleep: u64) -> WorkerStall {
        let stall = LoopStall { start, duration, asleep, is_over: true, ..LoopStall::default() };
        WorkerStall { worker: 0, ongoing: false, stall }
    }

    #[test]
    fn only_what_was_recorded_counts() {
        let span = RecordedSpan { since: 1000, until: 2000 };
        let parts = |one: &WorkerStall| {
            let parts = span.of(&one.stall, one.ongoing);
            (parts.whole.asleep, parts.inside.asleep)
        };
        assert_eq!(parts(&stall(1100, 100, 80)), (80, 80));
        assert_eq!(parts(&stall(900, 200, 160)), (160, 80));
        assert_eq!(parts(&stall(500, 3000, 3000)), (3000, 1000));
        assert_eq!(parts(&stall(900, 0, 0)), (0, 0));
        let mut lasts = WorkerStall { ongoing: true, ..stall(500, 100, 0) };
        lasts.stall.is_over = false;
        assert_eq!(parts(&lasts), (0, 0), "it runs");
        lasts.stall.state = b'S';
        assert_eq!(parts(&lasts), (0, 1000));
    }

    /// Sums of what is known as a whole.
    fn known(seen: &SeenStalls) -> (usize, u64) {
        (seen.stacks.0.len(), seen.known.iter().map(|known| known.parts.asleep).sum())
    }

    #[test]
    fn a_stall_that_is_known_better_later_is_one() {
        let mut seen = SeenStalls::new(50);
        seen.look(vec![stall(10, 20, 20), stall(100, 20, 20), stall(130, 30, 30)]);
        seen.look(vec![
            stall(100, 60, 50),
            stall(300, 10, 10),
            WorkerStall { worker: 1, ..stall(100, 60, 7) },
        ]);
        assert_eq!(known(&seen), (0, 0), "all are there still");
        // Only the last one is remembered; the others are final.
        seen.look(vec![stall(300, 10, 10)]);
        assert_eq!(known(&seen), (1, 57));
        seen.look(vec![stall(300, 20, 15)]);
        seen.add_before(|_| u64::MAX, 1000);
        assert_eq!(known(&seen), (1, 72));
    }
}
