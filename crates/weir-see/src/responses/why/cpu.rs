//! Which handlers, filters and scripts take the workers' CPU: by the samples that are always taken, where there are any.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_rt::sampler::StackFrame;
use weir_server::housekeeping::{self, SampledStack, StackProfile};
use weir_trace::{Site, SiteInfo, SiteKind, SiteTable, SiteTotals};

use super::super::conf_lines::ConfLineIndex;
use super::super::lines::written;
use super::{WhyMoment, settings};
use crate::source::{ServerSource, scale};
use crate::stall_cause::is_line_of_lua;
use crate::why::compute::is_heavy;
use crate::why::figures::{ModuleLoad, ModuleWork, WhyFigures};

/// Adds to `figures`, which have the workers already, what takes much of their CPU.
pub(super) fn add(source: &ServerSource, figures: &mut WhyFigures, before: &WhyMoment, after: &WhyMoment) {
    let used = figures.used_ns();
    let window = Duration::from_secs_f64(figures.seconds).max(SAMPLED);
    let profile = housekeeping::handle().stacks(window);
    let groups =
        if sampled_ns(&profile).0 >= ENOUGH { by_samples(&profile, used) } else { by_marks(before, after) };
    let all = groups.into_iter().map(|(key, group)| group.load(key, before, after));
    // What the configuration says is read for what may be a finding only: that takes time.
    let mut heavy: Vec<ModuleLoad> = all.filter(|module| is_heavy(figures, module)).collect();
    if !heavy.is_empty() {
        look_up(source, &mut heavy);
    }
    figures.modules = heavy;
}

/// What is counted together: a filter or handler wherever it runs; a script by the file it begins in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ModuleKey {
    name: String,
    work: ModuleWork,
    script: String,
}

/// What was seen of one module.
#[derive(Debug, Default)]
struct ModuleGroup {
    ns: u64,
    places: BTreeMap<String, u64>,
    lines: BTreeMap<String, u64>,
    sites: Vec<Site>,
}

type ModuleGroups = BTreeMap<ModuleKey, ModuleGroup>;

impl ModuleGroup {
    fn add(&mut self, site: Site, location: &str, ns: u64) {
        self.ns += ns;
        *self.places.entry(location.to_owned()).or_default() += ns;
        if !self.sites.contains(&site) {
            self.sites.push(site);
        }
    }

    fn load(self, key: ModuleKey, before: &WhyMoment, after: &WhyMoment) -> ModuleLoad {
        let none = SiteTotals::default();
        let count = |moment: &WhyMoment, site| moment.sites.get(site).unwrap_or(&none).run.count();
        let requests = self.sites.iter().map(|site| count(after, site).saturating_sub(count(before, site)));
        let heaviest = self.places.iter().max_by_key(|(_, ns)| **ns);
        let others = self.places.values().filter(|ns| **ns * FEW >= self.ns).count().saturating_sub(1);
        let hottest = self.lines.iter().max_by_key(|(_, ns)| **ns).filter(|(_, ns)| **ns * 2 >= self.ns);
        ModuleLoad {
            location: heaviest.map(|(location, _)| location.clone()).unwrap_or_default(),
            others,
            ns: self.ns,
            // Filters of heads and of bodies are entered by the same requests.
            requests: requests.max().unwrap_or(0),
            // `log_by_lua(weir.conf:20)`; of a file the configuration has the line.
            line: place_of(&key.script).unwrap_or_default().to_owned(),
            hottest: hottest.map(|(line, _)| line.clone()).unwrap_or_default(),
            work: key.work,
            name: key.name,
            setting: None,
        }
    }
}

/// What a place does; `None` of what is not a module's.
fn work(info: &SiteInfo) -> Option<ModuleWork> {
    let is_script = info.name.contains("_by_lua");
    match info.kind {
        SiteKind::Handler(_) if info.phase == Some("content") && is_script => Some(ModuleWork::Script),
        SiteKind::Handler(_) if info.phase == Some("content") => Some(ModuleWork::Content),
        // The engine's own, in all locations alike.
        SiteKind::HeaderFilter | SiteKind::BodyFilter if OWN_FILTERS.contains(&&*info.name) => None,
        SiteKind::Handler(_) | SiteKind::HeaderFilter | SiteKind::BodyFilter => Some(ModuleWork::Besides),
        // Timers and other scripts that no request waits for.
        SiteKind::LuaResume => Some(ModuleWork::Besides),
        _ => None,
    }
}

fn key(info: &SiteInfo, work: ModuleWork, script: String) -> ModuleKey {
    ModuleKey { name: info.name.to_string(), work, script }
}

/// Samples, and the time that they represent, of what ran; waits for events are not among it.
fn sampled_ns(profile: &StackProfile) -> (u64, u64) {
    let sums = profile.stacks.iter().map(|(_, weight)| (weight.samples, weight.ns));
    sums.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// Each module's part of the samples, of the `used` nanoseconds.
fn by_samples(profile: &StackProfile, used: u64) -> ModuleGroups {
    let table = SiteTable::global();
    let whole = sampled_ns(profile).1.max(1);
    let mut groups = ModuleGroups::new();
    for (stack, weight) in &profile.stacks {
        let info = table.info(stack.site);
        let Some(work) = work(&info).filter(|_| !stack.parked && stack.vm_state != COLLECTS) else {
            continue;
        };
        let ns = (u128::from(weight.ns) * u128::from(used) / u128::from(whole)) as u64;
        let (script, line) = lua_lines(stack);
        let group = groups.entry(key(&info, work, script)).or_default();
        let location =
            if info.location.is_empty() { table.info(stack.route).location } else { info.location };
        group.add(stack.site, &location, ns);
        if let Some(line) = line {
            *group.lines.entry(line).or_default() += ns;
        }
    }
    groups
}

/// The chunk in which the script of a stack begins, and the line of Lua that ran; empty and `None` where none did.
fn lua_lines(stack: &SampledStack) -> (String, Option<String>) {
    let frames = || stack.frames.iter().map(|word| StackFrame::unpack(*word));
    let named = |frame: StackFrame| frame.lua_name().filter(|name| is_line_of_lua(name));
    let chunk = |frame: &StackFrame| matches!(frame, StackFrame::Lua { .. });
    let Some(outermost) = frames().rfind(chunk).and_then(StackFrame::lua_name) else {
        return (String::new(), None);
    };
    let script = outermost.rsplit_once(':').map_or("", |(chunk, _)| chunk).to_owned();
    (script, frames().find_map(named))
}

/// `weir.conf:20` of `log_by_lua(weir.conf:20)`.
fn place_of(chunk: &str) -> Option<&str> {
    chunk.strip_suffix(')').and_then(|chunk| chunk.split_once("_by_lua(")).map(|(_, place)| place)
}

/// By the marks of requests: of what has no others inside, since these times are inclusive.
fn by_marks(before: &WhyMoment, after: &WhyMoment) -> ModuleGroups {
    let (none, table) = (SiteTotals::default(), SiteTable::global());
    let mut groups = ModuleGroups::new();
    for (site, now) in &after.sites {
        let info = table.info(*site);
        let Some(work) = work(&info).filter(|work| *work == ModuleWork::Besides) else { continue };
        let was = before.sites.get(site).unwrap_or(&none);
        let lost = |totals: &SiteTotals| totals.counts.asleep + totals.counts.no_core;
        let run = now.run.sum().saturating_sub(was.run.sum());
        let ns = scale(run.saturating_sub(lost(now).saturating_sub(lost(was))));
        groups.entry(key(&info, work, String::new())).or_default().add(*site, &info.location, ns);
    }
    groups
}

/// Adds lines and settings of the configuration in force.
fn look_up(source: &ServerSource, modules: &mut [ModuleLoad]) {
    let configuration = source.configuration();
    // Without the texts there are no lines to show; the finding stays.
    let Ok(tree) = written(&configuration) else { return };
    let index = ConfLineIndex::new(&tree, configuration.modules());
    for module in modules {
        if module.line.is_empty() {
            module.line =
                index.line(&module.location, &module.name).map(|line| line.place).unwrap_or_default();
        }
        module.setting = settings::of_module(&index, &module.location, &module.name);
    }
}

/// The shortest time of which samples are looked at.
const SAMPLED: Duration = Duration::from_secs(3);
/// With fewer samples nothing is sure.
const ENOUGH: u64 = 40;
/// A location with less than this part of a module's time is not counted.
const FEW: u64 = 20;
/// A Lua VM's state: it collects garbage.
const COLLECTS: u8 = 3;
/// The filters of [`weir_trace::Site`] that every response passes.
const OWN_FILTERS: [&str; 3] = ["", "header", "copy"];
