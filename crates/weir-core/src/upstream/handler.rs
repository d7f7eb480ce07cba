//! The content handler of a location whose requests are passed on.

use std::rc::Rc;
use std::sync::Arc;

use super::attempt::Upstream;
use super::local::LocalGroup;
use super::protocol::Protocol;
use super::settings::Settings;
use super::sites::PeerSites;
use crate::exchange::Exchange;
use crate::phase::{Handler, LocalFuture, Verdict};
use crate::plan::PlanBuilder;

/// Where a location's requests go, on one worker.
pub trait Target: 'static {
    /// The group to ask for `x`.
    ///
    /// # Errors
    /// What the request ends with; it is logged.
    fn choose(&self, x: &mut Exchange) -> impl Future<Output = Result<Rc<LocalGroup>, Verdict>>;
}

/// Has the location's requests answered by the servers of `target`, which speak `protocol`: the content handler of the
/// module `name`.
pub fn pass_to(
    plan: &mut PlanBuilder<'_>,
    name: &'static str,
    protocol: impl Protocol + 'static,
    settings: Arc<Settings>,
    target: impl Target,
) {
    let sites = PeerSites::new(plan, name);
    let upstream = Upstream { protocol: Rc::new(protocol), settings, sites };
    plan.redirect_missing_slash();
    plan.content(name, Passed { upstream, target });
}

struct Passed<T> {
    upstream: Upstream,
    target: T,
}

impl<T: Target> Handler for Passed<T> {
    fn handle(&self, _x: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async move {
            match self.target.choose(x).await {
                Ok(group) => self.upstream.run(x, &group).await,
                Err(verdict) => verdict,
            }
        })
    }
}
