//! What makes a request's tree worth keeping, by route.

use crate::histogram::Histogram;
use crate::live_counts::LiveCounts;
use crate::record::RequestRecord;
use crate::site::Site;

/// From when on a request counts as slow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SlowLimit {
    /// Never.
    #[default]
    Never,
    /// From this many ticks on.
    Ticks(u64),
    /// When it took longer than 99 of 100 requests of its route did lately: of a thousand or more, counted again each
    /// time. Until there are a hundred nothing is slow.
    P99,
}

/// What the requests of one location keep, besides failed requests and those that were asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeepRule {
    /// From which duration on a request counts as slow.
    pub slow: SlowLimit,
    /// One in so many, whatever became of it; 0 for none.
    pub sample: u32,
}

/// The rules by their number; requests without one go by the recorder's settings.
#[derive(Debug, Default)]
pub(crate) struct KeepRules {
    states: Vec<RuleState>,
}

#[derive(Debug)]
struct RuleState {
    rule: KeepRule,
    /// A request that took more ticks is slow.
    bound: u64,
    /// Requests until the bound is computed again.
    until_bound: u32,
    /// What the route had counted then.
    counted: Histogram,
    /// Requests until the next one that is drawn.
    until_sample: u32,
}

/// What the rule of its route says of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeepJudgement {
    pub(crate) slow: bool,
    pub(crate) drawn: bool,
    /// Its route retains slow ones at all.
    pub(crate) slowest: bool,
}

impl KeepRules {
    pub(crate) fn new(rules: impl IntoIterator<Item = KeepRule>) -> KeepRules {
        KeepRules { states: rules.into_iter().map(RuleState::new).collect() }
    }

    /// Judges a finished request; `None` if it has no rule. Only now and then `counted` is asked for.
    #[inline]
    pub(crate) fn judge<'s>(
        &mut self,
        record: &RequestRecord,
        counted: impl FnOnce() -> &'s LiveCounts,
    ) -> Option<KeepJudgement> {
        let state = self.states.get_mut(usize::from(record.rule.checked_sub(1)?))?;
        Some(state.judge(record.route, record.total, counted))
    }
}

impl RuleState {
    fn new(rule: KeepRule) -> RuleState {
        let bound = match rule.slow {
            SlowLimit::Ticks(ticks) => ticks.saturating_sub(1),
            SlowLimit::Never | SlowLimit::P99 => u64::MAX,
        };
        RuleState {
            rule,
            bound,
            until_bound: FIRST_BOUND,
            counted: Histogram::new(),
            until_sample: rule.sample,
        }
    }

    #[inline]
    fn judge<'s>(
        &mut self,
        route: Site,
        total: u64,
        counted: impl FnOnce() -> &'s LiveCounts,
    ) -> KeepJudgement {
        if self.rule.slow == SlowLimit::P99 {
            self.until_bound -= 1;
            if self.until_bound == 0 {
                self.compute(route, counted());
            }
        }
        let mut drawn = false;
        if self.rule.sample > 0 {
            self.until_sample -= 1;
            drawn = self.until_sample == 0;
            if drawn {
                self.until_sample = self.rule.sample;
            }
        }
        KeepJudgement { slow: total > self.bound, drawn, slowest: self.rule.slow != SlowLimit::Never }
    }

    /// The 99th percentile of the requests since it was computed last: some microseconds, once in a thousand requests.
    #[cold]
    fn compute(&mut self, route: Site, shared: &LiveCounts) {
        self.until_bound = NEXT_BOUND;
        let Some(total) = shared.total(route) else { return };
        let lately = total.since(&self.counted);
        if lately.count() >= FEWEST {
            self.bound = lately.quantile(0.99);
            self.counted = total;
        }
    }
}

/// Requests before the first bound.
const FIRST_BOUND: u32 = 128;
const NEXT_BOUND: u32 = 1024;
/// Fewer requests have no 99th percentile.
const FEWEST: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(slow: SlowLimit, sample: u32) -> KeepRules {
        KeepRules::new([KeepRule { slow, sample }])
    }

    fn record(rule: u16, total: u64) -> RequestRecord {
        RequestRecord { rule, route: Site(70), total, ..RequestRecord::default() }
    }

    #[test]
    fn a_request_without_a_rule_has_no_judgement() {
        let shared = LiveCounts::new(0);
        let mut rules = rules(SlowLimit::Never, 0);
        assert_eq!(rules.judge(&record(0, 1), || &shared), None);
        assert_eq!(rules.judge(&record(2, 1), || &shared), None);
        assert_eq!(
            rules.judge(&record(1, u64::MAX), || &shared),
            Some(KeepJudgement { slow: false, drawn: false, slowest: false })
        );
    }

    #[test]
    fn a_fixed_bound_is_the_first_slow_time() {
        let shared = LiveCounts::new(0);
        let mut rules = rules(SlowLimit::Ticks(500), 0);
        let mut slow = |total| rules.judge(&record(1, total), || &shared).is_some_and(|judged| judged.slow);
        assert!(!slow(499) && slow(500));
    }

    #[test]
    fn one_in_so_many_is_drawn() {
        let shared = LiveCounts::new(0);
        let mut rules = rules(SlowLimit::Never, 8);
        let drawn =
            (0..80).filter(|_| rules.judge(&record(1, 1), || &shared).is_some_and(|judged| judged.drawn));
        assert_eq!(drawn.count(), 10);
    }

    #[test]
    fn the_99th_percentile_follows_the_route() {
        let shared = LiveCounts::new(0);
        let mut rules = rules(SlowLimit::P99, 0);
        let mut slow = 0;
        let mut play = |total: u64| {
            let judged = rules.judge(&record(1, total), || &shared).expect("it has a rule");
            shared.site(Site(70)).record_total(total);
            slow += u32::from(judged.slow);
            judged.slow
        };
        (0..128).for_each(|n| assert!(!play(1_000 + n % 50), "nothing is slow at first"));
        assert!(!play(1_000) && play(2_000));
        // The load becomes three times as slow: after a thousand requests that is normal.
        (0..2_200).for_each(|_| {
            play(3_000);
        });
        assert!(!play(3_000) && play(4_000));
    }
}
