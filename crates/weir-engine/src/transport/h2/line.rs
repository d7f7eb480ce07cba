//! How much of the streams' content is on its way at a time.
//!
//! What the kernel has taken leaves in that order: a line slower than the server, with a buffer of megabytes before it, would
//! serve streams in the order in which they were composed. So when a socket takes no more and what may be in flight takes long, what
//! it may hold unsent is bounded (TCP_NOTSENT_LOWAT), and from then on little is composed ahead of it; which stream is next is
//! chosen when the line is ready for it. Bytes in flight are the network's and stay. On a fast line a full buffer is over in a
//! moment, and small ones would cost a third more.

use super::mux::H2Mux;
use crate::transport::wire::HIGH;

impl H2Mux {
    /// Content is composed until the connection has so many bytes that the kernel has not taken.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        if self.narrow.get() { NARROW } else { HIGH }
    }

    /// Whether the socket has to take some of what was composed before there is more.
    pub fn is_full(&self) -> bool {
        let is_full = self.wire.stream.unsent() > self.room();
        if is_full && !self.narrow.get() {
            self.look_at_line();
        }
        is_full
    }

    /// The socket is full: where the line is slow, little is composed ahead of it from here on.
    fn look_at_line(&self) {
        let now = weir_rt::now_ms();
        if now < self.line_ms.get() {
            return;
        }
        self.line_ms.set(now + LOOKS_MS);
        let fd = self.wire.stream.fd();
        // A UNIX socket has no line.
        let Ok(line) = weir_rt::net::tcp_info(fd) else { return };
        let flight = u64::from(line.snd_cwnd) * u64::from(line.snd_mss);
        let a_second = flight * 1_000_000 / u64::from(line.rtt_us.max(1));
        if a_second < FAST && weir_rt::net::unsent_most(fd, KERNEL).is_ok() {
            self.narrow.set(true);
        }
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

/// Lines of more bytes a second are fast: 64 KB take a millisecond.
const FAST: u64 = 64 << 20;
/// How often a full socket's line is looked at, in milliseconds: one system call.
const LOOKS_MS: u64 = 50;
/// Bytes composed ahead of a slow line: two frames.
const NARROW: u64 = 16 * 1024;
/// Bytes that its kernel may hold unsent. With half of that it asks for more.
const KERNEL: u32 = 16 * 1024;
