//! The watchers of the queues of a worker's sockets.

use std::cell::Cell;

use weir_rt::net;

/// The parts that asked for figures about a worker's queues.
#[derive(Debug, Default)]
pub(crate) struct QueueWatchers {
    pub(crate) count: Cell<u32>,
    /// The loop reads the stamps of packets.
    pub(crate) stamps: Cell<bool>,
}

impl QueueWatchers {
    /// Every connection is to be asked.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.count.get() > 0
    }

    /// Every request is to be asked: nothing else reports how long it waited.
    pub(crate) fn ask_requests(&self) -> bool {
        self.are_there() && !self.stamps.get()
    }

    /// A connection was accepted: its packets are to be stamped if those of others are.
    pub(crate) fn accepted(&self, fd: i32) {
        if self.stamps.get() {
            stamp(fd, true);
        }
    }
}

/// A socket that does not take it is no TCP socket: its bytes have no stamps.
pub(crate) fn stamp(fd: i32, on: bool) {
    let _ = net::stamp_packets(fd, on);
}
