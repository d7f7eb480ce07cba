//! Time and random numbers.

use crate::kernel::{self, returned};
use crate::randomness;
use crate::simulation::{MONOTONIC_START, WALL_START};
use crate::thread_state::ThreadWait;
use crate::threads::{self, is_simulated};

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds of a clock, as the simulation has it.
pub(super) fn read(clock: i32) -> u64 {
    let now = threads::with(|simulation| simulation.look_at_clock());
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => WALL_START * SECOND + now,
        _ => MONOTONIC_START * SECOND + now,
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / SECOND) as i64, tv_nsec: (ns % SECOND) as i64 }
}

/// Nanoseconds of a time that is not negative.
pub(super) fn nanoseconds(time: &libc::timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(SECOND).saturating_add(time.tv_nsec as u64)
}

/// When a time of that clock is, in the simulation's.
pub(super) fn simulated(clock: i32, ns: u64) -> u64 {
    let start = if clock == libc::CLOCK_REALTIME { WALL_START } else { MONOTONIC_START };
    ns.saturating_sub(start * SECOND)
}

/// clock_gettime(2).
///
/// # Safety
/// `time` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut libc::timespec) -> i32 {
    if !is_simulated() {
        // SAFETY: by the caller's word.
        let result =
            unsafe { kernel::call(libc::SYS_clock_gettime, [clock as usize, time as usize, 0, 0, 0, 0]) };
        return returned(result) as i32;
    }
    // SAFETY: by the caller's word.
    unsafe { time.write(timespec(read(clock))) };
    0
}

/// clock(3): the time of a process that always runs.
#[unsafe(no_mangle)]
pub extern "C" fn clock() -> libc::clock_t {
    let mut now = timespec(0);
    // SAFETY: a place of ours.
    let read = unsafe { clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    if read < 0 { -1 } else { now.tv_sec * 1_000_000 + now.tv_nsec / 1000 }
}

/// gettimeofday(2).
///
/// # Safety
/// `time` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut libc::timeval, _zone: *mut libc::c_void) -> i32 {
    let mut now = timespec(0);
    // SAFETY: a place of ours.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    // SAFETY: by the caller's word.
    unsafe { time.write(libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 }) };
    0
}

/// time(2).
///
/// # Safety
/// `time` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut libc::time_t) -> libc::time_t {
    let mut now = timespec(0);
    // SAFETY: a place of ours.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    if !time.is_null() {
        // SAFETY: by the caller's word.
        unsafe { time.write(now.tv_sec) };
    }
    now.tv_sec
}

/// nanosleep(2).
///
/// # Safety
/// `time` is valid for a read, `left` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) }
}

/// clock_nanosleep(2).
///
/// # Safety
/// `time` is valid for a read, `left` null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: i32,
    flags: i32,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> i32 {
    if !is_simulated() {
        let a = [clock as usize, flags as usize, time as usize, left as usize, 0, 0];
        // SAFETY: by the caller's word.
        return -(unsafe { kernel::call(libc::SYS_clock_nanosleep, a) } as i32);
    }
    // SAFETY: by the caller's word.
    let ns = nanoseconds(unsafe { &*time });
    let until = match flags & libc::TIMER_ABSTIME {
        0 => threads::with(|simulation| simulation.now + ns),
        _ => simulated(clock, ns),
    };
    threads::wait(ThreadWait::Time, Some(until));
    0
}

/// getrandom(2).
///
/// # Safety
/// `bytes` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut u8, length: usize, flags: u32) -> isize {
    if threads::is_inside() {
        // SAFETY: by the caller's word.
        randomness::fill(unsafe { std::slice::from_raw_parts_mut(bytes, length) });
        return length as isize;
    }
    if !is_simulated() {
        let a = [bytes as usize, length, flags as usize, 0, 0, 0];
        // SAFETY: by the caller's word.
        return returned(unsafe { kernel::call(libc::SYS_getrandom, a) });
    }
    // SAFETY: by the caller's word.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
    threads::with(|simulation| bytes.fill_with(|| simulation.random.number() as u8));
    length as isize
}

/// timer_create(2): there are none that would interrupt the simulation.
#[unsafe(no_mangle)]
pub extern "C" fn timer_create(_clock: i32, _event: *mut libc::c_void, _timer: *mut libc::c_void) -> i32 {
    kernel::set_errno(libc::ENOTSUP);
    -1
}
