//! Real timers on real threads.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::*;
use crate::clock::thread_cpu_ns;

mod chain;

/// Burns CPU time, in a function that is not inlined.
#[inline(never)]
fn burn_in_leaf(ns: u64) {
    let end = thread_cpu_ns() + ns;
    let mut x = 1u64;
    while black_box(thread_cpu_ns()) < end {
        (0..20_000).for_each(|n| x = black_box(x.rotate_left(7) ^ n));
    }
}

/// The same through code of the C library, which calls back.
#[inline(never)]
fn burn_inside_sort(ns: u64) {
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        burn_in_leaf(1_000_000);
        0
    }
    let mut two = [1u64, 2];
    let end = thread_cpu_ns() + ns;
    while thread_cpu_ns() < end {
        // SAFETY: two elements of eight bytes, and a function that does not look at them.
        unsafe { libc::qsort(two.as_mut_ptr().cast(), 2, 8, Some(compare)) };
    }
}

/// Burns in system calls.
#[inline(never)]
fn burn_in_system_calls(ns: u64) {
    let end = thread_cpu_ns() + ns;
    while thread_cpu_ns() < end {
        // SAFETY: no pointers.
        (0..200).for_each(|_| assert!(black_box(unsafe { libc::getppid() }) >= 0));
    }
}

fn samples(probe: &ThreadProbe) -> Vec<StackSample> {
    let mut all = Vec::new();
    probe.drain(|sample| all.push(sample.clone()));
    all
}

/// A call that sleeps for a fifth of a second (its number), what it gives: result and errno, both 0 if it was not interrupted.
#[cfg(target_arch = "x86_64")]
type SleepingCall = (libc::c_long, fn() -> (i64, i32));

#[cfg(target_arch = "x86_64")]
const SLEEPS: [SleepingCall; 3] = [
    (libc::SYS_clock_nanosleep, || {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        // SAFETY: one timespec to read.
        (unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }.into(), 0)
    }),
    // SAFETY: no descriptors.
    (libc::SYS_poll, || (unsafe { libc::poll(std::ptr::null_mut(), 0, 200) }.into(), 0)),
    (libc::SYS_futex, || {
        let (word, time) = (0u32, libc::timespec { tv_sec: 0, tv_nsec: 200_000_000 });
        // SAFETY: one word and one timespec to read.
        let result = unsafe {
            libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAIT, 0, &raw const time, 0, 0)
        };
        (result + 1, std::io::Error::last_os_error().raw_os_error().unwrap_or(0) - libc::ETIMEDOUT)
    }),
];

/// Nobody wakes earlier because of being looked at.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_sleeping_thread_is_asked_and_sleeps_on() {
    for (number, sleep) in SLEEPS {
        std::thread::scope(|scope| {
            let (shown, seen) = std::sync::mpsc::channel();
            let sleeps = scope.spawn(move || {
                let attached = attach(1).expect("attaches");
                shown.send(attached.probe()).expect("the test waits for it");
                let begun = Instant::now();
                (sleep(), begun.elapsed())
            });
            let probe = seen.recv().expect("it attaches");
            let in_call = || {
                let text = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", probe.tid()));
                text.is_ok_and(|text| text.starts_with(&format!("{number} ")))
            };
            let end = Instant::now() + Duration::from_secs(90);
            while !in_call() && !sleeps.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            probe.ask(u32::try_from(number).ok()).expect("sent");
            let (result, time) = sleeps.join().expect("no panic");
            assert_eq!(result, (0, 0), "call {number} after {time:?}");
            assert!(time >= Duration::from_millis(200), "call {number} woke after {time:?}");
        });
    }
}

#[test]
fn a_blocked_thread_is_asked_and_its_call_goes_on() {
    std::thread::scope(|scope| {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let (shown, seen) = std::sync::mpsc::channel();
        let blocked = scope.spawn(move || {
            let attached = attach(1).expect("attaches");
            shown.send(attached.probe()).expect("the test waits for it");
            let mut byte = [0u8];
            // Not `read_exact`, which would hide an interruption.
            std::io::Read::read(&mut reader, &mut byte)
        });
        let probe = seen.recv().expect("it attaches");
        let end = Instant::now() + Duration::from_secs(90);
        let mut taken = Vec::new();
        while taken.is_empty() && Instant::now() < end {
            probe.ask(None).expect("sent");
            std::thread::sleep(Duration::from_millis(2));
            taken = samples(probe);
        }
        assert_eq!((taken[0].source, taken[0].weight_ns), (SampleSource::Asked, 0));
        assert!(taken[0].frames.len() > 2, "{taken:?}");
        std::io::Write::write_all(&mut &writer, b"x").expect("it reads");
        assert_eq!(blocked.join().expect("no panic").expect("restarted, not interrupted"), 1);
    });
}

#[test]
fn a_probe_is_used_again_and_shows_nothing_of_before() {
    let first = std::thread::spawn(|| {
        let attached = attach(8).expect("attaches");
        assert_eq!(attach(9).err().and_then(|e| e.raw_os_error()), Some(libc::EBUSY));
        attached.probe().arm(SampleSource::Cpu, 99).expect("armed");
        current().set(SitePlace { site: 1, route: 1 });
        attached.probe().set_limit_ns(1);
        (attached.probe(), attached.probe().serial())
    });
    let (old, serial) = first.join().expect("no panic");
    let refuses = old.arm(SampleSource::Cpu, 99).is_err() && old.ask(None).is_err();
    assert!(refuses || old.serial() != serial, "it may be another thread's by now");
    let attached = attach(10).expect("attaches");
    let probe = attached.probe();
    assert!(probe.serial() > serial && probe.tid() > 0 && probe.worker() == 10);
    assert_eq!((probe.current().place(), probe.busy_since()), (SitePlace::default(), 0));
    assert!(probes().iter().any(|&other| std::ptr::eq(other, probe)));
}

#[test]
fn a_loop_shows_its_turns_and_notes_the_long_ones() {
    let runtime = crate::Runtime::new(&crate::RuntimeOptions::default()).expect("a driver");
    let attached = attach(0).expect("attaches");
    let probe = attached.probe();
    probe.set_limit_ns(5_000_000);
    let quick = runtime.block_on(async {
        crate::yield_now().await;
        current().set(SitePlace { site: 4, route: 0 });
        crate::yield_now().await;
        let cleared = current().place();
        assert!(probe.busy_since() > 0);
        burn_in_leaf(20_000_000);
        crate::yield_now().await;
        cleared
    });
    assert_eq!(quick, SitePlace::default(), "between two polls nobody is anywhere");
    assert_eq!(probe.busy_since(), 0);
    let mut long = Vec::new();
    probe.long_turns(|turn| long.push(turn));
    let longest = long.iter().map(|turn| crate::clock::scale().ticks_to_ns(turn.end - turn.start)).max();
    assert!(longest.is_some_and(|ns| ns >= 19_000_000), "{long:?}");
    probe.long_turns(|turn| panic!("taken already: {turn:?}"));
}

/// Numbers of the threads below: other tests' probes are theirs to drain.
const CHURN: u32 = 1000;

#[test]
fn ten_thousand_samples_a_second_and_threads_that_come_and_go() {
    let seconds = std::env::var("WEIR_TORTURE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let begin = Instant::now();
    let (stop, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    // On a busy machine the drainer comes late, and finds less.
    let enough = || taken.load(Relaxed) > 100 || begin.elapsed() > Duration::from_secs(seconds + 90);
    std::thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            while !stop.load(Relaxed) {
                for probe in probes().into_iter().filter(|probe| probe.worker() >= CHURN) {
                    // It may end between the list and here.
                    let _ = probe.arm(SampleSource::Wall, 10_000);
                    let _ = probe.ask(None);
                    probe.drain(|sample| {
                        taken.fetch_add(usize::from(!sample.frames.is_empty()), Relaxed);
                    });
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        while begin.elapsed() < Duration::from_secs(seconds) || !enough() {
            let churn: Vec<_> = (0..3)
                .map(|n| {
                    scope.spawn(move || {
                        let _attached = attach(CHURN + n).expect("attaches");
                        burn_inside_sort(5_000_000);
                        let boxes: Vec<Box<u64>> = (0..10_000).map(Box::new).collect();
                        burn_in_system_calls(5_000_000);
                        black_box(boxes);
                    })
                })
                .collect();
            churn.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
        stop.store(true, Relaxed);
        drainer.join().expect("no panic");
    });
    let taken = taken.into_inner();
    assert!(taken > 100, "{taken} samples");
}
