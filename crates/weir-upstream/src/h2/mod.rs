//! Servers that are spoken to in HTTP/2: many requests at once on one connection of their worker.
//!
//! ```text
//!  request ── Attempt::talk ──► WorkerPool::session ──► UpstreamSession (a task: frames in, frames out)
//!     │                                          │ streams
//!     └──► Call: one stream ◄────────────────────┘
//!            heads, content and trailer come as `Got`; content goes by `offer`
//! ```
//!
//! A [`UpstreamSession`] is shared by the requests of its worker as long as the upstream keeps connections
//! (`keepalive`); else each request has one of its own. What a server may send ahead of a client is bounded per stream:
//! what the client has not taken was not reported to the server as used, so a slow client slows its own stream down and
//! no other.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod connecting;
pub(crate) mod session;
pub(crate) mod session_list;
pub(crate) mod talk;

pub(super) use call::CallProgress;
pub(super) use connecting::SessionConnecting;
pub(super) use session::{SessionLoss, UpstreamSession};
pub(super) use talk::StreamRequest;
