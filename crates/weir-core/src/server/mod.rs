//! The server: worker threads, their sockets, reload and stop. No signals, no files: that is the program's business,
//! so that any program can have a server inside.

pub mod notify;
mod sockets;
mod thread;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_rt::{DriverChoice, Remote};
use weir_trace::{Level, NowReader, RecorderReader};

use crate::conf::Configuration;
use crate::housekeeping;
use crate::upstream::Upstreams;
use crate::worker::{Counters, Worker};
use crate::zone::Zones;

pub use sockets::{Part, Sockets};
pub use thread::with_worker;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker threads; `None`: as `worker_processes` says.
    pub workers: Option<usize>,
    /// The event driver; `None`: as `use` says, else by probing.
    pub driver: Option<DriverChoice>,
    /// How much is recorded of requests.
    pub trace: Level,
}

impl Options {
    /// How many workers a server of `configuration` has.
    pub fn workers(&self, configuration: &Configuration) -> usize {
        self.workers.unwrap_or_else(|| configuration.main.workers()).max(1)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { workers: None, driver: None, trace: Level::Full }
    }
}

/// A running server. Dropping it stops it at once.
pub struct Server {
    threads: Vec<Thread>,
    sockets: Mutex<Sockets>,
    configuration: Mutex<Arc<Configuration>>,
    options: Options,
    exits: Receiver<usize>,
}

/// What is known of a worker from outside.
pub struct Thread {
    /// Runs closures on its loop.
    pub remote: Remote,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Its histograms.
    pub recorder: RecorderReader,
    /// Its requests in flight, and who made whom wait.
    pub now: NowReader,
    /// Its loop's account.
    pub stats: Arc<weir_rt::LoopStats>,
    /// The event driver it runs on.
    pub driver: weir_rt::DriverKind,
    handle: Option<std::thread::JoinHandle<()>>,
}

/// Why a server could not start or reload; the text is nginx's.
#[derive(Debug)]
pub struct StartError(pub String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError(error.to_string())
    }
}

impl Server {
    /// Opens the sockets and starts the workers; when it returns, connections are accepted.
    ///
    /// # Errors
    /// An address can't be bound, a thread can't start, or a module refuses the configuration.
    pub fn start(configuration: Arc<Configuration>, options: Options) -> Result<Server, StartError> {
        let sockets = Sockets::open(&configuration, options.workers(&configuration))?;
        Server::start_with(configuration, options, sockets)
    }

    /// As [`Server::start`], with sockets that are open already: the set that [`Sockets::reopen`] gives for
    /// `configuration`, perhaps in another process.
    ///
    /// # Errors
    /// A thread can't start, or a module refuses the configuration.
    pub fn start_with(
        configuration: Arc<Configuration>,
        options: Options,
        sockets: Sockets,
    ) -> Result<Server, StartError> {
        housekeeping::start()?;
        let count = options.workers(&configuration);
        let (exit, exits) = channel();
        let mut server = Server {
            threads: Vec::new(),
            sockets: Mutex::new(sockets),
            configuration: Mutex::new(configuration.clone()),
            options,
            exits,
        };
        for id in 0..count {
            let thread = thread::start(id as u8, &configuration, &server.options, exit.clone())?;
            server.threads.push(thread);
        }
        server.distribute(&configuration)?;
        Ok(server)
    }

    /// The workers.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Arc<Configuration> {
        self.configuration.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The addresses that are listened on, as bound (a port 0 has become a real one).
    pub fn addresses(&self) -> Vec<weir_rt::net::SockAddr> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).addresses()
    }

    /// Takes `configuration` into use: requests that begin from now on get it, on old connections too. New addresses
    /// are bound first; when anything fails nothing has changed.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn reload(&self, configuration: Arc<Configuration>) -> Result<(), StartError> {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let next = sockets.reopen(&configuration, self.threads.len())?;
        self.reload_with(configuration, next)
    }

    /// As [`Server::reload`], with sockets that are open already: the set that [`Sockets::reopen`] gives for
    /// `configuration`, perhaps in another process.
    ///
    /// # Errors
    /// As [`Server::start_with`].
    pub fn reload_with(&self, configuration: Arc<Configuration>, sockets: Sockets) -> Result<(), StartError> {
        self.keep_zones(&configuration)?;
        thread::rehearse(&configuration)?;
        sockets.adjust(&configuration);
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = sockets;
        *self.configuration.lock().unwrap_or_else(PoisonError::into_inner) = configuration.clone();
        self.distribute(&configuration)
    }

    /// What is in the zones of the configuration in force stays in those of the next.
    fn keep_zones(&self, next: &Configuration) -> Result<(), StartError> {
        let before = self.configuration();
        if let (Some(next), Some(before)) =
            (next.tables.shared::<Upstreams>(), before.tables.shared::<Upstreams>())
        {
            next.adopt(before);
        }
        match (next.tables.shared::<Zones>(), before.tables.shared::<Zones>()) {
            (Some(next), Some(before)) => next.adopt(before).map_err(StartError),
            _ => Ok(()),
        }
    }

    /// Gives every worker the configuration and its listeners, and waits until all have them.
    fn distribute(&self, configuration: &Arc<Configuration>) -> Result<(), StartError> {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, results) = channel();
        let everyone: Arc<[_]> = self.threads.iter().map(|thread| thread.counters.clone()).collect();
        for (id, thread) in self.threads.iter().enumerate() {
            let listeners = sockets.of_worker(configuration, id, self.threads.len())?;
            let (configuration, done) = (configuration.clone(), done.clone());
            let everyone = everyone.clone();
            thread.remote.run(Box::new(move || {
                with_worker(|worker| worker.know(everyone));
                // The receiver waits for every worker; it can't be gone.
                let _ = done.send(thread::adopt(&configuration, listeners));
            }));
        }
        for _ in &self.threads {
            match results.recv_timeout(PATIENCE) {
                Ok(result) => result.map_err(StartError)?,
                Err(_) => {
                    return Err(StartError("a worker did not take the configuration in time".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Stops accepting, closes idle connections, lets running requests end. Returns at once; see [`Server::join`].
    pub fn quit(&self) {
        // A socket that anybody holds goes on taking connections, which nobody would accept.
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = Sockets::default();
        let limit = self.configuration().main.shutdown_timeout();
        for thread in &self.threads {
            thread.remote.run(Box::new(move || thread::quit(limit)));
        }
    }

    /// Stops at once: connections are closed where they are.
    pub fn stop(&self) {
        for thread in &self.threads {
            thread.remote.run(Box::new(thread::stop));
        }
    }

    /// Waits until all workers have ended, for `limit` at most. `true`: they have.
    pub fn join(&mut self, limit: Option<Duration>) -> bool {
        while !self.threads.is_empty() {
            let ended = match limit {
                Some(limit) => self.exits.recv_timeout(limit).ok(),
                None => self.exits.recv().ok(),
            };
            let Some(id) = ended else { return false };
            let Some(at) = self.threads.iter().position(|t| usize::from(t.remote.worker()) == id) else {
                continue;
            };
            if let Some(handle) = self.threads.swap_remove(at).handle
                && handle.join().is_err()
            {
                crate::log::cycle(crate::log::Level::Alert, &format_args!("worker {id} ended by a panic"));
            }
        }
        true
    }

    /// Runs `f` on worker `id`'s loop.
    pub fn on_worker(&self, id: usize, f: impl FnOnce(&std::rc::Rc<Worker>) + Send + 'static) {
        if let Some(thread) = self.threads.get(id) {
            thread.remote.run(Box::new(move || {
                with_worker(f);
            }));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.join(Some(PATIENCE));
    }
}

/// A number for each connection of the process (`$connection`), given out in blocks so that workers share nothing.
pub(crate) fn connection_numbers() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(NUMBERS, Ordering::Relaxed)
}

/// How many connection numbers a worker takes at a time.
pub(crate) const NUMBERS: u64 = 1 << 16;
/// How long a worker may take to answer before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);
