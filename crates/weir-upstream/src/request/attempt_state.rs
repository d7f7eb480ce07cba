//! How far a request has come on its way through the servers of an upstream.

use std::cell::Cell;
use std::rc::Rc;

use crate::connection::upstream_connection::UpstreamConnection;
use crate::location::upstream_location::UpstreamLocation;
use crate::peer::balance::TriedPeers;
use crate::protocol::OutgoingRequest;
use crate::request::attempt_records::AttemptRecords;
use crate::request::balancer_decision::BalancerDecision;
use crate::request::cache_fetch::CacheFetch;
use crate::tls_client::SecureUpstream;
use crate::worker_side::local_upstream::{LocalUpstream, PeerLease};

/// A request's tries.
pub(crate) struct Attempt {
    pub(crate) up: Rc<UpstreamLocation>,
    pub(crate) out: OutgoingRequest,
    /// The TLS of its connections.
    pub(crate) secure: Option<SecureUpstream>,
    pub(crate) records: AttemptRecords,
    /// How many more servers may be asked.
    pub(crate) left: u64,
    /// What the upstream's chooser has decided.
    pub(crate) decided: BalancerDecision,
    pub(crate) began: u64,
    /// Some of a body that is passed on as it comes was taken: it can't be sent again.
    pub(crate) body_begun: bool,
    /// Bytes of interim responses in the current try.
    pub(crate) hints: usize,
    /// What the cache has to do with the request.
    pub(crate) fetch: Option<Box<CacheFetch>>,
    /// How far the first try came before anything was waited for.
    pub(crate) asked: RequestProgress,
    /// What has come of its response.
    pub(crate) received: Vec<u8>,
    /// Over UDP, bytes of the client that the last server has not got.
    pub(crate) put_back: Cell<u64>,
}

/// How far a try came before anything was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    /// The server was not asked.
    #[default]
    No,
    /// The request is queued.
    Queued,
    /// It has left, and the time for the response runs.
    Sent,
}

/// A request on its way, as far as it came without waiting.
pub(crate) struct PendingAttempt {
    pub(crate) run: Attempt,
    pub(crate) upstream: Rc<LocalUpstream>,
    pub(crate) tried: TriedPeers,
    /// The server that was chosen.
    pub(crate) lease: Option<PeerLease>,
    /// What it was asked on.
    pub(crate) connection: Option<Box<UpstreamConnection>>,
}
