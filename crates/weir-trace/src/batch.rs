//! The numbers of requests of one shape, kept apart until there are many.
//!
//! A histogram is three cache lines and some thirty instructions a value, and a request has a value for each of its
//! sites. Requests of one shape have the same sites in the same order: the values of those that took a stamp are written
//! into columns, and when these are full, or somebody wants to know, each column is counted at once. A value then costs
//! half, and the histogram's lines are touched once for all requests.

use std::sync::Arc;

use crate::event::{Event, EventKind};
use crate::live::{LiveSite, Shared};
use crate::record::RequestRecord;

/// Columns of values: one for each of [`Totals`], then one for each stamped event of the requests.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// None until the shape has proved to be frequent.
    values: Vec<[u32; MANY]>,
    /// The events that have a column.
    stamped: Vec<u16>,
    /// Requests in there.
    len: usize,
    /// Requests that were counted alone before.
    alone: usize,
    sums: Vec<Sum>,
    /// The columns of all sums, one sum's behind the other's.
    columns: Vec<u16>,
    /// Sites that were called and took no stamp, and how often.
    passes: Vec<(Arc<LiveSite>, u64)>,
    status: u16,
    route: Option<Arc<LiveSite>>,
}

/// Where the sum of some columns is counted.
#[derive(Debug)]
struct Sum {
    live: Arc<LiveSite>,
    to: To,
    /// Where its columns end.
    end: usize,
}

/// As what values are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// A site's run, in so many calls.
    Run(u64),
    /// A site's wait, of those that waited.
    Wait,
    /// A route's whole time, of those that took some.
    Total,
    /// A site's bytes, or errors.
    Remark(EventKind),
}

/// The values of a request that are not in its events: its whole time, its run, its wait, its bytes in and out.
type Totals = [u64; TOTALS];

impl Batch {
    /// For requests that ended alike, with that route and status, and whose events have values where `stamped` says.
    pub(crate) fn new(stamped: Vec<u16>, record: &RequestRecord, shared: &Shared) -> Batch {
        let route = (!record.route.is_none()).then(|| shared.site(record.route).clone());
        let mut batch = Batch { stamped, status: record.status, route, ..Batch::default() };
        if let Some(live) = batch.route.clone() {
            let kinds = [
                To::Total,
                To::Run(1),
                To::Wait,
                To::Remark(EventKind::BytesIn),
                To::Remark(EventKind::BytesOut),
            ];
            for (at, to) in kinds.into_iter().enumerate() {
                batch.columns.push(at as u16);
                batch.sums.push(Sum { live: live.clone(), to, end: batch.columns.len() });
            }
        }
        batch
    }

    /// The sum of the values of these events is counted there; of those without a value there is none.
    pub(crate) fn sum(&mut self, live: &Arc<LiveSite>, to: To, events: impl Iterator<Item = u16>) {
        let before = self.columns.len();
        let columns = events.filter_map(|event| self.stamped.binary_search(&event).ok());
        self.columns.extend(columns.map(|column| (column + TOTALS) as u16));
        match to {
            _ if self.columns.len() > before => {
                self.sums.push(Sum { live: live.clone(), to, end: self.columns.len() });
            }
            To::Run(calls) => self.passes.push((live.clone(), calls)),
            _ => {}
        }
    }

    /// Adds a request if its events are of the kinds and sites that `keys` says and no value is too large.
    #[inline]
    pub(crate) fn add(
        &mut self,
        keys: &[u64],
        events: &[Event],
        record: &RequestRecord,
        wait: u64,
        shared: &Shared,
    ) -> bool {
        if keys.len() != events.len() || self.values.is_empty() {
            return false;
        }
        if self.len == MANY {
            self.fold(shared);
        }
        let totals: Totals = [record.total, record.run, wait, record.bytes_in, record.bytes_out];
        let any = totals.iter().fold(0, |any, total| any | total);
        if events.iter().zip(keys).fold(any, |any, (event, key)| any | (event.0 ^ key)) > LARGEST {
            return false;
        }
        let at = self.len % MANY;
        let Some((first, others)) = self.values.split_first_chunk_mut::<TOTALS>() else { return false };
        first.iter_mut().zip(totals).for_each(|(column, total)| column[at] = total as u32);
        for (column, event) in others.iter_mut().zip(&self.stamped) {
            column[at] = events.get(usize::from(*event)).map_or(0, |event| event.0 as u32);
        }
        self.len += 1;
        true
    }

    /// A request of this shape was counted alone: when there were a few, they are put off.
    pub(crate) fn missed(&mut self) {
        self.alone += 1;
        if self.alone == FEW {
            self.values.resize(TOTALS + self.stamped.len(), [0; MANY]);
        }
    }

    /// True if something is not counted yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.len > 0
    }

    /// Counts what is there.
    #[inline(never)]
    pub(crate) fn fold(&mut self, shared: &Shared) {
        let len = std::mem::take(&mut self.len);
        if len == 0 {
            return;
        }
        let (mut begin, mut added) = (0, [0; MANY]);
        for Sum { live, to, end } in &self.sums {
            let values = &self.added(&self.columns[begin..*end], &mut added)[..len];
            begin = *end;
            match to {
                To::Run(calls) => live.record_runs(values, *calls),
                To::Wait => live.record_waits(values),
                To::Total => live.record_totals(values),
                To::Remark(EventKind::Error) => live.remark(EventKind::Error, len as u64),
                To::Remark(kind) => live.remark(*kind, values.iter().map(|&value| u64::from(value)).sum()),
            }
        }
        self.passes.iter().for_each(|(live, calls)| live.record_passes(len as u64, *calls));
        shared.status.count(self.status, len as u64);
        if let Some(route) = &self.route {
            route.requests(self.status, len as u64);
        }
    }

    /// These columns added up: no value is more than its request's whole time.
    fn added<'v>(&'v self, columns: &[u16], sum: &'v mut [u32; MANY]) -> &'v [u32; MANY] {
        let column = |at: &u16| self.values.get(usize::from(*at)).unwrap_or(&NOTHING);
        let Some((first, others)) = columns.split_first() else { return &NOTHING };
        if others.is_empty() {
            return column(first);
        }
        *sum = *column(first);
        for other in others {
            sum.iter_mut().zip(column(other)).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
        }
        sum
    }
}

/// The values of a column that there is none of.
const NOTHING: [u32; MANY] = [0; MANY];
/// Values of a request that are no event's.
const TOTALS: usize = 5;
/// Requests that are counted alone: most shapes are rare, and a batch takes six kilobytes.
const FEW: usize = 8;
/// Requests that are counted together.
pub(crate) const MANY: usize = 64;
/// The largest value: processors convert signed numbers of 32 bits to floating point
/// ([`buckets`](crate::histogram::buckets)). 0.7 s at 3 GHz.
const LARGEST: u64 = i32::MAX as u64;
