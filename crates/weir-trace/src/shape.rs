//! The time of one request summed by site: what the histograms count.
//!
//! Walking a request's events with a stack costs more than recording them did. But requests come in few shapes: the
//! same sites in the same order, only with other times. So the walk is done once a shape and leaves a list: which
//! intervals belong to which site. A request of a known shape then needs one pass that checks the shape and adds up
//! the times before each event, and one subtraction a site.
//!
//! The rules are those of [`TraceTree`](crate::TraceTree): times are inclusive, and a site inside itself counts once.
//!
//! Requests of a shape that is frequent are counted many at a time ([`ShapeBatch`]).

use std::sync::Arc;

use crate::batch::{CountTarget, EventWord, ShapeBatch};
use crate::event::{EventKind, TraceEvent};
use crate::live_counts::{LiveCounts, LiveSite};
use crate::record::RequestRecord;
use crate::site::Site;
use crate::trace::Trace;
use crate::tree::MAX_DEPTH;

/// The shapes seen, each in the one place its hint leads to; a newer one takes it over.
#[derive(Debug)]
pub(crate) struct ShapeTable {
    places: Vec<RequestShape>,
    /// Run before each event of the request at hand, and the whole run at the end.
    run: Vec<u64>,
}

impl ShapeTable {
    pub(crate) fn new() -> ShapeTable {
        let places = (0..PLACES).map(|_| RequestShape::default()).collect();
        ShapeTable { places, run: Vec::new() }
    }

    /// Puts off a request with these events if its shape is a frequent one; whether that was so.
    #[inline]
    pub(crate) fn put_off(
        &mut self,
        events: &[impl EventWord],
        record: &RequestRecord,
        wait: u64,
        shared: &LiveCounts,
    ) -> bool {
        let hint = hint(record);
        let shape = &mut self.places[place(hint, events.len())];
        shape.hint == hint && shape.batch.add(&shape.keys, events, record, wait, shared)
    }

    /// Adds one request to the counts of its sites, sooner or later. Says no, and adds nothing, if an event does not
    /// hold its value alone (a wait of minutes): then the tree must be asked.
    pub(crate) fn charge(
        &mut self,
        trace: &Trace,
        record: &RequestRecord,
        shared: &LiveCounts,
    ) -> ChargeOutcome {
        let events = trace.events();
        if self.put_off(events, record, trace.total_wait(), shared) {
            return ChargeOutcome::Whole;
        }
        let hint = hint(record);
        let shape = &mut self.places[place(hint, events.len())];
        shape.charge_alone(hint, trace, record, shared, &mut self.run)
    }

    /// Counts all that was put off.
    pub(crate) fn settle(&mut self, shared: &LiveCounts) {
        self.places
            .iter_mut()
            .filter(|shape| shape.batch.is_pending())
            .for_each(|shape| shape.batch.fold(shared));
    }
}

/// Route and status.
#[inline]
fn hint(record: &RequestRecord) -> u64 {
    u64::from(record.route.0) << 16 | u64::from(record.status)
}

/// The place of requests with that hint and this many events.
#[inline]
fn place(hint: u64, events: usize) -> usize {
    let hash = (hint << 16 ^ events as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> 56) as usize % PLACES
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChargeOutcome {
    /// It is counted, or will be: its sites, its route and its status.
    Whole,
    /// Its sites are counted.
    Sites,
    /// Nothing is.
    No,
}

/// What all requests of one shape have in common.
#[derive(Debug, Default)]
struct RequestShape {
    /// See [`hint`].
    hint: u64,
    /// What the events must be: their kinds and sites.
    keys: Vec<u64>,
    /// Which bits of each event are run.
    masks: Vec<u64>,
    /// The requests that are not counted yet.
    batch: ShapeBatch,
    /// The sites called once.
    shares: Vec<SingleShare>,
    several: Vec<RepeatedShare>,
    /// The ranges of `several`, one site's after the other's.
    ranges: Vec<EventRange>,
    remarks: Vec<(u16, EventKind, Arc<LiveSite>)>,
    /// The events that end a wait: none or one, mostly.
    waits: Vec<u16>,
}

/// The time between the stamps before one event and before another.
type EventRange = (u16, u16);

/// A site called once.
#[derive(Debug)]
struct SingleShare {
    live: Arc<LiveSite>,
    range: EventRange,
    /// Something was waited for in there.
    waits: bool,
}

/// A site called several times, or inside itself.
#[derive(Debug)]
struct RepeatedShare {
    live: Arc<LiveSite>,
    calls: u64,
    /// Where its ranges end.
    end: usize,
}

impl RequestShape {
    /// Charges a request that can't be put off, and learns its shape if it has another one.
    #[inline(never)]
    fn charge_alone(
        &mut self,
        hint: u64,
        trace: &Trace,
        record: &RequestRecord,
        shared: &LiveCounts,
        run: &mut Vec<u64>,
    ) -> ChargeOutcome {
        let events = trace.events();
        if self.hint != hint || !self.fits(events) {
            if events.iter().any(|event| event.kind() == EventKind::High) {
                return ChargeOutcome::No;
            }
            self.batch.fold(shared);
            self.compile(hint, events, record, shared);
        }
        self.batch.missed();
        self.measure(events, run);
        self.charge(events, run);
        ChargeOutcome::Sites
    }

    /// Whether the events are of this shape.
    fn fits(&self, events: &[TraceEvent]) -> bool {
        let alike = |(event, key): (&TraceEvent, &u64)| event.0 ^ key <= TraceEvent::MAX;
        self.keys.len() == events.len() && events.iter().zip(&self.keys).all(alike)
    }

    /// Fills `run` with the sums of run before each event.
    fn measure(&self, events: &[TraceEvent], run: &mut Vec<u64>) {
        if run.len() <= events.len() {
            run.resize(events.len() + 1, 0);
        }
        let mut clock = 0u64;
        for ((event, mask), sum) in events.iter().zip(&self.masks).zip(&mut run[1..]) {
            clock = clock.wrapping_add(event.0 & mask);
            *sum = clock;
        }
    }

    fn charge(&self, events: &[TraceEvent], run: &[u64]) {
        for share in &self.shares {
            let wait = if share.waits { self.wait(events, share.range) } else { 0 };
            share.live.record_one(between(run, share.range), wait);
        }
        let mut from = 0;
        for several in &self.several {
            let ranges = &self.ranges[from..several.end];
            from = several.end;
            let run = ranges.iter().map(|&range| between(run, range)).sum();
            let wait = ranges.iter().map(|&range| self.wait(events, range)).sum();
            several.live.record(run, wait, several.calls);
        }
        self.remark(events);
    }

    #[inline]
    fn remark(&self, events: &[TraceEvent]) {
        for (index, kind, live) in &self.remarks {
            let value = events[usize::from(*index)].value();
            live.remark(*kind, if *kind == EventKind::Error { 1 } else { value });
        }
    }

    /// The waiting in a range.
    fn wait(&self, events: &[TraceEvent], range: EventRange) -> u64 {
        let waits = self.waits.iter().filter(|&&at| is_in(at, range));
        waits.map(|&at| events[usize::from(at)].value()).sum()
    }

    /// Learns the shape of these events (at most 65,535).
    #[cold]
    #[inline(never)]
    fn compile(&mut self, hint: u64, events: &[TraceEvent], record: &RequestRecord, shared: &LiveCounts) {
        *self = RequestShape { hint, ..RequestShape::default() };
        let live = |site| shared.site(site).clone();
        let mut walk = ShapeWalk::default();
        for (index, &event) in events.iter().enumerate() {
            let (kind, site) = (event.kind(), event.site());
            let runs = kind.is_timed() && kind != EventKind::Resume && !event.is_unstamped();
            if kind == EventKind::Resume {
                self.waits.push(index as u16);
            }
            self.keys.push(event.0 & !TraceEvent::MAX);
            self.masks.push(if runs { TraceEvent::MAX } else { 0 });
            let site = if kind.is_timed() { site } else { walk.place(site) };
            match kind {
                EventKind::BytesIn
                | EventKind::BytesOut
                | EventKind::Error
                | EventKind::Asleep
                | EventKind::NoCore
                    if !site.is_none() =>
                {
                    self.remarks.push((index as u16, kind, live(site)));
                }
                _ => walk.take(kind, site, index as u16),
            }
        }
        walk.take(EventKind::End, Site::NONE, events.len().saturating_sub(1) as u16);
        self.batch = self.batched(&walk.parts, record, shared);
        for SitePart { site, calls, ranges } in walk.parts {
            let live = live(site);
            match ranges[..] {
                [range] if calls == 1 => {
                    let waits = self.waits.iter().any(|&at| is_in(at, range));
                    self.shares.push(SingleShare { live, range, waits });
                }
                _ => {
                    self.ranges.extend(ranges);
                    self.several.push(RepeatedShare { live, calls, end: self.ranges.len() });
                }
            }
        }
    }

    /// A batch for requests of this shape, `parts` of which are its sites.
    fn batched(&self, parts: &[SitePart], record: &RequestRecord, shared: &LiveCounts) -> ShapeBatch {
        let mut batch = ShapeBatch::new(self.stamped(), self.keys.len(), record, shared);
        for SitePart { site, calls, ranges } in parts {
            let live = shared.site(*site);
            let events = || ranges.iter().flat_map(|&(begin, end)| begin..end);
            let runs = events().filter(|&at| self.masks[usize::from(at)] != 0);
            batch.sum(live, CountTarget::Run(*calls), runs);
            batch.sum(live, CountTarget::Wait, events().filter(|at| self.waits.contains(at)));
        }
        for (at, kind, live) in &self.remarks {
            batch.sum(live, CountTarget::Remark(*kind), std::iter::once(*at));
        }
        batch
    }

    /// The events that have a value, or may.
    fn stamped(&self) -> Vec<u16> {
        let events = self.keys.iter().enumerate();
        events.filter(|(_, key)| !TraceEvent(**key).is_unstamped()).map(|(at, _)| at as u16).collect()
    }
}

#[inline]
fn between(sums: &[u64], range: EventRange) -> u64 {
    sums[usize::from(range.1)] - sums[usize::from(range.0)]
}

#[inline]
fn is_in(at: u16, range: EventRange) -> bool {
    (range.0..range.1).contains(&at)
}

/// The walk that determines which intervals belong to which site.
#[derive(Default)]
struct ShapeWalk {
    parts: Vec<SitePart>,
    /// Open sites, with the index after the event that opened them.
    open: Vec<(Site, u16)>,
    beyond: u32,
}

/// One site's intervals.
struct SitePart {
    site: Site,
    calls: u64,
    ranges: Vec<EventRange>,
}

impl ShapeWalk {
    fn take(&mut self, kind: EventKind, site: Site, index: u16) {
        match kind {
            EventKind::Mark => {
                let inside_itself = self.is_open(site);
                let part = self.part(site);
                part.calls += 1;
                if !inside_itself {
                    part.ranges.push((index, index + 1));
                }
            }
            EventKind::Begin if self.open.len() < MAX_DEPTH => {
                self.part(site).calls += 1;
                self.open.push((site, index + 1));
            }
            EventKind::Begin => self.beyond += 1,
            EventKind::End if self.beyond > 0 && !site.is_none() => self.beyond -= 1,
            EventKind::End => self.close(site, index + 1),
            _ => {}
        }
    }

    /// Closes down to the innermost open `site`; everything for [`Site::NONE`]; nothing if it is not open.
    fn close(&mut self, site: Site, end: u16) {
        let depth = site.outside(&self.open, |open| open.0);
        while self.open.len() > depth {
            let Some((site, begin)) = self.open.pop() else { break };
            if !self.is_open(site) {
                self.part(site).ranges.push((begin, end));
            }
        }
        if site.is_none() {
            self.beyond = 0;
        }
    }

    /// Remarks about no site are about the innermost open one.
    fn place(&self, site: Site) -> Site {
        if site.is_none() { self.open.last().map_or(site, |&(open, _)| open) } else { site }
    }

    fn is_open(&self, site: Site) -> bool {
        self.open.iter().any(|&(open, _)| open == site)
    }

    fn part(&mut self, site: Site) -> &mut SitePart {
        let index = self.parts.iter().position(|part| part.site == site).unwrap_or_else(|| {
            self.parts.push(SitePart { site, calls: 0, ranges: Vec::new() });
            self.parts.len() - 1
        });
        &mut self.parts[index]
    }
}

/// Shapes held at most: a thousand bytes each, once used, and six thousand more if it is frequent.
const PLACES: usize = 256;
