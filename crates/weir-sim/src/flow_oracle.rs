//! What must hold of datagrams: what the world sees of each is judged where it is sent (`weir-world/src/world/stream/flows.rs`), what is
//! left to judge are sums.

use std::collections::BTreeMap;

use crate::outcome::JournalRecord;
use crate::plan::Plan;
use crate::session_oracle::{logged_sessions, number_at, of_servers};
use crate::sessions::flows::{FlowDoor, FlowPlan};

/// The lines of the log about one client.
#[derive(Debug, Default)]
struct LoggedFlow {
    lines: u64,
    received: u64,
    sent: u64,
    to_servers: u64,
    statuses: Vec<u64>,
}

/// What is wrong, of a server that has not crashed. `may_miss`: calls of the log's file have failed.
pub(crate) fn faults(plan: &Plan, journal: &str, log: &str, may_miss: bool) -> Vec<String> {
    let flows = &plan.stream.flows;
    let mut faults = Vec::new();
    let mut logged = logged(log);
    for client in &flows.clients {
        let begin = format!("d c={} ", client.number);
        let record_of = |line| Some((line, JournalRecord::of(line, &begin)?));
        let Some((line, record)) = journal.lines().find_map(record_of) else {
            faults.push(format!("nothing became of flow {}", client.number));
            continue;
        };
        let logged = logged.remove(&client.port()).unwrap_or_default();
        let fault = promise_fault(plan, client, &record)
            .or_else(|| log_fault(plan, client, &record, &logged).filter(|_| !may_miss));
        faults.extend(fault.map(|fault| format!("flow {fault}: {line} {logged:?} {client:?}")));
    }
    faults
}

fn logged(log: &str) -> BTreeMap<u16, LoggedFlow> {
    let mut all: BTreeMap<u16, LoggedFlow> = BTreeMap::new();
    for words in logged_sessions(log).filter(|words| words.get(3) == Some(&"UDP")) {
        let number = |at| number_at(&words, at);
        let flow = all.entry(number(1) as u16).or_default();
        flow.lines += 1;
        flow.statuses.push(number(4));
        flow.received += number(5);
        flow.sent += number(6);
        let of_servers = of_servers(&words);
        let to = of_servers.split('|').next().unwrap_or_default();
        flow.to_servers += to.split(", ").filter_map(|word| word.parse::<u64>().ok()).sum::<u64>();
    }
    all
}

/// What was to be passed on and was not.
fn promise_fault(plan: &Plan, client: &FlowPlan, record: &JournalRecord<'_>) -> Option<String> {
    let flows = &plan.stream.flows;
    if !flows.is_calm() {
        return None;
    }
    let missing = record.number("unforwarded");
    if client.door != FlowDoor::Returned && missing > 0 {
        return Some(format!("{missing} datagrams were not passed on"));
    }
    if client.door == FlowDoor::Returned && record.number("returned") != record.number("came") {
        return Some("what is returned was not sent".to_owned());
    }
    let is_open = client.door != FlowDoor::Drawn || flows.settings.responses.is_none();
    let unreturned = record.number("unreturned");
    (is_open && unreturned > 0).then(|| format!("{unreturned} replies were not passed on"))
}

/// What the log says of the flow, and is not so.
fn log_fault(
    plan: &Plan,
    client: &FlowPlan,
    record: &JournalRecord<'_>,
    logged: &LoggedFlow,
) -> Option<String> {
    let is_calm = plan.stream.flows.is_calm();
    let came = record.number("came_bytes");
    if is_calm && client.door != FlowDoor::Returned && logged.received != came {
        return Some(format!("{} bytes logged as received, {came} came", logged.received));
    }
    let sent = record.number("returned_bytes");
    if logged.sent != sent {
        return Some(format!("{} bytes logged as sent, {sent} were", logged.sent));
    }
    let forwarded = record.number("forwarded_bytes");
    if client.door != FlowDoor::Returned && logged.to_servers != forwarded {
        return Some(format!("{} bytes logged as passed on, {forwarded} were", logged.to_servers));
    }
    if (logged.lines == 0) != (record.number("came") == 0) {
        return Some(format!("{} lines in the log", logged.lines));
    }
    let wrong = logged.statuses.iter().find(|status| ![200, 502].contains(*status));
    wrong.map(|status| format!("status {status}"))
}
