//! What is in the place of the number of a worker's process.
//!
//! Libraries tell workers apart by it (who holds a lock, whose event it is, what random numbers begin with), and those of
//! the configuration before from those of the one in force: a reload gives a worker a new one, as nginx starts a new
//! process then. A signal that is sent to it reaches the process; once its configuration has gone, nothing has it any more.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use weir_engine::log::{self, LogLevel};
use weir_engine::worker::AGENT;
use weir_engine::worker::generation::ConfigurationLink;

use crate::vm::lua_vm::LuaVm;

/// The number for scripts of `vm`. Without a master process, the first worker's is that of the only process, as in nginx.
pub(super) fn of(vm: &LuaVm) -> u32 {
    let Some(worker) = vm.worker().filter(|worker| *worker < AGENT) else { return std::process::id() };
    let Some(home) = vm.home.upgrade() else { return in_force(worker) };
    let alone = worker == 0 && vm.main_conf.one_process;
    let link = home.outermost();
    let number = link.local(|| Ok::<_, Infallible>(WorkerNumber::start(worker, alone, link)));
    number.map_or_else(|never| match never {}, |number| number.number)
}

/// That of the worker's configuration in force; 0 before it has started.
pub(super) fn in_force(worker: u8) -> u32 {
    NUMBERS.get(usize::from(worker)).map_or(0, |number| number.load(Relaxed))
}

/// The number of a worker as long as it has the configuration.
struct WorkerNumber {
    worker: u8,
    number: u32,
    /// That of the configuration before, since this one's is in force: if this one is refused, it is again.
    before: Cell<u32>,
    /// What has the number, if that is not the worker's thread.
    _holder: Option<NumberHolder>,
}

impl WorkerNumber {
    fn start(worker: u8, alone: bool, link: &ConfigurationLink) -> Rc<WorkerNumber> {
        let first = !USED.replace(true);
        let holder = if alone || first { None } else { held() };
        let number = match &holder {
            Some(holder) => holder.number,
            None if alone => std::process::id(),
            None => weir_rt::thread_id().unsigned_abs(),
        };
        let started = Rc::new(WorkerNumber { worker, number, before: Cell::new(0), _holder: holder });
        if first {
            started.take_force();
        } else {
            let started = started.clone();
            link.when_built(move || started.take_force());
        }
        started
    }

    fn take_force(&self) {
        self.before.set(NUMBERS[usize::from(self.worker)].swap(self.number, Relaxed));
    }
}

impl Drop for WorkerNumber {
    fn drop(&mut self) {
        // The place has a newer one if a later configuration has replaced it, or it was never in force.
        let place = &NUMBERS[usize::from(self.worker)];
        let _ = place.compare_exchange(self.number, self.before.get(), Relaxed, Relaxed);
    }
}

/// A thread that waits for nothing but the end of this value: the kernel gives its number to nothing else meanwhile.
struct NumberHolder {
    number: u32,
    _end: Sender<Infallible>,
}

impl NumberHolder {
    fn start() -> io::Result<NumberHolder> {
        let (end, wait): (_, Receiver<Infallible>) = channel();
        let (sender, number) = channel();
        let hold = move || {
            // Nothing fails here: what has started the thread waits for the number, and never sends an end.
            let _ = sender.send(weir_rt::thread_id().unsigned_abs());
            let _ = wait.recv();
        };
        thread::Builder::new().name("weir lua number".to_owned()).stack_size(STACK).spawn(hold)?;
        let number = number.recv().map_err(io::Error::other)?;
        Ok(NumberHolder { number, _end: end })
    }
}

/// A holder, or the number of the worker's thread again.
fn held() -> Option<NumberHolder> {
    let started = NumberHolder::start();
    if let Err(error) = &started {
        log::cycle(LogLevel::Alert, &format_args!("no thread for a new number of the worker: {error}"));
    }
    started.ok()
}

/// Of a thread that waits.
const STACK: usize = 32 << 10;

thread_local! {
    /// A configuration has had the number of the worker's thread.
    static USED: Cell<bool> = const { Cell::new(false) };
}

/// Of all workers of this process.
static NUMBERS: [AtomicU32; AGENT as usize] = [const { AtomicU32::new(0) }; AGENT as usize];
