//! Finds turns of loops that take too long, while they last.
//!
//! A worker shows since when its turn runs. The watchdog looks every third limit as long as there are no stalls, so that
//! one of four limits is always found and it costs less than a thousandth of a processor; for a minute after a stall it looks
//! when the oldest turn would become the next one. What the kernel reports of the thread is read at once; then the
//! thread is asked for its stack, once per stall. How long a turn was in the end, the loop itself notes, found or not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weir_rt::sampler::{self, LongTurn, SampleSource, SitePlace};
use weir_rt::{OffCore, clock};
use weir_sys::probe;
use weir_trace::{CpuSample, LoopStall, RequestId, Site, StallConnections};

use super::unwind;
use super::usage::InKernel;
use super::{WatchedEntry, WatchedWorker};

/// What is remembered of each worker between two looks, by the probe's serial number.
#[derive(Default)]
pub(super) struct Watchdog {
    workers: HashMap<u64, SeenWorker>,
    /// When the last stall was found or noted.
    last: Option<Instant>,
}

#[derive(Default)]
struct SeenWorker {
    /// Turns when last looked, and for how many looks they have been the same.
    turns: u64,
    still: u32,
    /// The turn that the last look found, and what had been counted of connections then and before that turn.
    turn: u64,
    counted: CountedStall,
    before: CountedStall,
    /// The stall that was found last, and whether it has its stack.
    stall: Option<FoundStall>,
    /// Turns were noted since the last look.
    noted: bool,
}

/// What is counted of connections between workers.
#[derive(Clone, Copy, Default)]
struct CountedStall {
    handed_on: u64,
    /// Dealt to others.
    elsewhere: u64,
}

#[derive(Clone, Copy)]
struct FoundStall {
    start: u64,
    /// Known once it is over.
    end: Option<u64>,
    /// The thread was asked for its stack: one that was sampled before, in the same turn, shows something else.
    asked: bool,
    has_stack: bool,
}

/// What to do after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextLook {
    /// When to look again.
    pub(super) wait: Duration,
    /// No loop has done anything for a while: it is enough to look when one begins to.
    pub(super) quiet: bool,
    /// A stack was asked for and will be in the ring.
    pub(super) asked: bool,
}

impl Watchdog {
    /// Looks at all workers; `limit` is the shortest stall, `None` for no watching.
    pub(super) fn look(&mut self, entries: &[WatchedEntry], limit: Option<Duration>) -> NextLook {
        self.workers.retain(|serial, _| entries.iter().any(|entry| entry.serial == *serial));
        let calm = self.last.is_none_or(|last| last.elapsed() >= ALERT);
        let pause = limit.map_or(UNWATCHED, |limit| if calm { 3 * limit } else { limit });
        let idle = NextLook { wait: pause, quiet: true, asked: false };
        let dealt: u64 = entries.iter().map(|entry| entry.watched.counters.dealing.dealt.get()).sum();
        let ticks = limit.map(|limit| clock::scale().ns_to_ticks(limit.as_nanos() as u64));
        entries.iter().fold(idle, |next, entry| {
            let seen = self.workers.entry(entry.serial).or_default();
            let alone = entries.len() == 1;
            let busy = seen.look(entry, (!alone).then_some(dealt), ticks.unwrap_or(u64::MAX));
            if busy.stalls {
                self.last = Some(Instant::now());
            }
            // A turn that has just begun will hardly be the one.
            let due = busy.due.filter(|&due| !calm || ticks.is_some_and(|ticks| due <= ticks / 2));
            let due = due.map(|due| Duration::from_nanos(clock::scale().ticks_to_ns(due)));
            NextLook {
                wait: due.map_or(next.wait, |due| due.max(SHORTEST).min(next.wait)),
                quiet: next.quiet && seen.still >= STILL,
                asked: next.asked || busy.asked,
            }
        })
    }

    /// A sample came out of a worker's ring: the stack of its stall, if it was taken then.
    pub(super) fn sampled(&mut self, entry: &WatchedEntry, sample: &sampler::StackSample) {
        let Some(seen) = self.workers.get_mut(&entry.serial) else { return };
        if seen
            .stall
            .is_some_and(|found| found.end.is_none() && found.start != entry.watched.probe.busy_since())
        {
            // It is over: the sample may be of a later turn, which only its end tells.
            seen.note_ends(entry, None);
        }
        let (time, route) = (sample.time, Site(sample.place.route));
        let taken = || CpuSample {
            time,
            site: Site(sample.place.site),
            request: RequestId(sample.request),
            vm_state: sample.vm_state,
            frames: sample.frames.clone(),
        };
        let stalls = entry.watched.recorder.stalls();
        match &mut seen.stall {
            Some(found)
                if !found.has_stack
                    && (!found.asked || sample.source == SampleSource::Asked)
                    && time >= found.start
                    && found.end.is_none_or(|end| time <= end) =>
            {
                found.has_stack = true;
                let (start, duration) = (found.start, time - found.start);
                stalls.add(LoopStall { start, duration, route, sample: taken(), ..LoopStall::default() });
            }
            // It was asked for in a turn that another long one has followed since.
            _ if sample.source == SampleSource::Asked => stalls.stack(route, taken()),
            _ => {}
        }
    }
}

/// What one worker's turn asks for.
#[derive(Default)]
struct BusyWorker {
    /// In how many ticks the turn becomes a stall.
    due: Option<u64>,
    asked: bool,
    /// There was a stall since the last look, or is one.
    stalls: bool,
}

impl SeenWorker {
    /// `dealt`: connections that all workers were dealt; `None` for a worker that has no others.
    fn look(&mut self, entry: &WatchedEntry, dealt: Option<u64>, limit: u64) -> BusyWorker {
        let (probe, stalls) = (entry.watched.probe, entry.watched.recorder.stalls());
        self.count(entry, dealt.unwrap_or(0));
        let connections = dealt.map(|_| self.connections(entry));
        self.note_ends(entry, connections);
        let noted = std::mem::take(&mut self.noted);
        // The time first: if the turn is over in between, what we take for its length is shorter, not longer.
        let now = clock::ticks();
        let since = probe.busy_since();
        let turns = entry.watched.stats.snapshot().turns;
        self.still = if turns == self.turns && since == 0 { self.still.saturating_add(1) } else { 0 };
        self.turns = turns;
        let done = BusyWorker { stalls: noted, ..BusyWorker::default() };
        if since == 0 {
            return done;
        }
        let age = now.saturating_sub(since);
        if age < limit {
            return BusyWorker { due: Some(limit - age), ..done };
        }
        let connections = dealt.map(|_| self.connections(entry));
        let known = self.stall.is_some_and(|found| found.start == since);
        if known {
            stalls.add(LoopStall { start: since, duration: age, connections, ..LoopStall::default() });
            return BusyWorker { stalls: true, ..done };
        }
        stalls.add(LoopStall { connections, ..describe(entry, since, age) });
        unwind::refresh();
        // One that ends at this moment needs no stack.
        let asked = probe.ask(InKernel::read(probe.tid()).syscall).is_ok();
        self.stall = Some(FoundStall { start: since, end: None, asked, has_stack: false });
        BusyWorker { due: None, asked, stalls: true }
    }

    /// Takes what the loop has noted of turns that are over; `connections` are those of the last turn that was found.
    fn note_ends(&mut self, entry: &WatchedEntry, connections: Option<StallConnections>) {
        let (probe, stalls) = (entry.watched.probe, entry.watched.recorder.stalls());
        probe.long_turns(|LongTurn { start, end, off: OffCore { asleep_ns, no_core_ns } }| {
            self.noted = true;
            // Between two looks there may have been several: what was counted is the last one's.
            let connections = connections.filter(|_| start == self.turn);
            let (asleep, no_core) =
                (clock::scale().ns_to_ticks(asleep_ns), clock::scale().ns_to_ticks(no_core_ns));
            let duration = end - start;
            let is_over = true;
            stalls.add(LoopStall {
                start,
                duration,
                is_over,
                asleep,
                no_core,
                connections,
                ..LoopStall::default()
            });
            if probe::traces_blocked() {
                let worker = entry.watched.recorder.worker().into();
                probe::loop_blocked(worker, clock::scale().ticks_to_ns(end - start));
            }
            match &mut self.stall {
                Some(found) if found.start == start => found.end = Some(end),
                found => *found = Some(FoundStall { start, end: Some(end), asked: false, has_stack: false }),
            }
        });
    }

    /// Takes note of what is counted, and when the worker is in another turn than at the last look, of what was then.
    fn count(&mut self, entry: &WatchedEntry, dealt: u64) {
        let WatchedWorker { probe, counters, .. } = &entry.watched;
        let before = self.counted;
        self.counted = CountedStall {
            handed_on: counters.dealing.handed_on.get(),
            elsewhere: dealt.saturating_sub(counters.dealing.dealt.get()),
        };
        match probe.busy_since() {
            // The turn that was found last may have ended since: its account goes on until another one is found.
            0 => {}
            turn if turn == self.turn => {}
            turn => (self.turn, self.before) = (turn, before),
        }
    }

    fn connections(&self, entry: &WatchedEntry) -> StallConnections {
        let counters = &entry.watched.counters;
        StallConnections {
            handed_on: self.counted.handed_on.saturating_sub(self.before.handed_on),
            dealt_elsewhere: self.counted.elsewhere.saturating_sub(self.before.elsewhere),
            stayed: counters.active.get() + counters.dealing.queued.get(),
        }
    }
}

/// What can be seen from outside of a worker that is stuck since `start`.
fn describe(entry: &WatchedEntry, start: u64, duration: u64) -> LoopStall {
    let probe = entry.watched.probe;
    let InKernel { state, syscall, wait_channel } = InKernel::read(probe.tid());
    let current = probe.current();
    let SitePlace { site, route } = current.place();
    let running = entry.watched.now.running();
    let request = running.map_or(RequestId(current.request()), |running| running.id);
    let sample = CpuSample { site: Site(site), request, ..CpuSample::default() };
    LoopStall {
        start,
        duration,
        route: Site(route),
        state,
        syscall,
        wait_channel,
        sample,
        ..LoopStall::default()
    }
}

/// How long after a stall the next one is expected.
const ALERT: Duration = Duration::from_secs(60);
/// Between two looks at least: a turn is not found to be just too young again and again.
const SHORTEST: Duration = Duration::from_micros(200);
/// Between two looks when nothing is watched: rings are emptied all the same.
const UNWATCHED: Duration = Duration::from_millis(500);
/// Looks without a turn after which a loop counts as asleep.
const STILL: u32 = 3;
