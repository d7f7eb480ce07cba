//! The table of workers: load, connections, and what the kernel counts of their threads.

use weir_server::housekeeping::ThreadUse;

use super::window::{TopWindow, WorkerFigures};
use crate::table::{TableCell, TableColumn, TableReport};

/// A row a worker, then the process: memory is shared by its threads.
pub(super) fn report(window: &TopWindow) -> TableReport {
    let mut report = TableReport::new(&COLUMNS);
    for (number, (before, now)) in window.workers.iter().enumerate() {
        report.row(row(window, number, before, now));
    }
    if let Some(process) = &window.process {
        let mut cells = vec![TableCell::None; COLUMNS.len()];
        cells[0] = TableCell::text("process");
        cells[MEMORY] = TableCell::Bytes(process.resident);
        report.row(cells);
    }
    report
}

fn row(window: &TopWindow, number: usize, before: &WorkerFigures, now: &WorkerFigures) -> Vec<TableCell> {
    let parked = now.turns.parked_ns.saturating_sub(before.turns.parked_ns);
    let busy = now.turns.busy_ns.saturating_sub(before.turns.busy_ns);
    let was = before.thread.unwrap_or_default();
    let rate = |of: fn(&ThreadUse) -> u64| {
        now.thread
            .as_ref()
            .map_or(TableCell::None, |is| TableCell::Rate(window.rate(of(is).saturating_sub(of(&was)))))
    };
    let share = |of: fn(&ThreadUse) -> u64| {
        let time = window.time.as_nanos() as u64;
        now.thread
            .as_ref()
            .map_or(TableCell::None, |is| TableCell::share(of(is).saturating_sub(of(&was)), time))
    };
    vec![
        TableCell::text(number.to_string()),
        TableCell::Rate(window.rate(now.requests.saturating_sub(before.requests))),
        TableCell::Rate(connections(before, now)),
        TableCell::share(now.share(), window.workers.iter().map(|(_, now)| now.share()).sum()),
        TableCell::Count(now.waiting),
        TableCell::Count(now.writing),
        TableCell::Rate(window.rate(now.accepted.saturating_sub(before.accepted))),
        TableCell::Count(now.dealing.dealt.saturating_sub(before.dealing.dealt)),
        TableCell::Count(now.dealing.handed_on.saturating_sub(before.dealing.handed_on)),
        TableCell::Count(now.dealing.taken_over.saturating_sub(before.dealing.taken_over)),
        TableCell::Count(now.dealing.parked),
        TableCell::Count(now.dealing.queued),
        TableCell::Time(now.dealing.turn_ns),
        TableCell::Count(now.dealing.lost_core.saturating_sub(before.dealing.lost_core)),
        TableCell::share(busy, busy + parked),
        share(|thread| thread.cpu_ns),
        share(|thread| thread.run_queue_ns),
        rate(|thread| thread.switches_voluntary),
        rate(|thread| thread.switches_forced),
        rate(|thread| thread.faults_minor),
        rate(|thread| thread.faults_major),
        now.thread.as_ref().map_or(TableCell::None, |is| {
            let bytes = |thread: &ThreadUse| thread.disk_read + thread.disk_written;
            TableCell::Bytes(window.rate(bytes(is).saturating_sub(bytes(&was))) as u64)
        }),
        TableCell::Count(now.stalls.saturating_sub(before.stalls)),
        TableCell::None,
    ]
}

/// A line where a worker had no core for so long that times of running are not what they seem.
pub(super) fn without_core(window: &TopWindow) -> String {
    let time = window.time.as_nanos().max(1) as f64;
    let share = |(before, now): &(WorkerFigures, WorkerFigures)| {
        let queue = |figures: &WorkerFigures| figures.thread.map_or(0, |thread| thread.run_queue_ns);
        queue(now).saturating_sub(queue(before)) as f64 / time
    };
    let shares = window.workers.iter().map(share).enumerate();
    match shares.max_by(|one, other| one.1.total_cmp(&other.1)) {
        Some((worker, share)) if share >= LOST => format!(
            "worker {worker} waited for a processor {:.0}% of the time: times of running include that (weir why)\n",
            share.min(1.0) * 100.0
        ),
        _ => String::new(),
    }
}

/// The share of the time without a core from which on it is said.
const LOST: f64 = 0.2;

/// Live connections on average: their integral over the time between.
fn connections(before: &WorkerFigures, now: &WorkerFigures) -> f64 {
    let time = now.watched.saturating_sub(before.watched).as_millis() as f64;
    if time <= 0.0 {
        now.active as f64
    } else {
        (now.connection_ms.saturating_sub(before.connection_ms)) as f64 / time
    }
}

/// The column of the process' memory.
const MEMORY: usize = 23;
const COLUMNS: [TableColumn; 24] = [
    TableColumn("worker", "worker"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("conns", "connections"),
    TableColumn("share", "share_connections"),
    TableColumn("idle", "connections_idle"),
    TableColumn("answering", "requests_in_flight"),
    TableColumn("accept/s", "accepted_per_second"),
    TableColumn("dealt", "connections_dealt"),
    TableColumn("handed on", "connections_handed_on"),
    TableColumn("taken over", "connections_taken_over"),
    TableColumn("parked", "connections_parked"),
    TableColumn("queued", "connections_queued"),
    TableColumn("lag", "turn_ns"),
    TableColumn("lost core", "turns_lost_core"),
    TableColumn("busy", "share_busy"),
    TableColumn("cpu", "share_cpu"),
    TableColumn("runq", "share_run_queue"),
    TableColumn("csw/s", "switches_voluntary_per_second"),
    TableColumn("preempt/s", "switches_forced_per_second"),
    TableColumn("minflt/s", "faults_minor_per_second"),
    TableColumn("majflt/s", "faults_major_per_second"),
    TableColumn("disk/s", "disk_bytes_per_second"),
    TableColumn("stalls", "stalls"),
    TableColumn("memory", "resident_bytes"),
];
