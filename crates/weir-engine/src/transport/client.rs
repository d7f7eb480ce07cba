//! A request's client, whatever the protocol: whether it is still there, and bytes to and from it once they are no HTTP.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::flow::ClientFlow;
use super::streams::ClientStream;
pub use super::tunnel_bytes::TunnelBytes;
use super::wire::ClientWire;
use crate::error::EngineError;

/// The client of a request.
#[derive(Clone)]
pub enum ClientSide {
    /// Of a connection of its own.
    H1(Rc<ClientWire>),
    /// Of one of a connection's streams.
    Stream(ClientStream),
    /// Of datagrams.
    Flow(Rc<ClientFlow>),
}

impl ClientSide {
    /// Ready once the client has left or given the request up; registers the polling task else.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            ClientSide::H1(wire) => wire.stream.poll_closed(cx).map(|_| ()),
            ClientSide::Stream(stream) => stream.poll_gone(cx),
            ClientSide::Flow(flow) => flow.poll_gone(cx),
        }
    }

    /// Why it is gone: it has left, or its connection was ended from here ([`ClientWire::why_gone`]).
    pub(crate) fn why_gone(&self) -> EngineError {
        match self {
            ClientSide::H1(wire) => wire.why_gone(),
            ClientSide::Stream(stream) => stream.why_gone(),
            ClientSide::Flow(_) => EngineError::CLIENT_CLOSED,
        }
    }

    /// The client's connection, for a handler that speaks another protocol than HTTP on it; `None` for a stream
    /// of HTTP/2 or HTTP/3, and for datagrams.
    pub fn stream(&self) -> Option<&weir_rt::Stream> {
        match self {
            ClientSide::H1(wire) => Some(&wire.stream),
            ClientSide::Stream(_) | ClientSide::Flow(_) => None,
        }
    }

    /// Hands over what was written for it so far, before another writer does.
    pub fn flush(&self) {
        if let ClientSide::H1(wire) = self {
            wire.flush();
        }
    }

    /// Bytes that the client has sent already and that are not taken yet; does not wait.
    pub fn early(&self) -> Vec<u8> {
        match self {
            ClientSide::H1(wire) => wire.input.borrow_mut().take(),
            ClientSide::Stream(stream) => std::iter::from_fn(|| stream.take()).flatten().collect(),
            ClientSide::Flow(_) => Vec::new(),
        }
    }

    /// The next bytes that the client sends, of any protocol but datagrams, which are taken as such; ready when there are some, or
    /// when it has ended. `most`: so many at once, for a caller that expects many.
    pub fn poll_bytes(&self, cx: &mut Context<'_>, most: Option<usize>) -> Poll<TunnelBytes> {
        match self {
            ClientSide::H1(wire) => wire.poll_body(cx, None, most).map(TunnelBytes::from),
            ClientSide::Stream(stream) => stream.poll_bytes(cx),
            ClientSide::Flow(flow) => flow.poll_gone(cx).map(|()| TunnelBytes::End),
        }
    }

    /// Sends `bytes` to the client as they are, after what is queued for it.
    pub fn pass(&self, bytes: Vec<u8>) {
        match self {
            ClientSide::H1(wire) => wire.pass(bytes),
            ClientSide::Stream(stream) => stream.pass(bytes),
            ClientSide::Flow(flow) => drop(flow.send(std::iter::once(&bytes[..]))),
        }
    }

    /// Says that no more bytes come, after those that are on their way.
    pub fn end(&self) {
        match self {
            // One that is gone needs no end.
            ClientSide::H1(wire) => drop(wire.stream.shutdown_write()),
            ClientSide::Stream(stream) => stream.finish(),
            ClientSide::Flow(_) => {}
        }
    }

    /// Ready when at most `below` bytes are left to send; `false`: nothing can be sent any more.
    pub fn poll_room(&self, cx: &mut Context<'_>, below: u64) -> Poll<bool> {
        match self {
            ClientSide::H1(wire) => wire.stream.poll_drained(cx, below, None).map(|drained| drained.is_ok()),
            ClientSide::Stream(stream) => stream.poll_room(cx, below),
            ClientSide::Flow(_) => Poll::Ready(true),
        }
    }

    /// Waits until the client has left or given the request up.
    pub async fn gone(&self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }
}
