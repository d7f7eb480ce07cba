//! The counts of sites as a table for a terminal.

use std::fmt::Write;

use super::TicksToNanos;
use crate::live_counts::SiteTotals;
use crate::site::{Site, SiteInfo, SiteKind, SiteTable};
use crate::tree_arranged::rank;

/// The counts of sites, as from [`RecorderReader::merged`](crate::RecorderReader::merged): one line a site, by location
/// and in the order of a request. Times are microseconds per request, run then wait; whole requests show their whole
/// time as run. `requests` are those that were recorded, of whole requests all of them.
///
/// ```text
/// location  site                       requests     calls      mean       p50       p99  wait mean  wait p99
/// /         request                       20000     20000      12.1      11.8      24.9       0.0       0.0
/// /         content static                20000     20000       2.1       2.0       4.4       0.0       0.0
/// ```
#[must_use]
pub fn sites(totals: &[(Site, SiteTotals)], sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let mut rows: Vec<CountedSite<'_>> = totals
        .iter()
        .map(|(site, totals)| CountedSite { info: sites.info(*site), site: *site, totals })
        .collect();
    rows.sort_by(|a, b| a.key().cmp(&b.key()));
    let widest = |text: fn(&SiteInfo) -> String| {
        rows.iter().map(|row| text(&row.info).chars().count()).max().unwrap_or(0)
    };
    let location = widest(place).max("location".len());
    let name = widest(name).max("site".len());
    let mut out = format!("{:<location$}  {:<name$}", "location", "site");
    for head in ["requests", "calls", "mean", "p50", "p99", "wait mean", "wait p99"] {
        write!(out, "  {head:>9}").expect("writing to a String does not fail");
    }
    out.push('\n');
    for CountedSite { info, totals, .. } in &rows {
        let row = format!("{:<location$}  {:<name$}", place(info), self::name(info));
        out.push_str(&row);
        figures(&mut out, info.kind == SiteKind::Request, totals, scale);
        out.push('\n');
    }
    out
}

/// A site and what was counted of it.
struct CountedSite<'t> {
    info: SiteInfo,
    site: Site,
    totals: &'t SiteTotals,
}

impl CountedSite<'_> {
    /// Whole requests first in each location, then as a tree has them.
    fn key(&self) -> (&str, u8, &str, Site) {
        let info = &self.info;
        let rank = if info.kind == SiteKind::Request { 0 } else { 1 + rank(info.kind) };
        (&info.location, rank, info.phase.unwrap_or(""), self.site)
    }
}

fn place(info: &SiteInfo) -> String {
    if info.location.is_empty() { "-".to_owned() } else { info.location.to_string() }
}

fn name(info: &SiteInfo) -> String {
    match info.kind {
        SiteKind::Handler(_) => format!("{} {}", info.phase.unwrap_or("handler"), info.name),
        _ => info.label(),
    }
}

fn figures(out: &mut String, whole: bool, totals: &SiteTotals, scale: TicksToNanos<'_>) {
    let time = if whole && totals.total.count() > 0 { &totals.total } else { &totals.run };
    let requests = totals.status.map_or(totals.run.count(), |status| status.total());
    let calls = if whole { requests } else { totals.counts.calls };
    write!(out, "  {requests:>9}  {calls:>9}").expect("writing to a String does not fail");
    // The mean of the wait is over all requests, as that of the run is: the two add up.
    let wait = totals.wait.sum().checked_div(totals.run.count()).unwrap_or(0);
    let times = [time.mean(), time.quantile(0.5), time.quantile(0.99), wait, totals.wait.quantile(0.99)];
    for ticks in times {
        let ns = scale(ticks);
        write!(out, "  {:>9}", format!("{}.{}", ns / 1_000, ns % 1_000 / 100))
            .expect("writing to a String does not fail");
    }
}
