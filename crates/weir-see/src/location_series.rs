//! Which locations have series of their own in `/metrics`, and the sums of the others.
//!
//! A location has hundreds of lines there. With thousands of locations a scrape would be megabytes, and the database that
//! keeps them would be the first to fall: `metrics_locations` bounds their number.
//!
//! Counters must never fall, or a rate made of them jumps. So a location that has series keeps them as long as the
//! process runs, and one that was added to the others stays with them; places go to the busiest at each scrape.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_trace::{Site, SiteInfo, SiteKind, SiteTotals};

/// The locations that have series of their own.
#[derive(Debug, Default)]
pub(crate) struct LocationSeries {
    own: HashSet<Arc<str>>,
    /// Those that were counted among the others.
    folded: HashSet<Arc<str>>,
}

/// A row of `/metrics`: a site, or several of locations that have no series of their own.
#[derive(Debug)]
pub(crate) struct SeriesRow {
    /// What it is called; of several the location is [`OTHER_LOCATIONS`].
    pub(crate) info: SiteInfo,
    /// What is counted in it.
    pub(crate) sites: Vec<Site>,
    /// Their sums.
    pub(crate) totals: SiteTotals,
}

impl LocationSeries {
    /// The rows of `sites`, of at most `most` locations by themselves.
    pub(crate) fn rows(&mut self, sites: Vec<(Site, SiteInfo, SiteTotals)>, most: usize) -> Vec<SeriesRow> {
        self.choose(&sites, most);
        let mut rows: Vec<SeriesRow> = Vec::with_capacity(sites.len());
        let mut others: HashMap<(SiteKind, Arc<str>), usize> = HashMap::new();
        for (site, mut info, totals) in sites {
            if !info.location.is_empty() && !self.own.contains(&info.location) {
                info = folded(info);
                let row = *others.entry((info.kind, info.name.clone())).or_insert(rows.len());
                if let Some(row) = rows.get_mut(row) {
                    row.sites.push(site);
                    row.totals.merge(&totals);
                    continue;
                }
            }
            rows.push(SeriesRow { info, sites: vec![site], totals });
        }
        rows
    }

    /// Number of locations that have no series of their own.
    pub(crate) fn folded(&self) -> usize {
        self.folded.len()
    }

    /// Gives the places that are left to the busiest of those that were not seen before. A lower bound, after a reload,
    /// begins from nothing.
    fn choose(&mut self, sites: &[(Site, SiteInfo, SiteTotals)], most: usize) {
        if self.own.len() > most {
            *self = LocationSeries::default();
        }
        let mut requests: HashMap<&Arc<str>, u64> = HashMap::new();
        for (_, info, totals) in sites.iter().filter(|(_, info, _)| !info.location.is_empty()) {
            if !self.own.contains(&info.location) && !self.folded.contains(&info.location) {
                let count = if info.kind == SiteKind::Request { totals.total.count() } else { 0 };
                *requests.entry(&info.location).or_default() += count;
            }
        }
        let mut seen: Vec<_> = requests.into_iter().collect();
        seen.sort_unstable_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        for (location, _) in seen {
            let places = if self.own.len() < most { &mut self.own } else { &mut self.folded };
            places.insert(location.clone());
        }
    }
}

/// The site as one of all others: modules by their names; peers, scripts and files, of which there may be many, together.
fn folded(info: SiteInfo) -> SiteInfo {
    let of_module = matches!(
        info.kind,
        SiteKind::Phase(_) | SiteKind::Handler(_) | SiteKind::HeaderFilter | SiteKind::BodyFilter
    );
    let name = if of_module { info.name } else { "".into() };
    SiteInfo { location: OTHER_LOCATIONS.into(), name, ..info }
}

/// What the locations without series of their own are called together; no URI begins like that.
pub(crate) const OTHER_LOCATIONS: &str = "other";

#[cfg(test)]
mod tests {
    use weir_trace::SiteTable;

    use super::*;

    /// A request's site and two inside of it, for each location with its number of requests.
    fn sites(table: &SiteTable, requests: &[(&str, u64)]) -> Vec<(Site, SiteInfo, SiteTotals)> {
        let of = |&(location, count): &(&str, u64)| {
            [(SiteKind::Request, ""), (SiteKind::BodyFilter, "gzip"), (SiteKind::UpstreamTry, location)].map(
                |(kind, name)| {
                    let site = table.intern(kind, location, name);
                    let mut totals = SiteTotals::default();
                    (0..count).for_each(|_| totals.total.record(1));
                    totals.counts.calls = count;
                    (site, table.info(site), totals)
                },
            )
        };
        requests.iter().flat_map(of).collect()
    }

    /// Location, name and calls of each row.
    fn shown(rows: &[SeriesRow]) -> Vec<(String, String, u64)> {
        let row = |row: &SeriesRow| {
            (row.info.location.to_string(), row.info.name.to_string(), row.totals.counts.calls)
        };
        rows.iter().map(row).collect()
    }

    fn expected(rows: &[(&str, &str, u64)]) -> Vec<(String, String, u64)> {
        rows.iter().map(|&(location, name, calls)| (location.to_owned(), name.to_owned(), calls)).collect()
    }

    #[test]
    fn the_busiest_have_rows_of_their_own_and_the_rest_is_added_up() {
        let (table, mut series) = (SiteTable::new(), LocationSeries::default());
        let all = sites(&table, &[("/a", 1), ("/b", 5), ("/c", 2)]);
        let rows = series.rows(all, 1);
        let own = [("/b", "", 5), ("/b", "gzip", 5), ("/b", "/b", 5)];
        let other = [("other", "", 3), ("other", "gzip", 3), ("other", "", 3)];
        assert_eq!(shown(&rows), expected(&[&other[..], &own[..]].concat()));
        assert_eq!((rows[0].sites.len(), rows[0].totals.total.count(), series.folded()), (2, 3, 2));
        assert_eq!(rows[2].info.kind, SiteKind::UpstreamTry, "kinds are not mixed");
    }

    #[test]
    fn series_never_fall_when_others_become_busier() {
        let (table, mut series) = (SiteTable::new(), LocationSeries::default());
        series.rows(sites(&table, &[("/a", 2), ("/b", 1)]), 1);
        let rows = series.rows(sites(&table, &[("/a", 2), ("/b", 100), ("/c", 200)]), 1);
        let requests: Vec<_> = rows.iter().filter(|row| row.info.kind == SiteKind::Request).collect();
        let counts: Vec<_> =
            requests.iter().map(|row| (&*row.info.location, row.totals.counts.calls)).collect();
        assert_eq!(counts, [("/a", 2), ("other", 300)]);
        // More places, after a reload, are for what is new: those of the others are in a sum that must not fall.
        let rows = series.rows(sites(&table, &[("/a", 2), ("/b", 100), ("/c", 200), ("/d", 1)]), 2);
        let own: Vec<_> = rows.iter().map(|row| &*row.info.location).collect();
        assert!(own.contains(&"/d") && !own.contains(&"/b"), "{own:?}");
        assert_eq!(series.folded(), 2);
    }

    #[test]
    fn fewer_places_begin_from_nothing_and_none_is_a_bound_too() {
        let (table, mut series) = (SiteTable::new(), LocationSeries::default());
        series.rows(sites(&table, &[("/a", 2), ("/b", 1)]), 2);
        assert_eq!(series.folded(), 0);
        series.rows(sites(&table, &[("/a", 2), ("/b", 3)]), 1);
        assert!(series.own.contains("/b") && series.folded() == 1);
        let rows = series.rows(sites(&table, &[("/a", 2), ("/b", 3)]), 0);
        assert_eq!(rows.len(), 3);
        let outside = vec![(Site::phase(3), SiteTable::new().info(Site::phase(3)), SiteTotals::default())];
        assert_eq!(shown(&series.rows(outside, 0)), expected(&[("", "rewrite", 0)]), "of no location");
    }
}
