//! All trees that a worker retains: the last ones there was a reason for, those of requests that blocked the loop or had
//! to wait for one that did, and the slowest of each route.

use std::collections::HashMap;

use crate::keep_reason::KeepReason;
use crate::kept_request::KeptRequest;
use crate::record::RequestRecord;
use crate::record_ring::RecordRing;
use crate::recorder_settings::RecorderSettings;
use crate::site::Site;
use crate::trace::Trace;

/// What is retained. A busy server draws so many requests at random that these push each other out within a second; what
/// is retained of stalls and of the slowest has places of its own.
#[derive(Debug)]
pub(crate) struct KeptRequests {
    last: RecordRing<KeptRequest>,
    /// Requests that blocked the loop, and of each stall one that waited.
    stalls: RecordRing<KeptRequest>,
    slowest: SlowestRequests,
}

impl KeptRequests {
    pub(crate) fn new(settings: &RecorderSettings) -> KeptRequests {
        let mut kept = KeptRequests {
            last: RecordRing::new(0),
            stalls: RecordRing::new(0),
            slowest: SlowestRequests::default(),
        };
        kept.configure(settings);
        kept
    }

    /// Takes other numbers; the newest stay as far as there is room. Without room for trees there is none at all.
    pub(crate) fn configure(&mut self, settings: &RecorderSettings) {
        let any = usize::from(settings.kept > 0);
        self.last.resize(settings.kept);
        self.stalls.resize(any * PER_STALL * settings.stalls);
        self.slowest.configure(any * settings.slowest);
    }

    /// Whether no request of its route has been slower in this minute.
    #[inline]
    pub(crate) fn is_slowest(&self, record: &RequestRecord) -> bool {
        self.slowest.takes(record)
    }

    /// Retains a request for `why`; `None` if only for being the slowest of its route.
    #[inline(never)]
    pub(crate) fn keep(&mut self, why: Option<KeepReason>, record: &RequestRecord, trace: &Trace) {
        match why {
            Some(why @ (KeepReason::Blocker | KeepReason::Waiter)) => {
                put(&mut self.stalls, why, record, trace);
            }
            _ if self.slowest.takes(record) => {
                let kept = KeptRequest::new(why.unwrap_or(KeepReason::Slowest), record, trace);
                // Its place is needed; what it was retained for still holds.
                if let Some(before) = self.slowest.put(kept).filter(|kept| kept.why() != KeepReason::Slowest)
                {
                    let again = before.clone();
                    self.last.push(|slot| *slot = before, || again);
                }
            }
            Some(why) => put(&mut self.last, why, record, trace),
            None => {}
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &KeptRequest> {
        self.last.iter().chain(self.stalls.iter()).chain(self.slowest.iter())
    }
}

fn put(ring: &mut RecordRing<KeptRequest>, why: KeepReason, record: &RequestRecord, trace: &Trace) {
    ring.push(|slot| slot.set(why, record, trace), || KeptRequest::new(why, record, trace));
}

/// Of each route the slowest request of this minute and of the one before.
#[derive(Debug, Default)]
struct SlowestRequests {
    /// Most routes there is something of.
    room: usize,
    /// By the number of the route, as far as needed.
    bounds: Vec<SlowestBound>,
    kept: HashMap<Site, SlowestPair>,
}

/// What a request has to exceed.
#[derive(Clone, Copy, Debug, Default)]
struct SlowestBound {
    /// The minute that it holds for.
    minute: u64,
    /// Ticks.
    total: u64,
}

#[derive(Debug)]
struct SlowestPair {
    minute: u64,
    now: KeptRequest,
    /// Of the minute before, or of an earlier one in which there were requests last.
    before: Option<KeptRequest>,
}

impl SlowestRequests {
    #[inline]
    fn takes(&self, record: &RequestRecord) -> bool {
        match self.bounds.get(usize::from(record.route.0)) {
            Some(bound) => record.total > bound.total || minute(record) != bound.minute,
            None => self.room > 0,
        }
    }

    /// Takes the slowest of its route; returns the one that this replaces.
    fn put(&mut self, kept: KeptRequest) -> Option<KeptRequest> {
        let (route, minute, total) = (kept.record().route, minute(kept.record()), kept.record().total);
        if route.is_none() || self.kept.len() >= self.room && !self.kept.contains_key(&route) {
            self.bound(route, SlowestBound { minute, total: u64::MAX });
            return Some(kept);
        }
        self.bound(route, SlowestBound { minute, total });
        let Some(pair) = self.kept.get_mut(&route) else {
            self.kept.insert(route, SlowestPair { minute, now: kept, before: None });
            return None;
        };
        let replaced = std::mem::replace(&mut pair.now, kept);
        if std::mem::replace(&mut pair.minute, minute) == minute {
            return Some(replaced);
        }
        pair.before.replace(replaced)
    }

    fn bound(&mut self, route: Site, bound: SlowestBound) {
        let at = usize::from(route.0);
        if self.bounds.len() <= at {
            self.bounds.resize(at + 1, SlowestBound::default());
        }
        self.bounds[at] = bound;
    }

    /// Routes may have other numbers in another configuration: their bounds are found again.
    fn configure(&mut self, room: usize) {
        self.room = room;
        self.bounds.clear();
        while self.kept.len() > room {
            let Some(route) = self.kept.keys().next().copied() else { return };
            self.kept.remove(&route);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &KeptRequest> {
        self.kept.values().flat_map(|pair| std::iter::once(&pair.now).chain(&pair.before))
    }
}

/// The minute in which a request began: of 65.5 seconds, which is a shift instead of a division.
#[inline]
fn minute(record: &RequestRecord) -> u64 {
    record.unix_ms >> 16
}

/// Of each stall the request that blocked the loop, and one that waited.
const PER_STALL: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RequestId;

    const SETTINGS: fn(usize) -> RecorderSettings =
        |slowest| RecorderSettings { kept: 2, slowest, stalls: 1, ..RecorderSettings::default() };

    fn ended(kept: &mut KeptRequests, why: Option<KeepReason>, id: u64, route: u16, minute: u64, total: u64) {
        let (id, route, unix_ms) = (RequestId(id.into()), Site(route), minute << 16);
        let record = RequestRecord { id, route, unix_ms, total, ..RequestRecord::default() };
        if why.is_some() || kept.is_slowest(&record) {
            kept.keep(why, &record, &Trace::new());
        }
    }

    fn ids(kept: &KeptRequests) -> Vec<(u64, KeepReason)> {
        let mut ids: Vec<_> = kept.iter().map(|kept| (kept.record().id.0 as u64, kept.why())).collect();
        ids.sort_by_key(|(id, _)| *id);
        ids
    }

    #[test]
    fn the_slowest_of_a_route_stays_for_its_minute_and_the_next() {
        let mut kept = KeptRequests::new(&SETTINGS(8));
        for (id, minute, total) in [(1, 7, 50), (2, 7, 90), (3, 7, 90), (4, 7, 60), (5, 8, 10), (6, 8, 11)] {
            ended(&mut kept, None, id, 70, minute, total);
        }
        ended(&mut kept, None, 7, 71, 8, 1);
        let slowest = |ids: &[u64]| ids.iter().map(|id| (*id, KeepReason::Slowest)).collect::<Vec<_>>();
        assert_eq!(ids(&kept), slowest(&[2, 6, 7]));
        ended(&mut kept, None, 8, 70, 20, 1);
        assert_eq!(ids(&kept), slowest(&[6, 7, 8]));
    }

    #[test]
    fn what_is_displaced_stays_for_its_other_reason() {
        let mut kept = KeptRequests::new(&SETTINGS(8));
        ended(&mut kept, Some(KeepReason::Failed), 1, 70, 7, 50);
        ended(&mut kept, None, 2, 70, 7, 60);
        ended(&mut kept, Some(KeepReason::Sampled), 3, 70, 7, 10);
        let expected = [(1, KeepReason::Failed), (2, KeepReason::Slowest), (3, KeepReason::Sampled)];
        assert_eq!(ids(&kept), expected);
    }

    #[test]
    fn blockers_and_waiters_are_not_pushed_out_by_others() {
        let mut kept = KeptRequests::new(&SETTINGS(0));
        ended(&mut kept, Some(KeepReason::Blocker), 1, 70, 7, 50);
        ended(&mut kept, Some(KeepReason::Waiter), 2, 71, 7, 50);
        (3..100).for_each(|id| ended(&mut kept, Some(KeepReason::Sampled), id, 70, 7, 50));
        let expected = [(1, KeepReason::Blocker), (2, KeepReason::Waiter)];
        assert_eq!(ids(&kept)[..2], expected);
        assert_eq!(ids(&kept).len(), 4);
    }

    #[test]
    fn routes_are_bounded_and_nothing_is_kept_where_that_is_wanted() {
        let mut kept = KeptRequests::new(&SETTINGS(2));
        (0..50).for_each(|n| ended(&mut kept, None, n, 70 + n as u16, 7, 50));
        assert_eq!(kept.iter().count(), 2);
        kept.configure(&SETTINGS(1));
        assert_eq!(kept.iter().count(), 1);
        let mut kept = KeptRequests::new(&SETTINGS(0));
        ended(&mut kept, None, 1, 70, 7, 50);
        assert_eq!(kept.iter().count(), 0);
    }
}
