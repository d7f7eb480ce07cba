//! The last minute and the last hour: rates, latencies and errors of locations and peers, and what workers did.
//!
//! Counters say what was since the server began; a page with lines over time needs what was when. A point a second is
//! remembered for a minute, a point each half minute for an hour. Memory is bounded: a location or a peer has 23 KB of
//! points and the histograms of two moments (2 to 16 KB), a worker 6 KB, and there are at most [`MOST`] of each; what has
//! no place is counted in one sum of all others. Nothing of it touches a request: what workers count anyway is read from
//! a thread of its own (`responses::history`), once a second, and only if there is an `admin` listener to show it.

mod points;
mod traffic;
mod workers;
mod write;

use points::SpanClock;
pub(crate) use points::{HistorySpan, TickMoment};
use traffic::TrafficTable;
pub(crate) use traffic::{TrafficSource, TrafficTotals};
pub(crate) use workers::WorkerReading;
use workers::WorkerTable;
pub(crate) use write::HistoryWish;

use weir_rt::HeldMemory;
use weir_trace::{Site, SiteTally};

/// What is remembered of a server.
pub(crate) struct ServerHistory {
    clocks: [SpanClock; 2],
    locations: TrafficTable,
    upstreams: TrafficTable,
    workers: WorkerTable,
    begun: bool,
}

/// What was read at one moment.
pub(crate) struct HistoryReading<'r> {
    /// The tallies of sites of whole requests.
    pub(crate) locations: &'r [(Site, SiteTally)],
    /// The tallies of sites of tries.
    pub(crate) upstreams: &'r [(Site, SiteTally)],
    pub(crate) workers: &'r [WorkerReading],
}

impl Default for ServerHistory {
    fn default() -> ServerHistory {
        ServerHistory {
            clocks: HistorySpan::ALL.map(SpanClock::new),
            locations: TrafficTable::new(MOST),
            upstreams: TrafficTable::new(MOST),
            workers: WorkerTable::default(),
            begun: false,
        }
    }
}

impl ServerHistory {
    /// The series of all kinds, and about how many bytes they take.
    pub(crate) fn held(&self) -> HeldMemory {
        let mut held = self.locations.held();
        held += self.upstreams.held();
        held += self.workers.held();
        held
    }

    /// Whether this is the first call.
    pub(crate) fn begin_once(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// Adds what was counted since the last call. The first call only remembers where counting begins.
    pub(crate) fn tick(&mut self, now: TickMoment, reading: &HistoryReading<'_>, source: &dyn TrafficSource) {
        let [minute, hour] = &mut self.clocks;
        let Some(second) = minute.tick(now) else {
            hour.begin(now);
            self.locations.begin(reading.locations, source);
            self.upstreams.begin(reading.upstreams, source);
            self.workers.begin(reading.workers);
            return;
        };
        self.locations.second(second, reading.locations, source);
        self.upstreams.second(second, reading.upstreams, source);
        self.workers.point(HistorySpan::Minute, second, reading.workers);
        if let Some(step) = hour.tick(now) {
            self.locations.step(step, source);
            self.upstreams.step(step, source);
            self.workers.point(HistorySpan::Hour, step, reading.workers);
        }
    }
}

/// Locations that have series, and as many peers and workers.
const MOST: usize = 64;

#[cfg(test)]
mod tests;
