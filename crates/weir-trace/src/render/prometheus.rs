//! Prometheus' text format, version 0.0.4: classic histograms in seconds.

use std::fmt::Write;

use super::Scale;
use crate::histogram::Histogram;
use crate::live::{SiteTotals, StatusCounts};
use crate::site::{Kind, Site, SiteInfo, SiteTable};

/// The histograms and counts of sites, as from [`RecorderReader::merged`](crate::RecorderReader::merged).
///
/// A value is counted under the first bound it is not above; where a bucket of ours straddles a bound it counts under
/// the next, which misplaces a value by at most 1/16 of itself.
#[must_use]
pub fn prometheus(totals: &[(Site, SiteTotals)], sites: &SiteTable, scale: Scale<'_>) -> String {
    let labelled: Vec<(String, Kind, &SiteTotals)> = totals
        .iter()
        .map(|(site, totals)| {
            let info = sites.info(*site);
            (labels(&info), info.kind, totals)
        })
        .collect();
    let of_sites = || labelled.iter().filter(|(_, kind, _)| *kind != Kind::Request);
    let of_routes = || labelled.iter().filter(|(_, kind, _)| *kind == Kind::Request);
    let mut out = Out { text: String::new(), scale };
    out.histogram("weir_request_seconds", "Whole time of requests.", of_routes().map(|s| (&s.0, &s.2.total)));
    out.histogram("weir_request_run_seconds", "Time requests ran.", of_routes().map(|s| (&s.0, &s.2.run)));
    out.histogram(
        "weir_request_wait_seconds",
        "Time requests waited.",
        of_routes().map(|s| (&s.0, &s.2.wait)),
    );
    out.histogram("weir_site_run_seconds", "Run per request and site.", of_sites().map(|s| (&s.0, &s.2.run)));
    out.histogram(
        "weir_site_wait_seconds",
        "Wait per request and site.",
        of_sites().map(|s| (&s.0, &s.2.wait)),
    );
    out.counter("weir_site_calls_total", "Calls of a site.", of_sites().map(|s| (&s.0, s.2.counts.calls)));
    out.counter(
        "weir_site_bytes_in_total",
        "Bytes in.",
        labelled.iter().map(|s| (&s.0, s.2.counts.bytes_in)),
    );
    out.counter(
        "weir_site_bytes_out_total",
        "Bytes out.",
        labelled.iter().map(|s| (&s.0, s.2.counts.bytes_out)),
    );
    out.counter("weir_site_errors_total", "Errors.", of_sites().map(|s| (&s.0, s.2.counts.errors)));
    let statuses: Vec<(String, u64)> = of_routes().flat_map(|s| status_rows(&s.0, s.2)).collect();
    out.counter(
        "weir_requests_total",
        "Requests by status.",
        statuses.iter().map(|(labels, n)| (labels, *n)),
    );
    out.text
}

struct Out<'a> {
    text: String,
    scale: Scale<'a>,
}

impl Out<'_> {
    fn histogram<'h>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = (&'h String, &'h Histogram)>,
    ) {
        self.head(name, help, "histogram");
        for (labels, histogram) in rows.filter(|(_, histogram)| histogram.count() > 0) {
            self.buckets(name, labels, histogram);
        }
    }

    /// Cumulative counts for all bounds, then the sum and the count.
    fn buckets(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let mut buckets = histogram.buckets().peekable();
        let mut seen = 0;
        for (bound, text) in BOUNDS {
            while let Some((_, count)) = buckets.next_if(|&(high, _)| (self.scale)(high) <= bound) {
                seen += count;
            }
            self.line(format_args!("{name}_bucket{{{labels},le=\"{text}\"}} {seen}"));
        }
        self.line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", histogram.count()));
        let sum = (self.scale)(histogram.sum());
        self.line(format_args!("{name}_sum{{{labels}}} {}.{:09}", sum / 1_000_000_000, sum % 1_000_000_000));
        self.line(format_args!("{name}_count{{{labels}}} {}", histogram.count()));
    }

    fn counter<'c>(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (&'c String, u64)>) {
        self.head(name, help, "counter");
        for (labels, count) in rows.filter(|&(_, count)| count > 0) {
            self.line(format_args!("{name}{{{labels}}} {count}"));
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a String does not fail");
    }
}

/// One row a class, those codes apart that are counted by themselves.
fn status_rows(labels: &str, totals: &SiteTotals) -> Vec<(String, u64)> {
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
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];
