//! What a balancer of a module has decided for a request so far.

use std::rc::Rc;

use crate::block::balancer_hook::BalancerFailure;
use crate::config::failure_reason::AttemptFault;
use crate::connection::upstream_connection::OwnKeepalive;
use crate::location::upstream_location::UpstreamLocation;

/// What a chooser has decided for a request so far.
#[derive(Default)]
pub(crate) struct BalancerDecision {
    /// Number of times the chooser was asked.
    pub asked: u64,
    /// The last try was at a server that it named.
    pub(crate) named: bool,
    /// It was asked for the next try already, and there is no peer.
    pub(crate) nobody: bool,
    /// What became of the last try at a server that it named; `None` before the first.
    pub failure: Option<BalancerFailure>,
    /// What the location itself says, where time limits were set.
    pub(crate) base: Option<Rc<UpstreamLocation>>,
    pub(crate) limits: [Option<u64>; 3],
    /// TLS was turned off.
    pub(crate) plain: bool,
    /// How the connection of this try is kept alive.
    pub(crate) keep: Option<OwnKeepalive>,
}

impl BalancerDecision {
    /// A try has failed.
    pub(crate) fn failed(&mut self, fault: AttemptFault) {
        if self.named {
            let (next, status) = (!fault.reason.counts(), fault.reason.status());
            self.failure = Some(BalancerFailure { next, status });
        }
    }
}
