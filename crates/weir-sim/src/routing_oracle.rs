//! Responses of the servers of routing are those that the reference says.

use crate::plan::Plan;
use crate::routing::DueResponse;

/// What is wrong with a response, by its line in the journal.
pub(crate) fn fault(plan: &Plan, line: &str) -> Option<String> {
    let (number, came) = line.strip_prefix("w n=")?.split_once(' ')?;
    let request = plan.request(number.parse().ok()?)?;
    let ask = request.ask.as_ref()?;
    let due = plan.routing.due(ask);
    (!DueResponse::is_due(came, &due))
        .then(|| format!("routing: {came}, and {} is due for {ask:?}", due.words()))
}

/// Whether a request may be refused before the field with its number is read.
pub(crate) fn has_no_number(plan: &Plan, number: u64) -> bool {
    plan.request(number).and_then(|request| request.ask.as_ref()).is_some_and(|ask| ask.may_be_bad())
}
