//! Idle connections that are closed because their places are needed for others.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use weir_engine::log::{self, LogLevel};
use weir_engine::worker::{CloseProtocol, CloseReason};
use weir_rt::poller::Poller;

use super::AcceptorTable;

impl AcceptorTable {
    /// Closes an eighth of the connections that are parked for a full worker, 32 at most, those first that wait longest.
    pub(super) fn make_room(&mut self, poller: &Poller, at: usize) {
        let id = self.players[at].id;
        let parked = self.lot.tokens(|parked| parked.from == id);
        if parked.is_empty() {
            return; // the worker looks for some among its own
        }
        let now = Instant::now();
        if self.reused.is_none_or(|logged| now >= logged + Duration::from_millis(REUSED_MS)) {
            self.reused = Some(now);
            log::cycle(LogLevel::Warn, &format_args!("{}, reusing connections", self.most));
        }
        for &token in parked.iter().take((parked.len() / 8).clamp(1, 32)) {
            // One whose client has just asked is not idle.
            match self.lot.get(token).is_some_and(|parked| weir_rt::net::is_silent(parked.fd.as_raw_fd())) {
                true => self.close_parked(poller, token, CloseReason::Room),
                false => self.wake_up(poller, token),
            }
        }
    }

    /// Closes a parked connection, and counts it for its worker, or for the first where that is gone.
    pub(super) fn close_parked(&mut self, poller: &Poller, token: u64, reason: CloseReason) {
        let Some(parked) = self.unpark(poller, token) else { return };
        let player = self.player(parked.from).unwrap_or(0);
        if let Some(player) = self.players.get(player) {
            player.counters.dealing.closes.count(CloseProtocol::Http1, reason);
        }
    }
}

/// That connections are closed to make room is logged once in this many milliseconds, as in nginx.
const REUSED_MS: u64 = 1000;
