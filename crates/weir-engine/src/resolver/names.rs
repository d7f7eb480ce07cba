//! Names that are followed: servers of upstreams whose addresses change.

use std::sync::Arc;
use std::time::Duration;

use weir_resolver::{DnsFailure, DnsQuestion};
use weir_rt::clock;

use super::{LookupResult, ResolverShared};
use crate::log::{self, LogLevel};

/// A name that is followed.
pub struct NameWatch {
    /// The name, and the type of records.
    pub question: DnsQuestion,
    /// The name as messages have it: `example.org`, `service http of example.org`.
    pub name: String,
    /// Milliseconds a look-up may take.
    pub timeout: u64,
    /// Receives what was found, or why nothing was; `false`: the result is no longer wanted.
    pub reported: Box<dyn Fn(LookupResult) -> bool + Send>,
}

/// Milliseconds between look-ups that fail.
const AGAIN: (u64, u64) = (1_000, 5_000);
/// The shortest time between two look-ups, milliseconds.
const SHORTEST: u64 = 100;

/// Looks the name up whenever what is known has expired.
pub(super) async fn follow(shared: Arc<ResolverShared>, watch: NameWatch) {
    let mut was_stale = false;
    loop {
        let found = shared.resolve(&watch.question, watch.timeout).await;
        let stale = found.as_ref().is_ok_and(|answer| answer.stale);
        if stale && !was_stale {
            let name = &watch.name;
            log::cycle(
                LogLevel::Warn,
                &format_args!("{name} could not be resolved again, its addresses stay in use"),
            );
        }
        was_stale = stale;
        let wait = pause(&shared, &watch, &found);
        if !tell(&watch, found) {
            return;
        }
        weir_rt::sleep(Duration::from_millis(wait)).await;
    }
}

fn pause(shared: &ResolverShared, watch: &NameWatch, found: &LookupResult) -> u64 {
    match found {
        Ok(answer) => answer.until.saturating_sub(clock::monotonic_ms()).max(SHORTEST),
        Err(DnsFailure::Code(3)) => shared.config.settings.valid.unwrap_or(AGAIN.0).clamp(AGAIN.0, AGAIN.1),
        Err(_) => watch.timeout.clamp(AGAIN.0, AGAIN.1),
    }
}

fn tell(watch: &NameWatch, found: LookupResult) -> bool {
    if let Err(failure) = &found {
        let (name, number) = (&watch.name, failure.number());
        log::cycle(LogLevel::Error, &format_args!("{name} could not be resolved ({number}: {failure})"));
    }
    (watch.reported)(found)
}
