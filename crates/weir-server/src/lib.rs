//! The server: worker threads, their sockets, reload and stop. No signals, no files: that is the program's business,
//! so that any program can have a server inside.
#![forbid(unsafe_code)]

pub mod conn;
pub mod housekeeping;
pub mod rehearsal;
mod retired;
pub mod tls;
pub mod workers;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_rt::DriverChoice;

use weir_engine::conf::Configuration;
use weir_engine::descriptors;
use weir_engine::log::{self, LogLevel};
use weir_engine::resolver::kept::{self, CacheFolder};
use weir_engine::worker::Worker;
use weir_engine::worker::generation::WorkerGeneration;
use weir_engine::zone::{SharedZones, survival};
use weir_upstream::Upstreams;
use weir_upstream::block::health_checker::HealthChecker;
use weir_upstream::cache::CacheZones;
use workers::acceptor::Acceptor;
use workers::crew::{CalledWorker, WorkerCrew};
use workers::thread;

pub use workers::agent::AgentProcess;
pub use workers::crew::{WorkerThread, WorkerThreads};
pub use workers::marked::is_worker_thread;
use workers::sockets::ListeningSockets;
pub use workers::sockets::{InheritedSockets, SocketBacklog, SocketPart};
pub use workers::thread::with_worker;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Worker threads; `None`: as `worker_processes` says.
    pub workers: Option<usize>,
    /// The event driver; `None`: as `use` says, else by probing.
    pub driver: Option<DriverChoice>,
    /// Whether the process' housekeeping watches the workers: stalls, CPU samples, the kernel's accounts. It has a
    /// thread and handlers of signals, which a program with a server inside may not want; on.
    pub watched: bool,
    /// How long a reload waits for each worker to make the configuration ready before it gives up; 30 seconds.
    pub patience: Duration,
    /// How much is recorded of requests.
    pub trace: weir_trace::TraceLevel,
}

impl ServerOptions {
    /// How many workers a server of `configuration` has.
    pub fn workers(&self, configuration: &Configuration) -> usize {
        self.workers.unwrap_or_else(|| configuration.main.workers()).max(1)
    }
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            workers: None,
            driver: None,
            watched: true,
            patience: PATIENCE,
            trace: weir_trace::TraceLevel::Full,
        }
    }
}

/// A running server. Dropping it stops it at once.
pub struct Server {
    crew: WorkerCrew,
    options: ServerOptions,
    /// Held while a configuration is taken into use, or the server ends.
    state: Mutex<ServerState>,
    /// The one in force; a lock of its own, so that no caller has to wait for a reload.
    configuration: InForce,
}

/// The configuration in force, wherever it is asked for, and its sockets. Clones are the same.
#[derive(Clone)]
pub struct InForce(Arc<Mutex<(Arc<Configuration>, ListeningSockets)>>);

impl InForce {
    fn new(configuration: Arc<Configuration>) -> InForce {
        InForce(Arc::new(Mutex::new((configuration, ListeningSockets::default()))))
    }

    /// The configuration in force at this moment.
    pub fn now(&self) -> Arc<Configuration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The accept queues of the addresses that are listened on; none of unix sockets, which do not report it.
    pub fn backlogs(&self) -> Vec<SocketBacklog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.backlogs()
    }

    fn set(&self, configuration: Arc<Configuration>, sockets: &InheritedSockets) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (configuration, sockets.listening());
    }
}

struct ServerState {
    sockets: InheritedSockets,
    quitting: bool,
    /// `None` once the server ends.
    checker: Option<HealthChecker>,
    /// Deals connections to the workers, since there have been several.
    acceptor: Option<Acceptor>,
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
    pub fn start(configuration: Arc<Configuration>, options: ServerOptions) -> Result<Server, StartError> {
        let sockets = InheritedSockets::open(&configuration, options.workers(&configuration))?;
        Server::start_with(configuration, options, sockets)
    }

    /// As [`Server::start`], with sockets that are open already: the set that [`InheritedSockets::reopen`] gives for
    /// `configuration`, perhaps in another process.
    ///
    /// # Errors
    /// A thread can't start, or a module refuses the configuration.
    pub fn start_with(
        configuration: Arc<Configuration>,
        options: ServerOptions,
        sockets: InheritedSockets,
    ) -> Result<Server, StartError> {
        if options.watched {
            housekeeping::start()?;
        }
        let server = Server {
            crew: WorkerCrew::new(),
            options,
            state: Mutex::new(ServerState {
                sockets: InheritedSockets::default(),
                quitting: false,
                checker: Some(HealthChecker::default()),
                acceptor: None,
            }),
            configuration: InForce::new(configuration.clone()),
        };
        if !WorkerGeneration::is_built_at_once(&configuration) {
            thread::rehearse(&configuration)?;
        }
        // Reading a configuration takes more memory than having it. Not after a reload of a small one: the next needs as much,
        // and workers' allocations would wait.
        weir_rt::process::trim_memory();
        server.take_up(&configuration, sockets, &mut server.state())?;
        Ok(server)
    }

    /// The workers that run at this moment.
    pub fn threads(&self) -> Vec<WorkerThread> {
        self.crew.threads().now()
    }

    /// The workers, as reloads change them.
    pub fn crew(&self) -> WorkerThreads {
        self.crew.threads().clone()
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Arc<Configuration> {
        self.configuration.now()
    }

    /// The configuration in force, as reloads change it.
    pub fn in_force(&self) -> InForce {
        self.configuration.clone()
    }

    /// The addresses that are listened on, as bound (a port 0 has become a real one); none once the server ends.
    pub fn addresses(&self) -> Vec<weir_rt::net::SockAddr> {
        self.state().sockets.addresses()
    }

    /// The sockets that are listened on.
    pub fn sockets(&self) -> InheritedSockets {
        self.state().sockets.clone()
    }

    /// Takes `configuration` into use: requests that begin from now on get it, on old connections too. New addresses
    /// are bound first, workers added; when anything fails nothing has changed. Returns when all workers have it.
    ///
    /// # Errors
    /// As [`Server::start`]; a worker that does not respond in time; the server is ending.
    pub fn reload(&self, configuration: Arc<Configuration>) -> Result<(), StartError> {
        let sockets = self.sockets().reopen(&configuration, self.options.workers(&configuration))?;
        self.reload_with(configuration, sockets)
    }

    /// As [`Server::reload`], with sockets that are open already: the set that [`InheritedSockets::reopen`] gives for
    /// `configuration`, perhaps in another process.
    ///
    /// # Errors
    /// As [`Server::reload`].
    pub fn reload_with(
        &self,
        configuration: Arc<Configuration>,
        sockets: InheritedSockets,
    ) -> Result<(), StartError> {
        let mut state = self.state();
        if state.quitting {
            return Err(StartError("the server is shutting down".to_owned()));
        }
        self.keep_zones(&configuration)?;
        thread::rehearse(&configuration)?;
        let before = self.configuration();
        self.take_up(&configuration, sockets, &mut state)?;
        retired::retire(before);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in the zones of the configuration in force stays in those of the next.
    fn keep_zones(&self, next: &Configuration) -> Result<(), StartError> {
        let before = self.configuration();
        keep_zones(next, &before)?;
        match (&next.stream, &before.stream) {
            (Some(next), Some(before)) => keep_zones(next, before),
            _ => Ok(()),
        }
    }

    /// Calls up the workers and gives them the configuration, all of them or none.
    fn take_up(
        &self,
        configuration: &Arc<Configuration>,
        sockets: InheritedSockets,
        state: &mut ServerState,
    ) -> Result<(), StartError> {
        HealthChecker::prepare(configuration)?;
        let count = self.options.workers(configuration);
        if count > 1 && state.acceptor.is_none() {
            state.acceptor = Some(Acceptor::start()?);
        }
        let dealt = if count > 1 { sockets.dealt(configuration)? } else { Vec::new() };
        let called = self.crew.call_up(count, configuration, &self.options)?;
        if let Err(error) = prepare(configuration, &sockets, count, &called, self.options.patience) {
            called.iter().for_each(|worker| worker.remote.run(Box::new(thread::abandon)));
            called.iter().filter(|worker| worker.new).for_each(|worker| self.crew.retire(worker));
            return Err(error);
        }
        sockets.adjust(configuration);
        descriptors::share_out(count);
        housekeeping::handle().set(configuration.trace().into());
        // Before the workers let go of theirs: the one that closes a socket last must be one that accepts what waits in
        // it.
        self.configuration.set(configuration.clone(), &sockets);
        state.sockets = sockets;
        let directory = configuration.shared::<CacheFolder>().and_then(|directory| directory.0.clone());
        kept::keep_in(directory);
        for upstreams in configuration.sections().filter_map(|section| section.shared::<Upstreams>()) {
            upstreams.follow();
        }
        if let Some(caches) = configuration.shared::<CacheZones>() {
            caches.start();
        }
        let everyone: Arc<[_]> = self.crew.threads().counters().into();
        let dealer = state.acceptor.as_ref().filter(|_| count > 1).map(Acceptor::dealer);
        let commit = || {
            let (everyone, dealer) = (everyone.clone(), dealer.clone());
            move || thread::commit(everyone, dealer)
        };
        // From here on they serve.
        survival::settle();
        // It happens all the same, as soon as the worker responds.
        if on_each(&called, self.options.patience, commit).is_err() {
            log::cycle(LogLevel::Alert, &"a worker is late in taking the configuration");
        }
        if let Some(acceptor) = &state.acceptor {
            // Once the workers know the sockets, and before those that end are asked to.
            acceptor.update(configuration, dealt, self.crew.players(count));
        }
        // The workers have it: what a check takes back of the configuration before is no longer visible.
        if let Some(checker) = &state.checker {
            checker.check(configuration);
        }
        called.iter().for_each(|worker| worker.remote.run(Box::new(thread::release)));
        called.iter().filter(|worker| worker.id >= count).for_each(|worker| self.crew.retire(worker));
        Ok(())
    }

    /// Stops accepting, closes idle connections, lets running requests end. Returns at once; see [`Server::join`].
    pub fn quit(&self) {
        let mut state = self.state();
        state.quitting = true;
        state.checker = None;
        // A socket that any process holds goes on taking connections, which would never be accepted.
        state.sockets = InheritedSockets::default();
        let limit = self.configuration().main.shutdown_timeout();
        self.crew.on_all(move || thread::quit(limit));
        if let Some(acceptor) = &state.acceptor {
            acceptor.close();
        }
    }

    /// Stops at once: connections are closed where they are.
    pub fn stop(&self) {
        self.crew.on_all(thread::stop);
        let mut state = self.state();
        state.quitting = true;
        state.checker = None;
        state.acceptor = None;
        state.sockets = InheritedSockets::default();
    }

    /// Waits until all workers have ended, for `limit` at most after each. `true`: they have.
    pub fn join(&self, limit: Option<Duration>) -> bool {
        self.crew.join(limit)
    }

    /// Runs `f` on the loop of the worker with the number `id`, counted from 0, and returns without waiting. Does
    /// nothing if there is no such worker.
    pub fn on_worker(&self, id: usize, f: impl FnOnce(&std::rc::Rc<Worker>) + Send + 'static) {
        if let Some(thread) = self.threads().iter().find(|thread| usize::from(thread.remote.worker()) == id) {
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

/// Has every worker make ready what can fail. Scripts of a start (`init_worker_by_lua`) run when all have built it, since
/// from then on they find each other; their timers wait until the configuration is in force, or a script waits.
fn prepare(
    configuration: &Arc<Configuration>,
    sockets: &InheritedSockets,
    count: usize,
    called: &[CalledWorker],
    patience: Duration,
) -> Result<(), StartError> {
    by_turns(called, patience, || {
        let configuration = configuration.clone();
        move || thread::build(&configuration)
    })?;
    by_turns(called, patience, || thread::all_built)?;
    let remotes: Arc<[_]> = called.iter().map(|worker| worker.remote.clone()).collect();
    let mut tasks = Vec::new();
    for worker in called {
        // Those above the number only finish what they have.
        let accepts = worker.id < count;
        let sockets = match accepts {
            true => workers::sockets::WorkerSockets {
                connections: sockets.of_worker(configuration, count)?,
                datagrams: sockets.datagrams_of(configuration, worker.id, count)?,
            },
            false => workers::sockets::WorkerSockets::default(),
        };
        let (configuration, remotes) = (configuration.clone(), remotes.clone());
        let waits = move || {
            for remote in &*remotes {
                let configuration = configuration.clone();
                remote.run(Box::new(move || thread::let_timers_begin(&configuration)));
            }
        };
        tasks.push((worker, move || thread::prepare(sockets, waits)));
    }
    run_tasks(tasks, patience)
}

/// Plans of a large configuration and scripts of its start take a loop's time: workers whose turn it is not serve meanwhile,
/// and take the connections of those that are busy with it.
fn by_turns<F>(
    called: &[CalledWorker],
    patience: Duration,
    mut task: impl FnMut() -> F,
) -> Result<(), StartError>
where
    F: FnOnce() -> Result<(), String> + Send + 'static,
{
    let mut left = called;
    while !left.is_empty() {
        let (now, later) = left.split_at(round_of(called, called.len() - left.len()));
        let tasks = now.iter().map(|worker| {
            let task = task();
            (worker, move || std::future::ready(task()))
        });
        run_tasks(tasks.collect(), patience)?;
        left = later;
    }
    Ok(())
}

/// Has each worker do its task, as one of its loop's, and waits until all have.
fn run_tasks<T, F>(tasks: Vec<(&CalledWorker, T)>, patience: Duration) -> Result<(), StartError>
where
    T: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<(), String>> + 'static,
{
    let (done, results) = channel();
    let count = tasks.len();
    for (worker, task) in tasks {
        let done = done.clone();
        worker.remote.run(Box::new(move || {
            weir_rt::spawn(async move {
                // The caller that waits may have given up.
                let _ = done.send(task().await);
            });
        }));
    }
    drop(done);
    let results = collect(count, &results, patience).map_err(|_| late())?;
    results.into_iter().try_for_each(|result| result.map_err(StartError))
}

/// How many of `called` build a configuration at the same time, after the first `done` of them: all, where none serves
/// yet. Otherwise the first one by itself, since the others would only wait for its `init_by_lua`, and then a quarter.
fn round_of(called: &[CalledWorker], done: usize) -> usize {
    let left = called.len() - done;
    match done {
        _ if called.iter().all(|worker| worker.new) => left,
        0 => 1,
        _ => called.len().div_ceil(4).min(left),
    }
}

fn late() -> StartError {
    StartError("a worker did not take the configuration in time".to_owned())
}

/// Runs a closure on each worker's loop and waits for what all of them return.
fn on_each<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    called: &[CalledWorker],
    patience: Duration,
    mut closure: impl FnMut() -> F,
) -> Result<Vec<T>, RecvTimeoutError> {
    let (done, results) = channel();
    for worker in called {
        let (run, done) = (closure(), done.clone());
        worker.remote.run(Box::new(move || {
            // The caller that waits may have given up.
            let _ = done.send(run());
        }));
    }
    drop(done);
    collect(called.len(), &results, patience)
}

/// This many results, as they come.
fn collect<T>(count: usize, results: &Receiver<T>, patience: Duration) -> Result<Vec<T>, RecvTimeoutError> {
    let until = Instant::now() + patience;
    (0..count).map(|_| results.recv_timeout(until.saturating_duration_since(Instant::now()))).collect()
}

/// How long a worker may take to respond, or to end, before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is in the zones of a section stays in those of the same section of the next configuration.
fn keep_zones(next: &Configuration, before: &Configuration) -> Result<(), StartError> {
    if let (Some(next), Some(before)) = (next.shared::<Upstreams>(), before.shared::<Upstreams>()) {
        next.adopt(before);
    }
    match (next.shared::<SharedZones>(), before.shared::<SharedZones>()) {
        (Some(next), Some(before)) => next.adopt(before).map_err(StartError),
        _ => Ok(()),
    }
}
