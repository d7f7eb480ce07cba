//! Which events of the processor and the kernel happen where, during a recording: counters of each worker's thread, which the thread
//! itself charges to the places it is at ([`weir_rt::sampler::CountedPlace`]).

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use weir_rt::sampler::{self, COUNTER_NUMBER, COUNTERS, CountedPlace, SitePlace, ThreadProbe};
use weir_sys::counters::{CountedModes, CounterKind, CounterLimits, CounterReading, ThreadCounter};

use super::{HousekeepingHandle, HousekeepingShared};

/// Whether a kind of event can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterState {
    /// It is, in these modes.
    Counted(CountedModes),
    /// Why it is not, and what to do.
    Refused(String),
}

/// What was counted.
#[derive(Clone, Debug)]
pub struct CountedEvents {
    /// By the kind's number, what of it is known.
    pub states: [CounterState; COUNTERS],
    /// Where events happened, of all workers.
    pub places: Vec<CountedPlace>,
    /// By the kind's number, all events; those too whose place is not known.
    pub totals: [u64; COUNTERS],
}

/// The counters of all workers, until dropped.
pub struct CounterRecording {
    shared: &'static HousekeepingShared,
    states: [CounterState; COUNTERS],
    threads: Vec<CountedThread>,
    sums: EventSums,
    _one: OneRecording,
}

/// A worker's counters, by their kinds' numbers.
struct CountedThread {
    probe: &'static ThreadProbe,
    serial: u64,
    counters: [Option<ThreadCounter>; COUNTERS],
}

/// Events added up.
#[derive(Default)]
struct EventSums {
    places: HashMap<(SitePlace, bool), [u64; COUNTERS]>,
    totals: [u64; COUNTERS],
}

impl HousekeepingHandle {
    /// Counts the events of all workers from now on.
    ///
    /// # Errors
    /// Why none can be counted; that there is another recording.
    pub fn count_events(&self) -> Result<CounterRecording, String> {
        let one = OneRecording::begin().ok_or("another `weir perf` counts at this time")?;
        let states = self.counters();
        if let [CounterState::Refused(why), ..] = &states
            && states.iter().all(|state| matches!(state, CounterState::Refused(_)))
        {
            return Err(format!("nothing can be counted: {why}"));
        }
        let mut recording = CounterRecording {
            shared: self.shared,
            states,
            threads: Vec::new(),
            sums: EventSums::default(),
            _one: one,
        };
        recording.keep_up().map_err(|error| format!("nothing can be counted: {error}"))?;
        Ok(recording)
    }

    /// By the kind's number, whether it can be counted here. Without a worker that of the calling thread.
    pub fn counters(&self) -> [CounterState; COUNTERS] {
        let tid = self.shared.entries().first().map_or(0, |entry| entry.watched.probe.tid());
        let limits = CounterLimits::here(weir_rt::process::is_filtered());
        CounterKind::ALL.map(|kind| match ThreadCounter::new(tid, kind, COUNTER_NUMBER) {
            Ok(counter) => CounterState::Counted(counter.modes()),
            Err(error) => CounterState::Refused(limits.refusal(kind, &error)),
        })
    }
}

impl CounterRecording {
    /// Counts in workers too that have come since, as reloads make them.
    ///
    /// # Errors
    /// A worker can't be counted as the others are, for want of descriptors, perhaps: sums without it would be wrong.
    pub fn keep_up(&mut self) -> io::Result<()> {
        let gone = |thread: &CountedThread| thread.probe.serial() != thread.serial || thread.probe.tid() == 0;
        for ended in self.threads.extract_if(.., |thread| gone(thread)).collect::<Vec<_>>() {
            self.sums.end(ended);
        }
        for entry in self.shared.entries().iter() {
            let probe = entry.watched.probe;
            let is_counted = self.threads.iter().any(|thread| std::ptr::eq(thread.probe, probe));
            if !is_counted && probe.tid() != 0 {
                match CountedThread::begin(probe, &self.states) {
                    Err(error) if error.raw_os_error() == Some(ESRCH) => {} // it has ended meanwhile
                    begun => self.threads.push(begun?),
                }
            }
        }
        Ok(())
    }

    /// Ends it: what was counted.
    #[must_use]
    pub fn finish(mut self) -> CountedEvents {
        self.threads.drain(..).for_each(|thread| self.sums.end(thread));
        let sums = std::mem::take(&mut self.sums);
        let place = |((place, parked), counts)| CountedPlace { place, parked, counts };
        let places = sums.places.into_iter().map(place).collect();
        CountedEvents { states: self.states.clone(), places, totals: sums.totals }
    }
}

impl CountedThread {
    /// Counts what `states` say can be counted.
    fn begin(probe: &'static ThreadProbe, states: &[CounterState; COUNTERS]) -> io::Result<CountedThread> {
        sampler::prepare_counters()?;
        let (serial, tid) = (probe.serial(), probe.tid());
        let mut counters = [const { None }; COUNTERS];
        for kind in CounterKind::ALL {
            if let CounterState::Counted(_) = states[kind as usize] {
                counters[kind as usize] = Some(ThreadCounter::new(tid, kind, COUNTER_NUMBER + kind as u64)?);
            }
        }
        probe.count(std::array::from_fn(|n| counters[n].as_ref().map(ThreadCounter::fd)));
        let thread = CountedThread { probe, serial, counters };
        thread.counters.iter().flatten().try_for_each(ThreadCounter::enable)?;
        Ok(thread)
    }
}

impl Drop for CountedThread {
    /// The descriptors close when the handler does not use them any more.
    fn drop(&mut self) {
        for counter in self.counters.iter().flatten() {
            // A thread that has ended has nothing to disable.
            let _ended = counter.disable();
        }
        self.probe.stop_counting();
    }
}

impl EventSums {
    /// Adds what a thread counted until now.
    fn end(&mut self, thread: CountedThread) {
        thread.counters.iter().flatten().for_each(|counter| {
            let _ended = counter.disable();
        });
        thread.probe.stop_counting();
        let read = |counter: &Option<ThreadCounter>| counter.as_ref()?.read().ok();
        let readings = thread.counters.each_ref().map(|counter| read(counter).unwrap_or_default());
        let mut places = Vec::new();
        thread.probe.counted(|place| places.push(place));
        self.add(&readings, &places);
    }

    /// Adds what the counters of a thread say, and their parts by place.
    fn add(&mut self, readings: &[CounterReading; COUNTERS], places: &[CountedPlace]) {
        for (total, reading) in self.totals.iter_mut().zip(readings) {
            *total += reading.scaled(reading.count);
        }
        for CountedPlace { place, parked, counts } in places {
            let sums = self.places.entry((*place, *parked)).or_default();
            for ((sum, count), reading) in sums.iter_mut().zip(counts).zip(readings) {
                *sum += reading.scaled(*count);
            }
        }
    }
}

/// There is one at a time: a thread charges what it counts once.
struct OneRecording;

/// The thread has ended.
const ESRCH: i32 = 3;

static RECORDING: AtomicBool = AtomicBool::new(false);

impl OneRecording {
    fn begin() -> Option<OneRecording> {
        (!RECORDING.swap(true, SeqCst)).then_some(OneRecording)
    }
}

impl Drop for OneRecording {
    fn drop(&mut self) {
        RECORDING.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up_and_counters_that_took_turns_are_scaled() {
        let reading = |count, running_ns| CounterReading { count, enabled_ns: 1_000, running_ns };
        let place = |site, parked, count| CountedPlace {
            place: SitePlace { site, route: 3 },
            parked,
            counts: [count, 10, 0, 0, 0, 0, 0],
        };
        let mut sums = EventSums::default();
        let mut readings = [CounterReading::default(); COUNTERS];
        (readings[0], readings[1]) = (reading(100, 500), reading(30, 1_000));
        sums.add(&readings, &[place(1, false, 60), place(1, true, 30)]);
        (readings[0], readings[1]) = (reading(50, 1_000), reading(10, 1_000));
        sums.add(&readings, &[place(1, false, 50)]);
        let counts = |parked| sums.places[&(SitePlace { site: 1, route: 3 }, parked)];
        assert_eq!((&sums.totals[..2], sums.places.len()), (&[250, 40][..], 2));
        assert_eq!((&counts(false)[..2], &counts(true)[..2]), (&[170, 20][..], &[60, 10][..]));
    }
}
