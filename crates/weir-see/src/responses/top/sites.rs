//! The tables of sites: locations, phases, modules, upstream peers.

use std::collections::BTreeMap;

use weir_trace::{Kind, PHASES, SiteInfo, SiteTable, StatusCounts};

use super::window::{Lately, Window};
use crate::table::{Cell, Column, Report};

/// Locations, the busiest first: how many requests, how they ended, how long they took.
pub(super) fn routes(window: &Window) -> Report {
    let mut report = Report::new(&ROUTES);
    for (info, lately) in known(window).filter(|(info, _)| info.kind == Kind::Request) {
        let status = &lately.status;
        let requests = status.total();
        let named =
            |code: u16| StatusCounts::NAMED.iter().position(|&n| n == code).map_or(0, |n| status.named[n]);
        let each = |sum: u64, count: u64| Cell::Time(sum.checked_div(count).unwrap_or(0));
        report.row([
            Cell::text(place(&info)),
            Cell::Rate(window.rate(requests)),
            Cell::share(status.classes[4], requests),
            Cell::share(named(501), requests),
            Cell::share(named(502), requests),
            Cell::share(named(504), requests),
            Cell::share(status.classes[5], requests),
            Cell::Time(lately.total.quantile(0.5)),
            Cell::Time(lately.total.quantile(0.99)),
            each(lately.run.sum, lately.run.count),
            each(lately.wait.sum, lately.run.count),
            Cell::Bytes(window.rate(lately.bytes_out) as u64),
        ]);
    }
    report.sort_by(|row| if let Cell::Rate(rate) = row[1] { rate } else { 0.0 });
    report
}

/// The phases in their order, with the handlers of all modules and locations added up: times are per request that came
/// there, however many handlers it met.
pub(super) fn phases(window: &Window) -> Report {
    let mut sums: BTreeMap<usize, BTreeMap<String, Lately>> = BTreeMap::new();
    for (info, lately) in known(window) {
        let Some(rank) = info.phase.and_then(|phase| PHASES.iter().position(|name| *name == phase)) else {
            continue;
        };
        let sum = sums.entry(rank).or_default().entry(info.location.to_string()).or_default();
        let requests = sum.run.count.max(lately.run.count);
        sum.add(lately);
        sum.run.count = requests;
    }
    let all = running(window);
    let mut report = Report::new(&PHASE_COLUMNS);
    for (rank, locations) in sums {
        let sum = |of: fn(&Lately) -> u64| locations.values().map(of).sum::<u64>();
        let requests = sum(|lately| lately.run.count);
        report.row([
            Cell::text(PHASES[rank]),
            Cell::Rate(window.rate(requests)),
            Cell::Time(sum(|lately| lately.run.sum).checked_div(requests).unwrap_or(0)),
            Cell::Time(sum(|lately| lately.wait.sum).checked_div(requests).unwrap_or(0)),
            Cell::share(sum(|lately| lately.run.sum), all),
            Cell::Count(sum(|lately| lately.errors)),
        ]);
    }
    report
}

/// What modules do, the dearest first: handlers and filters of all locations added up.
pub(super) fn modules(window: &Window) -> Report {
    let named = known(window).filter_map(|(info, lately)| match info.kind {
        Kind::Handler(_) => Some((format!("{} {}", info.phase.unwrap_or("handler"), info.name), lately)),
        Kind::Request | Kind::Phase(_) | Kind::Other => None,
        _ => Some((info.label(), lately)),
    });
    let mut report = times(window, sums(named).into_iter().collect());
    report.sort_by(|row| if let Cell::Share(share) = row[6] { share } else { 0.0 });
    report
}

/// Upstream peers: tries, failures, and how long they were waited for.
pub(super) fn upstreams(window: &Window) -> Report {
    let mut report = Report::new(&UPSTREAMS);
    let tries = known(window).filter(|(info, _)| info.kind == Kind::UpstreamTry);
    for (name, lately) in sums(tries.map(|(info, lately)| (info.name.to_string(), lately))) {
        report.row([
            Cell::Text(name),
            Cell::Rate(window.rate(lately.calls)),
            Cell::share(lately.errors, lately.calls),
            Cell::Time(lately.wait.quantile(0.5)),
            Cell::Time(lately.wait.quantile(0.99)),
            Cell::Time(lately.wait.sum.checked_div(lately.run.count).unwrap_or(0)),
            Cell::Bytes(window.rate(lately.bytes_in) as u64),
            Cell::Bytes(window.rate(lately.bytes_out) as u64),
        ]);
    }
    report.sort_by(|row| if let Cell::Rate(rate) = row[1] { rate } else { 0.0 });
    report
}

fn known(window: &Window) -> impl Iterator<Item = (SiteInfo, &Lately)> {
    let table = SiteTable::global();
    window.sites.iter().map(|(site, lately)| (table.info(*site), lately))
}

fn sums<'a, K: Ord>(rows: impl Iterator<Item = (K, &'a Lately)>) -> BTreeMap<K, Lately> {
    let mut sums: BTreeMap<K, Lately> = BTreeMap::new();
    rows.for_each(|(key, lately)| sums.entry(key).or_default().add(lately));
    sums
}

/// The running time of all requests.
fn running(window: &Window) -> u64 {
    known(window).filter(|(info, _)| info.kind == Kind::Request).map(|(_, lately)| lately.run.sum).sum()
}

/// Times of named things; shares are of all running time of requests.
fn times(window: &Window, rows: Vec<(String, Lately)>) -> Report {
    let all = running(window);
    let mut report = Report::new(&MODULE_COLUMNS);
    for (name, lately) in rows {
        report.row([
            Cell::Text(name),
            Cell::Rate(window.rate(lately.calls)),
            Cell::Time(lately.run.sum.checked_div(lately.run.count).unwrap_or(0)),
            Cell::Time(lately.run.quantile(0.5)),
            Cell::Time(lately.run.quantile(0.99)),
            Cell::Time(lately.wait.sum.checked_div(lately.run.count).unwrap_or(0)),
            Cell::share(lately.run.sum, all),
            Cell::Count(lately.errors),
        ]);
    }
    report
}

fn place(info: &SiteInfo) -> String {
    if info.location.is_empty() { "-".to_owned() } else { info.location.to_string() }
}

const ROUTES: [Column; 12] = [
    Column("location", "location"),
    Column("req/s", "requests_per_second"),
    Column("4xx", "share_4xx"),
    Column("501", "share_501"),
    Column("502", "share_502"),
    Column("504", "share_504"),
    Column("5xx", "share_5xx"),
    Column("p50", "p50_ns"),
    Column("p99", "p99_ns"),
    Column("run/req", "run_ns"),
    Column("wait/req", "wait_ns"),
    Column("out/s", "bytes_out_per_second"),
];
const PHASE_COLUMNS: [Column; 6] = [
    Column("phase", "phase"),
    Column("req/s", "requests_per_second"),
    Column("run/req", "run_ns"),
    Column("wait/req", "wait_ns"),
    Column("share", "share_of_run"),
    Column("errors", "errors"),
];
const MODULE_COLUMNS: [Column; 8] = [
    Column("module", "module"),
    Column("calls/s", "calls_per_second"),
    Column("run", "run_ns"),
    Column("p50", "run_p50_ns"),
    Column("p99", "run_p99_ns"),
    Column("wait", "wait_ns"),
    Column("share", "share_of_run"),
    Column("errors", "errors"),
];
const UPSTREAMS: [Column; 8] = [
    Column("peer", "peer"),
    Column("tries/s", "tries_per_second"),
    Column("failed", "share_failed"),
    Column("wait p50", "wait_p50_ns"),
    Column("wait p99", "wait_p99_ns"),
    Column("wait mean", "wait_ns"),
    Column("in/s", "bytes_in_per_second"),
    Column("out/s", "bytes_out_per_second"),
];
