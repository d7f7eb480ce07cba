//! The stream that a request came on, of HTTP/2 or HTTP/3.

use std::task::{Context, Poll};

use weir_rt::Timer;

use super::h2::H2Stream;
use super::h3::H3Stream;
use super::multiplexed::RequestStream;
use super::tunnel_bytes::TunnelBytes;
use crate::body::{BodyBuf, BodyChain};
use crate::error::EngineError;
use crate::exchange::Exchange;

/// A stream of a connection that has many.
#[derive(Clone)]
pub enum ClientStream {
    /// Of HTTP/2.
    H2(H2Stream),
    /// Of HTTP/3.
    H3(H3Stream),
}

/// The same of either.
macro_rules! of_either {
    ($self:ident, $stream:ident => $what:expr) => {
        match $self {
            ClientStream::H2($stream) => $what,
            ClientStream::H3($stream) => $what,
        }
    };
}

impl ClientStream {
    /// Bytes of its frames so far.
    pub(crate) fn written(&self) -> u64 {
        of_either!(self, stream => stream.written())
    }

    /// Bytes of content in them.
    pub(crate) fn content(&self) -> u64 {
        of_either!(self, stream => stream.content())
    }

    /// The client has reset it, or is gone.
    pub(crate) fn is_closed(&self) -> bool {
        of_either!(self, stream => stream.is_closed())
    }

    /// Something of the response is still to be composed, or can't be any more.
    pub fn is_unsent(&self) -> bool {
        of_either!(self, stream => stream.is_unsent())
    }

    /// Its client took nothing for longer than `send_timeout`: what is left of the response is not waited for.
    pub(crate) fn is_given_up(&self) -> bool {
        of_either!(self, stream => stream.is_given_up())
    }

    /// All of the request's content has come and was taken.
    pub(crate) fn is_ended(&self) -> bool {
        of_either!(self, stream => stream.is_ended())
    }

    /// The request's content is not what its head announced.
    pub(crate) fn is_broken(&self) -> bool {
        of_either!(self, stream => stream.is_broken())
    }

    /// Whatever the response, the stream ends as one that broke the protocol: the client was too slow.
    pub(crate) fn blame(&self) {
        of_either!(self, stream => stream.blame());
    }

    /// Composes the response's head; how many bytes it has.
    pub(crate) fn head(&self, x: &Exchange) -> u64 {
        of_either!(self, stream => stream.head(x))
    }

    /// Composes the head of an interim response.
    pub fn interim<'f>(&self, status: u16, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        of_either!(self, stream => stream.interim(status, fields));
    }

    /// Sends a whole body, which is in memory.
    pub(crate) fn whole(&self, buf: BodyBuf) {
        of_either!(self, stream => stream.whole(buf));
    }

    /// Nothing follows what was given. Does nothing where the head has ended the stream.
    pub(crate) fn finish(&self) {
        of_either!(self, stream => stream.finish());
    }

    /// Gives a part of the body, at the client's pace and the rate that is allowed.
    pub(crate) async fn write_body(
        &self,
        x: &mut Exchange,
        chain: &mut BodyChain,
    ) -> Result<(), EngineError> {
        of_either!(self, stream => stream.write_body(x, chain).await)
    }

    /// Nothing follows: ends the stream, with trailers if there are some.
    pub(crate) fn settle(&self, x: &Exchange) {
        of_either!(self, stream => stream.settle(x));
    }

    /// Waits until at most `below` bytes of the body are left to send; of 0, until the stream's end has left, too, which may
    /// be a frame of its own.
    pub(crate) async fn drained(&self, x: &mut Exchange, below: u64) -> Result<(), EngineError> {
        of_either!(self, stream => stream.drained(x, below).await)
    }

    /// The request's content is not wanted: what comes of it is dropped.
    pub(crate) fn discard(&self) {
        of_either!(self, stream => stream.discard());
    }

    /// The request's content is being read: more of it may come ahead.
    pub(crate) fn read_ahead(&self) {
        match self {
            ClientStream::H2(stream) => stream.read_ahead(),
            // Its window is as wide as it may be from the beginning.
            ClientStream::H3(_) => {}
        }
    }

    /// A piece of the request's content, if one has come.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        of_either!(self, stream => stream.take())
    }

    /// Waits until something happens to the request's content; `false`: the timer expired.
    pub(crate) async fn readable(&self, timer: &Timer) -> bool {
        of_either!(self, stream => stream.readable(timer).await)
    }

    /// Why nothing more reaches the client.
    pub(crate) fn why_gone(&self) -> EngineError {
        of_either!(self, stream => stream.why_gone())
    }

    /// Ready once the client has given the request up.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        of_either!(self, stream => stream.poll_gone(cx))
    }

    /// What the client sends next through a tunnel.
    pub(crate) fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<TunnelBytes> {
        of_either!(self, stream => stream.poll_bytes(cx))
    }

    /// Sends bytes through a tunnel.
    pub(crate) fn pass(&self, bytes: Vec<u8>) {
        of_either!(self, stream => stream.offer(BodyBuf::Bytes(bytes)));
    }

    /// Ready when at most `below` bytes are left to send; `false`: nothing can be sent any more.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, below: u64) -> Poll<bool> {
        of_either!(self, stream => stream.poll_room(cx, below))
    }
}
