//! Who takes the processor: modules, scripts that do not pause, collectors.

use super::figures::{StallCause, WhyFigures};
use super::queues::LOST;
use super::stalls::{StallGroup, command, group};
use super::{CPU, Finding, GC, waited};

/// Scripts and modules that compute without a pause; and where a worker is saturated, the module that takes most.
pub(super) fn find(figures: &WhyFigures) -> Vec<Finding> {
    // Where a worker wants a core, only what was seen computing is sure.
    let starved = figures.workers.iter().any(|worker| worker.run_queue >= LOST);
    let mut found: Vec<Finding> = group(figures, StallCause::Computes)
        .into_iter()
        // What the collector takes of a script is the collector's finding.
        .filter(|group| !group.line.is_empty() || !starved && collected(figures) * 2 <= group.ns)
        .map(|group| {
            let StallGroup { by, location, times, ns, waited: count, waited_ns, .. } = &group;
            Finding {
                kind: CPU,
                weight: group.weight(figures),
                says: format!(
                    "{by} in {location} computed without a pause {} times a second, {} each{}",
                    rate(*times, figures),
                    crate::table::time(ns / times),
                    waited(*count, *waited_ns)
                ),
                subject: location.clone(),
                line: group.line.clone(),
                command: format!("weir flame cpu --route {}", command(location)),
            }
        })
        .collect();
    found.extend(busiest(figures).filter(|module| found.iter().all(|other| other.subject != module.subject)));
    found
}

/// The module that takes most of the processor, where a worker has hardly any left.
fn busiest(figures: &WhyFigures) -> Option<Finding> {
    let saturated = figures.workers.iter().any(|worker| worker.busy - worker.run_queue >= SATURATED);
    let module = figures.modules.iter().max_by_key(|module| module.ns).filter(|_| saturated)?;
    let share = module.ns as f64 / figures.requests_ns.max(1) as f64;
    if share < HALF || module.is_lua && collected(figures) * 2 > module.ns {
        return None;
    }
    let line = if module.line.is_empty() { String::new() } else { format!(", {}", module.line) };
    Some(Finding {
        kind: CPU,
        weight: module.ns as f64 / 1e9 / figures.seconds.max(1e-9),
        says: format!("{} is {:.0}% of CPU, in {}{line}", module.name, share * 100.0, module.location),
        subject: module.location.clone(),
        line: module.line.clone(),
        command: format!("weir flame cpu --route {}", command(&module.location)),
    })
}

/// What collectors have taken, in nanoseconds.
fn collected(figures: &WhyFigures) -> u64 {
    figures.workers.iter().map(|worker| worker.gc_ns).sum()
}

/// Collectors that take much of a worker, or stop it.
pub(super) fn collector(figures: &WhyFigures) -> Vec<Finding> {
    let pauses = group(figures, StallCause::Collects);
    let worst = figures.workers.iter().max_by_key(|worker| worker.gc_ns);
    let share = worst.map_or(0.0, |worker| worker.gc_ns as f64 / 1e9 / figures.seconds.max(1e-9));
    if let Some(worst) = worst
        && share >= COLLECTS
    {
        let most = pauses.first();
        let (line, pause) = match most {
            Some(most) => (
                most.line.clone(),
                format!(", with pauses of {} by {}", crate::table::time(most.ns / most.times), most.by),
            ),
            None => (String::new(), String::new()),
        };
        return vec![Finding {
            kind: GC,
            weight: share + most.map_or(0.0, |most| most.waited_ns as f64 / 1e9 / figures.seconds.max(1e-9)),
            says: format!(
                "garbage collection of Lua takes {:.0}% of worker {}{pause}",
                share * 100.0,
                worst.worker
            ),
            subject: format!("worker {}", worst.worker),
            line,
            command: "weir flame gc".to_owned(),
        }];
    }
    let finding = |group: StallGroup| Finding {
        kind: GC,
        weight: group.weight(figures),
        says: format!(
            "garbage collection of Lua stopped a worker {} times a second, {} each, by {} in {}{}",
            rate(group.times, figures),
            crate::table::time(group.ns / group.times),
            group.by,
            group.location,
            waited(group.waited, group.waited_ns)
        ),
        subject: group.location.clone(),
        line: group.line.clone(),
        command: "weir flame gc".to_owned(),
    };
    pauses.into_iter().map(finding).collect()
}

/// How often a second, in few digits.
pub(super) fn rate(times: u64, figures: &WhyFigures) -> String {
    let rate = times as f64 / figures.seconds.max(1e-9);
    if rate >= 3.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

/// The share of its time from which on a worker is saturated.
const SATURATED: f64 = 0.8;
/// The share of the processor from which on a module is the one to look at.
const HALF: f64 = 0.5;
/// The share of a worker from which on its collector takes too much.
const COLLECTS: f64 = 0.2;
