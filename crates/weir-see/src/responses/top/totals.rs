//! `/totals`: all that is counted since the server began, as JSON with whole histograms, for callers that add up several
//! servers. Times are in nanoseconds; a spread is its sum and pairs of a bucket's largest value and count.

use weir_http::json::JsonWriter;
use weir_trace::{SiteKind, SiteTable, SiteTotals};

use super::TopView;
use super::window::{LatencySpread, SiteWindow, TopSnapshot, WorkerFigures};
use crate::closes::CloseCounts;
use crate::source::ServerSource;

/// The whole response; with `traffic` of sites only those of requests and peers, with the spread of the time that tables
/// show of them, and no closes.
pub(crate) fn write(source: &ServerSource, traffic: bool) -> String {
    let snapshot = TopSnapshot::take(source, TopView::Routes);
    let sum = |of: fn(&WorkerFigures) -> u64| snapshot.workers.iter().map(of).sum::<u64>();
    let text = JsonWriter::object(|json| {
        json.key("version").text(env!("CARGO_PKG_VERSION"));
        json.key("instance").text(source.instance());
        json.key("uptime_ms").raw(source.uptime().as_millis());
        json.key("workers").raw(snapshot.workers.len());
        json.key("connections").raw(sum(|worker| worker.share()));
        json.key("requests_in_flight").raw(sum(|worker| worker.writing));
        json.key("cpu_ns").raw(sum(|worker| worker.thread.map_or(0, |thread| thread.cpu_ns)));
        json.key("each_worker")
            .list(|json| snapshot.workers.iter().for_each(|worker| self::worker(json, worker)));
        json.key("sites").list(|json| sites(json, &snapshot, traffic));
        json.key("peers").list(|json| peers(json, &snapshot));
        if !traffic {
            json.key("closes").list(|json| closes(json, &snapshot.closes));
        }
    });
    text + "\n"
}

fn worker(json: &mut JsonWriter, worker: &WorkerFigures) {
    json.nested(|json| {
        for (key, value) in [
            ("requests", worker.requests),
            ("connections", worker.share()),
            ("requests_in_flight", worker.writing),
            ("busy_ns", worker.turns.busy_ns),
            ("parked_ns", worker.turns.parked_ns),
            ("cpu_ns", worker.thread.map_or(0, |thread| thread.cpu_ns)),
            ("stalls", worker.stalls),
        ] {
            json.key(key).raw(value);
        }
    });
}

fn sites(json: &mut JsonWriter, snapshot: &TopSnapshot, traffic: bool) {
    let (table, none) = (SiteTable::global(), SiteTotals::default());
    for (site, totals) in &snapshot.sites {
        let info = table.info(*site);
        if traffic && !matches!(info.kind, SiteKind::Request | SiteKind::UpstreamTry) {
            continue;
        }
        let all = SiteWindow::between(&none, totals);
        let all = if traffic { all.for_traffic(info.kind) } else { all };
        json.nested(|json| {
            json.key("kind").text(info.kind.as_str());
            json.key("phase").text(info.phase.unwrap_or(""));
            json.key("location").text(&info.location);
            json.key("name").text(&info.name);
            for (key, value) in [
                ("calls", all.calls),
                ("in", all.bytes_in),
                ("out", all.bytes_out),
                ("errors", all.errors),
                ("kernel", all.kernel),
            ] {
                json.key(key).raw(value);
            }
            for (key, counts) in [("classes", &all.status.classes[..]), ("named", &all.status.named[..])] {
                if all.status.total() > 0 {
                    json.key(key).list(|json| counts.iter().for_each(|count| json.raw(count)));
                }
            }
            for (key, spread) in [("run", &all.run), ("wait", &all.wait), ("total", &all.total)] {
                if spread.count > 0 {
                    json.key(key).nested(|json| self::spread(json, spread));
                }
            }
        });
    }
}

fn spread(json: &mut JsonWriter, spread: &LatencySpread) {
    json.key("sum").raw(spread.sum);
    json.key("buckets").list(|json| {
        for (ns, count) in spread.buckets_ns() {
            json.raw(ns);
            json.raw(count);
        }
    });
}

fn peers(json: &mut JsonWriter, snapshot: &TopSnapshot) {
    for (name, peer) in &snapshot.peers {
        json.nested(|json| {
            json.key("name").text(name);
            for (key, value) in [
                ("requests", peer.requests),
                ("faults", peer.faults),
                ("refused", peer.refused),
                ("reset", peer.reset),
                ("repeated", peer.repeated),
            ] {
                json.key(key).raw(value);
            }
        });
    }
}

fn closes(json: &mut JsonWriter, counts: &CloseCounts) {
    for (row, count) in counts.rows() {
        json.nested(|json| {
            json.key("what").text(row.what);
            json.key("by").text(row.by);
            json.key("reason").text(row.reason);
            json.key("count").raw(count);
        });
    }
}
