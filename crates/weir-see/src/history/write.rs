//! The history as JSON: an array a figure, a value a point.

use weir_http::json::JsonWriter;

use super::ServerHistory;
use super::points::{HistorySpan, PointNumber, PointTime};
use super::traffic::{BINS, FoldedPoint, TrafficPoint, TrafficTable};
use super::workers::{WorkerPoint, WorkerTable};

/// What of the history is wanted.
#[derive(Clone, Debug)]
pub(crate) struct HistoryWish {
    pub(crate) span: HistorySpan,
    /// Points that ended after this, in milliseconds since 1970.
    pub(crate) since: u64,
    /// The location whose latencies are wanted bin by bin; an empty name means all together.
    pub(crate) heat: Option<String>,
    /// The peer of which that is wanted.
    pub(crate) peer: Option<String>,
}

type SpanPoint = (PointNumber, PointTime);

impl ServerHistory {
    /// One line of JSON.
    pub(crate) fn json(&self, wish: &HistoryWish) -> String {
        let points: Vec<SpanPoint> = self.clocks[wish.span as usize].points(wish.since).collect();
        JsonWriter::object(|json| {
            json.key("span").text(wish.span.as_str());
            json.key("step_ns").raw(wish.span.step().as_nanos());
            json.key("points").raw(wish.span.points());
            json.key("ends_unix_ms").raws(points.iter().map(|(_, time)| time.unix_ms));
            json.key("lengths_ns").raws(points.iter().map(|(_, time)| time.length_ns));
            json.key("locations").nested(|json| self.locations.write(json, wish.span, &points));
            json.key("upstreams").nested(|json| self.upstreams.write(json, wish.span, &points));
            json.key("workers").list(|json| self.workers.write(json, wish.span, &points));
            let heat = match (&wish.heat, &wish.peer) {
                (Some(name), _) => Some((&self.locations, name)),
                (None, Some(name)) => Some((&self.upstreams, name)),
                (None, None) => None,
            };
            if let Some((table, name)) = heat {
                // A bin is for times below its bound; the last one has none.
                json.key("bins_ns").raws((1..BINS).map(|bin| 1_000u64 << bin));
                json.key("heat").list(|json| table.heat(json, wish.span, &points, name));
            }
        }) + "\n"
    }
}

impl TrafficTable {
    fn write(&self, json: &mut JsonWriter, span: HistorySpan, points: &[SpanPoint]) {
        json.key("series").list(|json| {
            for (name, series) in self.series() {
                json.nested(|json| {
                    json.key("name").text(name);
                    for (key, of) in TRAFFIC {
                        let value = |(number, _): &SpanPoint| match series.at(span, *number) {
                            Some(point) => format!("{:.0}", of(point)),
                            None => "null".to_owned(),
                        };
                        json.key(key).raws(points.iter().map(value));
                    }
                });
            }
        });
        json.key("folded").raw(self.folded());
        for (key, of) in FOLDED {
            json.key(key).raws(points.iter().map(|(number, _)| of(self.folded_at(span, *number))));
        }
    }

    /// Of each point how many requests took how long: of one name, or of all.
    fn heat(&self, json: &mut JsonWriter, span: HistorySpan, points: &[SpanPoint], name: &str) {
        for (number, _) in points {
            let mut sums = [0u64; BINS];
            for (_, series) in self.series().filter(|(of, _)| name.is_empty() || *of == name) {
                let Some(point) = series.at(span, *number) else { continue };
                sums.iter_mut().zip(point.bins).for_each(|(sum, count)| *sum += u64::from(count));
            }
            json.raws(sums);
        }
    }
}

impl WorkerTable {
    fn write(&self, json: &mut JsonWriter, span: HistorySpan, points: &[SpanPoint]) {
        for series in &self.series {
            json.nested(|json| {
                json.key("worker").raw(series.worker);
                for (key, of) in WORKERS {
                    let value = |(number, time): &SpanPoint| match series.has(span, *number) {
                        true => format!(
                            "{:.4}",
                            of(series.points[span as usize].at(*number), time.length_ns as f64)
                        ),
                        false => "null".to_owned(),
                    };
                    json.key(key).raws(points.iter().map(value));
                }
            });
        }
    }
}

/// A key, and the figure of a point.
type TrafficFigure = (&'static str, fn(&TrafficPoint) -> f64);
const TRAFFIC: [TrafficFigure; 8] = [
    ("requests", |point| point.requests.into()),
    ("errors_4xx", |point| point.client_errors.into()),
    ("errors_5xx", |point| point.server_errors.into()),
    ("p50_ns", |point| point.p50_ns.into()),
    ("p99_ns", |point| point.p99_ns.into()),
    ("run_ns", |point| point.run_ns.into()),
    ("wait_ns", |point| point.wait_ns.into()),
    ("bytes_out", |point| point.bytes_out.into()),
];
type FoldedFigure = (&'static str, fn(&FoldedPoint) -> u32);
const FOLDED: [FoldedFigure; 3] = [
    ("folded_requests", |point| point.requests),
    ("folded_errors_4xx", |point| point.client_errors),
    ("folded_errors_5xx", |point| point.server_errors),
];
/// Of a point and its length.
type WorkerFigure = (&'static str, fn(&WorkerPoint, f64) -> f64);
const WORKERS: [WorkerFigure; 7] = [
    ("requests", |point, _| point.requests.into()),
    ("accepted", |point, _| point.accepted.into()),
    ("connections", |point, _| point.connections.into()),
    ("stalls", |point, _| point.stalls.into()),
    ("busy", |point, length| (f64::from(point.busy_ns) / length.max(1.0)).min(1.0)),
    ("cpu", |point, length| f64::from(point.cpu_ns) / length.max(1.0)),
    ("run_queue", |point, length| f64::from(point.run_queue_ns) / length.max(1.0)),
];
