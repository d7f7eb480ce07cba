//! Sends metrics to the collector again and again (`otel_metrics`), from a thread of its own: it asks what the admin
//! listener would respond, and workers only as that does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_engine::Configuration;
use weir_engine::figures::{self, MetricFamily};
use weir_engine::log::{self, LogLevel};
use weir_rt::{DriverChoice, Runtime, RuntimeOptions};
use weir_upstream::discovery::source::SourceUrl;

use super::exporter::{self, Delivery};
use super::metrics::{self, MetricTimes};
use super::wire;

/// What `otel_metrics` and `otel_exporter` say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricsSettings {
    pub(super) endpoint: String,
    pub(super) url: SourceUrl,
    /// Fields of messages, whole lines.
    pub(super) fields: String,
    /// Milliseconds between two messages.
    pub(super) interval: u64,
    /// Attributes of the service.
    pub(super) resource: Vec<(String, String)>,
}

/// The settings of a configuration, for [`MetricsExporter`]; `None`: metrics are not sent.
#[derive(Debug, Default)]
pub(super) struct OtelMetrics(pub(super) Option<MetricsSettings>);

/// Gives the metrics at this moment as Prometheus' text.
type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// Sends a server's metrics as its configuration wants it, until it is dropped.
pub struct MetricsExporter {
    text: MetricsText,
    began: u64,
    /// Where settings go, while the thread runs.
    thread: Mutex<Option<SyncSender<Box<MetricsSettings>>>>,
}

impl MetricsExporter {
    /// The exporter of a server that begins now; `text` gives its metrics in Prometheus' text format 0.0.4. Nothing is sent
    /// before [`MetricsExporter::update`].
    #[must_use]
    pub fn new(text: impl Fn() -> String + Send + Sync + 'static) -> MetricsExporter {
        MetricsExporter { text: Arc::new(text), began: unix_ns(), thread: Mutex::new(None) }
    }

    /// From here on metrics are sent as `configuration` says.
    pub fn update(&self, configuration: &Configuration) {
        let wanted = configuration.shared::<OtelMetrics>().and_then(|metrics| metrics.0.clone());
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(settings) = wanted else {
            // Without a sender it ends.
            *thread = None;
            return;
        };
        let settings = Box::new(settings);
        let settings = match thread.as_ref().map(|sender| sender.try_send(settings.clone())) {
            Some(Ok(())) => return,
            // Many reloads at once: the thread is busy with one of them, and takes this one after it.
            Some(Err(TrySendError::Full(settings) | TrySendError::Disconnected(settings))) => settings,
            None => settings,
        };
        figures::register_metrics("otel_metrics", measure);
        *thread = begin(settings, self.text.clone(), self.began);
    }
}

fn begin(
    settings: Box<MetricsSettings>,
    text: MetricsText,
    began: u64,
) -> Option<SyncSender<Box<MetricsSettings>>> {
    let (sender, receiver) = sync_channel(16);
    let run = move || {
        weir_rt::process::unbind();
        let options = RuntimeOptions {
            driver: DriverChoice::Epoll,
            buffers: BUFFERS,
            name: NAME.to_owned(),
            ..RuntimeOptions::default()
        };
        match Runtime::new(&options) {
            Ok(runtime) => serve(settings, &receiver, &text, began, &runtime),
            Err(error) => log::cycle(LogLevel::Alert, &format_args!("otel_metrics can't run: {error}")),
        }
    };
    match thread::Builder::new().name(NAME.to_owned()).spawn(run) {
        Ok(_) => Some(sender),
        Err(error) => {
            log::cycle(LogLevel::Alert, &format_args!("no thread for otel_metrics: {error}"));
            None
        }
    }
}

/// Sends until no settings can come any more.
fn serve(
    settings: Box<MetricsSettings>,
    changes: &Receiver<Box<MetricsSettings>>,
    text: &MetricsText,
    began: u64,
    runtime: &Runtime,
) {
    let (mut settings, mut failing) = (settings, false);
    let mut due = Instant::now();
    loop {
        match changes.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(other) if other == settings => continue,
            Ok(other) => (settings, due) = (other, Instant::now()),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                due = Instant::now() + Duration::from_millis(settings.interval);
                let times = MetricTimes { start: began, now: unix_ns() };
                let body = metrics::request(&text(), &settings.resource, times);
                let to = Delivery { url: &settings.url, fields: &settings.fields, body: &body };
                note(&settings, runtime.block_on(exporter::deliver(to, TRIES)), &mut failing);
            }
        }
    }
}

/// Counts what became of a message. The first failure of several is logged, and that they are over.
fn note(settings: &MetricsSettings, result: Result<Vec<u8>, String>, failing: &mut bool) {
    let endpoint = &settings.endpoint;
    let refused = result.map(|response| wire::refused(&response));
    let why = match refused {
        Ok(None) => None,
        Ok(Some((count, why))) => Some(format!("{count} points were refused: {why}")),
        Err(why) => Some(why),
    };
    if why.is_none() { &SENT } else { &FAILED }.fetch_add(1, Relaxed);
    let lost = why.map(|why| format!("metrics are lost: {why}"));
    exporter::log_outcome(&format_args!("otel_metrics {endpoint}"), "metrics", lost, failing);
}

fn measure() -> Vec<MetricFamily> {
    let metric = |name, help, value: &AtomicU64| MetricFamily::counter(name, help, value.load(Relaxed));
    vec![
        metric("weir_otel_metrics_sent", "Messages with metrics that a collector took.", &SENT),
        metric("weir_otel_metrics_failed", "Messages with metrics that no collector took whole.", &FAILED),
    ]
}

fn unix_ns() -> u64 {
    // A clock that is before 1970 is wrong anyway.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

static SENT: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

const NAME: &str = "weir metrics";
/// Attempts to send a message: the next one has all that a lost one had.
const TRIES: u32 = 2;
/// Receive buffers of the thread.
const BUFFERS: u16 = 16;
