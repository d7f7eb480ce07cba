//! What happened between two moments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_engine::figures::{self, KeyZone};
use weir_rt::LoopSnapshot;
use weir_server::housekeeping::{self, ProcessUse, ThreadUse};
use weir_trace::{Histogram, Site, SiteKind, SiteTotals, StatusCounts};
use weir_upstream::PeerTotals;

use super::super::upstreams::upstreams;
use super::TopView;
use super::keys::KeyWindow;
use crate::closes::CloseCounts;
use crate::source::{ServerSource, WorkerThread, scale, ticks};

/// All figures at one moment.
pub(super) struct TopSnapshot {
    at: Instant,
    pub(super) sites: BTreeMap<Site, SiteTotals>,
    pub(super) workers: Vec<WorkerFigures>,
    /// Only for the table of keys.
    keys: Vec<KeyZone>,
    pub(super) peers: BTreeMap<String, PeerTotals>,
    pub(super) closes: CloseCounts,
}

/// A worker's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerFigures {
    pub(super) requests: u64,
    pub(super) accepted: u64,
    pub(super) active: u64,
    pub(super) waiting: u64,
    pub(super) writing: u64,
    pub(super) turns: LoopSnapshot,
    /// What the kernel accounts; `None` where /proc can't be read.
    pub(super) thread: Option<ThreadUse>,
    /// Connections times milliseconds.
    pub(super) connection_ms: u64,
    pub(super) watched: Duration,
    pub(super) stalls: u64,
    pub(super) dealing: DealingFigures,
}

/// What is counted of a worker's connections where they are dealt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DealingFigures {
    pub(super) dealt: u64,
    pub(super) handed_on: u64,
    pub(super) taken_over: u64,
    pub(super) parked: u64,
    pub(super) queued: u64,
    pub(super) lost_core: u64,
    /// How long the turn has taken that the loop is in.
    pub(super) turn_ns: u64,
}

impl DealingFigures {
    fn of(worker: &WorkerThread) -> DealingFigures {
        let dealing = &worker.counters.dealing;
        DealingFigures {
            dealt: dealing.dealt.get(),
            handed_on: dealing.handed_on.get(),
            taken_over: dealing.taken_over.get(),
            parked: dealing.parked.get(),
            queued: dealing.queued.get(),
            lost_core: dealing.lost_core.get(),
            turn_ns: worker.stats.turn_ns(),
        }
    }
}

impl WorkerFigures {
    /// Its share of the connections: those too that wait for it, or for any worker.
    pub(super) fn share(&self) -> u64 {
        self.active + self.dealing.parked + self.dealing.queued
    }
}

impl TopSnapshot {
    /// Now, for `view`.
    pub(super) fn take(source: &ServerSource, view: TopView) -> TopSnapshot {
        let workers = source.workers();
        let views = housekeeping::handle().workers();
        let seen = |worker: &WorkerThread| views.iter().find(|seen| seen.worker == worker.recorder.worker());
        let of_worker = |worker: &WorkerThread| WorkerFigures {
            requests: worker.counters.requests.get(),
            accepted: worker.counters.accepted.get(),
            active: worker.counters.active.get(),
            waiting: worker.counters.waiting.get(),
            writing: worker.counters.writing.get(),
            turns: worker.stats.snapshot(),
            thread: seen(worker).and_then(|view| view.thread),
            connection_ms: seen(worker).map_or(0, |view| view.connection_ms),
            watched: seen(worker).map_or(Duration::ZERO, |view| view.watched),
            stalls: seen(worker).map_or(0, |view| view.stalls),
            dealing: DealingFigures::of(worker),
        };
        TopSnapshot {
            at: Instant::now(),
            sites: source.totals().into_iter().collect(),
            workers: workers.iter().map(of_worker).collect(),
            keys: if view == TopView::Keys { figures::key_zones() } else { Vec::new() },
            peers: peers(source),
            closes: CloseCounts::of(&workers),
        }
    }
}

/// What all workers counted of each upstream peer.
fn peers(source: &ServerSource) -> BTreeMap<String, PeerTotals> {
    let mut peers = BTreeMap::<String, PeerTotals>::new();
    for upstream in upstreams(&source.configuration()) {
        for peer in upstream.members().all() {
            peers.entry(peer.server.to_string()).or_default().merge(&peer.state.totals());
        }
    }
    peers
}

/// The difference of two moments.
pub(crate) struct TopWindow {
    pub(crate) time: Duration,
    /// Sites with something in them.
    pub(crate) sites: Vec<(Site, SiteWindow)>,
    /// Before and after.
    pub(super) workers: Vec<(WorkerFigures, WorkerFigures)>,
    /// Upstream peers, by the name that the configuration gives them: all there are.
    pub(crate) peers: BTreeMap<String, PeerTotals>,
    /// What the kernel accounts to the process at the end; `None` where /proc can't be read.
    pub(super) process: Option<ProcessUse>,
    /// Of the table of keys.
    pub(super) keys: KeyWindow,
    /// Connections that ended, before and after.
    pub(crate) closes: (CloseCounts, CloseCounts),
}

/// What a site got in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteWindow {
    pub(crate) run: LatencySpread,
    pub(crate) wait: LatencySpread,
    pub(crate) total: LatencySpread,
    pub(crate) calls: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) errors: u64,
    /// What the kernel did for the requests besides their run, in nanoseconds.
    pub(crate) kernel: u64,
    pub(crate) status: StatusCounts,
}

impl TopWindow {
    /// Whether no request ended.
    pub(super) fn is_idle(&self) -> bool {
        self.sites.iter().all(|(_, lately)| lately.status.total() == 0)
    }

    /// From `before` to `after`.
    pub(super) fn between(before: &TopSnapshot, after: &TopSnapshot) -> TopWindow {
        let none = SiteTotals::default();
        let sites = after.sites.iter().map(|(site, totals)| {
            (*site, SiteWindow::between(before.sites.get(site).unwrap_or(&none), totals))
        });
        let nothing = PeerTotals::default();
        let since = |name: &str, now: &PeerTotals| now.since(before.peers.get(name).unwrap_or(&nothing));
        let was = |n: usize| before.workers.get(n).copied().unwrap_or_default();
        TopWindow {
            time: after.at.duration_since(before.at),
            sites: sites.filter(|(_, lately)| lately.calls > 0 || lately.status.total() > 0).collect(),
            workers: after.workers.iter().enumerate().map(|(n, now)| (was(n), *now)).collect(),
            peers: after.peers.iter().map(|(name, now)| (name.clone(), since(name, now))).collect(),
            process: housekeeping::handle().process().ok(),
            keys: KeyWindow::between(&before.keys, &after.keys),
            closes: (before.closes.clone(), after.closes.clone()),
        }
    }

    /// Since the server began.
    pub(super) fn of_all_time(source: &ServerSource, view: TopView) -> TopWindow {
        let now = TopSnapshot::take(source, view);
        let (sites, peers, closes) = (BTreeMap::new(), BTreeMap::new(), CloseCounts::default());
        let (workers, keys) = (Vec::new(), Vec::new());
        let nothing = TopSnapshot { at: now.at, sites, workers, keys, peers, closes };
        TopWindow { time: source.uptime(), ..TopWindow::between(&nothing, &now) }
    }

    /// What came of servers whose requests are in `sites`, and nothing else, in `time`.
    pub(crate) fn of_sites(time: Duration, sites: BTreeMap<Site, SiteWindow>) -> TopWindow {
        let is_used = |(_, lately): &(Site, SiteWindow)| lately.calls > 0 || lately.status.total() > 0;
        TopWindow {
            time,
            sites: sites.into_iter().filter(is_used).collect(),
            workers: Vec::new(),
            peers: BTreeMap::new(),
            process: None,
            keys: KeyWindow::between(&[], &[]),
            closes: Default::default(),
        }
    }

    /// This many in a second.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        count as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

impl SiteWindow {
    pub(super) fn between(before: &SiteTotals, after: &SiteTotals) -> SiteWindow {
        SiteWindow {
            run: LatencySpread::between(&before.run, &after.run),
            wait: LatencySpread::between(&before.wait, &after.wait),
            total: LatencySpread::between(&before.total, &after.total),
            calls: after.counts.calls - before.counts.calls,
            bytes_in: after.counts.bytes_in - before.counts.bytes_in,
            bytes_out: after.counts.bytes_out - before.counts.bytes_out,
            errors: after.counts.errors - before.counts.errors,
            kernel: scale(after.counts.kernel - before.counts.kernel),
            status: statuses(&before.status.unwrap_or_default(), &after.status.unwrap_or_default()),
        }
    }

    /// What tables of several servers show of a site of `kind`: how long requests took, and how long peers were waited for,
    /// with their spread; of other times the sums. A third of the numbers.
    pub(crate) fn for_traffic(mut self, kind: SiteKind) -> SiteWindow {
        self.run = self.run.summed();
        match kind {
            SiteKind::Request => self.wait = self.wait.summed(),
            _ => self.total = self.total.summed(),
        }
        self
    }

    /// What was added since `before`, of the same site.
    pub(crate) fn since(&self, before: &SiteWindow) -> SiteWindow {
        SiteWindow {
            run: self.run.since(&before.run),
            wait: self.wait.since(&before.wait),
            total: self.total.since(&before.total),
            calls: self.calls.saturating_sub(before.calls),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            errors: self.errors.saturating_sub(before.errors),
            kernel: self.kernel.saturating_sub(before.kernel),
            status: statuses(&before.status, &self.status),
        }
    }

    /// Adds another site's. What other servers report may be wrong: sums end where their type does.
    pub(crate) fn add(&mut self, other: &SiteWindow) {
        self.run.add(&other.run);
        self.wait.add(&other.wait);
        self.total.add(&other.total);
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.errors = self.errors.saturating_add(other.errors);
        self.kernel = self.kernel.saturating_add(other.kernel);
        self.status.merge(&other.status);
    }
}

fn statuses(before: &StatusCounts, after: &StatusCounts) -> StatusCounts {
    StatusCounts {
        classes: std::array::from_fn(|n| after.classes[n].saturating_sub(before.classes[n])),
        named: std::array::from_fn(|n| after.named[n].saturating_sub(before.named[n])),
    }
}

/// How times are spread, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencySpread {
    pub(crate) count: u64,
    /// All together.
    pub(crate) sum: u64,
    /// The largest value of each bucket, in ticks, and how many are in it.
    buckets: BTreeMap<u64, u64>,
}

impl LatencySpread {
    fn between(before: &Histogram, after: &Histogram) -> LatencySpread {
        let mut buckets: BTreeMap<u64, u64> = after.buckets().collect();
        for (bound, count) in before.buckets() {
            if let Some(now) = buckets.get_mut(&bound) {
                *now -= count;
            }
        }
        LatencySpread {
            count: after.count() - before.count(),
            sum: scale(after.sum().wrapping_sub(before.sum())),
            buckets,
        }
    }

    /// A spread of this sum and these buckets: the largest value of each and how many are in it, in nanoseconds.
    pub(crate) fn of_buckets(sum: u64, buckets: impl IntoIterator<Item = (u64, u64)>) -> LatencySpread {
        let mut spread = LatencySpread { sum, ..LatencySpread::default() };
        for (ns, count) in buckets {
            let bucket = spread.buckets.entry(ticks(ns)).or_default();
            *bucket = bucket.saturating_add(count);
            spread.count = spread.count.saturating_add(count);
        }
        spread
    }

    /// Its count and sum alone, without how it is spread.
    pub(crate) fn summed(&self) -> LatencySpread {
        LatencySpread::of_buckets(self.sum, [(0, self.count)])
    }

    /// What [`LatencySpread::of_buckets`] takes.
    pub(super) fn buckets_ns(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().map(|(bound, count)| (scale(*bound), *count))
    }

    /// What was added since `before`.
    fn since(&self, before: &LatencySpread) -> LatencySpread {
        let mut buckets = self.buckets.clone();
        for (bound, count) in &before.buckets {
            if let Some(now) = buckets.get_mut(bound) {
                *now = now.saturating_sub(*count);
            }
        }
        let count = buckets.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        LatencySpread { count, sum: self.sum.saturating_sub(before.sum), buckets }
    }

    fn add(&mut self, other: &LatencySpread) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        for (bound, count) in &other.buckets {
            let bucket = self.buckets.entry(*bound).or_default();
            *bucket = bucket.saturating_add(*count);
        }
    }

    /// The value at or below which the share `q` lies; 0 of nothing.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        let rank = ((q * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0_u64;
        let found = self.buckets.iter().find(|(_, count)| {
            seen = seen.saturating_add(**count);
            seen >= rank
        });
        found.map_or(0, |(bound, _)| scale(*bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_its_window_only() {
        let mut before = Histogram::new();
        (0..100).for_each(|_| before.record(1_000_000));
        let mut after = before.clone();
        (1..=10).for_each(|n| after.record(n * 10));
        let spread = LatencySpread::between(&before, &after);
        assert_eq!((spread.count, spread.sum), (10, scale(550)));
        assert!((scale(50)..=scale(54)).contains(&spread.quantile(0.5)), "{spread:?}");
        assert!((scale(100)..=scale(107)).contains(&spread.quantile(0.99)), "{spread:?}");
        assert_eq!(LatencySpread::default().quantile(0.5), 0);
        let sums = spread.summed();
        assert_eq!((sums.count, sums.sum, sums.buckets.len()), (10, scale(550), 1));
        assert_eq!(sums.since(&sums).count, 0);
    }
}
