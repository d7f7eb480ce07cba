use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use weir_http::json::JsonValue;
use weir_trace::{Histogram, Site, SiteTally};

use super::*;

/// Sites that were asked for, each called after its number.
#[derive(Default)]
struct FakeCounts {
    sites: RefCell<HashMap<Site, TrafficTotals>>,
    /// Two sites of one name.
    same: Option<(Site, Site)>,
}

impl FakeCounts {
    /// A site has this many more requests that took `ns` each, some with status 500.
    fn count(&self, site: u16, requests: u64, ns: u64, failed: u64) {
        let mut sites = self.sites.borrow_mut();
        let totals = sites.entry(Site(site)).or_default();
        totals.tally.requests += requests;
        totals.tally.server_errors += failed;
        (0..requests).for_each(|_| totals.times.record(ns));
        totals.run += requests * ns / 2;
        totals.wait += requests * ns / 2;
    }

    fn tallies(&self) -> Vec<(Site, SiteTally)> {
        let mut all: Vec<_> =
            self.sites.borrow().iter().map(|(site, totals)| (*site, totals.tally)).collect();
        all.sort_by_key(|(site, _)| *site);
        all
    }
}

impl TrafficSource for FakeCounts {
    fn name(&self, site: Site) -> Arc<str> {
        let site = self.same.filter(|(_, second)| *second == site).map_or(site, |(first, _)| first);
        format!("/{}", site.0).into()
    }

    fn totals(&self, sites: &[Site]) -> TrafficTotals {
        let all = self.sites.borrow();
        let mut sum = TrafficTotals { times: Histogram::new(), ..TrafficTotals::default() };
        for totals in sites.iter().filter_map(|site| all.get(site)) {
            sum.tally.merge(&totals.tally);
            sum.times.merge(&totals.times);
            sum.run += totals.run;
            sum.wait += totals.wait;
        }
        sum
    }

    fn scale(&self, ticks: u64) -> u64 {
        ticks
    }
}

struct Fixture {
    history: ServerHistory,
    counts: FakeCounts,
    second: u64,
    workers: Vec<WorkerReading>,
}

impl Fixture {
    /// Counting has begun.
    fn new() -> Fixture {
        let mut fixture = Fixture {
            history: ServerHistory::default(),
            counts: FakeCounts::default(),
            second: 0,
            workers: Vec::new(),
        };
        fixture.pass(1);
        fixture
    }

    /// Time passes without anything new.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let now =
                TickMoment { ns: self.second * 1_000_000_000, unix_ms: 1_000_000 + self.second * 1_000 };
            let tallies = self.counts.tallies();
            let reading = HistoryReading { locations: &tallies, upstreams: &[], workers: &self.workers };
            self.history.tick(now, &reading, &self.counts);
            self.second += 1;
        }
    }

    fn shown(&self, span: HistorySpan, since: u64, heat: Option<&str>) -> JsonValue {
        let heat = heat.map(str::to_owned);
        let text = self.history.json(&HistoryWish { span, since, heat, peer: None });
        JsonValue::parse(text.as_bytes()).expect("valid JSON")
    }

    /// A figure of a location, a value a point; `None` where it had no series.
    fn figures(&self, span: HistorySpan, name: &str, key: &str) -> Vec<Option<u64>> {
        let shown = self.shown(span, 0, None);
        let series = shown.path(&["locations", "series"]).and_then(JsonValue::list).expect("a list");
        let found = series.iter().find(|series| series.field("name").and_then(JsonValue::text) == Some(name));
        let values = found.and_then(|series| series.field(key)).and_then(JsonValue::list).expect("a series");
        values.iter().map(JsonValue::number).collect()
    }

    fn folded(&self, span: HistorySpan) -> (u64, Vec<u64>) {
        let shown = self.shown(span, 0, None);
        let count = shown.path(&["locations", "folded"]).and_then(JsonValue::number).expect("a count");
        let values = shown.path(&["locations", "folded_requests"]).and_then(JsonValue::list).expect("a list");
        (count, values.iter().filter_map(JsonValue::number).collect())
    }
}

#[test]
fn a_point_is_what_was_counted_in_its_second() {
    let mut of = Fixture::new();
    of.counts.count(7, 10, 100_000, 1);
    of.pass(1);
    of.counts.count(7, 4, 3_000_000, 4);
    of.pass(2);
    let figures = |key| of.figures(HistorySpan::Minute, "/7", key);
    assert_eq!(figures("requests"), [Some(10), Some(4), Some(0)]);
    assert_eq!(figures("errors_5xx"), [Some(1), Some(4), Some(0)]);
    assert_eq!(figures("run_ns"), [Some(50_000), Some(1_500_000), Some(0)]);
    let p50 = figures("p50_ns");
    assert!((100_000..107_000).contains(&p50[0].expect("a value")), "{p50:?}");
    assert!((3_000_000..3_200_000).contains(&p50[1].expect("a value")), "of that second alone: {p50:?}");
    let shown = of.shown(HistorySpan::Minute, 0, Some("/7"));
    let heat = shown.field("heat").and_then(JsonValue::list).expect("a list");
    let counts = |at: usize| -> Vec<u64> {
        heat[at].list().expect("bins").iter().filter_map(JsonValue::number).collect()
    };
    assert_eq!((counts(0)[traffic::bin(100_000)], counts(0).iter().sum::<u64>()), (10, 10));
    assert_eq!((counts(1)[traffic::bin(3_000_000)], counts(1).len()), (4, traffic::BINS));
    let since = of.shown(HistorySpan::Minute, 1_000_000 + 2_000, None);
    assert_eq!(since.field("ends_unix_ms").and_then(JsonValue::list).map(<[_]>::len), Some(1));
}

#[test]
fn what_was_before_the_first_moment_is_in_no_point() {
    let mut of = Fixture {
        history: ServerHistory::default(),
        counts: FakeCounts::default(),
        second: 0,
        workers: Vec::new(),
    };
    of.counts.count(3, 1_000, 5_000, 0);
    of.pass(2);
    of.counts.count(3, 5, 5_000, 0);
    of.pass(2);
    let requests = of.figures(HistorySpan::Minute, "/3", "requests");
    // The second in which it got its series has a sum only.
    assert_eq!(requests, [None, None, Some(0)]);
    assert_eq!(of.folded(HistorySpan::Minute), (0, vec![0, 5, 0]));
    of.counts.count(3, 2, 5_000, 0);
    of.pass(1);
    assert_eq!(of.figures(HistorySpan::Minute, "/3", "requests").last(), Some(&Some(2)));
}

#[test]
fn a_minute_and_an_hour_are_remembered() {
    let mut of = Fixture::new();
    for _ in 0..3_700 {
        of.counts.count(1, 2, 10_000, 0);
        of.pass(1);
    }
    assert_eq!(of.figures(HistorySpan::Minute, "/1", "requests"), vec![Some(2); 60]);
    assert_eq!(of.figures(HistorySpan::Hour, "/1", "requests"), vec![Some(60); 120]);
    // It may be quiet for as long as one likes.
    of.pass(90);
    assert_eq!(of.figures(HistorySpan::Minute, "/1", "requests"), vec![Some(0); 60]);
    of.counts.count(1, 1, 10_000, 0);
    of.pass(30);
    assert_eq!(of.figures(HistorySpan::Hour, "/1", "requests").last(), Some(&Some(1)));
}

#[test]
fn a_thread_that_is_late_makes_long_points() {
    let mut of = Fixture::new();
    of.counts.count(1, 100, 10_000, 0);
    of.second += 9;
    of.pass(1);
    let shown = of.shown(HistorySpan::Minute, 0, None);
    let lengths = shown.field("lengths_ns").and_then(JsonValue::list).expect("a list");
    assert_eq!(lengths.iter().filter_map(JsonValue::number).collect::<Vec<_>>(), [10_000_000_000]);
    of.second += 3_600;
    of.pass(1);
    let hours = of.shown(HistorySpan::Hour, 0, None);
    assert_eq!(hours.field("ends_unix_ms").and_then(JsonValue::list).map(<[_]>::len), Some(1));
}

#[test]
fn the_busiest_have_series_and_the_rest_is_counted_together() {
    let mut of = Fixture::new();
    let most = MOST as u16;
    (1..=most).for_each(|site| of.counts.count(site, 2, 10_000, 0));
    of.pass(1);
    of.counts.count(1_000, 50, 10_000, 0);
    of.counts.count(1_001, 3, 10_000, 0);
    of.pass(1);
    assert_eq!(of.folded(HistorySpan::Minute), (2, vec![0, 53]));
    // At the end of a step the busy one takes the place of one of the others, whose figures are in the sum from then on.
    of.pass(28);
    of.counts.count(1_000, 7, 10_000, 0);
    of.pass(1);
    let requests = of.figures(HistorySpan::Minute, "/1000", "requests");
    assert_eq!((requests[0], requests.last()), (None, Some(&Some(7))));
    let (count, _) = of.folded(HistorySpan::Minute);
    assert_eq!(count, 2, "the place was another's");
    let shown = of.shown(HistorySpan::Minute, 0, None);
    let series = shown.path(&["locations", "series"]).and_then(JsonValue::list).expect("a list");
    assert_eq!(series.len(), MOST);
}

#[test]
fn sites_of_one_name_are_one_series() {
    let mut of = Fixture::new();
    of.counts.same = Some((Site(5), Site(6)));
    of.counts.count(5, 1, 10_000, 0);
    of.pass(1);
    of.counts.count(6, 2, 10_000, 0);
    of.counts.count(5, 1, 10_000, 0);
    of.pass(1);
    assert_eq!(of.figures(HistorySpan::Minute, "/5", "requests"), [Some(1), Some(3)]);
}

#[test]
fn workers_that_went_and_came_again_have_no_points_of_the_time_between() {
    let mut of = Fixture::new();
    let reading =
        |requests, busy_ns| WorkerReading { worker: 3, requests, busy_ns, ..WorkerReading::default() };
    of.workers = vec![reading(0, 0)];
    of.pass(1);
    of.workers = vec![reading(5, 250)];
    of.pass(1);
    let workers = std::mem::take(&mut of.workers);
    of.pass(2);
    of.workers = workers;
    of.pass(1);
    let shown = of.shown(HistorySpan::Minute, 0, None);
    let all = shown.field("workers").and_then(JsonValue::list).expect("a list");
    let requests = all[0].field("requests").and_then(JsonValue::list).expect("figures");
    assert_eq!(all.len(), 1);
    assert!(requests[3] == JsonValue::Null && requests[4] != JsonValue::Null, "{requests:?}");
    of.workers = Vec::new();
    of.pass(61);
    let shown = of.shown(HistorySpan::Minute, 0, None);
    assert_eq!(shown.field("workers").and_then(JsonValue::list).map(<[_]>::len), Some(0));
}

#[test]
fn bins_are_twice_as_long_as_the_one_before() {
    let of = |ns| traffic::bin(ns);
    assert_eq!([of(0), of(1_999), of(2_000), of(3_999), of(4_000)], [0, 0, 1, 1, 2]);
    assert_eq!([of(8_388_608_000), of(u64::MAX)], [traffic::BINS - 1; 2]);
}

/// What the page's documentation says that it costs.
#[test]
fn a_series_is_as_small_as_is_documented() {
    let points = HistorySpan::ALL.map(HistorySpan::points).iter().sum::<usize>();
    assert!(points * size_of::<traffic::TrafficPoint>() <= 23_500);
    assert!(points * size_of::<workers::WorkerPoint>() <= 6_000);
}
