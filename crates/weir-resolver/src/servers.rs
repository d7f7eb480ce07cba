//! The name servers and their health.

use std::net::SocketAddr;

/// The name servers, the primary ones first.
#[derive(Debug)]
pub(crate) struct NameServers {
    list: Vec<NameServer>,
    /// How many of them are primary.
    primary: usize,
    /// Where the next query begins.
    turn: usize,
}

#[derive(Debug)]
pub(crate) struct NameServer {
    pub(crate) addr: SocketAddr,
    /// Failures since the last answer.
    fails: u32,
    /// It answers queries with options by an error (RFC 6891 section 7): it gets none.
    pub(crate) plain: bool,
}

/// Failures in a row that make a server one that is asked last.
const DOWN: u32 = 3;

impl NameServers {
    pub(crate) fn new(primary: &[SocketAddr], backup: &[SocketAddr]) -> NameServers {
        let all = primary.iter().chain(backup);
        let list = all.map(|&addr| NameServer { addr, fails: 0, plain: false }).collect();
        NameServers { list, primary: primary.len(), turn: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, at: usize) -> &NameServer {
        &self.list[at]
    }

    /// The servers in the order in which a query asks them: the primary ones in turn, then the backups; those that
    /// do not answer after all that do.
    pub(crate) fn order(&mut self) -> Vec<usize> {
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        let rotated = |from: usize, to: usize| {
            let count = to - from;
            (0..count).map(move |at| from + (at + turn) % count.max(1))
        };
        let all = rotated(0, self.primary).chain(rotated(self.primary, self.list.len()));
        let (up, down): (Vec<_>, Vec<_>) = all.partition(|&at| !self.is_down(at));
        [up, down].concat()
    }

    pub(crate) fn is_down(&self, at: usize) -> bool {
        self.list[at].fails >= DOWN
    }

    /// `true`: this failure is the one that takes the server down.
    pub(crate) fn failed(&mut self, at: usize) -> bool {
        let server = &mut self.list[at];
        server.fails = server.fails.saturating_add(1);
        server.fails == DOWN
    }

    pub(crate) fn answered(&mut self, at: usize) {
        self.list[at].fails = 0;
    }

    pub(crate) fn without_options(&mut self, at: usize) {
        self.list[at].plain = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_asked_behind_those_that_answer_and_the_silent_last() {
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut servers = NameServers::new(&[addr(1), addr(2)], &[addr(3)]);
        assert_eq!(servers.order(), [0, 1, 2]);
        assert_eq!(servers.order(), [1, 0, 2]);
        assert_eq!([(); 4].map(|()| servers.failed(0)), [false, false, true, false]);
        assert_eq!(servers.order(), [1, 2, 0]);
        servers.answered(0);
        assert_eq!(servers.order(), [1, 0, 2]);
    }
}
