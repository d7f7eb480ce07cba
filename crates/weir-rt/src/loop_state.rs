//! What a worker's loop and its driver share: the run queue, timers, mail, counters and the turn's times.

use std::cell::Cell;
use std::sync::Arc;

use crate::core_account::CoreAccount;
use crate::executor::RunQueue;
use crate::inbox::Inbox;
use crate::kernel_meter::KernelMeter;
use crate::stats::LoopStats;
use crate::timers::WorkerTimers;
use crate::{clock, sampler};

/// The part of a runtime that its driver may use: everything but the sockets.
pub(crate) struct LoopState {
    pub(crate) sched: RunQueue,
    pub(crate) timers: WorkerTimers,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) cores: CoreAccount,
    pub(crate) kernel: KernelMeter,
    pub(crate) turn: Cell<u64>,
    /// See [`crate::epoch`].
    pub(crate) epoch: Cell<u64>,
    pub(crate) now_ms: Cell<u64>,
    /// Wall time, and the turn it was read in.
    unix: Cell<(u64, (u64, u32))>,
    /// Stamp of the last boundary between busy and parked.
    pub(crate) stamp: Cell<u64>,
}

impl LoopState {
    /// `slot`: where `inbox` is registered.
    pub(crate) fn new(slot: u16, inbox: Arc<Inbox>) -> LoopState {
        let now_ms = clock::monotonic_ms();
        LoopState {
            sched: RunQueue::new(slot),
            timers: WorkerTimers::new(now_ms),
            inbox,
            stats: Arc::new(LoopStats::default()),
            cores: CoreAccount::new(),
            kernel: KernelMeter::new(),
            turn: Cell::new(1),
            epoch: Cell::new(1),
            now_ms: Cell::new(now_ms),
            unix: Cell::new((0, (0, 0))),
            stamp: Cell::new(clock::ticks()),
        }
    }

    /// Milliseconds of the monotonic clock at the end of the last wait, or at the last [renewal](Self::renew_time).
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// Wall time of the turn: seconds since 1970 and milliseconds within the second.
    pub(crate) fn unix_time(&self) -> (u64, u32) {
        let (turn, time) = self.unix.get();
        if turn == self.turn() { time } else { self.read_wall() }
    }

    /// Reads both clocks again: the monotonic one last, so that it never falls short of the other, however long the thread
    /// waits for a core in between.
    pub(crate) fn renew_time(&self) -> (u64, u32) {
        let wall = self.read_wall();
        self.now_ms.set(clock::monotonic_ms());
        wall
    }

    fn read_wall(&self) -> (u64, u32) {
        let time = clock::unix_time();
        self.unix.set((self.turn(), time));
        time
    }

    /// The number of the turn.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn.get()
    }

    /// The wait has ended: a new turn, a new time. Called by the driver before it handles what came.
    pub(crate) fn woke(&self) {
        let now = clock::ticks();
        let parked_ns = clock::scale().ticks_to_ns(now.saturating_sub(self.stamp.get()));
        self.stats.parked_ns.add(parked_ns);
        self.stats.turns.add(1);
        self.stamp.set(now);
        self.stats.turn_began.set(now);
        sampler::mine().turn_began(now);
        self.cores.turn_began(now, &self.stats);
        self.turn.set(self.turn.get() + 1);
        self.received();
        self.now_ms.set(clock::monotonic_ms());
    }

    /// Tasks may now see bytes that came from the kernel after everything they did before.
    #[inline]
    pub(crate) fn received(&self) {
        self.epoch.set(self.epoch.get() + 1);
    }
}
