//! `least_time` and `peak_ewma`: the peer whose responses recently came soonest, for its weight and for what it has to
//! do.
//!
//! For each peer an average is maintained in which a sample counts for less the older it is, and which sinks while
//! there are no samples: a slow peer is asked again some time later. All workers feed the same averages by plain stores; what
//! two of them store at once is one sample less. With `least_time upload` requests with long bodies go where such
//! bodies got soonest: of each server it is known how long a connection takes and how many bytes arrive in what time,
//! whichever of the two ends and the line between them is to blame. With `peak_ewma` a slow response counts at once and
//! in full, and is forgotten slowly.

use std::sync::Arc;

use super::{Balancer, RoundRobin, TriedPeers, now};
use crate::peer::members::UpstreamMembers;
use crate::peer::response_time::{LONG, MEBIBYTE, TimeMeasure, cost};
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;

/// The length of the body of `x`, if it is long; of one that does not say so much is expected.
pub(crate) fn long_body(x: &Exchange) -> Option<u64> {
    let length = if x.request.head.chunked { Some(UNKNOWN) } else { x.request.head.content_length };
    length.filter(|length| *length >= LONG)
}

/// What is expected of a body that does not say how long it is.
const UNKNOWN: u64 = 16 * MEBIBYTE;

pub(super) struct LeastTime {
    timed: TimeMeasure,
    members: Arc<UpstreamMembers>,
    turn: RoundRobin,
}

impl LeastTime {
    pub(super) fn new(members: &Arc<UpstreamMembers>, timed: TimeMeasure) -> LeastTime {
        LeastTime { timed, members: members.clone(), turn: RoundRobin::new(members) }
    }
}

impl Balancer for LeastTime {
    fn pick(&mut self, x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        let primary = &self.members.primary;
        if primary.len() < 2 {
            return self.turn.any(tried);
        }
        let (second, clock) = (now(), weir_rt::clock::monotonic_ns());
        let upload = long_body(x).filter(|_| self.timed.upload);
        let time = |peer: &Peer| self.timed.time(peer, clock, upload);
        let free = || primary.iter().filter(|peer| !tried.contains(peer) && peer.is_available(second));
        // Of whom nothing is known is thought as well as of the best, and loaded like it.
        let best = free().filter_map(|peer| time(peer)).min().unwrap_or(0);
        let cost = |peer: &Peer| cost(peer, time(peer).unwrap_or(best));
        let Some(least) = free().map(|peer| cost(peer)).reduce(f64::min) else { return self.turn.any(tried) };
        // What differs by less than a twentieth is the same, and taken in turn.
        // Other workers count and measure meanwhile: no peer may be as good any more.
        self.turn.primary(tried, |peer| cost(peer) <= least * 1.05).or_else(|| self.turn.any(tried))
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.turn.done(peer, outcome);
    }
}
