//! `perf`: which events of the processor and the kernel happen where: cycles, instructions, misses, page faults and context switches by
//! location, phase and module.
//!
//! Counters of each worker's thread interrupt it each time they have counted so many events, and what was counted belongs to the place
//! that the thread is at then, as its marks say ([`weir_rt::sampler::CountedPlace`]). The other way would be to read the counters at
//! each mark: exact for all kinds, but with a system call a mark, which is more than what runs between two of them, and a test of
//! a flag in each request where none looks. So a request's path knows nothing of this. Page faults and switches are exact; of the
//! others the sum is, and their shares are samples, a thousand a second.

mod report;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weir_server::housekeeping::{self, CountedEvents, CounterRecording, CounterState};
use weir_sys::counters::{CountedModes, CounterKind};
use weir_trace::{SiteKind, SiteTable};

use super::reply::{ReplyFailure, ReplySink, pause};
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::ServerSource;

use report::{PerfReport, ThreadEvents};

/// A table of the time `every`.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let time = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("5s"))?).min(LONGEST);
    let before = PerfMoment::take(source);
    let recording = housekeeping::handle().count_events()?;
    let events = recorded(recording, reply, time)?;
    let report = PerfReport {
        events,
        window: before.at.elapsed(),
        requests: before.requests_until(&PerfMoment::take(source)),
        threads: before.threads.until(&threads()),
        location: question.value("location").map(str::to_owned),
    };
    Ok(reply.out(report.write(question.has("json")).as_bytes())?)
}

/// Who counts events: the kernel, or a recording of what it said.
trait EventReader {
    /// Takes up workers that have come since.
    fn keep_up(&mut self) -> Result<(), String>;
    /// What was counted.
    fn finish(self) -> CountedEvents;
}

impl EventReader for CounterRecording {
    fn keep_up(&mut self) -> Result<(), String> {
        CounterRecording::keep_up(self).map_err(|error| format!("counting ended: {error}"))
    }

    fn finish(self) -> CountedEvents {
        CounterRecording::finish(self)
    }
}

/// What `reader` counts in `time`, or until the client has enough.
fn recorded(
    mut reader: impl EventReader,
    reply: &mut dyn ReplySink,
    time: Duration,
) -> Result<CountedEvents, ReplyFailure> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        reply.note(&format!("{:.0} s left", left.as_secs_f64().ceil()))?;
        if left.is_zero() || !pause(reply, left.min(STEP)) {
            return Ok(reader.finish());
        }
        reader.keep_up()?;
    }
}

/// What is known besides of a moment.
struct PerfMoment {
    at: Instant,
    /// By location, those that have ended.
    requests: HashMap<String, u64>,
    threads: ThreadEvents,
}

impl PerfMoment {
    fn take(source: &ServerSource) -> PerfMoment {
        let mut requests = HashMap::new();
        for (site, totals) in source.totals() {
            let info = SiteTable::global().info(site);
            if info.kind == SiteKind::Request {
                *requests.entry(info.location.to_string()).or_default() +=
                    totals.status.map_or(0, |status| status.total());
            }
        }
        PerfMoment { at: Instant::now(), requests, threads: threads() }
    }

    fn requests_until(&self, after: &PerfMoment) -> HashMap<String, u64> {
        let since = |(location, count): (&String, &u64)| {
            (location.clone(), count.saturating_sub(self.requests.get(location).copied().unwrap_or(0)))
        };
        after.requests.iter().map(since).collect()
    }
}

/// What the kernel says of all workers, whether or not we may count.
fn threads() -> ThreadEvents {
    let mut sum = ThreadEvents::default();
    for thread in housekeeping::handle().workers().iter().filter_map(|view| view.thread) {
        sum.faults += thread.faults_minor + thread.faults_major;
        sum.waited += thread.switches_voluntary;
        sum.preempted += thread.switches_forced;
    }
    sum
}

/// A line for each kind of events, for `weir doctor`: whether it can be counted, or why not.
pub(super) fn facts(states: &[CounterState]) -> String {
    let line = |(kind, state): (CounterKind, &CounterState)| {
        let says = match state {
            CounterState::Counted(CountedModes::All) => "all".to_owned(),
            CounterState::Counted(CountedModes::User) => "user".to_owned(),
            CounterState::Refused(why) => format!("refused: {why}"),
        };
        format!("counter {}: {says}\n", kind.name())
    };
    CounterKind::ALL.into_iter().zip(states).map(line).collect()
}

/// A recording at most.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often is looked for new workers, and the time shown that is left.
const STEP: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A client that has enough after so many notes.
    struct Impatient(u32);

    impl ReplySink for Impatient {
        fn out(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn note(&mut self, _: &str) -> io::Result<()> {
            self.0 = self.0.saturating_sub(1);
            Ok(())
        }

        fn is_stopped(&mut self) -> bool {
            self.0 == 0
        }
    }

    struct Recorded {
        events: CountedEvents,
        fails: bool,
    }

    impl EventReader for Recorded {
        fn keep_up(&mut self) -> Result<(), String> {
            if self.fails { Err("counting ended: no such process".to_owned()) } else { Ok(()) }
        }

        fn finish(self) -> CountedEvents {
            self.events
        }
    }

    fn reader(fails: bool) -> Recorded {
        Recorded { events: report::tests::recorded_events(), fails }
    }

    #[test]
    fn who_has_enough_gets_what_there_is() {
        let events = recorded(reader(true), &mut Impatient(1), Duration::from_secs(3600)).expect("stopped");
        assert_eq!(events.totals, report::tests::recorded_events().totals);
        let events = recorded(reader(true), &mut Impatient(9), Duration::ZERO).expect("no time");
        assert_eq!(events.places.len(), report::tests::recorded_events().places.len());
    }

    #[test]
    fn what_ends_the_counting_is_said() {
        match recorded(reader(true), &mut Impatient(9), Duration::from_millis(800)) {
            Err(ReplyFailure::Wrong(why)) => assert_eq!(why, "counting ended: no such process"),
            other => panic!("{other:?}"),
        }
        assert!(recorded(reader(false), &mut Impatient(9), Duration::from_millis(600)).is_ok());
    }

    #[test]
    fn requests_are_those_of_the_window() {
        let moment = |requests: &[(&str, u64)]| PerfMoment {
            at: Instant::now(),
            requests: requests.iter().map(|(location, count)| ((*location).to_owned(), *count)).collect(),
            threads: ThreadEvents::default(),
        };
        let since = moment(&[("/", 5), ("/gone", 9)]).requests_until(&moment(&[
            ("/", 12),
            ("/new", 3),
            ("/gone", 0),
        ]));
        assert_eq!((since["/"], since["/new"], since["/gone"]), (7, 3, 0));
    }
}
