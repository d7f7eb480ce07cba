//! TLS without I/O: bytes come in, bytes go out, and what is to be decided in between is a state.
//!
//! This is the one place that knows rustls. Its shape is that of the library's coming sans-IO interface: an
//! [`HelloAcceptor`] reads a [`ReceivedHello`], the owner of the connection chooses a configuration for it (and may
//! take its time), a [`ServerHandshake`] goes on from there and ends in a [`TlsSession`], which seals and opens. All of
//! them are `Send`: a handshake whose key is slow is moved to another thread and back. The client's side is the same
//! without the choice.
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
mod early_data;
mod error;
mod external_sessions;
pub mod facts;
mod hello;
mod hello_fields;
mod hello_offer;
mod host;
mod issuer;
pub mod key;
mod key_exchange_group;
mod key_log;
mod late_key;
mod name;
pub mod ocsp;
mod p521;
mod pem;
pub mod pkcs11;
pub mod quic;
mod random;
mod record_seal;
mod revocation;
mod secrets;
mod server;
mod session;
mod signature_limits;
mod stored_session;
pub mod suites;
mod tickets;
mod verify;
mod verify_problem;

pub use alert::fatal_alert;
pub use certificate::{Certificate, KeyEffort};
pub use chain::TrustStore;
pub use client::{ClientConfig, ClientHandshake, ClientSettings};
pub use error::{Error, HandshakeFailure};
pub use external_sessions::{ExternalSessions, NamedSession};
pub use hello::{HelloAcceptor, ReceivedHello};
pub use hello_fields::HelloFields;
pub use host::{matches_address, matches_host, matches_uri};
pub use key_log::KeyLogFile;
pub use random::random_bytes;
pub use secrets::HandshakeSecrets;
pub use server::{HandshakeProgress, HandshakeWishes, ServerConfig, ServerHandshake, ServerSettings};
pub use session::{ResumedFrom, SessionFacts, SessionStep, TlsSession};
pub use signature_limits::{SignatureLimits, SignatureList, select_signatures};
pub use stored_session::KeptSession;
pub use tickets::{ServerSessions, ServerTickets, SessionCache, TicketKeyAge, TicketKeys};
pub use verify_problem::VerifyProblem;
