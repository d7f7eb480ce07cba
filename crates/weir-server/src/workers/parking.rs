//! The connections that are parked: by token, which grows with time, and by the end of their waiting.

use std::collections::{BTreeMap, BTreeSet};

use crate::conn::parked::ParkedConnection;

/// See the module.
#[derive(Default)]
pub(crate) struct ParkingLot {
    connections: BTreeMap<u64, Box<ParkedConnection>>,
    deadlines: BTreeSet<(u64, u64)>,
    next: u64,
}

impl ParkingLot {
    /// Whether a token is one of a parked connection, and none of a socket: cookies of sockets are small numbers.
    pub(crate) fn is_token(token: u64) -> bool {
        token >= FIRST
    }

    /// Keeps a connection; its token.
    pub(crate) fn insert(&mut self, parked: Box<ParkedConnection>) -> u64 {
        let token = FIRST + self.next;
        self.next += 1;
        self.deadlines.insert((parked.deadline, token));
        self.connections.insert(token, parked);
        token
    }

    pub(crate) fn get(&self, token: u64) -> Option<&ParkedConnection> {
        self.connections.get(&token).map(|parked| &**parked)
    }

    pub(crate) fn remove(&mut self, token: u64) -> Option<Box<ParkedConnection>> {
        let parked = self.connections.remove(&token)?;
        self.deadlines.remove(&(parked.deadline, token));
        Some(parked)
    }

    /// A connection counts for another worker.
    pub(crate) fn belongs_now(&mut self, token: u64, worker: u8) {
        if let Some(parked) = self.connections.get_mut(&token) {
            parked.from = worker;
        }
    }

    /// When the first of them has waited long enough.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Tokens of those whose time is over.
    pub(crate) fn expired(&self, now_ms: u64) -> Vec<u64> {
        self.deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now_ms)
            .map(|(_, token)| *token)
            .collect()
    }

    /// Tokens of those that `wanted`, the one that waits longest first.
    pub(crate) fn tokens(&self, wanted: impl Fn(&ParkedConnection) -> bool) -> Vec<u64> {
        self.connections.iter().filter(|(_, parked)| wanted(parked)).map(|(token, _)| *token).collect()
    }
}

/// The first token.
const FIRST: u64 = 1 << 62;
