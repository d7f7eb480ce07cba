//! Filters of a response: header filters see and change its head, body filters its bytes.
//!
//! Both have places ([`FilterSlot`]), not luck: the order is this enum. A header filter runs once per response, in the
//! plan of the location; it may push a [`BodyFilter`] for this response. A body filter is resumable: it takes from
//! its input what it can, never puts more than [`ROOM`] bytes ahead of a slow client, and keeps its own rest.

use weir_trace::Site;

use crate::body::BodyChain;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::phase::{self, LocalFuture, Verdict};
use crate::plan::included::IncludedRequest;

/// The places of filters, in order of execution (nginx's `auto/modules`, read from its end).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FilterSlot {
    /// `reproxy`: another response takes the place of this one, which no other filter sees then.
    Reproxy,
    /// Cuts a response into ranges fetched one by one.
    Slice,
    /// Conditional requests: 304 and 412.
    NotModified,
    /// Cuts the ranges asked for out of the body.
    RangeBody,
    /// Reads file pieces into memory where a later filter needs bytes.
    Copy,
    /// Lua and third parties.
    Aux,
    /// `add_header`, `expires`.
    Headers,
    /// `add_trailer`.
    Trailers,
    /// `userid`.
    UserId,
    /// Unpacks for clients that can't.
    Gunzip,
    /// `add_before_body`, `add_after_body`.
    Addition,
    /// `sub_filter`.
    Sub,
    /// Recodes the body into another charset.
    Charset,
    /// Server side includes.
    Ssi,
    /// Puts subrequests in their place.
    Postpone,
    /// Compresses with gzip.
    Gzip,
    /// Compresses with brotli.
    Brotli,
    /// Compresses with zstd.
    Zstd,
    /// Applies `Range` to the head.
    RangeHeader,
    /// Chunked framing.
    Chunked,
    /// Composes the head.
    Header,
    /// Hands bytes to the connection.
    Write,
}

/// Looks at, and may change, the head of a response. One instance per location and worker.
pub trait HeaderFilter {
    /// [`Verdict::Ok`] goes on; [`Verdict::Status`] throws the response away for that status' own page;
    /// [`Verdict::Wait`] has to be waited for.
    fn filter(&self, x: &mut Exchange) -> Verdict;

    /// As [`Handler::wait`](crate::phase::Handler::wait).
    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        phase::nothing_to_wait_for(x)
    }

    /// Whether a rehearsal asks it: it runs no script, and changes nothing outside of the request.
    fn is_rehearsable(&self) -> bool {
        false
    }

    /// Whether [`filter`](HeaderFilter::filter) makes no boundary itself (no site of its own, no subrequest, no script).
    /// Several such filters that have [passed](Verdict::Passed) are then written to the trace at once.
    fn is_plain(&self) -> bool {
        false
    }

    /// Whether all responses with the same head leave the filter with the same head, for requests that have neither
    /// conditions nor `Range`: it may add fields, and changes neither status, type, length, date nor body. Such a head is composed
    /// once and the filter then not asked again ([`Exchange::recall_file`], [`Exchange::recall_head`]).
    fn is_fixed(&self) -> bool {
        false
    }
}

/// Changes the bytes of one response.
pub trait BodyFilter {
    /// Takes from `input`, appends to `output`. Called when there is new input (or its end: `input.last`) and again
    /// after [`FilterStep::Full`] once the output was taken. The filter sets `output.last` when it has given its last
    /// byte, and passes `flush` on.
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError>;

    /// Whether the filter needs bytes in memory; if so, file pieces are read before they reach it.
    fn in_memory(&self) -> bool {
        true
    }
}

/// How a step of a body filter ended.
pub enum FilterStep {
    /// The input is used up (or buffered inside): come again with more.
    More,
    /// The output is full ([`ROOM`]); come again when it was taken.
    Full,
    /// Something must be waited for before the next step.
    Wait(LocalFuture<'static, ()>),
    /// A subrequest's response follows what the filter has given so far; come again then. Only before
    /// [`FilterSlot::Postpone`], and where the header filter has called [`Exchange::includes`].
    Include(Box<IncludedRequest>),
}

/// How many bytes a filter may put ahead.
pub const ROOM: u64 = 32 * 1024;

/// A header filter's place in a plan.
pub struct HeaderEntry {
    /// Where it runs.
    pub slot: FilterSlot,
    /// The site to which its time is charged.
    pub site: Site,
    /// True when [`HeaderFilter::is_plain`] says so.
    pub is_plain: bool,
    /// The filter.
    pub filter: Box<dyn HeaderFilter>,
}

/// A body filter of one response, with the output it could not pass on yet.
pub(crate) struct BodyEntry {
    /// Where it runs.
    pub slot: FilterSlot,
    /// Where its time goes.
    pub site: Site,
    /// The filter.
    pub filter: Box<dyn BodyFilter>,
    /// What waits to enter it.
    pub input: BodyChain,
    /// What comes after `input`: pieces of files that the filter needs in memory and that are not read yet.
    pub unread: BodyChain,
    /// True when it gave [`FilterStep::Full`]: it is called even without new input.
    pub full: bool,
}

impl BodyEntry {
    /// Adds what the filter before, or the handler, has given.
    pub(crate) fn give(&mut self, chain: &mut BodyChain) {
        let waits = !self.unread.is_empty() || (chain.has_file() && self.filter.in_memory());
        if waits { self.unread.append(chain) } else { self.input.append(chain) }
    }

    /// Whether it is to be called again, even without new input.
    pub(crate) fn has_more(&self) -> bool {
        self.full || !self.unread.is_empty()
    }
}
