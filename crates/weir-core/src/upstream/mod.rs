//! Upstreams: groups of servers, the choice among them, tries, connections kept, and answers on their way back.
//!
//! What speaks to a server (HTTP, FastCGI, ...) is a [`Protocol`]: it composes a request and reads the head of an
//! answer. Everything else is here and is the same for all of them:
//!
//! ```text
//!  handler ── Upstream::run ──► Group ── Balancer::pick ──► Peer
//!                 │                                           │
//!                 │  each try: connect or reuse ─► send ─► head (Protocol::head)
//!                 │     └── failed, and `*_next_upstream` allows: the next peer
//!                 ▼
//!         head filtered into `Exchange::response` ─► Verdict::Respond(Body::Source(Answer))
//!                                                        └── the engine pulls the body at the client's pace
//! ```
//!
//! A [`Group`] is shared by all workers; choosing is each worker's own business ([`Local`]), so that no lock is on a
//! request's path: only counts of connections and failures are atomics of the peer.

mod ahead;
mod answer;
mod attempt;
pub mod balance;
mod budget;
pub mod cache_settings;
mod cache_use;
mod caching;
mod changes;
mod check;
mod check_grpc;
mod computed;
mod connect;
pub(crate) mod connection;
mod describe;
mod field_names;
mod figures;
mod flight;
pub mod group;
pub mod guide;
mod h2;
mod handler;
mod headers;
pub(crate) mod health;
mod idle;
mod idle_time;
mod keeping;
pub mod local;
mod log;
pub(crate) mod matching;
mod module;
pub mod moving;
mod names;
mod origins;
mod outlier;
mod pace;
mod part;
pub mod peer;
mod pool;
pub mod protocol;
mod queue;
mod reason;
mod receive;
mod request;
mod save;
mod secure;
mod send;
pub mod settings;
mod sites;
mod sizes;
pub mod source;
mod sticky;
mod store;
mod table;
mod tries;
mod tunnel;
mod upload;

pub use attempt::Upstream;
pub use cache_use::{CacheStatus, cache_validators, is_for_cache, is_sent_as_get};
pub use computed::computed;
pub use field_names::FieldNames;
pub use group::Group;
pub use handler::{Target, pass_to};
pub use local::Local;
pub use module::{UpstreamConf, UpstreamModule};
pub use part::{UpstreamWorker, has_asked_servers, of_worker, upstream_name};
pub use peer::Peer;
pub use protocol::{Incoming, Outgoing, Protocol};
pub use reason::Reason;
pub use settings::{Family, ProxyHeader, Settings};
pub use sites::PeerSites;
pub use table::Upstreams;
pub use tries::Tries;
