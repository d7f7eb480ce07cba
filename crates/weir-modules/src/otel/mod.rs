//! `otel`: exports requests as OpenTelemetry traces, with the directives of nginx's `ngx_otel_module`.
//!
//! A request is a span, with a span below it for each phase and each attempt at an upstream server, made of the
//! boundaries that are recorded anyway. Spans go to a collector by OTLP over HTTP, in protocol buffers. Whether a
//! request is exported is decided in its rewrite phase; its span is exported when its record is made, after the log
//! phase, by a separate thread.

mod exporter;
mod metrics;
mod metrics_exporter;
mod request;
mod span;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::names::{ANY, HTTP, NONE, ONE, TWO};
use weir_conf::{Directive, Error, LineCx, Result, parse_number, parse_time_ms};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::phase::Phase;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::{Module, inherit};
use weir_upstream::discovery::source::{SourceTrust, SourceUrl};

use exporter::{ExporterSettings, SpanExporter};
use metrics_exporter::{MetricsSettings, OtelMetrics};
use request::{BeginSpan, EndSpan, OtelLocation};

pub use exporter::flush;
pub use metrics_exporter::MetricsExporter;

/// The module `otel`.
pub struct Otel;

impl Module for Otel {
    const NAME: &'static str = NAME;
    type Conf = OtelConf;
    const DIRECTIVES: &'static [Directive<OtelConf>] = &[
        OtelRow::new("otel_exporter", HTTP, NONE.block(), OtelConf::set_exporter)
            .syntax("otel_exporter")
            .doc(
                "Exports traces by OTLP over HTTP. The block has the lines `endpoint` (URL), \
                 `header` (name and value of a request header field) and `trusted_certificate` \
                 (file, for `https://`). It also has `interval` (longest time between exports, \
                 5s), `batch_size` (spans per export, 512) and `batch_count` (exports waiting, 4).",
            )
            .example(
                "otel_exporter {\n\
                 \x20   endpoint http://127.0.0.1:4318;\n\
                 }\n\
                 otel_service_name shop;\n\
                 otel_trace on;\n\
                 otel_trace_context propagate;",
            ),
        OtelRow::new("otel_metrics", HTTP, ONE, OtelConf::set_metrics)
            .syntax("otel_metrics off | on | time")
            .default("off")
            .doc(
                "Sends all metrics of `/metrics` to the collector of `otel_exporter`, by OTLP over HTTP, every \
                 minute or as often as the time says. They go to `/v1/metrics` where traces go to `/v1/traces`; an \
                 `admin` listener is not needed.",
            ),
        OtelRow::new("otel_service_name", HTTP, ONE, |conf, line| line.text(&mut conf.service))
            .syntax("otel_service_name name")
            .default("unknown_service:weir")
            .doc("Value of the resource attribute `service.name`."),
        OtelRow::new("otel_resource_attr", HTTP, TWO, |conf, line| line.keyval(&mut conf.resource))
            .syntax("otel_resource_attr name value")
            .doc("Adds a resource attribute."),
        OtelRow::new("otel_trace", ANY, ONE, OtelConf::set_trace)
            .syntax("otel_trace on | off | $variable")
            .default("off")
            .doc(
                "Exports requests as traces: all with `on`, with a variable those for which \
                 it is `on` or `1`.",
            ),
        OtelRow::new("otel_trace_context", ANY, ONE, |conf, line| line.one_of(&mut conf.context, CONTEXTS))
            .syntax("otel_trace_context extract | inject | propagate | ignore")
            .default("ignore")
            .doc(
                "W3C trace context (`traceparent` and `tracestate`): `extract` takes it from \
                 requests, `inject` passes it to upstream servers, `propagate` does both.",
            ),
        OtelRow::new("otel_span_name", ANY, ONE, |conf, line| {
            let name = ValueScript::compile(line, 0)?;
            line.once(&mut conf.name, name)
        })
        .syntax("otel_span_name name")
        .doc(
            "Name of a request's span, which may contain variables; by default the name of \
             its location.",
        ),
        OtelRow::new("otel_span_attr", ANY, TWO, OtelConf::add_attribute)
            .syntax("otel_span_attr name value")
            .doc("Adds an attribute to a request's span; the value may contain variables."),
    ];
    const VARIABLES: &'static [Variable] = request::VARIABLES;

    fn inherit(conf: &mut OtelConf, parent: &OtelConf) {
        inherit!(conf, parent, exporter, service, resource, trace, context, name, attributes);
    }

    fn resolve(conf: &mut OtelConf, registry: &mut ConfRegistry) -> Result {
        if let Some(settings) = conf.metrics_settings()? {
            registry.shared::<OtelMetrics>().0 = Some(settings);
        }
        match &conf.trace {
            Some((trace, span)) if trace.constant() != Some(b"off") && conf.exporter.is_none() => {
                Err(Error::new("\"otel_exporter\" block is missing").at(*span))
            }
            _ => Ok(()),
        }
    }

    fn install(conf: &OtelConf, plan: &mut PlanBuilder<'_>) {
        let trace =
            conf.trace.as_ref().map(|(trace, _)| trace).filter(|trace| trace.constant() != Some(b"off"));
        let context = conf.context.unwrap_or_default();
        if trace.is_none() && context == TraceContextMode::Ignore {
            return;
        }
        let exporter = conf.exporter.as_ref().map(|exporter| SpanExporter::get(&conf.settings(exporter)));
        let here = Arc::new(OtelLocation {
            trace: trace.cloned(),
            context,
            name: conf.name.clone(),
            attributes: conf.attributes.clone().unwrap_or_default(),
            exporter,
        });
        plan.keep(here.clone());
        plan.first_handler(Phase::Rewrite, NAME, BeginSpan(here.clone()));
        plan.handler(Phase::Log, NAME, EndSpan(here));
    }
}

/// Gives the closures of the table the type of their argument.
type OtelRow = Directive<OtelConf>;

/// The settings of one block.
#[derive(Default)]
pub struct OtelConf {
    exporter: Option<Arc<ExporterSettings>>,
    /// Milliseconds between messages, and where the directive is. Of `http` alone: no block inherits it.
    metrics: Option<(Option<u64>, weir_conf::Span)>,
    service: Option<String>,
    resource: Option<Vec<(String, String)>>,
    /// And where it is.
    trace: Option<(ValueScript, weir_conf::Span)>,
    context: Option<TraceContextMode>,
    name: Option<ValueScript>,
    attributes: Option<Vec<(String, ValueScript)>>,
}

/// `otel_trace_context`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TraceContextMode {
    #[default]
    Ignore,
    Extract,
    Inject,
    Propagate,
}

impl TraceContextMode {
    /// The caller's trace goes on here.
    fn extracts(self) -> bool {
        matches!(self, TraceContextMode::Extract | TraceContextMode::Propagate)
    }

    /// Servers get ours (`traceparent`).
    fn injects(self) -> bool {
        matches!(self, TraceContextMode::Inject | TraceContextMode::Propagate)
    }
}

impl OtelConf {
    /// `otel_exporter { ... }`
    fn set_exporter(&mut self, line: &mut LineCx<'_>) -> Result {
        let mut given = ExporterLines::default();
        for entry in line.entries()? {
            given.read(&line.entry(entry))?;
        }
        let exporter = given.finish(line)?;
        line.once(&mut self.exporter, Arc::new(exporter))
    }

    /// `otel_trace on|off|$variable`
    fn set_trace(&mut self, line: &mut LineCx<'_>) -> Result {
        let trace = ValueScript::compile(line, 0)?;
        if !matches!(trace.constant(), None | Some(b"on" | b"off")) {
            return Err(line.invalid_value(0));
        }
        line.once(&mut self.trace, (trace, line.line().name.span))
    }

    /// `otel_metrics off|on|time`
    fn set_metrics(&mut self, line: &mut LineCx<'_>) -> Result {
        let interval = match line.bytes(0) {
            b"off" => None,
            b"on" => Some(METRICS_INTERVAL),
            time => {
                let interval = parse_time_ms(time).filter(|ms| *ms > 0);
                Some(interval.ok_or_else(|| line.invalid_value(0))?)
            }
        };
        line.once(&mut self.metrics, (interval, line.line().name.span))
    }

    /// What is sent to whom; `None`: no metrics.
    fn metrics_settings(&self) -> Result<Option<MetricsSettings>> {
        let Some((Some(interval), span)) = self.metrics else { return Ok(None) };
        let fail = |message: &str| Error::new(message.to_owned()).at(span);
        let exporter = self.exporter.as_ref().ok_or_else(|| fail("\"otel_exporter\" block is missing"))?;
        let settings = self.settings(exporter);
        let url = settings.metrics.ok_or_else(|| {
            fail("\"otel_metrics\" needs an \"endpoint\" without a path, or one that ends in \"/v1/traces\"")
        })?;
        let ExporterSettings { endpoint, fields, resource, .. } = settings;
        Ok(Some(MetricsSettings { endpoint, url, fields, interval, resource }))
    }

    /// `otel_span_attr name value`
    fn add_attribute(&mut self, line: &mut LineCx<'_>) -> Result {
        let value = ValueScript::compile(line, 1)?;
        self.attributes.get_or_insert_default().push((line.arg(0).to_owned(), value));
        Ok(())
    }

    /// The exporter's settings with those of the service.
    fn settings(&self, exporter: &ExporterSettings) -> ExporterSettings {
        let service = self.service.as_deref().unwrap_or(SERVICE).to_owned();
        let mut resource = vec![("service.name".to_owned(), service)];
        resource.extend(self.resource.iter().flatten().cloned());
        ExporterSettings { resource, ..exporter.clone() }
    }
}

/// What the lines of an `otel_exporter` block say.
#[derive(Default)]
struct ExporterLines {
    endpoint: Option<(String, weir_conf::Span)>,
    trust: Option<PathBuf>,
    interval: Option<u64>,
    batch: Option<usize>,
    batches: Option<usize>,
    fields: String,
}

impl ExporterLines {
    fn read(&mut self, line: &LineCx<'_>) -> Result {
        let wanted = if line.name() == "header" { 2 } else { 1 };
        if !LINES.contains(&line.name()) {
            let message = format!("unknown directive \"{}\" in \"otel_exporter\"", line.name());
            return Err(line.fail(message).hint(format!("there are {}", LINES.join(", "))));
        }
        if line.args().len() != wanted {
            return Err(line.fail(format!("invalid number of arguments in \"{}\" directive", line.name())));
        }
        match line.name() {
            "endpoint" => line.once(&mut self.endpoint, (line.arg(0).to_owned(), line.args()[0].span)),
            "trusted_certificate" => line.conf_path(&mut self.trust),
            "interval" => {
                let interval = parse_time_ms(line.bytes(0)).filter(|ms| *ms > 0);
                line.once(&mut self.interval, interval.ok_or_else(|| line.invalid_value(0))?)
            }
            "batch_size" => count(line, &mut self.batch),
            "batch_count" => count(line, &mut self.batches),
            _ => self.add_field(line),
        }
    }

    /// `header name value`
    fn add_field(&mut self, line: &LineCx<'_>) -> Result {
        let (name, value) = (line.arg(0), line.arg(1));
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if !is_name(name) {
            return Err(line.invalid_value(0));
        }
        if value.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(line.invalid_value(1));
        }
        self.fields.push_str(&format!("{name}: {value}\r\n"));
        Ok(())
    }

    fn finish(self, line: &LineCx<'_>) -> Result<ExporterSettings> {
        let (endpoint, span) =
            self.endpoint.ok_or_else(|| line.fail("\"otel_exporter\" requires \"endpoint\""))?;
        let fail = |message: String| Error::new(message).at(span);
        let secure = endpoint.starts_with("https://");
        if !secure && !endpoint.starts_with("http://") {
            let error = fail(format!("invalid URL \"{endpoint}\" in \"endpoint\""));
            return Err(
                error.hint("spans go by OTLP over HTTP, to a collector's port 4318: http://host:4318")
            );
        }
        if !secure && self.trust.is_some() {
            return Err(fail("\"trusted_certificate\" is for endpoints with \"https://\"".to_owned()));
        }
        let begin = endpoint.find("//").map_or(0, |at| at + 2);
        // As collectors have it, unless the URL says otherwise.
        let path = if endpoint[begin..].contains('/') { "" } else { "/v1/traces" };
        let trust = SourceTrust { file: self.trust, blind: false };
        let traces = format!("{endpoint}{path}");
        let url = SourceUrl::parse(&traces, &trust).map_err(fail)?;
        let metrics = traces.strip_suffix("/v1/traces").map(|base| format!("{base}/v1/metrics"));
        let metrics = metrics.map(|url| SourceUrl::parse(&url, &trust)).transpose().map_err(fail)?;
        Ok(ExporterSettings {
            endpoint,
            url,
            metrics,
            interval: self.interval.unwrap_or(INTERVAL),
            batch: self.batch.unwrap_or(BATCH),
            batches: self.batches.unwrap_or(BATCHES),
            fields: self.fields,
            resource: Vec::new(),
        })
    }
}

/// A number of things, one at least.
fn count(line: &LineCx<'_>, slot: &mut Option<usize>) -> Result {
    let number = parse_number(line.bytes(0)).and_then(|number| usize::try_from(number).ok());
    line.once(slot, number.filter(|number| *number > 0).ok_or_else(|| line.invalid_value(0))?)
}

const NAME: &str = "otel";
const CONTEXTS: &[(&str, TraceContextMode)] = &[
    ("extract", TraceContextMode::Extract),
    ("inject", TraceContextMode::Inject),
    ("propagate", TraceContextMode::Propagate),
    ("ignore", TraceContextMode::Ignore),
];
const LINES: [&str; 6] =
    ["endpoint", "header", "trusted_certificate", "interval", "batch_size", "batch_count"];
const SERVICE: &str = "unknown_service:weir";
/// Milliseconds, spans and messages where nothing is written, as nginx has them.
const INTERVAL: u64 = 5_000;
/// Milliseconds between messages with metrics, as OpenTelemetry's programs have them.
const METRICS_INTERVAL: u64 = 60_000;
const BATCH: usize = 512;
const BATCHES: usize = 4;
