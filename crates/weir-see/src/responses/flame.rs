//! `flame`: stacks of where time goes: on the CPU by sampling, waiting and altogether by the marks of every request.

use std::time::{Duration, Instant};

use weir_rt::clock;
use weir_rt::sampler::{SampleSource, StackFrame as Sampled};
use weir_server::housekeeping::{self, StackProfile};
use weir_trace::{AverageTree, AverageWatch, PHASES, Site, SiteKind, SiteTable, TraceTree};

use super::average::{WatchedStart, collect};
use super::reply::{ReplyFailure, ReplySink, pause};
use crate::control::protocol::ControlQuestion;
use crate::filter::{RequestFilter, duration_ns, is_location};
use crate::raw_stacks::{RawFrame, RawStacks, code_maps};
use crate::source::{self, scale};
use crate::stacks::{FrameOrigin, StackWeight};

/// Stacks of the next `for`, as lines: see [`crate::raw_stacks`].
pub(super) fn respond(
    source: &source::ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let raw = stacks(source, question, reply)?;
    Ok(reply.out(raw.write().as_bytes())?)
}

/// The stacks of a flame graph, before they are rendered.
pub(crate) fn stacks(
    source: &source::ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<RawStacks, ReplyFailure> {
    let time = duration_ns(question.value("for").unwrap_or("10s"))?;
    let time = Duration::from_nanos(time).min(LONGEST);
    let kind = question.value("kind").unwrap_or("cpu");
    let parts = match kind {
        "cpu" => return samples(question, reply, time, &CPU),
        "gc" => return samples(question, reply, time, &GC),
        "jit" => return samples(question, reply, time, &JIT),
        "alloc" => return samples(question, reply, time, &ALLOC),
        "off" => return super::flame_off::respond(source, question, reply, time),
        // Go's name for a profile of waits.
        "wait" | "block" => WantedTimes { run: false, wait: true },
        "wall" => WantedTimes { run: true, wait: true },
        _ => {
            return Err(ReplyFailure::Wrong(format!(
                "\"{kind}\" is no flame graph: cpu, wait, wall, off, alloc, gc and jit are"
            )));
        }
    };
    let mut raw = begun(kind);
    let began = Instant::now();
    marks(source, question, reply, time, parts, &mut raw)?;
    raw.duration_ns = began.elapsed().as_nanos() as u64;
    Ok(raw)
}

/// A recording that begins now, of the marks of requests.
pub(super) fn begun(kind: &str) -> RawStacks {
    RawStacks {
        kind: kind.to_owned(),
        unix_ms: clock::unix_ns() / 1_000_000,
        pid: std::process::id(),
        ..RawStacks::default()
    }
}

/// What requests that end in `time` wait for where they let others run.
pub(super) fn waits(
    source: &source::ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
    time: Duration,
    raw: &mut RawStacks,
) -> Result<(), ReplyFailure> {
    marks(source, question, reply, time, WantedTimes { run: false, wait: true }, raw)
}

/// A graph that is made of samples.
struct SampledGraph {
    kind: &'static str,
    source: SampleSource,
    /// States of the Lua VM ([`weir_rt::sampler::StackSample::vm_state`]) whose samples count; empty: all count.
    states: &'static [u8],
}

const CPU: SampledGraph = SampledGraph { kind: "cpu", source: SampleSource::Cpu, states: &[] };
/// Collecting garbage.
const GC: SampledGraph = SampledGraph { kind: "gc", source: SampleSource::Cpu, states: &[3] };
/// Recording, optimising and assembling traces.
const JIT: SampledGraph = SampledGraph { kind: "jit", source: SampleSource::Cpu, states: &[5, 6, 7] };
const ALLOC: SampledGraph = SampledGraph { kind: "alloc", source: SampleSource::Alloc, states: &[] };

/// From samples: those to come, or with `last` those of the time before.
fn samples(
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
    time: Duration,
    what: &SampledGraph,
) -> Result<RawStacks, ReplyFailure> {
    let housekeeping = housekeeping::handle();
    let hz =
        question.number("hz", u64::from(housekeeping.settings().cpu_hz.max(99)))?.clamp(1, 10_000) as u32;
    let profile = if question.has("last") {
        if what.source != SampleSource::Cpu {
            return Err(ReplyFailure::Wrong(format!("{} is recorded from now on only", what.kind)));
        }
        housekeeping.stacks(time)
    } else {
        let collection = housekeeping.collect(what.source, hz, time + SPARE);
        let collection = collection.map_err(|error| format!("no CPU samples: {error}"))?;
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            reply.note(&format!("{:.0} s left", left.as_secs_f64().ceil()))?;
            if left.is_zero() || !pause(reply, left.min(TELL)) {
                break collection.profile();
            }
        }
    };
    if profile.stacks.is_empty()
        && let Some(refused) = housekeeping.refused()
    {
        return Err(ReplyFailure::Wrong(format!("no CPU samples: {refused}")));
    }
    Ok(sampled(&profile, question, what))
}

/// No stacks, but all that is needed to name addresses.
pub(super) fn nothing() -> RawStacks {
    RawStacks { kind: "cpu".to_owned(), pid: std::process::id(), maps: code_maps(), ..RawStacks::default() }
}

fn sampled(profile: &StackProfile, question: &ControlQuestion, what: &SampledGraph) -> RawStacks {
    let table = SiteTable::global();
    let mut raw = RawStacks {
        kind: what.kind.to_owned(),
        period_ns: if what.source == SampleSource::Cpu { profile.period_ns } else { 0 },
        duration_ns: profile.duration.as_nanos() as u64,
        unix_ms: profile.unix_ms,
        pid: std::process::id(),
        maps: code_maps(),
        stacks: Vec::new(),
    };
    for (stack, weight) in &profile.stacks {
        let (site, route) = (table.info(stack.site), table.info(stack.route));
        let location = if stack.route.is_none() { NOWHERE } else { &*route.location };
        let phase = if stack.site.is_none() { "" } else { site.phase.unwrap_or(&site.name) };
        let state = what.states.is_empty() || what.states.contains(&stack.vm_state);
        let route = question.value("route").is_none_or(|wanted| is_location(wanted, location));
        if !state || !route || question.value("phase").is_some_and(|wanted| wanted != phase) {
            continue;
        }
        let mut frames = vec![RawFrame::Named(FrameOrigin::Route, location.to_owned())];
        if stack.parked {
            frames.push(RawFrame::Named(FrameOrigin::Wait, "waits for events".to_owned()));
        } else {
            frames.extend(module(stack.site));
        }
        frames.extend(stack.frames.iter().rev().map(|word| sampled_frame(*word)));
        raw.stacks.push((StackWeight { count: weight.samples, value: weight.ns }, frames));
    }
    raw
}

/// The frames of a place inside a location: the phase, and the module.
pub(super) fn module(site: Site) -> Vec<RawFrame> {
    if site.is_none() {
        return Vec::new();
    }
    let info = SiteTable::global().info(site);
    let group = match info.kind {
        SiteKind::Handler(_) => Some(info.phase.unwrap_or(&info.name)),
        SiteKind::HeaderFilter | SiteKind::BodyFilter => Some(info.kind.as_str()),
        _ => None,
    };
    let group = group.map(|group| RawFrame::Named(FrameOrigin::Phase, group.to_owned()));
    group.into_iter().chain([RawFrame::Named(origin(info.kind), info.label())]).collect()
}

pub(super) fn sampled_frame(word: u64) -> RawFrame {
    let frame = Sampled::unpack(word);
    let jit = if matches!(frame, Sampled::Lua { jit: true, .. }) { " [jit]" } else { "" };
    match frame {
        Sampled::Native(address) => RawFrame::Address(address),
        Sampled::Guessed(address) => RawFrame::Guessed(address),
        _ => RawFrame::Named(FrameOrigin::Lua, frame.lua_name().unwrap_or_default() + jit),
    }
}

/// Which times of the trees are wanted.
#[derive(Clone, Copy)]
struct WantedTimes {
    run: bool,
    wait: bool,
}

/// From the marks of all requests that end in `time`.
fn marks(
    source: &source::ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
    time: Duration,
    parts: WantedTimes,
    raw: &mut RawStacks,
) -> Result<(), ReplyFailure> {
    let routes = routes(source, question.value("route"));
    let filter = RequestFilter::parse(question.value("match").unwrap_or(""))?;
    let watches: Vec<AverageWatch> = routes.iter().map(|route| watch(route, &filter)).collect();
    let until = Instant::now() + time;
    let (averages, _) = collect(source, &watches, WatchedStart::Any, time, |left| {
        let seen = watches.len().wrapping_mul(ALL).wrapping_sub(left);
        let left = until.saturating_duration_since(Instant::now());
        reply.note(&format!("{seen} requests, {:.0} s left", left.as_secs_f64().ceil()))?;
        Ok(!reply.is_stopped())
    })?;
    for (route, average) in routes.iter().zip(&averages) {
        unfold(&route.name, average, parts, question.value("phase"), raw);
    }
    Ok(())
}

/// Requests of one location, or all others.
struct RouteStacks {
    name: String,
    sites: Vec<Site>,
    others: bool,
}

/// The busiest locations, each by itself, and the rest together; or the one that is wanted.
fn routes(source: &source::ServerSource, wanted: Option<&str>) -> Vec<RouteStacks> {
    let table = SiteTable::global();
    let mut known: Vec<(u64, Site, String)> = source
        .totals()
        .into_iter()
        .map(|(site, totals)| (totals.status.map_or(0, |status| status.total()), site, table.info(site)))
        .filter(|(.., info)| info.kind == SiteKind::Request)
        .map(|(requests, site, info)| (requests, site, info.location.to_string()))
        .collect();
    if let Some(wanted) = wanted {
        known.retain(|(.., name)| is_location(wanted, name));
        // As it is called everywhere else, if it is one.
        let name = known.first().map(|(.., name)| name.clone());
        let name = name.filter(|name| known.iter().all(|(.., other)| other == name));
        let sites = known.into_iter().map(|(_, site, _)| site).collect();
        return vec![RouteStacks { name: name.unwrap_or_else(|| wanted.to_owned()), sites, others: false }];
    }
    known.sort_by_key(|(requests, ..)| std::cmp::Reverse(*requests));
    known.truncate(ROUTES);
    let all: Vec<Site> = known.iter().map(|(_, site, _)| *site).collect();
    let single =
        |(_, site, name): (u64, Site, String)| RouteStacks { name, sites: vec![site], others: false };
    let mut routes: Vec<RouteStacks> = known.into_iter().map(single).collect();
    routes.push(RouteStacks { name: "other locations".to_owned(), sites: all, others: true });
    routes
}

fn watch(route: &RouteStacks, filter: &RequestFilter) -> AverageWatch {
    let (sites, others, filter) = (route.sites.clone(), route.others, filter.clone());
    AverageWatch::new(ALL, SiteTable::global(), move |record| {
        sites.contains(&record.route) != others && filter.takes(record)
    })
}

/// The own times of every node as a stack: location, phase, modules, and what was waited for.
fn unfold(route: &str, average: &AverageTree, parts: WantedTimes, phase: Option<&str>, raw: &mut RawStacks) {
    let sites = SiteTable::global();
    let (tree, _) = average.arranged(sites);
    let mut paths: Vec<Vec<RawFrame>> = Vec::with_capacity(tree.nodes().len());
    let mut inside: Vec<bool> = Vec::with_capacity(tree.nodes().len());
    for (index, node) in tree.nodes().iter().enumerate() {
        let (path, wanted) = match index {
            0 => (vec![RawFrame::Named(FrameOrigin::Route, route.to_owned())], phase.is_none()),
            _ => {
                let info = sites.info(node.site);
                let mut path = paths[node.parent as usize].clone();
                path.push(RawFrame::Named(origin(info.kind), info.label()));
                (path, inside[node.parent as usize] || phase == Some(&*info.name))
            }
        };
        if wanted {
            push(&tree, index, &path, parts, raw);
        }
        paths.push(path);
        inside.push(wanted);
    }
}

fn push(tree: &TraceTree, index: usize, path: &[RawFrame], parts: WantedTimes, raw: &mut RawStacks) {
    let node = &tree.nodes()[index];
    let run = scale(node.self_run);
    if parts.run && run > 0 {
        raw.stacks.push((StackWeight { count: node.calls, value: run }, path.to_vec()));
    }
    if !parts.wait {
        return;
    }
    for wait in tree.waits(index as u32).filter(|wait| wait.ticks > 0) {
        let mut path = path.to_vec();
        path.push(RawFrame::Named(FrameOrigin::Wait, format!("wait {}", wait.kind.as_str())));
        raw.stacks.push((StackWeight { count: wait.calls, value: scale(wait.ticks) }, path));
    }
}

/// Phases and steps are where nginx's do; what runs inside them is a module's.
pub(super) fn origin(kind: SiteKind) -> FrameOrigin {
    match kind {
        SiteKind::Phase(phase) if usize::from(phase) < PHASES.len() => FrameOrigin::Phase,
        SiteKind::Connection(_) => FrameOrigin::Phase,
        _ => FrameOrigin::Module,
    }
}

/// Samples outside of any request.
pub(super) const NOWHERE: &str = "(no request)";
/// A collection lives on for this long if its end is late.
const SPARE: Duration = Duration::from_secs(2);
/// How often the time that is left is shown.
const TELL: Duration = Duration::from_millis(500);
/// Locations that have a line of their own.
const ROUTES: usize = 24;
/// More requests than can come; the sum of all must not overflow.
const ALL: usize = usize::MAX / 64;
/// A recording at most.
const LONGEST: Duration = Duration::from_secs(3600);
