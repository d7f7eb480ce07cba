//! TLS without I/O: bytes come in, bytes go out, and what is to be decided in between is a state.
//!
//! This is the one place that knows rustls. Its shape is that of the library's coming sans-IO interface: an
//! [`Acceptor`] reads a [`Hello`], whoever owns the connection chooses a configuration for it (and may take its time),
//! a [`Handshake`] goes on from there and ends in a [`Session`], which seals and opens. All of them are `Send`: a
//! handshake whose key is slow is moved to another thread and back. The client's side is the same without the choice.
//!
//! Everything else here is what a configuration needs: certificates and keys as OpenSSL's users write them
//! ([`Certificate`], [`key`]), the names of ciphers and curves ([`suites`]), tickets ([`TicketKeys`]), and what
//! OpenSSL would say of a peer's certificate ([`chain`]).

#![forbid(unsafe_code)]

mod alert;
pub mod certificate;
pub mod chain;
mod client;
mod compress;
mod decrypt;
mod der;
mod early;
mod error;
mod external_sessions;
pub mod facts;
mod group;
mod hello;
mod hello_fields;
mod host;
mod issuer;
mod kept;
pub mod key;
mod key_log;
mod late;
mod name;
pub mod ocsp;
mod offer;
mod p521;
mod pem;
pub mod pkcs11;
mod problem;
mod revocation;
mod secrets;
mod server;
mod session;
pub mod suites;
mod tickets;
mod verify;

pub use certificate::{Certificate, Effort};
pub use chain::Trust;
pub use client::{ClientConfig, ClientSettings, Connect};
pub use error::Error;
pub use external_sessions::{ExternalSessions, NamedSession};
pub use hello::{Acceptor, Hello};
pub use hello_fields::HelloFields;
pub use host::{matches_address, matches_host};
pub use kept::KeptSession;
pub use key_log::KeyLogFile;
pub use problem::Problem;
pub use secrets::Secrets;
pub use server::{Handshake, Otherwise, Progress, ServerConfig, ServerSettings};
pub use session::{Facts, Session, Step};
pub use tickets::{ServerSessions, SessionCache, TicketKeys, Tickets};
