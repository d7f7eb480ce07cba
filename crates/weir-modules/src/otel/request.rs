//! What a request is exported as: decided in its rewrite phase, handed over in its log phase.

use std::sync::Arc;

use weir_engine::exchange::FieldPattern;
use weir_engine::phase::Handler;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::{Exchange, Text, Verdict};
use weir_http::{TraceParent, Version};
use weir_rt::clock::ClockMoment;

use super::TraceContextMode;
use super::exporter::SpanExporter;
use super::wire::{AttributeValue, FinishedRequest};

/// The settings of a location.
pub(super) struct OtelLocation {
    /// Whether requests are exported, a text with variables; `None`: never.
    pub trace: Option<ValueScript>,
    /// What becomes of `traceparent` in the request.
    pub context: TraceContextMode,
    /// The name of the span; `None`: the location's.
    pub name: Option<ValueScript>,
    /// Attributes of the span: name and value.
    pub attributes: Vec<(String, ValueScript)>,
    /// Where spans go; `None` without `otel_exporter`.
    pub exporter: Option<Arc<SpanExporter>>,
}

/// What was decided.
#[derive(Clone, Copy, Default)]
struct OtelState {
    trace: u128,
    span: u64,
    parent: Option<TraceParent>,
    /// It is exported.
    on: bool,
}

/// The rewrite phase: which trace the request belongs to, and whether it is exported.
pub(super) struct BeginSpan(pub Arc<OtelLocation>);

impl Handler for BeginSpan {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Pass
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.is_subrequest() && known(x).is_none() {
            self.0.begin(x);
        }
        Verdict::Declined
    }
}

/// The log phase: the request is handed over.
pub(super) struct EndSpan(pub Arc<OtelLocation>);

impl Handler for EndSpan {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Pass
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.is_subrequest()
            && let Some(state) = known(x)
            && state.on
        {
            self.0.end(x, state);
        }
        Verdict::Declined
    }
}

impl OtelLocation {
    fn begin(&self, x: &mut Exchange) {
        let on = self.trace.as_ref().is_some_and(|trace| {
            let value = trace.value(x);
            matches!(x.text(&value), b"on" | b"1" | b"true")
        });
        let said = caller(x);
        let parent = said.filter(|_| self.context.extracts());
        // A request has its caller's number; a trace that is not the caller's has one of its own.
        let trace = if said.is_some() && parent.is_none() { x.other_id() } else { x.id() };
        let state = OtelState { trace: trace.0, span: x.span(), parent, on };
        x.lasting(|known| *known = state);
        if self.context.injects() {
            let ours = TraceParent { trace: state.trace, span: state.span, sampled: on };
            x.set_request_field(b"traceparent", ours.to_string().as_bytes());
            if parent.is_none() {
                x.remove_request_fields(FieldPattern::Exactly(b"tracestate"));
            }
        }
    }

    fn end(&self, x: &mut Exchange, state: OtelState) {
        let Some(exporter) = self.exporter.clone() else { return };
        let name = match &self.name {
            Some(name) => {
                let name = name.value(x);
                x.text(&name).to_vec()
            }
            None => x.plan.name.as_bytes().to_vec(),
        };
        let mut attributes = attributes(x);
        for (key, value) in &self.attributes {
            let value = value.value(x);
            attributes.push((key.clone().into_bytes(), AttributeValue::Text(x.text(&value).to_vec())));
        }
        let tracestate = state.parent.and_then(|_| x.request_field(b"tracestate"));
        let tracestate = tracestate.unwrap_or_default().to_vec();
        x.when_recorded(move |kept| {
            exporter.send(FinishedRequest {
                trace: state.trace,
                span: state.span,
                parent: state.parent.map(|parent| parent.span),
                state: tracestate,
                name,
                attributes,
                kept,
                ended: ClockMoment::now(),
            });
        });
    }
}

/// What every span has, under nginx's names. Fields of requests are not exported, and arguments are not where
/// `profile_redact` has it so.
fn attributes(x: &Exchange) -> Vec<(Vec<u8>, AttributeValue)> {
    let target = x.arena.get(x.request.unparsed_uri);
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let target = if x.plan.redacts_args() { path } else { target };
    let flavor = match x.request.head.version {
        Version::V09 => "0.9",
        Version::V10 => "1.0",
        Version::V11 => "1.1",
        Version::V20 => "2.0",
        Version::V30 => "3.0",
    };
    let (client, local) = (x.client(), x.connection.local());
    let text = |bytes: &[u8]| Some(AttributeValue::Text(bytes.to_vec()));
    let number = |number: Option<u16>| number.map(|number| AttributeValue::Number(number.into()));
    let found = [
        ("http.method", text(x.arena.get(x.request.head.method_span))),
        ("http.target", text(target)),
        ("http.route", text(x.plan.name.as_bytes())),
        ("http.scheme", text(if x.connection.is_tls() { b"https" } else { b"http" })),
        ("http.flavor", text(flavor.as_bytes())),
        ("http.request_content_length", x.request.head.content_length.map(AttributeValue::Number)),
        ("http.response_content_length", Some(AttributeValue::Number(x.body_bytes_sent()))),
        ("http.status_code", Some(AttributeValue::Number(x.response.status.into()))),
        ("net.host.name", text(&x.server.name).filter(|_| !x.server.name.is_empty())),
        ("net.host.port", number(local.port())),
        ("net.sock.peer.addr", client.ip().and_then(|ip| text(ip.to_string().as_bytes()))),
        ("net.sock.peer.port", number(client.port())),
    ];
    found.into_iter().filter_map(|(key, value)| Some((key.as_bytes().to_vec(), value?))).collect()
}

/// What is known of the request's trace, once that is decided.
fn known(x: &Exchange) -> Option<OtelState> {
    x.lasting_if(|state: &OtelState| *state)
}

/// What the caller said of its trace.
fn caller(x: &Exchange) -> Option<TraceParent> {
    TraceParent::parse(x.request_field(b"traceparent")?)
}

/// The caller's trace, where it goes on here: also before that is decided.
fn parent(x: &Exchange) -> Option<TraceParent> {
    match known(x) {
        Some(state) => state.parent,
        None => caller(x)
            .filter(|_| x.plan.kept::<Arc<OtelLocation>>().is_some_and(|here| here.context.extracts())),
    }
}

pub(super) const VARIABLES: &[Variable] = &[
    Variable::new("otel_trace_id", |x| {
        let state = known(x)?;
        write(x, format!("{:032x}", state.trace))
    })
    .volatile(),
    Variable::new("otel_span_id", |x| {
        let state = known(x)?;
        write(x, format!("{:016x}", state.span))
    })
    .volatile(),
    Variable::new("otel_parent_id", |x| {
        let parent = parent(x)?;
        write(x, format!("{:016x}", parent.span))
    })
    .volatile(),
    Variable::new("otel_parent_sampled", |x| {
        parent(x).map(|parent| Text::Static(if parent.sampled { b"1" } else { b"0" }))
    })
    .volatile(),
];

fn write(x: &mut Exchange, text: String) -> Option<Text> {
    Some(Text::Span(x.arena.push(text.as_bytes())))
}
