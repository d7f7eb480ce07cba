//! The control socket: a unix socket beside the pid file, through which the `weir` command asks a running server.

pub mod client;
pub mod protocol;
mod server;

pub use server::serve;
