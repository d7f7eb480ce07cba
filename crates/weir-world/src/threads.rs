//! The threads of the process: one runs at a time, and where it waits, the seed says who is next.
//!
//! Whoever runs has the baton, and only it touches the [`Simulation`].

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::kernel;
use crate::simulation::Simulation;
use crate::thread_state::{SimThread, ThreadWait, Woken};

/// More threads than a simulated server has.
const MOST: usize = 512;

/// By the thread's number: 1 when it may go on.
static GO: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// The kernel's number of a thread that has handed on the baton for the last time and may not be gone yet; 0: no thread.
static LEAVING: AtomicI32 = AtomicI32::new(0);
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
static IS_INSIDE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ME: Cell<usize> = const { Cell::new(NOBODY) };
}

/// A thread that is none of the simulation's.
const NOBODY: usize = usize::MAX;

struct Shared(UnsafeCell<Option<Simulation>>);

// SAFETY: only the thread that has the baton goes in; handing it on is a release, taking it an acquire.
unsafe impl Sync for Shared {}

static SIMULATION: Shared = Shared(UnsafeCell::new(None));

/// Begins a simulation, in which the caller is the first thread and has the baton.
pub(crate) fn begin(simulation: Simulation) {
    // SAFETY: there is one thread, and no simulation yet.
    unsafe { *SIMULATION.0.get() = Some(simulation) };
    ME.set(0);
    IS_ACTIVE.store(true, Ordering::Release);
}

/// Whether the calling thread is one of a simulation, and runs the program and not the world.
pub(crate) fn is_simulated() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed) && ME.get() != NOBODY && !is_inside()
}

/// The calling thread's place among the simulation's.
pub(crate) fn own() -> usize {
    ME.get()
}

/// Whether the world itself runs, by the hand of whichever thread has the baton.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.load(Ordering::Relaxed)
}

/// Calls `f` with the simulation. `f` does not wait and calls nothing that does.
pub(crate) fn with<R>(f: impl FnOnce(&mut Simulation) -> R) -> R {
    debug_assert!(is_simulated());
    // SAFETY: the caller runs, so it has the baton; `f` does not come back here (what it calls is not simulated).
    let simulation = unsafe { (*SIMULATION.0.get()).as_mut() };
    let Some(simulation) = simulation else { kernel::exit(70) };
    IS_INSIDE.store(true, Ordering::Relaxed);
    let result = f(simulation);
    IS_INSIDE.store(false, Ordering::Relaxed);
    result
}

/// Waits for something, at most until `deadline`.
pub(crate) fn wait(wait: ThreadWait, deadline: Option<u64>) -> Woken {
    let me = ME.get();
    let next = with(|simulation| {
        if let Some(thread) = simulation.threads.get_mut(me) {
            (thread.wait, thread.deadline, thread.is_woken) = (wait, deadline, false);
        }
        simulation.choose()
    });
    hand_on(me, next);
    with(|simulation| simulation.threads.get(me).map_or(Woken::ByEvent, |thread| thread.reason))
}

/// Lets others run, if the seed says so.
pub(crate) fn maybe_pause() {
    if with(|simulation| simulation.pauses()) {
        wait(ThreadWait::Nothing, None);
    }
}

fn hand_on(me: usize, next: usize) {
    if next == me {
        return;
    }
    go(next);
    stop(me);
}

fn go(thread: usize) {
    if let Some(word) = GO.get(thread) {
        word.store(1, Ordering::Release);
        kernel::futex_wake(word);
    }
}

fn stop(me: usize) {
    let Some(word) = GO.get(me) else { kernel::exit(71) };
    while word.swap(0, Ordering::Acquire) == 0 {
        kernel::futex_wait(word, 0);
    }
    // A stack that is free or not yet, and what else the thread gives back at its end, decides where the next bytes are.
    match LEAVING.swap(0, Ordering::Acquire) {
        0 => (),
        thread => kernel::await_end(thread),
    }
}

/// A number for a thread that is about to be made.
pub(crate) fn register() -> usize {
    with(|simulation| {
        simulation.threads.push(SimThread::new());
        simulation.threads.len() - 1
    })
}

/// The thread that the new one is; returns when it has the baton.
pub(crate) fn begin_thread(me: usize) {
    stop(me);
    ME.set(me);
}

/// The calling thread has ended, and all that it had is dropped.
pub(crate) fn end_thread() {
    let me = ME.get();
    let next = with(|simulation| {
        if let Some(thread) = simulation.threads.get_mut(me) {
            thread.wait = ThreadWait::Gone;
        }
        simulation.choose()
    });
    ME.set(NOBODY);
    LEAVING.store(kernel::thread_id(), Ordering::Release);
    go(next);
}
