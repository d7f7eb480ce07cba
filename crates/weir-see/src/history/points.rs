//! Time in steps, and rings of points that share it.

use std::time::Duration;

/// How far back, and how finely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HistorySpan {
    /// A point a second.
    Minute,
    /// A point each half minute.
    Hour,
}

impl HistorySpan {
    pub(crate) const ALL: [HistorySpan; 2] = [HistorySpan::Minute, HistorySpan::Hour];

    /// The span of that name.
    pub(crate) fn of(name: &str) -> Result<HistorySpan, String> {
        match name {
            "minute" => Ok(HistorySpan::Minute),
            "hour" => Ok(HistorySpan::Hour),
            _ => Err(format!("\"{name}\" is no span: minute and hour are")),
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            HistorySpan::Minute => "minute",
            HistorySpan::Hour => "hour",
        }
    }

    /// The time between two points.
    pub(crate) const fn step(self) -> Duration {
        match self {
            HistorySpan::Minute => Duration::from_secs(1),
            HistorySpan::Hour => Duration::from_secs(30),
        }
    }

    /// How many points are remembered.
    pub(crate) const fn points(self) -> usize {
        match self {
            HistorySpan::Minute => 60,
            HistorySpan::Hour => 120,
        }
    }
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TickMoment {
    /// Of a clock that never jumps, in nanoseconds.
    pub(crate) ns: u64,
    /// Milliseconds since 1970.
    pub(crate) unix_ms: u64,
}

/// The number of a point: how many of its span were before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PointNumber(pub(crate) u64);

/// When the points of a span were made.
pub(super) struct SpanClock {
    span: HistorySpan,
    last: Option<TickMoment>,
    made: u64,
    /// Of each point its end, and how long it is: a late thread makes long ones.
    times: PointRing<PointTime>,
}

/// The time of a point.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PointTime {
    /// Its end, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// Nanoseconds from the point before.
    pub(super) length_ns: u64,
}

impl SpanClock {
    pub(super) fn new(span: HistorySpan) -> SpanClock {
        SpanClock { span, last: None, made: 0, times: PointRing::new(span) }
    }

    /// Where time begins.
    pub(super) fn begin(&mut self, now: TickMoment) {
        self.last = Some(now);
    }

    /// The number of the point that ends now; `None` where time begins, or where the step is not over.
    pub(super) fn tick(&mut self, now: TickMoment) -> Option<PointNumber> {
        let Some(last) = self.last else {
            self.begin(now);
            return None;
        };
        let length_ns = now.ns.saturating_sub(last.ns);
        // The caller comes once a second, a little early or late.
        if length_ns + EARLY < self.span.step().as_nanos() as u64 {
            return None;
        }
        self.last = Some(now);
        let number = PointNumber(self.made);
        self.made += 1;
        self.times.put(number, PointTime { unix_ms: now.unix_ms, length_ns });
        Some(number)
    }

    /// The points that there are, oldest first, that ended after `since` (milliseconds since 1970).
    pub(super) fn points(&self, since: u64) -> impl Iterator<Item = (PointNumber, PointTime)> + Clone + '_ {
        let first = self.made.saturating_sub(self.span.points() as u64);
        (first..self.made)
            .map(|number| (PointNumber(number), *self.times.at(PointNumber(number))))
            .filter(move |(_, time)| time.unix_ms > since)
    }
}

/// How much a step may be shorter, in nanoseconds.
const EARLY: u64 = 500_000_000;

/// The last points of a span: a new one takes the place of the oldest.
#[derive(Clone)]
pub(super) struct PointRing<P> {
    points: Box<[P]>,
}

impl<P: Clone + Default> PointRing<P> {
    pub(super) fn new(span: HistorySpan) -> PointRing<P> {
        PointRing { points: vec![P::default(); span.points()].into() }
    }

    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        size_of_val(&*self.points)
    }

    pub(super) fn put(&mut self, number: PointNumber, point: P) {
        let at = self.place(number);
        self.points[at] = point;
    }

    pub(super) fn at(&self, number: PointNumber) -> &P {
        &self.points[self.place(number)]
    }

    fn place(&self, number: PointNumber) -> usize {
        (number.0 % self.points.len() as u64) as usize
    }
}
