//! Requests as OTLP has them (opentelemetry-proto 1.x, `opentelemetry/proto/collector/trace/v1/trace_service.proto` and
//! `trace/v1/trace.proto`), encoded as protocol buffers.

use std::ops::Range;

use weir_rt::clock::{self, ClockMoment};
use weir_trace::KeptRequest;
use weir_trace::protobuf::{self, ProtobufMessage};

use super::span::{SpanSort, SpanStretch, stretches};

/// A request that is over, to be exported.
pub(super) struct FinishedRequest {
    /// The trace id.
    pub trace: u128,
    /// The span id of the request.
    pub span: u64,
    /// The span id of the caller's; `None`: the trace begins here.
    pub parent: Option<u64>,
    /// `tracestate`, the field's value; empty without it.
    pub state: Vec<u8>,
    /// The span's name.
    pub name: Vec<u8>,
    /// Attributes of the span: name and value.
    pub attributes: Vec<(Vec<u8>, AttributeValue)>,
    /// The record and trace of the request.
    pub kept: KeptRequest,
    /// When its record was made.
    pub ended: ClockMoment,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttributeValue {
    Text(Vec<u8>),
    Number(u64),
}

/// `ExportTraceServiceRequest`: spans of many requests, of one service.
#[derive(Default)]
pub(super) struct SpanBatch {
    spans: ProtobufMessage,
    /// How many there are.
    pub count: usize,
}

impl SpanBatch {
    /// Adds the spans of a request.
    pub(super) fn push(&mut self, finished: &FinishedRequest) {
        let record = finished.kept.record();
        let when = |ticks: u64| finished.ended.unix_ns(ticks);
        // Of requests whose boundaries were not recorded there is no more than the wall clock.
        let start = if record.start == 0 { record.unix_ms * 1_000_000 } else { when(record.start) };
        let end = if record.start == 0 {
            finished.ended.unix_ns.max(start)
        } else {
            when(record.start + record.total)
        };
        let mut span = SpanWriter::new(finished.trace, finished.span, finished.parent, &finished.state);
        span.about(&finished.name, SERVER, start..end);
        for (key, value) in &finished.attributes {
            span.attribute(key, value.clone());
        }
        if record.status >= 500 {
            span.failed(record.cause.as_str());
        }
        self.add(span);
        let found = stretches(&finished.kept);
        for (at, stretch) in found.iter().enumerate() {
            let holds = found.iter().any(|other| other.parent == Some(at));
            if stretch.start < stretch.end || holds {
                self.stretch(finished, at, stretch, when(stretch.start)..when(stretch.end));
            }
        }
    }

    fn stretch(&mut self, finished: &FinishedRequest, at: usize, stretch: &SpanStretch, times: Range<u64>) {
        let parent = stretch.parent.map_or(finished.span, |parent| number(finished.span, parent));
        let mut span = SpanWriter::new(finished.trace, number(finished.span, at), Some(parent), b"");
        let (sort, names) = match stretch.sort {
            SpanSort::Phase(_) => (INTERNAL, "weir.handlers"),
            SpanSort::Try => (CLIENT, "net.peer.name"),
        };
        span.about(stretch.name.as_bytes(), sort, times);
        span.attribute(names.as_bytes(), AttributeValue::Text(stretch.names.join(" ").into_bytes()));
        let scale = clock::scale();
        span.attribute(b"weir.run_ns", AttributeValue::Number(scale.ticks_to_ns(stretch.run)));
        for (kind, ticks) in &stretch.waits {
            let key = format!("weir.wait.{}_ns", kind.as_str());
            span.attribute(key.as_bytes(), AttributeValue::Number(scale.ticks_to_ns(*ticks)));
        }
        if let Some(code) = stretch.failed {
            span.failed(&format!("error {code}"));
        }
        self.add(span);
    }

    fn add(&mut self, span: SpanWriter) {
        self.spans.message(2, span.0);
        self.count += 1;
    }

    /// The whole message, of the service with these attributes.
    pub(super) fn finish(self, resource: &[(String, String)]) -> Vec<u8> {
        whole(resource, self.spans)
    }
}

/// A request of one resource and one scope, whose fields from 2 on are `scoped`: spans and metrics are wrapped alike.
pub(super) fn whole(resource: &[(String, String)], scoped: ProtobufMessage) -> Vec<u8> {
    let mut about = ProtobufMessage::default();
    for (key, value) in resource {
        about.message(1, pair(key.as_bytes(), AttributeValue::Text(value.clone().into_bytes())));
    }
    let mut scope = ProtobufMessage::default();
    scope.bytes(1, b"weir");
    scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut inside = ProtobufMessage::default();
    inside.message(1, scope);
    inside.0.extend_from_slice(&scoped.0);
    let mut all = ProtobufMessage::default();
    all.message(1, about);
    all.message(2, inside);
    let mut request = ProtobufMessage::default();
    request.message(1, all);
    request.0
}

/// A `Span` that is being written.
struct SpanWriter(ProtobufMessage);

impl SpanWriter {
    /// Fields are written in the order of their numbers, as all writers do.
    fn new(trace: u128, number: u64, parent: Option<u64>, state: &[u8]) -> SpanWriter {
        let mut span = ProtobufMessage::default();
        span.bytes(1, &trace.to_be_bytes());
        span.bytes(2, &number.to_be_bytes());
        if !state.is_empty() {
            text(&mut span, 3, state);
        }
        if let Some(parent) = parent {
            span.bytes(4, &parent.to_be_bytes());
        }
        SpanWriter(span)
    }

    /// `times`: nanoseconds since 1970.
    fn about(&mut self, name: &[u8], sort: u64, times: Range<u64>) {
        text(&mut self.0, 5, name);
        self.0.number(6, sort);
        self.0.fixed(7, times.start);
        self.0.fixed(8, times.end);
    }

    fn attribute(&mut self, key: &[u8], value: AttributeValue) {
        self.0.message(9, pair(key, value));
    }

    fn failed(&mut self, why: &str) {
        let mut status = ProtobufMessage::default();
        status.bytes(2, why.as_bytes());
        status.number(3, ERROR);
        self.0.message(15, status);
    }
}

/// A text, which protocol buffers want to be UTF-8.
fn text(message: &mut ProtobufMessage, field: u32, text: &[u8]) {
    message.bytes(field, String::from_utf8_lossy(text).as_bytes());
}

/// `KeyValue`
pub(super) fn pair(key: &[u8], value: AttributeValue) -> ProtobufMessage {
    let mut any = ProtobufMessage::default();
    match value {
        AttributeValue::Text(value) => text(&mut any, 1, &value),
        AttributeValue::Number(number) => any.chosen(3, number),
    }
    let mut pair = ProtobufMessage::default();
    text(&mut pair, 1, key);
    pair.message(2, any);
    pair
}

/// The number of stretch `at` of the request with number `span`: no two alike, and none 0.
fn number(span: u64, at: usize) -> u64 {
    // The finaliser of splitmix64 is a bijection, and so is adding.
    let mut n = span.wrapping_add((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (n ^ n >> 31).max(1)
}

/// Spans that were refused, and why, of an `ExportTraceServiceResponse` (its `partial_success`).
pub(super) fn refused(answer: &[u8]) -> Option<(u64, String)> {
    let partial = protobuf::read(answer)?.into_iter().find(|(number, _)| *number == 1)?.1.fields()?;
    let count = partial.iter().find_map(|(number, field)| field.number().filter(|_| *number == 1))?;
    let why = partial.iter().find_map(|(number, field)| field.bytes().filter(|_| *number == 2));
    Some((count, String::from_utf8_lossy(why.unwrap_or_default()).into_owned())).filter(|_| count > 0)
}

/// `Span.SpanKind`
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// `Status.StatusCode`
const ERROR: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::protobuf::ProtobufField;
    use weir_trace::{KeepReason, RequestRecord, Trace};

    fn of<'m>(fields: &[(u64, ProtobufField<'m>)], number: u64) -> Vec<ProtobufField<'m>> {
        fields.iter().filter(|(field, _)| *field == number).map(|(_, value)| *value).collect()
    }

    fn inside<'m>(fields: &[(u64, ProtobufField<'m>)], number: u64) -> Vec<(u64, ProtobufField<'m>)> {
        of(fields, number)[0].fields().expect("a message")
    }

    #[test]
    fn a_request_is_a_span_of_its_service() {
        let record = RequestRecord { status: 502, unix_ms: 5, ..RequestRecord::default() };
        let finished = FinishedRequest {
            trace: 7,
            span: 8,
            parent: Some(9),
            state: b"a=b".to_vec(),
            name: b"/\xff".to_vec(),
            attributes: vec![(b"http.status_code".to_vec(), AttributeValue::Number(502))],
            kept: KeptRequest::new(KeepReason::Asked, &record, &Trace::new()),
            ended: ClockMoment { ticks: 0, unix_ns: 6_000_000 },
        };
        let mut batch = SpanBatch::default();
        batch.push(&finished);
        assert_eq!(batch.count, 1);
        let bytes = batch.finish(&[("service.name".to_owned(), "shop".to_owned())]);
        let all = inside(&protobuf::read(&bytes).expect("a message"), 1);
        let name = inside(&inside(&all, 1), 1);
        assert_eq!(of(&name, 1), [ProtobufField::Bytes(b"service.name")]);
        assert_eq!(of(&inside(&name, 2), 1), [ProtobufField::Bytes(b"shop")]);
        let span = inside(&inside(&all, 2), 2);
        assert_eq!(of(&span, 1), [ProtobufField::Bytes(&7_u128.to_be_bytes())]);
        assert_eq!(of(&span, 4), [ProtobufField::Bytes(&9_u64.to_be_bytes())]);
        assert_eq!(of(&span, 5), [ProtobufField::Bytes("/\u{fffd}".as_bytes())]);
        assert_eq!(
            (of(&span, 7), of(&span, 8)),
            (vec![ProtobufField::Number(5_000_000)], vec![ProtobufField::Number(6_000_000)])
        );
        assert_eq!(of(&inside(&inside(&span, 9), 2), 3), [ProtobufField::Number(502)]);
        assert_eq!(of(&inside(&span, 15), 3), [ProtobufField::Number(ERROR)]);
    }

    #[test]
    fn what_a_collector_refuses_is_read() {
        let mut partial = ProtobufMessage::default();
        partial.number(1, 3);
        partial.bytes(2, b"full");
        let mut answer = ProtobufMessage::default();
        answer.message(1, partial);
        assert_eq!(refused(&answer.0), Some((3, "full".to_owned())));
        assert_eq!((refused(b""), refused(b"\x0a\x00"), refused(b"{}")), (None, None, None));
    }

    #[test]
    fn numbers_differ() {
        let all: std::collections::HashSet<u64> =
            (0..4).flat_map(|span| (0..128).map(move |at| number(span, at))).collect();
        assert_eq!(all.len(), 512);
    }
}
