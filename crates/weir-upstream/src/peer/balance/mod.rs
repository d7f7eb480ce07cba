//! The choice of a peer.

mod hash;
mod ip_hash;
mod least_conn;
mod least_time;
mod random;
mod round_robin;

use std::sync::Arc;

pub(crate) use least_time::long_body;
pub use round_robin::RoundRobin;

use crate::peer::members::UpstreamMembers;
use crate::peer::response_time::TimeMeasure;
use crate::peer::{Peer, PeerOutcome};
use weir_engine::exchange::Exchange;
use weir_engine::variable::ValueScript;

/// How an upstream chooses.
#[derive(Clone, Debug, Default)]
pub enum BalanceMethod {
    /// Smooth weighted round robin, nginx's default.
    #[default]
    RoundRobin,
    /// The one with the fewest connections for its weight.
    LeastConn,
    /// The one whose responses come soonest, for its weight and its connections.
    LeastTime(TimeMeasure),
    /// By the client's address.
    IpHash,
    /// By a key: spread evenly.
    Hash(ValueScript),
    /// By a key: a server that comes or goes moves few keys (ketama).
    Consistent(ValueScript),
    /// By chance; of two the one with fewer connections.
    Random {
        /// `two`: which of two drawn is asked.
        two: Option<RandomPreference>,
    },
}

/// Which of two servers is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomPreference {
    /// The one with fewer connections for its weight.
    Conns,
    /// The one whose responses come sooner, for its weight and its connections.
    Time(TimeMeasure),
}

impl BalanceMethod {
    /// The same members for one worker, which counts the references to them alone. What is known of each is all
    /// workers'.
    pub(crate) fn members_of_worker(&self, members: &UpstreamMembers) -> UpstreamMembers {
        let own = |peer: &Arc<Peer>| {
            let is_compared = peer.max_conns > 0 || self.compares_connections();
            Arc::new(Peer { is_compared, ..Peer::clone(peer) })
        };
        UpstreamMembers {
            primary: members.primary.iter().map(own).collect(),
            backup: members.backup.iter().map(own).collect(),
        }
    }

    /// Whether it knows of backups and of shares that change.
    pub(crate) fn is_general(&self) -> bool {
        matches!(self, BalanceMethod::RoundRobin | BalanceMethod::LeastConn | BalanceMethod::LeastTime(_))
    }

    /// Whether it asks how many connections of all workers are in use.
    pub(crate) fn compares_connections(&self) -> bool {
        matches!(
            self,
            BalanceMethod::LeastConn | BalanceMethod::LeastTime(_) | BalanceMethod::Random { two: Some(_) }
        )
    }

    /// The directive that chooses the method, with the parameters that distinguish it: `least_time header`. It is
    /// `round_robin` where no directive does.
    pub fn name(&self) -> &'static str {
        match self {
            BalanceMethod::RoundRobin => "round_robin",
            BalanceMethod::LeastConn => "least_conn",
            BalanceMethod::LeastTime(TimeMeasure { peak: true, .. }) => "peak_ewma",
            BalanceMethod::LeastTime(TimeMeasure { upload: true, .. }) => "least_time upload",
            BalanceMethod::LeastTime(TimeMeasure { last_byte: true, .. }) => "least_time last_byte",
            BalanceMethod::LeastTime(_) => "least_time header",
            BalanceMethod::IpHash => "ip_hash",
            BalanceMethod::Hash(_) => "hash",
            BalanceMethod::Consistent(_) => "hash consistent",
            BalanceMethod::Random { two: None } => "random",
            BalanceMethod::Random { two: Some(RandomPreference::Conns) } => "random two",
            BalanceMethod::Random {
                two: Some(RandomPreference::Time(TimeMeasure { last_byte: true, .. })),
            } => "random two least_time=last_byte",
            BalanceMethod::Random { two: Some(RandomPreference::Time(_)) } => "random two least_time=header",
        }
    }

    /// What it wants to know of the time that responses take.
    pub(crate) fn timed(&self) -> Option<&TimeMeasure> {
        match self {
            BalanceMethod::LeastTime(timed)
            | BalanceMethod::Random { two: Some(RandomPreference::Time(timed)) } => Some(timed),
            _ => None,
        }
    }

    /// A worker's chooser among `members`.
    pub fn balancer(&self, members: &Arc<UpstreamMembers>) -> Box<dyn Balancer> {
        match self {
            BalanceMethod::RoundRobin => Box::new(RoundRobin::new(members)),
            BalanceMethod::LeastConn => Box::new(least_conn::LeastConn::new(members)),
            BalanceMethod::LeastTime(timed) => Box::new(least_time::LeastTime::new(members, *timed)),
            BalanceMethod::IpHash => Box::new(ip_hash::IpHash::new(members)),
            BalanceMethod::Hash(key) => Box::new(hash::HashBalancer::new(members, key)),
            BalanceMethod::Consistent(key) => Box::new(hash::ConsistentHash::new(members, key)),
            BalanceMethod::Random { two } => Box::new(random::RandomBalancer::new(members, *two)),
        }
    }
}

/// A worker's chooser. It is made again when the members change.
pub trait Balancer {
    /// The next peer for `x` that is available and not among `tried`; counts as chosen ([`Peer::chosen`]).
    fn pick(&mut self, x: &mut Exchange, tried: &mut TriedPeers) -> Option<Arc<Peer>>;

    /// How a try of `peer` ended.
    fn done(&mut self, _peer: &Arc<Peer>, _outcome: PeerOutcome) {}
}

/// The peers that a request has asked already, and how far its method has come.
#[derive(Debug, Default)]
pub struct TriedPeers {
    /// The first, which mostly is the only one, and the others.
    first: Option<Arc<Peer>>,
    others: Vec<Arc<Peer>>,
    /// The key of a hash, once it was computed.
    key: Option<Box<[u8]>>,
    hash: u32,
    rehash: u32,
    /// Draws that found no peer; after [`DRAWS`] it is round robin's turn.
    draws: u32,
}

/// How often a method draws before it leaves the choice to round robin, as in nginx.
const DRAWS: u32 = 20;

impl TriedPeers {
    /// True when `peer` was tried already.
    pub fn contains(&self, peer: &Arc<Peer>) -> bool {
        // One whose settings were changed meanwhile is still the same.
        self.first.iter().chain(&self.others).any(|tried| Arc::ptr_eq(&tried.state, &peer.state))
    }

    /// Notes that it is asked now.
    pub fn add(&mut self, peer: &Arc<Peer>) {
        match &self.first {
            None => self.first = Some(peer.clone()),
            Some(_) => self.others.push(peer.clone()),
        }
    }

    /// Number of peers that were tried.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// Whether the request has tried no peer yet.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// Takes `peer` if it may be asked, and counts it as chosen.
fn take(peer: &Arc<Peer>, tried: &mut TriedPeers, now: u64) -> bool {
    if tried.contains(peer) || !peer.is_available(now) {
        return false;
    }
    peer.chosen(now);
    tried.add(peer);
    true
}

/// Draws by the places that `next` names until one is a peer's that may be asked; `None`: it is round robin's turn.
fn draw(
    members: &UpstreamMembers,
    tried: &mut TriedPeers,
    mut next: impl FnMut(&mut TriedPeers) -> u32,
) -> Option<Arc<Peer>> {
    let now = now();
    while tried.draws <= DRAWS {
        let place = next(tried) % total(members);
        if let Some(peer) = by_weight(members, place)
            && take(peer, tried, now)
        {
            return Some(peer.clone());
        }
        tried.draws += 1;
    }
    None
}

/// The primary peer at `place` when each has as many places as weight.
fn by_weight(members: &UpstreamMembers, place: u32) -> Option<&Arc<Peer>> {
    let mut left = place;
    members.primary.iter().find(|peer| {
        let here = left < peer.weight;
        left = left.wrapping_sub(if here { 0 } else { peer.weight });
        here
    })
}

/// The places of all primary peers together.
fn total(members: &UpstreamMembers) -> u32 {
    members.primary.iter().map(|peer| peer.weight).sum::<u32>().max(1)
}

/// Seconds of the clock that failures are counted by.
pub(crate) fn now() -> u64 {
    weir_rt::clock::unix_time().0
}
