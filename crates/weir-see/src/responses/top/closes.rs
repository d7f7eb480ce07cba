//! The table of why connections and streams ended.

use super::window::TopWindow;
use crate::table::{TableCell, TableColumn, TableReport};

/// A row for each reason that was ever seen, the most frequent lately first; `total` is since the server began.
pub(super) fn report(window: &TopWindow) -> TableReport {
    let (before, after) = &window.closes;
    let mut rows: Vec<_> =
        after.rows().map(|(row, total)| (row, total - before.get(row).min(total), total)).collect();
    rows.sort_by_key(|&(_, lately, total)| std::cmp::Reverse((lately, total)));
    let all: u64 = rows.iter().map(|(_, lately, _)| lately).sum();
    let mut report = TableReport::new(&COLUMNS);
    for (row, lately, total) in rows {
        report.row([
            TableCell::text(row.what),
            TableCell::text(row.by),
            TableCell::text(row.reason),
            TableCell::Rate(window.rate(lately)),
            TableCell::share(lately, all),
            TableCell::Count(total),
            TableCell::text(row.says),
        ]);
    }
    report
}

const COLUMNS: [TableColumn; 7] = [
    TableColumn("what", "what"),
    TableColumn("first", "by"),
    TableColumn("reason", "reason"),
    TableColumn("closed/s", "closed_per_second"),
    TableColumn("share", "share"),
    TableColumn("total", "total"),
    TableColumn("means", "means"),
];
