//! `limit_rate`: bytes leave no faster than this many a second.

use crate::exchange::Exchange;
use crate::value_script::ValueScript;

/// Whether a rate may be set for the body of `x`.
#[inline]
pub(crate) fn is_paced(x: &Exchange) -> bool {
    x.limit_rate.is_some() || x.plan.core.limit_rate.is_some()
}

/// A limit in force: bytes a second, and how many bytes are free.
#[derive(Clone, Copy)]
pub(crate) struct SendRate {
    per_second: u64,
    free: u64,
}

/// The limit of `x`, if there is one: what the request was given (`$limit_rate`, a script), else the location's.
pub(crate) fn of(x: &mut Exchange) -> Option<SendRate> {
    if !is_paced(x) {
        return None;
    }
    let plan = x.plan.clone();
    let per_second = match x.limit_rate {
        Some(rate) => rate,
        None => size(x, plan.core.limit_rate.as_ref()),
    };
    let free = size(x, plan.core.limit_rate_after.as_ref());
    (per_second > 0).then_some(SendRate { per_second, free })
}

impl SendRate {
    /// How many bytes may leave now of a request that began at `start_ms` and has sent `sent` bytes of its body; else how
    /// many milliseconds to wait. nginx's formula, a second ahead from the request's start.
    pub(super) fn allows(self, start_ms: u64, sent: u64) -> Result<u64, u64> {
        let seconds = weir_rt::now_ms().saturating_sub(start_ms) / 1000 + 1;
        let budget = self.per_second * seconds + self.free;
        match budget.saturating_sub(sent) {
            0 => Err(((sent + 1).saturating_sub(budget) * 1000 / self.per_second).max(1) + 1),
            allowed => Ok(allowed),
        }
    }
}

fn size(x: &mut Exchange, script: Option<&ValueScript>) -> u64 {
    let Some(script) = script else { return 0 };
    let value = script.value(x);
    weir_conf::parse_size(x.text(&value)).unwrap_or(0)
}
