//! What a seed draws of limits: how many requests of a key may come in a time, and how many may run at once.

use std::fmt::Write;

use crate::draw::Draw;

/// The settings of limits, and who is at work on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPlan {
    /// `rate` of `limit_req_zone`, requests per second.
    pub rate: u64,
    /// `burst` of `limit_req`.
    pub burst: u64,
    /// What becomes of requests within the burst.
    pub excess: LimitExcess,
    /// The number of `limit_conn`.
    pub connections: u64,
}

/// What becomes of a request that comes too early, within the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExcess {
    /// It waits for its time.
    Waits,
    /// `nodelay`: it is passed on at once.
    Passes,
    /// `delay=`: from so many on it waits.
    WaitsFrom(u64),
}

/// Keys of limits: few, for requests to meet.
pub const LIMIT_KEYS: u64 = 2;
/// How long scripts behind `limit_conn` sleep, milliseconds.
pub const CROWD_MS: [u64; 3] = [1, 30, 300];
/// Requests of clients that are there for the limits have the numbers after this one.
pub const LIMITED_NUMBERS: u64 = 300_000;

impl LimitPlan {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> LimitPlan {
        LimitPlan {
            rate: *draw.one_of(&[1, 5, 20, 100]),
            burst: *draw.one_of(&[0, 1, 3, 10]),
            excess: match draw.below(4) {
                0 => LimitExcess::Waits,
                1 => LimitExcess::WaitsFrom(draw.between(1, 4)),
                _ => LimitExcess::Passes,
            },
            connections: draw.between(1, 4),
        }
    }

    /// How long `limit_req` may hold a request, microseconds.
    pub(crate) fn longest_delay(&self) -> u64 {
        match self.excess {
            LimitExcess::Passes => 0,
            LimitExcess::Waits | LimitExcess::WaitsFrom(_) => self.burst * 1_000_000 / self.rate,
        }
    }

    /// Lines of `http`.
    pub fn configuration(&self) -> String {
        format!(
            "    limit_req_zone $arg_k zone=pace:1m rate={}r/s;\n    limit_conn_zone $arg_k zone=crowd:1m;\n",
            self.rate
        )
    }

    /// The locations. Their responses come after the limits have judged: those of `return` would come before.
    pub fn locations(&self) -> String {
        let mut lines = String::new();
        let excess = match self.excess {
            LimitExcess::Waits => String::new(),
            LimitExcess::Passes => " nodelay".to_owned(),
            LimitExcess::WaitsFrom(delay) => format!(" delay={delay}"),
        };
        let burst = if self.burst > 0 { format!(" burst={}{excess}", self.burst) } else { String::new() };
        let said = "ngx.say('n=', ngx.var.arg_n)";
        let _ = writeln!(
            lines,
            "        location /paced {{ limit_req zone=pace{burst}; content_by_lua_block {{ {said} }} }}
        location /crowded {{ limit_conn crowd {};
            content_by_lua_block {{ ngx.sleep(ngx.var.arg_ms / 1000) {said} }} }}",
            self.connections
        );
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_written_as_nginx_reads_them() {
        let plan = LimitPlan { rate: 5, burst: 3, excess: LimitExcess::WaitsFrom(2), connections: 4 };
        assert!(plan.configuration().contains("limit_req_zone $arg_k zone=pace:1m rate=5r/s;"));
        assert!(plan.locations().contains("limit_req zone=pace burst=3 delay=2;"));
        assert!(plan.locations().contains("limit_conn crowd 4;"));
        let strict = LimitPlan { burst: 0, excess: LimitExcess::Passes, ..plan };
        assert!(strict.locations().contains("limit_req zone=pace;"), "{}", strict.locations());
    }
}
