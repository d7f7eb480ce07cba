//! Why connections and streams ended.

use super::{MetricsWriter, escape};
use weir_engine::worker::UpstreamCloses;

use crate::closes::{self, CloseCounts, CloseRow, HTTP2_STREAM};
use crate::source::WorkerThread;

/// Counters of connections, of streams, and of what clients of HTTP/2 did too much of. Rows come with the first event, as
/// with statuses: a server has few of the reasons.
pub(super) fn write(out: &mut MetricsWriter, workers: &[WorkerThread]) {
    let to_servers = UpstreamCloses::now();
    let (counts, opened) = (CloseCounts::with(workers, &to_servers), to_servers.opened);
    let connections = counts
        .rows()
        .filter(|(row, _)| row.what != HTTP2_STREAM && to_server(row).is_none())
        .map(|(row, count)| {
            (format!("protocol=\"{}\",by=\"{}\",reason=\"{}\"", row.what, row.by, row.reason), count)
        });
    out.counter(
        "weir_connections_closed",
        "Connections of clients that ended, by what they spoke, who was first, and why.",
        connections,
    );
    let closed = counts.rows().filter_map(|(row, count)| {
        let (protocol, by, reason) = (to_server(row)?, row.by, row.reason);
        Some((format!("protocol=\"{protocol}\",by=\"{by}\",reason=\"{reason}\""), count))
    });
    out.counter(
        "weir_upstream_connections_closed",
        "Connections to servers that ended, by what they spoke, who was first, and why.",
        closed,
    );
    out.counter(
        "weir_upstream_connections_opened",
        "Connections to servers that were opened.",
        [(String::new(), opened)].into_iter(),
    );
    let streams = counts
        .rows()
        .filter(|(row, _)| row.what == HTTP2_STREAM)
        .map(|(row, count)| (format!("by=\"{}\",code=\"{}\"", row.by, row.reason), count));
    out.counter(
        "weir_http2_streams_reset",
        "Streams of HTTP/2 that ended early, by who ended them and with which code.",
        streams,
    );
    let abuses = closes::abuses(workers);
    out.counter(
        "weir_http2_abuse",
        "Connections of HTTP/2 that were ended for what their client did too much of.",
        abuses.into_iter().map(|(name, count)| (format!("kind=\"{}\"", escape(name)), count)),
    );
}

/// What a connection to a server spoke; `None` of other rows.
fn to_server(row: &CloseRow) -> Option<&'static str> {
    row.what.strip_prefix("to_")
}
