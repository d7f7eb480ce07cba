//! What must hold of sessions.
//!
//! Journal: `s` is what became of a client, `v` what a server has seen of a session. The bytes of both are of their session's
//! number, in order, in any case; that all of them come is promised where nothing of the plan is against it.

use std::collections::BTreeMap;

use crate::outcome::JournalRecord;
use crate::plan::{CLIENTS_BEGIN, Plan};
use crate::sessions::plan::{
    CONNECT_PATIENCE, ClientHeader, SESSION_PATIENCE, SessionClientEnd, SessionDoor, SessionPlan,
    SessionServerEnd,
};

/// Longer than a session's time-out, by what goes beside it.
const SLACK: u64 = 1_500_000;

/// A client sends what is left at once after so many pieces.
const MOST_PIECES: u64 = 300;
/// The longest way of an end, microseconds.
const END_LAG: u64 = 1_000_000;

/// What became of sessions, as the journal has it.
pub(crate) struct StreamOutcomes<'j> {
    clients: BTreeMap<u64, JournalRecord<'j>>,
    visits: BTreeMap<u64, Vec<JournalRecord<'j>>>,
}

/// Whether all has come that was to come.
pub(crate) fn is_whole(record: &JournalRecord<'_>) -> bool {
    record.number("got") == record.number("of")
}

impl<'j> StreamOutcomes<'j> {
    /// Those of a journal.
    pub(crate) fn of(journal: &'j str) -> StreamOutcomes<'j> {
        let records =
            |begin: &'static str| journal.lines().filter_map(move |line| JournalRecord::of(line, begin));
        let clients = records("s ").map(|record| (record.number("n"), record)).collect();
        let mut visits: BTreeMap<u64, Vec<JournalRecord<'j>>> = BTreeMap::new();
        for record in records("v ") {
            visits.entry(record.number("n")).or_default().push(record);
        }
        StreamOutcomes { clients, visits }
    }

    fn visit(&self, number: u64) -> Option<&JournalRecord<'j>> {
        self.visits.get(&number).and_then(|all| all.first())
    }

    /// What is wrong with the bytes and ends of sessions. After a crash nobody knows how they would have ended.
    pub(crate) fn faults(&self, plan: &Plan, has_crashed: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let records = self.clients.values().chain(self.visits.values().flatten());
        for record in records.filter(|record| record.word("body") != "right") {
            faults.push(format!("bytes that are not the session's: {:?}", record.0));
        }
        if has_crashed {
            return faults;
        }
        for session in &plan.stream.sessions {
            let fault = match self.clients.get(&session.number) {
                None => Some("nothing became of it".to_owned()),
                Some(client) => self.fault_of(plan, session, client),
            };
            let visit = self.visits.get(&session.number).into_iter().flatten().map(|one| &one.0);
            let said = self.clients.get(&session.number).map(|client| &client.0);
            faults.extend(fault.map(|fault| {
                format!(
                    "session {}: {fault}: {session:?} {said:?} {:?}",
                    session.number,
                    visit.collect::<Vec<_>>()
                )
            }));
        }
        faults
    }

    fn fault_of(&self, plan: &Plan, session: &SessionPlan, client: &JournalRecord<'_>) -> Option<String> {
        if self.visits.get(&session.number).is_some_and(|all| all.len() > 1) {
            return Some("two servers had it".to_owned());
        }
        if client.word("why") == "waited" {
            return Some("it does not end".to_owned());
        }
        let patience = plan.stream.settings.timeout.max(SESSION_PATIENCE).max(CONNECT_PATIENCE);
        let is_late = client.number("idle") > patience * 1_000_000 + SLACK;
        if is_late && client.word("why") != "done" && !may_fail(plan, session) {
            return Some("it has waited for longer than its time-outs".to_owned());
        }
        if session.door == SessionDoor::Returned {
            let is_good = is_whole(client) || matches!(session.end, SessionClientEnd::Leaves(_));
            return (!is_good).then(|| "what is returned has not come".to_owned());
        }
        self.promise_fault(plan, session, client)
    }

    /// What was to come and has not.
    fn promise_fault(
        &self,
        plan: &Plan,
        session: &SessionPlan,
        client: &JournalRecord<'_>,
    ) -> Option<String> {
        let visit = self.visit(session.number);
        // What a client has left behind it is still on its way to the server, and its session may not have begun.
        let late = if visit.is_none() { SLACK } else { 0 };
        let end = visit.map_or(0, |visit| visit.number("t")).max(client.number("t").saturating_add(late));
        if !is_calm(plan, session) || meets_down(plan, session, end) {
            return None;
        }
        if session.door == SessionDoor::Limited && visit.is_none() {
            return None;
        }
        let (there, back) = (visit.is_some_and(is_whole), is_whole(client));
        let due = WholeWays::due(plan.stream.settings.half_close, session);
        let is_good = match due {
            WholeWays::Both => there && back,
            WholeWays::Forth => there,
            WholeWays::Back => back,
            WholeWays::Either => there || back,
        };
        if !is_good {
            return Some(format!("{due:?} was due, there came forth: {there}, back: {back}"));
        }
        if let Some(fault) = visit.and_then(|visit| end_fault(client, visit)) {
            return Some(fault.to_owned());
        }
        // One of the sides ends: what it says is passed on, and the session does not wait for its time-out.
        let ends = session.end != SessionClientEnd::Stays || session.server.end != SessionServerEnd::Stays;
        let is_late = client.number("idle") + SLACK / 6 > plan.stream.settings.timeout * 1_000_000;
        (ends && is_late).then(|| "an end was not passed on".to_owned())
    }

    /// Each session has one line in the log, that says what has passed; how many lines are missing. `may_miss`: calls of the log's
    /// file have failed.
    pub(crate) fn log_faults(&self, plan: &Plan, log: &str, may_miss: bool) -> (Vec<String>, u64) {
        let (mut faults, mut missing) = (Vec::new(), 0);
        let mut lines: BTreeMap<(u64, u64), Vec<Vec<&str>>> = BTreeMap::new();
        for words in logged_sessions(log) {
            lines.entry((number_at(&words, 1), number_at(&words, 2))).or_default().push(words);
        }
        for session in &plan.stream.sessions {
            let Some(client) = self.clients.get(&session.number) else { continue };
            let key = (client.number("port"), u64::from(session.door.logged_port()));
            match lines.remove(&key).unwrap_or_default().as_slice() {
                [words] => {
                    let logged = LoggedSession::of(words);
                    let fault = self.line_fault(plan, session, client, &logged);
                    faults.extend(fault.map(|fault| {
                        let visit = self.visit(session.number).map(|one| &one.0);
                        format!(
                            "session {}: {fault}: {words:?} {session:?} {:?} {visit:?}",
                            session.number, client.0
                        )
                    }));
                }
                [] if may_miss => missing += 1,
                several => {
                    faults.push(format!("session {}: {} lines in the log", session.number, several.len()));
                }
            }
        }
        // Of datagrams there may be several.
        lines.retain(|_, lines| lines.iter().any(|words| words.get(3) != Some(&"UDP")));
        faults.extend(lines.into_values().map(|lines| format!("logged, nobody's session: {lines:?}")));
        (faults, missing)
    }

    fn line_fault(
        &self,
        plan: &Plan,
        session: &SessionPlan,
        client: &JournalRecord<'_>,
        logged: &LoggedSession,
    ) -> Option<String> {
        if !statuses(plan, session).contains(&logged.status) {
            return Some(format!("status {}", logged.status));
        }
        let is_headed =
            matches!(session.door, SessionDoor::Headed(ClientHeader::Text | ClientHeader::Binary));
        if logged.status == 200 && is_headed && logged.headed != u64::from(session.headed_port()) {
            return Some("another port than the header's".to_owned());
        }
        let (got, why) = (client.number("got"), client.word("why"));
        let is_exact = session.tls.is_none() && why != "left" && why != "reset";
        if logged.sent < got || is_exact && logged.sent != got {
            return Some(format!("{} bytes were sent, {got} came", logged.sent));
        }
        let visit = self.visit(session.number)?;
        let first = (session.beginning().1).len() as u64;
        let (taken, given) = (first + visit.number("got"), visit.number("sent"));
        if logged.received < taken || is_whole(visit) && logged.received != first + session.sends {
            return Some(format!("{} bytes were received, {taken} have come", logged.received));
        }
        let header = visit.number("header");
        if logged.to_server < taken || is_whole(visit) && ![taken, taken + header].contains(&logged.to_server)
        {
            return Some(format!("{} bytes were passed on, {taken} have come", logged.to_server));
        }
        let is_back = is_whole(client) && why != "left";
        if logged.from_server > given || is_back && logged.from_server != session.server.sends {
            return Some(format!("{} bytes came back, {given} were sent", logged.from_server));
        }
        None
    }
}

/// That a side sends no more is heard by the other after its last byte, also while that one still sends.
pub(crate) fn end_fault(client: &JournalRecord<'_>, visit: &JournalRecord<'_>) -> Option<&'static str> {
    let is_late = |from: &JournalRecord<'_>, to: &JournalRecord<'_>| {
        let (ended, heard, gone) = (from.number("ended_at"), to.number("heard_at"), to.number("t"));
        let heard = if heard == 0 { gone } else { heard };
        ended > 0 && heard > ended.max(to.number("got_at")) + END_LAG
    };
    match (is_late(client, visit), is_late(visit, client)) {
        (true, _) => Some("the client's end was not passed on"),
        (_, true) => Some("the server's end was not passed on"),
        _ => None,
    }
}

/// The words of the log's lines about sessions, those of datagrams too (the format is in `sessions/configuration.rs`).
pub(crate) fn logged_sessions(log: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = log.lines().filter(|line| line.starts_with("S ") && line.ends_with(" ."));
    lines.map(|line| line.split(' ').collect())
}

/// The number that is a line's word at a place; 0 where it is no number.
pub(crate) fn number_at(words: &[&str], at: usize) -> u64 {
    words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// What a line says of servers: bytes to each, and, after `|`, from each.
pub(crate) fn of_servers(words: &[&str]) -> String {
    words.get(8..words.len() - 1).unwrap_or_default().join(" ")
}

/// A line of the log.
struct LoggedSession {
    status: u64,
    received: u64,
    sent: u64,
    to_server: u64,
    from_server: u64,
    headed: u64,
}

impl LoggedSession {
    fn of(words: &[&str]) -> LoggedSession {
        let number = |at| number_at(words, at);
        // Of several servers the last one had the bytes.
        let of_servers = of_servers(words);
        let (to, from) = of_servers.split_once('|').unwrap_or_default();
        let last = |list: &str| list.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        LoggedSession {
            status: number(4),
            received: number(5),
            sent: number(6),
            headed: number(7),
            to_server: last(to),
            from_server: last(from),
        }
    }
}

/// Which of a session's two ways must be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WholeWays {
    Both,
    /// To the server.
    Forth,
    /// To the client.
    Back,
    /// That of the side that has ended first, whichever it was.
    Either,
}

impl WholeWays {
    /// A session ends with the first side that ends, after its last bytes, unless each side may end alone.
    fn due(half_close: bool, session: &SessionPlan) -> WholeWays {
        use SessionClientEnd::HalfCloses;
        match (session.end, session.server.end) {
            _ if half_close => WholeWays::Both,
            (HalfCloses, SessionServerEnd::HalfCloses) => WholeWays::Either,
            (HalfCloses, _) => WholeWays::Forth,
            (_, SessionServerEnd::HalfCloses) => WholeWays::Back,
            _ => WholeWays::Both,
        }
    }
}

/// Whether nothing of the plan is against a session that passes whole.
fn is_calm(plan: &Plan, session: &SessionPlan) -> bool {
    let timeout = plan.stream.settings.timeout * 1_000_000;
    !session.door.is_refused()
        && !matches!(session.end, SessionClientEnd::Leaves(_))
        && !matches!(session.server.end, SessionServerEnd::Resets(_) | SessionServerEnd::Stalls)
        && session.server.late + SLACK / 3 < timeout
        // Nothing of a record of TLS passes before its last piece has come.
        && (session.tls.is_none() || session.pace.gap * MOST_PIECES < timeout)
        && !may_fail(plan, session)
}

/// Whether a server was not there while the session was open, which ended at `end`.
fn meets_down(plan: &Plan, session: &SessionPlan, end: u64) -> bool {
    plan.stream.downs.iter().any(|down| session.at <= down.to && CLIENTS_BEGIN + down.from <= end)
}

/// Whether TLS may fail.
fn may_fail(plan: &Plan, session: &SessionPlan) -> bool {
    plan.tls.zip(session.tls).is_some_and(|(server, client)| client.may_fail(&server))
}

/// The statuses that may be logged.
fn statuses(plan: &Plan, session: &SessionPlan) -> Vec<u64> {
    let leaves = matches!(session.end, SessionClientEnd::Leaves(_));
    let mut all = Vec::new();
    match session.door {
        SessionDoor::Returned => return vec![200],
        door if door.is_refused() => return vec![400],
        SessionDoor::Headed(_) | SessionDoor::Named(_) if leaves => all.push(400),
        SessionDoor::Limited => all.push(503),
        SessionDoor::Secure if may_fail(plan, session) || leaves => all.push(500),
        _ => {}
    }
    if !plan.stream.downs.is_empty() {
        all.push(502);
    }
    all.push(200);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downtime::UpstreamDown;
    use crate::http2::plan::ClientPace;
    use crate::sessions::plan::{SessionServerPlan, StreamPlan, StreamSettings};

    fn session() -> SessionPlan {
        let pace = ClientPace { piece: 100, gap: 0, read_gap: 0, read: 100, is_narrow: false };
        let end = SessionServerEnd::HalfCloses;
        SessionPlan {
            number: 1,
            at: 100,
            door: SessionDoor::Plain,
            sends: 20,
            pace,
            end: SessionClientEnd::HalfCloses,
            tls: None,
            server: SessionServerPlan { sends: 0, late: 0, piece: 100, gap: 0, read_gap: 200, end },
        }
    }

    /// What is said of a session whose server falls, so many microseconds after the beginning.
    fn faults(half_close: bool, falls: u64, journal: &str) -> Vec<String> {
        let settings = StreamSettings { half_close, timeout: 60, ..StreamSettings::default() };
        let downs = vec![UpstreamDown { server: 0, from: falls, to: falls + 1000 }];
        let stream = StreamPlan { settings, sessions: vec![session()], downs, ..StreamPlan::default() };
        let plan = Plan { stream, tls: None, ..Plan::new(0) };
        StreamOutcomes::of(journal).faults(&plan, false)
    }

    #[test]
    fn a_server_that_falls_before_all_has_come_excuses_what_is_missing() {
        let client = "s n=1 port=4 why=closed sent=1 ended=0 got=0 of=0 body=right idle=0 got_at=0 ended_at=0 heard_at=0 t=2300000";
        let server = "v n=1 why=fell got=9 of=20 body=right sent=0 header=0 ended=1 heard=0 got_at=0 ended_at=0 heard_at=0 t=2400000";
        let journal = format!("{client}\n{server}\n");
        assert_eq!(faults(true, 400_000, &journal), Vec::<String>::new());
        assert_eq!(faults(true, 400_001, &journal).len(), 1);
    }

    #[test]
    fn an_end_that_comes_late_was_not_passed_on() {
        let journal = |heard: u64| {
            format!(
                "s n=1 port=4 why=closed sent=1 ended=1 got=0 of=0 body=right idle=0 got_at=0 ended_at=2000200 heard_at=0 t=2000200\n\
                 v n=1 why=end got=20 of=20 body=right sent=0 header=0 ended=0 heard=1 got_at=2000300 ended_at=0 heard_at={heard} t={heard}\n"
            )
        };
        for (heard, is_good) in [(2_000_300, true), (3_000_300, true), (3_000_301, false)] {
            assert_eq!(faults(true, 9_000_000, &journal(heard)).is_empty(), is_good, "{heard}");
        }
    }
}
