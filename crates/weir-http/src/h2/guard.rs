//! Limits on what a peer may do that costs it less than us.
//!
//! Each kind of frame that an attack could be made of has a bucket: a burst, and this many more each second. What a
//! peer does because of the work that it lets us do is no attack, at whatever speed: Go's client sends two
//! WINDOW_UPDATE frames for each 4 KB, gRPC's a PING for each frame of data. So content that is sent, responses and
//! content that comes pay for frames in advance, and only those that nothing has paid for fill the bucket. An overrun
//! ends the connection with ENHANCE_YOUR_CALM, is counted, and has a name.

use super::{ErrorCode, H2Failure};

/// The kinds of frames that are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H2Abuse {
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
    /// Frames of unknown types.
    Unknown,
    /// CONTINUATION frames of one header block.
    Continuations,
    /// The size of a header section, far above the one from which the response is an error.
    Headers,
    /// Frames on streams that GOAWAY has refused.
    Late,
    /// GOAWAY frames: each is looked up in all streams.
    GoAways,
}

impl H2Abuse {
    /// How many kinds there are.
    pub const COUNT: usize = 11;

    /// All kinds; the position of each is its number.
    pub const ALL: [H2Abuse; H2Abuse::COUNT] = [
        H2Abuse::Resets,
        H2Abuse::Pings,
        H2Abuse::Settings,
        H2Abuse::Empty,
        H2Abuse::Priorities,
        H2Abuse::Windows,
        H2Abuse::Unknown,
        H2Abuse::Continuations,
        H2Abuse::Headers,
        H2Abuse::Late,
        H2Abuse::GoAways,
    ];

    /// Whether its bucket leaks; the others are limits of one header block.
    fn leaks(self) -> bool {
        !matches!(self, H2Abuse::Continuations | H2Abuse::Headers)
    }

    /// The word for it in logs and counters.
    pub const fn name(self) -> &'static str {
        match self {
            H2Abuse::Resets => "rapid reset",
            H2Abuse::Pings => "PING flood",
            H2Abuse::Settings => "SETTINGS flood",
            H2Abuse::Empty => "empty frames flood",
            H2Abuse::Priorities => "PRIORITY flood",
            H2Abuse::Windows => "WINDOW_UPDATE flood",
            H2Abuse::Unknown => "unknown frames flood",
            H2Abuse::Continuations => "CONTINUATION flood",
            H2Abuse::Headers => "header bomb",
            H2Abuse::Late => "late frames flood",
            H2Abuse::GoAways => "GOAWAY flood",
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            H2Abuse::Resets => "sent too many RST_STREAM frames (rapid reset)",
            H2Abuse::Pings => "sent too many PING frames (PING flood)",
            H2Abuse::Settings => "sent too many SETTINGS frames (SETTINGS flood)",
            H2Abuse::Empty => "sent too many empty frames (empty frames flood)",
            H2Abuse::Priorities => "sent too many PRIORITY frames (PRIORITY flood)",
            H2Abuse::Windows => "sent too many WINDOW_UPDATE frames (WINDOW_UPDATE flood)",
            H2Abuse::Unknown => "sent too many unknown frames (unknown frames flood)",
            H2Abuse::Continuations => "sent too many CONTINUATION frames (CONTINUATION flood)",
            H2Abuse::Headers => "sent too large header section (header bomb)",
            H2Abuse::Late => "sent too many frames on streams after GOAWAY (late frames flood)",
            H2Abuse::GoAways => "sent too many GOAWAY frames (GOAWAY flood)",
        }
    }

    /// The failure that it is.
    pub(super) const fn failure(self) -> H2Failure {
        H2Failure { code: ErrorCode::EnhanceYourCalm, reason: self.reason(), abuse: Some(self) }
    }

    /// The burst, and how many more a second, of frames that nothing has paid for.
    const fn allowance(self) -> (u32, u32) {
        match self {
            // A page that is left cancels what it had asked for: a hundred streams.
            H2Abuse::Resets => (500, 100),
            H2Abuse::Pings => (1000, 200),
            H2Abuse::Settings => (50, 10),
            H2Abuse::Empty => (100, 20),
            H2Abuse::Priorities => (2000, 500),
            // Windows that are widened before anything is sent: a few for each stream.
            H2Abuse::Windows => (4000, 1000),
            H2Abuse::Unknown => (1000, 100),
            // As many streams as may be open at once, each with content in small frames.
            H2Abuse::Late => (10_000, 1000),
            // Two end a connection gracefully.
            H2Abuse::GoAways => (20, 1),
            H2Abuse::Continuations | H2Abuse::Headers => (0, 0),
        }
    }

    /// How many frames may be paid for at most. Updates come when the peer reads, maybe a window of 2 GB after the content was
    /// sent; for the others a second's worth at full speed is enough.
    const fn most_paid(self) -> u32 {
        match self {
            H2Abuse::Windows => u32::MAX,
            H2Abuse::Resets => 1000,
            _ => 20_000,
        }
    }
}

/// The buckets of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct AbuseGuard {
    /// How full each is.
    levels: [u32; H2Abuse::COUNT],
    /// Frames of each that work has paid for.
    paid: [u32; H2Abuse::COUNT],
    /// Bytes of content sent that have not paid for an update yet.
    bytes: u64,
    /// When they were emptied last, in milliseconds.
    since: u64,
}

impl AbuseGuard {
    /// Time has come to `now`, in milliseconds of any clock that only goes forward.
    pub(super) fn tick(&mut self, now: u64) {
        let seconds = now.saturating_sub(self.since) / 1000;
        if seconds == 0 {
            return;
        }
        self.since += seconds * 1000;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        for abuse in H2Abuse::ALL.into_iter().filter(|abuse| abuse.leaks()) {
            if let Some(level) = self.levels.get_mut(abuse as usize) {
                *level = level.saturating_sub(abuse.allowance().1.saturating_mul(seconds));
            }
        }
    }

    /// `bytes` of content were sent in one frame; `cut`: it was as small as that since the peer's window is.
    #[inline]
    pub(super) fn sent(&mut self, bytes: u64, cut: bool) {
        self.bytes += bytes;
        let by_bytes = self.bytes / UPDATE_BYTES;
        self.bytes %= UPDATE_BYTES;
        // A peer that says so for each frame does it for stream and connection; that the frame is small is not its doing.
        let by_frame = if cut { 0 } else { 2 };
        self.pay(H2Abuse::Windows, u32::try_from(by_bytes).unwrap_or(u32::MAX).saturating_add(by_frame));
        self.pay(H2Abuse::Pings, 1);
    }

    /// Work was done that makes this many of these frames honest.
    #[inline]
    pub(super) fn pay(&mut self, abuse: H2Abuse, frames: u32) {
        if let Some(paid) = self.paid.get_mut(abuse as usize) {
            *paid = paid.saturating_add(frames).min(abuse.most_paid());
        }
    }

    /// One more of these, which may be paid for.
    ///
    /// # Errors
    /// One too many.
    #[inline]
    pub(super) fn spend(&mut self, abuse: H2Abuse) -> Result<(), H2Failure> {
        match self.paid.get_mut(abuse as usize) {
            Some(paid) if *paid > 0 => {
                *paid -= 1;
                Ok(())
            }
            _ => self.count(abuse),
        }
    }

    /// One more of these, for which no work can have paid.
    ///
    /// # Errors
    /// One too many.
    #[inline]
    pub(super) fn count(&mut self, abuse: H2Abuse) -> Result<(), H2Failure> {
        let Some(level) = self.levels.get_mut(abuse as usize) else { return Ok(()) };
        *level += 1;
        if *level > abuse.allowance().0 { Err(abuse.failure()) } else { Ok(()) }
    }
}

/// Bytes of content that pay for a WINDOW_UPDATE frame. Peers that open their windows by less at a time make us send
/// frames that are mostly heads.
const UPDATE_BYTES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_pass_floods_do_not_and_time_forgives() {
        let mut guard = AbuseGuard::default();
        guard.tick(5000);
        for _ in 0..50 {
            assert_eq!(guard.count(H2Abuse::Settings), Ok(()));
        }
        let failed = guard.count(H2Abuse::Settings).expect_err("too many");
        assert_eq!((failed.code, failed.abuse), (ErrorCode::EnhanceYourCalm, Some(H2Abuse::Settings)));
        assert!(failed.reason.contains(H2Abuse::Settings.name()));
        guard.tick(5999);
        assert!(guard.count(H2Abuse::Settings).is_err());
        guard.tick(7000);
        assert_eq!(guard.count(H2Abuse::Settings), Ok(()));
    }

    #[test]
    fn work_pays_for_frames_up_to_a_number() {
        let (mut guard, burst) = (AbuseGuard::default(), H2Abuse::Pings.allowance().0);
        for _ in 0..3 * burst {
            guard.sent(0, false);
            assert_eq!(guard.spend(H2Abuse::Pings), Ok(()));
        }
        guard.pay(H2Abuse::Pings, u32::MAX);
        let honest = H2Abuse::Pings.most_paid() + burst;
        assert_eq!((0..honest).find_map(|_| guard.spend(H2Abuse::Pings).err()), None);
        assert!(guard.spend(H2Abuse::Pings).is_err());
    }

    #[test]
    fn frames_that_a_small_window_cuts_pay_by_their_bytes_alone() {
        let updates = |bytes: u64, cut: bool| {
            let (mut guard, mut updates) = (AbuseGuard::default(), 0);
            for _ in 0..UPDATE_BYTES {
                guard.sent(bytes, cut);
            }
            while guard.paid[H2Abuse::Windows as usize] > 0 && guard.spend(H2Abuse::Windows).is_ok() {
                updates += 1;
            }
            updates
        };
        assert_eq!([updates(1, true), updates(64, true)], [1, 64]);
        assert_eq!([updates(1, false), updates(64, false)], [1 + 128, 64 + 128]);
    }
}
