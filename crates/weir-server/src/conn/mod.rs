//! Connections' tasks: from the socket that was accepted to the requests on it.

pub mod accept;
pub(crate) mod begin;
pub(crate) mod dealer;
pub(crate) mod flows;
pub mod h1;
pub(crate) mod h2;
pub(crate) mod head;
mod linger;
pub(crate) mod own_socket;
pub(crate) mod parked;
mod proxy;
pub(crate) mod session;
