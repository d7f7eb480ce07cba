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
        if !shape.fits(events) {
            if events.iter().any(|event| event.kind() == EventKind::High) {
                return false;
            }
            shape.compile(events, live);
        }
        if shape.flat {
            shape.charge_flat(events);
        } else {
            shape.measure(events, &mut self.run);
            shape.charge(events, &self.run);
        }
        true
    }
}

/// What all requests of one shape have in common.
#[derive(Debug, Default)]
struct Shape {
    /// What the events must be: their kinds and sites.
    keys: Vec<u64>,
    /// Which bits of each event are run.
    masks: Vec<u64>,
    /// Nothing nests or comes twice: each site's run is that of one event, and so is its wait. So it is with requests
    /// that are answered from memory.
    flat: bool,
    /// Of a flat shape, the sites that wait for nothing, each with the event that has its run.
    runs: Vec<(Arc<LiveSite>, u16)>,
    /// The sites called once; of a flat shape only those that wait.
    shares: Vec<Share>,
    several: Vec<Several>,
    /// The ranges of `several`, one site's behind the other's.
    ranges: Vec<Range>,
    remarks: Vec<(u16, EventKind, Arc<LiveSite>)>,
    /// The events that end a wait: none or one, mostly.
    waits: Vec<u16>,
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
    /// In a flat shape, where its times are.
    single: Single,
}

/// The only event of a site that ran, and the only one that waited, or [`NOWHERE`].
#[derive(Clone, Copy, Debug)]
struct Single {
    run: u16,
    wait: u16,
}

/// No event: traces have fewer.
const NOWHERE: u16 = u16::MAX;

/// A site called several times, or inside itself.
#[derive(Debug)]
struct Several {
    live: Arc<LiveSite>,
    calls: u64,
    /// Where its ranges end.
    end: usize,
}

impl Shape {
    /// Whether the events are of this shape.
    #[inline]
    fn fits(&self, events: &[Event]) -> bool {
        if self.keys.len() != events.len() {
            return false;
        }
        // Four at a time, which the compiler makes two vector operations.
        let (fours, rest) = events.as_chunks::<4>();
        let (four_keys, rest_keys) = self.keys.as_chunks::<4>();
        let mut any = [0; 4];
        for (four, keys) in fours.iter().zip(four_keys) {
            for ((any, event), key) in any.iter_mut().zip(four).zip(keys) {
                *any |= event.0 ^ key;
            }
        }
        let last = rest.iter().zip(rest_keys).fold(0, |any, (event, key)| any | (event.0 ^ key));
        (any[0] | any[1] | any[2] | any[3] | last) <= Event::MAX
    }

    /// Charges what needs no sums: the time of a site is that of its event.
    #[inline]
    fn charge_flat(&self, events: &[Event]) {
        let of = |at: u16| events.get(usize::from(at)).map_or(0, |event| event.value());
        for (live, at) in &self.runs {
            live.record_run(of(*at));
        }
        for share in &self.shares {
            share.live.record_one(of(share.single.run), of(share.single.wait));
        }
        self.remark(events);
    }

    /// Fills `run` with the sums of run before each event.
    fn measure(&self, events: &[Event], run: &mut Vec<u64>) {
        if run.len() <= events.len() {
            run.resize(events.len() + 1, 0);
        }
        let mut clock = 0u64;
        for ((event, mask), sum) in events.iter().zip(&self.masks).zip(&mut run[1..]) {
            clock = clock.wrapping_add(event.0 & mask);
            *sum = clock;
        }
    }

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
        self.remark(events);
    }

    #[inline]
    fn remark(&self, events: &[Event]) {
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

    /// Where the times of a range are, if it has one event of run at most, and one of wait.
    fn single(&self, range: Range) -> Option<Single> {
        let mut single = Single { run: NOWHERE, wait: NOWHERE };
        for at in range.0..range.1 {
            let place = match (self.masks[usize::from(at)] != 0, self.waits.contains(&at)) {
                (true, _) => &mut single.run,
                (_, true) => &mut single.wait,
                _ => continue,
            };
            if std::mem::replace(place, at) != NOWHERE {
                return None;
            }
        }
        Some(single)
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
            self.keys.push(event.0 & !Event::MAX);
            self.masks.push(if runs { Event::MAX } else { 0 });
            let site = if kind.is_timed() { site } else { walk.place(site) };
            match kind {
                EventKind::BytesIn | EventKind::BytesOut | EventKind::Error if !site.is_none() => {
                    self.remarks.push((index as u16, kind, live(site)));
                }
                _ => walk.take(kind, site, index as u16),
            }
        }
        walk.take(EventKind::End, Site::NONE, events.len().saturating_sub(1) as u16);
        let mut flat = true;
        for Part { site, calls, ranges } in walk.parts {
            let live = live(site);
            match ranges[..] {
                [range] if calls == 1 => {
                    let waits = self.waits.iter().any(|&at| is_in(at, range));
                    let single = self.single(range);
                    flat &= single.is_some();
                    let single = single.unwrap_or(Single { run: NOWHERE, wait: NOWHERE });
                    self.shares.push(Share { live, range, waits, single });
                }
                _ => {
                    self.ranges.extend(ranges);
                    self.several.push(Several { live, calls, end: self.ranges.len() });
                }
            }
        }
        self.flat = flat && self.several.is_empty();
        if self.flat {
            let runs = self.shares.extract_if(.., |share| share.single.wait == NOWHERE);
            self.runs = runs.map(|share| (share.live, share.single.run)).collect();
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
