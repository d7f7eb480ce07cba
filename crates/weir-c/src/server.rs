//! A running server as the program holds it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::code::{
    CallFailure, CallResult, WEIR_E_FORKED, WEIR_E_STOPPED, WEIR_E_SYSTEM, WEIR_E_THREAD, WEIR_E_TIMEOUT,
    WEIR_OK,
};
use crate::queue::CallQueue;
use crate::task::{ForeignTimer, OwedCall};

/// What C calls `weir_server`.
pub(crate) struct ForeignServer {
    shared: Arc<RunningServer>,
    /// Waits for the end of a server that was asked to quit.
    quitting: Mutex<Option<JoinHandle<()>>>,
}

struct RunningServer {
    server: weir::Server,
    queue: Option<Arc<CallQueue>>,
    /// The file of its configuration.
    file: Option<PathBuf>,
    process: u32,
    /// All workers have ended, or are about to at once.
    ending: AtomicBool,
    ended: AtomicBool,
    /// Which worker gets the next task that says none.
    next: AtomicUsize,
}

impl ForeignServer {
    pub(crate) fn new(
        server: weir::Server,
        queue: Option<Arc<CallQueue>>,
        file: Option<PathBuf>,
    ) -> ForeignServer {
        let shared = RunningServer {
            server,
            queue,
            file,
            process: std::process::id(),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            next: AtomicUsize::new(0),
        };
        ForeignServer { shared: Arc::new(shared), quitting: Mutex::default() }
    }

    /// The addresses it listens on.
    pub(crate) fn addresses(&self) -> Vec<weir::SockAddr> {
        self.shared.server.addresses()
    }

    /// How many workers it has.
    pub(crate) fn workers(&self) -> usize {
        self.shared.server.engine().threads().len()
    }

    /// Where functions are called, if not on workers.
    pub(crate) fn queue(&self) -> Result<&Arc<CallQueue>, CallFailure> {
        let none = || CallFailure::state("the builder was not asked for it: see weir_builder_foreign_loop");
        self.shared.queue.as_ref().ok_or_else(none)
    }

    /// Takes a configuration into use: `text`, or the file again.
    pub(crate) fn reload(&self, text: Option<&str>) -> CallResult {
        self.may_block()?;
        let read;
        let text = match (text, &self.shared.file) {
            (Some(text), _) => text,
            (None, Some(path)) => {
                let failed = |error| {
                    let text = format!("open() \"{}\" failed ({error})", path.display());
                    CallFailure::new(WEIR_E_SYSTEM, text)
                };
                read = std::fs::read_to_string(path).map_err(failed)?;
                &read
            }
            (None, None) => {
                return Err(CallFailure::argument("the configuration is NULL and came from no file"));
            }
        };
        self.shared.server.reload(text)?;
        Ok(WEIR_OK)
    }

    /// Lets requests end, on a thread of its own: it may be a worker that asks.
    pub(crate) fn quit(&self) -> CallResult {
        self.is_ours()?;
        let mut quitting = self.quitting.lock().unwrap_or_else(PoisonError::into_inner);
        if quitting.is_some() || self.shared.ending.load(Ordering::Acquire) {
            return Ok(WEIR_OK);
        }
        let shared = self.shared.clone();
        let wait = move || {
            shared.server.quit();
            shared.join();
        };
        let builder = std::thread::Builder::new().name("weir quit".to_owned());
        *quitting = Some(weir_rt::signal::without_signals(|| builder.spawn(wait))?);
        Ok(WEIR_OK)
    }

    /// Ends at once and waits for the end.
    pub(crate) fn stop(&self) -> CallResult {
        self.may_block()?;
        self.shared.ending.store(true, Ordering::Release);
        self.shared.server.stop();
        self.shared.join();
        self.end_quitting();
        Ok(WEIR_OK)
    }

    /// Waits for the end, for `limit` at most.
    pub(crate) fn join(&self, limit: Option<Duration>) -> CallResult {
        self.may_block()?;
        let ended = match limit {
            None => {
                self.shared.join();
                true
            }
            Some(limit) => self.shared.server.join_for(limit),
        };
        if !ended {
            return Err(CallFailure::new(WEIR_E_TIMEOUT, "the server still runs"));
        }
        self.shared.join();
        self.end_quitting();
        Ok(WEIR_OK)
    }

    /// Serves with the calling thread until the end.
    pub(crate) fn run(&self) -> CallResult {
        let Some(queue) = &self.shared.queue else { return self.join(None) };
        self.may_block()?;
        while !self.shared.ended.load(Ordering::Acquire) {
            queue.turn().ok_or_else(|| CallFailure::state("a turn inside of a turn"))?;
            if !self.shared.ended.load(Ordering::Acquire) {
                queue.wait();
            }
        }
        queue.turn();
        self.end_quitting();
        Ok(WEIR_OK)
    }

    /// Has `call` made on a worker; below 0: on any.
    pub(crate) fn post(&self, worker: i32, call: OwedCall) -> CallResult {
        let (worker, call) = self.worker(worker, call)?;
        self.shared.server.engine().on_worker(worker, move |_| call.make(WEIR_OK));
        Ok(WEIR_OK)
    }

    /// Has the timer run on a worker; below 0: on any.
    pub(crate) fn start_timer(
        &self,
        worker: i32,
        delay: Duration,
        call: OwedCall,
    ) -> Result<Arc<ForeignTimer>, CallFailure> {
        let (worker, call) = self.worker(worker, call)?;
        let timer = Arc::new(ForeignTimer::new(call));
        let started = timer.clone();
        self.shared.server.engine().on_worker(worker, move |_| {
            weir_rt::spawn(started.run(delay));
        });
        Ok(timer)
    }

    /// The worker's number; the call is forgotten where that worker is absent.
    fn worker(&self, worker: i32, call: OwedCall) -> Result<(usize, OwedCall), CallFailure> {
        let chosen = self.is_ours().and_then(|()| {
            let count = self.workers();
            if count == 0 || self.shared.ending.load(Ordering::Acquire) {
                return Err(CallFailure::new(WEIR_E_STOPPED, "the server has ended"));
            }
            match usize::try_from(worker) {
                Ok(worker) if worker < count => Ok(worker),
                Ok(_) => Err(CallFailure::argument(format!("there are {count} workers, from 0"))),
                Err(_) => Ok(self.shared.next.fetch_add(1, Ordering::Relaxed) % count),
            }
        });
        match chosen {
            Ok(worker) => Ok((worker, call)),
            Err(failure) => {
                call.forget();
                Err(failure)
            }
        }
    }

    /// Ends the server, and makes the calls that are left.
    pub(crate) fn close(&self) -> CallResult {
        self.is_ours()?;
        let queue = self.shared.queue.as_ref();
        if queue.is_some_and(|queue| queue.is_turning()) {
            return Err(CallFailure::state("a turn is under way, which uses the server"));
        }
        self.stop()?;
        if let Some(queue) = queue {
            queue.close();
        }
        Ok(WEIR_OK)
    }

    /// Whether the process was forked since: then the threads are those of another process.
    pub(crate) fn is_ours(&self) -> Result<(), CallFailure> {
        if self.shared.process == std::process::id() {
            return Ok(());
        }
        Err(CallFailure::new(
            WEIR_E_FORKED,
            "the server belongs to the process that this one was forked from",
        ))
    }

    fn may_block(&self) -> Result<(), CallFailure> {
        self.is_ours()?;
        if weir_server::is_worker_thread() {
            let text = "a worker can't wait for the workers: do it on another thread";
            return Err(CallFailure::new(WEIR_E_THREAD, text));
        }
        Ok(())
    }

    fn end_quitting(&self) {
        let quitting = self.quitting.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic there was reported where it happened; the server has ended all the same.
        quitting.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl RunningServer {
    /// Waits for the end, and lets others know.
    fn join(&self) {
        self.server.join();
        self.ending.store(true, Ordering::Release);
        self.ended.store(true, Ordering::Release);
        if let Some(queue) = &self.queue {
            queue.wake();
        }
    }
}
