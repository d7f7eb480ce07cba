//! The table of workers: load, connections, and what the kernel counts of their threads.

use super::window::Window;
use crate::table::{Cell, Column, Report};

/// A row a worker.
pub(super) fn report(window: &Window) -> Report {
    let mut report = Report::new(&COLUMNS);
    for (number, (before, now)) in window.workers.iter().enumerate() {
        let parked = now.turns.parked_ns - before.turns.parked_ns;
        let busy = now.turns.busy_ns - before.turns.busy_ns;
        let connections = window.connections.get(number).copied();
        report.row([
            Cell::Count(number as u64),
            Cell::Rate(window.rate(now.requests - before.requests)),
            connections.map_or(Cell::Count(now.active), Cell::Rate),
            Cell::Count(now.waiting),
            Cell::Count(now.writing),
            Cell::Rate(window.rate(now.accepted - before.accepted)),
            Cell::share(busy, busy + parked),
            Cell::Rate(window.rate(now.turns.turns - before.turns.turns)),
        ]);
    }
    report
}

const COLUMNS: [Column; 8] = [
    Column("worker", "worker"),
    Column("req/s", "requests_per_second"),
    Column("conns", "connections"),
    Column("idle", "connections_idle"),
    Column("answering", "requests_in_flight"),
    Column("accept/s", "accepted_per_second"),
    Column("busy", "share_busy"),
    Column("turns/s", "turns_per_second"),
];
