//! How long bytes waited in sockets before a loop read them, by the kernel's own stamps of packets.
//!
//! Nothing of it happens unless asked for: [`net::stamp_packets`](crate::net::stamp_packets) has the kernel stamp what
//! comes on a socket, and [`watch`] has the loop of this thread read the stamps along with the bytes. That is for loops
//! that receive by themselves (epoll): with io_uring the kernel receives, and hands no stamps on.

use std::cell::{Cell, RefCell};

/// From here on the loop of this thread reads stamps, or does not any more.
pub fn watch(on: bool) {
    WATCHES.set(on);
    if !on {
        WAITS.take();
    }
}

/// The waits since the last call, in nanoseconds of the wall clock; beyond 65,536 they are not noted.
pub fn take() -> Vec<u64> {
    WAITS.take()
}

#[inline]
pub(crate) fn is_watching() -> bool {
    WATCHES.get()
}

/// Bytes were read that had come `ns` before.
pub(crate) fn waited(ns: u64) {
    WAITS.with_borrow_mut(|waits| {
        if waits.len() < MOST {
            waits.push(ns);
        }
    });
}

thread_local! {
    static WATCHES: Cell<bool> = const { Cell::new(false) };
    static WAITS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Half a megabyte.
const MOST: usize = 1 << 16;
