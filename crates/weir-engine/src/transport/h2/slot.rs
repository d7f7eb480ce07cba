//! What a connection keeps of each stream.

use weir_http::h2::ErrorCode;

use super::upload::ReadAheadWindow;
use crate::body::BodyChain;
use crate::transport::multiplexed::StreamCore;

/// What is stored of a stream beside the protocol's state, at its key's index.
#[derive(Default)]
pub struct StreamSlot {
    /// What streams of all protocols have.
    pub(super) core: StreamCore,
    /// Content that was announced and has not been sent.
    pub(super) chain: BodyChain,
    /// A part of a file may be among that.
    pub(super) has_file: bool,
    /// The file's part in front is not in the page cache: the stream's writer reads it.
    pub(super) unread: bool,
    /// Bytes of all its frames (`$bytes_sent`).
    pub(super) written: u64,
    /// Bytes of content in them (`$body_bytes_sent`).
    pub(super) content: u64,
    /// What the connection had composed before the stream: frames up to there are those of another with the same key.
    pub(super) since: u64,
    pub(super) ahead: ReadAheadWindow,
    /// Its exchange is over; the rest is sent.
    pub(super) detached: bool,
    /// With which code the stream is reset after the response, since its request was malformed; `None`: the response
    /// ends the stream.
    pub fault: Option<ErrorCode>,
    /// Its exchange is over, and until then (milliseconds of the worker's clock) the client has time to take the rest of
    /// the response, or to send the rest of the request, which is dropped.
    pub(super) until: Option<u64>,
    /// Content of all streams that was composed when its time was measured last.
    pub(super) taken_by_all: u64,
    /// Its task was woken for more of the response since the stream ran dry last.
    pub(super) woken: bool,
    /// It is among the [`H2Mux::starved`].
    pub(super) starved: bool,
    /// It is the request that is not over.
    pub(super) lingers: bool,
    /// Bytes that were dropped meanwhile.
    pub(super) dropped: u64,
}

impl StreamSlot {
    /// Empties the slot for another stream, keeping its memory.
    pub(super) fn renew(&mut self) {
        let StreamSlot { core, chain, written, content, detached, fault, .. } = self;
        (self.until, self.lingers, self.dropped, self.starved) = (None, false, 0, false);
        (self.has_file, self.unread, self.woken) = (false, false, false);
        core.renew();
        // Mostly it is empty, and emptying takes more than looking.
        if !chain.is_empty() {
            chain.clear();
        }
        (*written, *content, *fault, *detached) = (0, 0, None, false);
    }
}
