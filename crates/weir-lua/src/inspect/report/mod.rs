//! What VMs report of themselves: `weir lua` and `weir dict`.

mod metrics;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_engine::figures::{self, FigureTable, FigureValue};
use weir_server::housekeeping;

use crate::dict::SharedDict;
#[cfg(lua_walk)]
use crate::inspect::census;
use crate::inspect::jit_advice;
use crate::run::function::{ApiFunction, CallDone, expect_string, function};
use crate::run::lend;
use crate::vm::figures::{VmFigures, lock};
use crate::vm::lua_vm::LuaVm;
use crate::vm::questions;
use crate::vm::traps;

static VMS: Mutex<Vec<Weak<VmFigures>>> = Mutex::new(Vec::new());

/// Shows the VM in reports as long as `figures` lives.
pub(crate) fn show(figures: &Arc<VmFigures>) {
    figures::register("lua", tell_lua);
    figures::register("dict", tell_dicts);
    figures::register_metrics("lua", metrics::of_all);
    let mut vms = lock(&VMS);
    vms.retain(|vm| vm.strong_count() > 0);
    vms.push(Arc::downgrade(figures));
}

/// What the VM says when it is asked on its own thread.
fn ask<T: Send + 'static>(figures: &VmFigures, question: fn(&LuaVm) -> T) -> Option<T> {
    questions::ask(&figures.remote, figures.number, question)
}

pub(crate) const TABLE: &[ApiFunction] = &[function("_jit_told", 0, |l| {
    let what = expect_string(&l, 1, "_jit_told")?;
    // The event may come when the VM is closed, while no exchange is lent.
    if lend::main().is_some() {
        lend::vm(|vm| match (&vm.figures, &*what) {
            (Some(figures), b"stop") => drop(figures.traces.fetch_add(1, Relaxed)),
            (Some(figures), b"flush") => drop(figures.flushes.fetch_add(1, Relaxed)),
            (Some(figures), _) => figures.aborted(l.lossy(2), l.lossy(3)),
            (None, _) => {}
        });
    }
    Ok(CallDone::Results(0))
})];

/// Those that are shown, by worker.
fn shown() -> Vec<Arc<VmFigures>> {
    let mut vms: Vec<Arc<VmFigures>> = lock(&VMS).iter().filter_map(Weak::upgrade).collect();
    vms.sort_by_key(|vm| vm.worker);
    vms
}

/// The dictionaries of all, by name.
fn dicts() -> BTreeMap<String, Arc<SharedDict>> {
    shown().iter().flat_map(|vm| vm.dicts.iter().cloned()).collect()
}

fn tell_lua(what: &str) -> Option<FigureTable> {
    let vms = shown();
    match what {
        "heap" => Some(heap(&vms)),
        "jit" => Some(jit(&vms)),
        "gc" => Some(times(&vms)),
        "traps" => Some(traps()),
        "timers" => Some(timers(&vms)),
        #[cfg(lua_walk)]
        "objects" => Some(objects(&vms)),
        #[cfg(lua_walk)]
        "tables" => Some(tables(&vms)),
        _ => None,
    }
}

fn heap(vms: &[Arc<VmFigures>]) -> FigureTable {
    let row = |vm: &Arc<VmFigures>| {
        let (allocated, live) = (vm.heap.allocated.load(Relaxed), vm.heap.live());
        vec![
            FigureValue::Count(vm.worker.into()),
            FigureValue::Bytes(live),
            FigureValue::Bytes(allocated),
            FigureValue::Bytes(allocated - live.min(allocated)),
        ]
    };
    let columns = &[
        ("worker", "worker"),
        ("in use", "live_bytes"),
        ("allocated", "allocated_bytes"),
        ("freed", "freed_bytes"),
    ];
    FigureTable { columns, rows: vms.iter().map(row).collect() }
}

/// How many objects of each type the VMs have together, the most bytes first.
#[cfg(lua_walk)]
fn objects(vms: &[Arc<VmFigures>]) -> FigureTable {
    let mut sums = [census::TypeSum::default(); census::TYPES.len()];
    for census in vms.iter().filter_map(|vm| ask(vm, |vm| census::count(vm.main()))) {
        for (sum, part) in sums.iter_mut().zip(census.types) {
            sum.count += part.count;
            sum.bytes += part.bytes;
        }
    }
    let mut rows: Vec<_> = census::TYPES.iter().zip(sums).filter(|(_, sum)| sum.count > 0).collect();
    rows.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes));
    let row = |(name, sum): (&&str, census::TypeSum)| {
        vec![
            FigureValue::Text((*name).to_owned()),
            FigureValue::Count(sum.count),
            FigureValue::Bytes(sum.bytes),
        ]
    };
    let columns = &[("objects", "type"), ("count", "count"), ("bytes", "bytes")];
    FigureTable { columns, rows: rows.into_iter().map(row).collect() }
}

/// The biggest tables of each VM.
#[cfg(lua_walk)]
fn tables(vms: &[Arc<VmFigures>]) -> FigureTable {
    let mut rows = Vec::new();
    for vm in vms {
        let Some(census) = ask(vm, |vm| census::count(vm.main())) else { continue };
        rows.extend(census.tables.iter().filter(|table| table.bytes > 0).map(|table| {
            vec![
                FigureValue::Count(vm.worker.into()),
                FigureValue::Bytes(table.bytes),
                FigureValue::Count(table.array),
                FigureValue::Count(table.hash),
                FigureValue::Text(table.held()),
            ]
        }));
    }
    let columns = &[
        ("worker", "worker"),
        ("table", "bytes"),
        ("array", "array"),
        ("hash", "hash"),
        ("held by", "held_by"),
    ];
    FigureTable { columns, rows }
}

/// Globals that scripts of requests have written and calls that blocked their worker, since the server was started.
fn traps() -> FigureTable {
    let row = |(times, what, place)| {
        vec![FigureValue::Count(times), FigureValue::Text(what), FigureValue::Text(place)]
    };
    let columns = &[("count", "count"), ("what", "what"), ("at", "place")];
    FigureTable { columns, rows: traps::seen().into_iter().map(row).collect() }
}

/// The timers of each VM, those of one place and kind together: first what is due first.
fn timers(vms: &[Arc<VmFigures>]) -> FigureTable {
    let mut rows = Vec::new();
    for vm in vms {
        rows.extend(ask(vm, LuaVm::timers_told).into_iter().flatten().map(|timers| {
            vec![
                FigureValue::Count(vm.worker.into()),
                FigureValue::Count(timers.count),
                FigureValue::Text(if timers.every { "every" } else { "at" }.to_owned()),
                FigureValue::Text(timers.state().to_owned()),
                timers.due_ns.map_or(FigureValue::None, FigureValue::Time),
                timers.runs_ns.map_or(FigureValue::None, FigureValue::Time),
                FigureValue::Text(timers.place),
            ]
        }));
    }
    let columns = &[
        ("worker", "worker"),
        ("count", "count"),
        ("timer", "kind"),
        ("state", "state"),
        ("next due in", "due_ns"),
        ("longest runs for", "runs_ns"),
        ("function", "place"),
    ];
    FigureTable { columns, rows }
}

/// Where the compiler gave up, most often first, and what to do there; before that what it made.
fn jit(vms: &[Arc<VmFigures>]) -> FigureTable {
    let sum = |of: fn(&VmFigures) -> u64| vms.iter().map(|vm| of(vm)).sum();
    let mut sums = BTreeMap::<(String, String), u64>::new();
    for vm in vms {
        for (place, count) in lock(&vm.aborts).iter() {
            *sums.entry(place.clone()).or_default() += count;
        }
    }
    let mut aborts: Vec<_> = sums.into_iter().collect();
    aborts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let row = |count, what: &str, place: String, reason: String| {
        let advice = jit_advice::of(&reason).to_owned();
        let texts = [what.to_owned(), place, reason, advice].map(FigureValue::Text);
        std::iter::once(FigureValue::Count(count)).chain(texts).collect()
    };
    let mut rows = vec![row(sum(|vm| vm.traces.load(Relaxed)), "compiled", String::new(), String::new())];
    let flushes = sum(|vm| vm.flushes.load(Relaxed));
    rows.extend((flushes > 0).then(|| row(flushes, "flushed", String::new(), String::new())));
    rows.extend(aborts.into_iter().map(|((place, reason), count)| row(count, "gave up", place, reason)));
    let columns = &[
        ("count", "count"),
        ("what", "what"),
        ("at", "place"),
        ("reason", "reason"),
        ("what to do", "advice"),
    ];
    FigureTable { columns, rows }
}

/// What the workers' time in Lua went to in the last minute, by samples; and what collectors and compilers have taken
/// since the workers began, to the tick.
fn times(vms: &[Arc<VmFigures>]) -> FigureTable {
    let profile = housekeeping::handle().stacks(Duration::from_secs(60));
    let in_all: BTreeMap<u16, [u64; 2]> =
        vms.iter().map(|vm| (vm.worker.into(), vm.times.spent_ns())).collect();
    let mut workers: BTreeMap<u16, [u64; 9]> = in_all.keys().map(|worker| (*worker, [0; 9])).collect();
    for (stack, weight) in &profile.stacks {
        let state = usize::from(stack.vm_state).min(8);
        workers.entry(stack.worker).or_default()[state] += weight.ns;
    }
    let rows = workers.into_iter().map(|(worker, ns)| {
        let lua: u64 = ns[1..].iter().sum();
        let mut row = vec![
            FigureValue::Count(worker.into()),
            FigureValue::Time(lua),
            FigureValue::Share(lua, lua + ns[0]),
        ];
        let parts = [ns[1], ns[8], ns[2], ns[3], ns[4], ns[5] + ns[6] + ns[7]];
        row.extend(parts.into_iter().map(|part| FigureValue::Share(part, lua)));
        let in_all = in_all
            .get(&worker)
            .map_or([const { FigureValue::None }; 2], |spent| spent.map(FigureValue::Time));
        row.extend(in_all);
        row
    });
    let columns = &[
        ("worker", "worker"),
        ("in Lua", "lua_ns"),
        ("of its CPU", "lua_share"),
        ("interpreter", "interpreter_share"),
        ("compiled", "compiled_share"),
        ("C functions", "c_share"),
        ("collector", "gc_share"),
        ("trace exits", "exit_share"),
        ("compiler", "compiler_share"),
        ("collector in all", "gc_ns"),
        ("compiler in all", "compiler_ns"),
    ];
    FigureTable { columns, rows: rows.collect() }
}

fn tell_dicts(what: &str) -> Option<FigureTable> {
    if what != "all" {
        return None;
    }
    let rows = dicts().into_iter().map(|(name, dict)| {
        let reported = dict.reported();
        vec![
            FigureValue::Text(name),
            FigureValue::Bytes(reported.capacity),
            FigureValue::Bytes(reported.used),
            FigureValue::Count(reported.entries),
            FigureValue::Count(reported.full),
        ]
    });
    let columns = &[
        ("dictionary", "name"),
        ("size", "capacity_bytes"),
        ("used", "used_bytes"),
        ("entries", "entries"),
        ("full", "full"),
    ];
    Some(FigureTable { columns, rows: rows.collect() })
}
