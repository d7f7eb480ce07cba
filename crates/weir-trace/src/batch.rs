//! The numbers of requests of one shape, kept apart until there are many.
//!
//! A histogram is three cache lines and some thirty instructions a value, and a request has a value for each of its
//! sites. Requests of one shape have the same sites in the same order: their values are written into columns, and when
//! these are full, or somebody wants to know, each column is counted at once. A value then costs half, and the
//! histogram's lines are touched once for all requests.

use std::sync::Arc;

use crate::event::{Event, EventKind};
use crate::live::{LiveSite, Shared};
use crate::record::RequestRecord;

/// Columns of values, one for each event of the requests, then one for each of [`Totals`].
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// None until the shape has proved to be frequent.
    values: Vec<[u32; MANY]>,
    /// Requests in there.
    len: usize,
    /// Requests that were counted alone before.
    alone: usize,
    width: usize,
    columns: Vec<Column>,
    status: u16,
    route: Option<Arc<LiveSite>>,
}

/// Where a column is counted.
#[derive(Debug)]
struct Column {
    live: Arc<LiveSite>,
    to: To,
    at: usize,
}

/// As what a column is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// A site's run.
    Run,
    /// A site's wait, of those that waited.
    Wait,
    /// A route's whole time, of those that took some.
    Total,
    /// A site's bytes, or errors.
    Remark(EventKind),
}

/// The values of a request that are not in its events, in the order of their columns.
type Totals = [u64; TOTALS];

impl Batch {
    /// For requests of `events` events that ended alike: with that route and status.
    pub(crate) fn new(events: usize, record: &RequestRecord, shared: &Shared) -> Batch {
        let width = events + TOTALS;
        let route = (!record.route.is_none()).then(|| shared.site(record.route).clone());
        let mut batch = Batch { width, status: record.status, route, ..Batch::default() };
        if let Some(live) = batch.route.clone() {
            let kinds = [
                To::Total,
                To::Run,
                To::Wait,
                To::Remark(EventKind::BytesIn),
                To::Remark(EventKind::BytesOut),
            ];
            for (n, to) in kinds.into_iter().enumerate() {
                batch.column(&live, to, events + n);
            }
        }
        batch
    }

    /// The values of event `at` are counted there. An event that there is none of has the value 0.
    pub(crate) fn column(&mut self, live: &Arc<LiveSite>, to: To, at: usize) {
        self.columns.push(Column { live: live.clone(), to, at });
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
        let at = self.len % MANY;
        let mut any = 0;
        let (columns, others) = self.values.split_at_mut(events.len());
        for ((column, event), key) in columns.iter_mut().zip(events).zip(keys) {
            let value = event.0 ^ key;
            any |= value;
            column[at] = value as u32;
        }
        let totals: Totals = [record.total, record.run, wait, record.bytes_in, record.bytes_out];
        for (column, value) in others.iter_mut().zip(totals) {
            any |= value;
            column[at] = value as u32;
        }
        self.len += usize::from(any <= LARGEST);
        any <= LARGEST
    }

    /// A request of this shape was counted alone: when there were a few, they are put off.
    pub(crate) fn missed(&mut self) {
        self.alone += 1;
        if self.alone == FEW {
            self.values.resize(self.width, [0; MANY]);
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
        for Column { live, to, at } in &self.columns {
            let values = &self.values.get(*at).unwrap_or(&NOTHING)[..len];
            match to {
                To::Run => live.record_runs(values),
                To::Wait => live.record_waits(values),
                To::Total => live.record_totals(values),
                To::Remark(EventKind::Error) => live.remark(EventKind::Error, len as u64),
                To::Remark(kind) => live.remark(*kind, values.iter().map(|&value| u64::from(value)).sum()),
            }
        }
        shared.status.count(self.status, len as u64);
        if let Some(route) = &self.route {
            route.requests(self.status, len as u64);
        }
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
