//! A sample each time that the thread runs again after it slept or lost its processor: who records switches (`weir_sys::switches`)
//! has the kernel send SIGTRAP then, which finds the thread where it slept. Counters ([`super::counted`]) send it, too.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{c_int, c_void};

use super::counted::{COUNTER_NUMBER, COUNTERS};
use super::guard;
use super::handler::{self, SampleCause};
use super::probe::{self, ThreadProbe};
use super::resume::resume;
use super::ring::SampleSource;

/// Makes SIGTRAP ours, so that switches may be recorded; it stays so. Traps of others get what they got before.
///
/// # Errors
/// The errno of sigaction(2); what [`ThreadProbe::prepare`](super::ThreadProbe::prepare) has.
pub fn prepare_switches() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    probe::probes().iter().try_for_each(|probe| probe.prepare())?;
    if *installed {
        return Ok(());
    }
    let before = guard::action(libc::SIGTRAP, None)?;
    BEFORE.get_or_init(|| before);
    // SAFETY: integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = switched as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // The ring has one writer at a time.
    // SAFETY: a set that zero has made empty, and the number of a signal.
    unsafe { libc::sigaddset(&mut action.sa_mask, libc::SIGPROF) };
    guard::action(libc::SIGTRAP, Some(&action))?;
    *installed = true;
    Ok(())
}

/// What signals of recorded switches carry.
pub const SWITCH_NUMBER: u64 = 0x7765_6972;

/// What SIGTRAP did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Async-signal-safe, as all of the sampler's handlers.
extern "C" fn switched(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the address of the thread's errno is valid as long as the thread lives.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes both, valid during the handler; its record has 128 bytes.
    let (info, context) =
        unsafe { (&*info.cast::<EventSignalInfo>(), &mut *context.cast::<libc::ucontext_t>()) };
    let counter = (info.data ^ COUNTER_NUMBER) as usize;
    if info.code != TRAP_PERF || (info.data != SWITCH_NUMBER && counter >= COUNTERS) {
        return foreign(signal);
    }
    let probe = probe::mine();
    if info.data == SWITCH_NUMBER {
        switch(probe, context);
    } else {
        probe.counter_due(counter);
    }
    // It may be asked for its stack, too, and this signal come first.
    if let Some(call) = probe.take_call() {
        resume(call, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The thread runs again.
fn switch(probe: &ThreadProbe, context: &libc::ucontext_t) {
    // Where it waited for events nothing is asked about the stack.
    let registers = if probe.busy_since() == 0 { None } else { handler::registers(context) };
    handler::record(
        probe,
        monotonic_ns(),
        SampleCause { source: SampleSource::Switched, weight_ns: 0 },
        registers,
    );
}

/// A trap that is not ours: what was there before gets it, when it is raised again.
fn foreign(signal: c_int) {
    let Some(before) = BEFORE.get() else { return };
    let restored = guard::action(signal, Some(before));
    if restored.is_ok() {
        // SAFETY: no pointers.
        unsafe { libc::raise(signal) };
    }
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one timespec; async-signal-safe (signal-safety(7)).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's layout of what the signal of an event carries, which the libc crate does not show.
#[repr(C)]
struct EventSignalInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    address: u64,
    data: u64,
}

/// `si_code` of signals of events.
const TRAP_PERF: c_int = 6;
