//! What other tasks touch while a handler waits: the trace, and whether the client is still there.

mod boundary;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::clock;
use weir_trace::{EventKind, EventTape, Site, TapePattern, Trace, TraceEvent, WaitKind};

use crate::phase::LocalFuture;
use crate::presence::RequestPresence;
use crate::transport::wire::ClientWire;
use crate::worker::Worker;

/// The part of an exchange that is reached while its handler holds the exchange itself. No borrow of the trace
/// lives across an await.
pub struct SharedPart {
    /// The request among those in flight.
    pub(crate) presence: RequestPresence,
    /// What the trace does not have yet: boundaries are written here.
    tape: EventTape,
    /// Reached through [`SharedPart::with_trace`].
    trace: RefCell<Trace>,
    /// Level `off`: no boundary reads the clock.
    on: Cell<bool>,
    /// How many subrequests are running, each inside the one before.
    pub(crate) subrequests: Cell<u8>,
    /// A subrequest that runs beside others: its trace becomes part of its parent's, and the loop's time is the parent's.
    branch: Cell<bool>,
    /// Where the response goes, for [`SharedPart::pending`].
    wire: RefCell<Option<Rc<ClientWire>>>,
}

impl SharedPart {
    /// For requests of that worker.
    pub(crate) fn new(worker: &Worker) -> SharedPart {
        SharedPart {
            presence: RequestPresence::new(&worker.present),
            tape: EventTape::new(),
            trace: RefCell::default(),
            on: Cell::new(false),
            subrequests: Cell::new(0),
            branch: Cell::new(false),
            wire: RefCell::default(),
        }
    }

    /// Starts a request's trace, with its tape; `begin` says whether boundaries are recorded.
    #[inline]
    pub(crate) fn start(&self, begin: impl FnOnce(&mut Trace, &EventTape) -> bool) {
        self.tape.rewind(0);
        self.on.set(begin(&mut self.trace.borrow_mut(), &self.tape));
    }

    /// The request is over: what its connection waits for later is charged to no request.
    #[inline]
    pub(crate) fn finish(&self, finish: impl FnOnce(&mut Trace, &EventTape)) {
        finish(&mut self.trace.borrow_mut(), &self.tape);
        self.on.set(false);
    }

    /// How long the request has run so far, in ticks, without what its thread was not on a processor for meanwhile, as far as that
    /// is known: stretches of a millisecond and more are asked. Of a request that waits, or that is a branch of another one, it
    /// is what is known already.
    pub(crate) fn ran_on_core(&self, now: u64) -> u64 {
        self.with_trace(|trace| {
            if trace.is_suspended() || self.branch.get() {
                return trace.total_run();
            }
            let ran = now.saturating_sub(trace.start()).saturating_sub(trace.total_wait());
            ran.saturating_sub(self.presence.off_core(now, trace))
        })
    }

    /// What is on the tape from the last mark of `first` on, see [`EventTape::pattern`].
    pub(crate) fn pattern(&self, first: Site, second: Site) -> Option<TapePattern> {
        self.tape.pattern(first, second)
    }

    /// What was recorded so far.
    pub(crate) fn events<T>(&self, look: impl FnOnce(&[TraceEvent]) -> T) -> T {
        self.with_trace(|trace| look(trace.events()))
    }

    /// Nothing is recorded of this request (`profile off`).
    pub(crate) fn forget(&self) {
        self.tape.rewind(0);
        self.trace.borrow_mut().clear();
        self.on.set(false);
    }

    /// From here on responses go to `wire`.
    pub(crate) fn attach(&self, wire: &Rc<ClientWire>) {
        *self.wire.borrow_mut() = Some(wire.clone());
    }

    /// The connection is not the request's any more.
    #[inline]
    pub fn detach(&self) {
        if self.wire.borrow().is_some() {
            *self.wire.borrow_mut() = None;
        }
    }

    /// Whether boundaries are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Charges the time since the last stamp to `site`.
    #[inline(always)]
    pub fn mark(&self, site: Site) {
        if self.on.get() {
            self.mark_on(site);
        }
    }

    /// Opens `site` now: the request's time belongs to it until [`SharedPart::leave`]. Does nothing where boundaries
    /// are not recorded.
    #[inline(always)]
    pub fn enter(&self, site: Site) {
        if self.on.get() {
            self.enter_on(site);
        }
    }

    /// Closes `site`, which [`SharedPart::enter`] opened. Does nothing where boundaries are not recorded.
    #[inline(always)]
    pub fn leave(&self, site: Site) {
        if self.on.get() {
            self.leave_on(site);
        }
    }

    /// Opens `site` as of the stamp before.
    #[inline(always)]
    pub fn open(&self, site: Site) {
        if self.on.get() {
            self.open_on(site);
        }
    }

    /// Closes what [`SharedPart::open`] opened.
    #[inline(always)]
    pub fn close(&self, site: Site) {
        if self.on.get() {
            self.close_on(site);
        }
    }

    /// Notes bytes that went into and came out of `site`.
    #[inline(always)]
    pub fn bytes(&self, site: Site, input: u64, output: u64) {
        if self.on.get() {
            self.bytes_on(site, input, output);
        }
    }

    /// Notes that `site` failed, with a status or an errno.
    #[cold]
    pub fn failed(&self, site: Site, code: u64) {
        self.with_trace(|trace| trace.note(EventKind::Error, site, code));
    }

    /// Awaits `future`, charging the time between its polls as waiting to the innermost open site.
    pub async fn waiting<T>(self: &Rc<Self>, future: LocalFuture<'_, T>) -> T {
        self.waiting_for(WaitKind::Other, future).await
    }

    /// [`waiting`](SharedPart::waiting), saying what for. Of waits inside one another the innermost counts.
    pub async fn waiting_for<T>(self: &Rc<Self>, kind: WaitKind, future: LocalFuture<'_, T>) -> T {
        self.waiting_until(kind, polls(future)).await
    }

    /// As [`waiting_for`](SharedPart::waiting_for), until `poll` is ready.
    pub async fn waiting_until<T>(&self, kind: WaitKind, poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        self.accounted(kind, poll, || ()).await
    }

    /// [`waiting`](SharedPart::waiting) for a handler or filter: what was composed before leaves first, so that no
    /// response that is complete waits for the next request's handler, or for its own log phase.
    pub(crate) async fn pending<T>(self: &Rc<Self>, future: LocalFuture<'_, T>) -> T {
        self.pending_until(polls(future)).await
    }

    /// As [`pending`](SharedPart::pending), until `poll` is ready.
    pub(crate) async fn pending_until<T>(&self, poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let flush = || {
            if let Some(wire) = &*self.wire.borrow() {
                wire.flush_before_wait();
            }
        };
        self.accounted(WaitKind::Other, poll, flush).await
    }

    async fn accounted<T>(
        &self,
        kind: WaitKind,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
        before: impl Fn(),
    ) -> T {
        let mut waits = false;
        poll_fn(|cx| {
            if waits {
                self.resume();
            }
            let polled = poll(cx);
            if polled.is_pending() {
                if !std::mem::replace(&mut waits, true) {
                    before();
                }
                self.suspend(kind);
            }
            polled
        })
        .await
    }

    /// Polls once, charging the time since the poll before, if that has set `waits`, as waiting.
    #[inline]
    pub(crate) fn poll_accounted<T>(&self, waits: &mut bool, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        if *waits {
            self.resume();
        }
        let polled = poll();
        if polled.is_pending() {
            *waits = true;
            self.suspend(WaitKind::Other);
        }
        polled
    }

    /// From here on the request waits, for what `kind` says: its time counts as waiting.
    pub fn suspend(&self, kind: WaitKind) {
        // A wait inside another one's has said so already.
        if self.on.get() && !self.trace.borrow().is_suspended() {
            self.with_trace(|trace| {
                if !trace.is_suspended() {
                    let now = clock::ticks();
                    trace.suspend(now);
                    trace.wait_kind(kind);
                    if !self.branch.get() {
                        self.presence.suspended(kind, trace, now);
                    }
                }
            });
        }
    }

    /// From here on time is running; since the end of the loop's wait the request was ready, and in a queue.
    fn resume(&self) {
        if self.on.get() && self.trace.borrow().is_suspended() {
            self.with_trace(|trace| {
                if trace.is_suspended() {
                    let now = clock::ticks();
                    trace.resume_ready(weir_rt::turn_stamp(), now);
                    if !self.branch.get() {
                        self.presence.resumed(now);
                    }
                }
            });
        }
    }

    /// Makes this the shared part of a subrequest of `parent` that runs beside others.
    pub(crate) fn become_branch(&self, parent: &SharedPart) {
        self.presence.follow(&parent.presence);
        self.subrequests.set(parent.subrequests.get() + 1);
        self.branch.set(true);
        self.forget();
        if parent.is_on() {
            self.start(|trace, tape| {
                trace.begin(clock::ticks());
                trace.suspend(clock::ticks());
                tape.rewind(trace.last());
                true
            });
        }
    }

    /// Lets a subrequest run, `poll`, whose trace is `own`: what it did is in this one.
    pub(crate) fn branch<T>(&self, own: &SharedPart, open: &mut Vec<Site>, poll: impl FnOnce() -> T) -> T {
        if !self.on.get() || !own.on.get() {
            return poll();
        }
        let suspended = self.with_trace(|trace| trace.is_suspended());
        self.resume();
        self.open(Site::SUBREQUEST);
        own.resume();
        let value = poll();
        own.suspend(WaitKind::Other);
        self.with_trace(|trace| own.with_trace(|own| trace.graft(own, open)));
        self.close(Site::SUBREQUEST);
        if suspended {
            self.suspend(WaitKind::Other);
        }
        value
    }

    /// The subrequest is over: the next user of this part is another request.
    pub(crate) fn end_branch(&self) {
        if self.branch.replace(false) {
            self.subrequests.set(0);
            self.forget();
        }
    }

    /// Reads or changes the trace, which takes its tape before.
    pub fn with_trace<R>(&self, f: impl FnOnce(&mut Trace) -> R) -> R {
        let mut trace = self.trace.borrow_mut();
        trace.take(&self.tape);
        let result = f(&mut trace);
        self.tape.rewind(trace.last());
        result
    }
}

/// A future as what polls it.
fn polls<T>(mut future: LocalFuture<'_, T>) -> impl FnMut(&mut Context<'_>) -> Poll<T> {
    move |cx| future.as_mut().poll(cx)
}
