//! What must hold when a simulation is over, whatever its seed.
//!
//! The journal is the world's: `r` a request and what became of it, `u` a request as an upstream server saw it, `c` a
//! client's end, `bad` what is wrong in itself. With the access log and the error log that is all there is to judge by.

use std::collections::{BTreeMap, BTreeSet};

use crate::crash::CRASHED;
use crate::due::{may_be_cut_off, whole_is_due};
use crate::file_oracle::{FileExcuses, left_fault, lost_lines};
use crate::files::SimFileKind;
use crate::flow_oracle;
use crate::framed_oracle;
use crate::health_oracle;
use crate::http2_oracle as http2;
use crate::limit_oracle;
use crate::outcome::{Outcome, journal_words, secret_fault};
use crate::plan::{ClientEnd, ClientPlan, OBJECTS, OPEN_FILES_MOST, Plan, RequestPlan, Target};
use crate::routing_oracle;
use crate::session_oracle::StreamOutcomes;
use crate::time_oracle;
use crate::tunnel_oracle::TunnelOutcomes;
use crate::tunnels::plan::TUNNELS_KEPT;
use crate::upstream_tls_oracle;

/// What a simulation has left.
#[derive(Clone, Debug, Default)]
pub struct Remains {
    /// What the world has noted.
    pub journal: String,
    /// The access log, in the format of [`Plan::configuration`].
    pub access_log: String,
    /// The error log.
    pub error_log: String,
    /// The program's exit status; `None`: it was killed, for it did not end.
    pub status: Option<i32>,
    /// Files in the directories that the server writes to, by paths from its own.
    pub left: Vec<String>,
    /// What the server that was started after a crash has left; its logs are those that it has written itself.
    pub second: Option<Box<Remains>>,
}

/// What is wrong, a sentence each; empty: nothing is.
pub fn faults(plan: &Plan, remains: &Remains) -> Vec<String> {
    let mut excuses = FileExcuses::of(&remains.journal);
    let Some(crash) = plan.crash else { return faults_of(plan, remains, &excuses) };
    excuses.has_crashed = remains.status == Some(CRASHED);
    let mut faults = faults_of(plan, remains, &excuses);
    let after = FileExcuses {
        follows_crash: excuses.has_crashed,
        follows_power_loss: excuses.has_crashed && crash.is_power_loss,
        ..FileExcuses::default()
    };
    match &remains.second {
        Some(second) => {
            let second = faults_of(&plan.after_crash(), second, &after);
            faults.extend(second.into_iter().map(|fault| format!("after the crash: {fault}")));
        }
        None => faults.push("no server was started after the crash".to_owned()),
    }
    faults
}

/// What is wrong with one server's time.
fn faults_of(plan: &Plan, remains: &Remains, excuses: &FileExcuses) -> Vec<String> {
    let mut faults = Vec::new();
    if remains.status != Some(0) && !excuses.has_crashed {
        faults.push(format!("the program's end: {:?}", remains.status));
    }
    if !remains.journal.lines().any(|line| line.starts_with("end ")) {
        faults.push("the simulation did not come to its end".to_owned());
    }
    for line in remains.error_log.lines() {
        let is_ours = plan.accept_faults > 0 && line.contains("accept4() failed") || excuses.explains(line);
        if !is_ours && ["[emerg]", "[alert]", "[crit]", "panicked"].iter().any(|word| line.contains(word)) {
            faults.push(format!("the error log: {line}"));
        }
    }
    for line in remains.journal.lines() {
        if line.starts_with("bad ")
            || line.starts_with("u ") && line.ends_with("wrong")
            || line.contains("refused=")
        {
            faults.push(line.to_owned());
        }
    }
    let outcomes: Vec<Outcome<'_>> = remains.journal.lines().filter_map(Outcome::parse).collect();
    // A status 500 of a file that has failed ends its connection, too.
    let ends = |one: &&Outcome<'_>| one.end == "cut" || one.end == "whole" && one.status == 500;
    let cut: BTreeSet<u64> = outcomes.iter().filter(ends).map(|one| one.number).collect();
    for outcome in &outcomes {
        if outcome.end == "none" && follows_one_of(&cut, plan, outcome.number) {
            // The end of the one that was cut is the connection's.
            continue;
        }
        let fault = fault_of(plan, outcome);
        let fault = fault.and_then(|fault| match plan.request(outcome.number) {
            Some(request) => {
                let connection = connection_of(&remains.access_log, outcome.number);
                excuses.judged(request, outcome, &remains.error_log, connection, fault)
            }
            None => Some(fault),
        });
        faults.extend(fault.map(|fault| format!("{fault}: {outcome:?}")));
    }
    let sessions = StreamOutcomes::of(&remains.journal);
    faults.extend(sessions.faults(plan, excuses.has_crashed));
    faults.extend(TunnelOutcomes::of(&remains.journal).faults(plan, excuses.has_crashed));
    faults.extend(remains.journal.lines().find_map(|line| remainder_fault(plan, line)));
    faults.extend(remains.journal.lines().filter_map(|line| routing_oracle::fault(plan, line)));
    faults.extend(remains.journal.lines().filter_map(|line| framed_oracle::trailer_fault(plan, line)));
    faults.extend(upstream_tls_oracle::faults(plan, &remains.journal, &outcomes));
    faults.extend(remains.journal.lines().filter_map(|line| http2::connection_fault(plan, line)));
    faults.extend(limit_oracle::faults(plan, &outcomes, excuses.has_crashed));
    // After a crash the lengths of the log that the world notes are not those of the second server's own lines.
    let is_in_order = !excuses.has_crashed && !excuses.follows_crash;
    if is_in_order && !excuses.has(SimFileKind::ErrorLog) {
        faults.extend(health_oracle::faults(plan, &remains.journal, &remains.error_log));
    }
    if !excuses.has_crashed {
        faults.extend(log_faults(plan, &outcomes, &sessions, remains, excuses));
        faults.extend(left_fault(plan, excuses, &remains.left));
    }
    faults
}

/// The number of the connection that a request's line of the access log has.
fn connection_of(log: &str, number: u64) -> Option<&str> {
    let begin = format!("{number} ");
    let line = log.lines().find(|line| line.starts_with(&begin) && line.ends_with(" ."))?;
    line.split(' ').nth(4)
}

/// Whether the connection has had one of these requests before.
fn follows_one_of(cut: &BTreeSet<u64>, plan: &Plan, number: u64) -> bool {
    let client = find(plan, number).map(|(client, _)| client);
    client.is_some_and(|client| {
        client.requests.iter().any(|one| one.number < number && cut.contains(&one.number))
    })
}

/// What is wrong with what became of a request.
fn fault_of(plan: &Plan, outcome: &Outcome<'_>) -> Option<String> {
    if let Some((client, stream)) = plan.http2.find(outcome.number) {
        return http2::fault_of(plan, client, stream, outcome);
    }
    let Some((client, request)) = find(plan, outcome.number) else {
        return Some("nobody has asked this".to_owned());
    };
    if let Some(fault) = secret_fault(plan, request.target, client.tls.as_ref(), outcome) {
        return fault;
    }
    if outcome.why == "waited" {
        return Some("no response within 100 s".to_owned());
    }
    match outcome.end {
        "whole" => whole_is_due(plan, request, outcome)
            .or_else(|| time_oracle::fault(plan, client, request, outcome)),
        "cut" if may_be_cut_off(plan, request) => None,
        "cut" if may_be_cut(client, request, outcome) => None,
        "none" if may_be_dropped(plan, client, request, outcome) => None,
        end => Some(format!("a response that must be whole is {end} ({:?})", request.target)),
    }
}

/// What is left when all clients have been gone for long: connections that are kept to upstream servers, by each worker,
/// and the descriptors that were there before the first client.
fn remainder_fault(plan: &Plan, line: &str) -> Option<String> {
    let words = journal_words(line.strip_prefix("left ")?);
    let number = |name: &str| words.get(name)?.parse::<u64>().ok();
    let (accepted, connected) = (number("accepted")?, number("connected")?);
    let (files, before, cached) = (number("files")?, number("before")?, number("cached")?);
    let groups = 1 + u64::from(plan.upstream_tls.is_some());
    // A check may be under way to each of the servers.
    let checked = if plan.health.check.is_some() { plan.health.servers.len() as u64 } else { 0 };
    let tunnels = if plan.tunnels.settings.is_some() { TUNNELS_KEPT } else { 0 };
    let others = tunnels + plan.framed.map_or(0, |framed| framed.keepalive);
    let kept = checked + plan.settings.workers * (groups * plan.settings.upstream_keepalive + others);
    // Each worker may have an object's file open.
    let objects = if plan.cache.is_some() { plan.settings.workers * OBJECTS.len() as u64 } else { 0 };
    let open = if plan.settings.keeps_files { plan.settings.workers * OPEN_FILES_MOST } else { 0 };
    let most = before + connected + cached + open;
    let is_good = accepted == 0 && connected <= kept && cached <= objects && files <= most;
    (!is_good).then(|| {
        format!("at most {kept} connections to upstream servers should be left, and no files: {line}")
    })
}

/// Whether a response may end before its end.
fn may_be_cut(client: &ClientPlan, request: &RequestPlan, outcome: &Outcome<'_>) -> bool {
    outcome.why == "left" || request.target.is_cut() || is_taken_for_gone(client, request)
}

/// Whether a request may have no response at all.
fn may_be_dropped(plan: &Plan, client: &ClientPlan, request: &RequestPlan, outcome: &Outcome<'_>) -> bool {
    if outcome.why == "left" || is_taken_for_gone(client, request) {
        return true;
    }
    // A connection that was used before may be closed while the next request is on its way; none of it was read then.
    let idles = request.pause / 1_000_000 >= plan.settings.keepalive_seconds.max(1) - 1;
    let ends = plan.settings.keepalive_requests < 20 || plan.settings.keepalive_seconds == 0;
    outcome.at > 1 && (ends || idles || !plan.reloads.is_empty())
}

/// A client that has shut down its sending side counts as gone while an upstream server is asked or `limit_req` holds
/// its request, as in nginx; what it has asked after that goes with it.
fn is_taken_for_gone(client: &ClientPlan, request: &RequestPlan) -> bool {
    let waits = |one: &RequestPlan| one.target.is_proxied() || matches!(one.target, Target::Paced(_));
    client.end == ClientEnd::HalfCloses
        && client.requests.iter().any(|one| one.number <= request.number && waits(one))
}

fn find(plan: &Plan, number: u64) -> Option<(&ClientPlan, &RequestPlan)> {
    plan.clients
        .iter()
        .flat_map(|client| client.requests.iter().map(move |request| (client, request)))
        .find(|(_, request)| request.number == number)
}

/// Every request that was responded to has one line, with its status, and none has two.
fn log_faults(
    plan: &Plan,
    outcomes: &[Outcome<'_>],
    sessions: &StreamOutcomes<'_>,
    remains: &Remains,
    excuses: &FileExcuses,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut lines: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    let has_failed = excuses.has(SimFileKind::AccessLog);
    for line in remains.access_log.lines() {
        if line.is_empty() && excuses.follows_crash {
            // It ends what was left of a line.
            continue;
        }
        if !line.ends_with(" .") {
            // Of a line that is lost something may be there.
            if !has_failed {
                faults.push(format!("a part of a line in the access log: {line:?}"));
            }
            continue;
        }
        let number = line.split(' ').next().and_then(|word| word.parse().ok());
        if let Some(number) = number {
            lines.entry(number).or_default().push(line);
        }
    }
    // Those that must be there, and those that may.
    let (of_sessions, mut missing) = sessions.log_faults(plan, &remains.access_log, has_failed);
    faults.extend(of_sessions);
    faults.extend(flow_oracle::faults(plan, &remains.journal, &remains.access_log, has_failed));
    let tunnels = TunnelOutcomes::of(&remains.journal).logged(plan, &remains.access_log, has_failed);
    faults.extend(tunnels.faults);
    missing += tunnels.missing;
    let mut open = tunnels.open;
    for outcome in outcomes {
        let logged = lines.remove(&outcome.number).unwrap_or_default();
        // The head of a request that is refused for its length is not read: its line has no number.
        let is_large = plan.http2.find(outcome.number).is_some_and(|(_, one)| one.is_large());
        if logged.is_empty() && (is_large || routing_oracle::has_no_number(plan, outcome.number)) {
            // Nor can one that is lost be told from one that is there.
            open += u64::from(has_failed);
            continue;
        }
        match (&logged[..], outcome.end) {
            ([line], "whole") => {
                let words: Vec<&str> = line.split(' ').collect();
                // The connection may end in the same breath as the response.
                let may_break = plan.http2.find(outcome.number).is_some_and(|(client, _)| client.is_rough());
                let is_complete = words.get(2) == Some(&"OK") || may_break;
                if words.get(1) != Some(&outcome.status.to_string().as_str()) || !is_complete {
                    faults.push(format!("logged as {line:?}: {outcome:?}"));
                }
            }
            ([_], "cut" | "none") => (),
            ([], "cut" | "none") => open += 1,
            ([], "whole") if has_failed => missing += 1,
            _ => faults.push(format!("{} lines in the access log: {outcome:?}", logged.len())),
        }
    }
    let lost = lost_lines(&remains.error_log);
    // Of each write that has failed the last line may be there but for its end.
    let most = if excuses.has(SimFileKind::ErrorLog) {
        u64::MAX
    } else {
        missing + open + excuses.count(SimFileKind::AccessLog)
    };
    if !(missing..=most).contains(&lost) {
        faults
            .push(format!("{missing} to {most} lines are missing in the access log, {lost} are said to be"));
    }
    faults.extend(lines.into_iter().map(|(number, lines)| format!("logged, not asked: {number}: {lines:?}")));
    faults
}

/// What two runs of a seed must have in common: the journal with its hashes, and the logs without process numbers.
pub fn same_in_all_runs(remains: &Remains, directory: &str) -> String {
    let mut text = remains.journal.clone();
    text.push_str(&remains.access_log);
    for line in remains.error_log.lines() {
        text.push_str(&line.replace(directory, ""));
        text.push('\n');
    }
    if let Some(second) = &remains.second {
        text.push_str(&same_in_all_runs(second, directory));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FilePlan;
    use crate::health::HealthPlan;
    use crate::http2::plan::Http2Plan;
    use crate::plan::{BodyPlan, Settings, UpstreamManner};
    use crate::routing::plan::RoutingPlan;
    use crate::sessions::plan::StreamPlan;
    use crate::tunnels::plan::TunnelsPlan;

    fn plan(target: Target) -> Plan {
        let settings = Settings {
            workers: 1,
            keepalive_requests: 1000,
            keepalive_seconds: 75,
            buffering: true,
            request_buffering: true,
            upstream_keepalive: 0,
            buffer: 4096,
            gzip: false,
            sendfile: true,
            reuseport: false,
            logs_own: false,
            balance: "",
            keeps_files: false,
            buffers_log: false,
        };
        let body = Some(BodyPlan { length: 1, is_chunked: false });
        let requests =
            vec![RequestPlan { number: 1, target, body, is_pipelined: false, pause: 0, ask: None }];
        let end = ClientEnd::Closes;
        let client = ClientPlan {
            at: 0,
            requests,
            piece: 1,
            gap: 0,
            read_gap: 0,
            read: 1,
            is_narrow: false,
            end,
            tls: None,
            is_passed: false,
        };
        Plan {
            seed: 0,
            settings,
            clients: vec![client],
            reloads: Vec::new(),
            downs: Vec::new(),
            accept_faults: 0,
            http2: Http2Plan::default(),
            tls: None,
            cache: None,
            files: FilePlan::default(),
            crash: None,
            stream: StreamPlan::default(),
            routing: RoutingPlan::default(),
            upstream_tls: None,
            limits: None,
            health: HealthPlan::default(),
            tunnels: TunnelsPlan::default(),
            framed: None,
        }
    }

    fn left(outcome: &str, log: &str) -> Remains {
        let journal = format!("{outcome}\nend us=1 hash=0 order=0\n");
        Remains {
            journal,
            access_log: if log.is_empty() { String::new() } else { format!("{log}\n") },
            status: Some(0),
            ..Remains::default()
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        let whole = "r n=1 at=1 status=200 end=whole body=right why=- us=1";
        let cut = Target::Proxied(UpstreamManner::CutShort, 10);
        for (target, outcome, log, is_good) in [
            (Target::Return, whole, "1 200 OK 4 .", true),
            (Target::Return, whole, "", false),
            (Target::Return, whole, "1 200 OK 4 .\n1 200 OK 4 .", false),
            (Target::Return, whole, "1 499 - 4 .", false),
            (Target::Return, whole, "1 200 OK 4 .\n2 200 OK 4 .", false),
            (Target::Return, "r n=1 at=1 status=200 end=whole body=wrong why=- us=1", "1 200 OK 4 .", false),
            (Target::Return, "r n=1 at=1 status=502 end=whole body=page why=- us=1", "1 502 OK 4 .", false),
            (Target::Return, "r n=1 at=1 status=0 end=none body=- why=closed us=1", "", false),
            (Target::Return, "r n=1 at=1 status=0 end=none body=- why=left us=1", "", true),
            (Target::Return, "r n=1 at=1 status=200 end=cut body=- why=reset us=1", "1 200 - 4 .", false),
            (Target::Return, "r n=1 at=1 status=0 end=none body=- why=waited us=1", "", false),
            (cut, "r n=1 at=1 status=200 end=cut body=- why=closed us=1", "1 200 - 4 .", true),
            (cut, whole, "1 200 OK 4 .", false),
            (Target::Return, "bad client=0 a response that nobody has asked for", "", false),
            (Target::Return, "u n=1 body=1 wrong", "", false),
        ] {
            let faults = faults(&plan(target), &left(outcome, log));
            assert_eq!(faults.is_empty(), is_good, "{outcome} {log:?}: {faults:?}");
        }
    }

    #[test]
    fn a_crash_or_a_word_in_the_log_is_a_fault() {
        let good = left("r n=1 at=1 status=200 end=whole body=right why=- us=1", "1 200 OK 4 .");
        let alert = Remains { error_log: "2030/01/01 [alert] 1#1: x\n".to_owned(), ..good.clone() };
        let crashed = Remains { status: None, ..good.clone() };
        let unfinished = Remains { journal: String::new(), access_log: String::new(), ..good };
        for remains in [alert, crashed, unfinished] {
            assert_eq!(faults(&plan(Target::Return), &remains).len(), 1, "{remains:?}");
        }
    }

    #[test]
    fn a_number_that_differs_between_runs_is_seen() {
        let said = |number: u32| Remains {
            error_log: format!("2030/03/17 17:46:43 [info] 4242#4245: /one/{number}\n"),
            ..Remains::default()
        };
        let same = |number| same_in_all_runs(&said(number), "/one");
        assert_ne!(same(18_894), same(19_392));
        assert_eq!(same_in_all_runs(&said(1), "/one/1"), same_in_all_runs(&said(2), "/one/2"));
    }
}
