//! How much of the streams' content is on its way at a time.
//!
//! What the kernel has taken leaves in that order: a line slower than the server, with a buffer of megabytes before it, would
//! serve streams in the order in which they were composed. So when a socket takes no more for the first time, what it may hold
//! unsent is bounded (TCP_NOTSENT_LOWAT), and from then on little is composed ahead of it; which stream is next is chosen when
//! the line is ready for it. Bytes in flight are the network's and stay.

use super::mux::H2Mux;
use crate::transport::wire::HIGH;

impl H2Mux {
    /// Content is composed until the connection has so many bytes that the kernel has not taken.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        if self.narrow.get() { NARROW } else { HIGH }
    }

    /// Whether the socket has to take some of what was composed before there is more. The first time makes the line narrow.
    pub fn is_full(&self) -> bool {
        let unsent = self.wire.stream.unsent();
        if unsent <= self.room() {
            return false;
        }
        if !self.narrow.replace(true) {
            // A UNIX socket has no such option; what its peer reads is at once in its buffer.
            let _unsupported = weir_rt::net::unsent_most(self.wire.stream.fd(), KERNEL);
        }
        true
    }

    /// Of a full socket, how little may be left for content to go on.
    pub fn drained_mark(&self) -> u64 {
        self.room() / 2
    }

    /// Whether requests are read while the socket is full: what they make us say has room beside the content.
    pub fn reads_when_full(&self) -> bool {
        self.wire.pending() <= HIGH
    }

    /// Whether the task of a more urgent stream is to have its turn before others are served: it was woken for having nothing
    /// left in the middle of its response.
    pub fn gives_way(&self) -> bool {
        self.gives_way.take()
    }
}

/// Bytes composed ahead of a socket that was full once: two frames.
const NARROW: u64 = 16 * 1024;
/// Bytes that its kernel may hold unsent. With half of that it asks for more.
const KERNEL: u32 = 16 * 1024;
