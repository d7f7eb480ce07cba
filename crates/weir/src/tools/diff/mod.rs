//! `weir diff-config OLD NEW --log FILE`: which requests of an access log a change of the configuration would change.

mod compare;
mod excerpt;
mod input;
mod lines;
mod needs;
mod places;
mod report;
mod tally;
mod tested;
mod verdict;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use weir_see::commands::CommandLine as ToolLine;

use super::plan::{LoadedPlan, PlanRequest, within};
use super::print;
use compare::{PlanChange, PlanDifference, compared};
use input::LogInput;
use lines::{LogRequests, LoggedRequest, SiteDefaults};
use needs::RequestNeeds;
use places::{ChangedLines, LineChanges};
use tally::{DiffTally, OutcomeId};
use verdict::PlanVerdict;

/// `weir diff-config OLD NEW --log FILE`: 0 without a change, 1 with one.
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    asked.at_most(2)?;
    let [old, new] = &asked.words[..] else { return Err("which configurations? OLD and NEW".to_owned()) };
    let logs: Vec<&str> = asked.values("--log").collect();
    if logs.is_empty() {
        return Err("which log? --log /var/log/nginx/access.log, or - for standard input".to_owned());
    }
    let limit = match asked.value("--limit") {
        None => u64::MAX,
        Some(limit) => limit.parse().map_err(|_| format!("\"{limit}\" is no number of lines"))?,
    };
    let tally = within(async || {
        let prefix = asked.place.prefix.as_deref();
        let load = |path: &str| LoadedPlan::load(Some(Path::new(path)), prefix);
        let plans = PlanPair { old: load(old)?, new: load(new)? };
        plans.check()?;
        differing(asked, plans, &logs, limit).await
    })??;
    if tally.lines > 0 && tally.unread.0 == tally.lines {
        let example = tally.unread.1.unwrap_or_default();
        return Err(format!(
            "none of {} lines is a request in the format {}; --format names another. The first: {example}",
            tally.lines, tally.format
        ));
    }
    let text = if asked.has("--json") { report::json(&tally) + "\n" } else { report::text(&tally) };
    print(&text)?;
    Ok(ExitCode::from(u8::from(tally.changed() > 0)))
}

/// Goes through the logs.
async fn differing(
    asked: &ToolLine,
    plans: PlanPair,
    logs: &[&str],
    limit: u64,
) -> Result<DiffTally, String> {
    let mut inputs = logs.iter().map(|name| LogInput::open(name)).collect::<Result<Vec<_>, _>>()?;
    let beginning = inputs[0].beginning()?;
    let (name, format) = input::format(asked.value("--format"), &plans.old, beginning)?;
    let defaults = SiteDefaults::of(&plans.old, asked.value("--scheme"), asked.value("--host"))?;
    let needs = RequestNeeds::of(&[plans.old.http(), plans.new.http()]);
    let requests = LogRequests::new(&format, defaults, needs, &plans.old);
    let mut differ = LogDiffer {
        plans,
        requests,
        known: HashMap::new(),
        keys: Default::default(),
        lines: ChangedLines::default(),
        tally: DiffTally::of(name),
    };
    for log in inputs {
        differ.read(log, limit).await?;
    }
    differ.tally.read = differ.requests.read();
    differ.tally.missing = differ.requests.missing();
    Ok(differ.tally)
}

/// Both configurations.
struct PlanPair {
    old: LoadedPlan,
    new: LoadedPlan,
}

impl PlanPair {
    /// A configuration that listens nowhere is one whose `include` lines found nothing.
    fn check(&self) -> Result<(), String> {
        for (name, plan) in [("OLD", &self.old), ("NEW", &self.new)] {
            if plan.configuration.addresses.is_empty() {
                let place = plan.tree.paths.conf_prefix.display();
                return Err(format!(
                    "{name} has no server; its relative \"include\" lines begin at its own directory, {place}"
                ));
            }
        }
        Ok(())
    }
}

/// Goes through a log.
struct LogDiffer<'f> {
    plans: PlanPair,
    requests: LogRequests<'f>,
    /// What requests came to, by two hashes of all that the configurations look at: one in 10^26 is taken for another.
    known: HashMap<(u64, u64), OutcomeId>,
    keys: [RandomState; 2],
    lines: ChangedLines,
    tally: DiffTally,
}

impl LogDiffer<'_> {
    /// Reads on until there were `limit` lines; only the line that is looked at is in memory.
    async fn read(&mut self, mut log: LogInput, limit: u64) -> Result<(), String> {
        let mut line = Vec::new();
        while self.tally.lines < limit && log.next(&mut line)? {
            self.tally.lines += 1;
            match self.requests.request(&line) {
                Some(logged) => {
                    let status = logged.status;
                    let outcome = self.outcome(logged, &line).await;
                    self.tally.count(outcome, status);
                }
                None => self.tally.unreadable(&line),
            }
        }
        Ok(())
    }

    /// What both configurations make of a request.
    async fn outcome(&mut self, logged: LoggedRequest, line: &[u8]) -> OutcomeId {
        let [first, second] = &self.keys;
        let key = (first.hash_one(&logged.shape), second.hash_one(&logged.shape));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let (difference, lines) = self.decided(&logged.whole()).await;
        let outcome = self.tally.outcome(difference, &lines, line);
        if self.known.len() == MOST {
            self.known.clear();
        }
        self.known.insert(key, outcome);
        outcome
    }

    async fn decided(&mut self, request: &PlanRequest) -> (PlanDifference, Rc<LineChanges>) {
        let plans = &self.plans;
        let old = PlanVerdict::of(&plans.old, request).await;
        // Where the log does not say the port, it is that of the address that OLD gives it.
        let to_new = PlanRequest { port: old.place.port.or(request.port), ..request.clone() };
        let new = PlanVerdict::of(&plans.new, &to_new).await;
        let lines = self.lines.between(plans, old.place, new.place);
        let mut difference = compared(&old, &new);
        if difference.is_changed() {
            // What differs from itself (a number, a time, a random choice) says nothing of the configurations.
            let again = PlanVerdict::of(&plans.old, request).await;
            difference = difference.without(&compared(&old, &again));
        }
        let (before, after) = &lines.sent;
        if old.is_passed && new.is_passed && before != after {
            difference.changes.push(PlanChange::of("sent", before, after));
        }
        (difference, lines)
    }
}

/// How many requests are remembered: some 60 MB. Beyond it remembering begins again.
const MOST: usize = 1 << 20;
