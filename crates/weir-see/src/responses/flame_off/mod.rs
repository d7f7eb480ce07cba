//! `flame off`: where time goes in which nothing runs. Where the kernel lets us record switches, each stretch has its
//! stack ([`exact`]); else calls that block a worker and want of a processor have the stacks that the watchdog took
//! ([`sampled`]). Requests that let others run meanwhile are shown by what they wait for, as in `flame wait`.

mod exact;
mod sampled;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use weir_server::housekeeping;
use weir_trace::{Site, SiteTable};

use super::reply::{ReplyFailure, ReplySink};
use super::{blocked, flame, reqs};
use crate::control::protocol::ControlQuestion;
use crate::filter::is_location;
use crate::raw_stacks::{RawFrame, RawStacks, code_maps};
use crate::source::ServerSource;
use crate::stacks::{FrameOrigin, StackWeight};

/// A recording of `time`; with `samples` in any case by those.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
    time: Duration,
) -> Result<RawStacks, ReplyFailure> {
    if question.value("match").is_some_and(|filter| !filter.is_empty()) {
        let why = "of calls that block a worker the location and the phase are known, not the request: --route and --phase choose";
        return Err(ReplyFailure::Wrong(why.to_owned()));
    }
    let mut raw = flame::begun("off");
    raw.maps = code_maps();
    let began = Instant::now();
    let switches =
        if question.has("samples") { None } else { Some(housekeeping::handle().record_switches()) };
    let note = match &switches {
        Some(Err(error)) => Some(format!("by samples, as the kernel records no switches for us: {error}")),
        _ => None,
    };
    if let Some(note) = note {
        reply.note(&note)?;
    }
    let waits = || flame::waits(source, question, reply, time, &mut raw);
    let stacks = match switches {
        Some(Ok(recording)) => exact::record(recording, waits)?,
        _ => sampled::record(source, waits)?,
    };
    stacks.write(&mut raw, &Chosen { route: question.value("route"), phase: question.value("phase") });
    raw.duration_ns = began.elapsed().as_nanos() as u64;
    Ok(raw)
}

/// What `gather` has when `meanwhile` is over, which it hears of by the flag.
fn beside<T: Send>(
    meanwhile: impl FnOnce() -> Result<(), ReplyFailure>,
    gather: impl FnOnce(&AtomicBool) -> T + Send,
) -> Result<T, ReplyFailure> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let gathering = scope.spawn(|| gather(&done));
        let result = meanwhile();
        done.store(true, Relaxed);
        let all = gathering.join().map_err(|_| ReplyFailure::Wrong("the recording ended early".to_owned()));
        result.and(all)
    })
}

/// Which locations and phases are wanted.
struct Chosen<'q> {
    route: Option<&'q str>,
    phase: Option<&'q str>,
}

impl Chosen<'_> {
    fn takes(&self, location: &str, site: Site) -> bool {
        let is_phase = |wanted: &str| {
            let info = SiteTable::global().info(site);
            !site.is_none() && info.phase.unwrap_or(&info.name) == wanted
        };
        self.route.is_none_or(|route| is_location(route, location)) && self.phase.is_none_or(is_phase)
    }
}

/// A thread that does not run: where that is.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OffPlace {
    route: Site,
    site: Site,
    /// The number of the system call in which it sleeps, if that is known.
    call: Option<u32>,
    /// Innermost first.
    frames: Vec<u64>,
}

impl OffPlace {
    /// The location of the request, or that of the place in which it was; `-` of none.
    fn location(&self) -> String {
        match reqs::location(self.route).as_str() {
            "-" => reqs::location(self.site),
            location => location.to_owned(),
        }
    }
}

/// How long it did not run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OffTimes {
    times: u64,
    asleep_ns: u64,
    no_core_ns: u64,
}

/// Equal places are one.
#[derive(Default)]
struct OffStacks(HashMap<OffPlace, OffTimes>);

impl OffStacks {
    fn add(&mut self, mut place: OffPlace, off: OffTimes) {
        if self.0.len() >= MOST {
            place.frames.clear();
        }
        let sum = self.0.entry(place).or_default();
        sum.times += off.times;
        sum.asleep_ns += off.asleep_ns;
        sum.no_core_ns += off.no_core_ns;
    }

    fn write(self, raw: &mut RawStacks, chosen: &Chosen<'_>) {
        for (place, off) in self.0 {
            let location = place.location();
            if !chosen.takes(&location, place.site) {
                continue;
            }
            let location = if location == "-" { flame::NOWHERE.to_owned() } else { location };
            let mut stack = vec![RawFrame::Named(FrameOrigin::Route, location)];
            stack.extend(flame::module(place.site));
            stack.extend(place.frames.iter().rev().map(|word| flame::sampled_frame(*word)));
            let asleep = match place.call {
                Some(number) => format!("asleep in {}", blocked::syscall(number)),
                None => "asleep".to_owned(),
            };
            for (what, value) in [(asleep, off.asleep_ns), ("no processor".to_owned(), off.no_core_ns)] {
                if value > 0 {
                    let stack = [&stack[..], &[RawFrame::Named(FrameOrigin::Wait, what)]].concat();
                    raw.stacks.push((StackWeight { count: off.times, value }, stack));
                }
            }
        }
    }
}

/// Different places at most; of what comes after them the stack is not shown.
const MOST: usize = 32_768;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_places_are_one_and_each_part_has_its_frame() {
        let place = |frames: &[u64], call| OffPlace {
            route: Site::NONE,
            site: Site::NONE,
            call,
            frames: frames.to_vec(),
        };
        let off = |asleep_ns, no_core_ns| OffTimes { times: 1, asleep_ns, no_core_ns };
        let mut all = OffStacks::default();
        for (place, off) in [
            (place(&[1, 2], None), off(10, 1)),
            (place(&[1, 2], None), off(20, 0)),
            (place(&[1, 2], Some(61)), off(5, 0)),
            (place(&[3], None), off(0, 0)),
        ] {
            all.add(place, off);
        }
        let mut raw = RawStacks::default();
        all.write(&mut raw, &Chosen { route: None, phase: None });
        let innermost = |stack: &[RawFrame]| match stack.last() {
            Some(RawFrame::Named(_, name)) => name.clone(),
            other => panic!("{other:?}"),
        };
        let mut written: Vec<(u64, u64, String)> =
            raw.stacks.iter().map(|(weight, stack)| (weight.count, weight.value, innermost(stack))).collect();
        written.sort();
        let expected = [(1, 5, "asleep in wait4"), (2, 1, "no processor"), (2, 30, "asleep")];
        assert_eq!(written, expected.map(|(count, value, name)| (count, value, name.to_owned())));
    }

    #[test]
    fn only_what_is_chosen_is_written() {
        let site = SiteTable::global().intern(weir_trace::SiteKind::Handler(9), "/off", "content");
        let takes = |route, phase| Chosen { route, phase }.takes("/off", site);
        assert!(takes(None, None) && takes(Some("/off"), None) && !takes(Some("/other"), None));
        let phase = SiteTable::global().info(site).phase.expect("a handler has one");
        assert!(takes(None, Some(phase)) && !takes(None, Some("rewrite")));
        assert!(!Chosen { route: None, phase: Some("content") }.takes("-", Site::NONE));
    }
}
