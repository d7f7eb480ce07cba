//! The time of one request summed by site: what the histograms count.
//!
//! Walking a request's events with a stack costs more than recording them did. But requests come in few shapes: the
//! same sites in the same order, only with other times. So the walk is done once a shape and leaves a list: which
//! intervals belong to which site. A request of a known shape then needs one pass that checks the shape and adds up
//! the times before each event, and one subtraction a site.
//!
//! The rules are those of [`Tree`](crate::Tree): times are inclusive, and a site inside itself counts once.

use std::sync::Arc;

use crate::event::{Event, EventKind};
use crate::live::LiveSite;
use crate::site::Site;
use crate::tree::MAX_DEPTH;

/// The shapes seen, each in the one place its hint leads to; a newer one takes it over.
#[derive(Debug)]
pub(crate) struct Shapes {
    places: Vec<Shape>,
    /// Run before each event of the request at hand, and the whole run at the end.
    run: Vec<u64>,
}

impl Shapes {
    pub(crate) fn new() -> Shapes {
        let places = (0..PLACES).map(|_| Shape::default()).collect();
        Shapes { places, run: Vec::new() }
    }

    /// Adds one request's events to the counts of their sites, which `live` finds. `hint` tells shapes apart that
    /// often alternate. Says no, and adds nothing, if an event does not hold its value alone (a wait of minutes): then
    /// the tree must be asked.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        events: &[Event],
        hint: u64,
        live: impl FnMut(Site) -> Arc<LiveSite>,
    ) -> bool {
        let hash = (hint << 16 ^ events.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let shape = &mut self.places[(hash >> 56) as usize % PLACES];
        if !shape.measure(events, &mut self.run) {
            if events.iter().any(|event| event.kind() == EventKind::High) {
                return false;
            }
            shape.compile(events, live);
            shape.measure(events, &mut self.run);
        }
        shape.charge(events, &self.run);
        true
    }
}

/// What all requests of one shape have in common.
#[derive(Debug, Default)]
struct Shape {
    steps: Vec<Step>,
    shares: Vec<Share>,
    several: Vec<Several>,
    /// The ranges of `several`, one site's behind the other's.
    ranges: Vec<Range>,
    remarks: Vec<(u16, EventKind, Arc<LiveSite>)>,
    /// The events that end a wait: none or one, mostly.
    waits: Vec<u16>,
}

/// What an event must be: its kind and site, and which bits of it are run.
#[derive(Clone, Copy, Debug)]
struct Step {
    key: u64,
    mask: u64,
}

/// The time between the stamps before one event and before another.
type Range = (u16, u16);

/// A site called once.
#[derive(Debug)]
struct Share {
    live: Arc<LiveSite>,
    range: Range,
    /// Something was waited for in there.
    waits: bool,
}

/// A site called several times, or inside itself.
#[derive(Debug)]
struct Several {
    live: Arc<LiveSite>,
    calls: u64,
    /// Where its ranges end.
    end: usize,
}

impl Shape {
    /// Fills `run` and says yes if the events are of this shape.
    #[inline]
    fn measure(&self, events: &[Event], run: &mut Vec<u64>) -> bool {
        if self.steps.len() != events.len() {
            return false;
        }
        if run.len() <= events.len() {
            run.resize(events.len() + 1, 0);
        }
        let (mut clock, mut differs) = (0u64, 0u64);
        for ((event, step), sum) in events.iter().zip(&self.steps).zip(&mut run[1..]) {
            let value = event.0 ^ step.key;
            differs |= value;
            clock = clock.wrapping_add(value & step.mask);
            *sum = clock;
        }
        differs <= Event::MAX
    }

    #[inline]
    fn charge(&self, events: &[Event], run: &[u64]) {
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
        for (index, kind, live) in &self.remarks {
            let value = events[usize::from(*index)].value();
            live.remark(*kind, if *kind == EventKind::Error { 1 } else { value });
        }
    }

    /// The waiting in a range.
    fn wait(&self, events: &[Event], range: Range) -> u64 {
        let waits = self.waits.iter().filter(|&&at| is_in(at, range));
        waits.map(|&at| events[usize::from(at)].value()).sum()
    }

    /// Learns the shape of these events (at most 65,535).
    #[cold]
    #[inline(never)]
    fn compile(&mut self, events: &[Event], mut live: impl FnMut(Site) -> Arc<LiveSite>) {
        *self = Shape::default();
        let mut walk = Walk::default();
        for (index, &event) in events.iter().enumerate() {
            let (kind, site) = (event.kind(), event.site());
            let runs = kind.is_timed() && kind != EventKind::Resume;
            if kind == EventKind::Resume {
                self.waits.push(index as u16);
            }
            self.steps.push(Step { key: event.0 & !Event::MAX, mask: if runs { Event::MAX } else { 0 } });
            let site = if kind.is_timed() { site } else { walk.place(site) };
            match kind {
                EventKind::BytesIn | EventKind::BytesOut | EventKind::Error if !site.is_none() => {
                    self.remarks.push((index as u16, kind, live(site)));
                }
                _ => walk.take(kind, site, index as u16),
            }
        }
        walk.take(EventKind::End, Site::NONE, events.len().saturating_sub(1) as u16);
        for Part { site, calls, ranges } in walk.parts {
            let live = live(site);
            match ranges[..] {
                [range] if calls == 1 => {
                    let waits = self.waits.iter().any(|&at| is_in(at, range));
                    self.shares.push(Share { live, range, waits });
                }
                _ => {
                    self.ranges.extend(ranges);
                    self.several.push(Several { live, calls, end: self.ranges.len() });
                }
            }
        }
    }
}

#[inline]
fn between(sums: &[u64], range: Range) -> u64 {
    sums[usize::from(range.1)] - sums[usize::from(range.0)]
}

#[inline]
fn is_in(at: u16, range: Range) -> bool {
    (range.0..range.1).contains(&at)
}

/// The walk that finds out which intervals belong to which site.
#[derive(Default)]
struct Walk {
    parts: Vec<Part>,
    /// Open sites, with the index behind the event that opened them.
    open: Vec<(Site, u16)>,
    beyond: u32,
}

/// One site's intervals.
struct Part {
    site: Site,
    calls: u64,
    ranges: Vec<Range>,
}

impl Walk {
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
        let found = self.open.iter().rposition(|&(open, _)| open == site);
        let depth = if site.is_none() { 0 } else { found.unwrap_or(self.open.len()) };
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

    fn part(&mut self, site: Site) -> &mut Part {
        let index = self.parts.iter().position(|part| part.site == site).unwrap_or_else(|| {
            self.parts.push(Part { site, calls: 0, ranges: Vec::new() });
            self.parts.len() - 1
        });
        &mut self.parts[index]
    }
}

/// Shapes held at most: a thousand bytes each, once used.
const PLACES: usize = 256;
