//! `/metrics`: everything that is counted, for Prometheus: its text format 0.0.4, or OpenMetrics 1.0 with exemplars that
//! name a retained request.

mod closes;
mod dealing;
mod handshakes;
mod memory;

use std::collections::HashMap;
use std::fmt::Write;

use weir_engine::figures::{self, MetricKind};
use weir_server::housekeeping;
use weir_trace::{Histogram, Site, SiteInfo, SiteKind, SiteTable, SiteTotals, StatusCounts};

use crate::location_series::SeriesRow;
use crate::source::{BRIEFLY, ServerSource, WorkerThread, scale};
use dealing::{DEALING, DealtCounts, FLOWS, QUIC, WorkerCount};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExpositionFormat {
    /// Prometheus' own, 0.0.4.
    Classic,
    /// OpenMetrics 1.0.
    Open,
}

impl ExpositionFormat {
    /// What an `Accept` field asks for; Prometheus names OpenMetrics first when it can read it.
    pub(crate) fn accepted(accept: &str) -> ExpositionFormat {
        if accept.contains("application/openmetrics-text") {
            ExpositionFormat::Open
        } else {
            ExpositionFormat::Classic
        }
    }

    /// Its media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            ExpositionFormat::Classic => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A retained request as an example of a histogram's bucket.
#[derive(Clone, Copy, Debug)]
struct BucketExemplar {
    id: weir_trace::RequestId,
    total_ns: u64,
    unix_ms: u64,
}

/// Those of the server as a whole, without the hundreds of each location.
pub(crate) fn of_server(source: &ServerSource) -> String {
    let mut out = MetricsWriter { text: String::new(), exposition: ExpositionFormat::Classic };
    workers(&mut out, source);
    blocked(&mut out);
    process(&mut out, source);
    memory::write(&mut out, source);
    modules(&mut out);
    out.text
}

/// All metrics at this moment in Prometheus' text format 0.0.4, for exporters of other kinds.
#[must_use]
pub fn metrics_text(source: &ServerSource) -> String {
    write(source, ExpositionFormat::Classic)
}

/// All metrics at this moment; of stuck workers those, too.
pub(crate) fn write(source: &ServerSource, exposition: ExpositionFormat) -> String {
    let exemplars = match exposition {
        ExpositionFormat::Open => exemplars(source),
        ExpositionFormat::Classic => HashMap::new(),
    };
    let mut out = MetricsWriter { text: String::new(), exposition };
    sites(&mut out, &rows(source), &exemplars);
    workers(&mut out, source);
    blocked(&mut out);
    process(&mut out, source);
    memory::write(&mut out, source);
    out.gauge(
        "weir_metrics_locations_folded",
        "Locations that are counted together, as the location \"other\".",
        [(String::new(), source.location_series().folded() as u64)].into_iter(),
    );
    modules(&mut out);
    if exposition == ExpositionFormat::Open {
        out.text.push_str("# EOF\n");
    }
    out.text
}

/// Retained requests by location, from the workers that respond in time.
fn exemplars(source: &ServerSource) -> HashMap<Site, Vec<BucketExemplar>> {
    let said = source.ask(BRIEFLY, |worker| {
        let recorder = worker.recorder.borrow();
        let kept = recorder.kept().map(|kept| {
            let record = kept.record();
            (record.route, record.id, record.total, record.unix_ms)
        });
        kept.collect::<Vec<_>>()
    });
    let mut all: HashMap<Site, Vec<BucketExemplar>> = HashMap::new();
    for (route, id, total, unix_ms) in said.answers.into_iter().flatten() {
        all.entry(route).or_default().push(BucketExemplar { id, total_ns: scale(total), unix_ms });
    }
    all
}

/// What is counted of all sites, by locations as far as `metrics_locations` has places.
fn rows(source: &ServerSource) -> Vec<SeriesRow> {
    let table = SiteTable::global();
    let sites = source.totals().into_iter().map(|(site, totals)| (site, table.info(site), totals)).collect();
    let most = source.configuration().trace().metrics_locations();
    source.location_series().rows(sites, most)
}

fn sites(out: &mut MetricsWriter, rows: &[SeriesRow], exemplars: &HashMap<Site, Vec<BucketExemplar>>) {
    let routes: Vec<RouteRow<'_>> = rows
        .iter()
        .filter(|row| row.info.kind == SiteKind::Request)
        .map(|row| (format!("location=\"{}\"", escape(&row.info.location)), &row.sites[..], &row.totals))
        .collect();
    let inner: Vec<InnerRow<'_>> = rows
        .iter()
        // What was recorded for a person who asked is no series.
        .filter(|row| !matches!(row.info.kind, SiteKind::Request | SiteKind::Function | SiteKind::File))
        .map(|row| (labels(&row.info), &row.totals))
        .collect();
    routes_time(out, &routes, exemplars);
    inner_time(out, &inner);
    routes_counts(out, &routes);
    inner_counts(out, &inner);
}

/// A location's labels, its site (of several locations theirs) and what it has counted.
type RouteRow<'t> = (String, &'t [Site], &'t SiteTotals);

/// Labels of what is inside of requests, and what it has counted.
type InnerRow<'t> = (String, &'t SiteTotals);

fn routes_time(
    out: &mut MetricsWriter,
    routes: &[RouteRow<'_>],
    exemplars: &HashMap<Site, Vec<BucketExemplar>>,
) {
    let named = |sites: &[Site]| -> Vec<BucketExemplar> {
        sites.iter().filter_map(|site| exemplars.get(site)).flatten().copied().collect()
    };
    out.head("weir_request_duration_seconds", "histogram", "Whole time of requests.");
    for (labels, sites, totals) in routes {
        out.buckets("weir_request_duration_seconds", labels, &totals.total, &named(sites));
    }
    let histograms: [(&str, &str, OfTotals); 2] = [
        ("weir_request_run_seconds", "Time requests ran.", |totals| &totals.run),
        ("weir_request_wait_seconds", "Time requests waited.", |totals| &totals.wait),
    ];
    for (name, help, of) in histograms {
        out.head(name, "histogram", help);
        routes.iter().for_each(|(labels, _, totals)| out.buckets(name, labels, of(totals), &[]));
    }
}

fn inner_time(out: &mut MetricsWriter, inner: &[InnerRow<'_>]) {
    let histograms: [(&str, &str, OfTotals); 2] = [
        ("weir_site_run_seconds", "Run per request in a phase, handler, filter or step.", |totals| {
            &totals.run
        }),
        ("weir_site_wait_seconds", "Wait per request in a phase, handler, filter or step.", |totals| {
            &totals.wait
        }),
    ];
    for (name, help, of) in histograms {
        out.head(name, "histogram", help);
        inner.iter().for_each(|(labels, totals)| out.buckets(name, labels, of(totals), &[]));
    }
}

fn routes_counts(out: &mut MetricsWriter, routes: &[RouteRow<'_>]) {
    out.counter(
        "weir_requests",
        "Requests by status.",
        routes.iter().flat_map(|(labels, _, totals)| statuses(labels, totals)),
    );
    let count = |of: fn(&SiteTotals) -> u64| {
        routes.iter().map(move |(labels, _, totals)| (labels.clone(), of(totals)))
    };
    out.seconds(
        "weir_request_kernel_seconds",
        "CPU time of the kernel to receive, send and accept for requests, besides their run; estimated.",
        count(|t| scale(t.counts.kernel)),
    );
    out.counter(
        "weir_request_bytes_received",
        "Bytes of requests, heads included.",
        count(|t| t.counts.bytes_in),
    );
    out.counter(
        "weir_request_bytes_sent",
        "Bytes of responses, heads included.",
        count(|t| t.counts.bytes_out),
    );
}

fn inner_counts(out: &mut MetricsWriter, inner: &[InnerRow<'_>]) {
    let count =
        |of: fn(&SiteTotals) -> u64| inner.iter().map(move |(labels, totals)| (labels.clone(), of(totals)));
    out.counter("weir_site_calls", "Calls of a handler, filter or step.", count(|t| t.counts.calls));
    out.counter("weir_site_bytes_in", "Bytes into a filter.", count(|t| t.counts.bytes_in));
    out.counter("weir_site_bytes_out", "Bytes out of a filter.", count(|t| t.counts.bytes_out));
    out.counter("weir_site_errors", "Errors noted.", count(|t| t.counts.errors));
}

fn workers(out: &mut MetricsWriter, source: &ServerSource) {
    let all = source.workers();
    let row = |of: fn(&WorkerThread) -> u64| {
        all.iter().map(move |worker| (format!("worker=\"{}\"", worker.recorder.worker()), of(worker)))
    };
    out.counter("weir_connections_accepted", "Connections accepted.", row(|w| w.counters.accepted.get()));
    out.counter("weir_loop_turns", "Turns of the loop.", row(|w| w.stats.snapshot().turns));
    out.counter(
        "weir_loop_accepts_starved",
        "Accepts without a free descriptor.",
        row(|w| w.stats.snapshot().emfile),
    );
    out.counter(
        "weir_loop_receives_starved",
        "Receives without a free buffer.",
        row(|w| w.stats.snapshot().enobufs),
    );
    out.counter("weir_stalls", "Turns of the loop that took too long.", row(|w| w.recorder.stalls().count()));
    out.counter(
        "weir_log_lines_lost",
        "Log lines that could not be written.",
        row(|w| w.counters.log_lost.get()),
    );
    out.seconds("weir_loop_busy_seconds", "Time the loop worked.", row(|w| w.stats.snapshot().busy_ns));
    out.seconds(
        "weir_loop_parked_seconds",
        "Time the loop waited for events.",
        row(|w| w.stats.snapshot().parked_ns),
    );
    out.gauge("weir_connections", "Connections open.", row(|w| w.counters.active.get()));
    out.gauge(
        "weir_connections_idle",
        "Connections that wait for a request.",
        row(|w| w.counters.waiting.get()),
    );
    closes::write(out, &all);
    handshakes::write(out, source);
    dealing(out, &all);
    out.gauge("weir_requests_in_flight", "Requests in flight.", row(|w| w.counters.writing.get()));
    threads(out);
    for (name, help, of) in QUEUES {
        out.head(name, "histogram", help);
        for worker in all.iter() {
            let labels = format!("worker=\"{}\"", worker.recorder.worker());
            out.buckets(name, &labels, &of(&worker.recorder), &[]);
        }
    }
}

/// What the kernel counts of the workers' threads.
fn threads(out: &mut MetricsWriter) {
    let views = housekeeping::handle().workers();
    let thread = |of: fn(&housekeeping::ThreadUse) -> u64| {
        let known = views.iter().filter_map(move |view| Some((view.worker, of(view.thread.as_ref()?))));
        known.map(|(worker, value)| (format!("worker=\"{worker}\""), value))
    };
    out.seconds("weir_worker_cpu_seconds", "CPU time of the thread.", thread(|t| t.cpu_ns));
    out.seconds("weir_worker_run_queue_seconds", "Time ready and without a CPU.", thread(|t| t.run_queue_ns));
    out.counter(
        "weir_worker_switches_voluntary",
        "Context switches because it waited.",
        thread(|t| t.switches_voluntary),
    );
    out.counter(
        "weir_worker_switches_forced",
        "Context switches because its time was over.",
        thread(|t| t.switches_forced),
    );
    out.counter("weir_worker_faults_minor", "Page faults without reading.", thread(|t| t.faults_minor));
    out.counter("weir_worker_faults_major", "Page faults that read from disk.", thread(|t| t.faults_major));
}

/// What each worker counts of one kind.
fn counted<C>(
    out: &mut MetricsWriter,
    all: &[WorkerThread],
    counts: &[WorkerCount<C>],
    kind: fn(&WorkerThread) -> &C,
) {
    for WorkerCount { name, help, of } in counts {
        let rows = all
            .iter()
            .map(|worker| (format!("worker=\"{}\"", worker.recorder.worker()), of(kind(worker)).get()));
        out.counter(name, help, rows);
    }
}

/// Connections between workers.
fn dealing(out: &mut MetricsWriter, all: &[WorkerThread]) {
    for DealtCounts { name, help, is_gauge, of } in DEALING {
        let rows = all.iter().map(|worker| {
            (format!("worker=\"{}\"", worker.recorder.worker()), of(&worker.counters.dealing).get())
        });
        match is_gauge {
            true => out.gauge(name, help, rows),
            false => out.counter(name, help, rows),
        }
    }
    counted(out, all, FLOWS, |worker| &worker.counters.flows);
    counted(out, all, QUIC, |worker| &worker.counters.quic);
    let turns =
        |worker: &WorkerThread| (format!("worker=\"{}\"", worker.recorder.worker()), worker.stats.turn_ns());
    out.seconds_gauge(
        "weir_loop_turn_seconds",
        "How long the turn has taken that the loop is in.",
        all.iter().map(turns),
    );
}

/// Loops that are in a turn longer than allowed, by the request that holds them.
fn blocked(out: &mut MetricsWriter) {
    out.head(
        "weir_worker_blocked_seconds",
        "gauge",
        "How long the turn has taken that blocks the loop, and for whom.",
    );
    for blocked in crate::responses::blocked::now() {
        let labels = format!(
            "worker=\"{}\",request_id=\"{}\",location=\"{}\"",
            blocked.worker,
            blocked.request.map_or(String::new(), |id| id.to_string()),
            escape(&blocked.location)
        );
        out.sample("weir_worker_blocked_seconds", &labels, seconds(blocked.ns));
    }
}

fn process(out: &mut MetricsWriter, source: &ServerSource) {
    let labels = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    out.gauge("weir_build_info", "Version of the program.", [(labels, 1)].into_iter());
    out.gauge(
        "weir_uptime_seconds",
        "Since the server began.",
        [(String::new(), source.uptime().as_secs())].into_iter(),
    );
    let Ok(process) = housekeeping::handle().process() else { return };
    let one = |value: u64| [(String::new(), value)].into_iter();
    out.gauge("process_resident_memory_bytes", "Memory in RAM.", one(process.resident));
    out.gauge("process_virtual_memory_bytes", "Address space.", one(process.virtual_size));
    out.gauge("process_open_fds", "Open descriptors.", one(process.descriptors));
    out.gauge("process_max_fds", "Descriptors there is room for.", one(process.descriptors_limit));
    out.counter("weir_disk_read_bytes", "Bytes read from disk.", one(process.disk_read));
    out.counter("weir_disk_written_bytes", "Bytes written to disk.", one(process.disk_written));
}

/// What modules have of their own.
fn modules(out: &mut MetricsWriter) {
    for metric in figures::metrics() {
        let rows = metric.rows.into_iter().map(|(labels, value)| {
            let pairs: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
            (pairs.join(","), value)
        });
        match metric.kind {
            MetricKind::Counter => out.counter(metric.name, metric.help, rows),
            MetricKind::Time => out.seconds(metric.name, metric.help, rows),
            MetricKind::Gauge => out.gauge(metric.name, metric.help, rows),
        }
    }
}

/// Metrics that are being written.
struct MetricsWriter {
    text: String,
    exposition: ExpositionFormat,
}

impl MetricsWriter {
    /// A counter; its samples end in `_total` in both forms.
    fn counter(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (String, u64)>) {
        self.counter_of(name, help, rows.map(|(labels, value)| (labels, value.to_string())));
    }

    /// A counter of nanoseconds, as seconds.
    fn seconds(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (String, u64)>) {
        self.counter_of(name, help, rows.map(|(labels, ns)| (labels, seconds(ns))));
    }

    fn counter_of(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (String, String)>) {
        let sample = format!("{name}_total");
        self.head(if self.exposition == ExpositionFormat::Open { name } else { &sample }, "counter", help);
        rows.for_each(|(labels, value)| self.sample(&sample, &labels, value));
    }

    fn gauge(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (String, u64)>) {
        self.head(name, "gauge", help);
        rows.for_each(|(labels, value)| self.sample(name, &labels, value.to_string()));
    }

    /// A gauge of nanoseconds, as seconds.
    fn seconds_gauge(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (String, u64)>) {
        self.head(name, "gauge", help);
        rows.for_each(|(labels, ns)| self.sample(name, &labels, seconds(ns)));
    }

    fn sample(&mut self, name: &str, labels: &str, value: String) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            _ => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    /// Cumulative counts for all bounds, then the sum and the count. A value is counted under the first bound it is not
    /// above; where a bucket of ours straddles a bound it counts under the next, which misplaces a value by at most 1/16
    /// of itself.
    fn buckets(&mut self, name: &str, labels: &str, histogram: &Histogram, exemplars: &[BucketExemplar]) {
        if histogram.count() == 0 {
            return;
        }
        let mut buckets = histogram.buckets().peekable();
        let (mut seen, mut below) = (0, 0);
        for (bound, text) in BOUNDS {
            while let Some((_, count)) = buckets.next_if(|&(high, _)| scale(high) <= bound) {
                seen += count;
            }
            let example = exemplar(exemplars, below, bound);
            self.line(format_args!("{name}_bucket{{{labels},le=\"{text}\"}} {seen}{example}"));
            below = bound;
        }
        let example = exemplar(exemplars, below, u64::MAX);
        self.line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}{example}", histogram.count()));
        self.line(format_args!("{name}_sum{{{labels}}} {}", seconds(scale(histogram.sum()))));
        self.line(format_args!("{name}_count{{{labels}}} {}", histogram.count()));
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a String does not fail");
    }
}

/// The latest example above `below` and up to `bound`, as it is after a bucket.
fn exemplar(exemplars: &[BucketExemplar], below: u64, bound: u64) -> String {
    let inside = exemplars.iter().filter(|exemplar| exemplar.total_ns > below && exemplar.total_ns <= bound);
    inside.max_by_key(|exemplar| exemplar.unix_ms).map_or(String::new(), |exemplar| {
        let at = format!("{}.{:03}", exemplar.unix_ms / 1000, exemplar.unix_ms % 1000);
        format!(" # {{request_id=\"{}\"}} {} {at}", exemplar.id, seconds(exemplar.total_ns))
    })
}

/// One row a class, those codes apart that are counted by themselves.
fn statuses(labels: &str, totals: &SiteTotals) -> Vec<(String, u64)> {
    let Some(status) = &totals.status else { return Vec::new() };
    let mut classes = status.classes;
    let mut rows = Vec::new();
    for (code, count) in StatusCounts::NAMED.iter().zip(status.named) {
        let class = &mut classes[usize::from(code / 100)];
        *class = class.saturating_sub(count);
        rows.push((format!("{labels},status=\"{code}\""), count));
    }
    for (name, count) in ["none", "1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(classes) {
        rows.push((format!("{labels},status=\"{name}\""), count));
    }
    rows.retain(|(_, count)| *count > 0);
    rows
}

/// The label pairs of a site; the same names for all, as one metric's series should have.
fn labels(info: &SiteInfo) -> String {
    let (kind, phase) = (info.kind.as_str(), info.phase.unwrap_or(""));
    let (location, name) = (escape(&info.location), escape(&info.name));
    format!("kind=\"{kind}\",phase=\"{phase}\",location=\"{location}\",name=\"{name}\"")
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

type OfTotals = fn(&SiteTotals) -> &Histogram;
type OfReader = fn(&weir_trace::RecorderReader) -> Histogram;
const QUEUES: [(&str, &str, OfReader); 2] = [
    (
        "weir_accept_queue_seconds",
        "How long connections waited to be accepted; not all are asked.",
        weir_trace::RecorderReader::accept_waits,
    ),
    (
        "weir_receive_queue_seconds",
        "How long requests waited in their sockets, where the loop was late.",
        weir_trace::RecorderReader::receive_waits,
    ),
];
/// Upper bounds in nanoseconds, and as seconds: 1, 2.5 and 5 in each decade from a microsecond to ten seconds.
const BOUNDS: [(u64, &str); 22] = [
    (1_000, "0.000001"),
    (2_500, "0.0000025"),
    (5_000, "0.000005"),
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn out(exposition: ExpositionFormat) -> MetricsWriter {
        MetricsWriter { text: String::new(), exposition }
    }

    #[test]
    fn counters_are_named_as_each_form_wants() {
        let rows = || [("a=\"b\"".to_owned(), 3)].into_iter();
        let mut classic = out(ExpositionFormat::Classic);
        classic.counter("weir_x", "Text.", rows());
        assert_eq!(
            classic.text,
            "# HELP weir_x_total Text.\n# TYPE weir_x_total counter\nweir_x_total{a=\"b\"} 3\n"
        );
        let mut open = out(ExpositionFormat::Open);
        open.counter("weir_x", "Text.", rows());
        assert_eq!(open.text, "# HELP weir_x Text.\n# TYPE weir_x counter\nweir_x_total{a=\"b\"} 3\n");
    }

    #[test]
    fn an_example_stands_behind_its_bucket() {
        let id = weir_trace::RequestId(0xab);
        let examples = [BucketExemplar { id, total_ns: 90_000_000, unix_ms: 1_700_000_000_123 }];
        let mut histogram = Histogram::new();
        histogram.record(crate::source::ticks(90_000_000));
        let mut open = out(ExpositionFormat::Open);
        open.buckets("weir_x", "a=\"b\"", &histogram, &examples);
        let lines: Vec<&str> = open.text.lines().filter(|line| line.contains('#')).collect();
        let id = "0".repeat(30) + "ab";
        assert_eq!(
            lines,
            [format!(
                "weir_x_bucket{{a=\"b\",le=\"0.1\"}} 1 # {{request_id=\"{id}\"}} 0.090000000 1700000000.123"
            )]
        );
        assert!(open.text.ends_with("weir_x_count{a=\"b\"} 1\n"), "{}", open.text);
    }

    #[test]
    fn buckets_are_cumulative() {
        let mut histogram = Histogram::new();
        [5_000, 5_000, 40_000, 20_000_000_000]
            .into_iter()
            .for_each(|ns| histogram.record(crate::source::ticks(ns)));
        let mut classic = out(ExpositionFormat::Classic);
        classic.buckets("weir_x", "a=\"b\"", &histogram, &[]);
        for (bound, count) in [("0.0000025", 0), ("0.00001", 2), ("0.00005", 3), ("10.0", 3), ("+Inf", 4)] {
            let line = format!("weir_x_bucket{{a=\"b\",le=\"{bound}\"}} {count}\n");
            assert!(classic.text.contains(&line), "{line} in {}", classic.text);
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("~ \"a\\d\"\n"), "~ \\\"a\\\\d\\\"\\n");
        assert_eq!(
            ExpositionFormat::accepted("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
            ExpositionFormat::Open
        );
        assert_eq!(ExpositionFormat::accepted("*/*"), ExpositionFormat::Classic);
    }
}
