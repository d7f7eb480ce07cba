//! Upstreams: lists of peers, the choice among them, attempts, connections kept alive, and responses on their way back.
//!
//! What speaks to a server (HTTP, FastCGI, ...) is an [`UpstreamProtocol`]: it composes a request and reads the head of
//! a response. Everything else is here and is the same for all of them:
//!
//! ```text
//!  handler ── UpstreamLocation::run ──► LocalUpstream ── Balancer::pick ──► Peer
//!                 │                                           │
//!                 │  each try: connect or reuse ─► send ─► head (UpstreamProtocol::head)
//!                 │     └── failed, and `*_next_upstream` allows: the next peer
//!                 ▼
//!         head filtered into `Exchange::response` ─► Verdict::Respond, with ResponseBody::Source(UpstreamBody)
//!                                                        └── the engine pulls the body at the client's pace
//! ```
//!
//! An [`Upstream`](block::upstream::Upstream) is shared by all workers; choosing is each worker's own business
//! ([`LocalUpstream`](worker_side::local_upstream::LocalUpstream)), so that no lock is on a request's path: only counts
//! of connections and failures are atomics of the peer.
#![forbid(unsafe_code)]

pub mod block;
pub mod cache;
pub mod config;
pub mod discovery;
pub(crate) mod location;
pub mod peer;
pub mod protocol;
pub mod tls_client;
pub mod worker_side;

pub mod connection;
pub mod health;
pub mod pool;

mod attempt;
mod caching;
mod error_log;
mod h2;
mod handler;
mod request;
mod response;
mod upstream_module;

pub use block::upstream::Upstream;
pub use block::upstreams::Upstreams;
pub use config::directives::{UpstreamFamily, UpstreamSettings};
pub use config::failure_reason::FailureReason;
pub use config::field_names::FieldNames;
pub use handler::{PassDestination, PassTarget, meant, pass_to};
pub use location::peer_sites::PeerSites;
pub use location::upstream_location::UpstreamLocation;
pub use peer::Peer;
pub use peer::peer_figures::PeerTotals;
pub use protocol::{IncomingHead, OutgoingRequest, UpstreamProtocol};
pub use request::attempt_records::{AttemptRecords, first_byte_times, session_times};
pub use request::cache_use::{CacheStatus, cache_validators, is_for_cache, is_sent_as_get};
pub use request::exchange_part::{has_asked_servers, upstream_name};
pub use request::overrides::UpstreamOverrides;
pub use upstream_module::{UpstreamConf, UpstreamModule};
pub use worker_side::computed_upstream::{LastMeant, computed};
pub use worker_side::local_upstream::WorkerUpstreams;
pub use worker_side::worker_part::{UpstreamWorker, of_worker};
