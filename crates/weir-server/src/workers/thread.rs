//! A worker thread: its runtime, what it listens on, and the closures that other threads run on it.
//!
//! A configuration comes in steps, each of them on all workers before the next: [`build`], [`all_built`] and [`prepare`] do
//! what can fail, [`commit`] can't, and [`release`] lets its timers begin and lets go of the configuration before, which ends
//! with its last request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_rt::notify::{Notify, either};
use weir_rt::sampler::AttachedThread;
use weir_rt::{DriverChoice, DriverKind, Listener, LoopStats, Runtime, RuntimeHandle, Stream, ThreadWatch};
use weir_trace::{NowReader, Recorder, RecorderSettings, WorkerNow};

use super::acceptor::AcceptorDealer;
use super::affinity::CpuSet;
use super::crew::{WorkerExit, WorkerStage};
use super::intake::{ConnectionIntake, DealtConnection};
use super::marked;
use super::sockets::{DatagramSocket, WorkerSockets};
use crate::conn::accept::{self, AcceptLog, ListenerDoor};
use crate::conn::dealer::{self, ConnectionDealer};
use crate::conn::own_socket::{OwnSocket, SocketUse};
use crate::conn::parked;
use crate::housekeeping::{self, WatchedWorker};
use crate::{ServerOptions, StartError};
use weir_engine::log::{self, LogLevel};
use weir_engine::worker::configuration::Configuration;
use weir_engine::worker::generation::WorkerGeneration;
use weir_engine::worker::{ListenerEntry, Worker, WorkerCounters};

thread_local! {
    static LOCAL: RefCell<Option<Rc<WorkerLocal>>> = const { RefCell::new(None) };
}

/// What belongs to the thread besides the worker itself.
struct WorkerLocal {
    worker: Rc<Worker>,
    listening: RefCell<Vec<ThreadListening>>,
    /// What was built, and is not [`prepare`]d yet.
    built: RefCell<Option<Rc<WorkerGeneration>>>,
    prepared: RefCell<Option<PreparedGeneration>>,
    /// What was built is given up.
    given_up: Notify,
    /// The configurations before, until all workers have the one in force.
    before: RefCell<Vec<Rc<WorkerGeneration>>>,
    affinity: CpuSet,
    /// Connections that were dealt to the worker.
    intake: Arc<ConnectionIntake>,
    /// A task waits for room for what is in the queue.
    waits_for_room: Cell<bool>,
    accept_log: AcceptLog,
    stage: Arc<WorkerStage>,
    /// The thread may end.
    done: Notify,
    quitting: Cell<bool>,
}

/// A socket whose connections come to this worker.
struct ThreadListening {
    cookie: u64,
    door: Rc<ListenerDoor>,
    by: DealtBy,
}

/// How connections of a socket come.
enum DealtBy {
    /// The worker accepts them, or reads what comes instead.
    Itself(SocketUse),
    /// They are dealt to it. The worker does not end before it may forget the socket.
    Dealing {
        /// The socket is gone, and no more than its last connections come.
        closing: bool,
        _held: ListenerEntry,
    },
}

impl DealtBy {
    /// What the worker takes by itself; `None`: it is dealt.
    fn itself(&self) -> Option<SocketUse> {
        match self {
            DealtBy::Itself(brings) => Some(*brings),
            DealtBy::Dealing { .. } => None,
        }
    }
}

/// A configuration that can be taken into use.
struct PreparedGeneration {
    generation: Rc<WorkerGeneration>,
    /// Cookie and address of each socket.
    sockets: Vec<(u64, usize, ListenSource)>,
}

/// Where the connections of a socket will come from.
enum ListenSource {
    /// From the worker's own socket; `None`: it has one.
    Own(SocketUse, Option<OwnSocket>),
    /// From the thread that deals them.
    Dealt,
}

/// A thread that runs.
pub(crate) struct StartedWorker {
    pub(crate) handle: JoinHandle<Recorder>,
    pub(crate) remote: RuntimeHandle,
    pub(crate) now: NowReader,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) driver: DriverKind,
    pub(crate) intake: Arc<ConnectionIntake>,
    pub(crate) watch: ThreadWatch,
}

/// How a worker's thread runs.
#[derive(Clone, Copy)]
pub(crate) struct ThreadOptions {
    pub(crate) driver: DriverChoice,
    /// It can be profiled, and is watched for turns of its loop that take too long.
    pub(crate) watched: bool,
}

/// Starts worker `id`; it does nothing until it is given a configuration.
pub(crate) fn start(
    id: u8,
    options: ThreadOptions,
    recorder: Recorder,
    counters: Arc<WorkerCounters>,
    stage: Arc<WorkerStage>,
    exit: WorkerExit,
) -> Result<StartedWorker, StartError> {
    let ThreadOptions { driver, watched } = options;
    let now = WorkerNow::new(u16::from(id));
    let reader = now.reader();
    let (ready, started) = channel();
    let intake = Arc::new(ConnectionIntake::new(counters.clone()));
    let theirs = intake.clone();
    let handle =
        std::thread::Builder::new().name(format!("weir worker {id}")).stack_size(STACK).spawn(move || {
            let _exit = exit;
            marked::mark();
            let shown = watched.then(|| attach(id)).flatten();
            let worker = match runtime(id, driver) {
                Ok(runtime) => {
                    let watched = shown.as_ref().map(|shown| WatchedWorker {
                        probe: shown.probe(),
                        worker: u16::from(id),
                        recorder: recorder.reader(),
                        now: now.reader(),
                        counters: counters.clone(),
                        stats: runtime.stats(),
                    });
                    let watching = watched.map(housekeeping::watch);
                    let local =
                        Rc::new(WorkerLocal::new(Worker::with(id, counters, recorder, now), theirs, stage));
                    LOCAL.set(Some(local.clone()));
                    // The caller that starts a thread waits for this.
                    let (remote, stats, driver) = (runtime.remote(), runtime.stats(), runtime.driver());
                    let _ = ready.send(Ok((remote, stats, driver, ThreadWatch::current())));
                    runtime.block_on(local.done.forever());
                    local.end();
                    LOCAL.set(None);
                    drop(watching);
                    drop(runtime);
                    local.worker.clone()
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    Worker::new(id, counters, recorder)
                }
            };
            worker.leave()
        })?;
    match started.recv() {
        Ok(Ok((remote, stats, driver, watch))) => {
            Ok(StartedWorker { handle, remote, now: reader, stats, driver, intake, watch })
        }
        Ok(Err(error)) => Err(StartError(format!("the event driver can't start: {error}"))),
        Err(_) => Err(StartError("a worker thread ended before it began".to_owned())),
    }
}

/// Makes worker `id`, on whose thread this runs, visible to the sampler of stacks.
fn attach(id: u8) -> Option<AttachedThread> {
    weir_rt::sampler::attach(u32::from(id))
        .inspect_err(|error| {
            log::cycle(LogLevel::Warn, &format_args!("worker {id} can't be profiled: {error}"));
        })
        .ok()
}

fn runtime(id: u8, driver: DriverChoice) -> std::io::Result<Runtime> {
    Runtime::new(&weir_rt::RuntimeOptions { driver, worker: id, buffers: 1024, name: format!("worker {id}") })
}

/// A recorder for worker `id`.
pub(crate) fn recorder(id: usize, options: &ServerOptions) -> Recorder {
    let mut settings =
        RecorderSettings { level: options.trace, seed: id as u64 * 2 + 1, ..RecorderSettings::default() };
    settings.slow = weir_rt::clock::scale().ns_to_ticks(SLOW.as_nanos() as u64);
    Recorder::new(id as u16, settings)
}

/// Runs `f` with this thread's worker; `None` outside of worker threads.
pub fn with_worker<R>(f: impl FnOnce(&Rc<Worker>) -> R) -> Option<R> {
    Some(f(&local()?.worker))
}

fn local() -> Option<Rc<WorkerLocal>> {
    LOCAL.with_borrow(Clone::clone)
}

/// Does on the calling thread what may fail when plans are built, so that it stops a reload before it begins.
pub(crate) fn rehearse(configuration: &Arc<Configuration>) -> Result<(), StartError> {
    let worker = Worker::new(u8::MAX, Arc::default(), Recorder::new(u16::MAX, RecorderSettings::default()));
    WorkerGeneration::rehearse(configuration, &worker)
        .map_err(|error| StartError(error.render(&configuration.source)))
}

/// Builds the plans of a configuration, and its VM.
pub(crate) fn build(configuration: &Arc<Configuration>) -> Result<(), String> {
    let Some(local) = local() else { return Err("not a worker".to_owned()) };
    let generation = WorkerGeneration::install(configuration, &local.worker)
        .map_err(|error| error.render(&configuration.source))?;
    drop(local.built.replace(Some(Rc::new(generation))));
    Ok(())
}

/// All workers have built the configuration.
pub(crate) fn all_built() -> Result<(), String> {
    let built = local().and_then(|local| local.built.borrow().clone());
    built.ok_or_else(given_up)?.all_built();
    Ok(())
}

/// Makes ready what [`commit`] takes into use of what was built, and waits for what must be done before it serves; calls
/// `waits` where it has to wait.
pub(crate) async fn prepare(sockets: WorkerSockets, waits: impl FnOnce()) -> Result<(), String> {
    let Some(local) = local() else { return Err("not a worker".to_owned()) };
    let Some(generation) = local.built.borrow().clone() else { return Err(given_up()) };
    begin(&generation, &local, waits).await?;
    drop(local.built.take());
    let mut prepared = PreparedGeneration { generation, sockets: Vec::new() };
    for socket in sockets.connections {
        let source = match socket.fd {
            None => ListenSource::Dealt,
            Some(_) if local.reads(socket.cookie, SocketUse::Connections) => {
                ListenSource::Own(SocketUse::Connections, None)
            }
            Some(fd) => {
                let listener = Listener::new(fd).map_err(|error| error.to_string())?;
                ListenSource::Own(SocketUse::Connections, Some(OwnSocket::Connections(listener)))
            }
        };
        prepared.sockets.push((socket.cookie, socket.address, source));
    }
    for DatagramSocket { fd, address, brings, cookie, group } in sockets.datagrams {
        let own = match local.reads(cookie, brings) {
            true => None,
            false => Some(OwnSocket::of_datagrams(fd, brings, group).map_err(|it| it.to_string())?),
        };
        prepared.sockets.push((cookie, address, ListenSource::Own(brings, own)));
    }
    *local.prepared.borrow_mut() = Some(prepared);
    Ok(())
}

/// Does what must be done before the worker serves.
async fn begin(
    generation: &WorkerGeneration,
    local: &WorkerLocal,
    waits: impl FnOnce(),
) -> Result<(), String> {
    let is_built = || local.built.borrow().as_ref().is_some_and(|built| std::ptr::eq(&**built, generation));
    let given_up_at = async {
        while is_built() {
            local.given_up.notified().await;
        }
    };
    let (mut begun, mut waits) = (pin!(either(generation.begin(), given_up_at)), Some(waits));
    let begun = poll_fn(|cx| {
        let begun = begun.as_mut().poll(cx);
        if let (true, Some(waits)) = (begun.is_pending(), waits.take()) {
            waits();
        }
        begun
    });
    begun.await.ok_or_else(given_up)
}

/// A worker has to wait before it serves `configuration`: what it waits for may be what others do when that is in force.
pub(crate) fn let_timers_begin(configuration: &Arc<Configuration>) {
    let built = local().and_then(|local| {
        let prepared = local.prepared.borrow().as_ref().map(|prepared| prepared.generation.clone());
        local.built.borrow().clone().or(prepared)
    });
    if let Some(built) = built.filter(|built| Arc::ptr_eq(&built.configuration, configuration)) {
        built.take_force();
    }
}

/// Forgets what was built and prepared.
pub(crate) fn abandon() {
    if let Some(local) = local() {
        drop(local.built.take());
        drop(local.prepared.take());
        local.given_up.notify();
    }
}

fn given_up() -> String {
    "given up".to_owned()
}

/// Takes what was prepared into use. What goes on under the configuration before has its `worker_shutdown_timeout` to
/// end. `everyone` is what all workers count, `dealer` the thread that deals connections to them.
pub(crate) fn commit(everyone: Arc<[Arc<WorkerCounters>]>, dealer: Option<Arc<AcceptorDealer>>) {
    let Some(local) = local() else { return };

    let Some(PreparedGeneration { generation, sockets }) = local.prepared.borrow_mut().take() else { return };
    let worker = &local.worker;
    log::set_own(generation.configuration.main.error_log_open.clone());
    local.affinity.apply(generation.configuration.main.affinity(usize::from(worker.id)));
    worker.know(everyone);
    dealer::set_dealer(worker, dealer.map(|dealer| dealer as Arc<dyn ConnectionDealer>));
    worker.keep_connections();
    let before = worker.switch(generation.clone());
    weir_engine::trace::configure(worker, &generation.configuration);
    let limit = before.as_ref().and_then(|before| before.configuration.main.shutdown_timeout());
    local.before.borrow_mut().extend(before);
    if let Some(limit) = limit {
        let (worker, serial) = (worker.clone(), worker.serial());
        weir_rt::spawn(async move {
            weir_rt::sleep(limit).await;
            worker.end_before(serial);
        });
    }
    local.listen(&generation, sockets);
}

/// All workers have what was committed: its timers begin, and the configuration before ends when nothing uses it any more.
pub(crate) fn release() {
    let Some(local) = local() else { return };
    if let Some(generation) = local.worker.generation() {
        generation.take_force();
    }
    for before in local.before.take() {
        before.retire();
    }
}

/// There are enough others: no new connections, responses say that theirs end, and the thread ends with the last of
/// them, unless it is called up again before.
pub(crate) fn retire() {
    let Some(local) = local() else { return };
    // Nothing is dealt to it any more, nor waits in its queue, nor is parked for it.
    dealer::set_dealer(&local.worker, None);
    local.listening.borrow_mut().drain(..).for_each(|listening| listening.door.close());
    local.worker.end_connections();
    local.leave();
    if let Some(limit) = local.worker.generation().and_then(|now| now.configuration.main.shutdown_timeout()) {
        let local = local.clone();
        weir_rt::spawn(async move {
            weir_rt::sleep(limit).await;
            if local.stage.is_retired() {
                local.worker.end_all();
            }
        });
    }
    weir_rt::spawn(async move {
        while local.stage.is_retired() {
            if local.worker.is_vacant() && local.stage.end() {
                return local.done.notify();
            }
            local.worker.wait_closed(u64::MAX).await;
        }
    });
}

/// Ends gracefully: no new connections, idle ones closed, the thread ends with the last request. Those that are not done at
/// `limit` are cut off as if their clients had gone, so that the access log has them.
pub(crate) fn quit(limit: Option<Duration>) {
    let Some(local) = local() else { return };
    if local.quitting.replace(true) {
        return;
    }
    local.listen_no_more();
    local.worker.stop();
    local.leave();
    weir_rt::spawn(async move {
        local.wait_vacant(limit).await;
        if !local.worker.is_vacant() {
            local.worker.end_all();
            local.wait_vacant(Some(CUT_OFF)).await;
        }
        local.done.notify();
    });
}

/// Takes connections that were dealt to this thread's worker, a bounded number; the rest at the next turn.
pub(crate) fn take_dealt() {
    let Some(local) = local() else { return };
    for _ in 0..PER_TURN {
        if local.worker.is_full() && !local.worker.is_stopping() {
            return local.wait_for_room();
        }
        let Some(dealt) = local.intake.pop() else { return };
        if let Some(dealer) = dealer::dealer(&local.worker) {
            dealer.taken();
        }
        local.take(dealt);
    }
    if !local.intake.is_empty() {
        weir_rt::remote().run(Box::new(take_dealt));
    }
}

/// Ends `count` connections of this thread's worker whose clients other workers are to serve.
pub(crate) fn even_out(count: u64) {
    if let Some(local) = local() {
        dealer::even_out(&local.worker, count);
    }
}

/// No connection of the socket `cookie` can come any more, if it is gone.
pub(crate) fn finish(cookie: u64) {
    let Some(local) = local() else { return };
    local.listening.borrow_mut().retain(|listening| {
        listening.cookie != cookie || !matches!(listening.by, DealtBy::Dealing { closing: true, .. })
    });
}

/// Ends at once.
pub(crate) fn stop() {
    if let Some(local) = local() {
        local.done.notify();
    }
}

/// How long requests that are cut off have for what comes at their end (scripts, the access log).
const CUT_OFF: Duration = Duration::from_secs(1);

/// Bytes of a worker's stack, of which only those touched are memory: each of the 50 subrequests that may be made inside
/// one another takes a hundred kilobytes in a build without optimisation.
const STACK: usize = 16 << 20;

impl WorkerLocal {
    fn new(worker: Rc<Worker>, intake: Arc<ConnectionIntake>, stage: Arc<WorkerStage>) -> WorkerLocal {
        WorkerLocal {
            worker,
            listening: RefCell::default(),
            built: RefCell::default(),
            prepared: RefCell::default(),
            given_up: Notify::default(),
            before: RefCell::default(),
            affinity: CpuSet::default(),
            intake,
            waits_for_room: Cell::new(false),
            accept_log: AcceptLog::default(),
            stage,
            done: Notify::default(),
            quitting: Cell::new(false),
        }
    }

    /// Waits until nothing is open, for `limit` at most.
    async fn wait_vacant(&self, limit: Option<Duration>) {
        let until = limit.map(|limit| weir_rt::now_ms() + limit.as_millis() as u64);
        while !self.worker.is_vacant() && until.is_none_or(|until| weir_rt::now_ms() < until) {
            let left = until.map_or(u64::MAX, |until| until.saturating_sub(weir_rt::now_ms()));
            self.worker.wait_closed(left).await;
        }
    }

    /// Whether the worker takes what the socket `cookie` `brings` by itself already.
    fn reads(&self, cookie: u64, brings: SocketUse) -> bool {
        let own =
            |listening: &ThreadListening| listening.cookie == cookie && listening.by.itself() == Some(brings);
        self.listening.borrow().iter().any(own)
    }

    /// Takes connections of `sockets` and of no others.
    fn listen(&self, generation: &Rc<WorkerGeneration>, sockets: Vec<(u64, usize, ListenSource)>) {
        let serial = self.worker.serial();
        let mut old: Vec<_> = self.listening.take().into_iter().map(Some).collect();
        let mut places: HashMap<(u64, Option<SocketUse>), usize> = HashMap::new();
        for (at, listening) in old.iter().enumerate() {
            listening.iter().for_each(|it| _ = places.entry((it.cookie, it.by.itself())).or_insert(at));
        }
        let mut listening = Vec::new();
        for (cookie, address, source) in sockets {
            let itself = match source {
                ListenSource::Own(brings, _) => Some(brings),
                ListenSource::Dealt => None,
            };
            if let Some(mut kept) = places.remove(&(cookie, itself)).and_then(|at| old[at].take()) {
                kept.door.lead(generation, serial, address);
                kept.set_closing(false);
                listening.push(kept);
                continue;
            }
            let door = Rc::new(ListenerDoor::new(generation, serial, address));
            let by = match source {
                ListenSource::Dealt => DealtBy::Dealing { closing: false, _held: self.worker.hold() },
                ListenSource::Own(brings, Some(own)) => {
                    own.run(&self.worker, &door);
                    DealtBy::Itself(brings)
                }
                ListenSource::Own(_, None) => continue,
            };
            listening.push(ThreadListening { cookie, door, by });
        }
        *self.listening.borrow_mut() = listening;
        self.close(old.into_iter().flatten().collect());
    }

    /// Takes no connections but those that have been accepted.
    fn listen_no_more(&self) {
        let all = self.listening.take();
        self.close(all);
    }

    fn close(&self, gone: Vec<ThreadListening>) {
        for mut listening in gone {
            match listening.by {
                DealtBy::Itself(_) => listening.door.close(),
                DealtBy::Dealing { .. } => {
                    listening.set_closing(true);
                    self.listening.borrow_mut().push(listening);
                }
            }
        }
    }

    /// Begins a connection that was dealt to the worker.
    fn take(&self, dealt: DealtConnection) {
        let (fd, peer, cookie) = match dealt {
            DealtConnection::New { fd, peer, cookie } => (fd, peer, cookie),
            DealtConnection::Again(parked) => return parked::resume(&self.worker, parked),
        };
        let door = |listening: &&ThreadListening| {
            listening.cookie == cookie && matches!(listening.by, DealtBy::Dealing { .. })
        };
        let door = self.listening.borrow().iter().find(door).map(|listening| listening.door.clone());
        // Of a socket that the worker does not know none is dealt to it.
        let Some(door) = door else { return };
        match Stream::from_accepted(fd) {
            Ok(stream) => accept::take(&self.worker, stream, peer, &door),
            Err(error) => self.accept_log.failed(&error),
        }
    }

    /// Goes on to take connections when one has ended.
    fn wait_for_room(self: Rc<Self>) {
        if self.intake.is_empty() || self.waits_for_room.replace(true) {
            return;
        }
        weir_rt::spawn(async move {
            self.worker.room().await;
            self.waits_for_room.set(false);
            take_dealt();
        });
    }

    /// What waits for a time to come is notified that it will not come.
    fn leave(&self) {
        if let Some(generation) = self.worker.generation() {
            generation.leave();
        }
    }

    /// The last steps.
    fn end(&self) {
        self.worker.logs.flush_all();
        self.built.take();
        self.prepared.take();
        if !self.stage.has_ended() {
            log::worker_exited();
        }
    }
}

impl ThreadListening {
    fn set_closing(&mut self, close: bool) {
        if let DealtBy::Dealing { closing, .. } = &mut self.by {
            *closing = close;
        }
    }
}

/// Connections a worker takes out of its queue in one turn, so that a burst of new ones does not starve the old.
const PER_TURN: u32 = 64;
/// Requests that take longer are retained with their tree until a directive says otherwise.
const SLOW: Duration = Duration::from_millis(200);
