//! `weir top --hosts`: the tables of several servers added up. What their admin listeners have counted is fetched before
//! and after each interval; histograms are added bucket by bucket, so quantiles are those of all requests together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_engine::trace::HostAddress;
use weir_trace::Site;

use crate::fleet::fetch::{self, HostQuestion};
use crate::fleet::host_totals::{HostTotals, TotalsPart};
use crate::responses::top::TopView;
use crate::responses::top::window::{SiteWindow, TopWindow};
use crate::table::{TableCell, TableColumn, TableReport};

/// Several servers, and what each said last.
pub(super) struct ServerFleet {
    hosts: Vec<FleetHost>,
    token: Option<String>,
    taken: Instant,
}

struct FleetHost {
    address: HostAddress,
    last: Result<HostTotals, String>,
}

impl ServerFleet {
    /// The servers of a list with commas: `HOST[:PORT]` or `unix:PATH` of their admin listeners. They are asked for the
    /// first time.
    ///
    /// # Errors
    /// A word is not an address; or no server responds.
    pub(super) fn new(list: &str, token: Option<String>) -> Result<ServerFleet, String> {
        let addresses = list.split(',').filter(|one| !one.is_empty()).map(HostAddress::parse);
        let hosts: Vec<FleetHost> = addresses
            .map(|address| Ok(FleetHost { address: address?, last: Err(String::new()) }))
            .collect::<Result<_, String>>()?;
        if hosts.is_empty() {
            return Err("\"--hosts\" needs the addresses of admin listeners: HOST:PORT,HOST:PORT".to_owned());
        }
        let mut fleet = ServerFleet { hosts, token, taken: Instant::now() };
        let found = fleet.ask();
        fleet.hosts.iter_mut().zip(found).for_each(|(host, last)| host.last = last);
        if fleet.hosts.iter().all(|host| host.last.is_err()) {
            return Err(fleet.silent().trim_end().to_owned());
        }
        Ok(fleet)
    }

    /// Asks all at once: one that does not respond holds up the others no longer than [`fetch::PATIENCE`].
    fn ask(&mut self) -> Vec<Result<HostTotals, String>> {
        self.taken = Instant::now();
        let token = self.token.as_deref();
        std::thread::scope(|scope| {
            let ask = |host: &FleetHost| {
                let address = host.address.clone();
                scope.spawn(move || {
                    let question =
                        HostQuestion { address: &address, path: "/totals", token, largest: LARGEST };
                    HostTotals::parse(&fetch::get(&question)?, TotalsPart::All)
                })
            };
            let asked: Vec<_> = self.hosts.iter().map(ask).collect();
            asked
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("failed".to_owned())))
                .collect()
        })
    }

    /// What came since the last call, of all servers that responded both times; and which of them did not.
    pub(super) fn window(&mut self) -> FleetWindow {
        let before = self.taken;
        let now = self.ask();
        let mut window = FleetWindow::new(self.taken.duration_since(before));
        for (host, now) in self.hosts.iter_mut().zip(now) {
            if let (Ok(last), Ok(now)) = (&host.last, &now) {
                window.add(&host.address.to_string(), &now.since(last), now);
            }
            host.last = now;
        }
        window.silent = self.silent();
        window
    }

    /// All since the servers began.
    pub(super) fn all_time(&self) -> FleetWindow {
        let longest = |host: &FleetHost| host.last.as_ref().map_or(0, |totals| totals.uptime_ms);
        let time = self.hosts.iter().map(longest).max().unwrap_or(0);
        let mut window = FleetWindow::new(Duration::from_millis(time));
        for host in &self.hosts {
            if let Ok(totals) = &host.last {
                window.add(&host.address.to_string(), totals, totals);
            }
        }
        window.silent = self.silent();
        window
    }

    /// A line for each server that does not respond.
    fn silent(&self) -> String {
        let line = |host: &FleetHost| Some(format!("{}: {}\n", host.address, host.last.as_ref().err()?));
        self.hosts.iter().filter_map(line).collect()
    }
}

/// What several servers did in an interval.
pub(super) struct FleetWindow {
    top: TopWindow,
    sites: BTreeMap<Site, SiteWindow>,
    hosts: Vec<(String, HostTotals)>,
    /// Lines about those that are missing.
    silent: String,
}

impl FleetWindow {
    fn new(time: Duration) -> FleetWindow {
        let top = TopWindow::of_sites(time, BTreeMap::new());
        FleetWindow { top, sites: BTreeMap::new(), hosts: Vec::new(), silent: String::new() }
    }

    /// Adds what the server `name` did, which has counted `all` since it began.
    fn add(&mut self, name: &str, lately: &HostTotals, all: &HostTotals) {
        for (site, totals) in &lately.sites {
            self.sites.entry(site.interned()).or_default().add(totals);
        }
        for (name, peer) in &lately.peers {
            self.top.peers.entry(name.clone()).or_default().merge(peer);
        }
        let (before, after) = &mut self.top.closes;
        after.merge(&all.closes);
        // What was before is all but what came lately.
        before.merge(&all.closes.without(&lately.closes));
        self.hosts.push((name.to_owned(), lately.clone()));
    }

    /// The table of `view`, and below it, for people, which servers do not respond.
    ///
    /// # Errors
    /// Several servers have no such table.
    pub(super) fn shown(self, view: &str, json: bool) -> Result<String, String> {
        let FleetWindow { mut top, sites, hosts, silent } = self;
        top.sites = TopWindow::of_sites(top.time, sites).sites;
        let report = match FleetView::of(view)? {
            FleetView::Hosts => by_host(&top, &hosts),
            FleetView::Top(view) => view.report(&top),
        };
        let table = report.write(json);
        Ok(if json { table } else { table + &silent })
    }

    /// Whether no request ended.
    pub(super) fn is_idle(&self) -> bool {
        self.sites.values().all(|lately| lately.status.total() == 0)
    }

    /// Which servers do not respond, a line each.
    pub(super) fn silent(&self) -> &str {
        &self.silent
    }
}

/// A table of several servers.
enum FleetView {
    Hosts,
    Top(TopView),
}

impl FleetView {
    fn of(name: &str) -> Result<FleetView, String> {
        if name == "hosts" {
            return Ok(FleetView::Hosts);
        }
        match TopView::of(name)? {
            TopView::Workers | TopView::Keys => Err(format!(
                "\"{name}\" is not added up over servers: routes, phases, modules, upstreams, closes and hosts are"
            )),
            view => Ok(FleetView::Top(view)),
        }
    }
}

/// A row for each server, in the order of the command line.
fn by_host(window: &TopWindow, hosts: &[(String, HostTotals)]) -> TableReport {
    let mut report = TableReport::new(&HOST_COLUMNS);
    for (name, lately) in hosts {
        let sum = lately.requests();
        let requests = sum.status.total();
        report.row([
            TableCell::text(name.as_str()),
            TableCell::Rate(window.rate(requests)),
            TableCell::share(sum.status.classes[4], requests),
            TableCell::share(sum.status.classes[5], requests),
            TableCell::Time(sum.total.quantile(0.5)),
            TableCell::Time(sum.total.quantile(0.99)),
            TableCell::share(lately.cpu_ns, window.time.as_nanos() as u64),
            TableCell::Count(lately.connections),
            TableCell::Count(lately.in_flight),
            TableCell::Bytes(window.rate(sum.bytes_out) as u64),
        ]);
    }
    report
}

const HOST_COLUMNS: [TableColumn; 10] = [
    TableColumn("host", "host"),
    TableColumn("req/s", "requests_per_second"),
    TableColumn("4xx", "share_4xx"),
    TableColumn("5xx", "share_5xx"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("CPU", "share_of_a_core"),
    TableColumn("connections", "connections"),
    TableColumn("in flight", "requests_in_flight"),
    TableColumn("out/s", "bytes_out_per_second"),
];

/// Bytes of a response at most: some 20,000 locations.
const LARGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64, ns: u64, uptime_ms: u64) -> HostTotals {
        let buckets = format!("{{\"sum\":{},\"buckets\":[{ns},{requests}]}}", ns * requests);
        let text = format!(
            "{{\"uptime_ms\":{uptime_ms},\"sites\":[{{\"kind\":\"request\",\"location\":\"/fleet\",\"name\":\"\",\
             \"calls\":0,\"classes\":[0,0,{requests},0,0,0],\"total\":{buckets},\"run\":{buckets},\"kernel\":{}}}],\
             \"closes\":[{{\"what\":\"http1\",\"by\":\"client\",\"reason\":\"idle\",\"count\":{requests}}}]}}",
            500 * requests
        );
        HostTotals::parse(text.as_bytes(), TotalsPart::All).expect("totals")
    }

    #[test]
    fn a_window_without_requests_is_idle() {
        let mut window = FleetWindow::new(Duration::from_secs(1));
        let (before, after) = (totals(100, 1_000, 1000), totals(101, 1_000, 2000));
        window.add("a", &before.since(&before), &before);
        assert!(window.is_idle());
        window.add("b", &after.since(&before), &after);
        assert!(!window.is_idle());
    }

    #[test]
    fn histograms_of_servers_are_added() {
        let mut window = FleetWindow::new(Duration::from_secs(1));
        for (requests, ns) in [(90, 1_000_000), (10, 100_000_000)] {
            let all = totals(requests, ns, 1000);
            window.add("a", &all, &all);
        }
        let text = window.shown("routes", true).expect("a table");
        let json = weir_http::json::JsonValue::parse(text.as_bytes()).expect("JSON");
        let row = &json.list().expect("rows")[0];
        let number = |key: &str| row.field(key).and_then(weir_http::json::JsonValue::number).expect(key);
        assert!((900_000..1_100_000).contains(&number("p50_ns")), "{text}");
        assert!((90_000_000..110_000_000).contains(&number("p99_ns")), "{text}");
    }

    #[test]
    fn what_the_kernel_did_for_requests_is_added() {
        let mut window = FleetWindow::new(Duration::from_secs(1));
        let (before, after) = (totals(100, 1_000, 1000), totals(110, 1_000, 2000));
        window.add("a", &after.since(&before), &after);
        window.add("b", &before, &before);
        let text = window.shown("routes", true).expect("a table");
        assert!(text.contains("\"kernel_ns\":500"), "{text}");
    }

    #[test]
    fn a_server_that_began_again_counts_from_nothing() {
        let (before, after) = (totals(100, 1_000_000, 60_000), totals(7, 1_000_000, 500));
        assert_eq!(after.since(&before).requests().status.total(), 7);
        assert_eq!(totals(150, 1_000_000, 61_000).since(&before).requests().status.total(), 50);
    }

    #[test]
    fn tables_of_one_server_are_refused() {
        for view in ["workers", "keys", "nothing"] {
            assert!(FleetWindow::new(Duration::from_secs(1)).shown(view, false).is_err(), "{view}");
        }
    }
}
