//! What `/totals` of a server says.

use std::collections::{BTreeMap, HashMap};

use weir_http::json::JsonValue;
use weir_trace::{Site, SiteKind, SiteTable};
use weir_upstream::PeerTotals;

use crate::closes::CloseCounts;
use crate::responses::top::window::{LatencySpread, SiteWindow};

/// What one server has counted, since it began or in an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTotals {
    /// What distinguishes the process from all others; empty: its version does not say it.
    pub(crate) instance: String,
    pub(crate) version: String,
    pub(crate) uptime_ms: u64,
    pub(crate) connections: u64,
    pub(crate) in_flight: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) sites: HashMap<HostSite, SiteWindow>,
    pub(crate) peers: BTreeMap<String, PeerTotals>,
    pub(crate) closes: CloseCounts,
    /// By their numbers; empty: its version does not list them.
    pub(crate) workers: Vec<HostWorker>,
}

/// A site of another server. It gets no number here: those are for this process' own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostSite {
    pub(crate) kind: SiteKind,
    pub(crate) location: Box<str>,
    pub(crate) name: Box<str>,
}

impl HostSite {
    /// The site of this process that is called the same. Sites are never given back: for commands, which end.
    pub(crate) fn interned(&self) -> Site {
        SiteTable::global().intern(self.kind, &self.location, &self.name)
    }
}

/// A worker of a server, since it began or in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostWorker {
    pub(crate) requests: u64,
    pub(crate) connections: u64,
    pub(crate) in_flight: u64,
    pub(crate) busy_ns: u64,
    pub(crate) parked_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) stalls: u64,
}

/// What is read of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TotalsPart {
    All,
    /// No sites but those of requests and peers, and no closes: what a page of several servers shows.
    Traffic,
}

impl HostTotals {
    /// Reads `part` of a response.
    ///
    /// # Errors
    /// It is something else, or counts what nothing can have counted.
    pub(crate) fn parse(text: &[u8], part: TotalsPart) -> Result<HostTotals, String> {
        let json =
            JsonValue::parse(text).map_err(|error| format!("what responds is no admin listener: {error}"))?;
        let mut totals = HostTotals {
            instance: text_of(&json, "instance").chars().take(LONGEST_WORD).collect(),
            version: text_of(&json, "version").chars().take(LONGEST_WORD).collect(),
            uptime_ms: number(&json, "uptime_ms"),
            connections: number(&json, "connections"),
            in_flight: number(&json, "requests_in_flight"),
            cpu_ns: number(&json, "cpu_ns"),
            ..HostTotals::default()
        };
        for site in list(&json, "sites")? {
            // What a newer version has besides is left out.
            let kind = SiteKind::named(text_of(site, "kind"), text_of(site, "phase"), text_of(site, "name"));
            let Some(kind) = kind.filter(|kind| part.has(*kind)) else { continue };
            let (location, name) = (text_of(site, "location").into(), text_of(site, "name").into());
            let all = counts(site);
            let all = if part == TotalsPart::Traffic { all.for_traffic(kind) } else { all };
            totals.sites.insert(HostSite { kind, location, name }, all);
        }
        for peer in list(&json, "peers").unwrap_or_default() {
            totals.peers.insert(text_of(peer, "name").to_owned(), faults(peer));
        }
        let closes = if part == TotalsPart::All { list(&json, "closes").unwrap_or_default() } else { &[] };
        for row in closes {
            let names = ["what", "by", "reason"].map(|key| text_of(row, key));
            totals.closes.add_named(names, number(row, "count"));
        }
        let workers = list(&json, "each_worker").unwrap_or_default();
        totals.workers = workers.iter().take(MOST_WORKERS).map(worker).collect();
        Ok(totals)
    }

    /// What was added since `before`; all, if the server began again since.
    pub(crate) fn since(&self, before: &HostTotals) -> HostTotals {
        if self.uptime_ms < before.uptime_ms {
            return self.clone();
        }
        let nothing = SiteWindow::default();
        let site = |(site, now): (&HostSite, &SiteWindow)| {
            (site.clone(), now.since(before.sites.get(site).unwrap_or(&nothing)))
        };
        let worker = |(number, now): (usize, &HostWorker)| {
            now.since(&before.workers.get(number).copied().unwrap_or_default())
        };
        let peer = |(name, now): (&String, &PeerTotals)| {
            let lately = before.peers.get(name).map_or_else(|| now.clone(), |was| now.since(was));
            (name.clone(), lately)
        };
        HostTotals {
            instance: self.instance.clone(),
            version: self.version.clone(),
            uptime_ms: self.uptime_ms,
            connections: self.connections,
            in_flight: self.in_flight,
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            sites: self.sites.iter().map(site).collect(),
            peers: self.peers.iter().map(peer).collect(),
            closes: self.closes.without(&before.closes),
            workers: self.workers.iter().enumerate().map(worker).collect(),
        }
    }

    /// The requests of all locations together.
    pub(crate) fn requests(&self) -> SiteWindow {
        let mut sum = SiteWindow::default();
        self.of_kind(SiteKind::Request).for_each(|(_, totals)| sum.add(totals));
        sum
    }

    /// The sites of a kind.
    pub(crate) fn of_kind(&self, kind: SiteKind) -> impl Iterator<Item = (&HostSite, &SiteWindow)> {
        self.sites.iter().filter(move |(site, _)| site.kind == kind)
    }
}

impl TotalsPart {
    fn has(self, kind: SiteKind) -> bool {
        self == TotalsPart::All || matches!(kind, SiteKind::Request | SiteKind::UpstreamTry)
    }
}

impl HostWorker {
    fn since(&self, before: &HostWorker) -> HostWorker {
        HostWorker {
            requests: self.requests.saturating_sub(before.requests),
            connections: self.connections,
            in_flight: self.in_flight,
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            parked_ns: self.parked_ns.saturating_sub(before.parked_ns),
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            stalls: self.stalls,
        }
    }
}

fn worker(row: &JsonValue) -> HostWorker {
    HostWorker {
        requests: number(row, "requests"),
        connections: number(row, "connections"),
        in_flight: number(row, "requests_in_flight"),
        busy_ns: number(row, "busy_ns"),
        parked_ns: number(row, "parked_ns"),
        cpu_ns: number(row, "cpu_ns"),
        stalls: number(row, "stalls"),
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
        into.iter_mut().zip(numbers).for_each(|(into, value)| *into = amount(value));
    };
    fill(&mut counts.status.classes, "classes");
    fill(&mut counts.status.named, "named");
    counts
}

fn spread(site: &JsonValue, key: &str) -> LatencySpread {
    let Some(spread) = site.field(key) else { return LatencySpread::default() };
    let numbers = spread.field("buckets").and_then(JsonValue::list).unwrap_or_default();
    let buckets = numbers.chunks_exact(2).map(|pair| (amount(&pair[0]), amount(&pair[1])));
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
    object.field(key).map_or(0, amount)
}

/// A number that can be added up: a response that counts more is wrong, and must not overflow a sum.
fn amount(value: &JsonValue) -> u64 {
    value.number().unwrap_or(0).min(MOST)
}

fn text_of<'v>(object: &'v JsonValue, key: &str) -> &'v str {
    object.field(key).and_then(JsonValue::text).unwrap_or("")
}

fn list<'v>(object: &'v JsonValue, key: &str) -> Result<&'v [JsonValue], String> {
    let found = object.field(key).and_then(JsonValue::list);
    found.ok_or_else(|| "what responds is no admin listener of this version".to_owned())
}

/// The largest number that is believed, as a time two years of one request in flight in nanoseconds. Sums of what is
/// larger than that hold still at the end of their type.
const MOST: u64 = 1 << 56;
/// Characters of a version.
const LONGEST_WORD: usize = 64;
/// As many as a server can have.
const MOST_WORKERS: usize = 256;
