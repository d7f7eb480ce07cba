//! What a worker does with a finished request.

use std::sync::Arc;

use crate::average::{AverageCollector, AverageTree, AverageWatch};
use crate::event::EventKind;
use crate::keep_reason::KeepReason;
use crate::keep_rules::{KeepRule, KeepRules};
use crate::kept_request::{KeptRequest, TraceWatch};
use crate::kept_requests::KeptRequests;
use crate::live_counts::{LiveCounts, RecorderReader};
use crate::model::{LoopStall, RequestId};
use crate::record::RequestRecord;
use crate::record_ring::RecordRing;
use crate::recorder_settings::{RecorderSettings, TraceLevel};
use crate::shape::{ChargeOutcome, ShapeTable};
use crate::site::{ConnectionStep, Site};
use crate::stalls::StallLog;
use crate::tape::EventTape;
use crate::trace::Trace;
use crate::tree::TraceTree;

/// One worker's sink: histograms, records, retained trees, watches. Owned by the worker's thread, which alone writes;
/// other threads look at the counts through [`Recorder::reader`] and get trees by asking the worker.
#[derive(Debug)]
pub struct Recorder {
    settings: RecorderSettings,
    worker: u16,
    shared: Arc<LiveCounts>,
    shapes: ShapeTable,
    records: RecordRing<RequestRecord>,
    kept: KeptRequests,
    watches: Vec<TraceWatch>,
    averages: Vec<AverageCollector>,
    rules: KeepRules,
    stalls: StallLog,
    until_sample: u32,
    random: u64,
    cpu: bool,
}

impl Recorder {
    /// The recorder of that worker.
    #[must_use]
    pub fn new(worker: u16, settings: RecorderSettings) -> Recorder {
        let mut recorder = Recorder {
            settings,
            worker,
            shared: Arc::new(LiveCounts::new(worker)),
            shapes: ShapeTable::new(),
            records: RecordRing::new(settings.records),
            kept: KeptRequests::new(&settings),
            watches: Vec::new(),
            averages: Vec::new(),
            rules: KeepRules::default(),
            stalls: StallLog::new(settings.stalls),
            until_sample: 0,
            random: settings.seed | 1,
            cpu: false,
        };
        recorder.draw();
        recorder
    }

    /// A handle for other threads; it works even while the worker is stuck.
    #[must_use]
    pub fn reader(&self) -> RecorderReader {
        RecorderReader::new(self.shared.clone(), self.stalls.clone())
    }

    /// Counts what was put off: frequent requests are counted many at a time, and until then readers do not see up to
    /// 64 of each kind. A caller that wants to know asks for this first, and the server does it once a second.
    pub fn settle(&mut self) {
        self.shapes.settle(&self.shared);
    }

    /// Takes other settings from the next request on, and other rules, which [`RequestRecord::rule`] numbers from 1.
    /// What was retained stays, as far as there is room for it.
    pub fn configure(&mut self, settings: RecorderSettings, rules: impl IntoIterator<Item = KeepRule>) {
        self.kept.configure(&settings);
        self.records.resize(settings.records);
        self.stalls.set_room(settings.stalls);
        self.settings = settings;
        self.rules = KeepRules::new(rules);
        self.draw();
    }

    /// How many trees are retained, and the bytes of memory that they take.
    #[must_use]
    pub fn held_requests(&self) -> (usize, usize) {
        self.kept.iter().fold((0, 0), |(count, bytes), kept| (count + 1, bytes + kept.held_bytes()))
    }

    /// How many records of the last requests there are, and the bytes that they take.
    #[must_use]
    pub fn held_records(&self) -> (usize, usize) {
        (self.records.len(), self.records.held_bytes())
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &RecorderSettings {
        &self.settings
    }

    /// Changes the level from the next request on.
    pub fn set_level(&mut self, level: TraceLevel) {
        self.settings.level = level;
    }

    /// Whether handshakes are timed by the CPU time of the worker's thread, too ([`ConnectionStep::TlsCpu`]). That takes two system
    /// calls each time one goes on, so not by itself.
    pub fn set_cpu(&mut self, on: bool) {
        self.cpu = on;
    }

    /// What [`set_cpu`](Recorder::set_cpu) has set; false at first.
    #[must_use]
    pub fn cpu(&self) -> bool {
        self.cpu
    }

    /// Changes the bound for slow requests, in ticks.
    pub fn set_slow(&mut self, ticks: u64) {
        self.settings.slow = ticks;
    }

    /// Starts the trace of a request, or leaves it off, as level, draw and watches have it.
    #[inline]
    pub fn begin(&mut self, trace: &mut Trace, now: u64) {
        self.begin_at(trace, || now);
    }

    /// [`begin`](Recorder::begin), reading the clock only if the request is recorded.
    #[inline]
    pub fn begin_at(&mut self, trace: &mut Trace, clock: impl FnOnce() -> u64) {
        let drawn = self.settings.level != TraceLevel::Off && self.is_drawn();
        if drawn || self.settings.level == TraceLevel::Full || self.is_watched() {
            trace.begin(clock());
            if drawn {
                trace.set_sampled();
            }
        } else {
            trace.clear();
        }
    }

    /// Takes a request that is over (after [`Trace::end`], if it was on): counts it, adds its times to the
    /// histograms, and keeps its tree if there is a reason to.
    pub fn finish(&mut self, trace: &mut Trace, record: RequestRecord) {
        self.finish_with(trace, &EventTape::new(), |slot| *slot = record);
    }

    /// [`finish`](Recorder::finish) of a trace with its tape, and with a record that `fill` writes, over an earlier one, in
    /// the place where it is stored: it is too large to be handed on by value for every request. The trace takes the tape
    /// only if its tree is looked at.
    #[inline]
    pub fn finish_with(
        &mut self,
        trace: &mut Trace,
        tape: &EventTape,
        fill: impl FnOnce(&mut RequestRecord),
    ) {
        let mut outside = None;
        let record = match self.records.next() {
            Some(slot) => slot,
            None => outside.insert(RequestRecord::default()),
        };
        fill(record);
        record.worker = self.worker;
        let recorded = trace.is_recorded() || !tape.is_empty();
        if recorded {
            record.start = trace.start();
            record.total = trace.total();
            record.run = trace.total_run();
            trace.tell_waits(&mut record.waits);
            [record.gc, record.jit] = trace.vm();
        }
        let counted = recorded && charge(&mut self.shapes, &self.shared, trace, tape, record);
        if !counted {
            count(&self.shared, record, recorded.then(|| trace.total_wait()));
        }
        if record.receive_wait > 0 {
            self.shared.received(record.receive_wait);
        }
        if !(self.watches.is_empty() && self.averages.is_empty()) {
            trace.take(tape);
        }
        let matched = !self.watches.is_empty() && deliver(&mut self.watches, trace, record);
        if !self.averages.is_empty() {
            average(&mut self.averages, trace, record);
        }
        let count = || {
            self.shapes.settle(&self.shared);
            &*self.shared
        };
        if recorded {
            let (why, slowest) = worth(&self.settings, &mut self.rules, count, trace, record, matched);
            if why.is_some() || slowest && self.kept.is_slowest(record) {
                trace.take(tape);
                self.kept.keep(why, record, trace);
            }
        }
    }

    /// Wants the trees of coming requests; see [`TraceWatch`].
    pub fn watch(&mut self, watch: TraceWatch) {
        if watch.left() > 0 {
            self.watches.push(watch);
        }
    }

    /// True while a watch is set.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.watches.is_empty() || self.averages.iter().any(AverageCollector::is_open)
    }

    /// Wants the average of coming requests; see [`AverageWatch`]. The caller takes what was collected.
    pub fn average(&mut self, watch: AverageWatch) {
        self.averages.push(AverageCollector::new(watch));
    }

    /// This worker's part of the average that `watch` wanted, complete or not; `None` if it was taken before.
    pub fn take_average(&mut self, watch: &AverageWatch) -> Option<AverageTree> {
        let at = self.averages.iter().position(|collector| collector.is_for(watch))?;
        Some(self.averages.swap_remove(at).finish())
    }

    /// Counts a connection that waited that many ticks to be accepted.
    pub fn accepted(&self, ticks: u64) {
        self.shared.accepted(ticks);
    }

    /// Counts a step of a connection that is no request's: it held the loop for `run` ticks, and waited for `wait`.
    pub fn connection_step(&self, step: ConnectionStep, run: u64, wait: u64) {
        self.shared.site(Site::step(step)).record_one(run, wait);
    }

    /// Counts bytes that waited that many ticks to be received.
    pub fn received(&self, ticks: u64) {
        self.shared.received(ticks);
    }

    /// Counts a TLS handshake of a client that was complete after that many ticks; `resumed`: an earlier session was.
    pub fn handshake(&self, resumed: bool, ticks: u64) {
        self.shared.shook_hands(resumed, ticks);
    }

    /// Adds what is known of a stall; see [`StallLog::add`].
    pub fn stall(&mut self, stall: LoopStall) {
        self.stalls.add(stall);
    }

    /// The last stalls, which other threads may add to.
    #[must_use]
    pub fn stalls(&self) -> &StallLog {
        &self.stalls
    }

    /// The retained trees in the order in which their requests ended.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = &KeptRequest> {
        let mut all: Vec<&KeptRequest> = self.kept.iter().collect();
        all.sort_by_key(|kept| kept.record().start + kept.record().total);
        all.into_iter()
    }

    /// The retained tree of that request; `None` if it is not there any more.
    #[must_use]
    pub fn find(&self, id: RequestId) -> Option<&KeptRequest> {
        self.kept.iter().find(|kept| kept.record().id == id)
    }

    /// The last requests, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &RequestRecord> {
        self.records.iter()
    }

    /// The record of the last request; `None` where no records are retained.
    #[must_use]
    pub fn newest(&self) -> Option<&RequestRecord> {
        self.records.newest()
    }

    #[inline]
    fn is_drawn(&mut self) -> bool {
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return false;
        }
        self.draw();
        self.settings.sample > 0
    }

    /// Draws the distance to the next sample, 1 to 2n - 1 alike: n on average, and no rhythm of the load is missed.
    fn draw(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let n = u64::from(self.settings.sample.clamp(1, u32::MAX / 2));
        self.until_sample = (1 + (self.random >> 11) % (2 * n - 1)) as u32;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Adds the times of a request to the histograms of its sites; whether it is counted with that.
#[inline]
fn charge(
    shapes: &mut ShapeTable,
    shared: &LiveCounts,
    trace: &mut Trace,
    tape: &EventTape,
    record: &RequestRecord,
) -> bool {
    if !trace.is_recorded() && shapes.put_off(tape.events(), record, trace.total_wait(), shared) {
        return true;
    }
    trace.take(tape);
    charge_alone(shapes, shared, trace, record)
}

/// Charges a request whose shape is rare, or that had to wait.
#[inline(never)]
fn charge_alone(shapes: &mut ShapeTable, shared: &LiveCounts, trace: &Trace, record: &RequestRecord) -> bool {
    let charged = if trace.is_folded() { ChargeOutcome::No } else { shapes.charge(trace, record, shared) };
    if charged == ChargeOutcome::No {
        charge_tree(shared, &trace.tree());
    }
    charged == ChargeOutcome::Whole
}

/// Charges a request by its tree: it was so long that its events were folded.
#[cold]
fn charge_tree(shared: &LiveCounts, tree: &TraceTree) {
    for (site, sum) in tree.by_site() {
        let live = shared.site(site);
        if sum.calls > 0 {
            live.record(sum.run, sum.wait, sum.calls);
        }
        live.remark(EventKind::BytesIn, sum.bytes_in);
        live.remark(EventKind::BytesOut, sum.bytes_out);
        live.remark(EventKind::Error, sum.errors);
        if sum.asleep + sum.no_core > 0 {
            live.remark(EventKind::Asleep, sum.asleep);
            live.remark(EventKind::NoCore, sum.no_core);
        }
    }
}

/// Counts a request in its status and its route.
fn count(shared: &LiveCounts, record: &RequestRecord, waited: Option<u64>) {
    shared.status.count(record.status, 1);
    if record.route.is_none() {
        return;
    }
    let live = shared.site(record.route);
    live.requests(record.status, 1);
    live.record_total(record.total);
    live.remark(EventKind::BytesIn, record.bytes_in);
    live.remark(EventKind::BytesOut, record.bytes_out);
    if let Some(wait) = waited {
        live.record_one(record.run, wait);
        live.kernel(record.kernel);
    }
}

/// Whether the tree of a request, which is recorded, is retained, and why; whether being the slowest would be reason
/// enough.
#[inline]
fn worth<'s>(
    settings: &RecorderSettings,
    rules: &mut KeepRules,
    counted: impl FnOnce() -> &'s LiveCounts,
    trace: &Trace,
    record: &RequestRecord,
    matched: bool,
) -> (Option<KeepReason>, bool) {
    let full = settings.level == TraceLevel::Full;
    let (slow, drawn, slowest) = match rules.judge(record, counted) {
        // Below the full level the draw decided whether the request is recorded at all.
        Some(judged) => (judged.slow, if full { judged.drawn } else { trace.is_sampled() }, judged.slowest),
        None => (record.total >= settings.slow, trace.is_sampled(), true),
    };
    let why = match () {
        () if trace.keep_reason().is_some() => trace.keep_reason(),
        () if matched => Some(KeepReason::Matched),
        () if full && record.status >= 500 => Some(KeepReason::Failed),
        () if full && slow => Some(KeepReason::Slow),
        () if drawn => Some(KeepReason::Sampled),
        () => None,
    };
    (why, slowest)
}

/// Adds the request to the averages that want it. Those that have all they want wait to be taken.
#[cold]
fn average(averages: &mut [AverageCollector], trace: &Trace, record: &RequestRecord) {
    if trace.is_recorded() {
        for collector in averages.iter_mut().filter(|collector| collector.is_open()) {
            collector.add(trace, record);
        }
    }
}

/// Gives the tree to the watches that want it. A request that began before a watch came has no tree; it stays
/// unmatched, and the next one has.
#[cold]
fn deliver(watches: &mut Vec<TraceWatch>, trace: &Trace, record: &RequestRecord) -> bool {
    let mut matched = false;
    if trace.is_recorded() {
        for watch in watches.iter().filter(|watch| watch.takes(record)) {
            watch.give(KeptRequest::new(KeepReason::Matched, record, trace));
            matched = true;
        }
    }
    watches.retain(|watch| watch.left() > 0);
    matched
}
