//! How long a connection may wait for what it waits for.

use super::mux::{H2Mux, LINGERING_MS};

impl H2Mux {
    /// Arms the timer for what is waited for; `true` when that is a request.
    pub fn arm(&self, full: bool) -> bool {
        let timer = &self.wire.timer;
        if full {
            // Streams that compose more meanwhile give a client that takes nothing no more time.
            let patience = self.longest_patience();
            if patience > self.full_ms.replace(patience) {
                timer.arm(patience);
            }
            return false;
        }
        self.full_ms.set(0);
        let server = self.connection.server();
        let patience = server.settings.client_header_timeout;
        let partial = self.h2.borrow().partial_frame(self.wire.input.borrow().bytes());
        if partial.is_none() {
            self.partial.set(None);
        }
        let left = partial.map(|frame| self.time_left(frame, patience));
        if self.streams() > 0 {
            match left {
                Some(left) => timer.arm(left),
                None if self.lingering.get() > 0 => timer.arm(LINGERING_MS),
                // Each stream that waits has a timer of its own.
                None => timer.disarm(),
            }
            return false;
        }
        self.ledger.borrow_mut().clear();
        self.end_uploads();
        // Without keepalive there is one request, which has as long as one of HTTP/1: its head may come after the preface.
        let is_first = self.connection.requests.get() == 0;
        let kept = match server.plan.core.keepalive_timeout {
            0 if is_first => patience,
            timeout => timeout,
        };
        let idle = self.idle_time_left(kept);
        timer.arm(match left {
            // A head that has begun in time has its own time, too.
            Some(left) if self.h2.borrow().is_head(self.wire.input.borrow().bytes()) => left,
            Some(left) => left.min(idle),
            None => idle,
        });
        true
    }

    /// How much of `timeout` is left for a connection without streams: PING, SETTINGS and other frames, whole or in part,
    /// give it no more, as in nginx, so that no client keeps one for ever that asks for nothing.
    fn idle_time_left(&self, timeout: u64) -> u64 {
        let now = weir_rt::now_ms();
        let since = self.idle_from.get().unwrap_or(now);
        self.idle_from.set(Some(since));
        self.wire.idle.set(true);
        self.wire.idle_since.set(since);
        timeout.saturating_sub(now - since).max(1)
    }

    /// How much of `timeout` is left for a frame that has come in part: one that trickles in has no more time than others.
    fn time_left(&self, frame: u64, timeout: u64) -> u64 {
        let now = weir_rt::now_ms();
        let since = self.partial.get().filter(|(other, _)| *other == frame).map_or(now, |(_, since)| since);
        self.partial.set(Some((frame, since)));
        timeout.saturating_sub(now - since).max(1)
    }
}
