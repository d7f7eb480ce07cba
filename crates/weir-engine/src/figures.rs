//! Tables that modules show of themselves to a caller that looks into the server (`weir lua gc`, `weir dict`), and
//! metrics that they have: this crate and the one that responds to queries know nothing of their content.

use std::sync::{Mutex, OnceLock, PoisonError};

use weir_trace::KeyCounts;

/// A table of figures that a module shows: names of columns, and rows.
#[derive(Clone, Debug)]
pub struct FigureTable {
    /// Of each column its head for people, and its key for programs.
    pub columns: &'static [(&'static str, &'static str)],
    /// The rows; each has one value per column.
    pub rows: Vec<Vec<FigureValue>>,
}

/// A figure, and how it is to be read.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureValue {
    /// Not known, or without a meaning here.
    None,
    /// A text.
    Text(String),
    /// A number of things.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A duration in nanoseconds.
    Time(u64),
    /// A part, and the whole.
    Share(u64, u64),
}

/// Gives the table of that name, if it exists. Called on threads that serve no requests.
pub(crate) type FigureSource = fn(what: &str) -> Option<FigureTable>;

static TELLERS: Mutex<Vec<(&'static str, FigureSource)>> = Mutex::new(Vec::new());

/// From here on `tell` responds to queries about `name`. The first call for a name counts.
pub fn register(name: &'static str, tell: FigureSource) {
    let mut tellers = TELLERS.lock().unwrap_or_else(PoisonError::into_inner);
    if !tellers.iter().any(|(known, _)| *known == name) {
        tellers.push((name, tell));
    }
}

/// The table `what` of `name`; `None` if nothing is registered under that name, or what is has no such table.
pub fn table(name: &str, what: &str) -> Option<FigureTable> {
    let tell = {
        let tellers = TELLERS.lock().unwrap_or_else(PoisonError::into_inner);
        tellers.iter().find(|(known, _)| *known == name)?.1
    };
    tell(what)
}

/// A metric, with a row for each set of labels.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// Without the unit's `_total`.
    pub name: &'static str,
    /// One sentence that describes the metric to people.
    pub help: &'static str,
    /// How its values are to be read.
    pub kind: MetricKind,
    /// The names and values of labels, and the value.
    pub rows: Vec<(Vec<(&'static str, String)>, u64)>,
}

impl MetricFamily {
    /// A counter without labels.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> MetricFamily {
        MetricFamily { name, help, kind: MetricKind::Counter, rows: vec![(Vec::new(), value)] }
    }
}

/// What a metric's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that grows.
    Counter,
    /// Nanoseconds that grow; shown in seconds.
    Time,
    /// A number that comes and goes.
    Gauge,
}

/// Gives a module's metrics at this moment. Called on threads that serve no requests.
pub(crate) type MetricSource = fn() -> Vec<MetricFamily>;

static MEASURES: Mutex<Vec<(&'static str, MetricSource)>> = Mutex::new(Vec::new());

/// From here on `measure` has metrics for `name`. The first call for a name counts.
pub fn register_metrics(name: &'static str, measure: MetricSource) {
    let mut measures = MEASURES.lock().unwrap_or_else(PoisonError::into_inner);
    if !measures.iter().any(|(known, _)| *known == name) {
        measures.push((name, measure));
    }
}

/// The metrics of all that have registered.
pub fn metrics() -> Vec<MetricFamily> {
    let measures = MEASURES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    measures.iter().flat_map(|(_, measure)| measure()).collect()
}

/// What a zone counts by key (`profile_key`).
#[derive(Clone, Debug, Default)]
pub struct KeyZone {
    /// Its name.
    pub name: String,
    /// The text of its key, as the configuration has it.
    pub key: String,
    /// The keys with counts of their own, in no order. What is no UTF-8 in a key is replaced.
    pub rows: Vec<(String, KeyCounts)>,
    /// The sum of all others.
    pub folded: KeyCounts,
    /// Number of keys that lost their counts to others.
    pub evicted: u64,
}

/// Gives the zones at this moment. Called on threads that serve no requests.
pub(crate) type KeyZoneSource = fn() -> Vec<KeyZone>;

static KEY_ZONES: OnceLock<KeyZoneSource> = OnceLock::new();

/// From here on `source` gives the zones that count by key. The first call counts.
pub fn register_keys(source: KeyZoneSource) {
    KEY_ZONES.get_or_init(|| source);
}

/// The zones that count by key.
pub fn key_zones() -> Vec<KeyZone> {
    KEY_ZONES.get().map_or_else(Vec::new, |source| source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_registers_is_asked() {
        let mine: FigureSource = |what| {
            (what == "a")
                .then(|| FigureTable { columns: &[("a", "a")], rows: vec![vec![FigureValue::Count(1)]] })
        };
        register("figures_test", mine);
        register("figures_test", |_| None);
        assert_eq!(
            table("figures_test", "a").map(|table| table.rows),
            Some(vec![vec![FigureValue::Count(1)]])
        );
        assert!(table("figures_test", "b").is_none() && table("nobody", "a").is_none());
    }
}
