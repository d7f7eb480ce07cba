//! Tokens that clients were given for their next connection: each is taken once (RFC 9000 section 8.1.4).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use quinn_proto::{TokenLog, TokenReuseError, ValidationTokenConfig};

/// How a server gives out tokens: one for each connection, where clients are asked to show where they are.
pub(super) fn given_out(retry: bool) -> ValidationTokenConfig {
    let mut tokens = ValidationTokenConfig::default();
    tokens.lifetime(LIFETIME).sent(u32::from(retry)).log(used());
    tokens
}

/// Those that the process has taken.
fn used() -> Arc<UsedTokens> {
    static USED: OnceLock<Arc<UsedTokens>> = OnceLock::new();
    USED.get_or_init(Arc::default).clone()
}

/// The tokens that were used in the time in which they are valid.
#[derive(Default)]
struct UsedTokens(Mutex<TokenPeriods>);

#[derive(Default)]
struct TokenPeriods {
    /// Since when, in seconds since 1970.
    since: u64,
    current: HashSet<u128>,
    /// Of the period before.
    before: HashSet<u128>,
}

impl TokenPeriods {
    /// Whether a token is used for the first time, at `now`.
    fn is_first(&mut self, nonce: u128, now: u64) -> bool {
        let age = now.saturating_sub(self.since);
        if age >= LIFETIME.as_secs() {
            let ended = std::mem::take(&mut self.current);
            // All of a period that ended a lifetime ago have expired.
            self.before = if age < 2 * LIFETIME.as_secs() { ended } else { HashSet::new() };
            self.since = now;
        }
        // With as many the client is asked once more, which costs it a round trip.
        !self.before.contains(&nonce) && self.current.len() < MOST && self.current.insert(nonce)
    }
}

impl TokenLog for UsedTokens {
    fn check_and_insert(&self, nonce: u128, _: SystemTime, _: Duration) -> Result<(), TokenReuseError> {
        let (now, _) = weir_rt::unix_time();
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if periods.is_first(nonce, now) { Ok(()) } else { Err(TokenReuseError) }
    }
}

/// As nginx's.
const LIFETIME: Duration = Duration::from_secs(600);
/// Tokens that are remembered of a period: some 2 MB.
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_once_and_forgotten_when_it_has_expired() {
        let mut periods = TokenPeriods::default();
        assert!(periods.is_first(7, 10_000));
        assert!(periods.is_first(8, 10_500));
        for later in [10_000, 10_599, 10_600, 11_199] {
            assert!(!periods.is_first(8, later), "{later}");
        }
        assert!(periods.is_first(8, 11_800), "it has expired, and is refused for that");
        assert!(periods.is_first(9, 20_000) && !periods.is_first(9, 20_001));
    }

    #[test]
    fn there_is_a_bound_on_what_is_remembered() {
        let mut periods = TokenPeriods::default();
        let taken = (0..2 * MOST as u128).filter(|nonce| periods.is_first(*nonce, 1_000)).count();
        assert_eq!(taken, MOST);
    }
}
