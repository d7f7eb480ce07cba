//! Why connections of clients and to servers, and streams of HTTP/2, ended, all workers added up: for `/metrics` and `weir top closes`.

use std::collections::BTreeMap;

use weir_engine::worker::{
    CloseCounters, CloseProtocol, CloseReason, CloseSide, StreamCloseCounters, StreamCloseSide,
    UpstreamCloseProtocol, UpstreamCloseReason, UpstreamCloses,
};
use weir_http::h2::{ErrorCode, H2Abuse};

use crate::source::WorkerThread;

/// What has ended and why, of all workers; only what has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CloseCounts(BTreeMap<CloseRow, u64>);

/// What ended, who was first, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CloseRow {
    /// The protocol of a connection; `http2_stream` of a stream.
    pub(crate) what: &'static str,
    /// Who was first.
    pub(crate) by: &'static str,
    pub(crate) reason: &'static str,
    /// A sentence for people.
    pub(crate) says: &'static str,
}

/// What [`CloseRow::what`] says of streams.
pub(crate) const HTTP2_STREAM: &str = "http2_stream";

impl CloseCounts {
    /// What `workers` have counted.
    pub(crate) fn of(workers: &[WorkerThread]) -> CloseCounts {
        CloseCounts::with(workers, &UpstreamCloses::now())
    }

    /// The same, where the connections to servers are known.
    pub(crate) fn with(workers: &[WorkerThread], to_servers: &UpstreamCloses) -> CloseCounts {
        let mut counts = CloseCounts::default();
        workers.iter().for_each(|worker| counts.add(worker));
        counts.add_upstream(to_servers);
        counts
    }

    /// Adds the connections to servers that have ended.
    fn add_upstream(&mut self, counted: &UpstreamCloses) {
        for protocol in UpstreamCloseProtocol::ALL {
            for &reason in UpstreamCloseReason::ALL {
                self.count(to_server(protocol, reason), counted.get(protocol, reason));
            }
        }
    }

    fn add(&mut self, worker: &WorkerThread) {
        let counters = &worker.counters;
        self.connections(&counters.closes);
        self.streams(&counters.streams);
        self.connections(&counters.dealing.closes);
    }

    fn connections(&mut self, counters: &CloseCounters) {
        for protocol in CloseProtocol::ALL {
            for &reason in CloseReason::ALL {
                self.count(connection(protocol, reason), counters.get(protocol, reason));
            }
        }
    }

    fn streams(&mut self, counters: &StreamCloseCounters) {
        for (counted, side) in
            [(StreamCloseSide::Client, CloseSide::Client), (StreamCloseSide::Server, CloseSide::Server)]
        {
            for code in ErrorCode::ALL {
                self.count(reset(side, code), counters.get(counted, code));
            }
        }
        self.count(CUT, counters.with_connection.get());
    }

    /// Adds `count` ends that another server calls so; what this version does not know is left out.
    pub(crate) fn add_named(&mut self, [what, by, reason]: [&str; 3], count: u64) {
        let is_it = |row: &CloseRow| (row.what, row.by, row.reason) == (what, by, reason);
        if let Some(row) = every_row().find(is_it) {
            self.count(row, count);
        }
    }

    /// What is left of these without `other`, an older count of the same things.
    pub(crate) fn without(&self, other: &CloseCounts) -> CloseCounts {
        let mut left = CloseCounts::default();
        self.0.iter().for_each(|(row, count)| left.count(*row, count.saturating_sub(other.get(row))));
        left
    }

    /// Adds what another server has counted.
    pub(crate) fn merge(&mut self, other: &CloseCounts) {
        other.0.iter().for_each(|(row, count)| self.count(*row, *count));
    }

    fn count(&mut self, row: CloseRow, count: u64) {
        if count > 0 {
            *self.0.entry(row).or_default() += count;
        }
    }

    /// What has happened, with how often.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&CloseRow, u64)> {
        self.0.iter().map(|(row, count)| (row, *count))
    }

    /// How often `row` has happened.
    pub(crate) fn get(&self, row: &CloseRow) -> u64 {
        self.0.get(row).copied().unwrap_or(0)
    }
}

/// All rows that there can be.
fn every_row() -> impl Iterator<Item = CloseRow> {
    let of_protocol = |protocol| CloseReason::ALL.iter().map(move |&reason| connection(protocol, reason));
    let connections = CloseProtocol::ALL.into_iter().flat_map(of_protocol);
    let sides = [CloseSide::Client, CloseSide::Server].into_iter();
    let resets = sides.flat_map(|side| ErrorCode::ALL.into_iter().map(move |code| reset(side, code)));
    let to_servers = UpstreamCloseProtocol::ALL
        .into_iter()
        .flat_map(|protocol| UpstreamCloseReason::ALL.iter().map(move |&reason| to_server(protocol, reason)));
    connections.chain(resets).chain([CUT]).chain(to_servers)
}

fn reset(side: CloseSide, code: ErrorCode) -> CloseRow {
    CloseRow {
        what: HTTP2_STREAM,
        by: side.as_str(),
        reason: code.as_str(),
        says: "The stream was reset before its end.",
    }
}

/// Streams that were open when their connection ended.
const CUT: CloseRow = CloseRow {
    what: HTTP2_STREAM,
    by: "connection",
    reason: "connection",
    says: "The stream was open when its connection ended.",
};

fn to_server(protocol: UpstreamCloseProtocol, reason: UpstreamCloseReason) -> CloseRow {
    let (what, by) = (protocol.in_tables(), reason.side().as_str());
    CloseRow { what, by, reason: reason.as_str(), says: reason.says() }
}

fn connection(protocol: CloseProtocol, reason: CloseReason) -> CloseRow {
    let (what, by) = (protocol.as_str(), reason.side().as_str());
    CloseRow { what, by, reason: reason.as_str(), says: reason.says() }
}

/// Connections of HTTP/2 that were ended because of what their clients did too much of: its name and how often.
pub(crate) fn abuses(workers: &[WorkerThread]) -> Vec<(&'static str, u64)> {
    let count =
        |abuse: H2Abuse| workers.iter().map(|worker| worker.counters.http2_abuse[abuse as usize].get()).sum();
    let all = H2Abuse::ALL.iter().map(|&abuse| (abuse.name(), count(abuse)));
    all.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_known_by_their_names_and_are_not_alike() {
        let mut all = CloseCounts::default();
        every_row().for_each(|row| all.add_named([row.what, row.by, row.reason], 1));
        all.add_named(["http4", "client", "idle"], 1);
        assert!(all.rows().all(|(_, count)| count == 1));
        assert_eq!(
            all.rows().count(),
            CloseProtocol::ALL.len() * CloseReason::ALL.len()
                + 2 * ErrorCode::COUNT
                + 1
                + UpstreamCloseProtocol::ALL.len() * UpstreamCloseReason::ALL.len()
        );
    }
}
