//! Smooth weighted round robin, in nginx's order: each choice adds every peer's effective weight to its current one,
//! takes the largest, and takes the total off it. A failure lowers the effective weight, each choice heals it by one.

use std::sync::Arc;

use super::{Balancer, TriedPeers, now};
use crate::peer::members::UpstreamMembers;
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;

/// A worker's turn among the peers.
pub struct RoundRobin {
    primary: Vec<RoundRobinTurn>,
    backup: Vec<RoundRobinTurn>,
}

struct RoundRobinTurn {
    peer: Arc<Peer>,
    effective: i64,
    current: i64,
}

impl RoundRobin {
    /// A turn that begins with each peer at its configured weight.
    pub fn new(members: &Arc<UpstreamMembers>) -> RoundRobin {
        let turns = |peers: &[Arc<Peer>]| {
            let turn = |peer: &Arc<Peer>| RoundRobinTurn {
                peer: peer.clone(),
                effective: i64::from(peer.weight),
                current: 0,
            };
            peers.iter().map(turn).collect()
        };
        RoundRobin { primary: turns(&members.primary), backup: turns(&members.backup) }
    }

    /// The next peer.
    pub(super) fn any(&mut self, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        self.next(tried, |_| true)
    }

    /// The next primary peer that `usable` allows; `None` without one.
    pub(super) fn primary(
        &mut self,
        tried: &mut TriedPeers,
        usable: impl Fn(&Peer) -> bool,
    ) -> Option<Arc<Peer>> {
        let now = now();
        let peer = choose(&mut self.primary, self.backup.is_empty(), tried, now, &usable)?;
        peer.chosen(now);
        tried.add(&peer);
        Some(peer)
    }

    /// The next peer that `usable` allows, primary ones first, backups after them; notes it in `tried`. `None` if every
    /// peer was tried, is unavailable, or is not usable.
    pub fn next(&mut self, tried: &mut TriedPeers, usable: impl Fn(&Peer) -> bool) -> Option<Arc<Peer>> {
        let now = now();
        let alone = self.backup.is_empty();
        for turns in [&mut self.primary, &mut self.backup] {
            if let Some(peer) = choose(turns, alone, tried, now, &usable) {
                peer.chosen(now);
                tried.add(&peer);
                return Some(peer);
            }
        }
        None
    }
}

fn choose(
    turns: &mut [RoundRobinTurn],
    alone: bool,
    tried: &TriedPeers,
    now: u64,
    usable: &impl Fn(&Peer) -> bool,
) -> Option<Arc<Peer>> {
    if let ([only], true) = (&mut *turns, alone) {
        // nginx asks a lone server however often it failed, unless there is a backup.
        let free = !only.peer.is_down()
            && !only.peer.drain
            && !only.peer.state.unhealthy.load(std::sync::atomic::Ordering::Relaxed)
            && (only.peer.max_conns == 0
                || only.peer.state.conns.load(std::sync::atomic::Ordering::Relaxed) < only.peer.max_conns);
        return (free && !tried.contains(&only.peer) && usable(&only.peer)).then(|| only.peer.clone());
    }
    let scaled = turns.iter().any(|turn| turn.peer.slow_start > 0);
    let mut total = 0;
    let mut best: Option<usize> = None;
    for at in 0..turns.len() {
        let turn = &mut turns[at];
        if tried.contains(&turn.peer) || !turn.peer.is_available(now) || !usable(&turn.peer) {
            continue;
        }
        // In 1024ths while it starts slowly: `slow_start` of one is the scale of all.
        let effective = if scaled {
            turn.effective.max(1) * turn.peer.share() / i64::from(turn.peer.weight)
        } else {
            turn.effective
        };
        turn.current += effective;
        total += effective;
        if turn.effective < i64::from(turn.peer.weight) {
            turn.effective += 1;
        }
        if best.is_none_or(|best| turns[at].current > turns[best].current) {
            best = Some(at);
        }
    }
    let best = &mut turns[best?];
    best.current -= total;
    Some(best.peer.clone())
}

impl Balancer for RoundRobin {
    fn pick(&mut self, _x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        self.next(tried, |_| true)
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        if outcome == PeerOutcome::Fine || peer.max_fails == 0 {
            return;
        }
        let mut turns = self.primary.iter_mut().chain(&mut self.backup);
        if let Some(turn) = turns.find(|turn| Arc::ptr_eq(&turn.peer.state, &peer.state)) {
            turn.effective = (turn.effective - i64::from(peer.weight / peer.max_fails)).max(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(weights: &[u32], picks: usize) -> String {
        let peer = |(at, weight): (usize, &u32)| {
            let addr = format!("127.0.0.1:{}", 8000 + at).parse().expect("an address");
            let name = char::from(b'a' + at as u8).to_string();
            Arc::new(Peer { weight: *weight, ..Peer::plain(addr, &name) })
        };
        let members =
            UpstreamMembers { primary: weights.iter().enumerate().map(peer).collect(), backup: Vec::new() };
        let mut turn = RoundRobin::new(&Arc::new(members));
        let next = |_| {
            turn.next(&mut TriedPeers::default(), |_| true).map_or_else(String::new, |p| p.server.to_string())
        };
        (0..picks).map(next).collect()
    }

    #[test]
    fn the_order_is_nginx_s() {
        assert_eq!(order(&[5, 1, 1], 7), "aabacaa");
        assert_eq!(order(&[1, 1, 1], 6), "abcabc");
        assert_eq!(order(&[2, 1], 6), "abaaba");
    }

    #[test]
    fn a_peer_is_tried_once_and_a_lone_one_though_it_failed() {
        let peer = Arc::new(Peer::plain("127.0.0.1:1".parse().expect("an address"), "a"));
        let mut turn =
            RoundRobin::new(&Arc::new(UpstreamMembers { primary: vec![peer.clone()], backup: Vec::new() }));
        peer.chosen(now());
        peer.fail(now());
        peer.done(PeerOutcome::Failed);
        let mut tried = TriedPeers::default();
        assert!(turn.next(&mut tried, |_| true).is_some());
        assert!(turn.next(&mut tried, |_| true).is_none());
    }
}
