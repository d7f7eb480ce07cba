//! TLS handshakes, and how long certificates are good for.

use weir_engine::worker::HandshakeTrait;
use weir_server::tls::inventory;

use super::{MetricsWriter, escape};
use crate::handshakes::HandshakeCounts;
use crate::source::ServerSource;

/// Rows come with the first handshake of each kind, as with statuses.
pub(super) fn write(out: &mut MetricsWriter, source: &ServerSource) {
    let counts = HandshakeCounts::of(&source.workers());
    let traits = HandshakeTrait::ALL.into_iter().flat_map(|of| {
        let row =
            move |(value, count)| (format!("of=\"{}\",value=\"{}\"", of.as_str(), escape(value)), count);
        counts.values(of).map(row).collect::<Vec<_>>()
    });
    out.counter(
        "weir_tls_handshakes",
        "TLS handshakes of clients that were complete: each counts once for each value of of.",
        traits,
    );
    let faults = counts.faults().map(|(fault, count)| {
        (format!("by=\"{}\",reason=\"{}\"", fault.side().as_str(), fault.as_str()), count)
    });
    out.counter(
        "weir_tls_handshakes_failed",
        "TLS handshakes that failed, by who was first and why.",
        faults,
    );
    out.head(DURATION, "histogram", "How long complete TLS handshakes took, from their first byte on.");
    for (times, session) in counts.times.iter().zip(["full", "resumed"]) {
        out.buckets(DURATION, &format!("session=\"{session}\""), times, &[]);
    }
    let configuration = source.configuration();
    // Those that end first: there may be a hundred thousand.
    let all = inventory::certificates(&configuration, |_, _| true, CERTIFICATES);
    let rows = all.first.into_iter().map(|(_, until, served)| {
        let name = served.names.first().map_or("", String::as_str);
        let labels = format!("name=\"{}\",file=\"{}\"", escape(name), escape(&served.file));
        (labels, u64::try_from(until).unwrap_or(0))
    });
    out.gauge(
        "weir_tls_certificate_end_timestamp_seconds",
        "When certificates end, in seconds since 1970: the hundred that end first.",
        rows,
    );
}

const DURATION: &str = "weir_tls_handshake_duration_seconds";
/// Certificates that have series of their own.
const CERTIFICATES: usize = 100;
