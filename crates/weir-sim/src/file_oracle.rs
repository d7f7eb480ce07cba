//! What must hold of requests and logs while calls of files fail.
//!
//! Only a request that needs such a file, at the time at which one of its calls has failed, may have another end than
//! without faults: a status of its own, or less than a whole response, and a line of the error log that says why.

use crate::files::SimFileKind;
use crate::outcome::{Outcome, journal_words};
use crate::plan::{Plan, RequestPlan, Target};

/// The calls that have failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileExcuses {
    /// Of which kind, and when, microseconds of the simulation.
    pub(crate) failed: Vec<(SimFileKind, u64)>,
    /// The server has crashed: what it was to log may be gone.
    pub(crate) has_crashed: bool,
    /// It is the one that was started after that.
    pub(crate) follows_crash: bool,
    /// And power was lost.
    pub(crate) follows_power_loss: bool,
}

/// So much after a call has failed a request may suffer from it: what several share is read for one of them.
const SHARED: u64 = 10_000;

impl FileExcuses {
    /// Those of a journal.
    pub(crate) fn of(journal: &str) -> FileExcuses {
        let parse = |line: &str| {
            let words = journal_words(line.strip_prefix("f ")?);
            Some((SimFileKind::of_word(words.get("kind")?)?, words.get("t")?.parse().ok()?))
        };
        FileExcuses { failed: journal.lines().filter_map(parse).collect(), ..FileExcuses::default() }
    }

    /// Whether files of this kind have failed.
    pub(crate) fn has(&self, kind: SimFileKind) -> bool {
        self.count(kind) > 0
    }

    /// How many calls of such files have failed.
    pub(crate) fn count(&self, kind: SimFileKind) -> u64 {
        self.failed.iter().filter(|(one, _)| *one == kind).count() as u64
    }

    /// Whether a line of the error log is about a call that has failed.
    pub(crate) fn explains(&self, line: &str) -> bool {
        const ERRORS: [&str; 5] =
            ["(5: Input/", "(28: No space", "(24: Too many", "(23: Too many", "lines lost"];
        // A line may be cut off.
        let reason = line.split_once("failed (").map_or("", |(_, reason)| reason);
        let is_torn = !reason.contains(')') && !line.contains("panicked");
        if self.follows_power_loss && line.contains("cache file") {
            return true;
        }
        is_torn && (self.has(SimFileKind::ErrorLog) || self.has_crashed)
            || !self.failed.is_empty() && ERRORS.iter().any(|error| line.contains(error))
    }

    /// `fault`, unless the request may have had it for a call that has failed: what is wrong then. `connection`: its number, as the
    /// access log has it.
    pub(crate) fn judged(
        &self,
        request: &RequestPlan,
        outcome: &Outcome<'_>,
        error_log: &str,
        connection: Option<&str>,
        fault: String,
    ) -> Option<String> {
        let (since, end) = (outcome.time.0.saturating_sub(SHARED), outcome.time.1);
        let needed = needed(request);
        let is_hit = self.failed.iter().any(|(kind, at)| needed.contains(kind) && (since..=end).contains(at));
        let is_usual = match outcome.end {
            // A page for the head alone has no content, as an empty file.
            "whole" => outcome.status == 500 && (outcome.body == "page" || request.target == Target::File(0)),
            _ => outcome.why != "waited",
        };
        if !is_hit || !is_usual {
            return Some(fault);
        }
        let number = format!("n={}", outcome.number);
        let of_connection = connection.map(|number| format!(": *{number} "));
        let is_unknown = connection.is_none() && self.has(SimFileKind::AccessLog);
        let names = |line: &str| {
            let rest = line.split_once(&number).map(|(_, rest)| rest);
            // A response that fits into the connection's buffers is over before its file is read: the connection logs that.
            let is_of_connection = line.contains(LOST)
                && !line.contains("request: ")
                && of_connection.as_ref().map_or(is_unknown, |number| line.contains(number));
            is_of_connection || rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if self.has_crashed || self.has(SimFileKind::ErrorLog) || error_log.lines().any(names) {
            return None;
        }
        Some(format!("a file has failed, and the error log does not say so ({fault})"))
    }
}

/// What a connection logs of a file that failed after its request was over.
const LOST: &str = ") while sending response to client";

/// The files that a request needs.
fn needed(request: &RequestPlan) -> &'static [SimFileKind] {
    match request.target {
        Target::Return | Target::Lua(_) | Target::Paced(_) | Target::Crowded(..) => &[],
        Target::Routed | Target::Watched => &[],
        Target::File(_) => &[SimFileKind::Served],
        Target::Proxied(..) | Target::Secret(..) | Target::Framed(_) => {
            &[SimFileKind::RequestBody, SimFileKind::Temporary]
        }
        Target::Cached(_) => &[SimFileKind::RequestBody, SimFileKind::Temporary, SimFileKind::Cached],
    }
}

/// The lines that the program says to have lost.
pub(crate) fn lost_lines(log: &str) -> u64 {
    let lost = |line: &str| line.strip_suffix(" lines lost")?.rsplit(' ').next()?.parse::<u64>().ok();
    log.lines().filter_map(lost).sum()
}

/// What is wrong with what was left in the directory.
pub(crate) fn left_fault(plan: &Plan, excuses: &FileExcuses, left: &[String]) -> Option<String> {
    let wrong = left.iter().find(|path| {
        let is_draft = path.starts_with("cache/") && path.contains('.');
        let kind = SimFileKind::of(path);
        let is_temporary = matches!(kind, Some(SimFileKind::RequestBody | SimFileKind::Temporary));
        // What a crash has left of responses and bodies is nobody's; drafts of the cache are removed at the next start.
        let is_excused = kind.is_some_and(|kind| excuses.has(kind)) || excuses.follows_crash && is_temporary;
        (is_draft || is_temporary || path.starts_with("cache/") && plan.cache.is_none()) && !is_excused
    })?;
    Some(format!("a file is left: {wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::BodyPlan;

    #[test]
    fn a_connection_s_line_excuses_its_own_requests() {
        let excuses = FileExcuses::of("f kind=served call=read t=50 errno=5\n");
        assert!(excuses.has(SimFileKind::Served));
        let request = RequestPlan {
            number: 7,
            target: Target::File(3000),
            body: None::<BodyPlan>,
            is_pipelined: false,
            pause: 0,
            ask: None,
        };
        let line = "r n=7 at=1 status=200 end=cut body=- why=closed us=60 t=100";
        let outcome = Outcome::parse(line).expect("an outcome");
        let own = "[crit] 1#1: *5 pread() failed (5: Input/output error) while sending response to client, client: 127.0.0.1\n";
        let of_request = "[crit] 1#1: *9 pread() failed (5: x) while sending response to client, request: \"GET /file/3000?n=7 HTTP/1.1\"\n";
        for (log, connection, is_excused) in [
            (own, Some("5"), true),
            (own, Some("55"), false),
            (own, Some("6"), false),
            (own, None, false),
            (of_request, Some("9"), true),
            ("", Some("5"), false),
        ] {
            let fault = excuses.judged(&request, &outcome, log, connection, "cut".to_owned());
            assert_eq!(fault.is_none(), is_excused, "{connection:?}: {log}");
        }
    }
}
