//! What one thread owns: its generation, files, clock and sinks, and the parts that protocols have of it. `Rc`-shared
//! inside the thread, never leaves it. It knows no request.

pub mod configuration;
pub mod generation;
pub mod memory;
mod part;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_http::date::{CachedTime, DateMemo};
use weir_http::host::Host;
use weir_http::uri::NormalizedUri;
use weir_rt::clock;
use weir_rt::notify::{Notify, either};
use weir_trace::{Recorder, RecorderSettings, WorkerNow};

use crate::descriptors::{self, ConnectionLimit};
use crate::log::{self, LogLevel, WorkerLogs};
use crate::open_file::FileStore;
use crate::presence::WorkerPresences;
use crate::recent::RecentFacts;
use crate::settings::main::MOST_WORKERS;
use generation::WorkerGeneration;
use part::WorkerParts;

pub use crate::counters::{
    CloseCounters, CloseProtocol, CloseReason, CloseSide, DealingCounters, FULL, FlowCounters,
    HandshakeCounters, HandshakeFault, HandshakeTrait, OTHER, QuicCounters, ShownCertificate,
    StreamCloseCounters, StreamCloseSide, UpstreamCloseProtocol, UpstreamCloseReason, UpstreamCloses,
    UpstreamEnd, WorkerCounter, WorkerCounters, WorkerCounts,
};
pub use part::{WorkerPart, WorkerSlot};

/// The number of the privileged agent, which is not one of the workers: the first after theirs.
pub const AGENT: u8 = MOST_WORKERS;

/// The state of one worker thread: what all of its connections and requests share. It never leaves its thread.
pub struct Worker {
    /// Its number, from 0.
    pub id: u8,
    /// Read by status pages and other threads.
    pub counters: Arc<WorkerCounters>,
    /// Where the traces of its requests go.
    pub recorder: RefCell<Recorder>,
    /// What its requests do at this moment, and what they have in common.
    pub(crate) present: Rc<WorkerPresences>,
    /// Open files and small bodies.
    pub files: FileStore,
    /// Buffers of access logs.
    pub logs: WorkerLogs,
    parts: WorkerParts,
    /// A list for a caller that needs one between two statements: taken and put back.
    pub fields: RefCell<Vec<weir_http::Field>>,
    /// A buffer of bytes for a caller that needs one between two statements; taken and put back, never held across an
    /// await.
    pub scratch: RefCell<Vec<u8>>,
    generation: RefCell<Option<Rc<WorkerGeneration>>>,
    /// Counts generations; a connection compares it with the one it saw last.
    serial: Cell<u64>,
    /// Something was closed: there is room for new connections, and perhaps nothing left to wait for.
    closed: Notify,
    /// Numbers for connections: the next one, and how many are left of the block.
    numbers: Cell<(u64, u64)>,
    dates: RefCell<CachedTime>,
    /// Hosts that were checked already, with the result.
    pub authorities: RefCell<RecentFacts<Host>>,
    /// Targets that were found to be normal.
    pub targets: RefCell<RecentFacts<NormalizedUri>>,
    /// Texts of the times of files.
    modified: RefCell<DateMemo>,
    /// Background requests that are running.
    background: Cell<usize>,
    /// The counters of all workers of the server, the own among them.
    everyone: RefCell<Arc<[Arc<WorkerCounters>]>>,
    /// New connections are refused and idle ones closed.
    stopping: Cell<bool>,
    /// Responses say that their connection ends.
    closing: Cell<bool>,
    /// Listeners that are open.
    doors: Cell<usize>,
    /// When it was logged last that connections are closed to make room.
    crowded: Cell<Option<u64>>,
    /// A task looks whether memory is to be given back.
    pub(crate) is_trimming: Cell<bool>,
    offset: Cell<(u64, i32)>,
}

impl Worker {
    /// A worker without configuration.
    pub fn new(id: u8, counters: Arc<WorkerCounters>, recorder: Recorder) -> Rc<Worker> {
        Worker::with(id, counters, recorder, WorkerNow::new(u16::from(id)))
    }

    /// [`Worker::new`] whose present is watched from outside.
    pub fn with(id: u8, counters: Arc<WorkerCounters>, recorder: Recorder, now: WorkerNow) -> Rc<Worker> {
        let (time, _) = clock::unix_time();
        let offset = clock::local_offset(time) / 60;
        Rc::new(Worker {
            id,
            counters,
            present: Rc::new(WorkerPresences::new(now, &recorder)),
            recorder: RefCell::new(recorder),
            files: FileStore::default(),
            logs: WorkerLogs::default(),
            parts: WorkerParts::default(),
            fields: RefCell::default(),
            scratch: RefCell::default(),
            generation: RefCell::new(None),
            serial: Cell::new(0),
            closed: Notify::default(),
            numbers: Cell::new((0, 0)),
            authorities: RefCell::default(),
            targets: RefCell::default(),
            modified: RefCell::default(),
            dates: RefCell::new(CachedTime::new(time as i64, offset)),
            background: Cell::new(0),
            everyone: RefCell::new(Arc::new([])),
            stopping: Cell::new(false),
            closing: Cell::new(false),
            doors: Cell::new(0),
            crowded: Cell::new(None),
            is_trimming: Cell::new(false),
            offset: Cell::new((time, offset)),
        })
    }

    /// The configuration that new requests get; `None` before the first [`Worker::switch`].
    pub fn generation(&self) -> Option<Rc<WorkerGeneration>> {
        self.generation.borrow().clone()
    }

    /// From here on new requests get `generation`; connections whose address it does not have, or has otherwise, end
    /// with the request they are in. Returns the configuration it replaces; `None` for the first one.
    pub fn switch(&self, generation: Rc<WorkerGeneration>) -> Option<Rc<WorkerGeneration>> {
        let before = self.generation.replace(Some(generation));
        self.serial.set(self.serial.get() + 1);
        self.files.clear();
        self.parts.made().for_each(|part| part.switched(self));
        before
    }

    /// Responses say that their connection ends, from the next one on.
    pub fn end_connections(&self) {
        self.closing.set(true);
    }

    /// Responses do not say any more that their connection ends.
    pub fn keep_connections(&self) {
        self.closing.set(false);
    }

    /// Whether a connection is to be kept alive after its response.
    #[inline]
    pub(crate) fn keeps_connections(&self) -> bool {
        !self.closing.get()
    }

    /// Whether the worker is being stopped gracefully.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Idle connections close, busy ones after their request. As in nginx a client that has not asked yet is waited
    /// for as long as it may take: its request may be on the way.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.closing.set(true);
        self.parts.made().for_each(WorkerPart::stopped);
        self.closed.notify();
    }

    /// Ends all connections, whatever they do.
    pub fn end_all(&self) {
        self.parts.made().for_each(WorkerPart::end_all);
    }

    /// Ends the connections whose request, or whose waiting for the first one, began before generation `serial`
    /// (`worker_shutdown_timeout` after a reload). Those that wait for another request have nothing old about them:
    /// it will get the new configuration.
    pub fn end_before(&self, serial: u64) {
        self.parts.made().for_each(|part| part.end_before(serial));
    }

    /// Counts generations; changes with every reload.
    pub fn serial(&self) -> u64 {
        self.serial.get()
    }

    /// The number of the next connection.
    pub fn connection_number(&self) -> u64 {
        let (next, left) = match self.numbers.get() {
            (_, 0) => (connection_numbers(), NUMBERS),
            block => block,
        };
        self.numbers.set((next + 1, left - 1));
        next
    }

    /// A connection was closed: there is room for another, and perhaps nothing is left to wait for.
    pub(crate) fn notify_closed(&self) {
        self.closed.notify();
    }

    /// Counts a background request until what is returned is dropped.
    pub fn busy(self: &Rc<Self>) -> BackgroundEntry {
        self.background.set(self.background.get() + 1);
        BackgroundEntry(self.clone())
    }

    /// Whether a connection is open or a background request runs.
    fn is_busy(&self) -> bool {
        self.counters.active.get() > 0 || self.background.get() > 0
    }

    /// Announces the worker to the counters of all workers of the server.
    pub fn know(&self, everyone: Arc<[Arc<WorkerCounters>]>) {
        *self.everyone.borrow_mut() = everyone;
    }

    /// How many workers the server has or had, this one included.
    pub fn colleagues(&self) -> usize {
        self.everyone.borrow().len().max(1)
    }

    /// What all workers of the server have counted together.
    pub fn counts(&self) -> WorkerCounts {
        WorkerCounts::of(&self.everyone.borrow())
    }

    /// Counts a listener until what is returned is dropped.
    pub fn hold(self: &Rc<Self>) -> ListenerEntry {
        self.doors.set(self.doors.get() + 1);
        ListenerEntry(self.clone())
    }

    /// Whether nothing is left to wait for: nothing goes on, and no listener may bring something.
    pub fn is_vacant(&self) -> bool {
        !self.is_busy() && self.doors.get() == 0
    }

    /// How many connections may be open at a time: `worker_connections`, or fewer for want of descriptors.
    pub fn most(&self) -> u64 {
        self.limit().most
    }

    fn limit(&self) -> ConnectionLimit {
        let generation = self.generation.borrow();
        generation.as_ref().map_or(ConnectionLimit::NONE, |generation| {
            ConnectionLimit::of_worker(generation.configuration.main.worker_connections())
        })
    }

    /// Whether as many connections are open as may be.
    pub fn is_full(&self) -> bool {
        self.counters.active.get() >= self.most()
    }

    /// Whether a listener may accept connections that have sent no request yet: each takes a descriptor.
    pub fn accepts_ahead(&self) -> bool {
        descriptors::of_clients().saturating_sub(self.counters.active.get()) > AHEAD
    }

    /// Waits while as many connections are open as may be, for the sake of a connection that has come. As in nginx some
    /// of those that wait for a request are closed for it.
    pub async fn room(&self) {
        let mut reported = false;
        while self.is_full() {
            let limit = self.limit();
            let reused = self.reuse(limit);
            if reused == ReuseOutcome::Some {
                if self.may_tell() {
                    log::cycle(LogLevel::Warn, &format_args!("{limit}, reusing connections"));
                }
            } else if reused == ReuseOutcome::None
                && !std::mem::replace(&mut reported, true)
                && (!limit.by_descriptors || self.may_tell())
            {
                log::cycle(limit.level(), &limit);
            }
            // Some may have been idle for long enough by then.
            let soon = if reused == ReuseOutcome::Later { LATER_MS } else { u64::MAX };
            self.wait_closed(if limit.by_descriptors { REUSED_AFTER_MS / 4 } else { soon }).await;
        }
        // Another listener may wait, too, and there may be room for both.
        self.closed.notify();
    }

    /// Whether it was not logged for a while that there is no room.
    fn may_tell(&self) -> bool {
        let now = weir_rt::now_ms();
        let may = self.crowded.get().is_none_or(|reported| now >= reported + TELL_MS);
        if may {
            self.crowded.set(Some(now));
        }
        may
    }

    /// Closes some of the connections that wait for a request ([`WorkerPart::close_idle`]).
    fn reuse(&self, limit: ConnectionLimit) -> ReuseOutcome {
        let closed = self.parts.made().filter_map(|part| part.close_idle(&limit));
        match closed.reduce(|one, other| one + other) {
            None => ReuseOutcome::None,
            Some(0) => ReuseOutcome::Later,
            Some(_) => ReuseOutcome::Some,
        }
    }

    /// Waits until a connection was closed, for `ms` milliseconds at most.
    pub async fn wait_closed(&self, ms: u64) {
        let sleep = weir_rt::sleep(Duration::from_millis(ms.min(1000)));
        either(self.closed.notified(), sleep).await;
    }

    /// The cached texts of the current second.
    pub fn dates<R>(&self, f: impl FnOnce(&CachedTime) -> R) -> R {
        let (now, _) = weir_rt::unix_time();
        let mut dates = self.dates.borrow_mut();
        if dates.seconds() != now as i64 {
            dates.update(now as i64, self.local_offset(now));
        }
        f(&dates)
    }

    /// The text of a time of some file, which other requests ask for, too.
    pub(crate) fn http_date<R>(&self, seconds: i64, f: impl FnOnce(&[u8; 29]) -> R) -> R {
        f(self.modified.borrow_mut().http(seconds))
    }

    /// Minutes east of UTC; looked up once a minute, since time zones change on minutes.
    fn local_offset(&self, now: u64) -> i32 {
        let (at, offset) = self.offset.get();
        if at / 60 == now / 60 {
            return offset;
        }
        let offset = clock::local_offset(now) / 60;
        self.offset.set((now, offset));
        offset
    }

    /// The recorder, for the next thread of this number.
    pub fn leave(&self) -> Recorder {
        // What modules have to do at the end they do while the thread is still the worker's.
        self.parts.made().for_each(WorkerPart::left);
        drop(self.generation.replace(None));
        self.recorder.borrow_mut().settle();
        self.recorder.replace(Recorder::new(u16::MAX, RecorderSettings::default()))
    }
}

/// An open listener's entry with its worker.
pub struct ListenerEntry(Rc<Worker>);

impl Drop for ListenerEntry {
    fn drop(&mut self) {
        self.0.doors.set(self.0.doors.get() - 1);
        self.0.closed.notify();
    }
}

/// A background request's place in its worker's count.
pub struct BackgroundEntry(Rc<Worker>);

impl Drop for BackgroundEntry {
    fn drop(&mut self) {
        self.0.background.set(self.0.background.get() - 1);
        self.0.closed.notify();
    }
}

/// What came of looking for connections that can be closed for others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReuseOutcome {
    Some,
    /// Those that were idle have just been asked.
    Later,
    None,
}

/// After so long they may be idle again.
const LATER_MS: u64 = 10;

/// That connections are closed to make room is logged once in this many milliseconds, as in nginx.
const TELL_MS: u64 = 1000;
/// For how long a connection must have waited for a request to be closed for want of descriptors.
pub(crate) const REUSED_AFTER_MS: u64 = 1000;
/// With fewer connections to come until descriptors are short, each is accepted by itself: a burst may bring as many as
/// a listener's queue holds at once, and a turn's accepts more.
const AHEAD: u64 = 511 + 64;
/// A number for each connection of the process (`$connection`), given out in blocks so that workers share nothing.
fn connection_numbers() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(NUMBERS, Ordering::Relaxed)
}

/// How many connection numbers a worker takes at a time.
const NUMBERS: u64 = 1 << 16;
