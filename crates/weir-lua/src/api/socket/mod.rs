//! Cosockets: `ngx.socket.tcp` and what it gives.
//!
//! A socket object is a Lua table; in its first place is a [`TcpSocket`](tcp::TcpSocket), which is there from the first
//! `connect` on. The connection itself is a [`SocketConnection`](conn::SocketConnection), which pools ([`pool`]) keep
//! between requests. What can be had without waiting (bytes that are in the buffer or the kernel, an idle connection, a
//! send that the kernel takes) is had within the call: no future is made, the coroutine goes on. What waits is a future
//! that holds socket and connection, and a [`SocketBusy`](tcp::SocketBusy) that frees the direction again when the
//! future ends, and closes the socket when it is dropped before that (`ngx.thread.kill`).
//!
//! Sockets belong to a request, which closes them when it ends.

mod conf;
mod conn;
mod connect;
pub(crate) mod ffi;
mod host;
mod known;
mod options;
mod pool;
mod read;
mod request;
mod send;
mod session;
pub(crate) mod tcp;
mod tls;
mod udp;
mod until;

use crate::run::function::ApiFunction;

pub(crate) use conf::{SocketConf, SocketSettings};
pub(crate) use request::receives_body;
pub(crate) use session::{SessionClient, lend_client, take_client_back};
pub(crate) use tcp::settings;
pub(crate) use udp::TABLE as DATAGRAMS;

pub(crate) const TABLES: [&[ApiFunction]; 9] = [
    tcp::TABLE,
    connect::TABLE,
    options::TABLE,
    pool::TABLE,
    read::TABLE,
    request::TABLE,
    send::TABLE,
    session::TABLE,
    tls::TABLE,
];
