//! The workers' threads, and what deals connections to them: listening sockets, the acceptor, parked connections.

pub(crate) mod acceptor;
pub(crate) mod affinity;
pub(crate) mod agent;
pub(crate) mod crew;
pub mod dealing;
pub(crate) mod intake;
pub mod marked;
mod parking;
pub(crate) mod sockets;
pub(crate) mod thread;
