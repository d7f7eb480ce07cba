//! `hash key` and `hash key consistent`, with nginx's arithmetic: the same keys lead to the same servers there and
//! here. The second is compatible with Cache::Memcached::Fast, too.

use std::sync::Arc;

use super::{Balancer, DRAWS, RoundRobin, TriedPeers, draw};
use crate::peer::members::UpstreamMembers;
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;
use weir_engine::variable::ValueScript;

/// `hash key`
pub(super) struct HashBalancer {
    members: Arc<UpstreamMembers>,
    key: ValueScript,
    turn: RoundRobin,
}

impl HashBalancer {
    pub(super) fn new(members: &Arc<UpstreamMembers>, key: &ValueScript) -> HashBalancer {
        HashBalancer { members: members.clone(), key: key.clone(), turn: RoundRobin::new(members) }
    }
}

impl Balancer for HashBalancer {
    fn pick(&mut self, x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        compute(&self.key, x, tried);
        if self.members.primary.len() < 2 || tried.key.as_ref().is_none_or(|key| key.is_empty()) {
            return self.turn.any(tried);
        }
        let drawn = draw(&self.members, tried, |tried| {
            let mut crc = crc32fast::Hasher::new();
            if tried.rehash > 0 {
                crc.update(tried.rehash.to_string().as_bytes());
            }
            crc.update(tried.key.as_deref().unwrap_or_default());
            tried.hash = tried.hash.wrapping_add(crc.finalize() >> 16 & 0x7fff);
            tried.rehash += 1;
            tried.hash
        });
        drawn.or_else(|| self.turn.any(tried))
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.turn.done(peer, outcome);
    }
}

/// `hash key consistent`
pub(super) struct ConsistentHash {
    members: Arc<UpstreamMembers>,
    key: ValueScript,
    points: Vec<HashPoint>,
    turn: RoundRobin,
}

/// A point of the circle: keys up to `hash` belong to `server`.
struct HashPoint {
    hash: u32,
    /// An index of a peer whose server this is.
    server: usize,
}

impl ConsistentHash {
    pub(super) fn new(members: &Arc<UpstreamMembers>, key: &ValueScript) -> ConsistentHash {
        ConsistentHash {
            members: members.clone(),
            key: key.clone(),
            points: circle(&members.primary),
            turn: RoundRobin::new(members),
        }
    }
}

impl Balancer for ConsistentHash {
    fn pick(&mut self, x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>> {
        let first = tried.key.is_none();
        compute(&self.key, x, tried);
        let key = tried.key.as_deref().unwrap_or_default();
        if self.points.is_empty() || key.is_empty() {
            return self.turn.any(tried);
        }
        if first {
            let hash = crc32fast::hash(key);
            tried.hash = self.points.partition_point(|point| point.hash < hash) as u32;
        }
        while tried.draws <= DRAWS {
            let point = &self.points[tried.hash as usize % self.points.len()];
            let server = &self.members.primary[point.server].server;
            if let Some(peer) = self.turn.primary(tried, |peer| peer.server == *server) {
                return Some(peer);
            }
            tried.hash += 1;
            tried.draws += 1;
        }
        self.turn.any(tried)
    }

    fn done(&mut self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.turn.done(peer, outcome);
    }
}

fn compute(key: &ValueScript, x: &mut Exchange, tried: &mut TriedPeers) {
    if tried.key.is_none() {
        let value = key.value(x);
        tried.key = Some(x.text(&value).into());
    }
}

/// The points of all servers, 160 for each unit of weight. Of several in one place the first counts.
fn circle(peers: &[Arc<Peer>]) -> Vec<HashPoint> {
    let mut points = Vec::new();
    for (server, peer) in peers.iter().enumerate() {
        let (host, port) = parts(&peer.server);
        let mut base = crc32fast::Hasher::new();
        base.update(host.as_bytes());
        base.update(b"\0");
        base.update(port.as_bytes());
        let mut before = 0u32;
        for _ in 0..peer.weight * 160 {
            let mut crc = base.clone();
            crc.update(&before.to_le_bytes());
            before = crc.finalize();
            points.push(HashPoint { hash: before, server });
        }
    }
    points.sort_by_key(|point| point.hash);
    points.dedup_by_key(|point| point.hash);
    points
}

/// A server as written: its host and its port, if there is one.
fn parts(server: &str) -> (&str, &str) {
    if let Some(path) = server.get(..5).filter(|start| start.eq_ignore_ascii_case("unix:")) {
        return (&server[path.len()..], "");
    }
    match server.rfind(':') {
        Some(at) if server[at + 1..].bytes().all(|byte| byte.is_ascii_digit()) => {
            (&server[..at], &server[at + 1..])
        }
        _ => (server, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(count: u16) -> Vec<Arc<Peer>> {
        let peer = |at: u16| {
            let name = format!("127.0.0.1:{}", 8081 + at);
            Arc::new(Peer::plain(name.parse().expect("an address"), &name))
        };
        (0..count).map(peer).collect()
    }

    #[test]
    fn few_keys_move_when_a_server_comes() {
        let (three, four) = (circle(&peers(3)), circle(&peers(4)));
        let owner = |points: &[HashPoint], key: u32| {
            let hash = crc32fast::hash(&key.to_le_bytes());
            let at = points.partition_point(|point| point.hash < hash);
            points[at % points.len()].server
        };
        let moved = (0..10_000).filter(|key| owner(&three, *key) != owner(&four, *key)).count();
        assert!((1_800..3_200).contains(&moved), "{moved} of 10,000");
        assert!((0..10_000).all(|key| {
            let (old, new) = (owner(&three, key), owner(&four, key));
            old == new || new == 3
        }));
    }

    #[test]
    fn servers_in_parts() {
        assert_eq!(parts("a:80"), ("a", "80"));
        assert_eq!(parts("a"), ("a", ""));
        assert_eq!(parts("[::1]"), ("[::1]", ""));
        assert_eq!(parts("unix:/tmp/s"), ("/tmp/s", ""));
    }
}
