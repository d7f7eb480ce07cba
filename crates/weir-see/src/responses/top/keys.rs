//! The table of keys: what tenants, hosts or consumers get and cost (`profile_key`).

use std::collections::BTreeMap;

use weir_engine::figures::KeyZone;
use weir_trace::KeyCounts;

use super::window::TopWindow;
use crate::table::{TableCell, TableColumn, TableReport};

/// What was counted by key between two moments.
pub(super) struct KeyWindow {
    zones: Vec<KeyZone>,
}

impl KeyWindow {
    pub(super) fn between(before: &[KeyZone], after: &[KeyZone]) -> KeyWindow {
        let zones = after.iter().map(|zone| {
            let was = before.iter().find(|was| was.name == zone.name && was.key == zone.key);
            was.map_or_else(|| zone.clone(), |was| since(was, zone))
        });
        KeyWindow { zones: zones.collect() }
    }
}

fn since(before: &KeyZone, after: &KeyZone) -> KeyZone {
    let was: BTreeMap<&str, &KeyCounts> =
        before.rows.iter().map(|(key, counts)| (key.as_str(), counts)).collect();
    let row = |(key, counts): &(String, KeyCounts)| {
        let lately = was.get(key.as_str()).map_or_else(|| counts.clone(), |was| counts.since(was));
        (key.clone(), lately)
    };
    KeyZone {
        rows: after.rows.iter().map(row).collect(),
        folded: after.folded.since(&before.folded),
        ..after.clone()
    }
}

/// A row for each key that got requests, the busiest first; that of all without counts of their own is called `(others)`.
pub(super) fn report(window: &TopWindow) -> TableReport {
    let mut report = TableReport::new(&COLUMNS);
    for zone in &window.keys.zones {
        let others = (OTHERS.to_owned(), zone.folded.clone());
        let rows: Vec<_> =
            zone.rows.iter().chain([&others]).filter(|(_, counts)| counts.requests > 0).collect();
        let requests = rows.iter().map(|(_, counts)| counts.requests).sum();
        let cpu = rows.iter().map(|(_, counts)| counts.cpu_ns).sum();
        for (key, counts) in rows {
            report.row(row(window, zone, key, counts, &ZoneSums { requests, cpu }));
        }
    }
    report.sort_by(|row| if let TableCell::Rate(rate) = row[RATE] { rate } else { 0.0 });
    report
}

struct ZoneSums {
    requests: u64,
    cpu: u64,
}

fn row(
    window: &TopWindow,
    zone: &KeyZone,
    key: &str,
    counts: &KeyCounts,
    sums: &ZoneSums,
) -> [TableCell; COLUMNS.len()] {
    [
        TableCell::text(zone.name.as_str()),
        TableCell::text(key),
        TableCell::Rate(window.rate(counts.requests)),
        TableCell::share(counts.requests, sums.requests),
        TableCell::share(counts.client_errors, counts.requests),
        TableCell::share(counts.server_errors, counts.requests),
        TableCell::Time(counts.durations.quantile_us(0.5) * 1_000),
        TableCell::Time(counts.durations.quantile_us(0.99) * 1_000),
        TableCell::Time(counts.run_ns.checked_div(counts.requests).unwrap_or(0)),
        TableCell::Time(counts.cpu_ns.checked_div(counts.requests).unwrap_or(0)),
        TableCell::share(counts.cpu_ns, sums.cpu),
        TableCell::Bytes(window.rate(counts.bytes_in) as u64),
        TableCell::Bytes(window.rate(counts.bytes_out) as u64),
    ]
}

/// What is in no key: their names are in brackets, and a key that looks like it is in a row of its own.
const OTHERS: &str = "(others)";

/// The column of requests in a second.
const RATE: usize = 2;

const COLUMNS: [TableColumn; 13] = [
    TableColumn("zone", "zone"),
    TableColumn("key", "key"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("share", "share_of_requests"),
    TableColumn("4xx", "share_4xx"),
    TableColumn("5xx", "share_5xx"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("run/req", "run_ns"),
    TableColumn("cpu/req", "cpu_ns"),
    TableColumn("cpu", "share_of_cpu"),
    TableColumn("in/s", "bytes_in_per_second"),
    TableColumn("out/s", "bytes_out_per_second"),
];

#[cfg(test)]
mod tests {
    use weir_trace::KeyedRequest;

    use super::*;

    fn counts(requests: u64, status: u16) -> KeyCounts {
        let mut counts = KeyCounts::default();
        (0..requests).for_each(|_| counts.add(&KeyedRequest { status, ..KeyedRequest::default() }));
        counts
    }

    fn zone(rows: &[(&str, u64)], folded: u64) -> KeyZone {
        let rows = rows.iter().map(|(key, requests)| ((*key).to_owned(), counts(*requests, 200))).collect();
        KeyZone { name: "z".into(), rows, folded: counts(folded, 500), ..KeyZone::default() }
    }

    #[test]
    fn a_window_has_what_came_in_it() {
        let window =
            KeyWindow::between(&[zone(&[("a", 5), ("gone", 7)], 1)], &[zone(&[("a", 9), ("b", 2)], 8)]);
        let found: Vec<_> =
            window.zones[0].rows.iter().map(|(key, counts)| (key.as_str(), counts.requests)).collect();
        assert_eq!((found, window.zones[0].folded.server_errors), (vec![("a", 4), ("b", 2)], 7));
    }

    #[test]
    fn a_zone_that_is_new_is_all_new() {
        let window = KeyWindow::between(&[], &[zone(&[("a", 3)], 0)]);
        assert_eq!(window.zones[0].rows[0].1.requests, 3);
    }
}
