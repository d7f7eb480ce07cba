//! `ip_hash`: a client's requests go to one peer, chosen by its address; of IPv4 the first three bytes count.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Balancer, RoundRobin, TriedPeers, draw};
use crate::peer::members::UpstreamMembers;
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;

pub(super) struct IpHash {
    members: Arc<UpstreamMembers>,
    turn: RoundRobin,
}

impl IpHash {
    pub(super) fn new(members: &Arc<UpstreamMembers>) -> IpHash {
        IpHash { members: members.clone(), turn: RoundRobin::new(members) }
    }
}

impl Balancer for IpHash {
    fn pick(&mut self, x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        if self.members.primary.len() < 2 {
            return self.turn.any(tried);
        }
        let (bytes, len) = address(x);
        if tried.key.is_none() {
            tried.key = Some(Box::default());
            tried.hash = 89;
        }
        let drawn = draw(&self.members, tried, |tried| {
            for byte in &bytes[..len] {
                tried.hash = (tried.hash * 113 + u32::from(*byte)) % 6271;
            }
            tried.hash
        });
        drawn.or_else(|| self.turn.any(tried))
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.turn.done(peer, outcome);
    }
}

/// The bytes of the client's address that count.
fn address(x: &Exchange) -> ([u8; 16], usize) {
    let mut bytes = [0; 16];
    match x.client().ip() {
        Some(IpAddr::V4(ip)) => {
            bytes[..4].copy_from_slice(&ip.octets());
            (bytes, 3)
        }
        Some(IpAddr::V6(ip)) => (ip.octets(), 16),
        None => (bytes, 3),
    }
}
