//! What became of a request, as the journal has it, and what is due.

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::request::Target;
use crate::tls::TlsPlan;

/// A request's line in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Outcome<'j> {
    pub(crate) number: u64,
    /// The which one of its connection, from 1.
    pub(crate) at: u64,
    pub(crate) status: u16,
    pub(crate) end: &'j str,
    pub(crate) body: &'j str,
    pub(crate) why: &'j str,
    /// When it was asked for and when it ended, microseconds of the simulation.
    pub(crate) time: (u64, u64),
}

impl<'j> Outcome<'j> {
    pub(crate) fn parse(line: &'j str) -> Option<Outcome<'j>> {
        let words = journal_words(line.strip_prefix("r ")?);
        let number = |name: &str| words.get(name).and_then(|word| word.parse::<u64>().ok());
        let end = number("t").unwrap_or(0);
        Some(Outcome {
            time: (end.saturating_sub(number("us").unwrap_or(0)), end),
            number: number("n")?,
            at: number("at")?,
            status: number("status")? as u16,
            end: words.get("end")?,
            body: words.get("body")?,
            why: words.get("why")?,
        })
    }
}

/// What a line of the journal says: `name=value name=value`.
pub(crate) fn journal_words(line: &str) -> BTreeMap<&str, &str> {
    line.split(' ').filter_map(|word| word.split_once('=')).collect()
}

/// A line of the journal about a session or a client of datagrams.
pub(crate) struct JournalRecord<'j>(pub(crate) BTreeMap<&'j str, &'j str>);

impl<'j> JournalRecord<'j> {
    /// What a line says that begins with this; `None`: it is another line.
    pub(crate) fn of(line: &'j str, begin: &str) -> Option<JournalRecord<'j>> {
        line.strip_prefix(begin).map(|rest| JournalRecord(journal_words(rest)))
    }

    /// Empty where it is not said.
    pub(crate) fn word(&self, name: &str) -> &'j str {
        self.0.get(name).copied().unwrap_or("")
    }

    /// The largest number where none is said.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.word(name).parse().unwrap_or(u64::MAX)
    }
}

/// What is wrong with a whole response to such a target.
pub(crate) fn whole_fault(target: Target, outcome: &Outcome<'_>) -> Option<String> {
    let statuses = target.statuses();
    if !statuses.contains(&outcome.status) {
        return Some(format!("status {} of {target:?}", outcome.status));
    }
    if target.is_cut() && outcome.status == 200 {
        return Some(format!("a response that was cut short seems whole ({target:?})"));
    }
    let is_own_page = outcome.status >= 500;
    let wanted = if is_own_page { "page" } else { "right" };
    (outcome.body != wanted).then(|| format!("the body of {target:?}"))
}

/// What is wrong, if anything is, with a request whose client can't be served, or whose connection may fail: nothing else is to
/// be asked of it then. `None`: it is as others.
pub(crate) fn secret_fault(
    plan: &Plan,
    target: Target,
    client: Option<&TlsPlan>,
    outcome: &Outcome<'_>,
) -> Option<Option<String>> {
    let (client, server) = (client?, plan.tls?);
    let is_whole = outcome.end == "whole";
    if is_whole && !client.fits(&server) {
        return Some(Some("a response where there can be no connection".to_owned()));
    }
    // A page for no good request has no content where the request is for the head alone: that of an empty file is as empty.
    let is_shown = outcome.body == "right" && target != Target::File(0);
    if outcome.end != "none" && !client.is_let_in() && (outcome.status != 400 || is_shown) {
        return Some(Some("a client without a good certificate was let in".to_owned()));
    }
    let is_excused = client.may_fail(&server) && (!is_whole || !client.is_let_in());
    is_excused.then_some(None)
}
