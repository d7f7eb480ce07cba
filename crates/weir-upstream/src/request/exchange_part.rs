//! What upstreams keep with each exchange and each worker.

use crate::request::attempt_records::AttemptRecords;
use crate::request::attempt_state::PendingAttempt;
use crate::request::cache_use::CacheUse;
use crate::request::scratch::AttemptScratch;
use weir_engine::exchange::{Exchange, ExchangePart};
use weir_engine::text::Arena;

/// The part of an exchange that is about the servers it is sent to.
#[derive(Default)]
pub(crate) struct UpstreamPart {
    /// What is known of the servers that were asked; it lasts through internal redirects, but for this request or
    /// subrequest alone.
    pub(crate) tries: Option<AttemptRecords>,
    /// Emptied ones.
    spare_tries: Option<AttemptRecords>,
    /// A server has the request, and its response is waited for.
    pub(crate) flight: Option<PendingAttempt>,
    /// Memory for requests to servers and the heads of their responses.
    pub(crate) scratch: AttemptScratch,
    /// The cache's part in the response.
    pub(crate) cached: CacheUse,
}

impl UpstreamPart {
    /// The tries, for one that begins.
    pub(crate) fn tries(&mut self) -> &AttemptRecords {
        self.tries.get_or_insert_with(|| self.spare_tries.take().unwrap_or_default())
    }
}

impl ExchangePart for UpstreamPart {
    fn clear(&mut self) {
        self.cached.clear();
        if let Some(mut tries) = self.tries.take() {
            self.spare_tries = tries.clear().then_some(tries);
        }
        if self.flight.is_some() {
            self.flight = None;
        }
    }

    fn write_context(&self, arena: &Arena, out: &mut Vec<u8>) {
        if let Some(tries) = &self.tries {
            tries.context(arena, out);
        }
    }

    fn log_complaints(&self, x: &Exchange) -> bool {
        self.tries.as_ref().is_some_and(|tries| tries.log_complaints(x))
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
    part_if(x).is_some_and(|part| part.tries.is_some())
}

/// The name of the upstream that is asked for `x`, or was last; `None` if `x` has asked no upstream.
pub fn upstream_name(x: &Exchange) -> Option<String> {
    part_if(x)?.tries.as_ref()?.group()
}
