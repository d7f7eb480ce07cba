//! What a seed draws of crashes: when the server ends in the middle of what it does, what the disk has then, and who asks the
//! one that is started after it, in the same directory.

use crate::draw::Draw;

/// The end of a server in the middle of what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPlan {
    /// When it may end first, microseconds after the server's start.
    pub at: u64,
    /// So many calls of files and choices among threads later it ends.
    pub steps: u64,
    /// Power is lost: what was not synced may be gone, in whole or in part.
    pub is_power_loss: bool,
}

/// The program's exit status when it has crashed as planned.
pub const CRASHED: i32 = 99;

impl CrashPlan {
    /// What `draw` draws, for clients that come within `span`.
    pub fn drawn(draw: &mut Draw, span: u64) -> Option<CrashPlan> {
        draw.chance(1, 5).then(|| CrashPlan {
            at: draw.between(span / 3, span + 500_000),
            steps: *draw.one_of(&[1, 10, 60]),
            is_power_loss: draw.chance(2, 3),
        })
    }
}
