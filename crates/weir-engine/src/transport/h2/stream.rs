//! A request's end of its stream.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_http::h2::{ErrorCode, StreamEnd, StreamKey};
use weir_http::hpack::HpackEncoder;
use weir_rt::Timer;
use weir_trace::WaitKind;

use super::encode;
use super::file::LEAST;
use super::mux::H2Mux;
use super::slot::StreamSlot;
use crate::body::{BodyBuf, BodyChain};
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::transport::client::TunnelBytes;
use crate::transport::rate;
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

    /// The client has reset it, or is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.with(|slot| slot.closed)
    }

    /// Something of the response is still to be composed, or can't be any more.
    pub(crate) fn is_unsent(&self) -> bool {
        self.mux.h2.borrow().is_pending(self.key)
    }

    /// Its client took nothing for longer than `send_timeout`: what is left of the response is not waited for.
    pub(crate) fn is_given_up(&self) -> bool {
        self.with(|slot| slot.given_up)
    }

    /// All of the request's content has come and was taken.
    pub(crate) fn is_ended(&self) -> bool {
        self.with(|slot| slot.ended && slot.input.is_empty())
    }

    /// The request's content is not what its head announced.
    pub(crate) fn is_broken(&self) -> bool {
        self.with(|slot| slot.broken)
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
        self.mux.h2.borrow_mut().set_chunk(self.key, x.plan.core.http2_chunk_size);
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

    /// Nothing follows what was given. Does nothing where the head has ended the stream.
    pub(crate) fn finish(&self) {
        if self.is_faulty() {
            return;
        }
        self.mux.h2.borrow_mut().offer(self.key, 0, StreamEnd::Last);
        self.mux.wake();
    }

    /// Gives a piece of the body. One of a file is written by [`write_file`](H2Stream::write_file) alone.
    pub(super) fn offer(&self, buf: BodyBuf) {
        let bytes = buf.len();
        let closed = self.with_mut(|slot| {
            if !slot.closed {
                slot.chain.push(buf);
            }
            slot.closed
        });
        if !closed {
            self.mux.h2.borrow_mut().offer(self.key, bytes, StreamEnd::More);
            self.mux.wake();
        }
    }

    /// Gives a part of the body, at the client's pace and the rate that is allowed.
    pub(crate) async fn write_body(
        &self,
        x: &mut Exchange,
        chain: &mut BodyChain,
    ) -> Result<(), EngineError> {
        let rate = rate::of(x);
        let mut before = x.body_sent.saturating_sub(chain.len());
        while let Some(buf) = chain.pop() {
            if rate.is_none() && buf.memory().is_none() {
                let last = chain.is_empty() && chain.last && x.response.trailers.is_empty();
                self.write_file(x, buf, StreamEnd::last_if(last)).await?;
                continue;
            }
            // A file is read when the client lets more of it come: a hundred windows that never open hold nothing.
            let most = match buf.memory() {
                Some(_) => buf.len(),
                None => self.window(x).await?.clamp(LEAST, READ),
            };
            let part = match rate {
                Some(rate) => buf.len().min(most).min(self.allowed(x, rate, before).await?),
                None => buf.len().min(most),
            };
            before += part;
            if part < buf.len() {
                chain.unpop(buf.slice(part, buf.len()));
            }
            let piece = match buf {
                BodyBuf::File { file, offset, .. } => {
                    BodyBuf::Bytes(x.read_file(&file, offset, part as usize).await?)
                }
                memory if part < memory.len() => memory.slice(0, part),
                memory => memory,
            };
            self.offer(piece);
            let below = if rate.is_some() { 0 } else { x.busy / 2 };
            if rate.is_some() || self.pending() > x.busy {
                self.drained(x, below).await?;
            }
        }
        if self.is_closed() {
            return Err(self.why_gone());
        }
        if !chain.last {
            return Ok(());
        }
        if !x.response.trailers.is_empty() {
            self.drained(x, 0).await?;
        }
        self.settle(x);
        Ok(())
    }

    /// Nothing follows: ends the stream, with trailers if there are some.
    pub(crate) fn settle(&self, x: &Exchange) {
        if x.response.trailers.is_empty() || self.is_faulty() {
            return self.finish();
        }
        let fields = x.response.trailers.iter();
        let fields = fields.map(|t| (t.name.bytes(&x.arena), t.value.bytes(&x.arena)));
        self.section(StreamEnd::Last, |coder, out| section::trailers(fields, coder, out));
    }

    /// Waits until the rate allows something, unless the client leaves meanwhile; how much.
    async fn allowed(&self, x: &mut Exchange, rate: rate::SendRate, sent: u64) -> Result<u64, EngineError> {
        loop {
            let ms = match rate.allows(x.start_ms, sent) {
                Ok(bytes) => return Ok(bytes),
                Err(ms) => ms,
            };
            let mut sleep = Box::pin(weir_rt::sleep(Duration::from_millis(ms)));
            let paused = poll_fn(|cx| match self.poll_gone(cx) {
                Poll::Ready(()) => Poll::Ready(Err(self.why_gone())),
                Poll::Pending => sleep.as_mut().poll(cx).map(Ok),
            });
            x.shared.clone().waiting_for(WaitKind::Timer, Box::pin(paused)).await?;
        }
    }

    /// Bytes of the body that were not sent.
    pub(super) fn pending(&self) -> u64 {
        self.mux.h2.borrow().pending(self.key)
    }

    /// Waits until the client lets more of the body come than what was given; how many bytes.
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

    /// Waits until at most `below` bytes of the body are left to send; of 0, until the stream's end has left, too, which may
    /// be a frame of its own.
    pub(crate) async fn drained(&self, x: &mut Exchange, below: u64) -> Result<(), EngineError> {
        let done = || if below == 0 { !self.is_unsent() } else { self.pending() <= below };
        if done() {
            return Ok(());
        }
        self.until(x, done).await
    }

    /// Waits for what the client has to do, as long as it takes something in each `send_timeout`.
    pub(super) async fn until(&self, x: &mut Exchange, done: impl Fn() -> bool) -> Result<(), EngineError> {
        self.mux.wake();
        let interval = x.plan.core.send_timeout;
        let timer = Timer::new();
        timer.arm(interval);
        self.with_mut(|slot| slot.patience = interval);
        let mut left = self.pending();
        let drained = poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(Err(self.why_gone()));
            }
            if done() {
                return Poll::Ready(Ok(()));
            }
            let now = self.pending();
            if now < left {
                left = now;
                timer.touch(interval);
            }
            if timer.poll_expired(cx).is_ready() {
                self.mux.give_up(self.key);
                return Poll::Ready(Err(EngineError::from(weir_rt::SendError::TimedOut)));
            }
            self.with_mut(|slot| slot.writer = Some(cx.waker().clone()));
            Poll::Pending
        });
        let shared = x.shared.clone();
        shared.waiting_for(WaitKind::ClientWrite, Box::pin(drained)).await
    }

    /// The request's content is not wanted: what comes of it is dropped.
    pub(crate) fn discard(&self) {
        let unread = self.with_mut(|slot| {
            slot.discarded = true;
            slot.drop_input()
        });
        self.mux.consumed(self.key, unread);
        self.mux.wake();
    }

    /// Waits until something happens to the request's content; `false`: the timer expired.
    pub(crate) async fn readable(&self, timer: &Timer) -> bool {
        poll_fn(|cx| {
            let news = self.with_mut(|slot| {
                let news = !slot.input.is_empty() || slot.ended || slot.closed || slot.broken;
                if !news {
                    slot.reader = Some(cx.waker().clone());
                }
                news
            });
            if news {
                return Poll::Ready(true);
            }
            timer.poll_expired(cx).map(|()| false)
        })
        .await
    }

    /// Why nothing more reaches the client.
    pub(crate) fn why_gone(&self) -> EngineError {
        self.mux.wire.why_gone()
    }

    /// Ready once the client has given the request up.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.with_mut(|slot| {
            if slot.closed {
                return Poll::Ready(());
            }
            slot.watcher = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// What the client sends next through a tunnel.
    pub(crate) fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<TunnelBytes> {
        if let Some(piece) = self.take() {
            return Poll::Ready(TunnelBytes::Piece(piece));
        }
        self.with_mut(|slot| {
            if slot.closed || slot.broken {
                return Poll::Ready(TunnelBytes::Broken);
            }
            if slot.ended {
                return Poll::Ready(TunnelBytes::End);
            }
            slot.reader = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Sends bytes through a tunnel.
    pub(crate) fn pass(&self, bytes: Vec<u8>) {
        self.offer(BodyBuf::Bytes(bytes));
    }

    /// Ready when at most `below` bytes are left to send; `false`: nothing can be sent any more.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, below: u64) -> Poll<bool> {
        let pending = self.pending();
        self.with_mut(|slot| {
            if slot.closed {
                return Poll::Ready(false);
            }
            if pending <= below {
                return Poll::Ready(true);
            }
            slot.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn is_faulty(&self) -> bool {
        self.with(|slot| slot.fault.is_some())
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

/// Files whose rate is limited are read in pieces of this many bytes.
const READ: u64 = 32 * 1024;
