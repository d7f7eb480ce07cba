//! What upstreams keep with each exchange and each worker.

use crate::request::attempt_records::AttemptRecords;
use crate::request::attempt_state::PendingAttempt;
use crate::request::cache_use::CacheUse;
use crate::request::known_request::KnownFlight;
use crate::request::scratch::AttemptScratch;
use weir_engine::exchange::{Exchange, ExchangePart};
use weir_engine::text::Arena;

/// The part of an exchange that is about the servers it is sent to.
#[derive(Default)]
pub(crate) struct UpstreamPart {
    /// What is known of the servers that were asked; it lasts through internal redirects, but for this request or
    /// subrequest alone.
    pub(crate) records: Option<AttemptRecords>,
    /// Emptied ones.
    spare_records: Option<AttemptRecords>,
    /// A server has a request that was composed before, and its response is waited for.
    pub(crate) flight: Option<KnownFlight>,
    /// A server has the request, and its response is waited for.
    pub(crate) pending: Option<PendingAttempt>,
    /// Memory for requests to servers and the heads of their responses.
    pub(crate) scratch: AttemptScratch,
    /// The cache's part in the response.
    pub(crate) cached: CacheUse,
}

impl UpstreamPart {
    /// The tries, for one that begins.
    pub(crate) fn records(&mut self) -> &AttemptRecords {
        self.records.get_or_insert_with(|| self.spare_records.take().unwrap_or_default())
    }
}

impl ExchangePart for UpstreamPart {
    fn clear(&mut self) {
        self.cached.clear();
        if let Some(mut records) = self.records.take() {
            self.spare_records = records.clear().then_some(records);
        }
        if self.flight.is_some() {
            self.flight = None;
        }
        if self.pending.is_some() {
            self.pending = None;
        }
    }

    fn write_context(&self, arena: &Arena, out: &mut Vec<u8>) {
        if let Some(records) = &self.records {
            records.context(arena, out);
        }
    }

    fn log_complaints(&self, x: &Exchange) -> bool {
        self.records.as_ref().is_some_and(|records| records.log_complaints(x))
    }
}

/// The part of `x`.
#[inline]
pub(crate) fn part(x: &mut Exchange) -> &mut UpstreamPart {
    x.part()
}

/// The part of `x`, if servers or caches had to do with it or an earlier request in its place.
#[inline]
pub(crate) fn part_if(x: &Exchange) -> Option<&UpstreamPart> {
    x.part_if()
}

/// Whether servers were asked for `x`, or are about to be.
pub fn has_asked_servers(x: &Exchange) -> bool {
    part_if(x).is_some_and(|part| part.records.is_some())
}

/// The name of the upstream that is asked for `x`, or was last; `None` if `x` has asked no upstream.
pub fn upstream_name(x: &Exchange) -> Option<String> {
    part_if(x)?.records.as_ref()?.upstream()
}
