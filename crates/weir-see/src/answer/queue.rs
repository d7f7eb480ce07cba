//! `queue`: where requests wait before anybody has seen them: in listeners and in sockets. Who waits for the loop is
//! told by `blocked` and `reqs`.

use weir_rt::LoopSnapshot;
use weir_trace::Histogram;

use crate::control::protocol::Question;
use crate::source::{Source, Thread, scale};
use crate::table::{Cell, Column, Report};

/// A row a worker and queue, since the server began; then the kernel's overflows.
pub(crate) fn answer(source: &Source, question: &Question) -> String {
    let mut report = Report::new(&COLUMNS);
    for worker in source.workers().iter() {
        for (name, histogram) in queues(worker) {
            report.row([
                Cell::Count(worker.recorder.worker().into()),
                Cell::text(name),
                Cell::Count(histogram.count()),
                Cell::Time(scale(histogram.mean())),
                Cell::Time(scale(histogram.quantile(0.5))),
                Cell::Time(scale(histogram.quantile(0.99))),
                Cell::Time(scale(histogram.max())),
            ]);
        }
    }
    let mut text = report.write(question.has("json"));
    if !question.has("json") {
        text.push_str(&starved(source));
        text.push_str(&overflows());
    }
    text
}

fn queues(worker: &Thread) -> [(&'static str, Histogram); 2] {
    [("accept", worker.recorder.accept_waits()), ("receive", worker.recorder.receive_waits())]
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

const COLUMNS: [Column; 7] = [
    Column("worker", "worker"),
    Column("queue", "queue"),
    Column("asked", "count"),
    Column("mean", "mean_ns"),
    Column("p50", "p50_ns"),
    Column("p99", "p99_ns"),
    Column("max", "max_ns"),
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
