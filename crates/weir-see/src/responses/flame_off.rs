//! `flame off`: where time goes in which nothing runs. Calls that block a worker and want of a processor have the stacks
//! that the watchdog took; what was too short for that is shown by its phase and module. Requests that let others run
//! meanwhile are shown by what they wait for, as in `flame wait`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use weir_rt::clock;
use weir_server::housekeeping;
use weir_trace::{LoopStall, Site, SiteTable};

use super::reply::{ReplyFailure, ReplySink};
use super::{blocked, flame};
use crate::control::protocol::ControlQuestion;
use crate::filter::is_location;
use crate::raw_stacks::{RawFrame, RawStacks, code_maps};
use crate::source::{ServerSource, scale};
use crate::stacks::{FrameOrigin, StackWeight};

/// A recording of `time`.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
    time: Duration,
) -> Result<RawStacks, ReplyFailure> {
    let mut raw = flame::begun("off");
    raw.maps = code_maps();
    let (began, before, done) = (Instant::now(), lost(source), AtomicBool::new(false));
    let since = clock::ticks();
    let (waited, stalls) = thread::scope(|scope| {
        let gathering = scope.spawn(|| gather(since, &done));
        let waited = flame::waits(source, question, reply, time, &mut raw);
        done.store(true, Relaxed);
        (waited, gathering.join().unwrap_or_default())
    });
    waited?;
    let wanted = |location: &str| question.value("route").is_none_or(|route| is_location(route, location));
    let mut seen: BTreeMap<Site, (u64, u64)> = BTreeMap::new();
    for stall in stalls.values() {
        let known = seen.entry(stall.sample.site).or_default();
        *known = (known.0 + stall.asleep, known.1 + stall.no_core);
        let location = blocked::location(stall);
        if wanted(&location) {
            push(&mut raw, stall, &location);
        }
    }
    rest(&mut raw, &before, &lost(source), &seen, wanted);
    raw.duration_ns = began.elapsed().as_nanos() as u64;
    Ok(raw)
}

/// Ticks asleep and without a core, by site.
fn lost(source: &ServerSource) -> BTreeMap<Site, (u64, u64)> {
    let lost = |(site, totals): (Site, weir_trace::SiteTotals)| {
        let (asleep, no_core) = (totals.counts.asleep, totals.counts.no_core);
        (asleep + no_core > 0).then_some((site, (asleep, no_core)))
    };
    source.totals().into_iter().filter_map(lost).collect()
}

/// The stalls that began after `since` and are over, until `done`: only the last ones are there at any moment.
fn gather(since: u64, done: &AtomicBool) -> HashMap<(u16, u64), LoopStall> {
    let mut stalls = HashMap::new();
    loop {
        let last = done.load(Relaxed);
        for one in housekeeping::handle().stalls() {
            if one.stall.start >= since && !one.ongoing {
                stalls.insert((one.worker, one.stall.start), one.stall);
            }
        }
        if last {
            return stalls;
        }
        thread::sleep(EVERY);
    }
}

/// A stall's two parts, with its stack.
fn push(raw: &mut RawStacks, stall: &LoopStall, location: &str) {
    let location = if location == "-" { flame::NOWHERE } else { location };
    let mut frames = vec![RawFrame::Named(FrameOrigin::Route, location.to_owned())];
    frames.extend(flame::module(stall.sample.site));
    frames.extend(stall.sample.frames.iter().rev().map(|word| flame::sampled_frame(*word)));
    let call = stall
        .syscall
        .map_or_else(|| "asleep".to_owned(), |number| format!("asleep in {}", blocked::syscall(number)));
    add(raw, &frames, call, stall.asleep);
    add(raw, &frames, NO_CORE.to_owned(), stall.no_core);
}

/// What sites lost beside the stalls that are known.
fn rest(
    raw: &mut RawStacks,
    before: &BTreeMap<Site, (u64, u64)>,
    after: &BTreeMap<Site, (u64, u64)>,
    seen: &BTreeMap<Site, (u64, u64)>,
    wanted: impl Fn(&str) -> bool,
) {
    for (site, now) in after {
        let was = before.get(site).copied().unwrap_or_default();
        let known = seen.get(site).copied().unwrap_or_default();
        let info = SiteTable::global().info(*site);
        if !wanted(&info.location) {
            continue;
        }
        let mut frames = vec![RawFrame::Named(FrameOrigin::Route, info.location.to_string())];
        frames.extend(flame::module(*site));
        add(raw, &frames, "asleep".to_owned(), (now.0 - was.0).saturating_sub(known.0));
        add(raw, &frames, NO_CORE.to_owned(), (now.1 - was.1).saturating_sub(known.1));
    }
}

fn add(raw: &mut RawStacks, frames: &[RawFrame], what: String, ticks: u64) {
    if ticks > 0 {
        let mut frames = frames.to_vec();
        frames.push(RawFrame::Named(FrameOrigin::Wait, what));
        raw.stacks.push((StackWeight { count: 1, value: scale(ticks) }, frames));
    }
}

const NO_CORE: &str = "no processor";
/// How often stalls are looked at: the list of the last ones must not overflow in between.
const EVERY: Duration = Duration::from_millis(50);
