//! What was counted, as a table, and below it what could not be counted, and why.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use weir_http::json::JsonWriter;
use weir_rt::sampler::{COUNTERS, CountedPlace};
use weir_server::housekeeping::{CountedEvents, CounterState};
use weir_sys::counters::{CountedModes, CounterKind};
use weir_trace::{Site, SiteKind, SiteTable};

use crate::filter::is_location;
use crate::responses::{flame, reqs};
use crate::table::{TableCell, TableColumn, TableReport};

/// What there is to show.
pub(super) struct PerfReport {
    pub(super) events: CountedEvents,
    pub(super) window: Duration,
    /// By location, those that ended in the window.
    pub(super) requests: HashMap<String, u64>,
    pub(super) threads: ThreadEvents,
    /// The one that is wanted.
    pub(super) location: Option<String>,
}

/// What the kernel says of all workers' threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadEvents {
    pub(super) faults: u64,
    /// Switches because the thread waited.
    pub(super) waited: u64,
    /// Switches because its time was over.
    pub(super) preempted: u64,
}

impl ThreadEvents {
    pub(super) fn until(self, after: &ThreadEvents) -> ThreadEvents {
        ThreadEvents {
            faults: after.faults.saturating_sub(self.faults),
            waited: after.waited.saturating_sub(self.waited),
            preempted: after.preempted.saturating_sub(self.preempted),
        }
    }
}

/// Location, phase, module.
type PerfPlace = [String; 3];
type EventCounts = [u64; COUNTERS];

impl PerfReport {
    pub(super) fn write(&self, json: bool) -> String {
        let table = self.table();
        if json { self.json(&table) } else { table.text() + &self.notes() }
    }

    fn table(&self) -> TableReport {
        let kinds: Vec<CounterKind> =
            CounterKind::ALL.into_iter().filter(|kind| self.is_counted(*kind)).collect();
        let has_ratio =
            [CounterKind::Cycles, CounterKind::Instructions].iter().all(|kind| kinds.contains(kind));
        let mut columns = PLACE_COLUMNS.to_vec();
        for kind in &kinds {
            columns.push(column(*kind));
            if *kind == CounterKind::Instructions && has_ratio {
                columns.push(TableColumn("ipc", "instructions_per_cycle"));
            }
        }
        let mut report = TableReport::of(columns);
        for (place, counts) in self.rows() {
            let requests =
                self.requests.get(&place[0]).map_or(TableCell::None, |count| TableCell::Count(*count));
            let mut cells: Vec<TableCell> =
                place.map(TableCell::Text).into_iter().chain([requests]).collect();
            for kind in &kinds {
                cells.push(cell(*kind, counts[*kind as usize]));
                if *kind == CounterKind::Instructions && has_ratio {
                    cells.push(ratio(counts));
                }
            }
            report.row(cells);
        }
        report
    }

    /// By place, the heaviest first; last what is of no known place.
    fn rows(&self) -> Vec<(PerfPlace, EventCounts)> {
        let mut sums: BTreeMap<PerfPlace, EventCounts> = BTreeMap::new();
        for counted in &self.events.places {
            let sum = sums.entry(place(counted)).or_default();
            sum.iter_mut().zip(counted.counts).for_each(|(sum, count)| *sum += count);
        }
        let mut rest = self.events.totals;
        for counts in sums.values() {
            rest.iter_mut().zip(counts).for_each(|(rest, count)| *rest = rest.saturating_sub(*count));
        }
        let wanted =
            |location: &str| self.location.as_ref().is_none_or(|wanted| is_location(wanted, location));
        let mut rows: Vec<(PerfPlace, EventCounts)> = sums.into_iter().collect();
        rows.retain(|(place, counts)| wanted(&place[0]) && self.shows(counts));
        let weight =
            CounterKind::ALL.into_iter().find(|kind| self.is_counted(*kind)).map_or(0, |kind| kind as usize);
        rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts[weight]));
        if self.location.is_none() && self.is_much(&rest) {
            rows.push((["(place not known)", "-", "-"].map(str::to_owned), rest));
        }
        rows
    }

    fn is_counted(&self, kind: CounterKind) -> bool {
        matches!(self.events.states[kind as usize], CounterState::Counted(_))
    }

    fn shows(&self, counts: &EventCounts) -> bool {
        CounterKind::ALL.iter().any(|kind| self.is_counted(*kind) && counts[*kind as usize] > 0)
    }

    /// Whether it is a hundredth of any kind: what came after the last look of a counter is less.
    fn is_much(&self, counts: &EventCounts) -> bool {
        counts
            .iter()
            .zip(self.events.totals)
            .any(|(count, total)| *count > 0 && count.saturating_mul(100) >= total)
    }

    /// What there is to know about the figures: for people.
    fn notes(&self) -> String {
        let seconds = self.window.as_secs_f64();
        let mut notes =
            format!("in {seconds:.1} s; page faults and context switches one by one, the rest by samples\n");
        let user = |state: &CounterState| *state == CounterState::Counted(CountedModes::User);
        if self.events.states.iter().any(user) {
            notes.push_str(USER_ONLY);
        }
        for (why, kinds) in self.refused() {
            notes.push_str(&format!("not counted: {}: {why}\n", kinds.join(", ")));
        }
        let ThreadEvents { faults, waited, preempted } = self.threads;
        if !self.is_counted(CounterKind::ContextSwitches) || !self.is_counted(CounterKind::PageFaults) {
            notes.push_str(&format!(
                "all workers, by the kernel's accounts: {faults} page faults, {waited} context switches to wait, {preempted} because \
                 another thread had the core\n"
            ));
        }
        notes
    }

    /// Reasons, each with the kinds that it is of.
    fn refused(&self) -> Vec<(&str, Vec<&'static str>)> {
        let mut reasons: Vec<(&str, Vec<&'static str>)> = Vec::new();
        for (kind, state) in CounterKind::ALL.into_iter().zip(&self.events.states) {
            let CounterState::Refused(why) = state else { continue };
            match reasons.iter_mut().find(|(other, _)| other == why) {
                Some((_, kinds)) => kinds.push(kind.name()),
                None => reasons.push((why, vec![kind.name()])),
            }
        }
        reasons
    }

    fn json(&self, table: &TableReport) -> String {
        JsonWriter::object(|json| {
            json.key("window_ns").raw(self.window.as_nanos());
            json.key("counters").list(|json| {
                for (kind, state) in CounterKind::ALL.into_iter().zip(&self.events.states) {
                    json.nested(|json| counter(json, kind, state, self.events.totals[kind as usize]));
                }
            });
            json.key("threads").nested(|json| {
                json.key("page_faults").raw(self.threads.faults);
                json.key("switches_voluntary").raw(self.threads.waited);
                json.key("switches_forced").raw(self.threads.preempted);
            });
            json.key("places").raw(table.json().trim_end());
        }) + "\n"
    }
}

fn counter(json: &mut JsonWriter, kind: CounterKind, state: &CounterState, total: u64) {
    json.key("name").text(column(kind).1);
    match state {
        CounterState::Counted(modes) => {
            json.key("kernel").raw(*modes == CountedModes::All);
            json.key("total").raw(total);
        }
        CounterState::Refused(why) => json.key("refused").text(why),
    }
}

/// What a place is called.
fn place(counted: &CountedPlace) -> PerfPlace {
    let (site, route) = (Site(counted.place.site), Site(counted.place.route));
    let location = match reqs::location(route).as_str() {
        "-" => reqs::location(site),
        location => location.to_owned(),
    };
    let location = if location == "-" { flame::NOWHERE.to_owned() } else { location };
    let [phase, module] =
        if counted.parked { ["waits for events", "-"].map(str::to_owned) } else { inside(site) };
    [location, phase, module]
}

/// Phase and module of a site.
fn inside(site: Site) -> [String; 2] {
    let none = || "-".to_owned();
    if site.is_none() {
        return [none(), none()];
    }
    let info = SiteTable::global().info(site);
    match info.kind {
        SiteKind::Handler(_) => [info.phase.map_or_else(none, str::to_owned), info.label()],
        SiteKind::HeaderFilter | SiteKind::BodyFilter => {
            [info.kind.as_str().to_owned(), info.name.to_string()]
        }
        SiteKind::Phase(_) | SiteKind::Connection(_) => [info.label(), none()],
        _ => [none(), info.label()],
    }
}

fn cell(kind: CounterKind, count: u64) -> TableCell {
    match kind {
        CounterKind::CpuTime => TableCell::Time(count),
        CounterKind::PageFaults | CounterKind::ContextSwitches => TableCell::Count(count),
        _ => TableCell::Many(count),
    }
}

/// Instructions a cycle.
fn ratio(counts: EventCounts) -> TableCell {
    let [cycles, instructions] =
        [CounterKind::Cycles, CounterKind::Instructions].map(|kind| counts[kind as usize]);
    if cycles == 0 { TableCell::None } else { TableCell::Ratio(instructions as f64 / cycles as f64) }
}

fn column(kind: CounterKind) -> TableColumn {
    match kind {
        CounterKind::CpuTime => TableColumn("cpu", "cpu_ns"),
        CounterKind::Cycles => TableColumn("cycles", "cycles"),
        CounterKind::Instructions => TableColumn("instr", "instructions"),
        CounterKind::BranchMisses => TableColumn("br miss", "branch_misses"),
        CounterKind::CacheMisses => TableColumn("cache miss", "cache_misses"),
        CounterKind::PageFaults => TableColumn("faults", "page_faults"),
        CounterKind::ContextSwitches => TableColumn("switches", "context_switches"),
    }
}

const PLACE_COLUMNS: [TableColumn; 4] = [
    TableColumn("location", "location"),
    TableColumn("phase", "phase"),
    TableColumn("module", "module"),
    TableColumn("requests", "requests"),
];
const USER_ONLY: &str = "outside of the kernel only, but CPU time, whose part in the kernel is where the thread ran next: CAP_PERFMON for the workers, or kernel.perf_event_paranoid 1, counts system calls, too\n";

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use weir_http::json::JsonValue;
    use weir_rt::sampler::SitePlace;

    /// A recording of a machine with all counters: two places of a location, the loop, and some events of no known place.
    pub(in crate::responses::perf) fn recorded_events() -> CountedEvents {
        let sites = SiteTable::global();
        let gzip = sites.intern(SiteKind::BodyFilter, "/perf", "gzip");
        let content = sites.intern(SiteKind::Handler(9), "/perf", "static");
        let route = sites.intern(SiteKind::Request, "/perf", "");
        let counted = |site: Site, route: Site, parked, counts| CountedPlace {
            place: SitePlace { site: site.0, route: route.0 },
            parked,
            counts,
        };
        CountedEvents {
            states: [const { CounterState::Counted(CountedModes::All) }; COUNTERS],
            places: vec![
                counted(content, route, false, [1_000_000, 3_000_000, 1_500_000, 1_000, 20, 0, 1]),
                counted(gzip, route, false, [9_000_000, 27_000_000, 54_000_000, 40_000, 7_000, 512, 0]),
                // Of one that is not routed yet the site says where it is.
                counted(content, Site::NONE, false, [0, 1_000_000, 500_000, 0, 0, 0, 0]),
                counted(Site::NONE, Site::NONE, true, [500, 0, 0, 0, 0, 0, 77]),
            ],
            totals: [10_100_500, 31_500_000, 56_100_000, 41_000, 7_020, 512, 78],
        }
    }

    fn report(events: CountedEvents, location: Option<&str>) -> PerfReport {
        PerfReport {
            events,
            window: Duration::from_secs(5),
            requests: HashMap::from([("/perf".to_owned(), 1_000)]),
            threads: ThreadEvents { faults: 600, waited: 70, preempted: 8 },
            location: location.map(str::to_owned),
        }
    }

    #[test]
    fn the_recorded_counters_come_out_by_location_phase_and_module() {
        let text = report(recorded_events(), None).write(false);
        let line =
            |of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}: {text}"));
        let words = |of: &str| line(of).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(" gzip"),
            "/perf body_filter gzip 1000 9.0 ms 27.0 M 54.0 M 2.00 40.0 k 7.0 k 512 0"
        );
        assert_eq!(words(" static"), "/perf content static 1000 1.0 ms 4.0 M 2.0 M 0.50 1.0 k 20 0 1");
        assert_eq!(words("waits for events"), "(no request) waits for events - - 0.5 µs 0 0 - 0 0 0 77");
        assert_eq!(
            words("(place not known)"),
            "(place not known) - - - 100.0 µs 500.0 k 100.0 k 0.20 0 0 0 0"
        );
        assert!(
            text.ends_with("in 5.0 s; page faults and context switches one by one, the rest by samples\n"),
            "{text}"
        );
    }

    #[test]
    fn one_location_can_be_asked_for() {
        let text = report(recorded_events(), Some("/perf")).write(false);
        assert!(
            text.contains("gzip") && !text.contains("(no request)") && !text.contains("not known"),
            "{text}"
        );
        assert_eq!(report(recorded_events(), Some("/none")).table().text().lines().count(), 1);
    }

    #[test]
    fn what_is_refused_has_no_column_and_its_reason() {
        let mut events = recorded_events();
        for kind in &CounterKind::ALL[1..5] {
            events.states[*kind as usize] = CounterState::Refused("no such counter".to_owned());
        }
        events.states[CounterKind::CpuTime as usize] = CounterState::Counted(CountedModes::User);
        events.states[CounterKind::ContextSwitches as usize] = CounterState::Refused("paranoid".to_owned());
        let text = report(events.clone(), None).write(false);
        assert!(!text.contains("ipc") && !text.contains("instr ") && text.contains("faults"), "{text}");
        for note in [
            "outside of the kernel only",
            "not counted: cycles, instructions, branch misses, cache misses: no such counter\n",
            "not counted: context switches: paranoid\n",
            "600 page faults, 70 context switches to wait, 8 because",
        ] {
            assert!(text.contains(note), "{note}: {text}");
        }
        let json = report(events, None).write(true);
        let json = JsonValue::parse(json.as_bytes()).expect("JSON");
        let counters = json.field("counters").and_then(JsonValue::list).expect("a list");
        assert_eq!(counters.len(), COUNTERS);
        assert_eq!(counters[1].field("refused").and_then(JsonValue::text), Some("no such counter"));
        assert_eq!(counters[0].field("kernel").and_then(JsonValue::bool), Some(false));
        let places = json.field("places").and_then(JsonValue::list).expect("a list");
        assert_eq!(places[0].field("module").and_then(JsonValue::text), Some("gzip"));
        assert_eq!(places[0].field("page_faults").and_then(JsonValue::number), Some(512));
        assert!(places[0].field("cycles").is_none());
    }
}
