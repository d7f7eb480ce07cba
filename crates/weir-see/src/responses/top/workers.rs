//! The table of workers: load, connections, and what the kernel counts of their threads.

use weir_server::housekeeping::ThreadUse;

use super::window::{Window, WorkerFigures};
use crate::table::{Cell, Column, Report};

/// A row a worker, then the process: memory is shared by its threads.
pub(super) fn report(window: &Window) -> Report {
    let mut report = Report::new(&COLUMNS);
    for (number, (before, now)) in window.workers.iter().enumerate() {
        report.row(row(window, number, before, now));
    }
    if let Some(process) = &window.process {
        let mut cells = vec![Cell::None; COLUMNS.len()];
        cells[0] = Cell::text("process");
        cells[MEMORY] = Cell::Bytes(process.resident);
        report.row(cells);
    }
    report
}

fn row(window: &Window, number: usize, before: &WorkerFigures, now: &WorkerFigures) -> Vec<Cell> {
    let parked = now.turns.parked_ns.saturating_sub(before.turns.parked_ns);
    let busy = now.turns.busy_ns.saturating_sub(before.turns.busy_ns);
    let was = before.thread.unwrap_or_default();
    let rate = |of: fn(&ThreadUse) -> u64| {
        now.thread.as_ref().map_or(Cell::None, |is| Cell::Rate(window.rate(of(is).saturating_sub(of(&was)))))
    };
    let share = |of: fn(&ThreadUse) -> u64| {
        let time = window.time.as_nanos() as u64;
        now.thread.as_ref().map_or(Cell::None, |is| Cell::share(of(is).saturating_sub(of(&was)), time))
    };
    vec![
        Cell::text(number.to_string()),
        Cell::Rate(window.rate(now.requests.saturating_sub(before.requests))),
        Cell::Rate(connections(before, now)),
        Cell::share(now.share(), window.workers.iter().map(|(_, now)| now.share()).sum()),
        Cell::Count(now.waiting),
        Cell::Count(now.writing),
        Cell::Rate(window.rate(now.accepted.saturating_sub(before.accepted))),
        Cell::Count(now.dealing.dealt.saturating_sub(before.dealing.dealt)),
        Cell::Count(now.dealing.handed_on.saturating_sub(before.dealing.handed_on)),
        Cell::Count(now.dealing.taken_over.saturating_sub(before.dealing.taken_over)),
        Cell::Count(now.dealing.parked),
        Cell::Count(now.dealing.queued),
        Cell::Time(now.dealing.turn_ns),
        Cell::Count(now.dealing.lost_core.saturating_sub(before.dealing.lost_core)),
        Cell::share(busy, busy + parked),
        share(|thread| thread.cpu_ns),
        share(|thread| thread.run_queue_ns),
        rate(|thread| thread.switches_voluntary),
        rate(|thread| thread.switches_forced),
        rate(|thread| thread.faults_minor),
        rate(|thread| thread.faults_major),
        now.thread.as_ref().map_or(Cell::None, |is| {
            let bytes = |thread: &ThreadUse| thread.disk_read + thread.disk_written;
            Cell::Bytes(window.rate(bytes(is).saturating_sub(bytes(&was))) as u64)
        }),
        Cell::Count(now.stalls.saturating_sub(before.stalls)),
        Cell::None,
    ]
}

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
const COLUMNS: [Column; 24] = [
    Column("worker", "worker"),
    Column("req/s", "requests_per_second"),
    Column("conns", "connections"),
    Column("share", "share_connections"),
    Column("idle", "connections_idle"),
    Column("answering", "requests_in_flight"),
    Column("accept/s", "accepted_per_second"),
    Column("dealt", "connections_dealt"),
    Column("handed on", "connections_handed_on"),
    Column("taken over", "connections_taken_over"),
    Column("parked", "connections_parked"),
    Column("queued", "connections_queued"),
    Column("lag", "turn_ns"),
    Column("lost core", "turns_lost_core"),
    Column("busy", "share_busy"),
    Column("cpu", "share_cpu"),
    Column("runq", "share_run_queue"),
    Column("csw/s", "switches_voluntary_per_second"),
    Column("preempt/s", "switches_forced_per_second"),
    Column("minflt/s", "faults_minor_per_second"),
    Column("majflt/s", "faults_major_per_second"),
    Column("disk/s", "disk_bytes_per_second"),
    Column("stalls", "stalls"),
    Column("memory", "resident_bytes"),
];
