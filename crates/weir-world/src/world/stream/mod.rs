//! What is around `stream`: clients of sessions, their servers, and the network of datagrams.

pub(super) mod clients;
pub(super) mod flows;
pub(super) mod servers;
