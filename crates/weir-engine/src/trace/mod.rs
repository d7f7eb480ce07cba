//! What the engine reports of itself while it runs: which requests are in flight, which of them made others wait, which
//! turns of the loop were too long; the numbers of requests. The directives and variables of all that are in
//! `conf::profile`, what is known of each request in flight in `presence`.
//!
//! The hooks are few: a request's beginning (`conn::h1`), its head (`read::start`), its location
//! (`plan::location::find`), each stop and go ([`SharedPart`](crate::exchange::SharedPart)) and its end (`engine::record`).

pub(crate) mod probes;
mod queues;

pub use crate::conf::profile::{AdminHost, AdminLine, HostAddress, Profile, ProfileConf, TraceSettings};
pub use queues::{ConnectionQueues, QueueDepth};

use std::rc::Rc;
use std::time::Duration;

use weir_http::{KnownField, TraceParent};
use weir_rt::net;
use weir_trace::{PhaseMap, RecorderSettings, RequestId, Site, SiteTable};

use crate::conf::Configuration;
use crate::exchange::Exchange;
use crate::worker::Worker;

/// Begins the trace of a request that has been ready since the stamp `ready`; `None`: since now.
#[inline]
pub fn begin(x: &Exchange, ready: Option<u64>) {
    let mut recorder = x.worker.recorder.borrow_mut();
    x.shared.start(|trace, tape| {
        recorder.begin_at(trace, || ready.unwrap_or_else(weir_rt::clock::ticks));
        let mut now = trace.start();
        tape.rewind(now);
        if ready.is_some() && trace.is_on() {
            now = weir_rt::clock::ticks();
            trace.queued(tape, Site::step(weir_trace::ConnectionStep::HeadRead), now);
        }
        x.shared.presence.begin(now, ready.is_some());
        x.recorded.set(trace.is_on());
        trace.is_on()
    });
}

/// The head of `x` was read: from here on the request is in flight, and has a number.
pub(crate) fn enter(x: &Exchange) {
    let parent = match x.request.span(KnownField::Traceparent) {
        Some(parent) => TraceParent::parse(x.arena.get(parent)),
        None => None,
    };
    enter_as(x, parent, x.arena.get(x.request.head.method_span), x.uri());
}

/// [`enter`] of a request with this parent, method and path.
#[inline]
pub(crate) fn enter_as(x: &Exchange, parent: Option<TraceParent>, method: &[u8], path: &[u8]) {
    let presence = &x.shared.presence;
    presence.set_parent(parent);
    presence.enter(method, path);
    if weir_sys::probe::traces_begin() {
        probes::began(x.id(), path);
    }
    if !x.pipelined && x.worker.present.is_late() {
        let waited = received_before(x);
        presence.late(waited);
        if waited == 0 && x.worker.present.watchers.ask_requests() {
            // The record says of those that waited only.
            x.worker.recorder.borrow().received(0);
        }
    }
}

/// A request ended: within [`SETTLE`] it will be counted where others see it, also if there is no query and this worker
/// gets stuck.
#[cold]
pub(crate) fn settle_later(worker: &Rc<Worker>) {
    worker.present.is_settling.set(true);
    let worker = Rc::downgrade(worker);
    weir_rt::spawn(async move {
        weir_rt::sleep(SETTLE).await;
        if let Some(worker) = worker.upgrade() {
            worker.present.is_settling.set(false);
            worker.recorder.borrow_mut().settle();
        }
    });
}

/// How long ago the last bytes of `x` came to the kernel, in ticks: in the turn after one that was too long, or where
/// the queues are watched, the time they waited there. To the millisecond, or the kernel's tick.
#[cold]
fn received_before(x: &Exchange) -> u64 {
    let Ok(info) = net::tcp_info(x.connection.fd) else { return 0 };
    ticks(info.last_data_recv_ms)
}

/// How long the just accepted connection `fd` waited in the listener's accept queue, in ticks; to the millisecond. 0
/// also where it was not asked (only some connections are, since asking is a system call) or the kernel does not say.
#[inline]
pub fn accepted(worker: &Worker, fd: i32) -> u64 {
    if !worker.present.asks_accept() {
        return 0;
    }
    worker.present.watchers.accepted(fd);
    let Ok(info) = net::tcp_info(fd) else { return 0 };
    let waited = ticks(info.last_ack_recv_ms);
    worker.recorder.borrow().accepted(waited);
    waited
}

fn ticks(ms: u32) -> u64 {
    weir_rt::clock::scale().ns_to_ticks(u64::from(ms) * 1_000_000)
}

/// A worker has taken this configuration: its recorder goes by it from the next request on.
pub fn configure(worker: &Worker, configuration: &Configuration) {
    worker.configure_trace(configuration);
}

impl Worker {
    /// Its recorder goes by this configuration from the next request on.
    pub(crate) fn configure_trace(&self, configuration: &Configuration) {
        let (trace, present) = (configuration.trace(), &self.present);
        let scale = weir_rt::clock::scale();
        let blocked = trace.blocked().map_or(u64::MAX, |limit| scale.ns_to_ticks(limit.as_nanos() as u64));
        present.set_blocked(blocked, scale.ns_to_ticks(LONG_NS));
        *present.phases.borrow_mut() = PhaseMap::new(SiteTable::global());
        let workers = configuration.main.workers().max(1);
        let settings = RecorderSettings {
            level: trace.level.unwrap_or(present.base.level),
            sample: trace.sample.unwrap_or(present.base.sample),
            kept: trace.keep().div_ceil(workers),
            ..present.base
        };
        self.recorder.borrow_mut().configure(settings, present.rules());
    }
}

/// What a request has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpentTime {
    /// Microseconds since it began.
    pub duration_us: u64,
    /// Nanoseconds of them that it ran.
    pub run_ns: u64,
    /// Nanoseconds of processors: see `$trace_cpu`.
    pub cpu_ns: u64,
}

impl Exchange {
    /// The location was found.
    #[inline(always)]
    pub(crate) fn routed(&self) {
        self.shared.presence.routed(self.plan.route);
        if !self.plan.profile && self.shared.is_on() {
            self.shared.forget();
            self.recorded.set(false);
        }
    }

    /// The request's number: that of its `traceparent` if it came with one, else a new one (`$request_id`).
    pub fn id(&self) -> RequestId {
        self.shared.presence.id()
    }

    /// Our own number in the request's trace, the same for its subrequests (parent-id of W3C Trace Context); never 0.
    pub fn span(&self) -> u64 {
        self.shared.presence.span()
    }

    /// A new number, in the form of a request's, that no request has.
    pub fn other_id(&self) -> RequestId {
        self.worker.present.ids.next()
    }

    /// Keeps this request's tree whatever becomes of it: an authorized client has asked. Says whether there is one,
    /// which is not so where boundaries are not recorded.
    pub fn keep_trace(&self) -> bool {
        self.shared.with_trace(weir_trace::Trace::keep);
        self.shared.is_on()
    }

    /// How long the request has run so far in the sites that are wanted, in nanoseconds; `None` where boundaries are not
    /// recorded. Makes the request's tree, so it is only made on request.
    pub fn ran_in(&self, wanted: impl Fn(&weir_trace::SiteInfo) -> bool) -> Option<u64> {
        if !self.shared.is_on() {
            return None;
        }
        let tree = self.shared.with_trace(|trace| trace.tree());
        let table = SiteTable::global();
        let nodes = tree.nodes().iter().filter(|node| wanted(&table.info(node.site)));
        Some(weir_rt::clock::scale().ticks_to_ns(nodes.map(|node| node.self_run).sum()))
    }

    /// The time of processors that the request has taken so far, in ticks; `None` where its boundaries are not recorded. That is
    /// its run without what its thread was off the core for (known of stretches of a millisecond and more) and what the
    /// kernel did besides to receive, send and accept for it, with what it will do to send what is there (estimated).
    #[must_use]
    pub(crate) fn cpu(&self) -> Option<u64> {
        let due = self.transport.due_kernel();
        self.shared.is_on().then(|| self.shared.ran_on_core(weir_rt::clock::ticks()) + due)
    }

    /// What the request has taken so far; of a request whose boundaries are not recorded whole milliseconds, and nothing of what
    /// it ran.
    pub fn spent(&self) -> SpentTime {
        if !self.shared.is_on() {
            let duration_us = weir_rt::now_ms().saturating_sub(self.start_ms) * 1_000;
            return SpentTime { duration_us, run_ns: 0, cpu_ns: 0 };
        }
        let now = weir_rt::clock::ticks();
        let (taken, waited) =
            self.shared.with_trace(|trace| (now.saturating_sub(trace.start()), trace.total_wait()));
        let scale = weir_rt::clock::scale();
        SpentTime {
            duration_us: scale.ticks_to_ns(taken) / 1_000,
            run_ns: scale.ticks_to_ns(taken.saturating_sub(waited)),
            cpu_ns: scale.ticks_to_ns(self.cpu().unwrap_or(0)),
        }
    }

    /// The value for a `traceparent` field to the server that is asked on behalf of this request (`$traceparent`): W3C
    /// Trace Context, version 00.
    pub fn traceparent(&self) -> String {
        let presence = &self.shared.presence;
        let sampled = self.shared.with_trace(|trace| trace.is_sampled() || trace.is_asked());
        let parent = TraceParent {
            trace: presence.id().0,
            span: presence.span(),
            sampled: presence.is_sampled() || sampled,
        };
        parent.to_string()
    }
}

/// What a request runs without a pause for longer than this, in nanoseconds, is asked how much of it was on a processor.
const LONG_NS: u64 = 1_000_000;
/// Requests are counted where others see them after this at the latest.
const SETTLE: Duration = Duration::from_secs(1);
