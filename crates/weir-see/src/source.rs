//! What answers are made from: the workers' published figures, and a way to ask the workers themselves.

use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use weir_core::server::{Server, with_worker};
use weir_core::worker::{Counters, Worker};
use weir_rt::{DriverKind, LoopStats, Remote, clock};
use weir_trace::{NowReader, RecorderReader, Site, SiteTotals};

/// A running server, seen from the threads that answer questions about it.
pub struct Source {
    workers: RwLock<Arc<[Thread]>>,
    started: Instant,
}

/// One worker as others see it: all but `remote` can be read while it is stuck.
#[derive(Clone)]
pub(crate) struct Thread {
    pub(crate) remote: Remote,
    pub(crate) counters: Arc<Counters>,
    pub(crate) recorder: RecorderReader,
    pub(crate) now: NowReader,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) driver: DriverKind,
}

/// What workers said, and how many have not yet.
pub(crate) struct Said<T> {
    /// In the order of the workers.
    pub(crate) answers: Vec<T>,
    /// Busy with something else all the time that was waited.
    pub(crate) stuck: usize,
}

impl Source {
    /// Of that server.
    #[must_use]
    pub fn new(server: &Server) -> Arc<Source> {
        let source = Source { workers: RwLock::new(Arc::new([])), started: Instant::now() };
        source.update(server);
        Arc::new(source)
    }

    /// Looks at the server's workers anew: a reload may change their number.
    pub fn update(&self, server: &Server) {
        let workers = server.threads().iter().map(|thread| Thread {
            remote: thread.remote.clone(),
            counters: thread.counters.clone(),
            recorder: thread.recorder.clone(),
            now: thread.now.clone(),
            stats: thread.stats.clone(),
            driver: thread.driver,
        });
        *self.workers.write().unwrap_or_else(PoisonError::into_inner) = workers.collect();
    }

    /// Since the server began.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The workers as they are now.
    pub(crate) fn workers(&self) -> Arc<[Thread]> {
        self.workers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counts of all sites, all workers added up; stuck ones are in it, too.
    pub(crate) fn totals(&self) -> Vec<(Site, SiteTotals)> {
        RecorderReader::merged(self.workers().iter().map(|worker| &worker.recorder))
    }

    /// Has every worker run `f` when it comes to it.
    pub(crate) fn tell(&self, f: impl Fn(&Worker) + Clone + Send + 'static) {
        Source::tell_these(&self.workers(), f);
    }

    /// The same for workers that were looked up before.
    pub(crate) fn tell_these(workers: &[Thread], f: impl Fn(&Worker) + Clone + Send + 'static) {
        for worker in workers {
            let f = f.clone();
            worker.remote.run(Box::new(move || {
                with_worker(|worker| f(worker));
            }));
        }
    }

    /// What `f` gives on each worker; those that do not come to it in `patience` are counted as stuck and run it later
    /// for nobody.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        f: impl Fn(&Worker) -> T + Clone + Send + 'static,
    ) -> Said<T> {
        let (said, heard) = channel();
        let count = self.workers().len();
        self.tell(move |worker| {
            // Who asked may have given up waiting.
            let _ = said.send((worker.id, f(worker)));
        });
        let until = Instant::now() + patience;
        let next = || heard.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let mut answers: Vec<(u8, T)> = std::iter::from_fn(next).take(count).collect();
        answers.sort_by_key(|(id, _)| *id);
        let stuck = count - answers.len();
        Said { answers: answers.into_iter().map(|(_, answer)| answer).collect(), stuck }
    }
}

/// Nanoseconds of the clock that the engine stamps with.
#[must_use]
pub fn scale(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks)
}

/// How long a worker is waited for where its answer is the point.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
