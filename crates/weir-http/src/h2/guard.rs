//! Limits on what a peer may do that costs it less than us.
//!
//! Each kind of frame that an attack could be made of has a bucket: a burst that no honest peer comes near, and so many
//! more each second. An overrun ends the connection with ENHANCE_YOUR_CALM, is counted, and has a name.

use super::{Code, Failure};

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abuse {
    /// Streams that the peer resets (CVE-2023-44487), or makes us reset.
    Resets,
    /// PING frames (CVE-2019-9512).
    Pings,
    /// SETTINGS frames (CVE-2019-9515).
    Settings,
    /// Frames that carry nothing (CVE-2019-9518).
    Empty,
    /// PRIORITY and PRIORITY_UPDATE frames.
    Priorities,
    /// WINDOW_UPDATE frames (CVE-2019-9511).
    Windows,
    /// Frames of types that nobody knows.
    Unknown,
    /// CONTINUATION frames of one header block.
    Continuations,
    /// The size of a header section, far above what is answered with an error.
    Headers,
}

impl Abuse {
    /// How many kinds there are.
    pub const COUNT: usize = 9;

    /// Its name in logs and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Abuse::Resets => "rapid reset",
            Abuse::Pings => "PING flood",
            Abuse::Settings => "SETTINGS flood",
            Abuse::Empty => "empty frames flood",
            Abuse::Priorities => "PRIORITY flood",
            Abuse::Windows => "WINDOW_UPDATE flood",
            Abuse::Unknown => "unknown frames flood",
            Abuse::Continuations => "CONTINUATION flood",
            Abuse::Headers => "header bomb",
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Abuse::Resets => "sent too many RST_STREAM frames (rapid reset)",
            Abuse::Pings => "sent too many PING frames (PING flood)",
            Abuse::Settings => "sent too many SETTINGS frames (SETTINGS flood)",
            Abuse::Empty => "sent too many empty frames (empty frames flood)",
            Abuse::Priorities => "sent too many PRIORITY frames (PRIORITY flood)",
            Abuse::Windows => "sent too many WINDOW_UPDATE frames (WINDOW_UPDATE flood)",
            Abuse::Unknown => "sent too many unknown frames (unknown frames flood)",
            Abuse::Continuations => "sent too many CONTINUATION frames (CONTINUATION flood)",
            Abuse::Headers => "sent too large header section (header bomb)",
        }
    }

    /// The failure that it is.
    pub(super) const fn failure(self) -> Failure {
        Failure { code: Code::EnhanceYourCalm, reason: self.reason(), abuse: Some(self) }
    }

    /// The burst, and how many more a second.
    const fn allowance(self) -> (u32, u32) {
        match self {
            // A page that is left cancels what it had asked for: a hundred streams.
            Abuse::Resets => (500, 100),
            // gRPC measures bandwidth with a PING for every few frames of data.
            Abuse::Pings => (1000, 200),
            Abuse::Settings => (50, 10),
            Abuse::Empty => (100, 20),
            Abuse::Priorities => (2000, 500),
            // A peer that reads tells so for each frame at most: 16 KB of data each.
            Abuse::Windows => (20_000, 20_000),
            Abuse::Unknown => (1000, 100),
            Abuse::Continuations | Abuse::Headers => (0, 0),
        }
    }
}

/// The buckets of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    /// How full each is.
    levels: [u32; Abuse::COUNT],
    /// When they were emptied last, in milliseconds.
    since: u64,
}

impl Guard {
    /// Time has come to `now`, in milliseconds of any clock that only goes forward.
    pub(super) fn tick(&mut self, now: u64) {
        let seconds = now.saturating_sub(self.since) / 1000;
        if seconds == 0 {
            return;
        }
        self.since += seconds * 1000;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        for abuse in LEAKING {
            if let Some(level) = self.levels.get_mut(abuse as usize) {
                *level = level.saturating_sub(abuse.allowance().1.saturating_mul(seconds));
            }
        }
    }

    /// One more of these.
    ///
    /// # Errors
    /// One too many.
    #[inline]
    pub(super) fn count(&mut self, abuse: Abuse) -> Result<(), Failure> {
        let Some(level) = self.levels.get_mut(abuse as usize) else { return Ok(()) };
        *level += 1;
        if *level > abuse.allowance().0 { Err(abuse.failure()) } else { Ok(()) }
    }
}

/// Kinds whose buckets leak; the others are limits of one header block.
const LEAKING: [Abuse; 7] = [
    Abuse::Resets,
    Abuse::Pings,
    Abuse::Settings,
    Abuse::Empty,
    Abuse::Priorities,
    Abuse::Windows,
    Abuse::Unknown,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_pass_floods_do_not_and_time_forgives() {
        let mut guard = Guard::default();
        guard.tick(5000);
        for _ in 0..50 {
            assert_eq!(guard.count(Abuse::Settings), Ok(()));
        }
        let failed = guard.count(Abuse::Settings).expect_err("too many");
        assert_eq!((failed.code, failed.abuse), (Code::EnhanceYourCalm, Some(Abuse::Settings)));
        assert!(failed.reason.contains(Abuse::Settings.name()));
        guard.tick(5999);
        assert!(guard.count(Abuse::Settings).is_err());
        guard.tick(7000);
        assert_eq!(guard.count(Abuse::Settings), Ok(()));
    }
}
