//! `random` and `random two`: by chance, each peer as often as its weight says; of two drawn the one with fewer
//! connections, or whose responses come sooner. Workers that know nothing of each other spread load well this way.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Balancer, DRAWS, RandomPreference, RoundRobin, TriedPeers, by_weight, draw, now, take, total};
use crate::peer::members::UpstreamMembers;
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;

pub(super) struct RandomBalancer {
    members: Arc<UpstreamMembers>,
    two: Option<RandomPreference>,
    turn: RoundRobin,
    /// The state of an xorshift generator.
    seed: u64,
}

impl RandomBalancer {
    pub(super) fn new(members: &Arc<UpstreamMembers>, two: Option<RandomPreference>) -> RandomBalancer {
        let seed = weir_rt::clock::monotonic_ns() | 1;
        RandomBalancer { members: members.clone(), two, turn: RoundRobin::new(members), seed }
    }

    fn draw_peer(&mut self, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        let seed = &mut self.seed;
        draw(&self.members, tried, |_| step(seed))
    }

    fn better_of_two(&mut self, better: RandomPreference, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        let now = now();
        let mut first: Option<Arc<Peer>> = None;
        while tried.draws <= DRAWS {
            let place = step(&mut self.seed) % total(&self.members);
            let drawn = by_weight(&self.members, place).cloned();
            let drawn = drawn.filter(|peer| !tried.contains(peer) && peer.is_available(now));
            match (&first, drawn) {
                (None, Some(peer)) => first = Some(peer),
                (Some(first), Some(second)) if !Arc::ptr_eq(first, &second) => {
                    let chosen = if better.prefers(first, &second) { first.clone() } else { second };
                    return take(&chosen, tried, now).then_some(chosen);
                }
                _ => tried.draws += 1,
            }
        }
        first.filter(|peer| take(peer, tried, now))
    }
}

impl Balancer for RandomBalancer {
    fn pick(&mut self, _x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        if self.members.primary.len() < 2 {
            return self.turn.any(tried);
        }
        let drawn = match self.two {
            Some(better) => self.better_of_two(better, tried),
            None => self.draw_peer(tried),
        };
        drawn.or_else(|| self.turn.any(tried))
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.turn.done(peer, outcome);
    }
}

impl RandomPreference {
    /// Whether `first` is at least as good as `second`.
    fn prefers(self, first: &Peer, second: &Peer) -> bool {
        let load =
            |peer: &Peer, other: &Peer| u64::from(peer.state.conns.load(Relaxed)) * u64::from(other.weight);
        match self {
            RandomPreference::Conns => load(first, second) <= load(second, first),
            RandomPreference::Time(timed) => timed.prefers(first, second, weir_rt::clock::monotonic_ns()),
        }
    }
}

/// The next number of an xorshift generator.
fn step(seed: &mut u64) -> u32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 33) as u32
}
