//! How long a response may take: no longer than what it waits for may, added up.

use crate::limits::LimitPlan;
use crate::outcome::Outcome;
use crate::plan::{ClientPlan, Plan, RequestPlan, UPSTREAM_PATIENCE};
use crate::request::{Target, UpstreamManner};

/// What is left for the server itself and for the network, microseconds.
const SPARE: u64 = 100_000;
/// `proxy_connect_timeout` of [`Plan::configuration`], microseconds.
const CONNECT: u64 = 3_000_000;
/// Servers that are asked at most for a request.
const TRIES: u64 = 2;

/// What is wrong with the time of a response to a client that sends and reads at once.
pub(crate) fn fault(
    plan: &Plan,
    client: &ClientPlan,
    request: &RequestPlan,
    outcome: &Outcome<'_>,
) -> Option<String> {
    // Who waits for the client, or for a response before this one, waits as long as those do.
    let is_quick = client.gap == 0 && client.read_gap == 0 && client.tls.is_none() && !client.is_passed;
    let is_alone = !request.is_pipelined && !follows_pipelined(client, request);
    if !is_quick || !is_alone || outcome.end != "whole" || plan.accept_faults > 0 {
        return None;
    }
    let (taken, most) = (outcome.time.1 - outcome.time.0, longest(plan, request.target) + SPARE);
    (taken > most).then(|| format!("it took {taken} us, at most {most} were due"))
}

/// Whether the request after it was sent with it: the client does not read before that is done.
fn follows_pipelined(client: &ClientPlan, request: &RequestPlan) -> bool {
    client.requests.iter().any(|one| one.number > request.number && one.is_pipelined)
}

/// What a response waits for, microseconds.
fn longest(plan: &Plan, target: Target) -> u64 {
    match target {
        Target::Return | Target::File(_) | Target::Routed => 0,
        Target::Lua(ms) | Target::Crowded(_, ms) => ms * 1000,
        Target::Paced(_) => plan.limits.as_ref().map_or(0, LimitPlan::longest_delay),
        // Each of its servers may let it wait.
        Target::Watched => plan.health.servers.len() as u64 * (CONNECT + UPSTREAM_PATIENCE * 1_000_000),
        // One that waits for another's response to be in the cache asks itself after `proxy_cache_lock_timeout`, 5 s.
        Target::Cached(_) => TRIES * (CONNECT + UPSTREAM_PATIENCE * 1_000_000) + 5_000_000,
        Target::Proxied(UpstreamManner::Length | UpstreamManner::Chunked, _) if plan.downs.is_empty() => 0,
        Target::Proxied(..) | Target::Secret(..) | Target::Framed(_) => {
            TRIES * (CONNECT + UPSTREAM_PATIENCE * 1_000_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::plan::ClientEnd;

    #[test]
    fn a_response_is_late_after_all_that_it_waits_for() {
        let mut plan = Plan { accept_faults: 0, downs: Vec::new(), limits: None, ..Plan::new(1) };
        let request = RequestPlan {
            number: 1,
            target: Target::Lua(20),
            is_pipelined: false,
            ..RequestPlan::drawn(&mut Draw::new(1), false, &mut 0)
        };
        let drawn = ClientPlan::drawn(&mut Draw::new(1), 1, &mut 0);
        let client = ClientPlan {
            requests: vec![request.clone()],
            gap: 0,
            read_gap: 0,
            end: ClientEnd::Closes,
            tls: None,
            is_passed: false,
            ..drawn
        };
        let outcome = |taken| Outcome {
            number: 1,
            at: 1,
            status: 200,
            end: "whole",
            body: "right",
            why: "-",
            time: (5, 5 + taken),
        };
        assert!(fault(&plan, &client, &request, &outcome(20_000 + SPARE)).is_none());
        assert!(fault(&plan, &client, &request, &outcome(20_001 + SPARE)).is_some());
        let slow = ClientPlan { gap: 10, ..client.clone() };
        assert!(
            fault(&plan, &slow, &request, &outcome(9_000_000)).is_none(),
            "who knows how long it has sent"
        );
        let silent = RequestPlan { target: Target::Proxied(UpstreamManner::Silent, 0), ..request.clone() };
        assert!(fault(&plan, &client, &silent, &outcome(14_000_000)).is_none());
        assert!(fault(&plan, &client, &silent, &outcome(21_000_000)).is_some());
        plan.accept_faults = 50;
        assert!(fault(&plan, &client, &request, &outcome(9_000_000)).is_none());
    }
}
