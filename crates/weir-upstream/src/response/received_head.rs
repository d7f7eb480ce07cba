//! A response of which the head was received, and what the rest comes on.

use crate::connection::upstream_connection::UpstreamConnection;
use crate::h2::StreamRequest;
use crate::protocol::IncomingHead;
use crate::worker_side::local_upstream::PeerLease;

/// A try that gave a response: its head, and the bytes after it.
pub(crate) struct ReceivedHead {
    pub(crate) incoming: IncomingHead,
    pub(crate) link: UpstreamLink,
    pub(crate) lease: PeerLease,
    pub(crate) rest: Vec<u8>,
}

/// What a response comes on.
pub(crate) enum UpstreamLink {
    /// A connection of its own.
    Own(Box<UpstreamConnection>),
    /// A stream of one that others may use.
    Talk(Box<StreamRequest>),
}

impl UpstreamLink {
    /// The caller waits for the server for `ms` milliseconds from now on.
    pub(crate) fn touch(&self, ms: u64) {
        match self {
            UpstreamLink::Own(connection) => connection.timer.touch(ms),
            UpstreamLink::Talk(talk) => talk.timer.touch(ms),
        }
    }
}
