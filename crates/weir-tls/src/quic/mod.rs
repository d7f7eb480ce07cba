//! TLS of QUIC (RFC 9001), for quinn-proto: a configuration and a session that have the same certificates, tickets, notes and
//! facts as those over TCP, the keys of resets and tokens, and a reader of a client's first datagrams, by which a configuration is
//! chosen before the connection is accepted.

mod config;
mod hello_stream;
mod initial;
mod initial_frames;
mod keys;
mod parameters;
mod retry;
mod session;
mod version;

pub use config::{InitialCrypto, QuicServerConfig};
pub use initial::{InitialProgress, InitialReader};
pub use keys::QuicKeys;
pub use session::QuicFacts;
