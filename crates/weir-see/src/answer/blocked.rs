//! `blocked`: turns of a loop that took too long, what was going on, and who had to wait; also while one lasts.

use std::collections::HashMap;
use std::time::Duration;

use weir_rt::clock;
use weir_trace::{RequestId, SiteTable, Stall};

use super::{Failure, Reply, pause, reqs};
use crate::control::protocol::Question;
use crate::filter::duration_ns;
use crate::json::Json;
use crate::source::{Source, scale};
use crate::table::{Cell, Column, Report, time};

/// The last stalls of at least `over`, oldest first; with `follow` also those to come, each once it is over.
pub(super) fn answer(source: &Source, question: &Question, reply: &mut dyn Reply) -> Result<(), Failure> {
    let over = question.value("over").map(duration_ns).transpose()?.unwrap_or(0);
    let mut teller = Teller { over, json: question.has("json"), told: HashMap::new() };
    let mut all = teller.news(source, false);
    let count = question.number("n", u64::MAX)?.min(all.len() as u64) as usize;
    all.drain(..all.len() - count).for_each(drop);
    reply.out(all.concat().as_bytes())?;
    if !question.has("follow") {
        if all.is_empty() {
            reply.note("no loop was blocked that long")?;
        }
        return Ok(());
    }
    while pause(reply, EVERY) {
        for text in teller.news(source, true) {
            reply.out(text.as_bytes())?;
        }
    }
    Ok(())
}

/// Remembers which stalls were told.
struct Teller {
    over: u64,
    json: bool,
    /// By worker: when the last one told of began.
    told: HashMap<u16, u64>,
}

impl Teller {
    /// What is new, oldest first. With `settled` only what is over and known from all sides: worker and watchdog tell of
    /// a stall one after the other.
    fn news(&mut self, source: &Source, settled: bool) -> Vec<String> {
        let now = clock::ticks();
        let mut news: Vec<(u16, Stall)> = Vec::new();
        for worker in source.workers().iter() {
            let number = worker.recorder.worker();
            let told = self.told.get(&number).copied().unwrap_or(0);
            for stall in worker.recorder.stalls().list() {
                let age = scale(now.saturating_sub(stall.start + stall.duration));
                let settled = !settled || age >= SETTLED.as_nanos() as u64;
                if stall.start > told && scale(stall.duration) >= self.over && settled {
                    self.told.insert(number, stall.start.max(told));
                    news.push((number, stall));
                }
            }
        }
        news.sort_by_key(|(_, stall)| stall.start);
        news.iter()
            .map(
                |(worker, stall)| {
                    if self.json { json(*worker, stall, now) } else { text(*worker, stall, now) }
                },
            )
            .collect()
    }
}

fn text(worker: u16, stall: &Stall, now: u64) -> String {
    let sample = &stall.sample;
    let mut out = format!(
        "worker {worker} blocked {} ({} ago) in {}, location {}",
        time(scale(stall.duration)),
        time(scale(now.saturating_sub(stall.start))),
        reqs::at(sample.site),
        location(stall),
    );
    if sample.request != RequestId::default() {
        out.push_str(&format!(", req {}", sample.request));
    }
    out.push('\n');
    if stall.state != 0 {
        out.push_str(&format!("  thread {}", state(stall.state)));
        if let Some(number) = stall.syscall {
            out.push_str(&format!(", system call {number}"));
        }
        if !stall.wait_channel.is_empty() {
            out.push_str(&format!(", in {}", stall.wait_channel));
        }
        out.push('\n');
    }
    for frame in &sample.frames {
        out.push_str(&format!("    {frame:#x}\n"));
    }
    for (request, ticks) in &stall.victims {
        out.push_str(&format!("  made wait {request} {}\n", time(scale(*ticks))));
    }
    out
}

fn json(worker: u16, stall: &Stall, now: u64) -> String {
    let sample = &stall.sample;
    Json::object(|json| {
        json.key("worker").raw(worker);
        json.key("duration_ns").raw(scale(stall.duration));
        json.key("age_ns").raw(scale(now.saturating_sub(stall.start)));
        json.key("site").text(&reqs::at(sample.site));
        json.key("location").text(&location(stall));
        json.key("request").text(&sample.request.to_string());
        if stall.state != 0 {
            json.key("state").text(&char::from(stall.state).to_string());
        }
        if let Some(number) = stall.syscall {
            json.key("syscall").raw(number);
        }
        json.key("wait_channel").text(&stall.wait_channel);
        json.key("stack")
            .list(|json| sample.frames.iter().for_each(|frame| json.text(&format!("{frame:#x}"))));
        json.key("victims").list(|json| {
            for (request, ticks) in &stall.victims {
                json.nested(|json| {
                    json.key("request").text(&request.to_string());
                    json.key("waited_ns").raw(scale(*ticks));
                });
            }
        });
    }) + "\n"
}

fn location(stall: &Stall) -> String {
    let info = SiteTable::global().info(stall.sample.site);
    if info.location.is_empty() { "-".to_owned() } else { info.location.to_string() }
}

fn state(letter: u8) -> &'static str {
    match letter {
        b'R' => "runs",
        b'S' => "sleeps",
        b'D' => "sleeps uninterruptibly",
        _ => "is in another state",
    }
}

/// `blame`: which locations made which others wait inside the loop, since the server began.
pub(crate) fn blame(source: &Source, question: &Question) -> String {
    let mut sums: HashMap<(String, String), (u64, u64)> = HashMap::new();
    for blame in source.workers().iter().flat_map(|worker| worker.now.blame()) {
        let sum = sums.entry((reqs::location(blame.victim), culprit(blame.culprit))).or_default();
        *sum = (sum.0 + blame.ticks, sum.1 + blame.times);
    }
    let mut report = Report::new(&BLAME);
    for ((victim, culprit), (ticks, times)) in sums {
        report.row([
            Cell::Text(victim),
            Cell::Text(culprit),
            Cell::Count(times),
            Cell::Time(scale(ticks)),
            Cell::Time(scale(ticks / times.max(1))),
        ]);
    }
    report.sort_by(|row| if let Cell::Time(time) = row[3] { time as f64 } else { 0.0 });
    report.write(question.has("json"))
}

/// Delay that no request caused is the loop's own: accepting, timers, receiving.
fn culprit(route: weir_trace::Site) -> String {
    if route == weir_trace::Site::OTHER { "the loop".to_owned() } else { reqs::location(route) }
}

const BLAME: [Column; 5] = [
    Column("location that waited", "victim"),
    Column("because of", "culprit"),
    Column("times", "times"),
    Column("total", "total_ns"),
    Column("mean", "mean_ns"),
];
/// How often is looked for news.
const EVERY: Duration = Duration::from_millis(100);
/// A stall is told of this long after its end, when worker and watchdog have both said what they know.
const SETTLED: Duration = Duration::from_millis(30);
