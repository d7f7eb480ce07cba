//! What workers did over time.

use weir_rt::HeldMemory;

use super::points::{HistorySpan, PointNumber, PointRing};

/// What is read of a worker at one moment; counts and times are since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerReading {
    /// Its number, from 0.
    pub(crate) worker: u16,
    pub(crate) requests: u64,
    pub(crate) accepted: u64,
    /// Open now.
    pub(crate) connections: u64,
    /// In which its loop did not wait for events, the turn included that it is in.
    pub(crate) busy_ns: u64,
    /// On a processor, as the kernel counts; 0 where /proc can't be read.
    pub(crate) cpu_ns: u64,
    /// Ready to run and without a processor.
    pub(crate) run_queue_ns: u64,
    pub(crate) stalls: u64,
}

/// A worker in one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerPoint {
    pub(super) requests: u32,
    pub(super) accepted: u32,
    pub(super) connections: u32,
    pub(super) stalls: u32,
    /// Nanoseconds of the step.
    pub(super) busy_ns: f32,
    pub(super) cpu_ns: f32,
    pub(super) run_queue_ns: f32,
}

/// A worker's points, and what it had counted at the last one.
pub(super) struct WorkerSeries {
    pub(super) worker: u16,
    pub(super) points: [PointRing<WorkerPoint>; 2],
    /// The first point of each span that it was there for.
    pub(super) first: [Option<PointNumber>; 2],
    before: [WorkerReading; 2],
    last: [Option<PointNumber>; 2],
}

impl WorkerSeries {
    fn new(reading: &WorkerReading) -> WorkerSeries {
        WorkerSeries {
            worker: reading.worker,
            points: HistorySpan::ALL.map(PointRing::new),
            first: [None; 2],
            before: [*reading; 2],
            last: [None; 2],
        }
    }

    /// Whether it was there at that point.
    pub(super) fn has(&self, span: HistorySpan, number: PointNumber) -> bool {
        let (first, last) = (self.first[span as usize], self.last[span as usize]);
        first.is_some_and(|first| first <= number) && last.is_some_and(|last| number <= last)
    }
}

/// All workers, by their number; those that have ended are forgotten with their last point.
#[derive(Default)]
pub(super) struct WorkerTable {
    pub(super) series: Vec<WorkerSeries>,
}

impl WorkerTable {
    /// The workers, and what their points take.
    pub(super) fn held(&self) -> HeldMemory {
        let points =
            self.series.iter().flat_map(|series| &series.points).map(PointRing::held_bytes).sum::<usize>();
        HeldMemory::new(self.series.len(), points + self.series.capacity() * size_of::<WorkerSeries>())
    }

    pub(super) fn begin(&mut self, readings: &[WorkerReading]) {
        for reading in readings {
            let _ = self.of(reading);
        }
    }

    /// A point of each worker that is there.
    pub(super) fn point(&mut self, span: HistorySpan, number: PointNumber, readings: &[WorkerReading]) {
        for reading in readings {
            let Some(series) = self.of(reading) else { continue };
            let at = span as usize;
            let before = std::mem::replace(&mut series.before[at], *reading);
            // One that was away for a while has no points of that time.
            if series.last[at].is_none_or(|last| last.0 + 1 != number.0) {
                series.first[at] = Some(number);
            }
            series.last[at] = Some(number);
            series.points[at].put(number, between(&before, reading));
        }
        let forgotten = |last: PointNumber| last.0 + (span.points() as u64) <= number.0;
        self.series.retain(|series| series.last[span as usize].is_none_or(|last| !forgotten(last)));
    }

    /// The series of a worker, made at its first reading as long as there is a place.
    fn of(&mut self, reading: &WorkerReading) -> Option<&mut WorkerSeries> {
        let found = self.series.iter().position(|series| series.worker == reading.worker);
        if found.is_none() && self.series.len() < super::MOST {
            self.series.push(WorkerSeries::new(reading));
            self.series.sort_by_key(|series| series.worker);
            return self.series.iter_mut().find(|series| series.worker == reading.worker);
        }
        self.series.get_mut(found?)
    }
}

fn between(before: &WorkerReading, now: &WorkerReading) -> WorkerPoint {
    let count = |of: fn(&WorkerReading) -> u64| of(now).saturating_sub(of(before));
    WorkerPoint {
        requests: clamp(count(|worker| worker.requests)),
        accepted: clamp(count(|worker| worker.accepted)),
        connections: clamp(now.connections),
        stalls: clamp(count(|worker| worker.stalls)),
        busy_ns: count(|worker| worker.busy_ns) as f32,
        cpu_ns: count(|worker| worker.cpu_ns) as f32,
        run_queue_ns: count(|worker| worker.run_queue_ns) as f32,
    }
}

/// As many as a point can hold.
pub(super) fn clamp(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
