//! Who takes the processor: modules, scripts that do not pause, collectors.

use super::figures::{FilterSetting, ModuleLoad, ModuleWork, StallCause, WhyFigures};
use super::queues::LOST;
use super::stalls::{StallGroup, flame, group, inside};
use super::{CPU, Finding, GC, waited};

/// Scripts and modules that compute without a pause; and those that take much of what the workers run.
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
                    "{by}{} computed without a pause {} times a second, {} each{}",
                    inside(location),
                    rate(*times, figures),
                    crate::table::time(ns / times),
                    waited(*count, *waited_ns)
                ),
                subject: location.clone(),
                line: group.line.clone(),
                command: flame(location),
            }
        })
        .collect();
    let heavy = figures.modules.iter().filter(|module| is_heavy(figures, module));
    let heavy = heavy.map(|module| steady(figures, module));
    found.extend(
        heavy.filter(|module| found.iter().all(|other| other.subject != module.subject)).collect::<Vec<_>>(),
    );
    found
}

/// Whether a module takes so much of what the workers run that it is worth a look. Of content that is what they are for.
pub(crate) fn is_heavy(figures: &WhyFigures, module: &ModuleLoad) -> bool {
    let wanting = |worker: &super::figures::WorkerLoad| worker.run_queue >= LOST;
    let saturated = figures.workers.iter().any(|worker| worker.busy >= SATURATED);
    let part = match module.work {
        ModuleWork::Content => return false,
        // Where other programs have the core, what the script takes is not what is wrong.
        ModuleWork::Script if figures.workers.iter().any(wanting) => return false,
        ModuleWork::Script if !saturated && module.each_ns() < DEAR_SCRIPT_NS => return false,
        ModuleWork::Script => MOST,
        ModuleWork::Besides => MUCH,
    };
    cores(figures, module) >= SOME_OF_A_CORE && share(figures, module) >= part
}

fn share(figures: &WhyFigures, module: &ModuleLoad) -> f64 {
    module.ns as f64 / figures.used_ns().max(1) as f64
}

fn cores(figures: &WhyFigures, module: &ModuleLoad) -> f64 {
    module.ns as f64 / 1e9 / figures.seconds.max(1e-9)
}

impl ModuleLoad {
    /// Of a request; 0 where none are counted.
    fn each_ns(&self) -> u64 {
        self.ns.checked_div(self.requests).unwrap_or(0)
    }

    /// `log_by_lua (weir.conf:20) in /pay`.
    fn place(&self) -> String {
        let line = if self.line.is_empty() { String::new() } else { format!(" ({})", self.line) };
        let others = match self.others {
            0 => String::new(),
            1 => " and one other location".to_owned(),
            count => format!(" and {count} other locations"),
        };
        // A timer's name is where it runs; a server may have no locations.
        let location = if self.location == self.name { String::new() } else { inside(&self.location) };
        format!("{}{line}{location}{others}", self.name)
    }
}

/// Says what a module takes, of a request too, and where in it or by which setting.
fn steady(figures: &WhyFigures, module: &ModuleLoad) -> Finding {
    let each = match module.each_ns() {
        0 => String::new(),
        ns if module.location == module.name => format!(", {} each time", crate::table::time(ns)),
        ns => format!(", {} a request", crate::table::time(ns)),
    };
    let hottest =
        if module.hottest.is_empty() { String::new() } else { format!(", most of it at {}", module.hottest) };
    Finding {
        kind: CPU,
        weight: cores(figures, module),
        says: format!(
            "{} takes {:.0}% of the workers' CPU, {:.1} cores{each}{hottest}{}",
            module.place(),
            share(figures, module) * 100.0,
            cores(figures, module),
            module.setting.as_ref().map_or_else(String::new, setting)
        ),
        subject: module.location.clone(),
        line: if module.hottest.is_empty() { module.line.clone() } else { module.hottest.clone() },
        command: flame(&module.location),
    }
}

/// `; gzip_comp_level is 9 (weir.conf:12): 1 costs least`.
fn setting(setting: &FilterSetting) -> String {
    let place =
        if setting.place.is_empty() { "by default".to_owned() } else { format!("({})", setting.place) };
    format!("; {} is {} {place}: {}", setting.directive, setting.value, setting.cheaper)
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
            "garbage collection of Lua stopped a worker {} times a second, {} each, by {}{}{}",
            rate(group.times, figures),
            crate::table::time(group.ns / group.times),
            group.by,
            inside(&group.location),
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
/// The shares of what the workers run from which on something besides the content, and a script that makes it, are the ones
/// to look at.
const MUCH: f64 = 0.4;
const MOST: f64 = 0.5;
/// What takes less of a core hurts nobody, however large its share is.
const SOME_OF_A_CORE: f64 = 0.3;
/// A script that makes content in less is no dear one.
const DEAR_SCRIPT_NS: u64 = 500_000;
/// The share of a worker from which on its collector takes too much.
const COLLECTS: f64 = 0.2;
