//! A worker's present: what its requests have in common while they run.

use std::cell::{Cell, RefCell};

use weir_trace::{
    CpuSample, KeepReason, KeepRule, LoopRun, LoopStall, PhaseMap, Recorder, RecorderSettings, RequestId,
    StallLog, Trace, WorkerNow,
};

use super::id::RequestIds;
use super::off_core::{OffCoreSums, OffCoreTicks};
use super::watchers::QueueWatchers;

/// What all presences of a worker share.
#[derive(Debug)]
pub(crate) struct WorkerPresences {
    pub(crate) now: WorkerNow,
    pub(crate) ids: RequestIds,
    /// The settings of the recorder where no configuration says otherwise.
    pub(crate) base: RecorderSettings,
    /// For variables.
    pub(crate) phases: RefCell<PhaseMap>,
    /// Which trees are retained, by the number that a plan has.
    rules: RefCell<Vec<KeepRule>>,
    stalls: StallLog,
    /// Ticks after which a stretch of the loop is a stall (`profile_blocked`).
    blocked: Cell<u64>,
    /// Ticks after which a stretch is looked at more closely.
    long: Cell<u64>,
    /// The turn and the beginning of the last stall, until the turn after it is over; 0 for none.
    stalled: Cell<(u64, u64)>,
    /// The turn after it.
    after: Cell<u64>,
    /// There was a stall, or there are watchers: whether a request is to be asked needs a look.
    curious: Cell<bool>,
    pub(crate) watchers: QueueWatchers,
    accepts: Cell<u32>,
    /// A task will settle the recorder's counts.
    pub(crate) is_settling: Cell<bool>,
}

impl WorkerPresences {
    pub(crate) fn new(now: WorkerNow, recorder: &Recorder) -> WorkerPresences {
        WorkerPresences {
            now,
            ids: RequestIds::new(),
            base: *recorder.settings(),
            phases: RefCell::default(),
            rules: RefCell::default(),
            stalls: recorder.stalls().clone(),
            blocked: Cell::new(u64::MAX),
            long: Cell::new(u64::MAX),
            stalled: Cell::new((0, 0)),
            after: Cell::new(0),
            curious: Cell::new(false),
            watchers: QueueWatchers::default(),
            accepts: Cell::new(0),
            is_settling: Cell::new(false),
        }
    }

    /// The plans of a configuration are about to be built: their rules replace those there are.
    pub(crate) fn begin_rules(&self) {
        self.rules.borrow_mut().clear();
    }

    /// The number of a rule; 0, no rule, where there are too many.
    pub(crate) fn add_rule(&self, rule: KeepRule) -> u16 {
        let mut rules = self.rules.borrow_mut();
        rules.push(rule);
        u16::try_from(rules.len()).unwrap_or(0)
    }

    /// All rules, from number 1.
    pub(crate) fn rules(&self) -> Vec<KeepRule> {
        self.rules.borrow().clone()
    }

    /// From here on stretches of the loop of more than `ticks` are stalls, and of those of more than `long` is asked
    /// what the thread did not run.
    pub(crate) fn set_blocked(&self, ticks: u64, long: u64) {
        self.blocked.set(ticks);
        self.long.set(long.min(ticks));
    }

    /// Accounts a stretch of the loop that a request had to itself; should it have been long, its `trace` says which
    /// place in it was the longest, and is given what the thread did not run, as is `off`. Returns what part in a stall makes the
    /// request worth retaining.
    #[inline]
    pub(crate) fn ran<'t>(
        &self,
        run: LoopRun,
        request: RequestId,
        off: &OffCoreSums,
        trace: impl FnOnce() -> &'t mut Trace,
    ) -> Option<KeepReason> {
        self.now.ran(run);
        let mut part = None;
        if self.stalled.get().0 != 0 && run.turn == self.stalled.get().0 {
            part = self.victim(run.start.saturating_sub(run.turn), request);
        }
        if run.end.saturating_sub(run.start) > self.long.get() {
            part = self.long_run(run, request, off, trace()).or(part);
        }
        part
    }

    /// Whether this is the turn after one with a stall, so that what begins now came meanwhile, perhaps; or a caller
    /// wants to know of every request.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        self.curious.get() && self.look()
    }

    /// There is something to look at.
    pub(crate) fn be_curious(&self) {
        self.curious.set(true);
    }

    #[cold]
    fn look(&self) -> bool {
        let late = self.stalled.get().0 != 0 && self.turn_after();
        self.curious.set(self.stalled.get().0 != 0 || self.watchers.are_there());
        late || self.watchers.ask_requests()
    }

    /// Whether this connection's wait in the accept queue is asked for.
    #[inline]
    pub(crate) fn asks_accept(&self) -> bool {
        self.accepts.set(self.accepts.get().wrapping_add(1));
        self.accepts.get() % ACCEPTS == 1 || self.watchers.are_there()
    }

    /// A request that begins now waited this long in the kernel because of the last stall. The first one of each stall
    /// is worth retaining.
    #[cold]
    pub(crate) fn victim(&self, ticks: u64, request: RequestId) -> Option<KeepReason> {
        let (turn, start) = self.stalled.get();
        (turn != 0 && self.stalls.victim(start, request, ticks)).then_some(KeepReason::Waiter)
    }

    fn turn_after(&self) -> bool {
        let turn = weir_rt::turn_stamp();
        if turn == self.stalled.get().0 {
            return false;
        }
        if self.after.get() == 0 {
            self.after.set(turn);
        }
        if self.after.get() != turn {
            self.stalled.set((0, 0));
        }
        self.after.get() == turn
    }

    /// A stretch was long, and perhaps too long.
    #[cold]
    fn long_run(
        &self,
        run: LoopRun,
        request: RequestId,
        off: &OffCoreSums,
        trace: &mut Trace,
    ) -> Option<KeepReason> {
        let duration = run.end - run.start;
        let OffCoreTicks { asleep, no_core } = self.ask_kernel(run.start, run.end, off, trace);
        if duration <= self.blocked.get() {
            return None;
        }
        let site = trace.longest_since(run.start);
        let sample = CpuSample { time: run.end, site, request, ..CpuSample::default() };
        let (start, route) = (run.start, run.route);
        let stall = LoopStall { start, duration, route, asleep, no_core, sample, ..LoopStall::default() };
        self.stall(run, stall);
        Some(KeepReason::Blocker)
    }

    /// A stretch that began at `start` goes on at `now`: what the thread did not run in it so far, if it is long.
    pub(crate) fn look_off_core(&self, start: u64, now: u64, off: &OffCoreSums, trace: &mut Trace) {
        if now.saturating_sub(start) > self.long.get() {
            self.ask_kernel(start, now, off, trace);
        }
    }

    /// Asks the kernel what the thread did not run since it was asked last, which `trace` and `off` are given. Returns what
    /// that was in the whole stretch from `start` to `now`.
    fn ask_kernel(&self, start: u64, now: u64, off: &OffCoreSums, trace: &mut Trace) -> OffCoreTicks {
        let (lost, scale) = (weir_rt::lost_core(), weir_rt::clock::scale());
        // What the thread lost before the stretch, in the same turn, is not the request's.
        let left = (now - start).saturating_sub(off.stretch().sum());
        let asleep = scale.ns_to_ticks(lost.asleep_ns).min(left);
        let no_core = scale.ns_to_ticks(lost.no_core_ns).min(left - asleep);
        trace.off_core(start, asleep, no_core);
        off.add(OffCoreTicks { asleep, no_core })
    }

    fn stall(&self, run: LoopRun, stall: LoopStall) {
        self.stalls.add(stall);
        self.stalled.set((run.turn, run.start));
        self.be_curious();
        self.after.set(0);
    }
}

/// Of this many connections one is asked how long it waited in the accept queue, and the first.
const ACCEPTS: u32 = 16;
