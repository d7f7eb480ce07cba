//! What responses are made from: the workers' published figures, and a way to ask the workers themselves.

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_engine::Configuration;
use weir_engine::worker::Worker;
use weir_rt::clock;
use weir_server::{InForce, Server, SocketBacklog, WorkerThreads, with_worker};
use weir_trace::{RecorderReader, Site, SiteTotals};

use crate::history::ServerHistory;
use crate::location_series::LocationSeries;
use crate::recordings::StackRecordings;

pub(crate) use weir_server::WorkerThread;

/// A running server, seen from the threads that respond to queries about it.
pub struct ServerSource {
    crew: WorkerThreads,
    configuration: InForce,
    started: Instant,
    /// What no other process is called.
    instance: String,
    location_series: Mutex<LocationSeries>,
    history: Mutex<ServerHistory>,
    recordings: Mutex<StackRecordings>,
}

/// What workers said, and how many have not yet.
pub(crate) struct WorkerReplies<T> {
    /// In the order of the workers.
    pub(crate) answers: Vec<T>,
    /// Busy with something else all the time that was waited.
    pub(crate) stuck: usize,
}

impl<T> WorkerReplies<T> {
    /// What `sum` makes of all replies; `None` where some are missing.
    pub(crate) fn whole<R>(self, sum: impl FnOnce(Vec<T>) -> R) -> Option<R> {
        (self.stuck == 0).then(|| sum(self.answers))
    }
}

impl ServerSource {
    /// A source of what `server` knows and does; its uptime counts from now.
    #[must_use]
    pub fn new(server: &Server) -> Arc<ServerSource> {
        Arc::new(ServerSource {
            crew: server.crew(),
            configuration: server.in_force(),
            started: Instant::now(),
            instance: new_instance(),
            location_series: Mutex::default(),
            history: Mutex::default(),
            recordings: Mutex::default(),
        })
    }

    /// Since the server began.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// What distinguishes this process from all others, also on other machines: an address may lead to a server that
    /// another address leads to, too.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// The configuration that new requests get.
    pub(crate) fn configuration(&self) -> Arc<Configuration> {
        self.configuration.now()
    }

    /// The accept queues of the listeners.
    pub(crate) fn backlogs(&self) -> Vec<SocketBacklog> {
        self.configuration.backlogs()
    }

    /// The locations that have series of their own in `/metrics`. Each scrape leaves them consistent, also one that
    /// panics: places are only ever added.
    pub(crate) fn location_series(&self) -> MutexGuard<'_, LocationSeries> {
        self.location_series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last minute and the last hour. A thread that panics leaves at most one point incomplete.
    pub(crate) fn history(&self) -> MutexGuard<'_, ServerHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recorded stacks that are kept. A thread that panics leaves them whole.
    pub(crate) fn recordings(&self) -> MutexGuard<'_, StackRecordings> {
        self.recordings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What workers have published of themselves, those too that have ended.
    pub(crate) fn recorders(&self) -> Vec<RecorderReader> {
        self.crew.recorders()
    }

    /// The workers as they are now: reloads change them. All but `remote` can be read while a worker is stuck.
    pub(crate) fn workers(&self) -> Vec<WorkerThread> {
        self.crew.now()
    }

    /// The counts of all sites, all workers added up; those of workers that have ended are in it, and of stuck ones all
    /// but their last requests.
    pub(crate) fn totals(&self) -> Vec<(Site, SiteTotals)> {
        self.ask(BRIEFLY, |worker| worker.recorder.borrow_mut().settle());
        RecorderReader::merged(self.crew.recorders().iter())
    }

    /// Has every worker run `f` when it comes to it.
    pub(crate) fn tell(&self, f: impl Fn(&Worker) + Clone + Send + 'static) {
        ServerSource::tell_these(&self.workers(), f);
    }

    /// Has `f` run on each of `workers`, which were looked up before.
    pub(crate) fn tell_these(workers: &[WorkerThread], f: impl Fn(&Worker) + Clone + Send + 'static) {
        for worker in workers {
            let f = f.clone();
            worker.remote.run(Box::new(move || {
                with_worker(|worker| f(worker));
            }));
        }
    }

    /// What `f` gives on each worker; those that do not come to it in `patience` are counted as stuck and run it later
    /// for no caller.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        f: impl Fn(&Worker) -> T + Clone + Send + 'static,
    ) -> WorkerReplies<T> {
        let (said, heard) = channel();
        let workers = self.workers();
        let count = workers.len();
        ServerSource::tell_these(&workers, move |worker| {
            // The caller may have given up waiting.
            let _ = said.send((worker.id, f(worker)));
        });
        let until = Instant::now() + patience;
        let next = || heard.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let mut answers: Vec<(u8, T)> = std::iter::from_fn(next).take(count).collect();
        answers.sort_by_key(|(id, _)| *id);
        let stuck = count - answers.len();
        WorkerReplies { answers: answers.into_iter().map(|(_, answer)| answer).collect(), stuck }
    }
}

/// Sixteen random digits: keys of hash maps are random in each process.
fn new_instance() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Nanoseconds of the clock that the engine stamps with.
#[must_use]
pub fn scale(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks)
}

/// Ticks of that clock.
pub(crate) fn ticks(ns: u64) -> u64 {
    clock::scale().ns_to_ticks(ns)
}

/// How long a worker is waited for where its response is the point.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How long a worker is waited for where the response is useful without it, too, and must come while a worker is
/// stuck.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(50);
