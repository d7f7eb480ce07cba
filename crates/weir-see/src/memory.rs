//! What memory is held for: of each worker by kind, and what is the process's: for `/metrics` and `weir top memory`.

use std::time::Duration;

use weir_engine::figures::{self, MetricFamily};
use weir_engine::worker::memory::{MemoryBasis, MemoryKind, WorkerMemory};
use weir_engine::zone::SharedZones;
use weir_rt::HeldMemory;

use crate::source::ServerSource;

/// What all hold at one moment.
pub(crate) struct ServerMemory {
    /// Of each worker that came to it in time, by its number.
    pub(crate) workers: Vec<(u8, WorkerMemory)>,
    /// How many did not.
    pub(crate) stuck: usize,
    /// What the page remembers of the last minute and hour.
    pub(crate) history: HeldMemory,
    pub(crate) zones: Vec<ZoneMemory>,
}

/// A shared zone.
pub(crate) struct ZoneMemory {
    /// The directive that declares it.
    pub(crate) directive: &'static str,
    pub(crate) name: String,
    /// Bytes in use, as nginx would count them.
    pub(crate) used: u64,
    /// Bytes of the zone.
    pub(crate) size: u64,
}

/// A row for people: what is held, for how much, and what it is.
pub(crate) struct MemoryRow {
    pub(crate) kind: String,
    /// Number of things; `None` where they are not counted.
    pub(crate) things: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) basis: &'static str,
    pub(crate) says: String,
}

impl ServerMemory {
    /// Now; each worker is asked, and those that do not come to it within `patience` are left out.
    pub(crate) fn now(source: &ServerSource, patience: Duration) -> ServerMemory {
        let said = source.ask(patience, |worker| (worker.id, WorkerMemory::of(worker)));
        ServerMemory {
            workers: said.answers,
            stuck: said.stuck,
            history: source.history().held(),
            zones: zones(source),
        }
    }

    /// All workers' together.
    pub(crate) fn of_workers(&self) -> WorkerMemory {
        let mut all = WorkerMemory::default();
        self.workers.iter().for_each(|(_, memory)| all.merge(memory));
        all
    }

    /// A row for each kind of which there is something, the largest first.
    pub(crate) fn rows(&self) -> Vec<MemoryRow> {
        let all = self.of_workers();
        let kinds = MemoryKind::ALL.iter().map(|kind| {
            let HeldMemory { things, bytes } = all.get(*kind);
            let (basis, says) = (kind.basis().as_str(), kind.says().to_owned());
            MemoryRow { kind: kind.as_str().to_owned(), things: Some(things), bytes, basis, says }
        });
        let zones = self.zones.iter().map(|zone| MemoryRow {
            kind: format!("zone:{}", zone.name),
            things: None,
            bytes: zone.used,
            basis: NGINX,
            says: format!("A zone of {}.", zone.directive),
        });
        let history = MemoryRow {
            kind: HISTORY.to_owned(),
            things: Some(self.history.things),
            bytes: self.history.bytes,
            basis: HISTORY_BASIS.as_str(),
            says: "Series of the page's last minute and hour.".to_owned(),
        };
        let mut rows: Vec<MemoryRow> =
            kinds.chain(zones).chain([history]).chain(of_scripts()).filter(|row| row.bytes > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        rows
    }
}

fn zones(source: &ServerSource) -> Vec<ZoneMemory> {
    let configuration = source.configuration();
    let zones = configuration.sections().filter_map(|section| section.shared::<SharedZones>());
    let memory = zones.flat_map(SharedZones::usage).map(|(directive, name, usage)| ZoneMemory {
        directive,
        name: name.to_owned(),
        used: usage.used,
        size: usage.size,
    });
    memory.collect()
}

/// What Lua's machines and dictionaries have in use, which have metrics of their own.
fn of_scripts() -> Vec<MemoryRow> {
    let sum = |metric: &MetricFamily| metric.rows.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let row = |metric: &MetricFamily, kind: &str, says: &str| MemoryRow {
        kind: kind.to_owned(),
        things: Some(metric.rows.len() as u64),
        bytes: sum(metric),
        basis: MemoryBasis::Counted.as_str(),
        says: says.to_owned(),
    };
    let metrics = figures::metrics();
    let rows = metrics.iter().filter_map(|metric| match metric.name {
        "weir_lua_memory_bytes" => Some(row(metric, "lua", "What Lua's machines have in use.")),
        "weir_dict_used_bytes" => Some(row(metric, "dict", "What shared dictionaries have in use.")),
        _ => None,
    });
    rows.collect()
}

/// What the page remembers, as a kind.
pub(crate) const HISTORY: &str = "history";
pub(crate) const HISTORY_BASIS: MemoryBasis = MemoryBasis::Estimated;
/// Bytes of a zone are those that nginx would need for as many entries.
const NGINX: &str = "as nginx";
