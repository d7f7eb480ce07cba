//! The choice of a peer.

mod round_robin;

use std::sync::Arc;

pub use round_robin::RoundRobin;

use super::group::{Members, Peer};
use crate::exchange::Exchange;

/// How a group chooses.
#[derive(Clone, Debug, Default)]
pub enum Method {
    /// Smooth weighted round robin, nginx's default.
    #[default]
    RoundRobin,
}

impl Method {
    /// A worker's chooser among `members`.
    pub fn balancer(&self, members: &Arc<Members>) -> Box<dyn Balancer> {
        match self {
            Method::RoundRobin => Box::new(RoundRobin::new(members)),
        }
    }
}

/// A worker's chooser. It is made anew when the members change.
pub trait Balancer {
    /// The next peer for `x` that is available and not among `tried`; counts as chosen ([`Peer::chosen`]).
    fn pick(&mut self, x: &mut Exchange, tried: &mut Tried) -> Option<Arc<Peer>>;

    /// How a try of `peer` ended.
    fn done(&mut self, _peer: &Arc<Peer>, _failed: bool) {}
}

/// The peers that a request has asked already.
#[derive(Debug, Default)]
pub struct Tried(Vec<Arc<Peer>>);

impl Tried {
    /// Whether `peer` was asked.
    pub fn contains(&self, peer: &Arc<Peer>) -> bool {
        self.0.iter().any(|tried| Arc::ptr_eq(tried, peer))
    }

    /// Notes that it is asked now.
    pub fn add(&mut self, peer: &Arc<Peer>) {
        self.0.push(peer.clone());
    }

    /// How many were asked.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Seconds of the clock that failures are counted by.
pub(crate) fn now() -> u64 {
    weir_rt::clock::unix_time().0
}
