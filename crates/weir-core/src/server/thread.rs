//! A worker thread: its runtime, what it listens on, and the closures that other threads run on it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use weir_rt::{DriverChoice, Listener, Runtime};
use weir_trace::{Now, Recorder, Settings};

use super::notify::Notify;
use super::sockets::WorkerSocket;
use super::{Options, StartError, Thread};
use crate::conf::Configuration;
use crate::conf::server::Generation;
use crate::conn::accept;
use crate::housekeeping::{self, Watched};
use crate::log::{self, Level};
use crate::worker::{Counters, Worker};

thread_local! {
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// What belongs to the thread besides the worker itself.
struct Local {
    worker: Rc<Worker>,
    listening: RefCell<Vec<Listening>>,
    /// The thread may end.
    done: Notify,
    quitting: Cell<bool>,
}

/// One address this worker accepts from.
struct Listening {
    cookie: u64,
    /// Index of the address in the configuration in force; changes with a reload.
    address: Rc<Cell<usize>>,
    end: Rc<Notify>,
}

/// Starts worker `id`; it does nothing until it is given a configuration.
pub(super) fn start(
    id: u8,
    configuration: &Configuration,
    options: &Options,
    exit: Sender<usize>,
) -> Result<Thread, StartError> {
    let counters = Arc::new(Counters::default());
    let mut settings = Settings { level: options.trace, seed: u64::from(id) * 2 + 1, ..Settings::default() };
    settings.slow = weir_rt::clock::scale().ns_to_ticks(SLOW.as_nanos() as u64);
    let recorder = Recorder::new(u16::from(id), settings);
    let (reader, now) = (recorder.reader(), Now::new(u16::from(id)));
    let now_reader = now.reader();
    let driver = options.driver.unwrap_or_else(|| configuration.main.driver());
    let (ready, started) = channel();
    let mine = counters.clone();
    let affinity = configuration.main.affinity(usize::from(id));
    let handle = std::thread::Builder::new().name(format!("weir worker {id}")).spawn(move || {
        if let Some(cpus) = affinity
            && let Err(error) = weir_rt::process::set_affinity(&cpus)
        {
            log::cycle(Level::Alert, &format_args!("sched_setaffinity() failed ({error})"));
        }
        let shown = weir_rt::sampler::attach(u32::from(id));
        if let Err(error) = &shown {
            log::cycle(Level::Warn, &format_args!("worker {id} can't be profiled: {error}"));
        }
        match runtime(id, driver) {
            Ok(runtime) => {
                let watched = shown.as_ref().ok().map(|shown| Watched {
                    probe: shown.probe(),
                    worker: u16::from(id),
                    recorder: recorder.reader(),
                    now: now.reader(),
                    counters: mine.clone(),
                    stats: runtime.stats(),
                });
                let watching = watched.map(housekeeping::watch);
                let worker = Worker::with(id, mine, recorder, now);
                let local = Rc::new(Local {
                    worker,
                    listening: RefCell::default(),
                    done: Notify::default(),
                    quitting: Cell::new(false),
                });
                LOCAL.set(Some(local.clone()));
                let _ = ready.send(Ok((runtime.remote(), runtime.stats(), runtime.driver())));
                runtime.block_on(local.done.forever());
                local.worker.logs.flush_all();
                LOCAL.set(None);
                drop(watching);
                drop(local);
                drop(runtime);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
        let _ = exit.send(usize::from(id));
    })?;
    match started.recv() {
        Ok(Ok((remote, stats, driver))) => Ok(Thread {
            remote,
            counters,
            recorder: reader,
            now: now_reader,
            stats,
            driver,
            handle: Some(handle),
        }),
        Ok(Err(error)) => Err(StartError(format!("the event driver can't start: {error}"))),
        Err(_) => Err(StartError("a worker thread ended before it began".to_owned())),
    }
}

fn runtime(id: u8, driver: DriverChoice) -> std::io::Result<Runtime> {
    Runtime::new(&weir_rt::Options { driver, worker: id, buffers: 1024, name: format!("worker {id}") })
}

/// Runs `f` with this thread's worker; `None` outside of worker threads.
pub fn with_worker<R>(f: impl FnOnce(&Rc<Worker>) -> R) -> Option<R> {
    let local = LOCAL.with_borrow(Clone::clone)?;
    Some(f(&local.worker))
}

/// Builds all plans once on the calling thread, so that what modules find out only then stops a reload before it begins.
pub(super) fn rehearse(configuration: &Arc<Configuration>) -> Result<(), StartError> {
    let worker = Worker::new(u8::MAX, Arc::default(), Recorder::new(u16::MAX, Settings::default()));
    match Generation::install(configuration, &worker) {
        Ok(_) => Ok(()),
        Err(error) => Err(StartError(error.render(&configuration.source))),
    }
}

/// Takes a configuration into use on this worker. What goes on under the one before has its
/// `worker_shutdown_timeout` to end.
pub(super) fn adopt(configuration: &Arc<Configuration>, sockets: Vec<WorkerSocket>) -> Result<(), String> {
    let Some(local) = LOCAL.with_borrow(Clone::clone) else { return Err("not a worker".to_owned()) };
    let generation = Generation::install(configuration, &local.worker)
        .map_err(|error| error.render(&configuration.source))?;
    let before = local.worker.generation();
    local.worker.switch(Rc::new(generation));
    crate::trace::configure(&local.worker, configuration);
    if let Some(limit) = before.and_then(|before| before.configuration.main.shutdown_timeout()) {
        let (worker, serial) = (local.worker.clone(), local.worker.serial());
        weir_rt::spawn(async move {
            weir_rt::sleep(limit).await;
            worker.end_before(serial);
        });
    }
    let mut old = std::mem::take(&mut *local.listening.borrow_mut());
    let mut listening = Vec::new();
    for socket in sockets {
        match old.iter().position(|listening| listening.cookie == socket.cookie) {
            Some(at) => {
                let kept = old.swap_remove(at);
                kept.address.set(socket.address);
                listening.push(kept);
            }
            None => listening.push(listen(&local, socket)?),
        }
    }
    for gone in old {
        gone.end.notify();
    }
    *local.listening.borrow_mut() = listening;
    Ok(())
}

fn listen(local: &Rc<Local>, socket: WorkerSocket) -> Result<Listening, String> {
    let listener = if socket.shared { Listener::exclusive(socket.fd) } else { Listener::new(socket.fd) };
    let listener = listener.map_err(|error| error.to_string())?;
    let (address, end) = (Rc::new(Cell::new(socket.address)), Rc::new(Notify::default()));
    weir_rt::spawn(accept::run(local.worker.clone(), listener, address.clone(), end.clone()));
    Ok(Listening { cookie: socket.cookie, address, end })
}

/// Ends gracefully: no new connections, idle ones closed, the thread ends with the last request or at `limit`.
pub(super) fn quit(limit: Option<Duration>) {
    let Some(local) = LOCAL.with_borrow(Clone::clone) else { return };
    if local.quitting.replace(true) {
        return;
    }
    for listening in local.listening.borrow_mut().drain(..) {
        listening.end.notify();
    }
    local.worker.stop();
    weir_rt::spawn(async move {
        let until = limit.map(|limit| weir_rt::now_ms() + limit.as_millis() as u64);
        while local.worker.is_busy() && until.is_none_or(|until| weir_rt::now_ms() < until) {
            let left = until.map_or(u64::MAX, |until| until.saturating_sub(weir_rt::now_ms()));
            local.worker.wait_closed(left).await;
        }
        local.done.notify();
    });
}

/// Ends at once.
pub(super) fn stop() {
    if let Some(local) = LOCAL.with_borrow(Clone::clone) {
        local.done.notify();
    }
}

/// Requests that take longer are kept with their tree until a directive says otherwise.
const SLOW: Duration = Duration::from_millis(200);
