//! Connections that are dealt and live on, where shares stay uneven: after a reload with more workers, or when the clients
//! of some workers have left.

use std::time::Instant;

use super::{AcceptorTable, EVEN};
use crate::workers::thread;

impl AcceptorTable {
    /// While shares are uneven, once a second: connections that are parked count for other workers from now on, and where
    /// without these, workers give up connections of theirs whose clients will be dealt to others.
    pub(super) fn even_out(&mut self) {
        let now = Instant::now();
        if self.even_at.is_none_or(|at| now < at) {
            return;
        }
        for (at, count) in self.evening.check(&self.loads) {
            if !self.share_parked(at) {
                self.players[at].remote.run(Box::new(move || thread::even_out(count)));
            }
        }
        self.even_at = self.evening.goes_on().then(|| now + EVEN);
    }

    /// Gives what is parked for a worker with too much to those with the least; `false`: nothing is.
    fn share_parked(&mut self, from: usize) -> bool {
        let id = self.players[from].id;
        let mut tokens = self.lot.tokens(|parked| parked.from == id).into_iter();
        let mut shared = false;
        while let Some(to) = self.choice.relief(&self.loads, from)
            && let Some(token) = tokens.next()
        {
            for (at, by) in [(from, -1), (to, 1)] {
                let load = &mut self.loads[at];
                load.parked = load.parked.saturating_add_signed(by);
                let dealing = &self.players[at].counters.dealing;
                if by < 0 { dealing.parked.sub(1) } else { dealing.parked.add(1) }
            }
            self.lot.belongs_now(token, self.players[to].id);
            shared = true;
        }
        shared
    }
}
