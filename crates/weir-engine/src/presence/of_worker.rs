//! A worker's present: what its requests have in common while they run.

use std::cell::{Cell, RefCell};

use weir_trace::{
    CpuSample, KeepReason, KeepRule, LoopRun, LoopStall, PhaseMap, Recorder, RecorderSettings, RequestId,
    Site, StallLog, WorkerNow,
};

use super::id::RequestIds;
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

    /// From here on stretches of the loop of more than `ticks` are stalls.
    pub(crate) fn set_blocked(&self, ticks: u64) {
        self.blocked.set(ticks);
    }

    /// Accounts a stretch of the loop that a request had to itself; `site` says which place in it was the longest,
    /// should it have been too long. Returns what part in a stall makes the request worth retaining.
    #[inline]
    pub(crate) fn ran(
        &self,
        run: LoopRun,
        request: RequestId,
        site: impl FnOnce() -> Site,
    ) -> Option<KeepReason> {
        self.now.ran(run);
        let mut part = None;
        if self.stalled.get().0 != 0 && run.turn == self.stalled.get().0 {
            part = self.victim(run.start.saturating_sub(run.turn), request);
        }
        if run.end.saturating_sub(run.start) > self.blocked.get() {
            self.stall(run, request, site());
            part = Some(KeepReason::Blocker);
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

    #[cold]
    fn stall(&self, run: LoopRun, request: RequestId, site: Site) {
        let sample = CpuSample { time: run.end, site, request, ..CpuSample::default() };
        self.stalls.add(LoopStall {
            start: run.start,
            duration: run.end - run.start,
            route: run.route,
            sample,
            ..LoopStall::default()
        });
        self.stalled.set((run.turn, run.start));
        self.be_curious();
        self.after.set(0);
    }
}

/// Of this many connections one is asked how long it waited in the accept queue, and the first.
const ACCEPTS: u32 = 16;
