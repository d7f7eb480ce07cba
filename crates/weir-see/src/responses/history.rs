//! `history`: the last minute and the last hour, and the thread that remembers them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_engine::log::{self, LogLevel};
use weir_rt::clock;
use weir_server::housekeeping::{self, WorkerView};
use weir_trace::{RecorderReader, Site, SiteKind, SiteTable, SiteTally};

use super::reply::ReplyFailure;
use crate::control::protocol::ControlQuestion;
use crate::history::{
    HistoryReading, HistorySpan, HistoryWish, TickMoment, TrafficSource, TrafficTotals, WorkerReading,
};
use crate::source::{BRIEFLY, ServerSource, WorkerThread, scale};

/// The points of a `span`, those after `since` (milliseconds since 1970) only; with `heat=LOCATION` or
/// `heat_peer=PEER` also how many requests took how long.
pub(crate) fn respond(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let wish = HistoryWish {
        span: HistorySpan::of(question.value("span").unwrap_or("minute"))?,
        since: question.number("since", 0)?,
        heat: question.value("heat").map(str::to_owned),
        peer: question.value("heat_peer").map(str::to_owned),
    };
    Ok(source.history().json(&wish))
}

/// Has `source` remember what happens from here on, on a thread of its own. Further calls change nothing.
pub(crate) fn remember(source: &Arc<ServerSource>) {
    if !source.history().begin_once() {
        return;
    }
    let watched = Arc::downgrade(source);
    let thread = std::thread::Builder::new().name("weir history".to_owned());
    if let Err(error) = thread.spawn(move || follow(&watched)) {
        log::cycle(LogLevel::Alert, &format_args!("no thread remembers what happens: {error}"));
    }
}

/// Adds a point a second until the server is gone.
fn follow(watched: &Weak<ServerSource>) {
    let mut follower = HistoryFollower::default();
    let mut next = clock::monotonic_ns();
    while let Some(source) = watched.upgrade() {
        follower.tick(&source);
        drop(source);
        // Late once, it does not hurry after that: points say how long they are.
        next = (next + SECOND.as_nanos() as u64).max(clock::monotonic_ns());
        std::thread::sleep(Duration::from_nanos(next - clock::monotonic_ns().min(next)));
    }
}

/// What the thread remembers between two points.
#[derive(Default)]
struct HistoryFollower {
    /// The kinds of sites, by number: sites are only ever added.
    kinds: Vec<SiteKind>,
    /// Requests that workers had begun at the last point.
    begun: u64,
}

impl HistoryFollower {
    fn tick(&mut self, source: &ServerSource) {
        let workers = source.workers();
        let begun = workers.iter().map(|worker| worker.counters.requests.get()).sum();
        // Workers publish in batches. An idle server is not woken for that.
        if std::mem::replace(&mut self.begun, begun) != begun {
            source.ask(BRIEFLY, |worker| worker.recorder.borrow_mut().settle());
        }
        let recorders = source.recorders();
        let locations = self.tallies(&recorders, SiteKind::Request);
        let upstreams = self.tallies(&recorders, SiteKind::UpstreamTry);
        let views = housekeeping::handle().workers();
        let readings: Vec<WorkerReading> = workers.iter().map(|worker| reading(worker, &views)).collect();
        let reading = HistoryReading { locations: &locations, upstreams: &upstreams, workers: &readings };
        let now = TickMoment { ns: clock::monotonic_ns(), unix_ms: clock::unix_ns() / 1_000_000 };
        source.history().tick(now, &reading, &PublishedCounts(&recorders));
    }

    /// The tallies of all sites of a kind.
    fn tallies(&mut self, recorders: &[RecorderReader], kind: SiteKind) -> Vec<(Site, SiteTally)> {
        let mut all: Vec<(Site, SiteTally)> = Vec::new();
        for recorder in recorders {
            for site in recorder.sites() {
                if self.kind(site) == kind
                    && let Some(tally) = recorder.tally(site)
                {
                    all.push((site, tally));
                }
            }
        }
        all
    }

    fn kind(&mut self, site: Site) -> SiteKind {
        if site.index() >= self.kinds.len() {
            self.kinds = SiteTable::global().kinds();
        }
        self.kinds.get(site.index()).copied().unwrap_or(SiteKind::Other)
    }
}

fn reading(worker: &WorkerThread, views: &[WorkerView]) -> WorkerReading {
    let number = worker.recorder.worker();
    let view = views.iter().find(|view| view.worker == number);
    let thread = view.and_then(|view| view.thread).unwrap_or_default();
    WorkerReading {
        worker: number,
        requests: worker.counters.requests.get(),
        accepted: worker.counters.accepted.get(),
        connections: worker.counters.active.get(),
        busy_ns: worker.stats.snapshot().busy_ns + worker.stats.turn_ns(),
        cpu_ns: thread.cpu_ns,
        run_queue_ns: thread.run_queue_ns,
        stalls: view.map_or(0, |view| view.stalls),
    }
}

/// What workers have published.
struct PublishedCounts<'r>(&'r [RecorderReader]);

impl TrafficSource for PublishedCounts<'_> {
    fn name(&self, site: Site) -> Arc<str> {
        let info = SiteTable::global().info(site);
        if info.kind == SiteKind::UpstreamTry { info.name } else { info.location }
    }

    fn totals(&self, sites: &[Site]) -> TrafficTotals {
        let mut sum = TrafficTotals::default();
        for (recorder, site) in
            self.0.iter().flat_map(|recorder| sites.iter().map(move |site| (recorder, *site)))
        {
            let (Some(totals), Some(tally)) = (recorder.site(site), recorder.tally(site)) else { continue };
            // Tries have no whole time: they wait nearly all of it.
            sum.times.merge(if totals.status.is_some() { &totals.total } else { &totals.wait });
            sum.tally.merge(&tally);
            sum.run = sum.run.wrapping_add(totals.run.sum());
            sum.wait = sum.wait.wrapping_add(totals.wait.sum());
            sum.bytes_out += totals.counts.bytes_out;
        }
        sum
    }

    fn scale(&self, ticks: u64) -> u64 {
        scale(ticks)
    }
}

/// Between two points of the minute.
const SECOND: Duration = Duration::from_secs(1);
