//! Where spans go: a queue with an end, a thread that empties it, and a collector that is asked over HTTP.
//!
//! Requests never wait: what finds the queue full is dropped and counted. The thread begins with the first request, and
//! ends with the configuration that named it, after what was still in the queue. Configurations that say the same share
//! it, so a reload loses nothing.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use weir_engine::figures::{self, MetricFamily};
use weir_engine::log::{self, LogLevel};
use weir_rt::{DriverChoice, Runtime, RuntimeOptions};
use weir_upstream::discovery::source::SourceUrl;

use super::wire::{FinishedRequest, SpanBatch, refused};

/// What `otel_exporter` and its like say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExporterSettings {
    /// The URL as it is written.
    pub endpoint: String,
    /// The URL, taken apart.
    pub url: SourceUrl,
    /// Where metrics go; `None`: the URL does not say.
    pub metrics: Option<SourceUrl>,
    /// Milliseconds between two messages that are not full.
    pub interval: u64,
    /// Number of spans in a message.
    pub batch: usize,
    /// Number of messages that may wait.
    pub batches: usize,
    /// Fields of messages, whole lines.
    pub fields: String,
    /// Attributes of the service.
    pub resource: Vec<(String, String)>,
}

/// The way to one collector.
pub(super) struct SpanExporter {
    settings: ExporterSettings,
    queue: OnceLock<Option<SyncSender<FinishedRequest>>>,
}

impl SpanExporter {
    /// The one with these settings; there is one of a kind.
    pub(super) fn get(settings: &ExporterSettings) -> Arc<SpanExporter> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(|known| known.settings == *settings) {
            return known;
        }
        let exporter = Arc::new(SpanExporter { settings: settings.clone(), queue: OnceLock::new() });
        all.push(Arc::downgrade(&exporter));
        figures::register_metrics("otel", measure);
        exporter
    }

    /// Sends the spans of a request, or drops them.
    pub(super) fn send(&self, finished: FinishedRequest) {
        let queue = self.queue.get_or_init(|| begin(&self.settings));
        let sent = queue.as_ref().is_some_and(|queue| queue.try_send(finished).is_ok());
        if !sent {
            DROPPED.fetch_add(1, Relaxed);
        }
    }
}

/// Waits until what was to be sent by servers that have ended is sent, or [`LEAVING`] has gone by.
pub fn flush() {
    let leaving = std::mem::take(&mut *THREADS.lock().unwrap_or_else(PoisonError::into_inner));
    let until = Instant::now() + LEAVING;
    for ended in leaving {
        // Either it says that it has ended, or it is gone.
        let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// The queue, and the thread that empties it.
fn begin(settings: &ExporterSettings) -> Option<SyncSender<FinishedRequest>> {
    // A request is one span at least.
    let (sender, receiver) = sync_channel(settings.batch.saturating_mul(settings.batches).clamp(1, MOST));
    let (ending, ended) = sync_channel(1);
    let settings = settings.clone();
    let run = move || {
        weir_rt::process::unbind();
        let name = "weir otel".to_owned();
        let options = RuntimeOptions {
            driver: DriverChoice::Epoll,
            buffers: BUFFERS,
            name,
            ..RuntimeOptions::default()
        };
        match Runtime::new(&options) {
            Ok(runtime) => serve(&settings, &receiver, &runtime),
            Err(error) => log::cycle(LogLevel::Alert, &format_args!("otel_exporter can't run: {error}")),
        }
        let _ = ending.try_send(());
    };
    match thread::Builder::new().name("weir otel".to_owned()).spawn(run) {
        Ok(_) => {
            let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
            // Those of configurations that have gone.
            threads.retain(|ended| matches!(ended.try_recv(), Err(TryRecvError::Empty)));
            threads.push(ended);
            Some(sender)
        }
        Err(error) => {
            log::cycle(LogLevel::Alert, &format_args!("no thread for otel_exporter: {error}"));
            None
        }
    }
}

fn serve(settings: &ExporterSettings, queue: &Receiver<FinishedRequest>, runtime: &Runtime) {
    let mut failing = false;
    while let Ok(first) = queue.recv() {
        let mut batch = SpanBatch::default();
        batch.push(&first);
        let until = Instant::now() + Duration::from_millis(settings.interval);
        let mut ends = false;
        while batch.count < settings.batch && !ends {
            match queue.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(next) => batch.push(&next),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => ends = true,
            }
        }
        let count = batch.count as u64;
        let body = batch.finish(&settings.resource);
        let tries = if ends { 1 } else { TRIES };
        let to = Delivery { url: &settings.url, fields: &settings.fields, body: &body };
        let result = runtime.block_on(deliver(to, tries));
        note(settings, count, result, &mut failing);
    }
}

/// A message, and where it goes.
#[derive(Clone, Copy)]
pub(super) struct Delivery<'m> {
    pub(super) url: &'m SourceUrl,
    /// Fields of the request, whole lines.
    pub(super) fields: &'m str,
    pub(super) body: &'m [u8],
}

/// Sends a message; what a collector refuses for now is sent again.
pub(super) async fn deliver(to: Delivery<'_>, tries: u32) -> Result<Vec<u8>, String> {
    let mut pause = PAUSE;
    let mut left = tries;
    loop {
        left -= 1;
        let (again, why) = match to.url.post(to.fields, PROTOBUF, to.body, TIMEOUT).await {
            Ok((200..=299, answer)) => return Ok(answer),
            Ok((status, _)) => (matches!(status, 429 | 502..=504), format!("the status was {status}")),
            Err(why) => (true, why),
        };
        if !again || left == 0 {
            return Err(why);
        }
        weir_rt::sleep(pause).await;
        pause *= 2;
    }
}

/// Counts what became of `count` spans. The first failure of several is logged, and that they are over.
fn note(settings: &ExporterSettings, count: u64, result: Result<Vec<u8>, String>, failing: &mut bool) {
    let endpoint = &settings.endpoint;
    let (lost, why) = match result {
        Ok(answer) => match refused(&answer) {
            Some((refused, why)) => (refused.min(count), Some(why)),
            None => (0, None),
        },
        Err(why) => (count, Some(why)),
    };
    DROPPED.fetch_add(lost, Relaxed);
    SENT.fetch_add(count - lost, Relaxed);
    let lost = why.map(|why| format!("{lost} spans are lost: {why}"));
    log_outcome(&format_args!("otel_exporter {endpoint}"), "spans", lost, failing);
}

/// Logs what became of a message of `what`, for the `line` of the configuration: the first of several that were `lost`, and that they
/// are over.
pub(super) fn log_outcome(line: &dyn Display, what: &str, lost: Option<String>, failing: &mut bool) {
    match &lost {
        Some(lost) if !*failing => log::cycle(LogLevel::Error, &format_args!("{line}: {lost}")),
        None if *failing => log::cycle(LogLevel::Notice, &format_args!("{line} takes {what} again")),
        _ => {}
    }
    *failing = lost.is_some();
}

fn measure() -> Vec<MetricFamily> {
    let metric = |name, help, value: &AtomicU64| MetricFamily::counter(name, help, value.load(Relaxed));
    vec![
        metric("weir_otel_spans_sent", "Spans that a collector took.", &SENT),
        metric(
            "weir_otel_spans_dropped",
            "Spans that no collector took, of a request that found the queue full one.",
            &DROPPED,
        ),
    ]
}

static ALL: Mutex<Vec<Weak<SpanExporter>>> = Mutex::new(Vec::new());
/// For each thread what shows that it has ended.
static THREADS: Mutex<Vec<Receiver<()>>> = Mutex::new(Vec::new());
static SENT: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

const PROTOBUF: &str = "application/x-protobuf";
/// Milliseconds that a collector may take.
const TIMEOUT: u64 = 10_000;
/// Attempts to send a message, and the pause after the first.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
/// How long the end of the server waits for the last message.
const LEAVING: Duration = Duration::from_secs(1);
/// Requests that wait at most, whatever is configured: a hundred megabytes.
const MOST: usize = 32_768;
/// Receive buffers of the thread.
const BUFFERS: u16 = 16;
