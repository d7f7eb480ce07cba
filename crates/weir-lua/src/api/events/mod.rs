//! `weir.events`: events that a script of one worker publishes to scripts of all workers, by messages from thread to
//! thread.
//!
//! A VM that wants to hear joins the [`EventBus`]: its [`EventMailbox`] takes events from any thread and wakes the task that runs
//! the VM's function for them, in the context of a timer. One burst runs after another, so events of one sender are heard
//! in their order. A configuration that leaves hears what is in its mailbox, and no more.

pub(crate) mod listening;
mod mailbox;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::wire::{IpcReader, IpcWriter};
use weir_engine::worker::AGENT;

use crate::agent;
use crate::api::worker_thread::LuaValue;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::drive::drive_alone;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, function,
};
use crate::run::lend;
use crate::run::script_run::ScriptRun;
use crate::vm::lua_vm::{LuaVm, VmPart};
use crate::vm::phase::ScriptPhase;
use mailbox::EventMailbox;
pub(crate) use mailbox::{EventListener, WorkerEvent};

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_events.join", 0, join),
    function("_events.publish", 0, publish),
    function("_events.take", 0, take),
];

/// The subscribers, in the whole process.
#[derive(Default)]
struct EventBus {
    members: Vec<EventMember>,
    /// Until when, in milliseconds of the clock of workers, a further event for one alone is the same one.
    once: HashMap<Vec<u8>, u64>,
    /// Which subscriber had the last event that goes to one alone.
    turn: usize,
}

struct EventMember {
    worker: u8,
    ear: Arc<dyn EventListener>,
}

static BUS: Mutex<Option<EventBus>> = Mutex::new(None);

/// Whom an event is for.
#[derive(Debug, PartialEq)]
pub(crate) enum EventTarget {
    All,
    /// One worker.
    Worker(u8),
    /// Any one, once in this many milliseconds, from any worker.
    Once(Vec<u8>, u64),
}

impl EventTarget {
    /// Writes it for another process.
    pub(crate) fn encode(&self, out: &mut IpcWriter) {
        match self {
            EventTarget::All => out.number(0),
            EventTarget::Worker(id) => [1, (*id).into()].iter().for_each(|number| out.number(*number)),
            EventTarget::Once(name, ms) => {
                out.number(2);
                out.bytes(name);
                out.number(*ms);
            }
        }
    }

    /// Reads what [`EventTarget::encode`] has written; `None` if it is not that.
    pub(crate) fn decode(from: &mut IpcReader<'_>) -> Option<EventTarget> {
        match from.number()? {
            0 => Some(EventTarget::All),
            1 => u8::try_from(from.number()?).ok().map(EventTarget::Worker),
            2 => Some(EventTarget::Once(from.bytes()?.to_vec(), from.number()?)),
            _ => None,
        }
    }
}

impl EventBus {
    /// The state a panicking thread leaves is consistent: nothing here is changed in two steps.
    fn with<T>(use_it: impl FnOnce(&mut EventBus) -> T) -> T {
        let mut bus: MutexGuard<'_, Option<EventBus>> = BUS.lock().unwrap_or_else(PoisonError::into_inner);
        use_it(bus.get_or_insert_default())
    }

    /// How many hear of it.
    fn publish(&mut self, target: EventTarget, event: &Arc<WorkerEvent>) -> usize {
        let to = |members: &[&EventMember]| {
            members.iter().for_each(|member| member.ear.put(event.clone()));
            members.len()
        };
        match target {
            EventTarget::All => to(&self.members.iter().collect::<Vec<_>>()),
            EventTarget::Worker(id) => {
                to(&self.members.iter().filter(|member| member.worker == id).collect::<Vec<_>>())
            }
            EventTarget::Once(name, ms) => {
                let now = weir_rt::now_ms();
                self.once.retain(|_, until| *until > now);
                if self.members.is_empty() || self.once.contains_key(&name) {
                    return 0;
                }
                self.once.insert(name, now + ms);
                self.turn = (self.turn + 1) % self.members.len();
                to(&[&self.members[self.turn]])
            }
        }
    }
}

/// A VM's membership.
pub(crate) struct EventSubscription {
    mailbox: Arc<EventMailbox>,
    /// The anchor of the function that is called for what is in the mailbox.
    handler: i32,
}

impl EventSubscription {
    fn new(worker: u8, handler: i32) -> EventSubscription {
        let mailbox = Arc::new(EventMailbox::default());
        EventBus::with(|bus| bus.members.push(EventMember { worker, ear: mailbox.clone() }));
        if agent::is_here() {
            agent::join();
        }
        EventSubscription { mailbox, handler }
    }
}

impl Drop for EventSubscription {
    fn drop(&mut self) {
        leave(&self.mailbox);
    }
}

/// Nothing more comes into the mailbox.
fn leave(mailbox: &Arc<EventMailbox>) {
    let ear: Arc<dyn EventListener> = mailbox.clone();
    if dismiss(&ear) && agent::is_here() {
        agent::leave();
    }
    mailbox.close();
}

/// The privileged agent hears, too, until it is [dismissed](dismiss).
pub(crate) fn admit(agent: Arc<dyn EventListener>) {
    EventBus::with(|bus| bus.members.push(EventMember { worker: AGENT, ear: agent }));
}

/// Removes a subscriber; `true` if it was there.
pub(crate) fn dismiss(ear: &Arc<dyn EventListener>) -> bool {
    EventBus::with(|bus| {
        let before = bus.members.len();
        bus.members.retain(|member| !std::ptr::addr_eq(Arc::as_ptr(&member.ear), Arc::as_ptr(ear)));
        bus.members.len() < before
    })
}

/// In the privileged agent: what the server has published comes.
pub(crate) fn deliver(event: WorkerEvent) {
    publish_here(EventTarget::All, &Arc::new(event));
}

/// Publishes to those that hear in this process, and to the privileged agent: how many there are.
pub(crate) fn publish_here(target: EventTarget, event: &Arc<WorkerEvent>) -> usize {
    EventBus::with(|bus| bus.publish(target, event))
}

/// `join(handler)`: whether there is something to hear. A VM of no worker, or of one request, hears nothing.
fn join(l: LuaState) -> CallOutcome {
    if l.kind(1) != kind::FUNCTION {
        return Err(LuaRaise::argument(1, "join", "function expected"));
    }
    let vm = lend::vm(LuaVm::shared);
    let worker = vm.worker().filter(|_| vm.lasts());
    let first = vm.part::<EventsPart>().0.borrow().is_none();
    if let (Some(worker), true) = (worker, first) {
        l.push_value(1);
        let joined = EventSubscription::new(worker, l.anchor());
        let mailbox = joined.mailbox.clone();
        if let Some(link) = vm.home.upgrade() {
            let mailbox = mailbox.clone();
            link.on_leave(|| {
                weir_rt::spawn(end(mailbox));
            });
        }
        let weak = Rc::downgrade(&vm);
        if let Some(link) = vm.home.upgrade() {
            // As timers. What comes until then is in the mailbox.
            link.when_in_force(|| {
                weir_rt::spawn(serve(weak, mailbox));
            });
        }
        *vm.part::<EventsPart>().0.borrow_mut() = Some(joined);
    }
    l.push_boolean(worker.is_some());
    Ok(CallDone::Results(1))
}

/// `publish(target, channel, source, event, data, milliseconds)`: how many hear of it. `target` is "all", a worker's number (the agent's is below 0),
/// or a name of which only the first event in that time is heard, by one worker.
fn publish(l: LuaState) -> CallOutcome {
    let [channel, source, name] = [2, 3, 4].map(|at| expect_string(&l, at, "publish"));
    let data = LuaValue::read_at(l, 5).map_err(|why| LuaRaise::text(format!("{why} in the data")))?;
    let target = match l.kind(1) {
        kind::NUMBER => EventTarget::Worker(match l.number(1).unwrap_or_default() {
            below if below < 0.0 => AGENT,
            number => number as u8,
        }),
        _ => match expect_string(&l, 1, "publish")? {
            text if text == b"all" => EventTarget::All,
            text => EventTarget::Once(text, expect_number(l, 6, "publish")? as u64),
        },
    };
    let sender = lend::vm(LuaVm::worker);
    let event = WorkerEvent { channel: channel?, source: source?, name: name?, data, sender };
    let heard = match agent::is_here() {
        true => {
            publish_by_agent(&target, &event).map_err(|why| LuaRaise::text(format!("{why} in the data")))?
        }
        false => publish_here(target, &Arc::new(event)),
    };
    l.push_number(heard as f64);
    Ok(CallDone::Results(1))
}

/// Channel, source, event, data, and the number of the worker that published it, of the next event; nothing without
/// one.
fn take(l: LuaState) -> CallOutcome {
    let event = lend::vm(|vm| vm.part::<EventsPart>().0.borrow().as_ref()?.mailbox.take());
    let Some(event) = event else { return Ok(CallDone::Results(0)) };
    l.reserve(16);
    [&event.channel, &event.source, &event.name].iter().for_each(|text| l.push_bytes(text));
    event.data.push(l);
    match event.sender {
        Some(AGENT) => l.push_number(-1.0),
        Some(worker) => l.push_number(f64::from(worker)),
        None => l.push_nil(),
    }
    Ok(CallDone::Results(5))
}

/// Runs the VM's function whenever something is in its mailbox.
async fn serve(vm: Weak<LuaVm>, mailbox: Arc<EventMailbox>) {
    while let Some(taken) = poll_fn(|cx| mailbox.poll(cx.waker())).await {
        let Some(vm) = vm.upgrade() else { return };
        let Some(origin) = vm.home.upgrade().and_then(|link| link.nobody()) else { return };
        let Some(handler) = vm.part::<EventsPart>().0.borrow().as_ref().map(|joined| joined.handler) else {
            return;
        };
        vm.main().push_anchored(handler);
        let run = ScriptRun::begin(&vm, ScriptPhase::Timer);
        drop(vm);
        drive_alone(run, &origin, "weir.events").await;
        if mailbox.taken() == taken {
            // Another coroutine uses it, and waits for something.
            weir_rt::sleep(PAUSE).await;
        }
    }
}

/// Lets the mailbox take the last words of timers, which run now.
async fn end(mailbox: Arc<EventMailbox>) {
    weir_rt::sleep(LAST).await;
    leave(&mailbox);
}

/// How long a configuration that leaves hears what is said.
const LAST: Duration = Duration::from_millis(100);
/// Until it is looked again whether a handler that waits is done.
const PAUSE: Duration = Duration::from_millis(5);

/// Publishes an event: how many hear of it.
///
/// # Errors
/// What of its data can't be said to another process.
fn publish_by_agent(target: &EventTarget, event: &WorkerEvent) -> Result<usize, String> {
    let mut out = IpcWriter::default();
    out.number(agent::PUBLISH);
    target.encode(&mut out);
    event.encode(&mut out)?;
    Ok(agent::exchange_or_lose(&out.0).number as usize)
}

/// The VM's place among those that hear events.
#[derive(Default)]
struct EventsPart(RefCell<Option<EventSubscription>>);

impl VmPart for EventsPart {
    const PLACE: usize = 2;
}
