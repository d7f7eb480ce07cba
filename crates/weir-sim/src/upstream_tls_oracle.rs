//! What must hold of upstream servers that speak TLS.
//!
//! The journal has a line `k` for each request that such a server has got, and a line `t` for each fault of its connections.

use crate::outcome::{JournalRecord, Outcome};
use crate::plan::{Plan, RequestPlan, Target, UPSTREAM_PORTS, UpstreamManner};
use crate::upstream_tls::UpstreamTlsPlan;

/// What is wrong with what servers have got, and with how many requests have failed.
pub(crate) fn faults(plan: &Plan, journal: &str, outcomes: &[Outcome<'_>]) -> Vec<String> {
    let Some(tls) = &plan.upstream_tls else { return Vec::new() };
    let mut faults: Vec<String> = journal.lines().filter_map(|line| visit_fault(tls, line)).collect();
    let hits = journal.lines().filter(|line| line.starts_with("t ")).count();
    let failed = |outcome: &&Outcome<'_>| {
        plan.request(outcome.number).is_some_and(|request| {
            is_excused(plan, request, outcome) && whole_fault(tls, request, outcome).is_some()
        })
    };
    let failed: Vec<u64> = outcomes.iter().filter(failed).map(|outcome| outcome.number).collect();
    // A server that falls leaves the other one alone, which a location may have no version of TLS in common with.
    let falls = plan.downs.iter().any(|down| down.server >= UPSTREAM_PORTS.len());
    if failed.len() > hits && !falls {
        faults.push(format!(
            "{hits} connections to upstream servers had faults, and more requests failed: {failed:?}"
        ));
    }
    faults
}

/// What is wrong with a request that has come to a server.
fn visit_fault(tls: &UpstreamTlsPlan, line: &str) -> Option<String> {
    let record = JournalRecord::of(line, "k ")?;
    let (which, server) = (record.number("door") as usize, record.number("server") as usize);
    let door = tls.doors.get(which)?;
    let is_trusted = tls.trusted(which).contains(&server);
    let may_resume = door.reuses && tls.servers.get(server).is_some_and(|server| server.resumes);
    let is_resumed = record.word("tls").contains("/Resumed");
    let wrong = match () {
        () if !is_trusted => "a server that must not be trusted has got a request",
        () if record.word("name") != door.said_name() => "a server was asked for under a wrong name",
        () if is_resumed && !may_resume => "a session was used again",
        () => return None,
    };
    Some(format!("{wrong}: {line}"))
}

/// What is wrong with a response that has come whole, where connections have no faults.
pub(crate) fn whole_fault(
    tls: &UpstreamTlsPlan,
    request: &RequestPlan,
    outcome: &Outcome<'_>,
) -> Option<String> {
    let Target::Secret(door, manner, _) = request.target else { return None };
    let trusted = tls.trusted(door).len();
    let is_page = outcome.body == "page";
    if trusted == 0 {
        let is_due = outcome.status == 502 && is_page;
        return (!is_due).then(|| "no server may be trusted, and a response came".to_owned());
    }
    // One has timed out, and the other one is not to be trusted.
    let ends_with_other = manner == UpstreamManner::Silent && trusted == 1;
    if ends_with_other && outcome.status == 502 && is_page {
        return None;
    }
    crate::outcome::whole_fault(request.target, outcome)
}

/// Whether a fault of a connection may be the reason of how a response has ended.
pub(crate) fn is_excused(plan: &Plan, request: &RequestPlan, outcome: &Outcome<'_>) -> bool {
    if !may_be_hit(plan, request) {
        return false;
    }
    let goes_to_end = matches!(request.target, Target::Secret(_, UpstreamManner::ToClose, _));
    let is_failed = matches!(outcome.status, 502 | 504) && outcome.body == "page";
    outcome.end == "whole" && (is_failed || goes_to_end && outcome.status == 200)
}

/// Whether a connection for the request may have a fault.
pub(crate) fn may_be_hit(plan: &Plan, request: &RequestPlan) -> bool {
    matches!(request.target, Target::Secret(..))
        && plan.upstream_tls.as_ref().is_some_and(|tls| tls.faults > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream_tls::{OTHER_NAME, UPSTREAM_NAME};

    /// A plan with two doors to one server that is trusted by the first alone, and a request for each.
    fn plan(faults: u64) -> (Plan, [u64; 2]) {
        let is_it = |plan: &Plan| {
            let Some(tls) = &plan.upstream_tls else { return false };
            let door = |which: usize| {
                plan.clients.iter().flat_map(|client| &client.requests).any(|request| {
                    matches!(request.target, Target::Secret(door, UpstreamManner::Length, _) if door == which)
                })
            };
            tls.trusted(0) == [0] && tls.trusted(1).is_empty() && door(0) && door(1)
        };
        let mut plan = (0..).map(Plan::new).find(is_it).expect("a seed has it");
        let of = |which: usize| {
            let requests = plan.clients.iter().flat_map(|client| &client.requests);
            let is_it = |request: &&RequestPlan| matches!(request.target, Target::Secret(door, UpstreamManner::Length, _) if door == which);
            requests.filter(is_it).map(|request| request.number).next().expect("it is there")
        };
        let numbers = [of(0), of(1)];
        plan.downs.clear();
        plan.upstream_tls.as_mut().expect("it is there").faults = faults;
        (plan, numbers)
    }

    #[test]
    fn what_is_wrong_with_servers_is_found() {
        let (plan, [good, bad]) = plan(100);
        let tls = plan.upstream_tls.as_ref().expect("it is there");
        let name = tls.doors[0].said_name();
        let wrong = [UPSTREAM_NAME, OTHER_NAME, "-"].into_iter().find(|one| *one != name).expect("three");
        let whole = |number: u64, status: u16, body: &str| {
            format!("r n={number} at=1 status={status} end=whole body={body} why=- us=1")
        };
        let (served, failed) = (whole(good, 200, "right"), whole(good, 502, "page"));
        for (journal, is_good) in [
            (format!("k n={good} server=0 door=0 name={name} tls=1.3/Full/-"), true),
            (format!("k n={good} server=1 door=0 name={name} tls=1.3/Full/-"), false),
            (format!("k n={bad} server=0 door=1 name={name} tls=1.3/Full/-"), false),
            (format!("k n={good} server=0 door=0 name={wrong} tls=1.3/Full/-"), false),
            (served, true),
            (failed.clone(), false),
            (format!("{failed}\nt server=2 fault=cut"), true),
        ] {
            let outcomes: Vec<_> = journal.lines().filter_map(Outcome::parse).collect();
            let faults = faults(&plan, &journal, &outcomes);
            assert_eq!(faults.is_empty(), is_good, "{journal}: {faults:?}");
        }
        let due = |number: u64, line: String| {
            let request = plan.request(number).expect("it asks");
            whole_fault(tls, request, &Outcome::parse(&line).expect("an outcome")).is_none()
        };
        assert!(due(bad, whole(bad, 502, "page")) && !due(bad, whole(bad, 200, "right")));
    }
}
