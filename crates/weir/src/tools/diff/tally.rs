//! What a log comes to: counts, groups with an example each.

use std::collections::HashMap;
use std::rc::Rc;

use super::compare::{PlanChange, PlanDifference};
use super::places::{ChangedLine, LineChanges};

/// What a log comes to.
#[derive(Default)]
pub(super) struct DiffTally {
    /// Lines read.
    pub(super) lines: u64,
    /// Lines that are no request of the format, and the first of them.
    pub(super) unread: (u64, Option<String>),
    /// Requests that were decided, and not taken over from one that is the same.
    pub(super) decided: u64,
    /// The log's format by its name.
    pub(super) format: String,
    /// Variables of the log that were looked at.
    pub(super) read: Vec<String>,
    /// Variables that the log lacks, and what is taken for them.
    pub(super) missing: Vec<(String, String)>,
    outcomes: Vec<OutcomeCount>,
    known: HashMap<DiffOutcome, OutcomeId>,
    groups: Vec<ChangedRequests>,
    names: HashMap<String, usize>,
    parts: Vec<String>,
    settings: Vec<Rc<LineChanges>>,
}

/// A [`DiffOutcome`] by its number.
pub(super) type OutcomeId = u32;

/// What many lines come to alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DiffOutcome {
    group: OutcomeGroup,
    /// What was not run, by number.
    unknown: Vec<usize>,
    status: Option<u16>,
    /// Lines of the configurations that changed without a change of what is compared, by number.
    settings: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OutcomeGroup {
    Unchanged,
    Changed(usize),
    /// One beyond those that are held.
    Further,
}

struct OutcomeCount {
    outcome: DiffOutcome,
    count: u64,
    /// How many of them have the status in the log, and how many another.
    agreed: u64,
    disagreed: u64,
}

/// Requests of which the same changes.
pub(super) struct ChangedRequests {
    /// What changes.
    pub(super) name: String,
    /// The first of them, as its line is in the log.
    pub(super) example: String,
    /// What changes for that one.
    pub(super) changes: Vec<PlanChange>,
    /// Where that one ends in each configuration.
    pub(super) at: (String, String),
    /// The lines that differ there and where others of the group end.
    pub(super) lines: Vec<ChangedLine>,
}

impl DiffTally {
    /// Of a log in the format of this name.
    pub(super) fn of(format: String) -> DiffTally {
        DiffTally { format, ..DiffTally::default() }
    }

    /// The number of what a request comes to, whose line in the log is `line`.
    pub(super) fn outcome(
        &mut self,
        difference: PlanDifference,
        lines: &Rc<LineChanges>,
        line: &[u8],
    ) -> OutcomeId {
        self.decided += 1;
        let unknown = difference.unknown.iter().map(|part| position(&mut self.parts, part)).collect();
        let settings = (!difference.is_changed() && !lines.lines.is_empty()).then(|| self.settings(lines));
        let status = difference.status;
        let group = match difference.is_changed() {
            true => self.group(difference, lines, line),
            false => OutcomeGroup::Unchanged,
        };
        let outcome = DiffOutcome { group, unknown, status, settings };
        if let Some(id) = self.known.get(&outcome) {
            return *id;
        }
        let id =
            OutcomeId::try_from(self.outcomes.len()).expect("fewer outcomes than lines of configurations");
        self.outcomes.push(OutcomeCount { outcome: outcome.clone(), count: 0, agreed: 0, disagreed: 0 });
        self.known.insert(outcome, id);
        id
    }

    fn settings(&mut self, lines: &Rc<LineChanges>) -> usize {
        let known = self.settings.iter().position(|other| other.lines == lines.lines);
        known.unwrap_or_else(|| {
            self.settings.push(lines.clone());
            self.settings.len() - 1
        })
    }

    fn group(&mut self, difference: PlanDifference, lines: &LineChanges, line: &[u8]) -> OutcomeGroup {
        let name = difference.group();
        let at = match self.names.get(&name) {
            Some(at) => *at,
            None if self.groups.len() == GROUPS => return OutcomeGroup::Further,
            None => {
                self.groups.push(ChangedRequests {
                    name: name.clone(),
                    example: shown(line),
                    changes: difference.changes,
                    at: lines.at.clone(),
                    lines: Vec::new(),
                });
                self.names.insert(name, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        for line in &lines.lines {
            if group.lines.len() < GROUP_LINES && !group.lines.contains(line) {
                group.lines.push(line.clone());
            }
        }
        OutcomeGroup::Changed(at)
    }

    /// Counts a line of the log.
    pub(super) fn count(&mut self, id: OutcomeId, logged: Option<u16>) {
        let found = &mut self.outcomes[id as usize];
        found.count += 1;
        if let (Some(status), Some(logged)) = (found.outcome.status, logged) {
            // Conditions and ranges of requests are seldom in logs; who goes away before the response gets none.
            match logged == status || (status == 200 && matches!(logged, 206 | 304 | 416)) || logged == 499 {
                true => found.agreed += 1,
                false => found.disagreed += 1,
            }
        }
    }

    /// Adds a line that is no request of the format.
    pub(super) fn unreadable(&mut self, line: &[u8]) {
        self.unread.0 += 1;
        if self.unread.1.is_none() {
            self.unread.1 = Some(shown(line));
        }
    }

    fn sum(&self, wanted: impl Fn(&DiffOutcome) -> bool) -> u64 {
        self.outcomes.iter().filter(|one| wanted(&one.outcome)).map(|one| one.count).sum()
    }

    /// Requests that change.
    pub(super) fn changed(&self) -> u64 {
        self.sum(|outcome| outcome.group != OutcomeGroup::Unchanged)
    }

    /// Requests of which nothing changes, and of which everything is known.
    pub(super) fn same(&self) -> u64 {
        self.sum(|outcome| outcome.group == OutcomeGroup::Unchanged && outcome.unknown.is_empty())
    }

    /// Requests of which nothing changes as far as is known.
    pub(super) fn undecided(&self) -> u64 {
        self.sum(|outcome| outcome.group == OutcomeGroup::Unchanged && !outcome.unknown.is_empty())
    }

    /// Requests that change beyond the groups that are held.
    pub(super) fn ungrouped(&self) -> u64 {
        self.sum(|outcome| outcome.group == OutcomeGroup::Further)
    }

    /// How many of the requests whose status is the old configuration's own have the same in the log, and how many there are.
    pub(super) fn agreed(&self) -> (u64, u64) {
        let agreed = self.outcomes.iter().map(|one| one.agreed).sum();
        let disagreed: u64 = self.outcomes.iter().map(|one| one.disagreed).sum();
        (agreed, agreed + disagreed)
    }

    /// The groups with their counts, those with most requests first.
    pub(super) fn groups(&self) -> Vec<(u64, &ChangedRequests)> {
        let count = |at| self.sum(|outcome| outcome.group == OutcomeGroup::Changed(at));
        let mut groups: Vec<_> =
            self.groups.iter().enumerate().map(|(at, group)| (count(at), group)).collect();
        groups.sort_by(|(a, group), (b, other)| b.cmp(a).then(group.name.cmp(&other.name)));
        groups
    }

    /// The parts that were not run, those of most requests first.
    pub(super) fn unknown_parts(&self) -> Vec<(u64, &str)> {
        let count = |at| self.sum(|outcome| outcome.unknown.contains(&at));
        let mut parts: Vec<_> =
            self.parts.iter().enumerate().map(|(at, part)| (count(at), part.as_str())).collect();
        parts.sort_by(|(a, part), (b, other)| b.cmp(a).then(part.cmp(other)));
        parts
    }

    /// Lines that changed for requests that do not, as far as is compared; those of most requests first.
    pub(super) fn other_lines(&self) -> Vec<(u64, &ChangedLine)> {
        let mut counts: HashMap<&ChangedLine, u64> = HashMap::new();
        for (at, set) in self.settings.iter().enumerate() {
            let count = self.sum(|outcome| outcome.settings == Some(at));
            set.lines.iter().for_each(|line| *counts.entry(line).or_default() += count);
        }
        let mut lines: Vec<_> = counts.into_iter().map(|(line, count)| (count, line)).collect();
        lines.sort_by(|(a, line), (b, other)| {
            let order = |line: &ChangedLine| (line.is_new, line.place.clone());
            b.cmp(a).then_with(|| order(line).cmp(&order(other)))
        });
        lines
    }
}

/// Where `text` is among `all`; it is added if it is not.
fn position(all: &mut Vec<String>, text: &str) -> usize {
    all.iter().position(|other| other == text).unwrap_or_else(|| {
        all.push(text.to_owned());
        all.len() - 1
    })
}

/// A line of the log, as an example.
fn shown(line: &[u8]) -> String {
    let part = line.get(..line.len().min(EXAMPLE)).unwrap_or_default();
    let text = part.escape_ascii().to_string();
    let text = text.replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\");
    if line.len() > EXAMPLE { text + "..." } else { text }
}

/// Groups that are held; requests of further ones are counted together.
const GROUPS: usize = 1000;
/// Lines of configurations that are held of a group.
const GROUP_LINES: usize = 64;
/// Bytes of a line that are shown.
const EXAMPLE: usize = 400;
