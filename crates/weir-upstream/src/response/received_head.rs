//! A response of which the head was received, and what the rest comes on.

use std::rc::Rc;

use weir_trace::Site;

use crate::connection::upstream_connection::UpstreamConnection;
use crate::h2::StreamRequest;
use crate::protocol::{BodyDecoder, IncomingHead};
use crate::worker_side::local_upstream::PeerLease;
use weir_engine::exchange::SharedPart;
use weir_engine::worker::UpstreamCloseReason;

/// A try that gave a response: its head, and the bytes after it.
pub(crate) struct ReceivedHead {
    pub(crate) incoming: IncomingHead,
    pub(crate) link: UpstreamLink,
    pub(crate) lease: PeerLease,
    pub(crate) rest: Vec<u8>,
}

impl ReceivedHead {
    /// The connection is not used again. `keeps`: it could be, as far as the request says.
    #[cold]
    pub(crate) fn expects_close(&self, keeps: bool) {
        let UpstreamLink::Own(connection) = &self.link else { return };
        connection.end.expects(match &self.incoming.decoder {
            BodyDecoder::UntilClose => UpstreamCloseReason::NoLength,
            _ if keeps => UpstreamCloseReason::Asked,
            _ => UpstreamCloseReason::KeepaliveOff,
        });
    }
}

/// What a response comes on.
pub(crate) enum UpstreamLink {
    /// A connection of its own.
    Own(Box<UpstreamConnection>),
    /// A stream of one that others may use.
    Talk(Box<StreamRequest>),
}

impl UpstreamLink {
    /// Notes why its connection ends, if it has one of its own.
    pub(crate) fn ends(&self, reason: UpstreamCloseReason) {
        if let UpstreamLink::Own(connection) = self {
            connection.end.ends(reason);
        }
    }

    /// The caller waits for the server for `ms` milliseconds from now on.
    pub(crate) fn touch(&self, ms: u64) {
        match self {
            UpstreamLink::Own(connection) => connection.timer.touch(ms),
            UpstreamLink::Talk(talk) => talk.timer.touch(ms),
        }
    }
}

/// Bytes of a body, noted at the server's site when no more come.
pub(super) struct ReceivedBody {
    pub(super) shared: Rc<SharedPart>,
    pub(super) site: Site,
    pub(super) bytes: u64,
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.bytes(self.site, self.bytes, 0);
        }
    }
}
