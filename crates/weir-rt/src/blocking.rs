//! Threads for calls that block: cold files, name lookups by the C library, keys in hardware.
//!
//! Three pools per process: for calls that wait, for computations, and for keys in devices, whose libraries may do either.
//! Threads of the last two give way to the loops. Threads are started when work finds none idle, up to a limit, and end
//! after ten idle seconds, so a server that never blocks has none. Work wakes the thread that has been idle for the
//! shortest time: after a burst those that are too many stay idle, and end. Threads take no signals: those belong to the
//! main thread. They run on all of the process' cores, whichever worker's is the one that started them.

use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{clock, process, signal};

/// Something to run on a pool thread.
type PoolJob = Box<dyn FnOnce() + Send>;

/// Threads at most.
const MAX_THREADS: usize = 32;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// The niceness of threads that give way, unless [`set_computing`] says otherwise. The slice they ask for
/// (`process::give_way`) lets loops begin at once; this says what they get of a core that others keep busy. On a core
/// with two programs at 0, handshakes a second at 19, 15, 10 and 5: RSA-2048 6, 19, 62, 207; RSA-4096 2, -, 18, 46.
/// Alone with a worker, 1,000 handshakes a second with RSA-2048 add to the p99 of its requests +0.1, -0.5, +1.5 ms at
/// 19, 15 and 10 (`bench/tls/run lua`).
pub const KEYS_NICE: i32 = 15;

/// What the pool is doing, for the USE table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Threads there are.
    pub threads: usize,
    /// Threads there may be.
    pub most: usize,
    /// Number of threads that run a job.
    pub busy: usize,
    /// Number of jobs that wait for a thread.
    pub queued: usize,
    /// Number of jobs that could not even get a first thread and ran on their caller's.
    pub inline: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that have ended.
    pub done: u64,
    /// Nanoseconds that jobs have run, those included that still do.
    pub ran_ns: u64,
    /// Nanoseconds that those that run have run until now, together.
    pub runs_ns: u64,
}

/// The state of the process-wide pool at this moment.
pub fn pool_stats() -> PoolStats {
    POOL.lock().stats()
}

/// The figures of the pool for long computations, whose threads have a low priority.
pub fn computing_stats() -> PoolStats {
    COMPUTING.lock().stats()
}

/// The figures of the pool for keys in devices.
pub fn device_stats() -> PoolStats {
    DEVICES.lock().stats()
}

/// Sets how many threads compute at most (`None`: as many as there are cores for the calling thread), and the niceness of
/// those that give way (0 to 19, the last of all). For threads that are started from here on.
pub fn set_computing(threads: Option<usize>, nice: i32) {
    NICE.store(nice.clamp(0, 19), Relaxed);
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    COMPUTING.lock().max = threads.unwrap_or_else(cores).max(1);
}

/// Runs `job` on a thread of the pool, first come first served. A panic in it ends the job, not the thread.
///
/// If the pool has no thread and none can be started, `job` runs here and now: late is better than never.
pub(crate) fn submit(job: PoolJob) {
    POOL.submit(job);
}

/// Runs `job` on a thread of the pool for computations; these threads have a low priority, so that loops on the same
/// cores are not delayed.
pub(crate) fn compute(job: PoolJob) {
    COMPUTING.submit(job);
}

/// Runs `job` on a thread of the pool for keys in devices: it has as many threads as jobs wait, since they mostly
/// wait; their computations have a low priority, too.
pub(crate) fn ask_device(job: PoolJob) {
    DEVICES.submit(job);
}

static POOL: ThreadPool = ThreadPool::new("weir pool", MAX_THREADS, IDLE, ThreadPriority::Normal);
/// More threads than cores would wake one for each job, and none of them would be done sooner.
static COMPUTING: ThreadPool = ThreadPool::new("weir keys", 1, IDLE, ThreadPriority::GivesWay);
static DEVICES: ThreadPool = ThreadPool::new("weir devices", MAX_THREADS, IDLE, ThreadPriority::GivesWay);
/// The niceness of threads that give way.
static NICE: AtomicI32 = AtomicI32::new(KEYS_NICE);

struct ThreadPool {
    /// Of its threads.
    name: &'static str,
    state: Mutex<ThreadPoolState>,
    idle_time: Duration,
    priority: ThreadPriority,
}

/// How the kernel is to treat a pool's threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadPriority {
    Normal,
    /// They give way to all others.
    GivesWay,
}

struct ThreadPoolState {
    queue: VecDeque<PoolJob>,
    threads: usize,
    /// Of these, those that have not looked for work yet.
    starting: usize,
    /// Those that wait for work, or have been woken and have not looked for it yet.
    idle: usize,
    /// Those that no job has woken, the one that has been idle for the shortest time last. A condition variable for each:
    /// one for all wakes the thread that has waited longest, so that under light load none waits long enough to end.
    asleep: Vec<Arc<Condvar>>,
    max: usize,
    inline: u64,
    jobs: JobTimes,
}

/// How long jobs take.
#[derive(Clone, Copy)]
struct JobTimes {
    running: u64,
    done: u64,
    /// Of those that have ended.
    ran_ns: u64,
    /// The sum of the times at which those began that run.
    began_ns: u128,
}

impl ThreadPool {
    const fn new(
        name: &'static str,
        max: usize,
        idle_time: Duration,
        priority: ThreadPriority,
    ) -> ThreadPool {
        ThreadPool {
            name,
            state: Mutex::new(ThreadPoolState {
                queue: VecDeque::new(),
                threads: 0,
                starting: 0,
                idle: 0,
                asleep: Vec::new(),
                max,
                inline: 0,
                jobs: JobTimes { running: 0, done: 0, ran_ns: 0, began_ns: 0 },
            }),
            idle_time,
            priority,
        }
    }

    fn submit(&'static self, job: PoolJob) {
        let mut state = self.lock();
        state.queue.push_back(job);
        // The idle may all have been woken already for jobs before this one.
        if let Some(thread) = state.asleep.pop() {
            drop(state);
            thread.notify_one();
        } else if state.idle == 0 && state.starting == 0 && state.threads < state.max {
            self.grow_or_run(state);
        }
    }

    /// Starts a thread; without any thread the last job is run by the caller. Mostly threads start the next one
    /// ([`ThreadPool::work`]): it takes some 50 us, which the loops have not.
    fn grow_or_run(&'static self, state: MutexGuard<'_, ThreadPoolState>) {
        if self.grow(state).is_ok() {
            return;
        }
        let mut state = self.lock();
        if state.threads == 0
            && let Some(job) = state.queue.pop_back()
        {
            state.inline += 1;
            drop(state);
            run(job);
        }
    }

    /// Starts a thread, outside the lock.
    fn grow(&'static self, mut state: MutexGuard<'_, ThreadPoolState>) -> io::Result<()> {
        state.threads += 1;
        state.starting += 1;
        drop(state);
        self.start_thread().inspect_err(|_| {
            let mut state = self.lock();
            state.threads -= 1;
            state.starting -= 1;
        })
    }

    fn start_thread(&'static self) -> io::Result<()> {
        // A new thread starts with its creator's mask, so there is no moment in which a signal could hit it.
        let before = signal::block_all()?;
        let started = std::thread::Builder::new().name(self.name.into()).spawn(|| {
            process::unbind();
            if self.priority == ThreadPriority::GivesWay {
                process::give_way(NICE.load(Relaxed));
            }
            self.work();
        });
        before.restore();
        started.map(drop)
    }

    /// The life of one thread. While it runs something another one waits, if there may be one.
    fn work(&'static self) {
        let work = Arc::new(Condvar::new());
        let mut state = self.lock();
        state.starting -= 1;
        loop {
            if let Some(job) = state.queue.pop_front() {
                let began = clock::monotonic_ns();
                state.jobs.begin(began);
                if state.idle == 0 && state.threads < state.max {
                    // If it can't be had, the next job asks for it again.
                    let _ = self.grow(state);
                } else {
                    drop(state);
                }
                run(job);
                state = self.lock();
                state.jobs.end(began, clock::monotonic_ns());
                continue;
            }
            state.idle += 1;
            state.asleep.push(work.clone());
            let (woken, wait) =
                work.wait_timeout(state, self.idle_time).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            // Unless a job has woken it.
            state.asleep.retain(|thread| !Arc::ptr_eq(thread, &work));
            if wait.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ThreadPoolState> {
        // Jobs run outside the lock, so nothing panics inside it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobTimes {
    fn begin(&mut self, now_ns: u64) {
        self.running += 1;
        self.began_ns += u128::from(now_ns);
    }

    fn end(&mut self, began_ns: u64, now_ns: u64) {
        self.running -= 1;
        self.done += 1;
        self.began_ns -= u128::from(began_ns);
        self.ran_ns += now_ns.saturating_sub(began_ns);
    }

    /// Nanoseconds that those that run have run until `now_ns`, together.
    fn runs_ns(&self, now_ns: u64) -> u64 {
        let runs = (u128::from(self.running) * u128::from(now_ns)).saturating_sub(self.began_ns);
        u64::try_from(runs).unwrap_or(u64::MAX)
    }
}

impl ThreadPoolState {
    fn stats(&self) -> PoolStats {
        let runs_ns = self.jobs.runs_ns(clock::monotonic_ns());
        PoolStats {
            threads: self.threads,
            most: self.max,
            busy: self.threads - self.idle,
            queued: self.queue.len(),
            inline: self.inline,
            running: self.jobs.running,
            done: self.jobs.done,
            ran_ns: self.jobs.ran_ns + runs_ns,
            runs_ns,
        }
    }
}

/// The panic itself has been reported by the panic hook; the task that waits for the job's result learns of it by the
/// job's being dropped.
fn run(job: PoolJob) {
    drop(catch_unwind(AssertUnwindSafe(job)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(90);

    fn pool(max: usize, idle_time: Duration) -> &'static ThreadPool {
        Box::leak(Box::new(ThreadPool::new("weir pool", max, idle_time, ThreadPriority::Normal)))
    }

    /// Runs `f` in the pool and gives what it returns.
    fn ask<T: Send + 'static>(pool: &'static ThreadPool, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        pool.submit(Box::new(move || drop(sender.send(f()))));
        receiver.recv_timeout(LONG).expect("the job runs")
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + LONG;
        while !done() {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_that_compute_give_way_and_others_do_not() {
        let (policy, nice) = ask(
            Box::leak(Box::new(ThreadPool::new("weir keys", 1, LONG, ThreadPriority::GivesWay))),
            process::priority,
        );
        assert_eq!((policy, nice), (libc::SCHED_BATCH, KEYS_NICE.max(process::priority().1)));
        assert_eq!(ask(pool(1, LONG), process::priority), process::priority());
    }

    #[test]
    fn grows_to_the_limit_and_queues_the_rest() {
        let pool = pool(2, LONG);
        let (gate, turn) = mpsc::channel::<()>();
        let turn = Arc::new(Mutex::new(turn));
        let (sender, done) = mpsc::channel();
        for n in 0..5 {
            let (turn, sender) = (turn.clone(), sender.clone());
            pool.submit(Box::new(move || {
                turn.lock().expect("not poisoned").recv().expect("gate lives");
                sender.send(n).expect("receiver lives");
            }));
        }
        until("two are busy", || pool.lock().queue.len() == 3);
        let stats = pool.lock().stats();
        assert_eq!((stats.threads, stats.most, stats.busy, stats.queued, stats.inline), (2, 2, 2, 3, 0));
        assert_eq!((stats.running, stats.done), (2, 0));
        assert!(stats.runs_ns > 0 && stats.ran_ns == stats.runs_ns, "{stats:?}");
        assert_eq!(done.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        for _ in 0..5 {
            gate.send(()).expect("jobs live");
        }
        let mut all: Vec<i32> = (0..5).map(|_| done.recv_timeout(LONG).expect("all run")).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_idle_thread_is_used_again_and_ends_in_time() {
        let pool = pool(8, Duration::from_millis(30));
        let first = ask(pool, || std::thread::current().id());
        // It may have ended in between on a slow machine. Each job starts one more thread at most.
        let _ = (first, ask(pool, || std::thread::current().id()));
        assert!(pool.lock().threads <= 3);
        until("the threads end", || pool.lock().threads == 0);
        let stats = pool.lock().stats();
        assert_eq!((stats.threads, stats.busy, stats.queued, stats.running, stats.done), (0, 0, 0, 0, 2));
        assert!(stats.runs_ns == 0 && stats.ran_ns > 0, "{stats:?}");
        assert_eq!(ask(pool, || 5), 5, "and the pool still works");
    }

    /// Under a steady load that one thread can do, all others are idle and end.
    #[test]
    fn threads_of_a_burst_end_under_light_load() {
        let pool = pool(8, Duration::from_millis(200));
        let gates: Vec<_> = (0..8).map(|_| occupy(pool)).collect();
        assert_eq!(pool.lock().threads, 8);
        drop(gates);
        until("the burst's threads end", || {
            ask(pool, || ());
            std::thread::sleep(Duration::from_millis(5));
            pool.lock().threads <= 2
        });
    }

    /// Keeps a thread busy until the gate is dropped.
    fn occupy(pool: &'static ThreadPool) -> mpsc::Sender<()> {
        let (gate, turn) = mpsc::channel::<()>();
        let (sender, begun) = mpsc::channel();
        pool.submit(Box::new(move || {
            sender.send(()).expect("receiver lives");
            turn.recv().expect_err("nothing is sent");
        }));
        begun.recv_timeout(LONG).expect("the job runs");
        gate
    }

    #[test]
    fn a_thread_waits_while_another_is_busy() {
        let pool = pool(8, LONG);
        let _gate = occupy(pool);
        until("another one waits", || pool.lock().idle == 1);
    }

    #[test]
    fn a_job_does_not_wait_for_a_busy_thread_after_the_idle_one_has_ended() {
        let pool = pool(8, Duration::from_millis(30));
        let _gate = occupy(pool);
        until("the idle one ends", || pool.lock().threads == 1);
        assert_eq!(ask(pool, || 6), 6);
    }

    #[test]
    fn a_panic_ends_the_job_only() {
        let pool = pool(1, LONG);
        pool.submit(Box::new(|| std::panic::resume_unwind(Box::new("quiet"))));
        assert_eq!(ask(pool, || 1), 1);
        assert_eq!(pool.lock().threads, 1);
    }

    #[test]
    fn threads_are_named_and_take_no_signals() {
        let pool = pool(1, LONG);
        let (name, status) = ask(pool, || {
            let name = std::thread::current().name().map(str::to_owned);
            (name, std::fs::read_to_string("/proc/thread-self/status").expect("procfs"))
        });
        assert_eq!(name.as_deref(), Some("weir pool"));
        let hex = status.lines().find_map(|l| l.strip_prefix("SigBlk:")).expect("in every status");
        let blocked = u64::from_str_radix(hex.trim(), 16).expect("hexadecimal");
        for signal in [signal::SIGTERM, signal::SIGHUP, signal::SIGCHLD, libc::SIGPROF] {
            assert_ne!(blocked & 1 << (signal - 1), 0, "signal {signal}");
        }
        assert_eq!(blocked & 1 << (libc::SIGSEGV - 1), 0);
    }

    #[test]
    fn the_process_wide_pool_works() {
        let (sender, receiver) = mpsc::channel();
        submit(Box::new(move || sender.send(7).expect("receiver lives")));
        assert_eq!(receiver.recv_timeout(LONG), Ok(7));
        assert!(pool_stats().threads <= MAX_THREADS);
    }
}
