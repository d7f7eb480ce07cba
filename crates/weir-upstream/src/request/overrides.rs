//! What a script has said of how its request is sent to servers, in place of what the location says: lost on an internal
//! redirect, as nginx's module contexts are.

use weir_engine::exchange::Exchange;

use crate::config::directives::UpstreamSettings;
use crate::config::failure_reason::FailureReason;

/// See the module.
#[derive(Default)]
pub struct UpstreamOverrides {
    /// Failures after which another peer is tried, in place of `*_next_upstream`: bits of [`FailureReason`].
    pub next_upstream: Option<u32>,
    /// The `:authority` of gRPC requests.
    pub authority: Option<Box<[u8]>>,
}

impl UpstreamOverrides {
    /// Those of `x`, if there are any.
    pub fn of(x: &Exchange) -> Option<&UpstreamOverrides> {
        x.state_if()
    }
}

/// Failures after which another peer is tried for `x`: bits of [`FailureReason`].
fn next_upstream(x: &Exchange, settings: &UpstreamSettings) -> u32 {
    UpstreamOverrides::of(x).and_then(|own| own.next_upstream).unwrap_or(settings.next_upstream)
}

/// Whether `*_next_upstream`, or what a script has put in its place, has all of the bits of `mask`.
pub(crate) fn allows(x: &Exchange, settings: &UpstreamSettings, mask: u32) -> bool {
    let set = next_upstream(x, settings);
    set & FailureReason::OFF.0 == 0 && set & mask == mask
}

/// Whether it has any of the bits of `reason`.
pub(crate) fn names(x: &Exchange, settings: &UpstreamSettings, reason: FailureReason) -> bool {
    next_upstream(x, settings) & reason.0 != 0
}
