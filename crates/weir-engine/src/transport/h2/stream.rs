//! A request's end of its stream.

use std::rc::Rc;

use weir_http::h2::{ErrorCode, StreamEnd, StreamKey};
use weir_http::hpack::HpackEncoder;
use weir_http::priority::Priority;

use super::encode;
use super::mux::H2Mux;
use super::slot::StreamSlot;
use crate::body::BodyBuf;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::transport::multiplexed::{RequestStream, StreamCore};
use crate::transport::section;
use crate::transport::wire::{ClientWire, is_copied};

/// A stream of an HTTP/2 connection, for the exchange that responds on it.
#[derive(Clone)]
pub struct H2Stream {
    /// The connection of the stream.
    pub mux: Rc<H2Mux>,
    /// Its number among the connection's streams.
    pub key: StreamKey,
}

impl H2Stream {
    /// The socket's connection.
    pub(crate) fn wire(&self) -> &Rc<ClientWire> {
        &self.mux.wire
    }

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
        self.with_mut(|slot| slot.fault = Some(ErrorCode::Protocol));
    }

    /// Composes the response's head; how many bytes it has.
    pub(crate) fn head(&self, x: &Exchange) -> u64 {
        let response = &x.response;
        let trailers = response.expect_trailers || !response.trailers.is_empty();
        let empty = response.header_only || (response.content_length == Some(0) && !trailers);
        let end = empty && x.response.status >= 200 && !self.is_faulty();
        let mut h2 = self.mux.h2.borrow_mut();
        h2.set_chunk(self.key, x.plan.core.http2_chunk_size);
        if let Some(priority) = section::priority(x, || h2.priority(self.key)) {
            h2.prioritize(self.key, priority);
        } else if x.server.http2.reprioritizes && h2.says_no_priorities() && section::is_blocking(x) {
            h2.prioritize(self.key, Priority { urgency: 0, incremental: false });
        }
        drop(h2);
        let mut blocks = self.mux.blocks.borrow_mut();
        self.section(StreamEnd::last_if(end), |coder, out| encode::head(x, &mut blocks, coder, out))
    }

    /// Whether all that [`head`](H2Stream::head) has to know of a response is the number of its head: it was sent before.
    #[inline]
    pub(crate) fn has_sent(&self, number: u32) -> bool {
        self.mux.blocks.borrow().has(number, self.mux.h2.borrow().encoder())
    }

    /// Whether all of a body of so many bytes can be sent at once after a head, as [`whole`](H2Stream::whole) does.
    #[inline]
    pub(crate) fn takes_at_once(&self, bytes: u64, chunk: u32) -> bool {
        !self.is_faulty() && self.mux.h2.borrow().takes_at_once(self.key, bytes, chunk)
    }

    /// Composes the head of an interim response.
    pub fn interim<'f>(&self, status: u16, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        self.section(StreamEnd::More, |coder, out| section::interim(status, fields, coder, out));
    }

    /// Composes a header section; how many bytes its frames have.
    fn section(&self, end: StreamEnd, write: impl FnOnce(&mut HpackEncoder, &mut Vec<u8>)) -> u64 {
        let mut h2 = self.mux.h2.borrow_mut();
        let composed = self.mux.wire.compose(|out| h2.head(self.key, end, out, write));
        drop(h2);
        self.wrote(composed, 0);
        composed
    }

    /// Sends a whole body, which is in memory.
    pub(crate) fn whole(&self, buf: BodyBuf) {
        if buf.memory().is_some() && !self.is_faulty() {
            let (len, mut sent) = (buf.len(), false);
            let mut h2 = self.mux.h2.borrow_mut();
            let small = if is_copied(&buf) { buf.memory() } else { None };
            let composed = self.mux.wire.compose(|out| {
                sent = h2.data_at_once(self.key, len, out);
                if let Some(bytes) = small.filter(|_| sent) {
                    out.extend_from_slice(bytes);
                }
            });
            drop(h2);
            let copied = small.is_some();
            match buf {
                _ if !sent => {}
                BodyBuf::Bytes(bytes) if copied => {
                    self.mux.wire.stream.give_spare(bytes);
                    return self.wrote(composed, len);
                }
                _ if copied => return self.wrote(composed, len),
                buf => {
                    self.mux.wire.queue(buf);
                    return self.wrote(composed + len, len);
                }
            }
        }
        self.offer(buf);
        self.finish();
    }

    /// A frame was composed: so many bytes, and of these, bytes of content.
    fn wrote(&self, bytes: u64, content: u64) {
        self.with_mut(|slot| self.mux.count(self.key, slot, (bytes, content)));
        self.mux.wake();
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&StreamSlot) -> R) -> R {
        f(&self.mux.slots.borrow()[self.key.index()])
    }

    pub(super) fn with_mut<R>(&self, f: impl FnOnce(&mut StreamSlot) -> R) -> R {
        f(&mut self.mux.slots.borrow_mut()[self.key.index()])
    }
}

impl RequestStream for H2Stream {
    fn core<R>(&self, f: impl FnOnce(&mut StreamCore) -> R) -> R {
        self.with_mut(|slot| f(&mut slot.core))
    }

    fn wake(&self) {
        self.mux.wake();
    }

    fn pending(&self) -> u64 {
        self.mux.h2.borrow().pending(self.key)
    }

    fn is_unsent(&self) -> bool {
        self.mux.h2.borrow().is_pending(self.key)
    }

    fn consumed(&self, bytes: u64) {
        self.mux.consumed(self.key, bytes);
    }

    fn give_up(&self) {
        self.mux.give_up(self.key);
    }

    fn taken_by_all(&self) -> Option<u64> {
        self.mux.taken_by_all(self.key)
    }

    fn why_gone(&self) -> EngineError {
        self.mux.wire.why_gone()
    }

    fn is_faulty(&self) -> bool {
        self.with(|slot| slot.fault.is_some())
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.take_piece()
    }

    fn offer(&self, buf: BodyBuf) {
        let bytes = buf.len();
        let closed = self.with_mut(|slot| {
            if !slot.core.closed {
                slot.chain.push(buf);
            }
            slot.core.closed
        });
        if !closed {
            self.mux.h2.borrow_mut().offer(self.key, bytes, StreamEnd::More);
            self.mux.wake();
        }
    }

    fn finish(&self) {
        if self.is_faulty() {
            return;
        }
        self.mux.h2.borrow_mut().offer(self.key, 0, StreamEnd::Last);
        self.mux.wake();
    }

    fn end_with_trailers(&self, x: &Exchange) {
        let fields = x.response.trailers.iter();
        let fields = fields.map(|t| (t.name.bytes(&x.arena), t.value.bytes(&x.arena)));
        self.section(StreamEnd::Last, |coder, out| section::trailers(fields, coder, out));
    }

    async fn window(&self, x: &mut Exchange) -> Result<u64, EngineError> {
        let window = || self.mux.h2.borrow().window(self.key);
        if window() == 0 {
            let waited = self.until(x, || {
                let open = window() > 0;
                if !open {
                    self.mux.starve(self.key);
                }
                open
            });
            let waited = waited.await;
            self.mux.relieve(self.key);
            waited?;
        }
        Ok(window())
    }

    async fn write_file(&self, x: &mut Exchange, part: BodyBuf, end: StreamEnd) -> Result<(), EngineError> {
        self.give_file(x, part, end).await
    }
}
