//! One request's presence on its worker: its number, its place among those in flight, and the stretch of the loop that
//! it has to itself.

mod id;
mod of_worker;
mod off_core;
mod watchers;

use std::cell::Cell;
use std::rc::Rc;

use weir_http::TraceParent;
use weir_rt::sampler::{self, SitePlace};
use weir_trace::{ConnectionStep, FlightTicket, KeepReason, LoopRun, RequestId, Site, Trace, WaitKind};

use off_core::OffCoreSums;

pub(crate) use id::digits;
pub(crate) use of_worker::WorkerPresences;
pub(crate) use watchers::stamp;

/// What is known of a request in flight besides its trace; shared with its subrequests.
#[derive(Debug)]
pub(crate) struct RequestPresence {
    present: Rc<WorkerPresences>,
    ticket: Cell<FlightTicket>,
    id: Cell<RequestId>,
    /// Our own number in the trace, of `$traceparent`; 0 until asked for.
    span: Cell<u64>,
    /// `traceparent` said so.
    sampled: Cell<bool>,
    route: Cell<Site>,
    /// What was open when it stopped: nothing opens or closes while it waits.
    inside: Cell<Site>,
    /// When the stretch began.
    since: Cell<u64>,
    /// It was ready when the loop woke.
    queued: Cell<bool>,
    /// How long its bytes waited in the kernel, where that was asked.
    receive_wait: Cell<u64>,
    /// Its part in a stall.
    part: Cell<Option<KeepReason>>,
    /// What its thread did not run of the time it ran.
    off: OffCoreSums,
}

impl RequestPresence {
    pub(crate) fn new(present: &Rc<WorkerPresences>) -> RequestPresence {
        RequestPresence {
            present: present.clone(),
            ticket: Cell::default(),
            id: Cell::default(),
            span: Cell::new(0),
            sampled: Cell::new(false),
            route: Cell::new(BEFORE),
            inside: Cell::new(Site::NONE),
            since: Cell::new(0),
            queued: Cell::new(false),
            receive_wait: Cell::new(0),
            part: Cell::new(None),
            off: OffCoreSums::default(),
        }
    }

    /// A request begins to run at `now`, 0 if its boundaries are not recorded; `queued` says whether it was ready when
    /// the loop woke.
    #[inline]
    pub(crate) fn begin(&self, now: u64, queued: bool) {
        self.id.set(RequestId::default());
        self.route.set(BEFORE);
        match now {
            0 => weir_rt::request_rests(),
            _ => weir_rt::request_runs(now),
        }
        self.since.set(now);
        self.queued.set(queued);
        self.receive_wait.set(0);
        self.part.set(None);
        self.off.begin();
    }

    /// Its bytes waited for `ticks` in the kernel, while a turn of the loop took too long.
    #[cold]
    pub(crate) fn late(&self, ticks: u64) {
        self.receive_wait.set(ticks);
        if ticks > 0 {
            self.takes_part(self.present.victim(ticks, self.id.get()));
        }
    }

    /// Why it is worth retaining that the loop was blocked, if it has a part in that.
    #[inline]
    pub(crate) fn part_in_stall(&self) -> Option<KeepReason> {
        self.part.get()
    }

    /// A request that blocked the loop and had to wait before is retained as the former.
    #[inline]
    fn takes_part(&self, part: Option<KeepReason>) {
        if part.is_some() && self.part.get() != Some(KeepReason::Blocker) {
            self.part.set(part);
        }
    }

    /// See [`late`](RequestPresence::late).
    pub(crate) fn receive_wait(&self) -> u64 {
        self.receive_wait.get()
    }

    /// What its `traceparent` field said, if it has a valid one.
    #[inline]
    pub(crate) fn set_parent(&self, parent: Option<TraceParent>) {
        let id = parent.map_or_else(|| self.present.ids.next(), |parent| RequestId(parent.trace));
        self.id.set(id);
        self.span.set(0);
        self.sampled.set(parent.is_some_and(|parent| parent.sampled));
    }

    /// The head was read.
    #[inline]
    pub(crate) fn enter(&self, method: &[u8], path: &[u8]) {
        let id = self.id.get();
        sampler::current().set_request(id.0);
        let start = match self.since.get() {
            0 => weir_rt::turn_stamp(),
            since => since,
        };
        self.ticket.set(self.present.now.enter(id, start, method, path));
    }

    /// The request will be over before a look at those in flight could tell it from none.
    #[inline]
    pub(crate) fn pass(&self) {
        self.set_parent(None);
        sampler::current().set_request(self.id.get().0);
    }

    /// The location is known.
    #[inline]
    pub(crate) fn routed(&self, route: Site) {
        self.route.set(route);
        self.present.now.routed(self.ticket.get(), route);
    }

    /// The request is at `site` from here on, for samples: none between handlers and filters.
    #[inline]
    pub(crate) fn at(&self, site: Site) {
        sampler::current().set(SitePlace { site: site.0, route: self.route.get().0 });
    }

    /// It stops for `wait`, inside what `trace` has open.
    pub(crate) fn suspended(&self, wait: WaitKind, trace: &mut Trace, now: u64) {
        weir_rt::request_rests();
        self.ran(now, || &mut *trace);
        self.inside.set(trace.innermost());
        let ticket = self.ticket.get();
        if !ticket.is_none() {
            self.present.now.suspended(ticket, self.route.get(), self.inside.get(), wait, now);
        }
    }

    /// It goes on.
    pub(crate) fn resumed(&self, now: u64) {
        self.since.set(now);
        self.queued.set(true);
        self.off.resumed();
        let current = sampler::current();
        weir_rt::request_runs(now);
        current.set_request(self.id.get().0);
        current.set(SitePlace { site: self.inside.get().0, route: self.route.get().0 });
        self.present.now.resumed(self.ticket.get(), self.route.get(), now);
    }

    /// It is over; `now` is `None` when its boundaries were not recorded. `trace` is asked for seldom.
    #[inline]
    pub(crate) fn end<'t>(&self, now: Option<u64>, trace: impl FnOnce() -> &'t mut Trace) {
        weir_rt::request_rests();
        if let Some(now) = now {
            self.ran(now, trace);
        }
        self.leave();
    }

    /// It is not in flight any more, also when it was dropped while it waited.
    #[inline]
    pub(crate) fn leave(&self) {
        self.present.now.left(self.ticket.replace(FlightTicket::NONE));
    }

    /// The request is one that `parent` made: it has its number, and is not in flight by itself.
    pub(crate) fn follow(&self, parent: &RequestPresence) {
        self.leave();
        self.id.set(parent.id());
        self.span.set(parent.span());
        self.sampled.set(parent.sampled.get());
        self.route.set(parent.route.get());
    }

    /// Its location, as far as it is known.
    pub(crate) fn route(&self) -> Site {
        self.route.get()
    }

    /// The request's number.
    pub(crate) fn id(&self) -> RequestId {
        if self.id.get() == RequestId::default() {
            self.id.set(self.present.ids.next());
        }
        self.id.get()
    }

    /// Our own number in the request's trace.
    pub(crate) fn span(&self) -> u64 {
        if self.span.get() == 0 {
            self.span.set(self.present.ids.next().0 as u64);
        }
        self.span.get()
    }

    /// Whether the client that called us records the trace.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled.get()
    }

    #[inline]
    fn ran<'t>(&self, end: u64, trace: impl FnOnce() -> &'t mut Trace) {
        let (start, queued) = (self.since.get(), self.queued.get());
        let run = LoopRun { turn: weir_rt::turn_stamp(), start, end, route: self.route.get(), queued };
        self.takes_part(self.present.ran(run, self.id.get(), &self.off, trace));
    }

    /// What the thread did not run of the time that the request, which runs at `now`, has run so far, in ticks: of stretches
    /// of a millisecond and more. Two system calls where the stretch is so long already.
    pub(crate) fn off_core(&self, now: u64, trace: &mut Trace) -> u64 {
        if self.since.get() != 0 {
            self.present.look_off_core(self.since.get(), now, &self.off, trace);
        }
        self.off.all().sum()
    }
}

impl Drop for RequestPresence {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Where a request is before its location is known.
const BEFORE: Site = Site::step(ConnectionStep::HeadRead);
