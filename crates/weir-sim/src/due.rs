//! What is due to a request, whatever happens to upstream servers.

use crate::framed_oracle;
use crate::outcome::{Outcome, whole_fault};
use crate::plan::{Plan, UPSTREAM_PORTS};
use crate::request::{RequestPlan, Target, UpstreamManner};
use crate::upstream_tls_oracle;

/// What is wrong with a response that has come whole.
pub(crate) fn whole_is_due(plan: &Plan, request: &RequestPlan, outcome: &Outcome<'_>) -> Option<String> {
    if outcome.status == 502 && may_be_refused(plan, request) {
        return None;
    }
    if request.target == Target::Watched && matches!(outcome.status, 502 | 504) && outcome.body == "page" {
        // Whether that is due the health of the servers says.
        return None;
    }
    if request.target == Target::Routed {
        // What is due is judged by the response as it has come.
        return None;
    }
    if let Target::Framed(ask) = request.target {
        return framed_oracle::whole_fault(plan, request, &ask, outcome);
    }
    // Where a body goes to the end of the connection, nobody knows that it was to go on.
    let goes_to_end = matches!(request.target.manner(), Some((UpstreamManner::ToClose, _)));
    if is_hit(plan, request) && goes_to_end || upstream_tls_oracle::is_excused(plan, request, outcome) {
        return None;
    }
    match &plan.upstream_tls {
        Some(tls) if matches!(request.target, Target::Secret(..)) => {
            upstream_tls_oracle::whole_fault(tls, request, outcome)
        }
        _ => whole_fault(request.target, outcome),
    }
}

/// Whether a request may meet upstream servers that are not there.
pub(crate) fn is_hit(plan: &Plan, request: &RequestPlan) -> bool {
    let servers = servers_of(plan, request.target);
    plan.downs.iter().any(|down| servers.contains(&down.server))
}

/// Whether what an upstream server sends may end early for a reason that is not the request's own.
pub(crate) fn may_be_cut_off(plan: &Plan, request: &RequestPlan) -> bool {
    is_hit(plan, request)
        || framed_oracle::may_be_cut_off(plan, request.target)
        || upstream_tls_oracle::may_be_hit(plan, request)
}

/// The upstream servers that may respond, by their places among all of them.
fn servers_of(plan: &Plan, target: Target) -> Vec<usize> {
    let first = UPSTREAM_PORTS.len();
    match (target, &plan.upstream_tls) {
        (Target::Secret(door, ..), Some(tls)) => {
            tls.trusted(door).into_iter().map(|server| first + server).collect()
        }
        (Target::Watched | Target::Framed(_), _) => Vec::new(),
        (target, _) if target.is_proxied() => (0..first).collect(),
        _ => Vec::new(),
    }
}

/// Whether none of the servers may be there for a request: all of them fall, or it can't be sent twice.
fn may_be_refused(plan: &Plan, request: &RequestPlan) -> bool {
    let fall = |server| plan.downs.iter().any(|down| down.server == server);
    let is_repeatable = request.may_be_repeated(plan.settings.request_buffering);
    is_hit(plan, request) && (!is_repeatable || servers_of(plan, request.target).into_iter().all(fall))
}
