//! A request's end of a stream, whatever protocol has the streams: what HTTP/2 and HTTP/3 have in common.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_http::message::StreamEnd;
use weir_rt::Timer;
use weir_trace::WaitKind;

use super::send_rate::{self, SendRate};
use super::tunnel_bytes::TunnelBytes;
use crate::body::{BodyBuf, BodyChain};
use crate::error::EngineError;
use crate::exchange::Exchange;

/// How an exchange has left its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeOutcome {
    /// The response is whole as far as the exchange goes.
    Complete,
    /// It is cut off, or absent.
    Broken,
}

/// What is known of a stream, whatever its protocol.
#[derive(Default)]
pub(crate) struct StreamCore {
    /// Content that came and was not taken.
    pub(super) input: VecDeque<Vec<u8>>,
    /// No more content comes.
    pub(super) ended: bool,
    /// Content is thrown away as it comes.
    pub(super) discarded: bool,
    /// It was reset, or the connection is gone.
    pub(super) closed: bool,
    /// Its content is not what its head announced.
    pub(super) broken: bool,
    /// The `send_timeout` of a stream that waits for its client, in milliseconds.
    pub(super) patience: u64,
    /// Its client took nothing for longer than that.
    pub(super) given_up: bool,
    /// Waits for content.
    pub(super) reader: Option<Waker>,
    /// Waits until content was sent.
    pub(super) writer: Option<Waker>,
    /// Waits for the client to give up.
    pub(super) watcher: Option<Waker>,
}

impl StreamCore {
    /// Empties it for another stream, keeping its memory.
    pub(super) fn renew(&mut self) {
        let StreamCore { input, ended, discarded, closed, broken, patience, given_up, .. } = self;
        if !input.is_empty() {
            input.clear();
        }
        (*ended, *discarded, *closed, *broken, *patience, *given_up) = (false, false, false, false, 0, false);
        (self.reader, self.writer, self.watcher) = (None, None, None);
    }

    pub(super) fn wake(&mut self) {
        self.wake_reader();
        self.wake_writer();
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
    }

    /// Something has happened to the request's content.
    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// More of the response may be composed; whether its task waited for that.
    pub(super) fn wake_writer(&mut self) -> bool {
        let writer = self.writer.take();
        let waits = writer.is_some();
        if let Some(writer) = writer {
            writer.wake();
        }
        waits
    }

    /// Drops the request's content that was not read; how many bytes.
    pub(super) fn drop_input(&mut self) -> u64 {
        self.input.drain(..).map(|piece| piece.len() as u64).sum()
    }
}

/// A request's end of a stream. What is required is what differs from protocol to protocol.
pub(crate) trait RequestStream {
    fn core<R>(&self, f: impl FnOnce(&mut StreamCore) -> R) -> R;

    /// Has the connection's task look at what was done here.
    fn wake(&self);

    /// Bytes of the body that were not sent.
    fn pending(&self) -> u64;

    /// Something of the response is still to be composed, or can't be any more.
    fn is_unsent(&self) -> bool;

    /// So many bytes of the request's content were used.
    fn consumed(&self, bytes: u64);

    /// The client took nothing for too long: what is left of the response is not waited for.
    fn give_up(&self);

    /// Content of all of the connection's streams that was taken by now, for a stream that has only to wait for its turn; `None`
    /// where it is the client that makes no room for it.
    fn taken_by_all(&self) -> Option<u64>;

    /// Why nothing more reaches the client.
    fn why_gone(&self) -> EngineError;

    /// Its request is malformed, so that the stream ends otherwise than with its response.
    fn is_faulty(&self) -> bool;

    /// A piece of the request's content, if one has come.
    fn take(&self) -> Option<Vec<u8>>;

    /// Gives a piece of the body, which is in memory.
    fn offer(&self, buf: BodyBuf);

    /// Nothing follows what was given. Does nothing where the head has ended the stream.
    fn finish(&self);

    /// Ends the response with its trailers.
    fn end_with_trailers(&self, x: &Exchange);

    /// Waits until the client lets more of the body come than what was given; how many bytes.
    async fn window(&self, x: &mut Exchange) -> Result<u64, EngineError>;

    /// Gives a part of a file, and waits until all of it was composed. `end`: nothing follows.
    async fn write_file(&self, x: &mut Exchange, part: BodyBuf, end: StreamEnd) -> Result<(), EngineError>;

    /// The client has reset it, or is gone.
    fn is_closed(&self) -> bool {
        self.core(|core| core.closed)
    }

    /// Its client took nothing for longer than `send_timeout`: what is left of the response is not waited for.
    fn is_given_up(&self) -> bool {
        self.core(|core| core.given_up)
    }

    /// All of the request's content has come and was taken.
    fn is_ended(&self) -> bool {
        self.core(|core| core.ended && core.input.is_empty())
    }

    /// The request's content is not what its head announced.
    fn is_broken(&self) -> bool {
        self.core(|core| core.broken)
    }

    /// The request's content is not wanted: what comes of it is dropped.
    fn discard(&self) {
        let unread = self.core(|core| {
            core.discarded = true;
            core.drop_input()
        });
        self.consumed(unread);
        self.wake();
    }

    /// Waits until something happens to the request's content; `false`: the timer expired.
    async fn readable(&self, timer: &Timer) -> bool {
        poll_fn(|cx| {
            let news = self.core(|core| {
                let news = !core.input.is_empty() || core.ended || core.closed || core.broken;
                if !news {
                    core.reader = Some(cx.waker().clone());
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

    /// Ready once the client has given the request up.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.core(|core| {
            if core.closed {
                return Poll::Ready(());
            }
            core.watcher = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// What the client sends next through a tunnel.
    fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<TunnelBytes> {
        if let Some(piece) = self.take() {
            return Poll::Ready(TunnelBytes::Piece(piece));
        }
        self.core(|core| {
            if core.closed || core.broken {
                return Poll::Ready(TunnelBytes::Broken);
            }
            if core.ended {
                return Poll::Ready(TunnelBytes::End);
            }
            core.reader = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Ready when at most `below` bytes are left to send; `false`: nothing can be sent any more.
    fn poll_room(&self, cx: &mut Context<'_>, below: u64) -> Poll<bool> {
        let pending = self.pending();
        self.core(|core| {
            if core.closed {
                return Poll::Ready(false);
            }
            if pending <= below {
                return Poll::Ready(true);
            }
            core.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Gives a part of the body, at the client's pace and the rate that is allowed.
    async fn write_body(&self, x: &mut Exchange, chain: &mut BodyChain) -> Result<(), EngineError> {
        let rate = send_rate::of(x);
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
    fn settle(&self, x: &Exchange) {
        if x.response.trailers.is_empty() || self.is_faulty() {
            return self.finish();
        }
        self.end_with_trailers(x);
    }

    /// Waits until the rate allows something, unless the client leaves meanwhile; how much.
    async fn allowed(&self, x: &mut Exchange, rate: SendRate, sent: u64) -> Result<u64, EngineError> {
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

    /// Waits until at most `below` bytes of the body are left to send; of 0, until the stream's end has left, too, which may
    /// be a frame of its own.
    async fn drained(&self, x: &mut Exchange, below: u64) -> Result<(), EngineError> {
        let done = || if below == 0 { !self.is_unsent() } else { self.pending() <= below };
        if done() {
            return Ok(());
        }
        self.until(x, done).await
    }

    /// Waits for what the client has to do, as long as it takes something in each `send_timeout`: of this stream, or of others whose
    /// turn is before this one's.
    async fn until(&self, x: &mut Exchange, done: impl Fn() -> bool) -> Result<(), EngineError> {
        self.wake();
        let interval = x.plan.core.send_timeout;
        let timer = Timer::new();
        timer.arm(interval);
        self.core(|core| core.patience = interval);
        let (mut left, mut taken) = (self.pending(), self.taken_by_all());
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
            let is_late = timer.poll_expired(cx).is_ready();
            if is_late && self.taken_by_all().is_some_and(|now| taken.replace(now) != Some(now)) {
                timer.arm(interval);
                // Registers the waker; the interval is not over at once.
                let _armed = timer.poll_expired(cx);
            } else if is_late {
                self.give_up();
                return Poll::Ready(Err(EngineError::from(weir_rt::SendError::TimedOut)));
            }
            self.core(|core| core.writer = Some(cx.waker().clone()));
            Poll::Pending
        });
        let shared = x.shared.clone();
        shared.waiting_for(WaitKind::ClientWrite, Box::pin(drained)).await
    }
}

/// Files whose rate is limited are read in pieces of this many bytes.
const READ: u64 = 32 * 1024;
/// ... and of at least so many, however little the client allows.
pub(super) const LEAST: u64 = 4 * 1024;
