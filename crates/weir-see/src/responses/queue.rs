//! `queue`: where requests wait before anybody has seen them, in listeners, in sockets and for the loop, and where answers
//! wait for their clients. Who waits for the loop because of whom is told by `blocked` and `reqs`.

use std::time::Duration;

use weir_engine::trace::{Depth, Queues};
use weir_engine::worker::Worker;
use weir_rt::LoopSnapshot;
use weir_server::Backlog;
use weir_trace::{Histogram, RecorderReader, Site, Step};

use super::reply::{Failure, Reply, pause};
use crate::control::protocol::Question;
use crate::filter::duration_ns;
use crate::source::{BRIEFLY, PATIENCE, Source, Thread, scale};
use crate::table::{Cell, Column, Report};

/// A row a worker and queue, of the time `every` in which every connection and request is asked, or with `all` of what was
/// noted since the server began; then the listeners and what the kernel and the loops lacked.
pub(crate) fn answer(source: &Source, question: &Question, reply: &mut dyn Reply) -> Result<(), Failure> {
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("1s"))?);
    let whole = question.has("all");
    let watching = (!whole).then(|| Watching::new(source));
    let before = if whole { Vec::new() } else { waits(source) };
    if !whole {
        pause(reply, every.min(LONGEST));
    }
    let depths = source.ask(PATIENCE, |worker| (u16::from(worker.id), worker.queues())).answers;
    let after = waits(source);
    drop(watching);
    let mut report = Report::new(&COLUMNS);
    for (worker, waits) in &after {
        let earlier = before.iter().find(|(other, _)| other == worker).map(|(_, waits)| waits);
        let depths = depths.iter().find(|(other, _)| other == worker).map(|(_, depths)| depths);
        rows(&mut report, *worker, waits, earlier, depths);
    }
    source.backlogs().iter().for_each(|backlog| report.row(listener(backlog)));
    let mut text = report.write(question.has("json"));
    if !question.has("json") {
        text.push_str(&starved(source));
        text.push_str(&overflows());
    }
    Ok(reply.out(text.as_bytes())?)
}

/// Queues are watched as long as this is kept.
struct Watching(Vec<Thread>);

impl Watching {
    fn new(source: &Source) -> Watching {
        let workers = source.workers();
        Source::tell_these(&workers, Worker::watch_queues);
        Watching(workers)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        Source::tell_these(&self.0, Worker::leave_queues);
    }
}

/// How long requests have waited, by queue.
struct Waits {
    accept: Histogram,
    receive: Histogram,
    /// Ready, and the loop busy with others.
    turn: Histogram,
}

impl Waits {
    fn of(recorder: &RecorderReader) -> Waits {
        let head = recorder.site(Site::step(Step::HeadRead));
        Waits {
            accept: recorder.accept_waits(),
            receive: recorder.receive_waits(),
            turn: head.map(|totals| totals.wait).unwrap_or_default(),
        }
    }
}

/// The waits that each worker has noted so far.
fn waits(source: &Source) -> Vec<(u16, Waits)> {
    source.ask(BRIEFLY, |worker| worker.recorder.borrow_mut().settle());
    let workers = source.workers();
    workers.iter().map(|worker| (worker.recorder.worker(), Waits::of(&worker.recorder))).collect()
}

/// The rows of a worker.
fn rows(report: &mut Report, worker: u16, now: &Waits, before: Option<&Waits>, depths: Option<&Queues>) {
    let lately = |queue: fn(&Waits) -> &Histogram| match before {
        Some(before) => queue(now).since(queue(before)),
        None => queue(now).clone(),
    };
    let depth = |queue: fn(&Queues) -> &Depth| depths.map(queue);
    report.row(row(worker, "accept", Some(lately(|waits| &waits.accept)), None));
    report.row(row(worker, "receive", Some(lately(|waits| &waits.receive)), depth(|queues| &queues.receive)));
    report.row(row(worker, "loop", Some(lately(|waits| &waits.turn)), None));
    report.row(row(worker, "send", None, depth(|queues| &queues.own)));
    report.row(row(worker, "send kernel", None, depth(|queues| &queues.send)));
    report.row(row(worker, "send window", None, depth(|queues| &queues.unsent)));
}

fn row(worker: u16, queue: &str, waits: Option<Histogram>, depth: Option<&Depth>) -> [Cell; 10] {
    let time =
        |of: fn(&Histogram) -> u64| waits.as_ref().map_or(Cell::None, |waits| Cell::Time(scale(of(waits))));
    [
        Cell::Count(worker.into()),
        Cell::text(queue),
        waits.as_ref().map_or(Cell::None, |waits| Cell::Count(waits.count())),
        time(Histogram::mean),
        time(|waits| waits.quantile(0.5)),
        time(|waits| waits.quantile(0.99)),
        // Of a part of a histogram the largest bucket is known.
        time(|waits| waits.quantile(1.0)),
        depth.map_or(Cell::None, |depth| Cell::Count(depth.connections)),
        Cell::None,
        depth.map_or(Cell::None, |depth| Cell::Bytes(depth.bytes)),
    ]
}

fn listener(backlog: &Backlog) -> [Cell; 10] {
    let mut row = [const { Cell::None }; 10];
    row[1] = Cell::text(format!("listen {}", backlog.addr));
    (row[7], row[8]) = (Cell::Count(backlog.waiting), Cell::Count(backlog.room));
    row
}

/// What the loops lacked.
fn starved(source: &Source) -> String {
    let mut sum = LoopSnapshot::default();
    for worker in source.workers().iter() {
        let turns = worker.stats.snapshot();
        sum.enobufs += turns.enobufs;
        sum.emfile += turns.emfile;
    }
    format!("receives without buffer {}, accepts without descriptor {}\n", sum.enobufs, sum.emfile)
}

/// The kernel's count of connections that found the accept queue full, of all listeners of the host.
fn overflows() -> String {
    let table = std::fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    match (extension(&table, "ListenOverflows"), extension(&table, "ListenDrops")) {
        (Some(overflows), Some(drops)) => {
            format!("host: accept queue overflows {overflows}, drops {drops}\n")
        }
        _ => String::new(),
    }
}

/// A figure of /proc/net/netstat: a line of names, then one of numbers.
pub(super) fn extension(table: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

/// A time to watch for at most.
const LONGEST: Duration = Duration::from_secs(3600);
const COLUMNS: [Column; 10] = [
    Column("worker", "worker"),
    Column("queue", "queue"),
    Column("asked", "count"),
    Column("mean", "mean_ns"),
    Column("p50", "p50_ns"),
    Column("p99", "p99_ns"),
    Column("max", "max_ns"),
    Column("now", "now"),
    Column("of", "limit"),
    Column("bytes", "bytes"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_below_their_names() {
        let table = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: InNoRoutes\nIpExt: 4\n";
        assert_eq!(
            (extension(table, "ListenOverflows"), extension(table, "ListenDrops")),
            (Some(22), Some(333))
        );
        assert_eq!((extension(table, "Other"), extension("", "ListenDrops")), (None, None));
    }
}
