//! What must hold of limits: no more pass than they let, and none is refused that need not be.
//!
//! When a limit has judged is not known; it is between the moments when its client asked and had the whole response. So
//! both checks are of what must be so whatever that moment was.

use std::collections::BTreeMap;

use crate::limits::LimitPlan;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::request::Target;

/// A worker's clock is that of the beginning of its turn, and timers come a little early or late, microseconds.
const SLACK: u64 = 20_000;
/// A request whose client has seen its end may count for a little longer, microseconds.
const AFTERWARDS: u64 = 200_000;
/// One whose client has left may count as long, microseconds.
const FORSAKEN: u64 = 10_000_000;

/// What became of a request at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitVerdict {
    Passed,
    Refused,
    /// Its client has not seen it.
    Unknown,
}

/// A request that came to a limit: from when to when, microseconds.
#[derive(Clone, Copy, Debug)]
struct LimitedRun {
    number: u64,
    asked: u64,
    ended: u64,
    verdict: LimitVerdict,
}

impl LimitedRun {
    fn of(outcome: &Outcome<'_>) -> LimitedRun {
        let verdict = match (outcome.end, outcome.status) {
            ("whole", 200) => LimitVerdict::Passed,
            ("whole", 503) => LimitVerdict::Refused,
            _ => LimitVerdict::Unknown,
        };
        LimitedRun { number: outcome.number, asked: outcome.time.0, ended: outcome.time.1, verdict }
    }

    fn may_count(&self) -> bool {
        self.verdict != LimitVerdict::Refused
    }

    /// When its limit has judged it at the latest: a request that waits behind another one is read after its client has left.
    fn judged_at_last(&self) -> u64 {
        match self.verdict {
            LimitVerdict::Unknown => self.ended + FORSAKEN,
            _ => self.ended,
        }
    }
}

/// What is wrong with the limits of a server's time. Of one that has crashed it is not known who has come last: nobody says
/// then that a request was refused for nothing.
pub(crate) fn faults(plan: &Plan, outcomes: &[Outcome<'_>], has_crashed: bool) -> Vec<String> {
    let Some(limits) = &plan.limits else { return Vec::new() };
    let mut paced: BTreeMap<u64, Vec<LimitedRun>> = BTreeMap::new();
    let mut crowded: BTreeMap<u64, Vec<(LimitedRun, u64)>> = BTreeMap::new();
    for outcome in outcomes {
        match plan.request(outcome.number).map(|request| request.target) {
            Some(Target::Paced(key)) => paced.entry(key).or_default().push(LimitedRun::of(outcome)),
            Some(Target::Crowded(key, ms)) => {
                crowded.entry(key).or_default().push((LimitedRun::of(outcome), ms * 1000));
            }
            _ => (),
        }
    }
    let mut faults: Vec<String> = paced.values().filter_map(|runs| too_many(limits, runs)).collect();
    faults.extend(crowded.values().filter_map(|runs| too_crowded(limits, runs)));
    if !has_crashed {
        faults.extend(paced.values().filter_map(|runs| too_few(limits, runs)));
        faults.extend(crowded.values().filter_map(|runs| refused_alone(limits, runs)));
    }
    faults
}

/// Of those that have passed, in each stretch of time at most the burst, one, and what the rate lets.
fn too_many(limits: &LimitPlan, runs: &[LimitedRun]) -> Option<String> {
    let mut passed: Vec<&LimitedRun> =
        runs.iter().filter(|run| run.verdict == LimitVerdict::Passed).collect();
    passed.sort_by_key(|run| run.ended);
    passed.iter().find_map(|first| {
        let inside = passed.iter().filter(|run| run.asked >= first.asked);
        inside.enumerate().find_map(|(before, last)| {
            let time = last.ended - first.asked + SLACK;
            let most = limits.burst + 1 + limits.rate * time / 1_000_000;
            (before as u64 + 1 > most).then(|| {
                format!(
                    "limit_req: {} requests have passed in {time} us: {limits:?}, from {first:?}",
                    before + 1
                )
            })
        })
    })
}

/// One that was refused came when those that may have passed before it had filled the burst.
fn too_few(limits: &LimitPlan, runs: &[LimitedRun]) -> Option<String> {
    let refused = runs.iter().filter(|run| run.verdict == LimitVerdict::Refused);
    refused.into_iter().find_map(|refused| {
        let mut before: Vec<&LimitedRun> =
            runs.iter().filter(|run| run.may_count() && run.asked <= refused.ended).collect();
        before.sort_by_key(|run| std::cmp::Reverse(run.judged_at_last()));
        let is_full = before.iter().enumerate().any(|(later, run)| {
            let drained =
                limits.rate * refused.asked.saturating_sub(run.judged_at_last() + SLACK) / 1_000_000;
            later as u64 + 1 >= limits.burst + drained
        });
        (!is_full).then(|| format!("limit_req: refused for nothing: {limits:?}, {refused:?}"))
    })
}

/// At no time do more scripts run than the limit lets.
fn too_crowded(limits: &LimitPlan, runs: &[(LimitedRun, u64)]) -> Option<String> {
    // Whenever its script began, it ran in this stretch.
    let sure = |(run, time): &(LimitedRun, u64)| {
        let (from, until) =
            (run.ended.saturating_sub(*time) + SLACK, (run.asked + time).saturating_sub(SLACK));
        (run.verdict == LimitVerdict::Passed && from < until).then_some((from, until))
    };
    let stretches: Vec<(u64, u64)> = runs.iter().filter_map(sure).collect();
    stretches.iter().find_map(|(at, _)| {
        let running = stretches.iter().filter(|(from, until)| from <= at && at < until).count() as u64;
        (running > limits.connections).then(|| format!("limit_conn: {running} at {at} us: {limits:?}"))
    })
}

/// One that is refused came beside as many as the limit lets.
fn refused_alone(limits: &LimitPlan, runs: &[(LimitedRun, u64)]) -> Option<String> {
    let longest = |(run, time): &(LimitedRun, u64)| match run.verdict {
        LimitVerdict::Passed => run.ended + AFTERWARDS,
        _ => run.ended.max(run.asked + time) + FORSAKEN,
    };
    let mut refused = runs.iter().map(|(run, _)| run).filter(|run| run.verdict == LimitVerdict::Refused);
    refused.find_map(|refused| {
        let beside = runs.iter().filter(|one| {
            one.0.number != refused.number
                && one.0.may_count()
                && one.0.asked <= refused.ended
                && longest(one) >= refused.asked
        });
        let is_alone = (beside.count() as u64) < limits.connections;
        is_alone.then(|| format!("limit_conn: refused for nothing: {limits:?}, {refused:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitExcess;

    const LIMITS: LimitPlan = LimitPlan { rate: 10, burst: 2, excess: LimitExcess::Passes, connections: 2 };

    fn runs(of: &[(u64, u64, LimitVerdict)]) -> Vec<LimitedRun> {
        let run = |(number, (asked, ended, verdict)): (usize, &(u64, u64, LimitVerdict))| LimitedRun {
            number: number as u64,
            asked: *asked,
            ended: *ended,
            verdict: *verdict,
        };
        of.iter().enumerate().map(run).collect()
    }

    #[test]
    fn a_burst_and_what_the_rate_lets_may_pass() {
        use LimitVerdict::Passed;
        let at_once = [(0, 1000, Passed); 4];
        assert!(too_many(&LIMITS, &runs(&at_once[..3])).is_none());
        assert!(too_many(&LIMITS, &runs(&at_once)).is_some());
        let with_late = [at_once[0], at_once[1], at_once[2], (0, 90_000, Passed)];
        assert!(
            too_many(&LIMITS, &runs(&with_late)).is_none(),
            "it may have passed after a tenth of a second"
        );
        let asked_late = [at_once[0], at_once[1], at_once[2], (60_000, 70_000, Passed)];
        assert!(too_many(&LIMITS, &runs(&asked_late)).is_some());
    }

    #[test]
    fn who_is_refused_came_to_a_full_burst() {
        use LimitVerdict::{Passed, Refused, Unknown};
        let full = [(0, 1000, Passed), (0, 1000, Unknown), (0, 1000, Passed), (0, 1000, Refused)];
        assert!(too_few(&LIMITS, &runs(&full)).is_none());
        assert!(too_few(&LIMITS, &runs(&full[2..])).is_some());
        let late = [full[0], full[1], full[2], (500_000, 501_000, Refused)];
        assert!(too_few(&LIMITS, &runs(&late)).is_some(), "the rate has let five pass meanwhile");
        let behind = [full[1], full[1], late[3]];
        assert!(too_few(&LIMITS, &runs(&behind)).is_none(), "they may have been read later");
    }

    #[test]
    fn a_crowd_is_no_larger_than_the_limit() {
        use LimitVerdict::{Passed, Refused};
        let of = |all: &[(u64, u64, LimitVerdict)]| {
            runs(all).into_iter().map(|run| (run, 300_000)).collect::<Vec<_>>()
        };
        let three = [(0, 301_000, Passed), (1000, 302_000, Passed), (2000, 303_000, Passed)];
        assert!(too_crowded(&LIMITS, &of(&three[..2])).is_none());
        assert!(too_crowded(&LIMITS, &of(&three)).is_some());
        let refused = (2000, 3000, Refused);
        assert!(refused_alone(&LIMITS, &of(&[three[0], three[1], refused])).is_none());
        assert!(refused_alone(&LIMITS, &of(&[three[0], refused])).is_some());
        let after = (900_000, 901_000, Refused);
        assert!(refused_alone(&LIMITS, &of(&[three[0], three[1], after])).is_some());
    }
}
