//! What runs on a sampled thread when the signal comes. Everything here is async-signal-safe: reads of the thread's
//! own cells, relaxed stores, the clock's counter (or the vDSO), the walk, the rest of a call that the signal has ended;
//! errno is as it was.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{c_int, c_void};

use super::guard;
use super::guest::GuestPassage;
use super::probe::{self, ThreadProbe, UNKNOWN_CALL};
use super::resume::resume;
use super::ring::{SampleHeader, SampleSource};
use super::unwind::{self, UnwindRule};
use super::walk::{self, WalkLimits, WalkRegisters, WalkSource};
use crate::clock;

/// Makes SIGPROF ours; afterwards timers may be armed.
///
/// # Errors
/// `EBUSY` if another profiler has the signal.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    let there = guard::action(libc::SIGPROF, None)?.sa_sigaction;
    if there == sampled as *const () as usize && *installed {
        return Ok(());
    }
    if there != libc::SIG_DFL && there != libc::SIG_IGN {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    guard::install()?;
    text(); // found now rather than in the handler
    // SAFETY: integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = sampled as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // The ring has one writer at a time.
    // SAFETY: a set that zero has made empty, and the number of a signal.
    unsafe { libc::sigaddset(&mut action.sa_mask, libc::SIGTRAP) };
    guard::action(libc::SIGPROF, Some(&action))?;
    *installed = true;
    Ok(())
}

extern "C" fn sampled(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let time = clock::ticks();
    // SAFETY: the address of the thread's errno is valid as long as the thread lives.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes both, valid during the handler.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let probe = probe::mine();
    let (source, periods) = cause(info);
    let unit = if source == SampleSource::Alloc { 1 } else { probe.period_ns(source) };
    record(probe, time, SampleCause { source, weight_ns: unit.saturating_mul(periods) }, registers(context));
    // Of two signals that wait the kernel may have kept the timer's.
    let asked = if source == SampleSource::Asked { Some(UNKNOWN_CALL) } else { None };
    if let Some(call) = probe.take_call().or(asked) {
        resume(call, context);
    }
    // SAFETY: the address of the thread's errno is valid as long as the thread lives; the handler runs on that thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Why a sample is taken, and what it weighs.
pub(super) struct SampleCause {
    pub(super) source: SampleSource,
    pub(super) weight_ns: u64,
}

/// Writes a sample, with its stack where there are registers.
pub(super) fn record(probe: &ThreadProbe, time: u64, cause: SampleCause, registers: Option<WalkRegisters>) {
    let Some(ring) = probe.ring() else { return };
    let header = SampleHeader {
        time,
        source: cause.source,
        weight_ns: cause.weight_ns,
        place: probe.current().place().pack(),
        request: probe.current().request(),
        parked: probe.busy_since() == 0,
        vm_state: GuestPassage::state(),
    };
    ring.push(&header, |emit| match registers {
        Some(registers) if probe.may_walk() => {
            let limits = WalkLimits { stack: probe.stack(), text: text() };
            let inner = GuestPassage { stack_end: limits.stack.end };
            walk::walk(registers, &limits, &inner, &OwnProcess { probe }, emit);
        }
        _ => {}
    });
}

/// The memory of this process.
struct OwnProcess<'p> {
    probe: &'p ThreadProbe,
}

impl WalkSource for OwnProcess<'_> {
    #[inline]
    fn load(&self, address: u64) -> Option<u64> {
        let word = guard::load(address);
        if word.is_none() {
            self.probe.fault();
        }
        word
    }

    fn rule(&self, address: u64) -> Option<UnwindRule> {
        unwind::rule_at(address)
    }
}

/// The kernel's layout of what a timer's signal carries, which the libc crate does not show whole; of one with a value
/// the value is at the same place.
#[repr(C)]
pub(super) struct TimerSignalInfo {
    head: [c_int; 4],
    timer: c_int,
    overrun: c_int,
    pub(super) value: usize,
}

/// Which timer it was, and how many of its periods the signal represents; of [`allocated`](super::allocated) how many
/// bytes.
fn cause(info: &libc::siginfo_t) -> (SampleSource, u64) {
    // SAFETY: the kernel's record of 128 bytes has this form for SI_TIMER and SI_QUEUE; it is larger than the part read.
    let timer = unsafe { &*std::ptr::from_ref(info).cast::<TimerSignalInfo>() };
    match info.si_code {
        libc::SI_TIMER => {}
        libc::SI_QUEUE => return (SampleSource::Alloc, timer.value as u64),
        _ => return (SampleSource::Asked, 0),
    }
    let source =
        if timer.value == SampleSource::Wall as usize { SampleSource::Wall } else { SampleSource::Cpu };
    (source, 1 + u64::try_from(timer.overrun).unwrap_or(0))
}

#[cfg(target_arch = "x86_64")]
pub(super) fn registers(context: &libc::ucontext_t) -> Option<WalkRegisters> {
    let of = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
    Some(WalkRegisters {
        ip: of(libc::REG_RIP),
        sp: of(libc::REG_RSP),
        fp: of(libc::REG_RBP),
        base: of(libc::REG_RDX),
        pc: of(libc::REG_RBX),
    })
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn registers(_context: &libc::ucontext_t) -> Option<WalkRegisters> {
    None
}

/// The program's own code, as the linker laid it out; without shared libraries.
fn text() -> std::ops::Range<u64> {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    static TEXT: OnceLock<(u64, u64)> = OnceLock::new();
    let &(start, end) = TEXT.get_or_init(|| (&raw const __executable_start as u64, &raw const etext as u64));
    start..end
}
