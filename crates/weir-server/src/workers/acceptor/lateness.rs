//! Why a worker is late: it is stuck, or has lost its core to other threads. Looked at by the thread that deals connections,
//! and only for a worker that is late.

use std::time::Duration;

use weir_rt::{ThreadState, clock};

use super::AcceptorPlayer;
use crate::workers::dealing::LATE_US;

/// What is known of a worker's turn.
#[derive(Debug, Default)]
pub(super) struct AcceptLateness {
    turn: u64,
    /// How long its thread had run when the turn was found to be late.
    ran: Duration,
    /// When it was looked at last, in nanoseconds of the monotonic clock.
    looked_ns: u64,
    lost_core: bool,
    /// Each is counted once a turn.
    counted: [bool; 2],
}

/// That of a worker.
pub(super) fn of<'l>(all: &'l mut Vec<AcceptLateness>, player: &AcceptorPlayer) -> &'l mut AcceptLateness {
    let at = usize::from(player.id);
    if all.len() <= at {
        all.resize_with(at + 1, AcceptLateness::default);
    }
    &mut all[at]
}

impl AcceptLateness {
    /// Whether the worker is late for want of a core, and for nothing else that can be seen.
    pub(super) fn has_lost_core(&mut self, player: &AcceptorPlayer) -> bool {
        let (turn, now) = (player.stats.turn(), clock::monotonic_ns());
        if turn == self.turn && now.saturating_sub(self.looked_ns) < FRESH_NS {
            return self.lost_core;
        }
        let (state, ran) = (player.watch.state(), player.watch.cpu_time());
        if turn != self.turn {
            *self = AcceptLateness { turn, ran, ..AcceptLateness::default() };
        }
        self.looked_ns = now;
        // One that computes loses its core, too, from time to time.
        let computes = ran.saturating_sub(self.ran) >= Duration::from_micros(LATE_US);
        let long = player.stats.turn_ns() / 1000 >= LOST_US;
        self.lost_core = state == ThreadState::Ready && !computes && !long;
        if !std::mem::replace(&mut self.counted[usize::from(self.lost_core)], true) {
            let dealing = &player.counters.dealing;
            let counter = if self.lost_core { &dealing.lost_core } else { &dealing.stuck };
            counter.add(1);
        }
        self.lost_core
    }
}

/// For so long it is not looked again: a look takes twenty microseconds.
const FRESH_NS: u64 = 2_000_000;
/// From here on a turn counts as stuck without a core, too: its clients have waited for long enough.
const LOST_US: u64 = 20_000;
