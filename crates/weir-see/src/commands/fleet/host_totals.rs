//! What `/totals` of a server says.

use std::collections::BTreeMap;

use weir_http::json::JsonValue;
use weir_trace::{Site, SiteKind, SiteTable};
use weir_upstream::PeerTotals;

use crate::closes::CloseCounts;
use crate::responses::top::window::{LatencySpread, SiteWindow};

/// What one server has counted, since it began or in an interval.
#[derive(Clone, Debug, Default)]
pub(super) struct HostTotals {
    pub(super) uptime_ms: u64,
    pub(super) connections: u64,
    pub(super) in_flight: u64,
    pub(super) cpu_ns: u64,
    /// By sites of this process that are called like the server's.
    pub(super) sites: BTreeMap<Site, SiteWindow>,
    pub(super) peers: BTreeMap<String, PeerTotals>,
    pub(super) closes: CloseCounts,
}

impl HostTotals {
    /// Reads a response.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn parse(text: &[u8]) -> Result<HostTotals, String> {
        let json =
            JsonValue::parse(text).map_err(|error| format!("what responds is no admin listener: {error}"))?;
        let mut totals = HostTotals {
            uptime_ms: number(&json, "uptime_ms"),
            connections: number(&json, "connections"),
            in_flight: number(&json, "requests_in_flight"),
            cpu_ns: number(&json, "cpu_ns"),
            ..HostTotals::default()
        };
        for site in list(&json, "sites")? {
            // What a newer version has besides is left out.
            if let Some(kind) =
                SiteKind::named(text_of(site, "kind"), text_of(site, "phase"), text_of(site, "name"))
            {
                let number =
                    SiteTable::global().intern(kind, text_of(site, "location"), text_of(site, "name"));
                totals.sites.entry(number).or_default().add(&counts(site));
            }
        }
        for peer in list(&json, "peers").unwrap_or_default() {
            totals.peers.entry(text_of(peer, "name").to_owned()).or_default().merge(&faults(peer));
        }
        for row in list(&json, "closes").unwrap_or_default() {
            let names = ["what", "by", "reason"].map(|key| text_of(row, key));
            totals.closes.add_named(names, number(row, "count"));
        }
        Ok(totals)
    }

    /// What was added since `before`; all, if the server began again since.
    pub(super) fn since(&self, before: &HostTotals) -> HostTotals {
        if self.uptime_ms < before.uptime_ms {
            return self.clone();
        }
        let nothing = SiteWindow::default();
        let site = |(site, now): (&Site, &SiteWindow)| {
            (*site, now.since(before.sites.get(site).unwrap_or(&nothing)))
        };
        let peer = |(name, now): (&String, &PeerTotals)| {
            let lately = before.peers.get(name).map_or_else(|| now.clone(), |was| now.since(was));
            (name.clone(), lately)
        };
        HostTotals {
            uptime_ms: self.uptime_ms,
            connections: self.connections,
            in_flight: self.in_flight,
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            sites: self.sites.iter().map(site).collect(),
            peers: self.peers.iter().map(peer).collect(),
            closes: self.closes.without(&before.closes),
        }
    }

    /// The requests of all locations together.
    pub(super) fn requests(&self) -> SiteWindow {
        let table = SiteTable::global();
        let mut sum = SiteWindow::default();
        for (site, totals) in &self.sites {
            if table.info(*site).kind == SiteKind::Request {
                sum.add(totals);
            }
        }
        sum
    }
}

fn counts(site: &JsonValue) -> SiteWindow {
    let mut counts = SiteWindow {
        run: spread(site, "run"),
        wait: spread(site, "wait"),
        total: spread(site, "total"),
        calls: number(site, "calls"),
        bytes_in: number(site, "in"),
        bytes_out: number(site, "out"),
        errors: number(site, "errors"),
        kernel: number(site, "kernel"),
        ..SiteWindow::default()
    };
    let fill = |into: &mut [u64], key: &str| {
        let numbers = site.field(key).and_then(JsonValue::list).unwrap_or_default();
        into.iter_mut().zip(numbers).for_each(|(into, value)| *into = value.number().unwrap_or(0));
    };
    fill(&mut counts.status.classes, "classes");
    fill(&mut counts.status.named, "named");
    counts
}

fn spread(site: &JsonValue, key: &str) -> LatencySpread {
    let Some(spread) = site.field(key) else { return LatencySpread::default() };
    let numbers = spread.field("buckets").and_then(JsonValue::list).unwrap_or_default();
    let pairs = numbers.chunks_exact(2).map(|pair| [pair[0].number(), pair[1].number()]);
    let buckets = pairs.filter_map(|[ns, count]| Some((ns?, count?)));
    LatencySpread::of_buckets(number(spread, "sum"), buckets)
}

fn faults(peer: &JsonValue) -> PeerTotals {
    let mut totals = PeerTotals::default();
    totals.requests = number(peer, "requests");
    totals.faults = number(peer, "faults");
    totals.refused = number(peer, "refused");
    totals.reset = number(peer, "reset");
    totals.repeated = number(peer, "repeated");
    totals
}

fn number(object: &JsonValue, key: &str) -> u64 {
    object.field(key).and_then(JsonValue::number).unwrap_or(0)
}

fn text_of<'v>(object: &'v JsonValue, key: &str) -> &'v str {
    object.field(key).and_then(JsonValue::text).unwrap_or("")
}

fn list<'v>(object: &'v JsonValue, key: &str) -> Result<&'v [JsonValue], String> {
    let found = object.field(key).and_then(JsonValue::list);
    found.ok_or_else(|| "what responds is no admin listener of this version".to_owned())
}
