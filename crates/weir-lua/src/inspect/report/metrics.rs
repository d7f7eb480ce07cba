//! Lua's part of `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_engine::figures::{MetricFamily, MetricKind};

use crate::dict::DictFigures;
use crate::inspect::report::{VmFigures, dicts, shown};
use crate::vm::traps;

pub(super) fn of_all() -> Vec<MetricFamily> {
    let vms = shown();
    let mut list = vec![
        traps(),
        workers("weir_lua_gc_seconds", "Time in Lua's collector.", MetricKind::Time, &vms, |vm| {
            vm.times.spent_ns()[0]
        }),
        workers("weir_lua_jit_seconds", "Time in Lua's compiler.", MetricKind::Time, &vms, |vm| {
            vm.times.spent_ns()[1]
        }),
    ];
    let in_use = by_worker(&vms, |sum: u64, vm| sum + vm.heap.live());
    list.push(MetricFamily {
        name: "weir_lua_memory_bytes",
        help: "Bytes that the Lua VMs have in use.",
        kind: MetricKind::Gauge,
        rows: in_use,
    });
    let allocated = by_worker(&vms, |sum: u64, vm| sum + vm.heap.allocated.load(Relaxed));
    list.push(MetricFamily {
        name: "weir_lua_allocated_bytes",
        help: "Bytes that the Lua VMs of the present configurations have allocated.",
        kind: MetricKind::Gauge,
        rows: allocated,
    });
    list.extend(dictionaries());
    list
}

/// `weir lua traps` without places: globals by one row, calls by name, limits by directive.
fn traps() -> MetricFamily {
    let mut sums = BTreeMap::<String, u64>::new();
    for (times, what, _) in traps::seen() {
        let kind = what.split(' ').next().unwrap_or_default();
        *sums.entry(kind.to_owned()).or_default() += times;
    }
    MetricFamily {
        name: "weir_lua_traps",
        help: "Globals written, calls that blocked a worker, and limits that scripts ran into.",
        kind: MetricKind::Counter,
        rows: sums.into_iter().map(|(kind, times)| (vec![("kind", kind)], times)).collect(),
    }
}

/// VmFigures that a worker's VMs share.
fn workers(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    vms: &[Arc<VmFigures>],
    of: fn(&VmFigures) -> u64,
) -> MetricFamily {
    MetricFamily { name, help, kind, rows: by_worker(vms, |_, vm| of(vm)) }
}

/// A row for each worker, which may have several VMs.
fn by_worker(
    vms: &[Arc<VmFigures>],
    add: impl Fn(u64, &VmFigures) -> u64,
) -> Vec<(Vec<(&'static str, String)>, u64)> {
    let mut sums = BTreeMap::<u8, u64>::new();
    for vm in vms {
        let sum = sums.entry(vm.worker).or_default();
        *sum = add(*sum, vm);
    }
    sums.into_iter().map(|(worker, value)| (vec![("worker", worker.to_string())], value)).collect()
}

fn dictionaries() -> [MetricFamily; 5] {
    let reported: Vec<(String, DictFigures)> =
        dicts().into_iter().map(|(name, dict)| (name, dict.reported())).collect();
    DICTIONARIES.map(|(name, help, kind, of)| {
        let rows =
            reported.iter().map(|(name, reported)| (vec![("dict", name.clone())], of(reported))).collect();
        MetricFamily { name, help, kind, rows }
    })
}

type OfDictionary = (&'static str, &'static str, MetricKind, fn(&DictFigures) -> u64);

const DICTIONARIES: [OfDictionary; 5] = [
    ("weir_dict_capacity_bytes", "Size of a shared dictionary.", MetricKind::Gauge, |reported| {
        reported.capacity
    }),
    ("weir_dict_used_bytes", "Of it, in use.", MetricKind::Gauge, |reported| reported.used),
    ("weir_dict_entries", "Its entries.", MetricKind::Gauge, |reported| reported.entries),
    (
        "weir_dict_damaged_parts",
        "Parts of it that were lost when the server process before was killed.",
        MetricKind::Gauge,
        |reported| reported.damaged,
    ),
    (
        "weir_dict_mortal_blocks_total",
        "Blocks that had no room in the memory that outlives the server process.",
        MetricKind::Counter,
        |reported| reported.mortal,
    ),
];
