//! What another thread of the process does at this moment, as the kernel sees it: for one that finds it late.

use std::fs;
use std::time::Duration;

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadWatch {
    tid: i32,
}

/// What a thread does, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// The thread runs on a core.
    Running,
    /// It could run, and has no core.
    Ready,
    /// It waits for something, or has ended.
    Waiting,
}

impl ThreadWatch {
    /// The calling thread, to be watched by another one.
    pub fn current() -> ThreadWatch {
        ThreadWatch { tid: thread_id() }
    }

    /// How long it has run; zero once it has ended. Exact also while it runs. One system call.
    pub fn cpu_time(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for one timespec. A thread that is gone makes it fail, and the time stay zero.
        unsafe { libc::clock_gettime(cpu_clock(self.tid), &raw mut time) };
        Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
    }

    /// What the thread does. Takes five system calls, some ten microseconds; a thread that has a core meanwhile has
    /// run for part of them.
    pub fn state(self) -> ThreadState {
        let before = self.cpu_time();
        let stat = fs::read(format!("/proc/self/task/{}/stat", self.tid)).unwrap_or_default();
        if self.cpu_time() > before {
            return ThreadState::Running;
        }
        // The name, in parentheses, may hold anything.
        let state = stat.iter().rposition(|&byte| byte == b')').and_then(|end| stat.get(end + 2));
        if state == Some(&b'R') { ThreadState::Ready } else { ThreadState::Waiting }
    }
}

/// The kernel's number of the calling thread. A system call, as glibc has gettid(2) from version 2.30 only, and packages
/// need 2.28 (`dist/older-symbols`). Async-signal-safe.
pub fn thread_id() -> libc::pid_t {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// The clock of a thread's time on a CPU, as the kernel makes it of its number (`MAKE_THREAD_CPUCLOCK`,
/// `CPUCLOCK_SCHED`).
fn cpu_clock(tid: i32) -> libc::clockid_t {
    (!tid << 3) | 6
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// Waits until a thread is in `state`.
    fn until(watch: ThreadWatch, state: ThreadState) {
        let began = Instant::now();
        while watch.state() != state {
            assert!(began.elapsed() < Duration::from_secs(60), "never {state:?}");
        }
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let main = fs::read_link("/proc/thread-self").expect("procfs");
        assert!(main.ends_with(thread_id().to_string()), "{main:?}");
        assert_ne!(thread::spawn(thread_id).join().expect("a number"), thread_id());
    }

    #[test]
    fn a_thread_that_waits_and_one_that_runs_or_has_no_core_are_told_apart() {
        let stop = AtomicBool::new(false);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let (sender, watches) = mpsc::channel();
            let (wait, waits) = mpsc::channel::<()>();
            let waiting = sender.clone();
            scope.spawn(move || {
                waiting.send(ThreadWatch::current()).expect("the test reads");
                waits.recv()
            });
            until(watches.recv().expect("a thread"), ThreadState::Waiting);
            // More than there are cores: each runs sometimes, and sometimes has none.
            for _ in 0..=cores {
                let (sender, stop) = (sender.clone(), &stop);
                scope.spawn(move || {
                    sender.send(ThreadWatch::current()).expect("the test reads");
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // All of them run before the test ends: one that starts later would find no reader.
            let spinning: Vec<_> = (0..=cores).map(|_| watches.recv().expect("a thread")).collect();
            let busy = spinning[0];
            until(busy, ThreadState::Running);
            until(busy, ThreadState::Ready);
            assert!(busy.cpu_time() > Duration::ZERO);
            stop.store(true, Relaxed);
            drop(wait);
        });
    }
}
