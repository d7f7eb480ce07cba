//! What is seen of a running server: the commands that ask it, what answers them, and the formats they come in.
//!
//! Two sides of one crate. In the server, the [`control`] socket and the `admin` listener ([`http`]) answer from threads of
//! their own, out of what workers publish without being asked, so they answer while a worker is stuck. In the `weir`
//! command, [`commands`] ask over the control socket, give addresses names ([`symbols`]) and write files ([`formats`]):
//! what costs memory or time happens there, not in the server.
//!
//! Nothing leaves with arguments, cookies or authorization in it: records never hold them.
#![forbid(unsafe_code)]

pub mod formats;
mod gzip;
mod json;
pub mod stacks;
pub mod symbols;

pub use stacks::{Frame, Origin, Stacks, Unit};
