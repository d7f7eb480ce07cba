//! `least_conn`: the peer with the fewest connections for its weight; among equals, round robin.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Balancer, RoundRobin, TriedPeers, now};
use crate::peer::members::UpstreamMembers;
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;

pub(super) struct LeastConn {
    members: Arc<UpstreamMembers>,
    turn: RoundRobin,
}

impl LeastConn {
    pub(super) fn new(members: &Arc<UpstreamMembers>) -> LeastConn {
        LeastConn { members: members.clone(), turn: RoundRobin::new(members) }
    }
}

impl Balancer for LeastConn {
    fn pick(&mut self, _x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        let now = now();
        if self.members.primary.len() < 2 {
            return self.turn.any(tried);
        }
        // Connections of one against those of another, each for its weight: a cross product, no division.
        let less = |a: (u32, i64), b: (u32, i64)| i64::from(a.0) * b.1 < i64::from(b.0) * a.1;
        let load = |peer: &Peer| (peer.state.conns.load(Relaxed), peer.share());
        let free = self.members.primary.iter().filter(|peer| !tried.contains(peer) && peer.is_available(now));
        let least =
            free.map(|peer| load(peer)).reduce(|best, this| if less(this, best) { this } else { best });
        let Some(least) = least else { return self.turn.any(tried) };
        // Other workers count meanwhile: with none left that is as free as the least was, the next one in turn serves.
        self.turn.primary(tried, |peer| !less(least, load(peer))).or_else(|| self.turn.any(tried))
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.turn.done(peer, outcome);
    }
}
