//! The worker threads as the rest of the process sees them: a seat for each number, with or without a thread.
//!
//! A reload with fewer workers does not end a thread that still has connections: it stops accepting, says with its
//! responses that their connections end, and goes with the last of them. Until then it counts as
//! [`WorkerStage::RETIRED`], and a reload with more workers calls it back. What was counted stays with the seat.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_rt::RuntimeHandle;
use weir_trace::{NowReader, Recorder, RecorderReader};

use super::acceptor::AcceptorPlayer;
use super::intake::ConnectionIntake;
use super::thread;
use super::thread::ThreadOptions;
use crate::{ServerOptions, StartError};
use weir_engine::log::{self, LogLevel};
use weir_engine::worker::WorkerCounters;
use weir_engine::worker::configuration::Configuration;

/// What is known of a worker from outside.
#[derive(Clone)]
pub struct WorkerThread {
    /// Runs closures on its loop.
    pub remote: RuntimeHandle,
    /// The worker's counters, as status pages show them.
    pub counters: Arc<WorkerCounters>,
    /// The worker's histograms and traces.
    pub recorder: RecorderReader,
    /// Its requests in flight, and which of them made others wait.
    pub now: NowReader,
    /// Its loop's account.
    pub stats: Arc<weir_rt::LoopStats>,
    /// The event driver it runs on.
    pub driver: weir_rt::DriverKind,
    /// Connections that were dealt to it.
    pub(crate) intake: Arc<ConnectionIntake>,
    /// What it does, for one that finds it late.
    pub(crate) watch: weir_rt::ThreadWatch,
}

impl WorkerThread {
    /// Why it runs on epoll: `use` says so (`chosen`), or what keeps it from io_uring. `None` on io_uring.
    pub fn why_epoll(&self, chosen: Option<weir_rt::DriverChoice>) -> Option<String> {
        match (self.driver, chosen) {
            (weir_rt::DriverKind::IoUring, _) => None,
            (weir_rt::DriverKind::Epoll, Some(_)) => Some("as \"use\" says".to_owned()),
            (weir_rt::DriverKind::Epoll, None) => {
                weir_rt::probe_io_uring().err().map(|error| error.to_string())
            }
        }
    }
}

/// The workers of a server, as they come and go. Clones are the same.
#[derive(Clone, Default)]
pub struct WorkerThreads(Arc<Mutex<Vec<WorkerSeat>>>);

impl WorkerThreads {
    /// The workers that run now, those too that only end what they have.
    pub fn now(&self) -> Vec<WorkerThread> {
        self.seats().iter().filter_map(|seat| Some(seat.running.as_ref()?.thread.clone())).collect()
    }

    /// What all workers recorded, those too that have ended.
    pub fn recorders(&self) -> Vec<RecorderReader> {
        self.seats().iter().map(|seat| seat.reader.clone()).collect()
    }

    /// What all workers counted, those too that have ended.
    pub fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.seats().iter().map(|seat| seat.counters.clone()).collect()
    }

    fn seats(&self) -> MutexGuard<'_, Vec<WorkerSeat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number of a worker.
struct WorkerSeat {
    counters: Arc<WorkerCounters>,
    reader: RecorderReader,
    /// The recorder while no thread has it.
    recorder: Option<Recorder>,
    running: Option<RunningWorker>,
}

struct RunningWorker {
    /// Distinguishes the thread from others that had the seat.
    number: u64,
    thread: WorkerThread,
    stage: Arc<WorkerStage>,
    handle: JoinHandle<Recorder>,
}

/// Whether a worker may end.
pub(crate) struct WorkerStage(pub(super) AtomicU8);

impl WorkerStage {
    pub(crate) const WORKING: u8 = 0;
    const RETIRED: u8 = 1;
    pub(crate) const ENDED: u8 = 2;

    /// The thread's own step: `true` when it is retired, and from now on ended.
    pub(crate) fn end(&self) -> bool {
        self.change(WorkerStage::RETIRED, WorkerStage::ENDED)
    }

    /// Whether the thread may end when it has nothing left to do.
    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(Ordering::Acquire) == WorkerStage::RETIRED
    }

    /// Whether the thread ends because it was retired.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == WorkerStage::ENDED
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Starts and ends the threads of a server.
pub(crate) struct WorkerCrew {
    threads: WorkerThreads,
    exit: Sender<u64>,
    exits: Mutex<Receiver<u64>>,
    /// Counts the threads that were started.
    started: AtomicU64,
}

/// A worker that was called up for a configuration.
pub(crate) struct CalledWorker {
    pub(crate) id: usize,
    pub(crate) remote: RuntimeHandle,
    /// It did not work for the configuration before.
    pub(crate) new: bool,
}

impl WorkerCrew {
    pub(crate) fn new() -> WorkerCrew {
        let (exit, exits) = channel();
        WorkerCrew {
            threads: WorkerThreads::default(),
            exit,
            exits: Mutex::new(exits),
            started: AtomicU64::new(0),
        }
    }

    pub(crate) fn threads(&self) -> &WorkerThreads {
        &self.threads
    }

    /// All threads that are left, and new ones so that there are `count`: none of them ends before [`WorkerCrew::retire`].
    ///
    /// # Errors
    /// A thread can't start; those that were started are retired again.
    pub(crate) fn call_up(
        &self,
        count: usize,
        configuration: &Configuration,
        options: &ServerOptions,
    ) -> Result<Vec<CalledWorker>, StartError> {
        self.reap();
        let mut called = self.hold();
        for id in 0..count {
            if called.iter().any(|worker| worker.id == id) {
                continue;
            }
            match self.start(id, configuration, options) {
                Ok(remote) => called.push(CalledWorker { id, remote, new: true }),
                Err(error) => {
                    called.iter().filter(|worker| worker.new).for_each(|worker| self.retire(worker));
                    return Err(error);
                }
            }
        }
        called.sort_by_key(|worker| worker.id);
        Ok(called)
    }

    /// The threads that run; retired ones are prevented from ending.
    fn hold(&self) -> Vec<CalledWorker> {
        let mut called = Vec::new();
        let mut seats = self.threads.seats();
        for (id, seat) in seats.iter_mut().enumerate() {
            let Some(running) = &seat.running else { continue };
            let new = running.stage.change(WorkerStage::RETIRED, WorkerStage::WORKING);
            if running.stage.0.load(Ordering::Acquire) == WorkerStage::ENDED {
                seat.vacate(id); // it was about to go: no more than its last steps are waited for
                continue;
            }
            called.push(CalledWorker { id, remote: running.thread.remote.clone(), new });
        }
        called
    }

    fn start(
        &self,
        id: usize,
        conf: &Configuration,
        options: &ServerOptions,
    ) -> Result<RuntimeHandle, StartError> {
        let mut seats = self.threads.seats();
        while seats.len() <= id {
            let recorder = thread::recorder(seats.len(), options);
            let reader = recorder.reader();
            seats.push(WorkerSeat {
                counters: Arc::default(),
                reader,
                recorder: Some(recorder),
                running: None,
            });
        }
        let seat = &mut seats[id];
        let recorder = seat.recorder.take().unwrap_or_else(|| {
            let recorder = thread::recorder(id, options);
            seat.reader = recorder.reader();
            recorder
        });
        let stage = Arc::new(WorkerStage(AtomicU8::new(WorkerStage::WORKING)));
        let counters = seat.counters.clone();
        let driver = options.driver.unwrap_or_else(|| conf.main.driver());
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let exit = WorkerExit { number, exit: self.exit.clone() };
        let options = ThreadOptions { driver, watched: options.watched };
        let started = thread::start(id as u8, options, recorder, counters, stage.clone(), exit)?;
        let thread::StartedWorker { handle, remote, now, stats, driver, intake, watch } = started;
        let (counters, recorder) = (seat.counters.clone(), seat.reader.clone());
        let thread =
            WorkerThread { remote: remote.clone(), counters, recorder, now, stats, driver, intake, watch };
        seat.running = Some(RunningWorker { number, thread, stage, handle });
        Ok(remote)
    }

    /// Those that connections are dealt to, if there are `count` workers.
    pub(crate) fn players(&self, count: usize) -> Vec<AcceptorPlayer> {
        let player = |thread: WorkerThread| {
            let WorkerThread { remote, counters, stats, intake, watch, .. } = thread;
            AcceptorPlayer { id: remote.worker(), intake, counters, stats, remote, watch }
        };
        let working = |thread: &WorkerThread| usize::from(thread.remote.worker()) < count;
        self.threads.now().into_iter().filter(working).map(player).collect()
    }

    /// Lets a worker end once its connections have.
    pub(crate) fn retire(&self, worker: &CalledWorker) {
        let seats = self.threads.seats();
        let Some(running) = seats.get(worker.id).and_then(|seat| seat.running.as_ref()) else { return };
        running.stage.change(WorkerStage::WORKING, WorkerStage::RETIRED);
        running.thread.remote.run(Box::new(thread::retire));
    }

    /// Runs `f` on the loop of each worker.
    pub(crate) fn on_all(&self, f: impl Fn() + Clone + Send + 'static) {
        self.threads.now().iter().for_each(|thread| thread.remote.run(Box::new(f.clone())));
    }

    /// Takes note of the threads that have ended.
    fn reap(&self) {
        let exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(id) = exits.try_recv() {
            self.vacate(id);
        }
    }

    /// Waits until all threads have ended, for `limit` after each at most. `true`: they have.
    pub(crate) fn join(&self, limit: Option<Duration>) -> bool {
        let exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        while self.threads.seats().iter().any(|seat| seat.running.is_some()) {
            let ended = match limit {
                Some(limit) => exits.recv_timeout(limit).ok(),
                None => exits.recv().ok(),
            };
            let Some(id) = ended else { return false };
            self.vacate(id);
        }
        true
    }

    fn vacate(&self, number: u64) {
        let mut seats = self.threads.seats();
        let of = |seat: &WorkerSeat| seat.running.as_ref().is_some_and(|running| running.number == number);
        if let Some(at) = seats.iter().position(of) {
            seats[at].vacate(at);
        }
    }
}

impl WorkerSeat {
    /// Waits for the last steps of a thread that ends.
    fn vacate(&mut self, id: usize) {
        let Some(running) = self.running.take() else { return };
        match running.handle.join() {
            Ok(recorder) => self.recorder = Some(recorder),
            Err(_) => log::cycle(LogLevel::Alert, &format_args!("worker {id} ended by a panic")),
        }
    }
}

/// Reports that a thread has ended, by a panic too.
pub(crate) struct WorkerExit {
    pub(crate) number: u64,
    pub(crate) exit: Sender<u64>,
}

impl Drop for WorkerExit {
    fn drop(&mut self) {
        // It is not waited for any more: the server is gone.
        let _ = self.exit.send(self.number);
    }
}
