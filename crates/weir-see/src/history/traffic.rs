//! Locations, or peers, over time: the busiest have series, the others a sum.

use std::collections::HashMap;
use std::sync::Arc;

use weir_rt::HeldMemory;
use weir_trace::{Histogram, Site, SiteTally};

use super::points::{HistorySpan, PointNumber, PointRing};
use super::workers::clamp;

/// Where names and histograms of sites come from.
pub(crate) trait TrafficSource {
    /// What the site is called in series: its location, or its peer.
    fn name(&self, site: Site) -> Arc<str>;
    /// What these sites have counted, all workers together.
    fn totals(&self, sites: &[Site]) -> TrafficTotals;
    /// Nanoseconds of the clock's ticks.
    fn scale(&self, ticks: u64) -> u64;
}

/// What a location or a peer has counted, times in ticks.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrafficTotals {
    pub(crate) tally: SiteTally,
    /// Whole times of requests; waits of tries.
    pub(crate) times: Histogram,
    pub(crate) run: u64,
    pub(crate) wait: u64,
    pub(crate) bytes_out: u64,
}

/// A location or a peer in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrafficPoint {
    pub(super) requests: u32,
    pub(super) client_errors: u32,
    pub(super) server_errors: u32,
    pub(super) p50_ns: f32,
    pub(super) p99_ns: f32,
    /// Means of a request.
    pub(super) run_ns: f32,
    pub(super) wait_ns: f32,
    pub(super) bytes_out: f32,
    /// How many took how long, by [`bin`].
    pub(super) bins: [u32; BINS],
}

/// All that have no series, in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoldedPoint {
    pub(super) requests: u32,
    pub(super) client_errors: u32,
    pub(super) server_errors: u32,
}

/// What is known of each name.
struct KnownName {
    name: Arc<str>,
    sites: Vec<Site>,
    /// Now, at the last second and at the last step of the hour.
    now: SiteTally,
    second: SiteTally,
    step: SiteTally,
    /// The index of its series.
    series: Option<usize>,
}

/// The points of one name.
pub(super) struct TrafficSeries {
    known: usize,
    /// The first point of each span that it has.
    first: [PointNumber; 2],
    points: [PointRing<TrafficPoint>; 2],
    latest: TrafficTotals,
    step: TrafficTotals,
}

impl TrafficSeries {
    /// The point; `None` before it had a series.
    pub(super) fn at(&self, span: HistorySpan, number: PointNumber) -> Option<&TrafficPoint> {
        (self.first[span as usize] <= number).then(|| self.points[span as usize].at(number))
    }
}

/// A name's text, its sites and its places in both maps.
const NAME_BYTES: usize = 128;
/// The histograms of two moments that a series has, with some tens of buckets.
const HISTOGRAM_BYTES: usize = 4096;

/// All names of one kind.
pub(super) struct TrafficTable {
    most: usize,
    names: Vec<KnownName>,
    by_name: HashMap<Arc<str>, usize>,
    by_site: HashMap<Site, usize>,
    series: Vec<TrafficSeries>,
    folded: [PointRing<FoldedPoint>; 2],
    /// The number that the next point of each span has.
    next: [PointNumber; 2],
}

impl TrafficTable {
    pub(super) fn new(most: usize) -> TrafficTable {
        TrafficTable {
            most,
            names: Vec::new(),
            by_name: HashMap::new(),
            by_site: HashMap::new(),
            series: Vec::new(),
            folded: HistorySpan::ALL.map(PointRing::new),
            next: [PointNumber(0); 2],
        }
    }

    /// The series, and what they and the names take; the histograms of two moments as large as they usually are.
    pub(super) fn held(&self) -> HeldMemory {
        let names = self.names.capacity() * (size_of::<KnownName>() + NAME_BYTES);
        let series =
            self.series.iter().flat_map(|series| &series.points).map(PointRing::held_bytes).sum::<usize>();
        let own = self.series.capacity() * size_of::<TrafficSeries>() + self.series.len() * HISTOGRAM_BYTES;
        let folded = self.folded.iter().map(PointRing::held_bytes).sum::<usize>();
        HeldMemory::new(self.series.len(), names + series + own + folded)
    }

    /// The series with their names.
    pub(super) fn series(&self) -> impl Iterator<Item = (&str, &TrafficSeries)> {
        self.series.iter().map(|series| (&*self.names[series.known].name, series))
    }

    /// How many names have been seen that have no series.
    pub(super) fn folded(&self) -> usize {
        let seen = |name: &&KnownName| name.series.is_none() && name.now.requests > 0;
        self.names.iter().filter(seen).count()
    }

    /// What those had.
    pub(super) fn folded_at(&self, span: HistorySpan, number: PointNumber) -> &FoldedPoint {
        self.folded[span as usize].at(number)
    }

    /// Where counting begins: what was before is in no point.
    pub(super) fn begin(&mut self, tallies: &[(Site, SiteTally)], source: &dyn TrafficSource) {
        self.add_up(tallies, source);
        self.names.iter_mut().for_each(|name| (name.second, name.step) = (name.now, name.now));
    }

    /// The point of a second.
    pub(super) fn second(
        &mut self,
        number: PointNumber,
        tallies: &[(Site, SiteTally)],
        source: &dyn TrafficSource,
    ) {
        self.next[HistorySpan::Minute as usize] = PointNumber(number.0 + 1);
        self.add_up(tallies, source);
        let mut folded = FoldedPoint::default();
        for at in 0..self.names.len() {
            let name = &mut self.names[at];
            let lately = name.now.since(&name.second);
            let was = std::mem::replace(&mut name.second, name.now);
            if name.series.is_none() && lately.requests > 0 && self.series.len() < self.most {
                self.give_place(at, was, source);
            }
            match self.names[at].series {
                Some(series) => {
                    self.point(series, lately.requests > 0, number, source);
                    if self.series[series].first[0] > number {
                        folded.add(&lately);
                    }
                }
                None => folded.add(&lately),
            }
        }
        self.folded[HistorySpan::Minute as usize].put(number, folded);
    }

    /// The point of a step of the hour; then the busiest of those without series take the places of the least busy.
    pub(super) fn step(&mut self, number: PointNumber, source: &dyn TrafficSource) {
        self.next[HistorySpan::Hour as usize] = PointNumber(number.0 + 1);
        let mut folded = FoldedPoint::default();
        for name in self.names.iter().filter(|name| name.series.is_none()) {
            folded.add(&name.now.since(&name.step));
        }
        self.folded[HistorySpan::Hour as usize].put(number, folded);
        for series in &mut self.series {
            let point = TrafficPoint::between(&series.step, &series.latest, source);
            series.points[HistorySpan::Hour as usize].put(number, point);
            if point.requests > 0 {
                series.step.clone_from(&series.latest);
            }
        }
        self.give_places_to_the_busiest(source);
        self.names.iter_mut().for_each(|name| name.step = name.now);
    }

    fn add_up(&mut self, tallies: &[(Site, SiteTally)], source: &dyn TrafficSource) {
        self.names.iter_mut().for_each(|name| name.now = SiteTally::default());
        for (site, tally) in tallies {
            let at = match self.by_site.get(site) {
                Some(&at) => at,
                None => self.learn(*site, source),
            };
            self.names[at].now.merge(tally);
        }
    }

    fn learn(&mut self, site: Site, source: &dyn TrafficSource) -> usize {
        let name = source.name(site);
        let at = *self.by_name.entry(name.clone()).or_insert(self.names.len());
        if at == self.names.len() {
            let none = SiteTally::default();
            let sites = Vec::new();
            self.names.push(KnownName { name, sites, now: none, second: none, step: none, series: None });
        }
        self.names[at].sites.push(site);
        self.by_site.insert(site, at);
        at
    }

    /// A new series for a name. One that was never counted before has its first point now, others at the next moment:
    /// what they counted until now is in the sum of the others, but for histograms.
    fn give_place(&mut self, at: usize, was: SiteTally, source: &dyn TrafficSource) {
        let counts_from_nothing = was.requests == 0;
        let totals =
            if counts_from_nothing { TrafficTotals::default() } else { source.totals(&self.names[at].sites) };
        let mut first = self.next;
        if counts_from_nothing {
            // The point of this very second is its first.
            first[0] = PointNumber(first[0].0.saturating_sub(1));
        }
        self.names[at].series = Some(self.series.len());
        self.series.push(TrafficSeries {
            known: at,
            first,
            points: HistorySpan::ALL.map(PointRing::new),
            step: totals.clone(),
            latest: totals,
        });
    }

    fn point(&mut self, at: usize, is_active: bool, number: PointNumber, source: &dyn TrafficSource) {
        let series = &mut self.series[at];
        let mut point = TrafficPoint::default();
        if is_active {
            let totals = source.totals(&self.names[series.known].sites);
            point = TrafficPoint::between(&series.latest, &totals, source);
            series.latest = totals;
        }
        series.points[HistorySpan::Minute as usize].put(number, point);
    }

    fn give_places_to_the_busiest(&mut self, source: &dyn TrafficSource) {
        let lately = |name: &KnownName| name.now.since(&name.step).requests;
        for _ in 0..CHANGES {
            let without = (0..self.names.len()).filter(|&at| self.names[at].series.is_none());
            let Some(busiest) = without.max_by_key(|&at| lately(&self.names[at])) else { return };
            let least = (0..self.series.len()).min_by_key(|&at| lately(&self.names[self.series[at].known]));
            let Some(least) = least else { return };
            let (gains, loses) = (&self.names[busiest], &self.names[self.series[least].known]);
            if self.series.len() < self.most || lately(gains) <= 2 * lately(loses) {
                return;
            }
            self.take_place(least);
            let now = self.names[busiest].now;
            self.give_place(busiest, now, source);
        }
    }

    fn take_place(&mut self, at: usize) {
        let gone = self.series.swap_remove(at);
        self.names[gone.known].series = None;
        if let Some(moved) = self.series.get(at) {
            self.names[moved.known].series = Some(at);
        }
    }
}

impl FoldedPoint {
    fn add(&mut self, tally: &SiteTally) {
        self.requests = self.requests.saturating_add(clamp(tally.requests));
        self.client_errors = self.client_errors.saturating_add(clamp(tally.client_errors));
        self.server_errors = self.server_errors.saturating_add(clamp(tally.server_errors));
    }
}

impl TrafficPoint {
    fn between(before: &TrafficTotals, now: &TrafficTotals, source: &dyn TrafficSource) -> TrafficPoint {
        let tally = now.tally.since(&before.tally);
        if tally.requests == 0 {
            return TrafficPoint::default();
        }
        let times = now.times.since(&before.times);
        let mut bins = [0u32; BINS];
        for (ticks, count) in times.buckets() {
            let bin = &mut bins[bin(source.scale(ticks))];
            *bin = bin.saturating_add(clamp(count));
        }
        let each =
            |now: u64, before: u64| source.scale(now.saturating_sub(before)) as f32 / tally.requests as f32;
        TrafficPoint {
            requests: clamp(tally.requests),
            client_errors: clamp(tally.client_errors),
            server_errors: clamp(tally.server_errors),
            p50_ns: source.scale(times.quantile(0.5)) as f32,
            p99_ns: source.scale(times.quantile(0.99)) as f32,
            run_ns: each(now.run, before.run),
            wait_ns: each(now.wait, before.wait),
            bytes_out: now.bytes_out.saturating_sub(before.bytes_out) as f32,
            bins,
        }
    }
}

/// The bin of a time: each is twice as long as the one before, the first is for all below two microseconds, the last for
/// all from eight seconds on.
pub(super) const fn bin(ns: u64) -> usize {
    match (ns / 1_000).checked_ilog2() {
        Some(bin) if (bin as usize) < BINS => bin as usize,
        Some(_) => BINS - 1,
        None => 0,
    }
}

/// Bins of latency.
pub(super) const BINS: usize = 24;
/// Places that change hands at once, at most.
const CHANGES: usize = 16;
