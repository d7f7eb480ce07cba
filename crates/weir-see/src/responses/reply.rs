//! Where a response goes, why it is absent, and waits that end when the client leaves.

use std::io;
use std::time::{Duration, Instant};

/// Where a response goes.
pub(crate) trait ReplySink {
    /// Part of the response.
    fn out(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// How far it is.
    fn note(&mut self, text: &str) -> io::Result<()>;
    /// Whether the client has enough, or has gone.
    fn is_stopped(&mut self) -> bool;
}

/// Why there is no (complete) response.
#[derive(Debug)]
pub(crate) enum ReplyFailure {
    /// The client has gone.
    Gone(io::Error),
    /// The query has no response, for this reason.
    Wrong(String),
}

impl From<io::Error> for ReplyFailure {
    fn from(error: io::Error) -> ReplyFailure {
        ReplyFailure::Gone(error)
    }
}

impl From<String> for ReplyFailure {
    fn from(text: String) -> ReplyFailure {
        ReplyFailure::Wrong(text)
    }
}

/// Sleeps for `time`, or until the client has enough. `false`: it has.
pub(crate) fn pause(reply: &mut dyn ReplySink, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        if reply.is_stopped() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STEP));
    }
}

/// How often it is checked whether the client has enough.
pub(crate) const STEP: Duration = Duration::from_millis(50);
