//! What a sampled thread shows to others, and the registry of them.
//!
//! Probes live as long as the process: one that its thread has left is used again by the next. So the handler, the
//! watchdog and the thread itself may look at it at any time.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Acquire};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::counted::PlaceCounts;
use super::current::CurrentWork;
use super::handler;
use super::ring::{SampleRing, SampleSource, StackSample};
use super::room::SignalStack;
use super::timers::{self, SampleTimer};
use crate::core_account::{LONG_TURN_NS, OffCore};
use crate::thread_watch::thread_id;

/// One thread's cells, timers and ring.
#[repr(align(64))]
#[derive(Debug)]
pub struct ThreadProbe {
    /// Written by the thread; so are the next two.
    current: CurrentWork,
    /// Stamp of the beginning of the loop's turn, 0 while it waits for events.
    busy_since: AtomicU64,
    /// Turns longer than this many nanoseconds are noted.
    limit_ns: AtomicU64,
    /// The loop looks closer at turns longer than this many nanoseconds.
    long_ns: AtomicU64,
    long: LongTurns,
    worker: AtomicU32,
    /// 0 while no thread has the probe.
    tid: AtomicI32,
    /// Counts the threads that had a probe: distinguishes two that had the same one.
    serial: AtomicU64,
    stack: [AtomicU64; 2],
    periods: [AtomicU64; 2],
    /// The system call in which the thread was found when it was asked.
    asked_in: AtomicU32,
    faults: AtomicU32,
    ring: OnceLock<SampleRing>,
    /// There is one once something was counted.
    pub(super) counted: OnceLock<PlaceCounts>,
    /// Held while draining: the ring has one reader at a time.
    reading: Mutex<()>,
    /// Likewise for the long turns: one who drains samples may ask for those.
    reading_turns: Mutex<()>,
    control: Mutex<Option<ProbeControl>>,
}

/// What arming needs; there is some while a thread has the probe.
#[derive(Debug)]
struct ProbeControl {
    tid: libc::pid_t,
    clock: libc::clockid_t,
    timers: [Option<SampleTimer>; 2],
}

/// A turn of the loop that took longer than [`ThreadProbe::set_limit_ns`] allows, noted by the loop itself when it was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongTurn {
    /// When it began, in ticks.
    pub start: u64,
    /// When it was over, in ticks.
    pub end: u64,
    /// What of it the thread did not run.
    pub off: OffCore,
}

impl ThreadProbe {
    const fn new() -> ThreadProbe {
        ThreadProbe {
            current: CurrentWork::new(),
            busy_since: AtomicU64::new(0),
            limit_ns: AtomicU64::new(u64::MAX),
            long_ns: AtomicU64::new(u64::MAX),
            long: LongTurns::new(),
            worker: AtomicU32::new(0),
            tid: AtomicI32::new(0),
            serial: AtomicU64::new(0),
            stack: [AtomicU64::new(0), AtomicU64::new(0)],
            periods: [AtomicU64::new(0), AtomicU64::new(0)],
            asked_in: AtomicU32::new(NO_CALL),
            faults: AtomicU32::new(0),
            ring: OnceLock::new(),
            counted: OnceLock::new(),
            reading: Mutex::new(()),
            reading_turns: Mutex::new(()),
            control: Mutex::new(None),
        }
    }

    /// Where the thread is at this moment.
    #[inline]
    pub fn current(&self) -> &CurrentWork {
        &self.current
    }

    /// The number given to [`attach`].
    pub fn worker(&self) -> u32 {
        self.worker.load(Relaxed)
    }

    /// The thread's number in the kernel; 0 if it has ended.
    pub fn tid(&self) -> i32 {
        self.tid.load(Relaxed)
    }

    /// Another number for every thread that was ever attached.
    pub fn serial(&self) -> u64 {
        self.serial.load(Acquire)
    }

    /// The stamp ([`crate::clock::ticks`]) at which the loop's turn began; 0 while it waits for events.
    #[inline]
    pub fn busy_since(&self) -> u64 {
        self.busy_since.load(Relaxed)
    }

    /// Has the kernel sample the thread `hz` times a second, of CPU time or real time; 0 stops it.
    ///
    /// On CPU time the kernel's tick is the limit (CONFIG_HZ, 100 to 1,000): samples then represent several periods
    /// each. Real time is exact and interrupts a sleeping loop, too: for bounded times.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended, `EINVAL` for a source without a timer, `EBUSY` if another profiler has SIGPROF,
    /// `EAGAIN` without resources.
    pub fn arm(&self, source: SampleSource, hz: u32) -> io::Result<()> {
        let (n, fixed) = match source {
            SampleSource::Cpu => (0, None),
            SampleSource::Wall => (1, Some(libc::CLOCK_MONOTONIC)),
            SampleSource::Asked | SampleSource::Alloc | SampleSource::Switched => {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
        };
        let mut control = self.control();
        let control = control.as_mut().ok_or_else(gone)?;
        if hz > 0 {
            handler::install()?;
            self.ring.get_or_init(SampleRing::new);
        }
        let period = 1_000_000_000u64.checked_div(u64::from(hz)).unwrap_or(0);
        self.periods[n].store(period, Relaxed);
        match (&control.timers[n], period) {
            (None, 0) => Ok(()),
            (Some(timer), _) => timer.set(period),
            (None, _) => {
                let timer = SampleTimer::new(
                    fixed.unwrap_or(control.clock),
                    control.tid,
                    libc::SIGPROF,
                    source as usize,
                )?;
                timer.set(period)?;
                control.timers[n] = Some(timer);
                Ok(())
            }
        }
    }

    /// Makes ready for [`allocated`](super::allocated) on the thread.
    ///
    /// # Errors
    /// `EBUSY` if another profiler has SIGPROF.
    pub fn prepare(&self) -> io::Result<()> {
        handler::install()?;
        self.ring.get_or_init(SampleRing::new);
        Ok(())
    }

    /// Has the thread take one sample now: at once if it runs, or sleeps where signals wake it; when the kernel lets
    /// it go otherwise. Interrupted system calls are restarted, those that sleep for a time, too; others end with EINTR as
    /// signal(7) has it. `call`: the number of the system call that it was found in.
    ///
    /// # Errors
    /// As [`ThreadProbe::arm`].
    pub fn ask(&self, call: Option<u32>) -> io::Result<()> {
        let control = self.control();
        let tid = control.as_ref().ok_or_else(gone)?.tid;
        self.prepare()?;
        self.asked_in.store(call.unwrap_or(UNKNOWN_CALL), Relaxed);
        // SAFETY: no pointers; the thread lives, as it takes `control` away before it ends.
        match unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGPROF) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives every sample taken since the last time to `each`, oldest first.
    pub fn drain(&self, each: impl FnMut(&StackSample)) {
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = self.ring.get() {
            ring.drain(each);
        }
    }

    /// Samples that found the ring full.
    pub fn lost(&self) -> u64 {
        self.ring.get().map_or(0, SampleRing::lost)
    }

    /// Loads in the walk that faulted since [`ThreadProbe::forgive`]. After [`MAX_FAULTS`] stacks are no longer walked:
    /// samples have their place only.
    pub fn faults(&self) -> u32 {
        self.faults.load(Relaxed)
    }

    /// Stacks are walked (again): to be called about once a minute as long as [`ThreadProbe::faults`] is below
    /// [`MAX_FAULTS`].
    pub fn forgive(&self) {
        self.faults.store(0, Relaxed);
    }

    /// From here on turns longer than `limit` nanoseconds are noted for [`ThreadProbe::long_turns`]; with `u64::MAX`
    /// none is.
    pub fn set_limit_ns(&self, limit: u64) {
        self.limit_ns.store(limit, Relaxed);
        self.long_ns.store(limit.min(LONG_TURN_NS), Relaxed);
    }

    /// Gives each long turn to `each` that has ended since the last time, oldest first. Of more than sixteen the
    /// newest are missing.
    pub fn long_turns(&self, each: impl FnMut(LongTurn)) {
        let _one = self.reading_turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.long.take(each);
    }

    /// The loop has something to do since `now`.
    #[inline]
    pub(crate) fn turn_began(&self, now: u64) {
        self.busy_since.store(now, Relaxed);
        super::rouse();
    }

    /// The loop has done it, and waits.
    #[inline]
    pub(crate) fn turn_ended(&self) {
        self.busy_since.store(0, Relaxed);
    }

    /// Whether a turn of this many nanoseconds is worth a closer look.
    #[inline]
    pub(crate) fn is_long(&self, busy_ns: u64) -> bool {
        busy_ns >= self.long_ns.load(Relaxed)
    }

    /// Notes a turn of `busy_ns` if that is longer than allowed.
    pub(crate) fn note_long(&self, turn: LongTurn, busy_ns: u64) {
        if busy_ns >= self.limit_ns.load(Relaxed) {
            self.long.put(turn);
        }
    }

    /// The handlers': the call in which the thread was found when it was asked, or [`UNKNOWN_CALL`]; once.
    pub(super) fn take_call(&self) -> Option<u32> {
        let call = self.asked_in.load(Relaxed);
        if call == NO_CALL {
            return None;
        }
        self.asked_in.store(NO_CALL, Relaxed);
        Some(call)
    }

    /// The handler's: a counter wants to be read.
    pub(super) fn counter_due(&self, counter: usize) {
        if let Some(counted) = self.counted.get() {
            counted.due(counter, self.current.place().pack(), self.busy_since() == 0);
        }
    }

    /// The handler's; there is one once something was armed.
    pub(super) fn ring(&self) -> Option<&SampleRing> {
        self.ring.get()
    }

    pub(super) fn period_ns(&self, source: SampleSource) -> u64 {
        self.periods.get(source as usize).map_or(0, |period| period.load(Relaxed))
    }

    pub(super) fn stack(&self) -> Range<u64> {
        self.stack[0].load(Relaxed)..self.stack[1].load(Relaxed)
    }

    pub(super) fn may_walk(&self) -> bool {
        self.faults.load(Relaxed) < MAX_FAULTS
    }

    pub(super) fn fault(&self) {
        self.faults.store(self.faults.load(Relaxed).saturating_add(1), Relaxed);
    }

    fn control(&self) -> MutexGuard<'_, Option<ProbeControl>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Faults ([`ThreadProbe::faults`]) after which stacks are no longer walked: one is an accident, ten are a mistake of ours.
pub const MAX_FAULTS: u32 = 10;

/// The thread is not asked.
const NO_CALL: u32 = u32::MAX;
/// It is asked, and ran when it was looked at.
pub(super) const UNKNOWN_CALL: u32 = u32::MAX - 1;

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// What threads have that are not attached. Its cells are written by all of them and read by none.
static NOBODY: ThreadProbe = ThreadProbe::new();

thread_local! {
    // Const and without destructor: the handler's access is one load.
    static MINE: Cell<&'static ThreadProbe> = const { Cell::new(&NOBODY) };
}

#[inline]
pub(super) fn mine() -> &'static ThreadProbe {
    MINE.get()
}

static REGISTRY: Mutex<ProbeRegistry> =
    Mutex::new(ProbeRegistry { attached: Vec::new(), free: Vec::new(), serial: 0 });

struct ProbeRegistry {
    attached: Vec<&'static ThreadProbe>,
    free: Vec<&'static ThreadProbe>,
    serial: u64,
}

fn registry() -> MutexGuard<'static, ProbeRegistry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The probes of all attached threads.
pub fn probes() -> Vec<&'static ThreadProbe> {
    registry().attached.clone()
}

/// Shows the calling thread as worker `worker` until what is returned is dropped. Costs nothing until armed.
///
/// # Errors
/// `EBUSY` if the thread is attached already; the errno of asking for the thread's stack or CPU clock.
pub fn attach(worker: u32) -> io::Result<AttachedThread> {
    if !std::ptr::eq(mine(), &raw const NOBODY) {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let stack = stack_of_thread()?;
    let clock = timers::cpu_clock()?;
    let room = SignalStack::new()?;
    // Of timers; of counters and of recorded switches, which wait where the signal is blocked.
    for signal in [libc::SIGPROF, libc::SIGTRAP] {
        timers::unblock(signal)?;
    }
    crate::clock::ticks(); // its source is decided here rather than in the handler
    let tid = thread_id();
    let mut registry = registry();
    let probe = registry.free.pop().unwrap_or_else(|| Box::leak(Box::new(ThreadProbe::new())));
    registry.serial += 1;
    probe.worker.store(worker, Relaxed);
    probe.tid.store(tid, Relaxed);
    probe.stack[0].store(stack.start, Relaxed);
    probe.stack[1].store(stack.end, Relaxed);
    probe.serial.store(registry.serial, Release);
    *probe.control() = Some(ProbeControl { tid, clock, timers: [None, None] });
    MINE.set(probe);
    registry.attached.push(probe);
    Ok(AttachedThread { probe, _room: room, _here: PhantomData })
}

/// Shows the thread as long as this value lives; dropped where it was made.
#[derive(Debug)]
pub struct AttachedThread {
    probe: &'static ThreadProbe,
    /// Given back when the timers are gone.
    _room: SignalStack,
    _here: PhantomData<*const ()>,
}

impl AttachedThread {
    /// The probe of this thread: what other threads read of it.
    pub fn probe(&self) -> &'static ThreadProbe {
        self.probe
    }
}

impl Drop for AttachedThread {
    fn drop(&mut self) {
        // The timers go first: no signal of theirs finds another thread's probe.
        *self.probe.control() = None;
        MINE.set(&NOBODY);
        let probe = self.probe;
        probe.forget_counters();
        probe.drain(|_| ());
        probe.long_turns(|_| ());
        probe.current.clear();
        probe.busy_since.store(0, Relaxed);
        probe.limit_ns.store(u64::MAX, Relaxed);
        probe.long_ns.store(u64::MAX, Relaxed);
        probe.forgive();
        probe.tid.store(0, Relaxed);
        let mut registry = registry();
        registry.attached.retain(|&other| !std::ptr::eq(other, probe));
        registry.free.push(probe);
    }
}

/// The calling thread's stack.
pub(crate) fn stack_of_thread() -> io::Result<Range<u64>> {
    // SAFETY: an opaque structure that the call below fills; zero is a value of its integers and pointers.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the thread is the calling one; all pointers are valid for the calls; what was filled is destroyed.
    let errno = unsafe {
        match libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) {
            0 => {
                let errno = libc::pthread_attr_getstack(&raw const attributes, &mut start, &mut size);
                libc::pthread_attr_destroy(&mut attributes);
                errno
            }
            errno => errno,
        }
    };
    match errno {
        0 => Ok(start as u64..start as u64 + size as u64),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The last long turns: written by the loop, read by one other thread.
#[derive(Debug)]
struct LongTurns {
    slots: [[AtomicU64; 4]; SLOTS],
    written: AtomicU64,
    read: AtomicU64,
}

const SLOTS: usize = 16;

impl LongTurns {
    const fn new() -> LongTurns {
        LongTurns {
            slots: [const { [const { AtomicU64::new(0) }; 4] }; SLOTS],
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    /// Without a free slot the turn is left out: it was not read for a long time.
    #[cold]
    fn put(&self, turn: LongTurn) {
        let n = self.written.load(Relaxed);
        if n.wrapping_sub(self.read.load(Acquire)) >= SLOTS as u64 {
            return;
        }
        let slot = &self.slots[n as usize % SLOTS];
        let LongTurn { start, end, off: OffCore { asleep_ns, no_core_ns } } = turn;
        slot.iter()
            .zip([start, end, asleep_ns, no_core_ns])
            .for_each(|(cell, value)| cell.store(value, Relaxed));
        self.written.store(n + 1, Release);
    }

    fn take(&self, mut each: impl FnMut(LongTurn)) {
        let written = self.written.load(Acquire);
        for n in self.read.load(Relaxed)..written {
            let slot = &self.slots[n as usize % SLOTS];
            let [start, end, asleep_ns, no_core_ns] = std::array::from_fn(|at| slot[at].load(Relaxed));
            let turn = LongTurn { start, end, off: OffCore { asleep_ns, no_core_ns } };
            self.read.store(n + 1, Release);
            each(turn);
        }
    }
}
