//! What is seen of a running server: the commands that ask it, the code that responds, and the output formats.
//!
//! Two sides of one crate. In the server, the [`control`] socket and the `admin` listener (`http`) respond from threads
//! of their own, out of what workers publish without being asked, so they respond while a worker is stuck. In the
//! `weir` command, [`commands`] ask over the control socket, give addresses names ([`symbols`]) and write files
//! ([`formats`]): what costs memory or time happens there, not in the server.
//!
//! Nothing leaves with arguments, cookies or authorization in it: records never hold them.
#![forbid(unsafe_code)]

mod attach;
mod closes;
pub mod commands;
mod compare;
pub mod control;
pub mod control_server;
mod filter;
mod fleet;
pub mod formats;
mod gzip;
mod handshakes;
mod history;
mod http;
mod interrupted;
mod location_series;
mod memory;
mod metrics;
pub mod raw_stacks;
mod recordings;
pub mod remains;
mod responses;
mod runtime_frames;
mod source;
mod stack_views;
pub mod stacks;
mod stall_cause;
pub mod symbols;
mod table;
mod why;

pub use http::{AdminListeners, BoundListeners};
pub use metrics::metrics_text;
pub use source::{ServerSource, scale};
pub use stacks::{FrameOrigin, StackFrame, StackSet, WeightUnit};

/// Headline and tree of a retained request, as `weir trace` prints them.
#[must_use]
pub fn show(kept: &weir_trace::KeptRequest) -> String {
    responses::trace::text(kept)
}
