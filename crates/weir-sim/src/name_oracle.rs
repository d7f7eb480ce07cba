//! What must hold of names.
//!
//! Journal: `na` is a response with addresses that has come to the server, `nu` a request as one of the hosts has got it. A
//! host gets a request only as long as a response that names it is valid; a request for a name that has had no addresses for long
//! fails with 502, one for a name that has had some all the time does not.

use crate::names::plan::NamedAsk;
use crate::outcome::{JournalRecord, Outcome};
use crate::plan::{CLIENTS_BEGIN, Plan};
use crate::request::{RequestPlan, Target};

/// Between the choice of an address and the request that comes there, microseconds.
const SLACK: u64 = 1_500_000;
/// The longest TTL that is drawn, microseconds.
const LONGEST: u64 = 10_000_000;

/// What is wrong with requests that hosts have got.
pub(crate) fn faults(plan: &Plan, journal: &str) -> Vec<String> {
    let Some(settings) = plan.names.settings else { return Vec::new() };
    let records = |begin: &'static str| journal.lines().filter_map(move |line| JournalRecord::of(line, begin));
    let said: Vec<JournalRecord<'_>> = records("na ").collect();
    let mut faults = Vec::new();
    for got in records("nu ") {
        let (host, at) = (got.word("host"), got.number("t"));
        let is_valid = |one: &&JournalRecord<'_>| {
            // A TTL counts for a second at least.
            let seconds = settings.valid.unwrap_or(one.number("ttl").max(1));
            let since = one.number("t");
            one.word("name") == got.word("name")
                && one.word("hosts").split(',').any(|one| one == host)
                && (since..=since + seconds * 1_000_000 + SLACK).contains(&at)
        };
        if !said.iter().any(|one| is_valid(&one)) {
            faults.push(format!("a host whose address is not valid got a request: {:?}", got.0));
        }
    }
    faults
}

/// What is wrong with a response that has come whole.
pub(crate) fn whole_fault(
    plan: &Plan,
    request: &RequestPlan,
    ask: NamedAsk,
    outcome: &Outcome<'_>,
) -> Option<String> {
    let settings = plan.names.settings?;
    let longest = settings.valid.map_or(LONGEST, |seconds| seconds * 1_000_000);
    let before = longest + settings.timeout * 1_000_000 + SLACK;
    let began = |at: u64| at.saturating_sub(CLIENTS_BEGIN);
    let (from, to) = (began(outcome.time.0.saturating_sub(before)), began(outcome.time.1));
    let mut phases = plan.names.phases(ask.name, from, to);
    // Losses are made up for by asking again, as long as there is time.
    let is_calm = settings.lost == 0;
    let due: &[u16] = match phases.next().map(|phase| phase.reply.is_good()) {
        Some(true) if is_calm && phases.all(|phase| phase.reply.is_good()) => &[200],
        Some(false) if phases.all(|phase| !phase.reply.is_good()) => &[502],
        _ => &[200, 502],
    };
    if !due.contains(&outcome.status) {
        return Some(format!("status {} of {:?}", outcome.status, request.target));
    }
    let wanted = if outcome.status == 200 { "right" } else { "page" };
    (outcome.body != wanted).then(|| format!("the body of {:?}", request.target))
}

/// What a request waits for, microseconds.
pub(crate) fn longest_wait(plan: &Plan, target: Target) -> u64 {
    let is_named = matches!(target, Target::Named(_));
    plan.names.settings.filter(|_| is_named).map_or(0, |settings| settings.timeout * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::plan::{NameSettings, NamesPlan};

    #[test]
    fn a_host_gets_requests_as_long_as_its_address_is_valid() {
        let settings = NameSettings { valid: None, timeout: 2, lost: 0, doubled: 0, forged: 0, latency: 1 };
        let names = NamesPlan { settings: Some(settings), names: Vec::new() };
        let plan = Plan { names, ..Plan::new(0) };
        let count = |host: u64, at: u64| {
            let journal = format!("na name=1 hosts=0,2 ttl=3 t=1000\nnu n=9 name=1 host={host} t={at}\n");
            faults(&plan, &journal).len()
        };
        assert_eq!((count(2, 2000), count(0, 4_501_000), count(0, 4_501_001)), (0, 0, 1));
        assert_eq!((count(1, 2000), count(2, 999)), (1, 1));
    }
}
