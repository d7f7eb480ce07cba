//! What must hold of requests that upstream servers get over HTTP/2.
//!
//! Journal: `gd` is a request that a server has not done for its GOAWAY, `gc` a connection that is cut off, `gt` a whole response's
//! trailers as a client has got them.

use crate::framed::{FramedAsk, FramedManner};
use crate::outcome::{Outcome, journal_words};
use crate::plan::Plan;
use crate::request::{RequestPlan, Target};

/// A request that was not done is sent again so often at most.
const MOST_AGAIN: usize = 3;

/// What is wrong with a response that has come whole.
pub(crate) fn whole_fault(
    plan: &Plan,
    request: &RequestPlan,
    ask: &FramedAsk,
    outcome: &Outcome<'_>,
) -> Option<String> {
    use FramedManner::{CutShort, GoesAway, HeadOnly, NotFound, RefusedOnce, ResetEarly, Silent};
    let may_fail = may_be_cut(plan) || !may_be_sent_again(request) && ask.manner != HeadOnly;
    let due: &[u16] = match ask.manner {
        NotFound => &[404],
        ResetEarly => &[502],
        Silent => &[504],
        CutShort => &[502],
        RefusedOnce | GoesAway if may_fail => &[200, 502],
        _ => &[200],
    };
    let is_excused = matches!(outcome.status, 502 | 504) && (may_be_cut(plan) || crowds(plan));
    if !due.contains(&outcome.status) && !is_excused {
        return Some(format!("status {} of {ask:?}", outcome.status));
    }
    let wanted = if outcome.status >= 500 { "page" } else { "right" };
    (outcome.body != wanted).then(|| format!("the body of {ask:?}"))
}

/// Whether a response may end before its end.
pub(crate) fn may_be_cut_off(plan: &Plan, target: Target) -> bool {
    let Target::Framed(ask) = target else { return false };
    ask.manner == FramedManner::CutShort || may_be_cut(plan)
}

fn may_be_cut(plan: &Plan) -> bool {
    plan.framed.is_some_and(|framed| framed.cuts > 0)
}

/// Whether so many requests end their connections that one may be sent again more often than that is done.
fn crowds(plan: &Plan) -> bool {
    let ends = |request: &&RequestPlan| matches!(request.target, Target::Framed(ask) if ask.manner.ends_connection());
    plan.requests().filter(ends).count() > MOST_AGAIN
}

/// Whether the content is still there when a request is to be sent again.
fn may_be_sent_again(request: &RequestPlan) -> bool {
    request.body.is_none_or(|body| body.length <= 8192)
}

/// What is wrong with the trailers of a line of the journal.
pub(crate) fn trailer_fault(plan: &Plan, line: &str) -> Option<String> {
    let words = journal_words(line.strip_prefix("gt ")?);
    let number = words.get("n")?.parse().ok()?;
    let Target::Framed(ask) = plan.request(number)?.target else { return None };
    let due = if ask.has_trailers() { format!("0,n={number}") } else { "-".to_owned() };
    let got = line.split_once("trailers=").map_or("", |(_, rest)| rest);
    (got != due).then(|| format!("trailers {got:?} of {ask:?}, {due:?} were due: {line}"))
}
