//! What must hold of servers that fail and recover: who is taken out has failed as often as the configuration asks for, gets nothing
//! for as long as it says, and then one try.
//!
//! The journal has `ha` for a request that has come to a server, with the time of its connection, `hs` for one that was responded to,
//! `hr` for a response that a client has whole, `hc` for a check that a server has passed. Each says how long the error log was then,
//! so that all of these and its lines are in one order. The program looks at its clock once a turn, and its log has seconds alone: what is
//! said of times here is a second longer or shorter than what is configured.

use crate::health::{HEALTH_NUMBERS, HEALTH_PATIENCE, HEALTH_PORTS, HealthPlan};
use crate::outcome::{JournalRecord, Outcome};
use crate::plan::{CLIENTS_BEGIN, Plan};

/// What has happened, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HealthEvent {
    /// A connection was made for a request.
    Asked {
        server: usize,
        request: u64,
    },
    /// A server has sent the whole response.
    Responded {
        server: usize,
        request: u64,
    },
    /// The client has it.
    Received {
        request: u64,
    },
    /// A server has passed a check.
    Passed {
        server: usize,
    },
    /// A try has failed; `late`: when the head had come.
    Failed {
        server: usize,
        request: u64,
        late: bool,
    },
    /// It was taken out for its failures.
    Disabled {
        server: usize,
    },
    /// A check has found it unwell, or well.
    Unhealthy {
        server: usize,
    },
    Healthy {
        server: usize,
    },
    /// No server was left for a request.
    NoneLeft {
        request: u64,
    },
}

/// When, in seconds since the beginning, and what.
type TimedEvent = (u64, HealthEvent);

/// What is wrong.
pub(crate) fn faults(plan: &Plan, journal: &str, error_log: &str) -> Vec<String> {
    if plan.health.is_empty() {
        return Vec::new();
    }
    let events = events(journal, error_log);
    let mut watched: Vec<WatchedServer> = HEALTH_PORTS.iter().map(|_| WatchedServer::default()).collect();
    let mut faults = Vec::new();
    for (at, (second, event)) in events.iter().enumerate() {
        let before = &events[..at];
        let after = &events[at..];
        let wrong = judge(plan, &mut watched, (*second, event), before, after);
        faults.extend(wrong.map(|wrong| format!("{wrong}, in second {second}: {event:?}")));
    }
    let is_reported = |number: u64| {
        events.iter().any(|(_, event)| match event {
            HealthEvent::Failed { request, .. } | HealthEvent::NoneLeft { request } => *request == number,
            _ => false,
        })
    };
    let failed = journal.lines().filter_map(Outcome::parse).filter(|outcome| {
        (HEALTH_NUMBERS..HEALTH_NUMBERS + MOST_REQUESTS).contains(&outcome.number) && outcome.status >= 500
    });
    let unreported = failed.filter(|outcome| !is_reported(outcome.number));
    faults.extend(unreported.map(|outcome| format!("the error log does not say why: {outcome:?}")));
    faults
}

/// No more requests have numbers after [`HEALTH_NUMBERS`].
const MOST_REQUESTS: u64 = 1000;

/// What is known of a server.
#[derive(Clone, Debug, Default)]
struct WatchedServer {
    /// Its failures that count: no fewer, and no more.
    fewest: u64,
    most: u64,
    /// It is out since this second, and gets a try after its time.
    out: Option<u64>,
    /// It has got that try.
    is_tried: bool,
    /// The second of the last failure, or of the beginning of an interval.
    since: u64,
    /// The request whose success surely forgets the failures.
    fresh: Option<u64>,
    /// Since when it has failed often enough to be taken out, and was not.
    overdue: Option<u64>,
    /// A check has found it unwell, in this second.
    unhealthy: Option<u64>,
    /// Checks that it has passed since it was last found unwell.
    passed: u64,
}

fn judge(
    plan: &Plan,
    watched: &mut [WatchedServer],
    (second, event): (u64, &HealthEvent),
    before: &[TimedEvent],
    after: &[TimedEvent],
) -> Option<String> {
    let health = &plan.health;
    let server = match *event {
        HealthEvent::Received { request } => {
            for one in watched.iter_mut().filter(|one| one.fresh == Some(request)) {
                (one.fewest, one.most, one.fresh) = (0, 0, None);
            }
            return None;
        }
        HealthEvent::NoneLeft { request } => return none_left(health, watched, second, request, before),
        HealthEvent::Asked { server, .. }
        | HealthEvent::Responded { server, .. }
        | HealthEvent::Passed { server }
        | HealthEvent::Failed { server, .. }
        | HealthEvent::Disabled { server }
        | HealthEvent::Unhealthy { server }
        | HealthEvent::Healthy { server } => server,
    };
    let settings = health.servers.get(server)?;
    let (most, time) = (settings.max_fails, settings.fail_timeout);
    let one = watched.get_mut(server)?;
    if one.overdue.is_some_and(|since| second > since + 1) {
        one.overdue = None;
        return Some(format!("{} failures have not taken a server out", one.fewest));
    }
    match event {
        HealthEvent::Asked { request, .. } => one.asked(second, *request, time, after, server),
        HealthEvent::Responded { .. } => {
            one.fewest = 0;
            one.overdue = None;
            if one.is_tried {
                one.out = None;
            }
            None
        }
        HealthEvent::Failed { late, .. } => {
            one.failed(second, *late, most);
            let is_ill = health.ills.iter().any(|ill| {
                let (from, to) = (ill.from / 1_000_000, ill.to / 1_000_000 + HEALTH_PATIENCE + 2);
                let begin = CLIENTS_BEGIN / 1_000_000;
                ill.server == server && (begin + from..=begin + to).contains(&(second + 1))
            });
            (!is_ill).then(|| "a server was well, and has failed".to_owned())
        }
        HealthEvent::Disabled { .. } => {
            let count = one.most;
            (one.out, one.is_tried, one.overdue) = (Some(second), false, None);
            (most == 0 || count < most).then(|| format!("{count} failures have taken a server out"))
        }
        HealthEvent::Unhealthy { .. } => {
            (one.unhealthy, one.passed) = (Some(second), 0);
            unhealthy(health, server, second, before)
        }
        HealthEvent::Healthy { .. } => {
            let needed = health.check.map_or(u64::MAX, |check| check.passes);
            let passed = one.passed;
            *one = WatchedServer { since: second, ..WatchedServer::default() };
            (passed < needed).then(|| format!("{passed} passed checks have brought a server back"))
        }
        HealthEvent::Passed { .. } => {
            one.passed += 1;
            None
        }
        HealthEvent::Received { .. } | HealthEvent::NoneLeft { .. } => None,
    }
}

impl WatchedServer {
    fn asked(
        &mut self,
        second: u64,
        request: u64,
        time: u64,
        after: &[TimedEvent],
        server: usize,
    ) -> Option<String> {
        if self.unhealthy.is_some_and(|since| second > since) {
            let is_back =
                |(when, event): &TimedEvent| *event == HealthEvent::Healthy { server } && *when <= second + 1;
            return (!after.iter().any(is_back))
                .then(|| "a server that did not pass its checks was asked".to_owned());
        }
        let Some(since) = self.out else {
            if second > self.since + time + 1 {
                (self.since, self.fresh) = (second, Some(request));
            }
            return None;
        };
        if second + 1 < since + time {
            return Some(format!("a server that is out since second {since} was asked"));
        }
        (self.out, self.is_tried, self.since) = (Some(second), true, second);
        if second > since + time + 1 {
            self.fresh = Some(request);
        }
        None
    }

    fn failed(&mut self, second: u64, late: bool, most: u64) {
        self.most += 1;
        (self.since, self.fresh) = (second, None);
        if late {
            return;
        }
        self.fewest += 1;
        if most > 0 && self.fewest >= most {
            self.overdue.get_or_insert(second);
        }
    }
}

/// Whether a server may be found unwell: it has had the time for as many failures in a row since it last passed.
fn unhealthy(health: &HealthPlan, server: usize, second: u64, before: &[TimedEvent]) -> Option<String> {
    let Some(check) = health.check else { return Some("nobody checks".to_owned()) };
    let passed = |(_, event): &&TimedEvent| *event == HealthEvent::Passed { server };
    let last = before.iter().rev().find(passed).map_or(0, |(second, _)| *second);
    let least = (check.fails - 1) * check.interval;
    (second + 1 < last + least)
        .then(|| format!("it passed a check in second {last}, and {} have to fail", check.fails))
}

/// Whether no server may be left: each is out, or the request has tried it.
fn none_left(
    health: &HealthPlan,
    watched: &[WatchedServer],
    second: u64,
    request: u64,
    before: &[TimedEvent],
) -> Option<String> {
    let left = watched.iter().zip(&health.servers).enumerate().find(|(server, (one, settings))| {
        let is_out = one.out.is_some_and(|since| second <= since + settings.fail_timeout + 1);
        let is_tried = before.iter().any(|(_, event)| {
            *event == HealthEvent::Asked { server: *server, request }
                || matches!(event, HealthEvent::Failed { server: at, request: of, .. } if (at, of) == (server, &request))
        });
        !is_out && !is_tried && one.unhealthy.is_none() && one.overdue.is_none()
    })?;
    Some(format!("server {} was left", left.0))
}

/// The events of a simulation in their order.
fn events(journal: &str, error_log: &str) -> Vec<TimedEvent> {
    let mut all: Vec<((u64, u64), TimedEvent)> = Vec::new();
    let mut end = 0;
    for line in error_log.split_inclusive('\n') {
        end += line.len() as u64;
        // What was noted when the log was so long comes after the line that ends there.
        all.extend(logged(line).map(|event| ((end, 0), event)));
    }
    all.extend(journal.lines().filter_map(noted));
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, event)| event).collect()
}

/// What a line of the journal says.
fn noted(line: &str) -> Option<((u64, u64), TimedEvent)> {
    let (kind, rest) = line.split_once(' ')?;
    if !matches!(kind, "ha" | "hs" | "hr" | "hc") {
        return None;
    }
    let record = JournalRecord::of(rest, "")?;
    let (server, request) = (record.number("server") as usize, record.number("n"));
    let event = match kind {
        "ha" => HealthEvent::Asked { server, request },
        "hs" => HealthEvent::Responded { server, request },
        "hr" => HealthEvent::Received { request },
        _ => HealthEvent::Passed { server },
    };
    let microsecond = record.number("t");
    Some(((record.number("log"), microsecond), (microsecond / 1_000_000, event)))
}

/// What a line of the error log says, and in which second.
fn logged(line: &str) -> Option<(u64, HealthEvent)> {
    let second = second(line)?;
    let server_in = |begin: &str| {
        let rest = line.split_once(begin)?.1;
        HEALTH_PORTS.iter().position(|port| rest.starts_with(&port.to_string()))
    };
    if let Some(server) = server_in("health check of peer 127.0.0.1:") {
        let is_well = line.contains("peer is healthy");
        let event = if is_well { HealthEvent::Healthy { server } } else { HealthEvent::Unhealthy { server } };
        return Some((second, event));
    }
    let request = line.split_once("/watched?n=").and_then(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    })?;
    if line.contains("no live upstreams") {
        return Some((second, HealthEvent::NoneLeft { request }));
    }
    let server = server_in("upstream: \"http://127.0.0.1:")?;
    let event = match () {
        () if line.contains("temporarily disabled") => HealthEvent::Disabled { server },
        () if line.contains("[error]") => {
            HealthEvent::Failed { server, request, late: line.contains("while reading upstream") }
        }
        () => return None,
    };
    Some((second, event))
}

/// The second of a line of the error log, counted from the beginning of simulations: 17:46:40 of 17 March.
fn second(line: &str) -> Option<u64> {
    let (day, time) = line.strip_prefix("2030/03/")?.split_once(' ')?;
    let mut parts = time.get(..8)?.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let days = day.parse::<u64>().ok()?.checked_sub(17)?;
    (days * 86_400 + hours * 3600 + minutes * 60 + seconds).checked_sub(17 * 3600 + 46 * 60 + 40)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{HealthCheckPlan, HealthServerPlan, IllnessKind, ServerIllness};

    fn plan(max_fails: u64, check: Option<HealthCheckPlan>) -> Plan {
        let servers = vec![HealthServerPlan { max_fails, fail_timeout: 5 }; HEALTH_PORTS.len()];
        let ills = vec![ServerIllness { server: 0, from: 0, to: 60_000_000, kind: IllnessKind::Gone }];
        Plan { health: HealthPlan { servers, tries: 0, check, ills }, ..Plan::new(0) }
    }

    /// A line of the error log in a second, about a request, or about none.
    fn line(second: u64, words: &str) -> String {
        let (minute, second) = ((40 + second) / 60, (40 + second) % 60);
        format!("2030/03/17 17:{:02}:{second:02} {words}\n", 46 + minute)
    }

    fn failed(second: u64, request: u64) -> String {
        let words = "[error] 1#1: *1 connect() failed (111: x) while connecting to upstream";
        line(
            second,
            &format!(
                "{words}, request: \"GET /watched?n={request} HTTP/1.1\", upstream: \"http://127.0.0.1:9011/watched?n={request}\""
            ),
        )
    }

    fn disabled(second: u64, request: u64) -> String {
        failed(second, request).replace(
            "[error] 1#1: *1 connect() failed (111: x)",
            "[warn] 1#1: *1 upstream server temporarily disabled",
        )
    }

    /// Lines of the log, and lines of the journal that are noted after so many of them.
    fn judged(plan: &Plan, log: &[String], noted: &[(usize, &str)]) -> Vec<String> {
        let length = |count: usize| log.iter().take(count).map(String::len).sum::<usize>();
        let journal: String =
            noted.iter().map(|(after, line)| format!("{line} log={}\n", length(*after))).collect();
        faults(plan, &journal, &log.concat())
    }

    #[test]
    fn a_server_is_taken_out_by_its_failures_alone() {
        let plan = plan(2, None);
        let good = [failed(10, 1), failed(10, 2), disabled(10, 2)];
        assert!(judged(&plan, &good, &[]).is_empty());
        assert_eq!(judged(&plan, &[failed(10, 1), disabled(10, 1)], &[]).len(), 1);
        let late = (2, "ha n=3 server=0 t=13000000");
        assert_eq!(judged(&plan, &good[..2], &[late]).len(), 1, "it was not taken out");
        // Its success is forgotten by failures, and forgets them where an interval has begun.
        let success =
            [(1, "ha n=3 server=0 t=17000000"), (1, "hs n=3 server=0 t=17000000"), (1, "hr n=3 t=17000000")];
        let after = [failed(10, 1), failed(18, 2), disabled(18, 2)];
        assert_eq!(judged(&plan, &after, &success).len(), 1);
    }

    #[test]
    fn who_is_out_gets_one_try_after_its_time() {
        let plan = plan(1, None);
        let log = [failed(10, 1), disabled(10, 1)];
        let ask = |second: u64, n: u64| format!("ha n={n} server=0 t={second}000000");
        let (early, try_one, beside) = (ask(13, 2), ask(16, 3), ask(17, 4));
        assert_eq!(judged(&plan, &log, &[(2, &early)]).len(), 1);
        assert!(judged(&plan, &log, &[(2, &try_one)]).is_empty());
        assert_eq!(judged(&plan, &log, &[(2, &try_one), (2, &beside)]).len(), 1, "the try is not over");
        let done = "hs n=3 server=0 t=16000000";
        assert!(judged(&plan, &log, &[(2, &try_one), (2, done), (2, &beside)]).is_empty());
    }

    #[test]
    fn none_is_left_where_all_are_out() {
        let plan = plan(1, None);
        let none = line(
            11,
            "[error] 1#1: *1 no live upstreams while connecting to upstream, request: \"GET /watched?n=9 HTTP/1.1\"",
        );
        let log = [failed(10, 1), disabled(10, 1), none];
        assert_eq!(judged(&plan, &log, &[]).len(), 1);
        let tried = [(2, "ha n=9 server=1 t=10000000"), (2, "ha n=9 server=2 t=10000000")];
        assert!(judged(&plan, &log, &tried).is_empty());
    }

    #[test]
    fn checks_take_out_and_bring_back() {
        let plan = plan(0, Some(HealthCheckPlan { interval: 4, fails: 2, passes: 2 }));
        let of = |second: u64, what: &str| {
            line(
                second,
                &format!("[warn] 1#1: {what}, health check of peer 127.0.0.1:9011 in upstream \"watched\""),
            )
        };
        let log = [of(10, "peer is unhealthy: timed out"), of(20, "peer is healthy")];
        let (first, second) = ((1, "hc server=0 t=16000000"), (1, "hc server=0 t=20000000"));
        assert!(judged(&plan, &log, &[first, second]).is_empty());
        assert_eq!(judged(&plan, &log, &[second]).len(), 1);
        assert_eq!(judged(&plan, &log, &[first, second, (1, "ha n=1 server=0 t=17000000")]).len(), 1);
        assert_eq!(judged(&plan, &log, &[(0, "hc server=0 t=8000000"), first, second]).len(), 1);
    }
}
