//! The control socket's protocol and its client: a unix socket beside the pid file, through which the `weir` command asks a
//! running server. The server's side is [`crate::control_server`].

pub mod client;
pub mod protocol;
