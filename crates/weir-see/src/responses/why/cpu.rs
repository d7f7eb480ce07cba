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
    let groups = if sampled_ns(&profile).0 >= ENOUGH {
        by_samples(&profile, used)
    } else {
        by_marks(before, after, used)
    };
    let is_recorded = recorded(before, after);
    let all = groups.into_iter().map(|(key, group)| group.load(key, is_recorded, before, after));
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

    fn merge(&mut self, other: ModuleGroup) {
        self.ns += other.ns;
        other.places.into_iter().for_each(|(place, ns)| *self.places.entry(place).or_default() += ns);
        other.lines.into_iter().for_each(|(line, ns)| *self.lines.entry(line).or_default() += ns);
        // Its sites are those of waits: the same requests.
    }

    /// `is_recorded`: requests have all their boundaries recorded, so that it is known how many of them it ran for.
    fn load(self, key: ModuleKey, is_recorded: bool, before: &WhyMoment, after: &WhyMoment) -> ModuleLoad {
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
            requests: requests.max().filter(|_| is_recorded).unwrap_or(0),
            // `log_by_lua(weir.conf:20)`; of a file the configuration has the line.
            line: place_of(&key.script).unwrap_or_default().to_owned(),
            hottest: hottest.map(|(line, _)| line.clone()).unwrap_or_default(),
            work: key.work,
            name: key.name,
            script: key.script,
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
        _ => None,
    }
}

/// The name of what a sample belongs to, and what that does. Where a script goes on after a wait, and where boundaries are not
/// recorded, the script alone is known: the name is empty if that does not say its phase.
fn named(info: &SiteInfo, location: &str, script: &str) -> Option<(String, ModuleWork)> {
    if let Some(work) = work(info) {
        return Some((info.name.to_string(), work));
    }
    if script.is_empty() || !matches!(info.kind, SiteKind::LuaResume | SiteKind::Other | SiteKind::Phase(_)) {
        return None;
    }
    // Timers, and other scripts that no request waits for, are called like what runs them.
    if location.starts_with("ngx.") || location.contains("_by_lua") {
        return Some((location.to_owned(), ModuleWork::Besides));
    }
    Some(match script.split_once('(').filter(|(name, _)| name.ends_with("_by_lua")) {
        Some(("content_by_lua", _)) => ("content_by_lua".to_owned(), ModuleWork::Script),
        Some((name, _)) => (name.to_owned(), ModuleWork::Besides),
        None => (String::new(), ModuleWork::Script),
    })
}

/// Gives groups without a name to those of the same script.
fn join(groups: &mut ModuleGroups) {
    let nameless: Vec<ModuleKey> = groups.keys().filter(|key| key.name.is_empty()).cloned().collect();
    for key in nameless {
        let group = groups.remove(&key).unwrap_or_default();
        let like = groups.iter_mut().find(|(other, _)| !other.name.is_empty() && other.script == key.script);
        match like {
            Some((_, other)) => other.merge(group),
            None => drop(groups.insert(ModuleKey { name: SOME_SCRIPT.to_owned(), ..key }, group)),
        }
    }
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
        if stack.parked || stack.vm_state == COLLECTS {
            continue;
        }
        let (info, (script, line)) = (table.info(stack.site), lua_lines(stack));
        let location = match info.location.is_empty() {
            true => table.info(stack.route).location,
            false => info.location.clone(),
        };
        let Some((name, work)) = named(&info, &location, &script) else { continue };
        let ns = (u128::from(weight.ns) * u128::from(used) / u128::from(whole)) as u64;
        let group = groups.entry(ModuleKey { name, work, script }).or_default();
        group.add(stack.site, &location, ns);
        if let Some(line) = line {
            *group.lines.entry(line).or_default() += ns;
        }
    }
    join(&mut groups);
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

/// Whether nearly all requests of the window had their boundaries recorded.
fn recorded(before: &WhyMoment, after: &WhyMoment) -> bool {
    let counts = |moment: &WhyMoment| {
        let of =
            |totals: &SiteTotals| totals.status.as_ref().map(|status| (totals.run.count(), status.total()));
        moment.sites.values().filter_map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let (was, now) = (counts(before), counts(after));
    now.0.saturating_sub(was.0) * 10 >= now.1.saturating_sub(was.1) * 9
}

/// By the marks of requests: of what has no others inside, since these times are inclusive. Together they take no more than the
/// `used` nanoseconds, whatever waiting for a core they have in them.
fn by_marks(before: &WhyMoment, after: &WhyMoment, used: u64) -> ModuleGroups {
    let (none, table) = (SiteTotals::default(), SiteTable::global());
    let ran = |(site, now): (&Site, &SiteTotals)| {
        let was = before.sites.get(site).unwrap_or(&none);
        let lost = |totals: &SiteTotals| totals.counts.asleep + totals.counts.no_core;
        let run = now.run.sum().saturating_sub(was.run.sum());
        scale(run.saturating_sub(lost(now).saturating_sub(lost(was))))
    };
    let requests = after.sites.iter().filter(|(site, _)| table.info(**site).kind == SiteKind::Request);
    let whole = requests.map(ran).sum::<u64>().max(used).max(1);
    let mut groups = ModuleGroups::new();
    for (site, now) in &after.sites {
        let info = table.info(*site);
        let Some(work) = work(&info).filter(|work| *work == ModuleWork::Besides) else { continue };
        let ns = (u128::from(ran((site, now))) * u128::from(used) / u128::from(whole)) as u64;
        let key = ModuleKey { name: info.name.to_string(), work, script: String::new() };
        groups.entry(key).or_default().add(*site, &info.location, ns);
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
        if module.name == SOME_SCRIPT
            && let Some((phase, line)) = index.of_file(&module.script)
        {
            (module.name, module.line) = (phase, line);
        }
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
/// What a script is called whose phase is not known.
const SOME_SCRIPT: &str = "a script";
/// The filters of [`weir_trace::Site`] that every response passes.
const OWN_FILTERS: [&str; 3] = ["", "header", "copy"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: SiteKind, name: &str, location: &str, script: &str) -> Option<(String, ModuleWork)> {
        let table = SiteTable::new();
        named(&table.info(table.intern(kind, "/a", name)), location, script)
    }

    #[test]
    fn samples_belong_to_what_the_site_or_the_script_says() {
        let (content, log) = (SiteKind::Handler(9), SiteKind::Handler(10));
        let inline = "content_by_lua(weir.conf:4)";
        use ModuleWork::{Besides, Content, Script};
        for (kind, name, location, script, expected) in [
            (content, "static", "/a", "", Some(("static", Content))),
            (content, "content_by_lua", "/a", inline, Some(("content_by_lua", Script))),
            (log, "log_by_lua", "/a", "a.lua", Some(("log_by_lua", Besides))),
            (SiteKind::BodyFilter, "gzip", "/a", "", Some(("gzip", Besides))),
            (SiteKind::BodyFilter, "copy", "/a", "", None),
            // Behind a wait, in a request and in a timer.
            (
                SiteKind::LuaResume,
                "content_by_lua(weir.conf:4):2",
                "/a",
                inline,
                Some(("content_by_lua", Script)),
            ),
            (
                SiteKind::LuaResume,
                "access_by_lua(weir.conf:3):2",
                "/a",
                "access_by_lua(weir.conf:3)",
                Some(("access_by_lua", Besides)),
            ),
            (SiteKind::LuaResume, "a.lua:2", "/a", "a.lua", Some(("", Script))),
            (SiteKind::LuaResume, "a.lua:2", "ngx.timer", inline, Some(("ngx.timer", Besides))),
            (
                SiteKind::LuaResume,
                "init_worker_by_lua",
                "init_worker_by_lua",
                "a.lua",
                Some(("init_worker_by_lua", Besides)),
            ),
            // Where no boundaries are recorded.
            (SiteKind::Other, "", "/a", inline, Some(("content_by_lua", Script))),
            (SiteKind::Other, "", "/a", "", None),
            (SiteKind::UpstreamTry, "127.0.0.1:1", "/a", "", None),
        ] {
            let expected = expected.map(|(name, work)| (name.to_owned(), work));
            assert_eq!(of(kind, name, location, script), expected, "{kind:?} {name}");
        }
    }

    #[test]
    fn what_a_script_goes_on_with_is_its_own() {
        let group = |ns, line: &str| ModuleGroup {
            ns,
            lines: BTreeMap::from([(line.to_owned(), ns)]),
            ..ModuleGroup::default()
        };
        let key = |name: &str, script: &str| ModuleKey {
            name: name.to_owned(),
            work: ModuleWork::Script,
            script: script.to_owned(),
        };
        let mut groups = ModuleGroups::from([
            (key("content_by_lua", "a.lua"), group(5, "a.lua:1")),
            (key("", "a.lua"), group(7, "a.lua:3")),
            (key("", "b.lua"), group(2, "b.lua:1")),
        ]);
        join(&mut groups);
        let found: Vec<_> = groups.iter().map(|(key, group)| (&*key.name, &*key.script, group.ns)).collect();
        assert_eq!(found, [("a script", "b.lua", 2), ("content_by_lua", "a.lua", 12)]);
    }
}
