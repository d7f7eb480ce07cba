//! The numbers of requests of one shape, stored separately until there are many.
//!
//! A histogram is three cache lines and some thirty instructions a value, and a request has a value for each of its
//! sites. Requests of one shape have the same sites in the same order: their values are written into rows, and when there
//! is no room for another one, or a reader asks, each column of those that took a stamp is counted at once. A
//! value then costs half, and the histogram's lines are touched once for all requests.

use std::cell::Cell;
use std::sync::Arc;

use crate::event::{EventKind, TraceEvent};
use crate::live_counts::{LiveCounts, LiveSite, MANY};
use crate::record::RequestRecord;

/// The values of requests of one shape: a row of the values of its events for each of them, and [`BatchTotals`].
#[derive(Debug, Default)]
pub(crate) struct ShapeBatch {
    /// None until the shape has proved to be frequent.
    rows: Vec<u32>,
    /// Values in a row.
    width: usize,
    /// None as long as there are no rows.
    totals: Option<Box<[[u32; MANY]; TOTALS]>>,
    /// The events that have a value.
    stamped: Vec<u16>,
    /// Requests in there.
    len: usize,
    /// Requests that were counted alone before.
    alone: usize,
    sums: Vec<ColumnSum>,
    /// The columns of all sums, one sum's after the other's.
    columns: Vec<u16>,
    /// Sites that were called and took no stamp, and how often.
    passes: Vec<(Arc<LiveSite>, u64)>,
    status: u16,
    route: Option<Arc<LiveSite>>,
}

/// Where the sum of some columns is counted.
#[derive(Debug)]
struct ColumnSum {
    live: Arc<LiveSite>,
    to: CountTarget,
    /// Where its columns end.
    end: usize,
}

/// As what values are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountTarget {
    /// A site's run, in this many calls.
    Run(u64),
    /// A site's wait, of those that waited.
    Wait,
    /// A route's whole time, of those that took some.
    Total,
    /// What the kernel did for requests of a route.
    Kernel,
    /// A site's bytes, or errors.
    Remark(EventKind),
}

/// The values of a request that are not in its events: its whole time, its run, its wait, what the
/// kernel did for it, its bytes in and out.
type BatchTotals = [u64; TOTALS];

impl ShapeBatch {
    /// For requests of this many events that ended alike, with that route and status, and whose events have values
    /// where `stamped` says.
    pub(crate) fn new(
        stamped: Vec<u16>,
        events: usize,
        record: &RequestRecord,
        shared: &LiveCounts,
    ) -> ShapeBatch {
        let route = (!record.route.is_none()).then(|| shared.site(record.route).clone());
        let mut batch =
            ShapeBatch { stamped, width: events, status: record.status, route, ..ShapeBatch::default() };
        if let Some(live) = batch.route.clone() {
            let kinds = [
                CountTarget::Total,
                CountTarget::Run(1),
                CountTarget::Wait,
                CountTarget::Kernel,
                CountTarget::Remark(EventKind::BytesIn),
                CountTarget::Remark(EventKind::BytesOut),
            ];
            for (at, to) in kinds.into_iter().enumerate() {
                batch.columns.push(at as u16);
                batch.sums.push(ColumnSum { live: live.clone(), to, end: batch.columns.len() });
            }
        }
        batch
    }

    /// The sum of the values of these events is counted there; those without a value are skipped.
    pub(crate) fn sum(&mut self, live: &Arc<LiveSite>, to: CountTarget, events: impl Iterator<Item = u16>) {
        let before = self.columns.len();
        let columns = events.filter(|event| self.stamped.binary_search(event).is_ok());
        self.columns.extend(columns.map(|event| event + TOTALS as u16));
        match to {
            _ if self.columns.len() > before => {
                self.sums.push(ColumnSum { live: live.clone(), to, end: self.columns.len() });
            }
            CountTarget::Run(calls) => self.passes.push((live.clone(), calls)),
            _ => {}
        }
    }

    /// Adds a request if its events are of the kinds and sites that `keys` says and no value is too large.
    #[inline]
    pub(crate) fn add(
        &mut self,
        keys: &[u64],
        events: &[impl EventWord],
        record: &RequestRecord,
        wait: u64,
        shared: &LiveCounts,
    ) -> bool {
        if keys.len() != events.len() {
            return false;
        }
        if self.len == MANY {
            self.fold(shared);
        }
        let Some(columns) = &mut self.totals else { return false };
        let totals: BatchTotals =
            [record.total, record.run, wait, record.kernel, record.bytes_in, record.bytes_out];
        let at = self.len % MANY;
        for (column, total) in columns.iter_mut().zip(&totals) {
            column[at] = *total as u32;
        }
        let Some(row) = self.rows.get_mut(at * self.width..(at + 1) * self.width) else { return false };
        let any = totals.iter().fold(copy(keys, events, row), |any, total| any | total);
        if any > LARGEST {
            return false;
        }
        self.len += 1;
        true
    }

    /// A request of this shape was counted alone: when there were a few, they are put off.
    pub(crate) fn missed(&mut self) {
        self.alone += 1;
        if self.alone == FEW {
            self.rows.resize(MANY * self.width, 0);
            self.totals = Some(Box::new([[0; MANY]; TOTALS]));
        }
    }

    /// True if something is not counted yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.len > 0
    }

    /// Counts what is there.
    #[inline(never)]
    pub(crate) fn fold(&mut self, shared: &LiveCounts) {
        let len = std::mem::take(&mut self.len);
        if len == 0 {
            return;
        }
        let (mut begin, mut added) = (0, [0; MANY]);
        for ColumnSum { live, to, end } in &self.sums {
            let values = &self.added(&self.columns[begin..*end], &mut added)[..len];
            begin = *end;
            match to {
                CountTarget::Run(calls) => live.record_runs(values, *calls),
                CountTarget::Wait => live.record_waits(values),
                CountTarget::Total => live.record_totals(values),
                CountTarget::Kernel => live.kernel(values.iter().map(|&value| u64::from(value)).sum()),
                CountTarget::Remark(EventKind::Error) => live.remark(EventKind::Error, len as u64),
                CountTarget::Remark(kind) => {
                    live.remark(*kind, values.iter().map(|&value| u64::from(value)).sum());
                }
            }
        }
        self.passes.iter().for_each(|(live, calls)| live.record_passes(len as u64, *calls));
        shared.status.count(self.status, len as u64);
        if let Some(route) = &self.route {
            route.requests(self.status, len as u64);
        }
    }

    /// These columns added up, in `sum` if that is work: no value is more than its request's whole time.
    #[inline(always)]
    fn added<'v>(&'v self, columns: &[u16], sum: &'v mut [u32; MANY]) -> &'v [u32; MANY] {
        let Some((&first, others)) = columns.split_first() else { return sum };
        if let Some(total) = self.totals.as_ref().and_then(|totals| totals.get(usize::from(first))) {
            return total;
        }
        self.values(first, sum, |_, value| value);
        for &other in others {
            self.values(other, sum, u32::wrapping_add);
        }
        sum
    }

    /// Each of `sum` becomes what `f` makes of it and the value of this column.
    #[inline(always)]
    fn values(&self, column: u16, sum: &mut [u32; MANY], f: impl Fn(u32, u32) -> u32) {
        let event = usize::from(column) - TOTALS;
        for (sum, row) in sum.iter_mut().zip(self.rows.chunks_exact(self.width)) {
            *sum = f(*sum, row[event]);
        }
    }
}

/// An event, wherever it is.
pub(crate) trait EventWord {
    /// Its eight bytes.
    fn word(&self) -> u64;
}

impl EventWord for TraceEvent {
    #[inline(always)]
    fn word(&self) -> u64 {
        self.0
    }
}

impl EventWord for Cell<TraceEvent> {
    #[inline(always)]
    fn word(&self) -> u64 {
        self.get().0
    }
}

/// Writes the values of events to `row`: what they have besides their keys. All that is in any of them is returned, and is
/// too large for a value where an event is not what its key says. Four at a time: loops over so few are not made vector
/// operations otherwise.
#[inline(always)]
fn copy(keys: &[u64], events: &[impl EventWord], row: &mut [u32]) -> u64 {
    let ((keys, last_keys), (events, last_events)) = (keys.as_chunks::<4>(), events.as_chunks::<4>());
    let (row, last_row) = row.as_chunks_mut::<4>();
    let mut any = [0; 4];
    for ((slots, keys), events) in row.iter_mut().zip(keys).zip(events) {
        let values: [u64; 4] = std::array::from_fn(|at| events[at].word() ^ keys[at]);
        *slots = values.map(|value| value as u32);
        any = std::array::from_fn(|at| any[at] | values[at]);
    }
    let mut any = any.iter().fold(0, |any, one| any | one);
    for ((slot, key), event) in last_row.iter_mut().zip(last_keys).zip(last_events) {
        let value = event.word() ^ key;
        *slot = value as u32;
        any |= value;
    }
    any
}

/// Values of a request that are no event's.
const TOTALS: usize = 6;
/// Requests that are counted alone: most shapes are rare, and a batch takes six kilobytes.
const FEW: usize = 8;
/// The largest value: processors convert signed numbers of 32 bits to floating point
/// ([`crate::histogram`]). 0.7 s at 3 GHz.
const LARGEST: u64 = i32::MAX as u64;
