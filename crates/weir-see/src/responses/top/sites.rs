//! The tables of sites: locations, phases, modules, upstream peers.

use std::collections::BTreeMap;

use weir_trace::{PHASES, SiteInfo, SiteKind, SiteTable, StatusCounts};

use super::window::{SiteWindow, TopWindow};
use crate::table::{TableCell, TableColumn, TableReport};

/// Locations, the busiest first: how many requests, how they ended, how long they took.
pub(super) fn routes(window: &TopWindow) -> TableReport {
    let mut report = TableReport::new(&ROUTES);
    for (info, lately) in known(window).filter(|(info, _)| info.kind == SiteKind::Request) {
        let status = &lately.status;
        let requests = status.total();
        let named =
            |code: u16| StatusCounts::NAMED.iter().position(|&n| n == code).map_or(0, |n| status.named[n]);
        let each = |sum: u64, count: u64| TableCell::Time(sum.checked_div(count).unwrap_or(0));
        report.row([
            TableCell::text(place(&info)),
            TableCell::Rate(window.rate(requests)),
            TableCell::share(status.classes[4], requests),
            TableCell::share(named(429), requests),
            TableCell::share(named(499), requests),
            TableCell::share(status.classes[5], requests),
            TableCell::share(named(500), requests),
            TableCell::share(named(502), requests),
            TableCell::share(named(503), requests),
            TableCell::share(named(504), requests),
            TableCell::Time(lately.total.quantile(0.5)),
            TableCell::Time(lately.total.quantile(0.99)),
            each(lately.run.sum, lately.run.count),
            each(lately.kernel, lately.run.count),
            each(lately.wait.sum, lately.run.count),
            TableCell::Bytes(window.rate(lately.bytes_out) as u64),
        ]);
    }
    report.sort_by(|row| if let TableCell::Rate(rate) = row[1] { rate } else { 0.0 });
    report
}

/// The phases in their order, with the handlers of all modules and locations added up: times are per request that came
/// there, however many handlers it met. Below them what the kernel did for all requests outside of phases; shares are of
/// both.
pub(super) fn phases(window: &TopWindow) -> TableReport {
    let mut sums: BTreeMap<usize, BTreeMap<String, SiteWindow>> = BTreeMap::new();
    for (info, lately) in known(window) {
        let Some(rank) = info.phase.and_then(|phase| PHASES.iter().position(|name| *name == phase)) else {
            continue;
        };
        let sum = sums.entry(rank).or_default().entry(info.location.to_string()).or_default();
        let requests = sum.run.count.max(lately.run.count);
        sum.add(lately);
        sum.run.count = requests;
    }
    let kernel = in_kernel(window);
    let all = running(window) + kernel.time;
    let mut report = TableReport::new(&PHASE_COLUMNS);
    for (rank, locations) in sums {
        let sum = |of: fn(&SiteWindow) -> u64| locations.values().map(of).sum::<u64>();
        let requests = sum(|lately| lately.run.count);
        report.row([
            TableCell::text(PHASES[rank]),
            TableCell::Rate(window.rate(requests)),
            TableCell::Time(sum(|lately| lately.run.sum).checked_div(requests).unwrap_or(0)),
            TableCell::Time(sum(|lately| lately.wait.sum).checked_div(requests).unwrap_or(0)),
            TableCell::share(sum(|lately| lately.run.sum), all),
            TableCell::Count(sum(|lately| lately.errors)),
        ]);
    }
    if kernel.time > 0 {
        report.row([
            TableCell::text("kernel"),
            TableCell::Rate(window.rate(kernel.requests)),
            TableCell::Time(kernel.time.checked_div(kernel.requests).unwrap_or(0)),
            TableCell::Time(0),
            TableCell::share(kernel.time, all),
            TableCell::Count(0),
        ]);
    }
    report
}

/// What modules do, the dearest first: handlers and filters of all locations added up.
pub(super) fn modules(window: &TopWindow) -> TableReport {
    let named = known(window).filter_map(|(info, lately)| match info.kind {
        SiteKind::Handler(_) => Some((format!("{} {}", info.phase.unwrap_or("handler"), info.name), lately)),
        SiteKind::Request | SiteKind::Phase(_) | SiteKind::Other => None,
        SiteKind::Function | SiteKind::File => None,
        _ => Some((info.label(), lately)),
    });
    let mut report = times(window, sums(named).into_iter().collect());
    report.sort_by(|row| if let TableCell::Share(share) = row[6] { share } else { 0.0 });
    report
}

/// Upstream peers: tries, failures, and how long they were waited for.
pub(super) fn upstreams(window: &TopWindow) -> TableReport {
    let mut report = TableReport::of([&PEERS[..], &TRAFFIC[..]].concat());
    let tries = known(window).filter(|(info, _)| info.kind == SiteKind::UpstreamTry);
    let mut rows = sums(tries.map(|(info, lately)| (info.name.to_string(), lately)));
    // One that refuses is asked seldom.
    for (name, peer) in &window.peers {
        if peer.requests + peer.faults + peer.repeated > 0 {
            rows.entry(name.clone()).or_default();
        }
    }
    for (name, lately) in rows {
        let peer = window.peers.get(&name).cloned().unwrap_or_default();
        report.row([
            TableCell::Text(name),
            TableCell::Rate(window.rate(lately.calls)),
            TableCell::share(lately.errors, lately.calls),
            TableCell::Count(peer.refused),
            TableCell::Count(peer.reset),
            TableCell::Count(peer.repeated),
            TableCell::Time(lately.wait.quantile(0.5)),
            TableCell::Time(lately.wait.quantile(0.99)),
            TableCell::Time(lately.wait.sum.checked_div(lately.run.count).unwrap_or(0)),
            TableCell::Bytes(window.rate(lately.bytes_in) as u64),
            TableCell::Bytes(window.rate(lately.bytes_out) as u64),
        ]);
    }
    report.sort_by(|row| if let TableCell::Rate(rate) = row[1] { rate } else { 0.0 });
    report
}

fn known(window: &TopWindow) -> impl Iterator<Item = (SiteInfo, &SiteWindow)> {
    let table = SiteTable::global();
    window.sites.iter().map(|(site, lately)| (table.info(*site), lately))
}

fn sums<'a, K: Ord>(rows: impl Iterator<Item = (K, &'a SiteWindow)>) -> BTreeMap<K, SiteWindow> {
    let mut sums: BTreeMap<K, SiteWindow> = BTreeMap::new();
    rows.for_each(|(key, lately)| sums.entry(key).or_default().add(lately));
    sums
}

/// The running time of all requests.
fn running(window: &TopWindow) -> u64 {
    known(window).filter(|(info, _)| info.kind == SiteKind::Request).map(|(_, lately)| lately.run.sum).sum()
}

/// What the kernel did for requests.
struct KernelSum {
    requests: u64,
    /// Nanoseconds.
    time: u64,
}

fn in_kernel(window: &TopWindow) -> KernelSum {
    let routes = known(window).filter(|(info, _)| info.kind == SiteKind::Request);
    routes.fold(KernelSum { requests: 0, time: 0 }, |sum, (_, lately)| KernelSum {
        requests: sum.requests + lately.run.count,
        time: sum.time + lately.kernel,
    })
}

/// Times of named things; shares are of all running time of requests.
fn times(window: &TopWindow, rows: Vec<(String, SiteWindow)>) -> TableReport {
    let all = running(window);
    let mut report = TableReport::new(&MODULE_COLUMNS);
    for (name, lately) in rows {
        report.row([
            TableCell::Text(name),
            TableCell::Rate(window.rate(lately.calls)),
            TableCell::Time(lately.run.sum.checked_div(lately.run.count).unwrap_or(0)),
            TableCell::Time(lately.run.quantile(0.5)),
            TableCell::Time(lately.run.quantile(0.99)),
            TableCell::Time(lately.wait.sum.checked_div(lately.run.count).unwrap_or(0)),
            TableCell::share(lately.run.sum, all),
            TableCell::Count(lately.errors),
        ]);
    }
    report
}

fn place(info: &SiteInfo) -> String {
    if info.location.is_empty() { "-".to_owned() } else { info.location.to_string() }
}

const ROUTES: [TableColumn; 16] = [
    TableColumn("location", "location"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("4xx", "share_4xx"),
    TableColumn("429", "share_429"),
    TableColumn("499", "share_499"),
    TableColumn("5xx", "share_5xx"),
    TableColumn("500", "share_500"),
    TableColumn("502", "share_502"),
    TableColumn("503", "share_503"),
    TableColumn("504", "share_504"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("run/req", "run_ns"),
    TableColumn("kernel/req", "kernel_ns"),
    TableColumn("wait/req", "wait_ns"),
    TableColumn("out/s", "bytes_out_per_second"),
];
const PHASE_COLUMNS: [TableColumn; 6] = [
    TableColumn("phase", "phase"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("run/req", "run_ns"),
    TableColumn("wait/req", "wait_ns"),
    TableColumn("share", "share_of_cpu"),
    TableColumn("errors", "errors"),
];
const MODULE_COLUMNS: [TableColumn; 8] = [
    TableColumn("module", "module"),
    TableColumn("calls/s", "calls_per_second"),
    TableColumn("run", "run_ns"),
    TableColumn("p50", "run_p50_ns"),
    TableColumn("p99", "run_p99_ns"),
    TableColumn("wait", "wait_ns"),
    TableColumn("share", "share_of_run"),
    TableColumn("errors", "errors"),
];
/// What is said of a peer, of one server or of several.
pub(crate) const PEERS: [TableColumn; 8] = [
    TableColumn("peer", "peer"),
    TableColumn("tries/s", "tries_per_second"),
    TableColumn("failed", "share_failed"),
    TableColumn("refused", "refused"),
    TableColumn("reset", "reset"),
    TableColumn("repeated", "repeated"),
    TableColumn("wait p50", "wait_p50_ns"),
    TableColumn("wait p99", "wait_p99_ns"),
];
/// And of one server besides.
const TRAFFIC: [TableColumn; 3] = [
    TableColumn("wait mean", "wait_ns"),
    TableColumn("in/s", "bytes_in_per_second"),
    TableColumn("out/s", "bytes_out_per_second"),
];
