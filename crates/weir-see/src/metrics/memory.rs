//! What memory is held for.

use weir_engine::worker::memory::MemoryKind;
use weir_rt::HeldMemory;

use super::{MetricsWriter, escape};
use crate::memory::{HISTORY, HISTORY_BASIS, ServerMemory, ZoneMemory};
use crate::source::{BRIEFLY, ServerSource};

/// Bytes and numbers by worker and kind, those of a worker only if it has some; then the zones. A worker that is stuck is
/// missing.
pub(super) fn write(out: &mut MetricsWriter, source: &ServerSource) {
    let memory = ServerMemory::now(source, BRIEFLY);
    let rows = |of: fn(HeldMemory) -> u64| {
        let workers = memory.workers.iter().flat_map(move |(worker, held)| {
            let kinds = MemoryKind::ALL.iter().filter(|kind| held.get(**kind) != HeldMemory::default());
            kinds.map(move |kind| {
                let (name, basis) = (kind.as_str(), kind.basis().as_str());
                (format!("worker=\"{worker}\",kind=\"{name}\",basis=\"{basis}\""), of(held.get(*kind)))
            })
        });
        let history = format!("worker=\"\",kind=\"{HISTORY}\",basis=\"{}\"", HISTORY_BASIS.as_str());
        workers.chain([(history, of(memory.history))])
    };
    out.gauge(
        "weir_memory_bytes",
        "Bytes of memory by what they are held for: counted from lengths and capacities, or estimated in part.",
        rows(|held| held.bytes),
    );
    out.gauge(
        "weir_memory_things",
        "Number of the things that weir_memory_bytes is of.",
        rows(|held| held.things),
    );
    let zones = |of: fn(&ZoneMemory) -> u64| {
        memory.zones.iter().map(move |zone| {
            (format!("zone=\"{}\",directive=\"{}\"", escape(&zone.name), zone.directive), of(zone))
        })
    };
    out.gauge(
        "weir_zone_used_bytes",
        "Bytes in use of a shared zone (keys of a cache, limits, sessions), as nginx would count them.",
        zones(|zone| zone.used),
    );
    out.gauge("weir_zone_size_bytes", "Size of a shared zone.", zones(|zone| zone.size));
}
