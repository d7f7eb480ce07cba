//! Where requests wait before the server has read them, and responses after it has sent them: the queues of sockets.
//!
//! Only when asked: [`Worker::watch_queues`] has each connection that is accepted say how long it waited, and each piece
//! that is received. Where the loop receives by itself (epoll) that is reported by the kernel's stamps of packets, to
//! the nanosecond; with io_uring the kernel receives, and each request asks TCP for how long its bytes were there, to
//! the millisecond or the kernel's tick.

use weir_rt::{clock, net, packets};

use crate::presence::stamp;
use crate::worker::Worker;

/// What a worker's connections hold at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionQueues {
    /// Bytes that the kernel received and the worker has not read.
    pub receive: QueueDepth,
    /// Bytes written by the worker and not acknowledged by clients.
    pub send: QueueDepth,
    /// Bytes of those that are not even sent: the window of the client or of the network is full.
    pub unsent: QueueDepth,
    /// Bytes composed and not taken by the kernel yet.
    pub own: QueueDepth,
}

/// A queue of many connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Connections that have something in it.
    pub connections: u64,
    /// Bytes, of all of them.
    pub bytes: u64,
}

impl QueueDepth {
    /// Adds what one connection has.
    fn add(&mut self, bytes: u64) {
        self.connections += u64::from(bytes > 0);
        self.bytes += bytes;
    }
}

impl Worker {
    /// From here on queues are watched, until [`Worker::leave_queues`] was called as often.
    pub fn watch_queues(&self) {
        let watchers = &self.present.watchers;
        watchers.count.set(watchers.count.get() + 1);
        self.present.be_curious();
        if watchers.count.get() == 1 && weir_rt::receives_itself() {
            watchers.stamps.set(true);
            packets::watch(true);
            self.each_connection(MOST, |wire, _| stamp(wire.stream.fd(), true));
        }
    }

    /// Ends what [`Worker::watch_queues`] began.
    pub fn leave_queues(&self) {
        let watchers = &self.present.watchers;
        watchers.count.set(watchers.count.get().saturating_sub(1));
        if watchers.count.get() == 0 && watchers.stamps.replace(false) {
            // None is left over, however many came meanwhile.
            self.each_connection(usize::MAX, |wire, _| stamp(wire.stream.fd(), false));
            packets::watch(false);
        }
    }

    /// What is in the queues now; what was read meanwhile is counted with the waits of the recorder.
    pub fn queues(&self) -> ConnectionQueues {
        let scale = clock::scale();
        for ns in packets::take() {
            self.recorder.borrow().received(scale.ns_to_ticks(ns));
        }
        let mut queues = ConnectionQueues::default();
        self.each_connection(MOST, |wire, _| {
            queues.own.add(wire.stream.unsent());
            // A unix socket holds nothing of its own, and a closed one nothing at all.
            if let Ok(held) = net::held(wire.stream.fd()) {
                queues.receive.add(held.unread);
                queues.send.add(held.unacknowledged);
                queues.unsent.add(held.unsent);
            }
        });
        queues
    }
}

/// Connections that are asked: the loop is blocked meanwhile, for some two milliseconds (a system call takes 0.2 µs).
const MOST: usize = 4096;
