//! Metrics as OTLP has them (`opentelemetry/proto/collector/metrics/v1/metrics_service.proto` and
//! `metrics/v1/metrics.proto`), made of the text of `/metrics`: the two are the same figures, by construction.

use std::collections::BTreeMap;

use weir_trace::protobuf::ProtobufMessage;

use super::wire::{self, AttributeValue};

/// When the figures began to be counted, and when they were read, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricTimes {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// `ExportMetricsServiceRequest` of the metrics in `text`, which is in Prometheus' format 0.0.4.
pub(super) fn request(text: &str, resource: &[(String, String)], times: MetricTimes) -> Vec<u8> {
    let mut metrics = ProtobufMessage::default();
    for family in families(text) {
        if let Some(metric) = family.metric(times) {
            metrics.message(2, metric);
        }
    }
    wire::whole(resource, metrics)
}

/// A metric with all its series.
#[derive(Debug, Default)]
struct MetricText<'t> {
    name: &'t str,
    kind: &'t str,
    help: &'t str,
    samples: Vec<MetricSample<'t>>,
}

/// A line of a metric.
#[derive(Debug)]
struct MetricSample<'t> {
    /// The metric's name, with what a histogram's line adds.
    name: &'t str,
    labels: MetricLabels,
    value: &'t str,
}

/// Names and values of a series, in the order in which they are written.
type MetricLabels = Vec<(String, String)>;

fn families(text: &str) -> Vec<MetricText<'_>> {
    let mut all: Vec<MetricText<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            all.push(MetricText { name, help, ..MetricText::default() });
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            if let Some(last) = all.last_mut() {
                last.kind = kind;
            }
        } else if let (Some(sample), Some(last)) = (sample(line), all.last_mut()) {
            last.samples.push(sample);
        }
    }
    all
}

/// `name{label="value",...} value`; `None` for what is no sample.
fn sample(line: &str) -> Option<MetricSample<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let Some((name, rest)) = series.split_once('{') else {
        return Some(MetricSample { name: series, labels: Vec::new(), value });
    };
    Some(MetricSample { name, labels: labels(rest.strip_suffix('}')?), value })
}

fn labels(text: &str) -> MetricLabels {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after.char_indices();
        let mut end = after.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => value.extend(chars.next().map(|(_, c)| if c == 'n' { '\n' } else { c })),
                c => value.push(c),
            }
        }
        found.push((name.to_owned(), value));
        rest = after[end..].trim_start_matches(',');
    }
    found
}

impl MetricText<'_> {
    /// `Metric`; `None` without series.
    fn metric(&self, times: MetricTimes) -> Option<ProtobufMessage> {
        if self.samples.is_empty() {
            return None;
        }
        // The suffix is Prometheus': OpenTelemetry says by the type that it is a sum.
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let mut metric = ProtobufMessage::default();
        metric.bytes(1, name.as_bytes());
        metric.bytes(2, self.help.as_bytes());
        metric.bytes(3, unit(name).as_bytes());
        match self.kind {
            "histogram" => metric.message(9, self.histogram(times)),
            "counter" => metric.message(7, self.sum(times)),
            _ => metric.message(5, self.points(times)),
        }
        Some(metric)
    }

    /// `Sum`
    fn sum(&self, times: MetricTimes) -> ProtobufMessage {
        let mut sum = self.points(times);
        sum.number(2, CUMULATIVE);
        sum.number(3, 1);
        sum
    }

    /// `Gauge`, and the beginning of `Sum`: `NumberDataPoint`s.
    fn points(&self, times: MetricTimes) -> ProtobufMessage {
        let mut points = ProtobufMessage::default();
        for sample in &self.samples {
            let mut point = ProtobufMessage::default();
            point.fixed(2, times.start);
            point.fixed(3, times.now);
            match sample.value.parse::<i64>() {
                Ok(whole) => point.fixed(6, whole as u64),
                Err(_) => point.fixed(4, sample.value.parse::<f64>().unwrap_or(0.0).to_bits()),
            }
            attributes(&mut point, 7, &sample.labels);
            points.message(1, point);
        }
        points
    }

    /// `Histogram`
    fn histogram(&self, times: MetricTimes) -> ProtobufMessage {
        let mut histogram = ProtobufMessage::default();
        for (labels, series) in self.series() {
            histogram.message(1, series.point(&labels, times));
        }
        histogram.number(2, CUMULATIVE);
        histogram
    }

    /// The lines of a histogram, by their labels without the bound.
    fn series(&self) -> BTreeMap<MetricLabels, HistogramSeries> {
        let mut all = BTreeMap::<MetricLabels, HistogramSeries>::new();
        for sample in &self.samples {
            let (bound, labels): (Vec<_>, Vec<_>) =
                sample.labels.iter().cloned().partition(|(name, _)| name == "le");
            let series = all.entry(labels).or_default();
            match sample.name.strip_prefix(self.name) {
                Some("_bucket") => series.buckets.push((
                    bound.first().map_or(f64::INFINITY, |(_, text)| text.parse().unwrap_or(f64::INFINITY)),
                    sample.value.parse().unwrap_or(0),
                )),
                Some("_sum") => series.sum = sample.value.parse().unwrap_or(0.0),
                Some("_count") => series.count = sample.value.parse().unwrap_or(0),
                _ => {}
            }
        }
        all
    }
}

/// One series of a histogram: cumulative counts by their bounds, as Prometheus has them.
#[derive(Debug, Default)]
struct HistogramSeries {
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

impl HistogramSeries {
    /// `HistogramDataPoint`: counts of each bucket by itself; the last has no bound.
    fn point(&self, labels: &MetricLabels, times: MetricTimes) -> ProtobufMessage {
        let (mut counts, mut bounds, mut below) = (Vec::new(), Vec::new(), 0);
        for (bound, count) in &self.buckets {
            counts.extend_from_slice(&count.saturating_sub(below).to_le_bytes());
            below = *count;
            if bound.is_finite() {
                bounds.extend_from_slice(&bound.to_le_bytes());
            }
        }
        let mut point = ProtobufMessage::default();
        point.fixed(2, times.start);
        point.fixed(3, times.now);
        point.fixed(4, self.count);
        point.fixed(5, self.sum.to_bits());
        point.bytes(6, &counts);
        point.bytes(7, &bounds);
        attributes(&mut point, 9, labels);
        point
    }
}

fn attributes(point: &mut ProtobufMessage, field: u32, labels: &MetricLabels) {
    for (name, value) in labels {
        let value = AttributeValue::Text(value.clone().into_bytes());
        point.message(field, wire::pair(name.as_bytes(), value));
    }
}

/// The unit in UCUM's words, by the name.
fn unit(name: &str) -> &'static str {
    match name {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") || name.contains("_bytes_") => "By",
        _ => "1",
    }
}

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::protobuf::{self, ProtobufField};

    type Fields<'m> = Vec<(u64, ProtobufField<'m>)>;

    fn all<'m>(fields: &Fields<'m>, number: u64) -> Vec<ProtobufField<'m>> {
        fields.iter().filter(|(field, _)| *field == number).map(|(_, value)| *value).collect()
    }

    fn inside<'m>(fields: &Fields<'m>, number: u64) -> Fields<'m> {
        all(fields, number)[0].fields().expect("a message")
    }

    const TEXT: &str = "# HELP weir_requests_total Requests by status.\n# TYPE weir_requests_total counter\n\
        weir_requests_total{location=\"~ \\\"a\\\\d\\\"\",status=\"2xx\"} 7\n\
        # HELP weir_connections Connections open.\n# TYPE weir_connections gauge\nweir_connections 3\n\
        # HELP weir_x_seconds Time.\n# TYPE weir_x_seconds histogram\n\
        weir_x_seconds_bucket{a=\"b\",le=\"0.1\"} 2\nweir_x_seconds_bucket{a=\"b\",le=\"1.0\"} 5\n\
        weir_x_seconds_bucket{a=\"b\",le=\"+Inf\"} 6\nweir_x_seconds_sum{a=\"b\"} 4.500000000\nweir_x_seconds_count{a=\"b\"} 6\n\
        # HELP weir_none Nothing.\n# TYPE weir_none gauge\n";

    fn metrics(bytes: &[u8]) -> Vec<Fields<'_>> {
        let scoped = inside(&inside(&protobuf::read(bytes).expect("a message"), 1), 2);
        all(&scoped, 2).into_iter().map(|metric| metric.fields().expect("a metric")).collect()
    }

    #[test]
    fn the_text_s_metrics_are_those_of_the_message() {
        let resource = [("service.name".to_owned(), "shop".to_owned())];
        let bytes = request(TEXT, &resource, MetricTimes { start: 5, now: 9 });
        let all_metrics = metrics(&bytes);
        let name = |metric: &Fields<'_>| {
            String::from_utf8_lossy(all(metric, 1)[0].bytes().expect("a name")).into_owned()
        };
        let names: Vec<String> = all_metrics.iter().map(name).collect();
        assert_eq!(names, ["weir_requests", "weir_connections", "weir_x_seconds"]);
        let sum = inside(&all_metrics[0], 7);
        assert_eq!(all(&sum, 2), [ProtobufField::Number(CUMULATIVE)]);
        assert_eq!(all(&sum, 3), [ProtobufField::Number(1)], "it only grows");
        let point = inside(&sum, 1);
        assert_eq!(all(&point, 6), [ProtobufField::Number(7)]);
        assert_eq!(
            (all(&point, 2), all(&point, 3)),
            (vec![ProtobufField::Number(5)], vec![ProtobufField::Number(9)])
        );
        let label = inside(&point, 7);
        assert_eq!(all(&label, 1), [ProtobufField::Bytes(b"location")]);
        assert_eq!(all(&inside(&label, 2), 1), [ProtobufField::Bytes(b"~ \"a\\d\"")]);
        let gauge = inside(&inside(&all_metrics[1], 5), 1);
        assert_eq!(all(&gauge, 6), [ProtobufField::Number(3)]);
    }

    #[test]
    fn buckets_are_counted_by_themselves() {
        let bytes = request(TEXT, &[], MetricTimes { start: 5, now: 9 });
        let all_metrics = metrics(&bytes);
        assert_eq!(all(&all_metrics[2], 3), [ProtobufField::Bytes(b"s")]);
        let point = inside(&inside(&all_metrics[2], 9), 1);
        let numbers = |field: u64| -> Vec<u64> {
            let bytes = all(&point, field)[0].bytes().expect("packed");
            bytes.chunks(8).map(|eight| u64::from_le_bytes(eight.try_into().expect("eight"))).collect()
        };
        assert_eq!(numbers(6), [2, 3, 1]);
        assert_eq!(numbers(7), [0.1_f64.to_bits(), 1.0_f64.to_bits()]);
        assert_eq!(all(&point, 4), [ProtobufField::Number(6)]);
        assert_eq!(all(&point, 5), [ProtobufField::Number(4.5_f64.to_bits())]);
        assert_eq!(all(&point, 9).len(), 1, "the bound is no attribute");
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        for line in ["", "# EOF", "a{b=\"c\"", "a"] {
            assert!(sample(line).is_none(), "{line}");
        }
        assert_eq!(
            labels("a=\"\\n,b=\\\"c\\\"\",d=\"e\""),
            [("a".to_owned(), "\n,b=\"c\"".to_owned()), ("d".to_owned(), "e".to_owned())]
        );
        assert_eq!(labels("a=\"cut"), [("a".to_owned(), "cut".to_owned())]);
    }
}
