//! One worker: its tasks, timers and sockets, and the turn that drives them.
//!
//! A turn: one round of the run queue, what that left to send, one system call (submit, wait, reap), the clock, mail
//! from other threads, timers. The clock is read when the wait ends; read before it, the first deadline set after a
//! long sleep would be past already.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::core_account::OffCore;
use crate::driver::{DriverChoice, DriverKind, WaitLimit, WorkerIo};
use crate::executor::{MAIN, PollOutcome, RunQueue, set_current_queue, task_of, waker};
use crate::heap::HeapKeeping;
use crate::inbox::{self, Inbox, InboxMessage, InboxRegistration};
use crate::local::LoopLocal;
use crate::loop_state::LoopState;
use crate::sampler::LongTurn;
use crate::stats::LoopStats;
use crate::task::{self, TaskId};
use crate::{blocking as pool, clock, sampler, sys};

/// What a runtime is made with.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Which driver: io_uring, epoll, or the best that works.
    pub driver: DriverChoice,
    /// The worker's number, for [`RuntimeHandle::worker`] and names; need not be unique in the process.
    pub worker: u8,
    /// Receive buffers of 4 KB in the pool; rounded up to a power of two between 8 and 32,768.
    pub buffers: u16,
    /// The thread's name in logs.
    pub name: String,
}

impl Default for RuntimeOptions {
    fn default() -> RuntimeOptions {
        RuntimeOptions { driver: DriverChoice::Auto, worker: 0, buffers: 1024, name: String::from("weir") }
    }
}

/// One worker's runtime. It belongs to the thread that made it, as does everything made inside it.
pub struct Runtime {
    core: Rc<RuntimeCore>,
    name: String,
    /// Ends with the runtime, even if a stream keeps the core.
    _registration: InboxRegistration,
    /// Last, for what the others free.
    _keeping: HeapKeeping,
}

/// What all handles of a runtime share.
pub(crate) struct RuntimeCore {
    pub(crate) io: LoopLocal<WorkerIo>,
    pub(crate) state: LoopState,
    driver: DriverKind,
    worker: u8,
    running: Cell<bool>,
    /// More mail came while the last was read.
    mail_left: Cell<bool>,
    /// See [`at_round_end`].
    round_end: LoopLocal<Vec<Rc<dyn Fn()>>>,
    /// What the task that is polled may still receive in this poll, in units of [`USUAL_RECEIVE`].
    appetite: Cell<usize>,
}

thread_local! {
    static CURRENT: Cell<*const RuntimeCore> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with this thread's running runtime, if there is one.
#[inline]
pub(crate) fn with_current<R>(f: impl FnOnce(&RuntimeCore) -> R) -> Option<R> {
    let core = CURRENT.get();
    // SAFETY: null, or set by `EnteredRuntime`, which keeps a reference to the core and takes it back before giving it up.
    unsafe { core.as_ref() }.map(f)
}

/// This thread's running runtime.
///
/// # Panics
/// Outside one.
pub(crate) fn current() -> Rc<RuntimeCore> {
    let core = CURRENT.get();
    assert!(!core.is_null(), "weir-rt: this can only be used inside Runtime::block_on, on its thread");
    // SAFETY: not null, so it comes from `Rc::as_ptr` of the reference that `EnteredRuntime` holds: one more is counted.
    unsafe {
        Rc::increment_strong_count(core);
        Rc::from_raw(core)
    }
}

/// Makes a core this thread's current one until dropped.
struct EnteredRuntime {
    before: *const RuntimeCore,
    sched_before: *const RunQueue,
    _core: Rc<RuntimeCore>,
}

impl EnteredRuntime {
    fn new(core: &Rc<RuntimeCore>) -> EnteredRuntime {
        // SAFETY: the core does not move, and `_core` keeps it until `drop` has set what was there before.
        let sched_before = unsafe { set_current_queue(&raw const core.state.sched) };
        EnteredRuntime { before: CURRENT.replace(Rc::as_ptr(core)), sched_before, _core: Rc::clone(core) }
    }
}

impl Drop for EnteredRuntime {
    fn drop(&mut self) {
        CURRENT.set(self.before);
        // SAFETY: null, or set by an `EnteredRuntime` around this one, which is alive.
        unsafe { set_current_queue(self.sched_before) };
    }
}

impl Runtime {
    /// A runtime for the calling thread.
    ///
    /// # Errors
    /// Out of descriptors or memory; with [`DriverChoice::IoUring`], whatever
    /// [`probe_io_uring`](crate::probe_io_uring) says.
    pub fn new(o: &RuntimeOptions) -> io::Result<Runtime> {
        let keeping = HeapKeeping::begin();
        sys::ignore_sigpipe();
        clock::scale(); // measured now rather than in the first turn
        let inbox = Arc::new(Inbox::new()?);
        let registration = inbox::register(Arc::clone(&inbox))?;
        let io = WorkerIo::new(o.driver, o.buffers, inbox.fd())?;
        let core = RuntimeCore {
            driver: io.kind(),
            io: LoopLocal::new(io),
            state: LoopState::new(registration.slot(), inbox),
            worker: o.worker,
            running: Cell::new(false),
            mail_left: Cell::new(false),
            round_end: LoopLocal::new(Vec::new()),
            appetite: Cell::new(APPETITE),
        };
        Ok(Runtime {
            core: Rc::new(core),
            name: o.name.clone(),
            _registration: registration,
            _keeping: keeping,
        })
    }

    /// The driver that the runtime uses.
    pub fn driver(&self) -> DriverKind {
        self.core.driver
    }

    /// The runtime's name for logs, as [`RuntimeOptions::name`] gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs tasks until `f` is ready. Other tasks stay as they are and go on at the next call; dropping the runtime
    /// ends them. A panic of `f` passes through.
    ///
    /// # Panics
    /// If called inside itself.
    pub fn block_on<F: Future>(&self, f: F) -> F::Output {
        let core = &*self.core;
        assert!(!core.running.replace(true), "weir-rt: block_on inside block_on of the same runtime");
        let _running = RunningMark(&core.running);
        let _entered = EnteredRuntime::new(&self.core);
        let output = core.run(f);
        core.drive(clock::ticks(), Some(0)); // what was queued or closed last goes out
        sampler::mine().turn_ended();
        output
    }

    /// A handle by which other threads reach this runtime.
    pub fn remote(&self) -> RuntimeHandle {
        self.core.remote()
    }

    /// The counters of its loop, which other threads may read while it runs.
    pub fn stats(&self) -> Arc<LoopStats> {
        Arc::clone(&self.core.state.stats)
    }
}

impl Drop for Runtime {
    /// Drops all tasks, closes all sockets, and waits for the kernel to give their memory back.
    fn drop(&mut self) {
        let _entered = EnteredRuntime::new(&self.core);
        let core = &*self.core;
        core.state.sched.clear();
        drop(core.round_end.with(std::mem::take));
        core.state.inbox.close();
        drop(core.state.inbox.drain());
        core.io.with(|io| io.shut(&core.state));
        core.state.sched.clear();
    }
}

struct RunningMark<'a>(&'a Cell<bool>);

impl Drop for RunningMark<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl RuntimeCore {
    fn remote(&self) -> RuntimeHandle {
        RuntimeHandle { inbox: Arc::clone(&self.state.inbox), worker: self.worker }
    }

    /// Stores the polling task's waker in a place of the driver's.
    #[inline]
    pub(crate) fn register(&self, cx: &Context<'_>, place: impl Fn(&mut WorkerIo) -> &mut Option<Waker>) {
        let waker = cx.waker();
        let old = if task_of(waker, self.state.sched.slot()).is_some() {
            self.io.with(|io| place(io).replace(waker.clone()))
        } else {
            // A foreign waker's clone may run anything: not inside the window.
            let new = waker.clone();
            self.io.with(|io| place(io).replace(new))
        };
        drop(old);
    }

    /// The loop, until `f` is ready (and dropped).
    fn run<F: Future>(&self, f: F) -> F::Output {
        let mut main = pin!(f);
        let waker = waker(self.state.sched.slot(), MAIN);
        self.start();
        loop {
            for _ in 0..self.state.sched.queued() {
                let Some(task) = self.state.sched.next() else { break };
                if task != MAIN {
                    self.poll(task);
                    continue;
                }
                if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
                self.polled();
            }
            self.end_round();
            let stamp = clock::ticks();
            self.drive(stamp, self.wait(stamp));
        }
    }

    /// Calls what asked for it, once.
    fn end_round(&self) {
        if self.round_end.with(|list| list.is_empty()) {
            return;
        }
        let mut list = self.round_end.with(std::mem::take);
        for f in list.drain(..) {
            if task::catch(|| f()).is_none() {
                self.state.stats.panics.add(1);
            }
        }
        self.round_end.with(|new| {
            // Keeps the memory, and what the calls have asked for.
            list.append(new);
            *new = list;
        });
    }

    fn start(&self) {
        self.state.stamp.set(clock::ticks());
        sampler::mine().turn_began(self.state.stamp.get());
        self.state.now_ms.set(clock::monotonic_ms());
        self.state.turn.set(self.state.turn.get() + 1);
        self.read_mail();
        self.state.sched.wake(MAIN);
    }

    fn poll(&self, task: u32) {
        match self.state.sched.poll(task) {
            PollOutcome::Gone => return,
            PollOutcome::Panicked => self.state.stats.panics.add(1),
            PollOutcome::Pending | PollOutcome::Finished => (),
        }
        self.polled();
    }

    /// Whether the task that is polled may receive once more in this poll, up to `most` bytes.
    #[inline]
    pub(crate) fn may_receive(&self, most: usize) -> bool {
        let appetite = self.appetite.get();
        self.appetite.set(appetite.saturating_sub(most.div_ceil(USUAL_RECEIVE)));
        appetite > 0
    }

    /// After every poll: its output goes out while it is in the cache.
    fn polled(&self) {
        sampler::current().clear();
        self.appetite.set(APPETITE);
        self.state.stats.tasks_polled.add(1);
        if self.io.with(|io| !io.sockets.dirty.is_empty()) {
            self.state.kernel.measure(|| self.io.with(|io| io.flush_dirty(&self.state)));
        }
        self.state.sched.wake_foreign();
    }

    /// How long the loop may sleep, as of `stamp`.
    fn wait(&self, stamp: u64) -> WaitLimit {
        if self.state.sched.is_runnable() || self.mail_left.get() {
            return Some(0);
        }
        // The time since the last wait counts too, or a long round would make timers late.
        let busy_ns = clock::scale().ticks_to_ns(stamp.saturating_sub(self.state.stamp.get()));
        self.state.timers.sleep_for(self.state.now_ms() + busy_ns / 1_000_000)
    }

    /// The second half of a turn: system call, mail, timers.
    fn drive(&self, stamp: u64, wait: WaitLimit) {
        let busy_ns = clock::scale().ticks_to_ns(stamp.saturating_sub(self.state.stamp.get()));
        self.state.stats.busy_ns.add(busy_ns);
        self.state.stats.longest_poll_ns.max(busy_ns);
        self.state.stats.tasks_live.set(self.state.sched.live());
        let probe = sampler::mine();
        if probe.is_long(busy_ns) {
            self.long_turn(stamp, busy_ns);
        }
        probe.turn_ended();
        self.state.stats.turn_began.set(0);
        self.state.stamp.set(stamp);
        let mail = self.state.kernel.measure(|| self.io.with(|io| io.turn(&self.state, wait)));
        self.state.kernel.turn();
        if mail || self.mail_left.get() {
            self.read_mail();
        }
        self.state.timers.advance(self.state.now_ms(), &self.state.sched, &self.state.stats);
        self.state.sched.wake_foreign();
    }

    /// A turn took long: what the thread lost in it is counted, and where it is longer than allowed, noted.
    #[cold]
    fn long_turn(&self, stamp: u64, busy_ns: u64) {
        let off = self.state.cores.turn_ended(&self.state.stats);
        self.state.stats.asleep_ns.add(off.asleep_ns);
        self.state.stats.no_core_ns.add(off.no_core_ns);
        sampler::mine().note_long(LongTurn { start: self.state.stamp.get(), end: stamp, off }, busy_ns);
    }

    /// Takes what other threads have sent. The inbox stays "asleep" between mails, so that its first message writes
    /// the eventfd and a turn without mail touches no atomic.
    fn read_mail(&self) {
        self.state.inbox.awake();
        for message in self.state.inbox.drain() {
            match message {
                InboxMessage::Wake(task) => self.state.sched.wake(task),
                InboxMessage::FileRead(read) => {
                    self.state.kernel.measure(|| self.io.with(|io| io.read_in_done(&self.state, &read)));
                }
                InboxMessage::Run(run) => {
                    if task::catch(run).is_none() {
                        self.state.stats.panics.add(1);
                    }
                }
            }
        }
        self.mail_left.set(!self.state.inbox.prepare_sleep());
    }
}

/// Reaches a runtime from any thread.
#[derive(Clone)]
pub struct RuntimeHandle {
    inbox: Arc<Inbox>,
    worker: u8,
}

impl RuntimeHandle {
    /// Has `f` called on the runtime's thread, between two rounds of its tasks. Dropped uncalled if the runtime has
    /// ended. A panic in it is counted and reported like a task's.
    pub fn run(&self, f: Box<dyn FnOnce() + Send>) {
        self.inbox.push(f);
    }

    /// The number from [`RuntimeOptions`].
    pub fn worker(&self) -> u8 {
        self.worker
    }
}

/// A handle of the running runtime.
///
/// # Panics
/// Outside a runtime.
pub fn remote() -> RuntimeHandle {
    current().remote()
}

/// Starts a task. It runs first in the next round; a panic in it ends it alone.
///
/// # Panics
/// Outside a runtime.
pub fn spawn(f: impl Future<Output = ()> + 'static) -> TaskId {
    current().state.sched.spawn(Box::pin(f))
}

/// Has `f` called once, when the tasks that can run now have run and before the loop asks the kernel for more: to let
/// go of what this turn's tasks shared, at the price of a push. A task for it would be a turn of its own, with a system
/// call. A panic in `f` is counted and reported like a task's.
///
/// # Panics
/// Outside a runtime.
pub fn at_round_end(f: Rc<dyn Fn()>) {
    inside(with_current(|core| core.round_end.with(|list| list.push(f))));
}

/// Lets the other tasks that can run do so first, and completions and timers be seen.
pub fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Milliseconds of the monotonic clock, as of the beginning of this turn.
///
/// # Panics
/// Outside a runtime.
#[inline]
pub fn now_ms() -> u64 {
    inside(with_current(|core| core.state.now_ms()))
}

/// As [`now_ms`], where there is a runtime.
#[inline]
pub fn try_now_ms() -> Option<u64> {
    with_current(|core| core.state.now_ms())
}

/// Whether this thread's loop receives by itself (epoll); with io_uring the kernel does.
///
/// # Panics
/// Outside a runtime.
pub fn receives_itself() -> bool {
    inside(with_current(|core| core.driver)) == DriverKind::Epoll
}

/// Receive buffers of this thread's loop: free, and all.
///
/// # Panics
/// Outside a runtime.
pub fn buffers() -> (u32, u32) {
    inside(with_current(|core| core.io.with(|io| io.sockets.pool.free_of())))
}

/// The stamp ([`clock::ticks`]) at which this turn's wait ended: what came with it has been ready since.
///
/// # Panics
/// Outside a runtime.
#[inline]
pub fn turn_stamp() -> u64 {
    inside(with_current(|core| core.state.stamp.get()))
}

/// What the thread lost since this was asked in this turn, or since it began: asleep in a call, or without a core. Two
/// system calls; for the end of what took a millisecond or more. What is less than 10 µs is nothing.
///
/// # Panics
/// Outside a runtime.
pub fn lost_core() -> OffCore {
    inside(with_current(|core| core.state.cores.lost(&core.state.stats)))
}

/// A number that changes whenever the loop has received bytes from the kernel: whatever was asked of the system since
/// it is what it is was asked after all bytes that tasks have seen so far were sent. So a response (a file opened) may
/// be shared by the requests of one epoch, and shows none of them the world before it began.
///
/// # Panics
/// Outside a runtime.
#[inline]
pub fn epoch() -> u64 {
    inside(with_current(|core| core.state.epoch.get()))
}

/// The number of the loop's turn.
///
/// # Panics
/// Outside a runtime.
pub(crate) fn turn() -> u64 {
    inside(with_current(|core| core.state.turn()))
}

/// Counts a file that was written on the loop, which took `ns`. What was opened before is not what is there now
/// ([`epoch`]).
///
/// # Panics
/// Outside a runtime.
pub(crate) fn wrote_small_file(ns: u64) {
    inside(with_current(|core| {
        core.state.stats.small_writes.add(1);
        core.state.stats.longest_small_write_ns.max(ns);
        core.state.received();
    }));
}

/// Wall time, as of this turn: seconds since 1970 and milliseconds within the second.
///
/// # Panics
/// Outside a runtime.
pub fn unix_time() -> (u64, u32) {
    inside(with_current(|core| core.state.unix_time()))
}

/// The wall time, read again, which [`unix_time`] and [`now_ms`] do not fall short of afterwards.
pub fn renew_time() -> (u64, u32) {
    with_current(|core| core.state.renew_time()).unwrap_or_else(clock::unix_time)
}

fn inside<T>(found: Option<T>) -> T {
    found.expect("weir-rt: this can only be used inside Runtime::block_on, on its thread")
}

/// Runs `f` on a thread of the blocking pool and waits for its result. A panic of `f` goes on in the waiting task;
/// if that has been dropped, `f` still runs to its end.
pub async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    away(pool::submit, f).await
}

/// As [`blocking`], for what computes long rather than waits: on threads that give way to the loops.
pub async fn computing<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    away(pool::compute, f).await
}

/// As [`blocking`], for keys in devices: on threads that wait, and give way to the loops when they compute.
pub async fn asking_device<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    away(pool::ask_device, f).await
}

async fn away<T: Send + 'static>(
    submit: fn(Box<dyn FnOnce() + Send>),
    f: impl FnOnce() -> T + Send + 'static,
) -> T {
    let call = Arc::new(Mutex::new(PoolCall { result: None, waker: None }));
    let theirs = Arc::clone(&call);
    let mut job = Some(Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        let mut call = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        call.result = Some(result);
        let waker = call.waker.take();
        drop(call);
        if let Some(waker) = waker {
            waker.wake();
        }
    }));
    let result = poll_fn(|cx| {
        if let Some(job) = job.take() {
            // Before: it may be done, elsewhere, before this returns.
            call.lock().unwrap_or_else(PoisonError::into_inner).waker = Some(cx.waker().clone());
            submit(job);
            return Poll::Pending;
        }
        let mut call = call.lock().unwrap_or_else(PoisonError::into_inner);
        match call.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                call.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A call in the blocking pool: what both sides share.
struct PoolCall<T> {
    result: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}

/// Bytes that a usual receive brings at most: a buffer of the pool.
pub const USUAL_RECEIVE: usize = crate::pool::BUFFER_SIZE;
/// Units that a task receives in one poll, 256 KB in all. A reader that finds nothing to hand on in what comes (messages of a
/// FastCGI application) would read for as long as its peer sends, and hold up all others: by seconds, where the peer is on
/// this machine. So much of the most laborious framing takes some milliseconds.
const APPETITE: usize = 64;
