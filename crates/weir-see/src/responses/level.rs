//! `level`: how much is recorded, from the next request on; and whether handshakes are timed by CPU time, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_engine::worker::Worker;
use weir_rt::clock;
use weir_trace::TraceLevel;

use super::reply::ReplyFailure;
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::{PATIENCE, ServerSource};
use crate::table::{TableCell, TableColumn, TableReport, time};

/// Changes the level, if one is given, for the time that `for` says or for good. The response says what the
/// level means, and has a line for each worker, taken at that moment: its requests so far and the CPU time of its
/// thread, so that levels can be compared under load.
pub(crate) fn level(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let wanted = question.value("set").map(named).transpose()?;
    let cpu = question.value("cpu").map(switch).transpose()?;
    let limit = question.value("for").map(duration_ns).transpose()?.map(Duration::from_nanos);
    if wanted.is_some() {
        // Any change ends the wait for an older one to run out.
        CHANGES.fetch_add(1, Ordering::Relaxed);
    }
    let before = wanted.and(limit).map(|limit| (limit, current(source)));
    let said = source.ask(PATIENCE, move |worker| {
        if let Some(level) = wanted {
            worker.recorder.borrow_mut().set_level(level);
        }
        if let Some(on) = cpu {
            worker.recorder.borrow_mut().set_cpu(on);
        }
        RecordingFigures::of(worker)
    });
    if let Some((limit, Some(before))) = before {
        back_after(source, limit, before);
    }
    if question.has("json") {
        let mut report = TableReport::new(&COLUMNS);
        said.answers.iter().for_each(|figures| report.row(figures.row()));
        return Ok(report.json());
    }
    let mut text = said.answers.first().map_or(String::new(), |figures| meaning(figures.level).to_owned());
    text.extend(said.answers.iter().map(RecordingFigures::line));
    if said.stuck > 0 {
        text.push_str(&format!("{} workers are busy and follow when they can\n", said.stuck));
    }
    Ok(text)
}

/// What a worker says.
struct RecordingFigures {
    worker: u8,
    level: &'static str,
    requests: u64,
    cpu_ns: u64,
}

impl RecordingFigures {
    fn of(worker: &Worker) -> RecordingFigures {
        let level = name(worker.recorder.borrow().settings().level);
        let (cpu_ns, requests) = (clock::thread_cpu_ns(), worker.counters.requests.get());
        RecordingFigures { worker: worker.id, level, requests, cpu_ns }
    }

    fn line(&self) -> String {
        let RecordingFigures { worker, level, requests, cpu_ns } = self;
        format!("worker {worker}: level {level}, {requests} requests, {} of CPU time\n", time(*cpu_ns))
    }

    fn row(&self) -> [TableCell; 4] {
        let worker = TableCell::Count(self.worker.into());
        [worker, TableCell::text(self.level), TableCell::Count(self.requests), TableCell::Time(self.cpu_ns)]
    }
}

/// The level of the first worker that says; they all have the same.
fn current(source: &ServerSource) -> Option<TraceLevel> {
    source.ask(PATIENCE, |worker| worker.recorder.borrow().settings().level).answers.first().copied()
}

/// Goes back to `before` after `limit`, unless the level is changed first.
fn back_after(source: &ServerSource, limit: Duration, before: TraceLevel) {
    let change = CHANGES.load(Ordering::Relaxed);
    let workers = source.workers();
    let back = move || {
        std::thread::sleep(limit);
        if CHANGES.load(Ordering::Relaxed) == change {
            ServerSource::tell_these(&workers, move |worker| worker.recorder.borrow_mut().set_level(before));
        }
    };
    // Without the thread the level would stay for good, which the response has not said.
    if std::thread::Builder::new().name("weir level".to_owned()).spawn(back).is_err() {
        source.tell(move |worker| worker.recorder.borrow_mut().set_level(before));
    }
}

fn switch(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("the CPU time of handshakes is on or off".to_owned()),
    }
}

fn named(word: &str) -> Result<TraceLevel, String> {
    match word {
        "0" | "off" => Ok(TraceLevel::Off),
        "1" | "sampled" => Ok(TraceLevel::Sampled),
        "2" | "full" => Ok(TraceLevel::Full),
        _ => Err("the level is off, sampled or full (0, 1, 2)".to_owned()),
    }
}

/// What a level means, and how it is changed.
fn meaning(level: &str) -> &'static str {
    match level {
        "off" => "Nothing is recorded but counts; weir profile level full records every request.\n",
        "sampled" => {
            "Some requests are recorded, chosen at random; weir profile level full records all of them.\n"
        }
        _ => "Every request is recorded; weir profile level off|sampled [--for 10m] records less.\n",
    }
}

const fn name(level: TraceLevel) -> &'static str {
    match level {
        TraceLevel::Off => "off",
        TraceLevel::Sampled => "sampled",
        TraceLevel::Full => "full",
    }
}

const COLUMNS: [TableColumn; 4] = [
    TableColumn("worker", "worker"),
    TableColumn("level", "level"),
    TableColumn("requests", "requests"),
    TableColumn("cpu", "cpu_ns"),
];
/// Counts changes of the level.
static CHANGES: AtomicU64 = AtomicU64::new(0);
