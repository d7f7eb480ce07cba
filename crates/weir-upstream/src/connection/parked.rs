//! A connection that no event loop watches.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_rt::net::SockAddr;

use crate::peer::PeerState;
use weir_engine::worker::UpstreamEnd;

/// A connection that no event loop watches.
#[derive(Debug)]
pub(crate) struct ParkedSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) addr: SockAddr,
    /// The local address that its server's `bind=` names.
    pub(crate) bind: Option<SockAddr>,
    /// What is known of its server.
    pub(crate) state: Arc<PeerState>,
    /// Requests it has taken.
    pub(crate) requests: u64,
    /// Milliseconds of the loops' clock: when it was opened, and idle from.
    pub(crate) opened: u64,
    pub(crate) since: u64,
    pub(crate) end: UpstreamEnd,
}
