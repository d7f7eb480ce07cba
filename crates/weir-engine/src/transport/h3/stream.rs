//! A request's end of its stream.

use std::rc::Rc;

use weir_http::h3::{self, H3ErrorCode};
use weir_http::message::StreamEnd;
use weir_http::qpack::QpackEncoder;

use super::mux::H3Mux;
use super::slot::H3Slot;
use crate::body::BodyBuf;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::transport::multiplexed::{RequestStream, StreamCore};
use crate::transport::section;

/// A stream of an HTTP/3 connection, for the exchange that responds on it.
#[derive(Clone)]
pub struct H3Stream {
    /// The connection of the stream.
    pub mux: Rc<H3Mux>,
    /// Its place among the connection's streams.
    pub at: usize,
}

impl H3Stream {
    /// Bytes of its frames so far.
    pub(crate) fn written(&self) -> u64 {
        self.with(|slot| slot.written)
    }

    /// Bytes of content in them.
    pub(crate) fn content(&self) -> u64 {
        self.with(|slot| slot.content)
    }

    /// Whatever the response, the stream ends as one that broke the protocol: the client was too slow.
    pub(crate) fn blame(&self) {
        self.with(|slot| slot.fault = Some(H3ErrorCode::RequestIncomplete));
    }

    /// Composes the response's head; how many bytes it has.
    pub(crate) fn head(&self, x: &Exchange) -> u64 {
        let response = &x.response;
        let trailers = response.expect_trailers || !response.trailers.is_empty();
        let empty = response.header_only || (response.content_length == Some(0) && !trailers);
        let id = self.with(|slot| slot.id.unwrap_or_default());
        let of_client = || self.mux.h3.borrow().priority(id);
        if let Some(priority) = section::priority(x, of_client) {
            self.mux.h3.borrow_mut().prioritize(id, priority);
        }
        let composed = self.section(|coder, out| section::compose(x, coder, out));
        if empty && x.response.status >= 200 {
            self.finish();
        }
        composed
    }

    /// Composes the head of an interim response.
    pub fn interim<'f>(&self, status: u16, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        self.section(|coder, out| section::interim(status, fields, coder, out));
    }

    /// Composes a header section; how many bytes its frame has.
    fn section(&self, write: impl FnOnce(&mut QpackEncoder, &mut Vec<u8>)) -> u64 {
        let mut h3 = self.mux.h3.borrow_mut();
        let composed = self.with(|slot| {
            let id = slot.id.unwrap_or_default();
            slot.compose(|out| h3.head(id, out, write))
        });
        drop(h3);
        self.mux.has_output(self.at);
        composed
    }

    /// Sends a whole body, which is in memory.
    pub(crate) fn whole(&self, buf: BodyBuf) {
        self.offer(buf);
        self.finish();
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut H3Slot) -> R) -> R {
        f(&mut self.mux.slots.borrow_mut()[self.at])
    }
}

impl RequestStream for H3Stream {
    fn core<R>(&self, f: impl FnOnce(&mut StreamCore) -> R) -> R {
        self.with(|slot| f(&mut slot.core))
    }

    fn wake(&self) {
        self.mux.wake();
    }

    fn pending(&self) -> u64 {
        self.with(|slot| slot.pending)
    }

    fn is_unsent(&self) -> bool {
        // One of a malformed request ends otherwise, once its exchange is over.
        let waits = |slot: &mut H3Slot| slot.ends && !slot.finished && slot.fault.is_none();
        self.with(|slot| slot.core.closed || slot.pending > 0 || waits(slot))
    }

    fn consumed(&self, bytes: u64) {
        self.mux.consumed(self.at, bytes);
    }

    fn give_up(&self) {
        self.with(|slot| {
            slot.drop_output();
            slot.core.given_up = true;
        });
    }

    fn taken_by_all(&self) -> Option<u64> {
        self.mux.taken_by_all(self.at)
    }

    fn why_gone(&self) -> EngineError {
        EngineError::CLIENT_CLOSED
    }

    fn is_faulty(&self) -> bool {
        self.with(|slot| slot.fault.is_some())
    }

    fn take(&self) -> Option<Vec<u8>> {
        let piece = self.with(|slot| slot.core.input.pop_front())?;
        self.consumed(piece.len() as u64);
        Some(piece)
    }

    fn offer(&self, buf: BodyBuf) {
        if buf.is_empty() {
            return;
        }
        self.with(|slot| {
            slot.compose(|out| h3::frame_head(h3::kind::DATA, buf.len(), out));
            slot.give(buf);
        });
        self.mux.has_output(self.at);
    }

    fn finish(&self) {
        self.with(|slot| slot.ends = true);
        self.mux.has_output(self.at);
    }

    fn end_with_trailers(&self, x: &Exchange) {
        let fields = x.response.trailers.iter();
        let fields = fields.map(|t| (t.name.bytes(&x.arena), t.value.bytes(&x.arena)));
        self.section(|coder, out| section::trailers(fields, coder, out));
        self.finish();
    }

    async fn window(&self, x: &mut Exchange) -> Result<u64, EngineError> {
        self.drained(x, READ_AT_ONCE / 2).await?;
        Ok(READ_AT_ONCE)
    }

    /// A file is read piece by piece, as QUIC takes them.
    async fn write_file(&self, x: &mut Exchange, part: BodyBuf, end: StreamEnd) -> Result<(), EngineError> {
        let mut rest = part;
        loop {
            let BodyBuf::File { file, offset, len } = rest else { return Ok(()) };
            let some = len.min(READ_AT_ONCE);
            let piece = match file.handle.bytes_cached(offset, some as usize) {
                Ok(Some(bytes)) => BodyBuf::shared(bytes),
                _ => BodyBuf::Bytes(x.read_file(&file, offset, some as usize).await?),
            };
            self.offer(piece);
            let last = some == len;
            if last && end == StreamEnd::Last {
                self.finish();
            }
            self.drained(x, if last { 0 } else { READ_AT_ONCE / 2 }).await?;
            if last {
                return Ok(());
            }
            rest = BodyBuf::File { file, offset: offset + some, len: len - some };
        }
    }
}

/// Bytes of a file that are read at once.
const READ_AT_ONCE: u64 = crate::transport::wire::HIGH;
