//! What must hold of WebSockets.
//!
//! Journal: `wc` is what became of a client, `ws` what a server has seen of a request for one. The bytes of both are of their
//! WebSocket's number, in order, in any case. Where nothing of the plan is against it all of them come, both ways: the end of one
//! side is passed on at once, and does not end the other's. One in which nothing moves ends after `proxy_read_timeout`.

use std::collections::BTreeMap;

use crate::outcome::JournalRecord;
use crate::plan::{CLIENTS_BEGIN, Plan};
use crate::session_oracle::{end_fault, is_whole, number_at};
use crate::tunnels::plan::{TUNNEL_SERVERS, TunnelPlan, TunnelReply, TunnelSideEnd};

/// Longer than a time-out, by what goes beside it.
const SLACK: u64 = 1_500_000;
/// `proxy_connect_timeout`, microseconds.
const CONNECT: u64 = 3_000_000;
/// A side sends what is left at once after so many pieces.
const MOST_PIECES: u64 = 300;

/// What became of WebSockets, as the journal has it.
pub(crate) struct TunnelOutcomes<'j> {
    clients: BTreeMap<u64, JournalRecord<'j>>,
    visits: BTreeMap<u64, Vec<JournalRecord<'j>>>,
}

/// What the access log says of WebSockets.
#[derive(Debug, Default)]
pub(crate) struct LoggedTunnels {
    pub(crate) faults: Vec<String>,
    /// Lines that must be there and are not.
    pub(crate) missing: u64,
    /// Lines that may be there and are not.
    pub(crate) open: u64,
}

impl<'j> TunnelOutcomes<'j> {
    /// Those of a journal.
    pub(crate) fn of(journal: &'j str) -> TunnelOutcomes<'j> {
        let records =
            |begin: &'static str| journal.lines().filter_map(move |line| JournalRecord::of(line, begin));
        let clients = records("wc ").map(|record| (record.number("n"), record)).collect();
        let mut visits: BTreeMap<u64, Vec<JournalRecord<'j>>> = BTreeMap::new();
        for record in records("ws ") {
            visits.entry(record.number("n")).or_default().push(record);
        }
        TunnelOutcomes { clients, visits }
    }

    /// What is wrong with their bytes and ends. After a crash nobody knows how they would have ended.
    pub(crate) fn faults(&self, plan: &Plan, has_crashed: bool) -> Vec<String> {
        let records = self.clients.values().chain(self.visits.values().flatten());
        let wrong = records.filter(|record| record.word("body") != "right");
        let mut faults: Vec<String> =
            wrong.map(|record| format!("bytes that are not the WebSocket's: {:?}", record.0)).collect();
        if has_crashed {
            return faults;
        }
        for tunnel in &plan.tunnels.tunnels {
            let client = self.clients.get(&tunnel.number);
            let visits = self.visits.get(&tunnel.number).map_or(&[][..], Vec::as_slice);
            let fault = match client {
                None => Some("nothing became of it".to_owned()),
                Some(client) => fault_of(plan, tunnel, client, visits),
            };
            faults.extend(fault.map(|fault| {
                let visits: Vec<_> = visits.iter().map(|one| &one.0).collect();
                let client = client.map(|client| &client.0);
                format!("WebSocket {}: {fault}: {tunnel:?} {client:?} {visits:?}", tunnel.number)
            }));
        }
        faults
    }

    /// Each request for one has one line in the log, with its status. `may_miss`: calls of the log's file have failed.
    pub(crate) fn logged(&self, plan: &Plan, log: &str, may_miss: bool) -> LoggedTunnels {
        let mut logged = LoggedTunnels::default();
        let mut lines: BTreeMap<u64, Vec<Vec<&str>>> = BTreeMap::new();
        for line in log.lines().filter(|line| line.starts_with("T ") && line.ends_with(" .")) {
            let words: Vec<&str> = line.split(' ').collect();
            lines.entry(number_at(&words, 1)).or_default().push(words);
        }
        for tunnel in &plan.tunnels.tunnels {
            let Some(client) = self.clients.get(&tunnel.number) else { continue };
            let status = client.number("status");
            match lines.remove(&tunnel.number).unwrap_or_default().as_slice() {
                [words] if status == 0 || number_at(words, 2) == status => {
                    let fault = self.line_fault(tunnel, client, words);
                    logged.faults.extend(fault.map(|fault| {
                        format!("WebSocket {}: {fault}: {words:?} {:?}", tunnel.number, client.0)
                    }));
                }
                // A request that has not come whole may have none.
                [] if status == 0 => logged.open += 1,
                [] if may_miss => logged.missing += 1,
                several => {
                    let fault = format!("logged as {several:?}: {:?}", client.0);
                    logged.faults.push(format!("WebSocket {}: {fault}", tunnel.number));
                }
            }
        }
        logged
            .faults
            .extend(lines.into_values().map(|lines| format!("logged, nobody's WebSocket: {lines:?}")));
        logged
    }

    /// What is wrong with the counts of a line.
    fn line_fault(
        &self,
        tunnel: &TunnelPlan,
        client: &JournalRecord<'_>,
        words: &[&str],
    ) -> Option<&'static str> {
        let visits = self.visits.get(&tunnel.number)?;
        let ([visit], 101) = (visits.as_slice(), number_at(words, 2)) else { return None };
        // Of several servers the last one had the bytes.
        let of_servers = words.get(4..words.len() - 1).unwrap_or_default().join(" ");
        let (to, from) = of_servers.split_once('|').unwrap_or_default();
        let last = |list: &str| list.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (to_client, to_server, from_server): (u64, u64, u64) =
            (number_at(words, 3), last(to), last(from));
        let head = tunnel.acceptance().len() as u64;
        match () {
            () if to_client < client.number("got") => Some("less was sent than has come"),
            () if to_server < visit.number("got") => Some("less was passed on than has come"),
            () if from_server > head + tunnel.server.sends => Some("more was received than was sent"),
            () if from_server < client.number("got") => Some("less was received than was passed on"),
            () => None,
        }
    }
}

fn fault_of(
    plan: &Plan,
    tunnel: &TunnelPlan,
    client: &JournalRecord<'_>,
    visits: &[JournalRecord<'_>],
) -> Option<String> {
    if client.word("why") == "waited" {
        return Some("it does not end".to_owned());
    }
    if may_fail(plan, tunnel) {
        return None;
    }
    let (status, timeout) = (client.number("status"), plan.tunnels.timeout());
    let most = if status == 101 { timeout } else { TUNNEL_SERVERS.len() as u64 * (timeout + CONNECT) };
    let is_late = |record: &JournalRecord<'_>| record.number("idle") > most + SLACK;
    let stalls = |end| end == TunnelSideEnd::Stalls;
    if is_late(client) && !stalls(tunnel.client.end) {
        return Some("it has waited for longer than its time-outs".to_owned());
    }
    if visits.iter().any(is_late) && !stalls(tunnel.server.end) {
        return Some("a server has waited for longer than its time-outs".to_owned());
    }
    let accepting = visits.iter().filter(|visit| visit.word("accepts") == "1").count();
    // One that leaves before it has responded is tried again.
    let may_leave = matches!(tunnel.server.end, TunnelSideEnd::Leaves(_));
    if accepting > 1 && plan.tunnels.downs.is_empty() && !may_leave {
        return Some("two servers had it".to_owned());
    }
    if !due_statuses(plan, tunnel, client).contains(&status) {
        return Some(format!("status {status}"));
    }
    (status == 101).then(|| promise_fault(plan, tunnel, client, visits)).flatten()
}

/// The statuses that may come; 0: none has.
fn due_statuses(plan: &Plan, tunnel: &TunnelPlan, client: &JournalRecord<'_>) -> Vec<u64> {
    let mut all = vec![match tunnel.reply {
        TunnelReply::Accepts => 101,
        TunnelReply::Refuses => 403,
        TunnelReply::Closes => 502,
        TunnelReply::Silent => 504,
    }];
    // Bytes that come after a request that is refused are no request.
    let is_confused = tunnel.is_early && tunnel.reply != TunnelReply::Accepts;
    // A refusal that is cut off has no end.
    let is_cut = tunnel.reply == TunnelReply::Refuses && !plan.tunnels.downs.is_empty();
    if client.word("why") == "left" || is_confused || is_cut {
        all.push(0);
    }
    if !plan.tunnels.downs.is_empty() || matches!(tunnel.server.end, TunnelSideEnd::Leaves(_)) {
        all.extend([502, 504]);
    }
    all
}

/// What was to come and has not.
fn promise_fault(
    plan: &Plan,
    tunnel: &TunnelPlan,
    client: &JournalRecord<'_>,
    visits: &[JournalRecord<'_>],
) -> Option<String> {
    let Some(visit) = visits.iter().rfind(|visit| visit.word("accepts") == "1") else {
        return Some("nobody has accepted it".to_owned());
    };
    let end = visit.number("t").max(client.number("t"));
    if !is_calm(plan, tunnel) || meets_down(plan, tunnel, end) {
        return None;
    }
    let (there, back) = (is_whole(visit), is_whole(client));
    if !there || !back {
        return Some(format!("there came whole: forth {there}, back {back}"));
    }
    if let Some(fault) = end_fault(client, visit) {
        return Some(fault.to_owned());
    }
    let stays = |end| end == TunnelSideEnd::Stays;
    let ends = !stays(tunnel.client.end) || !stays(tunnel.server.end);
    let is_late = client.number("idle") + SLACK / 6 > plan.tunnels.timeout();
    (ends && is_late).then(|| "an end was not passed on".to_owned())
}

/// Whether nothing of the plan is against its passing whole.
fn is_calm(plan: &Plan, tunnel: &TunnelPlan) -> bool {
    // Nothing of a record of TLS passes before its last piece has come.
    let is_steady = tunnel.tls.is_none() || tunnel.client.gap * MOST_PIECES < plan.tunnels.timeout();
    is_steady && tunnel.client.is_calm() && tunnel.server.is_calm()
}

/// Whether a server was not there while it was open, which ended at `end`.
fn meets_down(plan: &Plan, tunnel: &TunnelPlan, end: u64) -> bool {
    plan.tunnels.downs.iter().any(|down| tunnel.at <= down.to && CLIENTS_BEGIN + down.from <= end)
}

/// Whether TLS may fail.
fn may_fail(plan: &Plan, tunnel: &TunnelPlan) -> bool {
    plan.tls.zip(tunnel.tls).is_some_and(|(server, client)| client.may_fail(&server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnels::plan::{TunnelDoor, TunnelSettings, TunnelSidePlan, TunnelsPlan};

    fn plan(end: TunnelSideEnd) -> Plan {
        let side = TunnelSidePlan {
            sends: 20,
            late: 0,
            piece: 100,
            gap: 0,
            read_gap: 0,
            read: 100,
            is_narrow: false,
            end: TunnelSideEnd::HalfCloses,
        };
        let tunnel = TunnelPlan {
            number: 1,
            at: 100,
            door: TunnelDoor::Own,
            tls: None,
            is_early: false,
            follows: false,
            reply: TunnelReply::Accepts,
            client: side,
            server: TunnelSidePlan { end, ..side },
        };
        let settings = Some(TunnelSettings { timeout: 6, buffering: true });
        let tunnels = TunnelsPlan { settings, tunnels: vec![tunnel], downs: Vec::new() };
        Plan { tunnels, tls: None, ..Plan::new(0) }
    }

    fn journal(got: u64, heard: u64) -> String {
        format!(
            "wc n=1 status=101 tls=- why=closed got={got} of=20 body=right sent=1 idle=5 got_at=0 ended_at=2000200 heard_at=2000300 t=2000300\n\
             ws n=1 server=0 accepts=1 why=closed got=20 of=20 body=right sent=1 idle=5 got_at=0 ended_at=2000100 heard_at={heard} t={heard}\n"
        )
    }

    #[test]
    fn bytes_that_have_not_come_and_ends_that_come_late_are_faults() {
        let calm = plan(TunnelSideEnd::HalfCloses);
        let faults = |plan: &Plan, got, heard| TunnelOutcomes::of(&journal(got, heard)).faults(plan, false);
        assert_eq!(faults(&calm, 20, 2_000_300), Vec::<String>::new());
        assert_eq!((faults(&calm, 19, 2_000_300).len(), faults(&calm, 20, 3_000_201).len()), (1, 1));
        let breaks = plan(TunnelSideEnd::Breaks(10));
        assert_eq!(faults(&breaks, 10, 2_000_300), Vec::<String>::new());
    }

    #[test]
    fn each_has_one_line() {
        let (plan, journal) = (plan(TunnelSideEnd::Closes), journal(20, 2_000_300));
        let faults = |log: &str| TunnelOutcomes::of(&journal).logged(&plan, log, false).faults.len();
        let line = "T 1 101 500 300|130 .\n";
        assert_eq!(faults(line), 0);
        for wrong in ["", &line.repeat(2), "T 1 502 500 300|130 .\n", "T 1 101 500 300|9000 .\n"] {
            assert_eq!(faults(wrong), 1, "{wrong}");
        }
        assert_eq!(faults(&format!("{line}T 2 101 500 300|130 .\n")), 1);
    }
}
