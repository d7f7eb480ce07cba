//! Handshakes of QUIC between quinn-proto's client and this crate's server, in memory.

mod handshakes;
mod initial;
mod pair;
