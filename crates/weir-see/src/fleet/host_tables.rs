//! `/hosts`: the tables of several servers, each for itself and all together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_http::json::JsonWriter;
use weir_trace::SiteKind;
use weir_upstream::PeerTotals;

use super::host_totals::HostTotals;
use super::watch::{FleetWatch, HostLook, HostState};
use crate::responses::top::sites::PEERS;
use crate::responses::top::window::{LatencySpread, SiteWindow};
use crate::source::ServerSource;
use crate::table::{TableCell, TableColumn, TableReport};

impl FleetWatch {
    /// The tables, as text or as JSON: the hosts; then locations, peers and workers of the host called `chosen`, or of
    /// all of them.
    ///
    /// # Errors
    /// No host is called so.
    pub(crate) fn tables(
        self: &Arc<Self>,
        source: &ServerSource,
        chosen: Option<&str>,
        json: bool,
    ) -> Result<String, String> {
        let looks = self.look(source);
        let meant = |look: &&HostLook| chosen.is_none_or(|name| look.name == name);
        if !looks.iter().any(|look| meant(&look)) {
            return Err("no host of the admin_host lines is called so".to_owned());
        }
        let shown: Vec<&HostLook> = looks.iter().filter(meant).collect();
        let sums = FleetSums::of(&shown);
        let tables = [
            ("hosts", hosts(&looks)),
            ("locations", sums.locations()),
            ("upstreams", sums.upstreams()),
            ("workers", workers(&shown)),
        ];
        Ok(if json { as_json(&tables) } else { as_text(&tables) })
    }
}

fn as_json(tables: &[(&str, TableReport)]) -> String {
    JsonWriter::object(|json| {
        for (name, table) in tables {
            json.key(name).raw(table.json().trim_end());
        }
    }) + "\n"
}

fn as_text(tables: &[(&str, TableReport)]) -> String {
    tables.iter().map(|(_, table)| table.text()).collect::<Vec<_>>().join("\n")
}

/// What several hosts did lately.
#[derive(Default)]
struct FleetSums<'a> {
    locations: BTreeMap<&'a str, FleetSum>,
    peers: BTreeMap<&'a str, FleetSum>,
    /// Faults since each server began.
    faults: BTreeMap<&'a str, PeerTotals>,
}

/// The sum of one thing over hosts.
#[derive(Default)]
struct FleetSum {
    hosts: u64,
    window: SiteWindow,
    /// Requests or tries, and bytes, a second: intervals of hosts are not of the same length.
    rate: f64,
    bytes: f64,
}

impl FleetSum {
    fn add(&mut self, lately: &SiteWindow, count: u64, time: Duration) {
        let seconds = time.as_secs_f64().max(1e-9);
        self.window.add(lately);
        self.rate += count as f64 / seconds;
        self.bytes += lately.bytes_out as f64 / seconds;
        self.hosts += 1;
    }
}

impl<'a> FleetSums<'a> {
    fn of(looks: &[&'a HostLook]) -> FleetSums<'a> {
        let mut sums = FleetSums::default();
        for look in looks {
            sums.add_all(look.all.as_deref());
            let Some((lately, time)) = &look.lately else { continue };
            for (site, window) in lately.of_kind(SiteKind::Request) {
                let requests = window.status.total();
                if requests > 0 {
                    sums.locations.entry(&site.location).or_default().add(window, requests, *time);
                }
            }
            // A try has a site for each location.
            for (site, window) in lately.of_kind(SiteKind::UpstreamTry) {
                sums.peers.entry(&site.name).or_default().add(window, window.calls, *time);
            }
        }
        sums
    }

    fn add_all(&mut self, all: Option<&'a HostTotals>) {
        for (name, peer) in all.iter().flat_map(|all| &all.peers) {
            self.faults.entry(name).or_default().merge(peer);
            self.peers.entry(name).or_default();
        }
    }

    fn locations(&self) -> TableReport {
        let mut report = TableReport::new(&LOCATIONS);
        for (name, sum) in busiest(&self.locations) {
            let (lately, requests) = (&sum.window, sum.window.status.total());
            let each = |ns: u64| TableCell::Time(ns.checked_div(lately.run.count).unwrap_or(0));
            report.row([
                TableCell::text(name),
                TableCell::Count(sum.hosts),
                TableCell::Rate(sum.rate),
                TableCell::share(lately.status.classes[4], requests),
                TableCell::share(lately.status.classes[5], requests),
                quantile(&lately.total, 0.5),
                quantile(&lately.total, 0.99),
                each(lately.run.sum),
                each(lately.wait.sum),
                TableCell::Bytes(sum.bytes as u64),
            ]);
        }
        report
    }

    fn upstreams(&self) -> TableReport {
        let mut report = TableReport::new(&PEERS);
        for (name, sum) in busiest(&self.peers) {
            let (lately, peer) = (&sum.window, self.faults.get(name).cloned().unwrap_or_default());
            report.row([
                TableCell::text(name),
                TableCell::Rate(sum.rate),
                TableCell::share(lately.errors, lately.calls),
                TableCell::Count(peer.refused),
                TableCell::Count(peer.reset),
                TableCell::Count(peer.repeated),
                quantile(&lately.wait, 0.5),
                quantile(&lately.wait, 0.99),
            ]);
        }
        report
    }
}

/// The busiest first, those that have a row.
fn busiest<'s, 'a>(sums: &'s BTreeMap<&'a str, FleetSum>) -> impl Iterator<Item = (&'a str, &'s FleetSum)> {
    let mut rows: Vec<(&str, &FleetSum)> = sums.iter().map(|(name, sum)| (*name, sum)).collect();
    rows.sort_by(|(_, one), (_, other)| other.rate.total_cmp(&one.rate));
    rows.into_iter().take(MOST_ROWS)
}

/// A row for each host, those too that do not respond.
fn hosts(looks: &[HostLook]) -> TableReport {
    let mut report = TableReport::new(&HOSTS);
    looks.iter().for_each(|look| report.row(host(look)));
    report
}

fn host(look: &HostLook) -> Vec<TableCell> {
    let (state, says) = match &look.state {
        HostState::Up => ("up", String::new()),
        HostState::Asked => ("asked", String::new()),
        HostState::Silent(why) => ("silent", why.clone()),
        HostState::Same(name) => ("same", format!("is {name}, and is not counted twice")),
    };
    let mut cells = vec![TableCell::text(look.name.as_str()), TableCell::text(state)];
    match &look.lately {
        Some((lately, time)) => cells.extend(figures(lately, *time)),
        None => cells.extend(std::iter::repeat_n(TableCell::None, FIGURES)),
    }
    match &look.all {
        Some(all) => cells.extend([
            TableCell::Count(all.connections),
            TableCell::Count(all.in_flight),
            TableCell::Count(all.uptime_ms / 1000),
            TableCell::text(all.version.as_str()),
        ]),
        None => cells.extend(std::iter::repeat_n(TableCell::None, 4)),
    }
    cells.push(TableCell::Text(says));
    cells
}

fn figures(lately: &HostTotals, time: Duration) -> [TableCell; FIGURES] {
    let (sum, seconds) = (lately.requests(), time.as_secs_f64().max(1e-9));
    let requests = sum.status.total();
    [
        TableCell::Rate(requests as f64 / seconds),
        TableCell::share(sum.status.classes[4], requests),
        TableCell::share(sum.status.classes[5], requests),
        quantile(&sum.total, 0.5),
        quantile(&sum.total, 0.99),
        TableCell::share(lately.cpu_ns, time.as_nanos() as u64),
        TableCell::Bytes((sum.bytes_out as f64 / seconds) as u64),
    ]
}

/// Of nothing it is not known.
fn quantile(times: &LatencySpread, q: f64) -> TableCell {
    if times.count == 0 { TableCell::None } else { TableCell::Time(times.quantile(q)) }
}

/// A row for each worker of hosts that list them.
fn workers(looks: &[&HostLook]) -> TableReport {
    let mut report = TableReport::new(&WORKERS);
    for look in looks {
        let Some((lately, time)) = &look.lately else { continue };
        for (number, worker) in lately.workers.iter().enumerate() {
            report.row([
                TableCell::text(look.name.as_str()),
                TableCell::Count(number as u64),
                TableCell::share(worker.busy_ns, worker.busy_ns + worker.parked_ns),
                TableCell::share(worker.cpu_ns, time.as_nanos() as u64),
                TableCell::Rate(worker.requests as f64 / time.as_secs_f64().max(1e-9)),
                TableCell::Count(worker.connections),
                TableCell::Count(worker.in_flight),
                TableCell::Count(worker.stalls),
            ]);
        }
    }
    report
}

/// Rows of a table at most: what a browser draws again each second.
const MOST_ROWS: usize = 200;
/// Columns of what a host did lately.
const FIGURES: usize = 7;
const HOSTS: [TableColumn; 14] = [
    TableColumn("host", "host"),
    TableColumn("state", "state"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("4xx", "share_4xx"),
    TableColumn("5xx", "share_5xx"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("CPU", "share_of_a_core"),
    TableColumn("out/s", "bytes_out_per_second"),
    TableColumn("connections", "connections"),
    TableColumn("in flight", "requests_in_flight"),
    TableColumn("uptime", "uptime_seconds"),
    TableColumn("version", "version"),
    TableColumn("says", "says"),
];
const LOCATIONS: [TableColumn; 10] = [
    TableColumn("location", "location"),
    TableColumn("hosts", "hosts"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("4xx", "share_4xx"),
    TableColumn("5xx", "share_5xx"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("run/req", "run_ns"),
    TableColumn("wait/req", "wait_ns"),
    TableColumn("out/s", "bytes_out_per_second"),
];
const WORKERS: [TableColumn; 8] = [
    TableColumn("host", "host"),
    TableColumn("worker", "worker"),
    TableColumn("busy", "share_busy"),
    TableColumn("cpu", "share_cpu"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("conns", "connections"),
    TableColumn("answering", "requests_in_flight"),
    TableColumn("stalls", "stalls"),
];
