//! `retry_budget`: how many requests may be tried again, as a part of those that come: retries shall not multiply an
//! outage. Each worker counts its own, so that nothing is shared on a request's path.

use std::cell::Cell;

use weir_conf::{LineCx, Result, parse_number};

/// What the directive says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryBudget {
    /// Retries for 1000 requests.
    per_thousand: u64,
    /// Retries that each worker may make a second however few requests there are.
    least: u64,
}

impl RetryBudget {
    /// `retry_budget number% [min=number]`
    ///
    /// # Errors
    /// nginx's words for what is no percentage.
    pub(crate) fn parse(line: &LineCx<'_>) -> Result<RetryBudget> {
        let percent = line.arg(0).strip_suffix('%').and_then(|text| parse_number(text.as_bytes()));
        let percent = percent.filter(|percent| *percent <= 1000).ok_or_else(|| line.invalid_value(0))?;
        let least = match line.args().get(1) {
            None => 10,
            Some(word) => {
                let number = word.str().strip_prefix("min=").and_then(|text| parse_number(text.as_bytes()));
                number.ok_or_else(|| line.invalid_parameter(1))?
            }
        };
        Ok(RetryBudget { per_thousand: percent * 10, least })
    }
}

/// What a worker may still spend, in thousandths of a retry.
#[derive(Debug, Default)]
pub(crate) struct RetryAllowance {
    left: Cell<u64>,
    /// When the seconds' part was last put in, in milliseconds.
    since: Cell<u64>,
}

impl RetryAllowance {
    /// A request has come.
    pub(crate) fn earn(&self, budget: &RetryBudget) {
        self.put(budget, budget.per_thousand);
    }

    /// Whether one may be tried again; it is counted.
    pub(crate) fn spend(&self, budget: &RetryBudget, now: u64) -> bool {
        let seconds_part = now.saturating_sub(self.since.replace(now)).min(1000).saturating_mul(budget.least);
        self.put(budget, seconds_part);
        let rest = self.left.get().checked_sub(ONE);
        self.left.set(rest.unwrap_or(self.left.get()));
        rest.is_some()
    }

    /// What is saved is no more than a burst of requests may need.
    fn put(&self, budget: &RetryBudget, thousandths: u64) {
        let most = budget.least.saturating_add(SAVED).saturating_mul(ONE);
        self.left.set(self.left.get().saturating_add(thousandths).min(most));
    }
}

/// A retry.
const ONE: u64 = 1000;
/// Retries that can be saved beyond those of a second.
const SAVED: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_part_of_requests() {
        let (budget, purse) = (RetryBudget { per_thousand: 200, least: 0 }, RetryAllowance::default());
        assert!(!purse.spend(&budget, 5_000));
        let mut spent = 0;
        for _ in 0..100 {
            purse.earn(&budget);
            spent += u32::from(purse.spend(&budget, 5_000));
        }
        assert_eq!(spent, 20);
        (0..10_000).for_each(|_| purse.earn(&budget));
        assert_eq!((0..1_000).filter(|_| purse.spend(&budget, 5_000)).count(), 100, "saved");
    }

    #[test]
    fn some_are_free_each_second() {
        let (budget, purse) = (RetryBudget { per_thousand: 0, least: 3 }, RetryAllowance::default());
        let spent = |now| (0..10).filter(|_| purse.spend(&budget, now)).count();
        assert_eq!([spent(10_000), spent(10_100), spent(11_000), spent(12_000)], [3, 0, 3, 3]);
        let (boundless, purse) =
            (RetryBudget { per_thousand: 10_000, least: u64::MAX }, RetryAllowance::default());
        assert!((0..10).all(|second| purse.spend(&boundless, second * 1000 + 5_000)));
    }
}
