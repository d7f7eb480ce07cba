//! A request that was composed for another one with the same head.

use std::rc::Rc;

use crate::connection::upstream_connection::UpstreamConnection;
use crate::location::upstream_location::UpstreamLocation;
use crate::peer::balance::TriedPeers;
use crate::protocol::OutgoingRequest;
use crate::request::attempt_state::RequestProgress;
use crate::worker_side::local_upstream::{LocalUpstream, PeerLease};
use weir_engine::exchange::Exchange;

/// A request as it is sent for all requests with one head.
pub(crate) struct KnownRequest {
    pub(crate) head: Box<[u8]>,
    /// The URI in it, for messages.
    uri: Box<[u8]>,
    keep_alive: bool,
}

impl KnownRequest {
    /// Of `out`, which has neither body nor framing.
    pub(crate) fn of(x: &Exchange, out: &OutgoingRequest) -> KnownRequest {
        KnownRequest {
            head: out.head.as_slice().into(),
            uri: x.arena.get(out.uri).into(),
            keep_alive: out.keep_alive,
        }
    }

    /// Whether its connection may be used again, as far as the request says.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// As if it had been composed for `x`, with `head` as the memory of its head.
    pub(crate) fn outgoing(&self, x: &mut Exchange, mut head: Vec<u8>) -> OutgoingRequest {
        head.extend_from_slice(&self.head);
        let uri = x.arena.push(&self.uri);
        OutgoingRequest { head, uri, keep_alive: self.keep_alive, ..OutgoingRequest::default() }
    }
}

/// A known request that a server has.
pub(crate) struct KnownFlight {
    pub(crate) up: Rc<UpstreamLocation>,
    pub(crate) request: Rc<KnownRequest>,
    pub(crate) upstream: Rc<LocalUpstream>,
    pub(crate) tried: TriedPeers,
    pub(crate) lease: PeerLease,
    pub(crate) connection: Box<UpstreamConnection>,
    /// Milliseconds of the worker's clock.
    pub(crate) began: u64,
    pub(crate) asked: RequestProgress,
}
