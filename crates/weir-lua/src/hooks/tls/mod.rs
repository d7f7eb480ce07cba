//! Scripts of handshakes: with clients and with upstream servers.

pub(crate) mod clients;
pub(crate) mod upstream;
