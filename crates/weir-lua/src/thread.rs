//! The coroutines of a run: its entry, its light threads, and those that scripts make.

use weir_trace::WaitKind;

use crate::op::{Pieces, Subrequest, Wait};
use crate::state::State;

/// One coroutine of a run.
pub(crate) struct Thread {
    pub(crate) state: State,
    /// What keeps Lua from collecting it.
    pub(crate) anchor: i32,
    pub(crate) kind: Kind,
    /// Who made it (light threads), or resumed it last (coroutines).
    pub(crate) parent: Option<usize>,
    pub(crate) status: Status,
    /// What it waits for, as traces tell it.
    pub(crate) wait: WaitKind,
    /// It can be used again: it ended without an error.
    pub(crate) clean: bool,
    /// Its errors are raised again in who resumes it (`coroutine.wrap`).
    pub(crate) wrap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The script itself.
    Entry,
    /// `ngx.thread.spawn`
    Light,
    /// `coroutine.create`
    Coroutine,
}

pub(crate) enum Status {
    /// It was not resumed yet, or stands at a `coroutine.yield` of its own.
    Suspended,
    /// It runs, or is in the queue to.
    Running,
    /// It has resumed another coroutine.
    Normal,
    /// It waits.
    Waiting(Waiting),
    /// It has ended, and nobody has waited for it: what it returned is on its stack, behind whether it succeeded.
    Zombie,
    Dead,
}

/// What for.
pub(crate) enum Waiting {
    Wait(Wait),
    Threads(Vec<State>),
    Body,
    Append(Vec<u8>, usize),
    Pieces(u64, Pieces),
    Flush,
    Capture(Vec<Subrequest>),
    /// Answers of subrequests that run while others of the run go on.
    Captured(Wait),
}

impl Status {
    /// As `coroutine.status` says.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Status::Suspended => "suspended",
            Status::Running | Status::Waiting(_) => "running",
            Status::Normal => "normal",
            Status::Zombie => "zombie",
            Status::Dead => "dead",
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Status::Zombie | Status::Dead)
    }
}
