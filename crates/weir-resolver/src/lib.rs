//! A stub resolver of DNS names that does no I/O: bytes and time come in by `handle_*`, what is to be sent and what was
//! found leave by `poll_*`, randomness is a function it is given. Everything in it can be simulated.
//!
//! What it adds to a plain stub resolver:
//!
//! * several name servers, primary and backup, with a notion of health: one that fails three times in a row is asked
//!   last, and gets heartbeats until it answers;
//! * addresses that were good stay in use when all name servers fail (RFC 8767), and when a name vanishes until that was
//!   confirmed several times;
//! * one query in flight for a name and type, whichever callers ask; names in use are asked for again before they
//!   expire.
//!
//! [`Resolver`] is the whole; [`wire`] reads and writes messages (RFC 1035), [`system`] reads `/etc/resolv.conf` and
//! `/etc/hosts`.
#![forbid(unsafe_code)]

mod cache;
mod dns_answer;
mod event;
mod name;
mod queries_in_flight;
mod query;
mod resolver;
mod saved_records;
mod servers;
mod settings;
pub mod system;
pub mod wire;

#[cfg(test)]
mod tests;

pub use dns_answer::{DnsAnswer, DnsFailure, DnsQuestion, DnsService};
pub use event::{LookupId, ResolverEvent, SocketToken, Transmit};
pub use name::DnsName;
pub use resolver::Resolver;
pub use settings::ResolverSettings;
