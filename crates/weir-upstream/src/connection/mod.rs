//! A connection to a server: opened, secured, and handed between workers.

pub(crate) mod handshake;
pub mod keepalive_limits;
pub(crate) mod parked;
pub mod upstream_connection;
