//! QUIC: the datagrams of a socket, dealt to the connections that they belong to, and a task for each of these.
//!
//! quinn-proto knows the protocol and does no I/O. A worker has an [`Endpoint`](quinn_proto::Endpoint) for each of its sockets
//! ([`endpoint`]); the ClientHello is read before a connection is accepted ([`incoming`]), so that the server can be chosen by
//! the name in it, and handlers may wait; then the connection's task ([`connection`]) serves HTTP/3 on it.

mod connection;
pub(crate) mod endpoint;
mod incoming;
mod routes;
pub(in crate::conn) mod settings;
mod tokens;
