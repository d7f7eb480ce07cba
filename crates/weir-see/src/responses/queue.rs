//! `queue`: where requests wait before the server has read them, in listeners, in sockets and for the loop, and where
//! responses wait for their clients. Which request waits for the loop because of which is shown by `blocked` and
//! `reqs`.

use std::time::Duration;

use weir_engine::trace::{ConnectionQueues, QueueDepth};
use weir_engine::worker::Worker;
use weir_rt::LoopSnapshot;
use weir_server::SocketBacklog;
use weir_trace::{ConnectionStep, Histogram, RecorderReader, Site};

use super::reply::{ReplyFailure, ReplySink, pause};
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::{BRIEFLY, PATIENCE, ServerSource, WorkerThread, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// A row a worker and queue, of the time `every` in which every connection and request is asked, or with `all` of what was
/// noted since the server began; then the listeners and what the kernel and the loops lacked.
pub(crate) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("1s"))?);
    let whole = question.has("all");
    let watching = (!whole).then(|| QueueWatch::new(source));
    let before = if whole { Vec::new() } else { waits(source) };
    if !whole {
        pause(reply, every.min(LONGEST));
    }
    let depths = source.ask(PATIENCE, |worker| (u16::from(worker.id), worker.queues())).answers;
    let after = waits(source);
    drop(watching);
    let mut report = TableReport::new(&COLUMNS);
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

/// Queues are watched as long as this value lives.
struct QueueWatch(Vec<WorkerThread>);

impl QueueWatch {
    fn new(source: &ServerSource) -> QueueWatch {
        let workers = source.workers();
        ServerSource::tell_these(&workers, Worker::watch_queues);
        QueueWatch(workers)
    }
}

impl Drop for QueueWatch {
    fn drop(&mut self) {
        ServerSource::tell_these(&self.0, Worker::leave_queues);
    }
}

/// How long requests have waited, by queue.
struct QueueWaits {
    accept: Histogram,
    receive: Histogram,
    /// Ready, and the loop busy with others.
    turn: Histogram,
}

impl QueueWaits {
    fn of(recorder: &RecorderReader) -> QueueWaits {
        let head = recorder.site(Site::step(ConnectionStep::HeadRead));
        QueueWaits {
            accept: recorder.accept_waits(),
            receive: recorder.receive_waits(),
            turn: head.map(|totals| totals.wait).unwrap_or_default(),
        }
    }
}

/// The waits that each worker has noted so far.
fn waits(source: &ServerSource) -> Vec<(u16, QueueWaits)> {
    source.ask(BRIEFLY, |worker| worker.recorder.borrow_mut().settle());
    let workers = source.workers();
    workers.iter().map(|worker| (worker.recorder.worker(), QueueWaits::of(&worker.recorder))).collect()
}

/// The rows of a worker.
fn rows(
    report: &mut TableReport,
    worker: u16,
    now: &QueueWaits,
    before: Option<&QueueWaits>,
    depths: Option<&ConnectionQueues>,
) {
    let lately = |queue: fn(&QueueWaits) -> &Histogram| match before {
        Some(before) => queue(now).since(queue(before)),
        None => queue(now).clone(),
    };
    let depth = |queue: fn(&ConnectionQueues) -> &QueueDepth| depths.map(queue);
    report.row(row(worker, "accept", Some(lately(|waits| &waits.accept)), None));
    report.row(row(worker, "receive", Some(lately(|waits| &waits.receive)), depth(|queues| &queues.receive)));
    report.row(row(worker, "loop", Some(lately(|waits| &waits.turn)), None));
    report.row(row(worker, "send", None, depth(|queues| &queues.own)));
    report.row(row(worker, "send kernel", None, depth(|queues| &queues.send)));
    report.row(row(worker, "send window", None, depth(|queues| &queues.unsent)));
}

fn row(worker: u16, queue: &str, waits: Option<Histogram>, depth: Option<&QueueDepth>) -> [TableCell; 10] {
    let time = |of: fn(&Histogram) -> u64| {
        waits.as_ref().map_or(TableCell::None, |waits| TableCell::Time(scale(of(waits))))
    };
    [
        TableCell::Count(worker.into()),
        TableCell::text(queue),
        waits.as_ref().map_or(TableCell::None, |waits| TableCell::Count(waits.count())),
        time(Histogram::mean),
        time(|waits| waits.quantile(0.5)),
        time(|waits| waits.quantile(0.99)),
        // Of a part of a histogram the largest bucket is known.
        time(|waits| waits.quantile(1.0)),
        depth.map_or(TableCell::None, |depth| TableCell::Count(depth.connections)),
        TableCell::None,
        depth.map_or(TableCell::None, |depth| TableCell::Bytes(depth.bytes)),
    ]
}

fn listener(backlog: &SocketBacklog) -> [TableCell; 10] {
    let mut row = [const { TableCell::None }; 10];
    row[1] = TableCell::text(format!("listen {}", backlog.addr));
    (row[7], row[8]) = (TableCell::Count(backlog.waiting), TableCell::Count(backlog.room));
    row
}

/// What the loops lacked.
fn starved(source: &ServerSource) -> String {
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
const COLUMNS: [TableColumn; 10] = [
    TableColumn("worker", "worker"),
    TableColumn("queue", "queue"),
    TableColumn("asked", "count"),
    TableColumn("mean", "mean_ns"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("max", "max_ns"),
    TableColumn("now", "now"),
    TableColumn("of", "limit"),
    TableColumn("bytes", "bytes"),
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
