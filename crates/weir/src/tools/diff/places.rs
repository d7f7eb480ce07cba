//! Which lines of two configurations make the difference: those in force where a request ends, and the definitions they use.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use weir_conf::DirectiveLine;

use super::PlanPair;
use super::needs::{is_sent, variables};
use super::verdict::VerdictPlace;
use crate::tools::plan::{LoadedPlan, lines, whole};

/// A line that only one of the configurations has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChangedLine {
    /// It is the new one's.
    pub(super) is_new: bool,
    /// As it is written, without what is in its braces.
    pub(super) text: String,
    /// `FILE:LINE`.
    pub(super) place: String,
}

/// The lines that differ between two places.
#[derive(Debug, Default)]
pub(super) struct LineChanges {
    /// First those of the old configuration.
    pub(super) lines: Vec<ChangedLine>,
    /// What upstreams are sent according to them, before and after; empty if no such line changes.
    pub(super) sent: (String, String),
    /// Where the request ended in each.
    pub(super) at: (String, String),
}

/// Finds lines that changed, and remembers them by places: as many as there are pairs of locations.
#[derive(Default)]
pub(super) struct ChangedLines {
    known: HashMap<(VerdictPlace, VerdictPlace), Rc<LineChanges>>,
    definitions: Option<Vec<ChangedDefinition>>,
}

/// A block such as `map` or `upstream` that changed.
struct ChangedDefinition {
    /// How lines name it: `$mapped`, `app`.
    name: String,
    /// The words of both.
    words: HashSet<String>,
    lines: Vec<ChangedLine>,
}

impl ChangedLines {
    /// The lines that differ between where a request ends in one configuration and in the other.
    pub(super) fn between(
        &mut self,
        plans: &PlanPair,
        old: VerdictPlace,
        new: VerdictPlace,
    ) -> Rc<LineChanges> {
        if let Some(known) = self.known.get(&(old, new)) {
            return known.clone();
        }
        let definitions = self.definitions.get_or_insert_with(|| definitions(plans));
        let found = Rc::new(changes(plans, old, new, definitions));
        self.known.insert((old, new), found.clone());
        found
    }
}

/// A line in force.
struct LineInForce {
    text: String,
    whole: String,
    place: String,
}

fn in_force(plan: &LoadedPlan, place: VerdictPlace) -> Vec<LineInForce> {
    let lines = plan.directives(place.server, place.location, false).into_iter();
    lines
        .map(|line| LineInForce {
            // Of a block what is in its braces, which may be all that differs.
            text: match (line.text.strip_suffix("{ ... }"), line.whole.find(" { ")) {
                (Some(opening), Some(at)) => format!("{opening}{}", &line.whole[at + 1..]),
                _ => line.text,
            },
            whole: line.whole,
            place: line.place.unwrap_or_else(|| "-".to_owned()),
        })
        .collect()
}

fn changes(
    plans: &PlanPair,
    old: VerdictPlace,
    new: VerdictPlace,
    definitions: &[ChangedDefinition],
) -> LineChanges {
    let (before, after) = (in_force(&plans.old, old), in_force(&plans.new, new));
    let mut words: HashSet<String> =
        before.iter().chain(&after).flat_map(|line| words(&line.whole)).collect();
    let sent = |lines: &[LineInForce]| {
        let sent = lines.iter().filter(|line| is_sent(line.text.split(' ').next().unwrap_or_default()));
        let mut sent: Vec<&str> = sent.map(|line| line.whole.as_str()).collect();
        sent.sort_unstable();
        sent.join("; ")
    };
    let sent = Some((sent(&before), sent(&after))).filter(|(before, after)| before != after);
    let shown = |plan: &LoadedPlan, place: VerdictPlace| {
        place.location.or(place.server).map_or_else(|| "-".to_owned(), |span| plan.place(span))
    };
    let at = (shown(&plans.old, old), shown(&plans.new, new));
    let mut lines = differing(before, after);
    let mut left: Vec<&ChangedDefinition> = definitions.iter().collect();
    while let Some(index) = left.iter().position(|one| words.contains(&one.name)) {
        let definition = left.swap_remove(index);
        words.extend(definition.words.iter().cloned());
        lines.extend(definition.lines.iter().cloned());
    }
    LineChanges { lines, sent: sent.unwrap_or_default(), at }
}

/// The lines that only one side has; of several equal ones as many as it has more.
fn differing(old: Vec<LineInForce>, new: Vec<LineInForce>) -> Vec<ChangedLine> {
    let mut counts: HashMap<&str, isize> = HashMap::new();
    new.iter().for_each(|line| *counts.entry(&line.whole).or_default() -= 1);
    old.iter().for_each(|line| *counts.entry(&line.whole).or_default() += 1);
    let mut found = Vec::new();
    for (lines, is_new, step) in [(&old, false, 1), (&new, true, -1)] {
        for line in lines {
            let count = counts.entry(&line.whole).or_default();
            if *count * step > 0 {
                *count -= step;
                let (text, place) = (line.text.clone(), line.place.clone());
                found.push(ChangedLine { is_new, text, place });
            }
        }
    }
    found
}

/// The definitions of `http` that differ.
fn definitions(plans: &PlanPair) -> Vec<ChangedDefinition> {
    let (old, new) = (defined(&plans.old), defined(&plans.new));
    let names: HashSet<&String> = old.keys().chain(new.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort();
    let mut changed = Vec::new();
    for name in names {
        let inside = |plan: &LoadedPlan, line: Option<&&DirectiveLine>| {
            let Some(line) = line else { return Vec::new() };
            let inner = |inner: &DirectiveLine| LineInForce {
                text: format!("{}: {}", plan.shown(line).trim_end_matches(" { ... }"), plan.shown(inner)),
                whole: whole(inner),
                place: plan.place(inner.name.span),
            };
            lines(line).iter().map(inner).collect()
        };
        let (before, after) = (old.get(name), new.get(name));
        let all = [before, after].into_iter().flatten();
        let words = all.flat_map(|line| words(&whole(line))).collect();
        let lines = differing(inside(&plans.old, before), inside(&plans.new, after));
        if !lines.is_empty() {
            changed.push(ChangedDefinition { name: name.clone(), words, lines });
        }
    }
    changed
}

/// The definitions of a configuration by the name that lines use.
fn defined(plan: &LoadedPlan) -> HashMap<String, &DirectiveLine> {
    let defining = plan.http().iter().filter(|line| DEFINE.contains(&line.name.str()));
    defining.filter_map(|line| Some((line.args.last()?.str().to_lowercase(), line))).collect()
}

/// What lines may name definitions by.
fn words(text: &str) -> impl Iterator<Item = String> + use<> {
    let text = text.to_lowercase();
    let variables: Vec<String> = variables(&text).into_iter().map(|name| format!("${name}")).collect();
    let plain = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c));
    let plain: Vec<String> = plain.filter(|word| !word.is_empty()).map(str::to_owned).collect();
    variables.into_iter().chain(plain)
}

/// Blocks of `http` that lines in force name.
const DEFINE: [&str; 4] = ["map", "geo", "split_clients", "upstream"];
