//! `compare`: two choices of requests side by side, as `weir compare` shows them, in rounds of this server's own.

use std::time::Duration;

use weir_trace::{AverageWatch, SiteTable, render};

use super::average::{WatchedStart, collect};
use super::reply::{ReplyFailure, ReplySink};
use crate::compare::{JoinedNode, MeasuredNode, ShownParts, SideName, SideNames, json, text};
use crate::control::protocol::ControlQuestion;
use crate::filter::{RequestFilter, duration_ns};
use crate::source::{ServerSource, scale};

/// `rounds` of up to `n` requests of each side in `for`; those in which a side had none are left out.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let words = ["a", "b"].map(|side| question.value(side).unwrap_or("").to_owned());
    let filters = [RequestFilter::parse(&words[0])?, RequestFilter::parse(&words[1])?];
    let wanted = question.number("rounds", 10)?.clamp(1, MOST);
    let count = question.number("n", 100)?.max(1) as usize;
    let limit = Duration::from_nanos(duration_ns(question.value("for").unwrap_or("1s"))?);
    let mut rounds = Vec::new();
    for round in 0..wanted {
        reply.note(&format!("round {} of {wanted}", round + 1))?;
        if reply.is_stopped() {
            break;
        }
        let sides = one(source, &filters, count, limit, reply)?;
        if sides.0.requests() > 0 && sides.1.requests() > 0 {
            rounds.push(sides);
        }
    }
    if rounds.is_empty() {
        return Err(ReplyFailure::Wrong("there were not requests of both sides in any round".to_owned()));
    }
    let total = |of: fn(&(MeasuredNode, MeasuredNode)) -> &MeasuredNode| {
        rounds.iter().map(|round| of(round).requests()).sum()
    };
    let [a, b] = words;
    let names = SideNames {
        a: SideName::new(a, total(|round| &round.0)),
        b: SideName::new(b, total(|round| &round.1)),
        rounds: rounds.len(),
    };
    let (joined, shown) = (JoinedNode::new(&rounds, &[]), ShownParts::new(question.has("wait")));
    let shown =
        if question.has("json") { json(&joined, &names, shown) } else { text(&joined, &names, shown) };
    Ok(reply.out(shown.as_bytes())?)
}

/// A round of both sides at once.
fn one(
    source: &ServerSource,
    filters: &[RequestFilter; 2],
    count: usize,
    limit: Duration,
    reply: &mut dyn ReplySink,
) -> Result<(MeasuredNode, MeasuredNode), ReplyFailure> {
    let sites = SiteTable::global();
    let watch = |filter: &RequestFilter| {
        let filter = filter.clone();
        AverageWatch::new(count, sites, move |record| filter.takes(record))
    };
    let (averages, _) = collect(source, &filters.each_ref().map(watch), WatchedStart::Any, limit, |_| {
        Ok(!reply.is_stopped())
    })?;
    let read = |at: usize| MeasuredNode::parse(render::average_json(&averages[at], sites, &scale).as_bytes());
    Ok((read(0)?, read(1)?))
}

/// Rounds at most.
const MOST: u64 = 1000;
