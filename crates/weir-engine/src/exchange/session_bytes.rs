//! How many bytes a session of `stream` has moved.

use std::cell::Cell;

/// Bytes of a session so far. Those sent to the client are counted by its socket
/// ([`Exchange::bytes_sent`]).
#[derive(Debug, Default)]
pub struct SessionBytes {
    /// Received from the client, without a PROXY protocol header (`$bytes_received`).
    pub from_client: Cell<u64>,
    /// Received from the server that it is passed to.
    pub from_server: Cell<u64>,
    /// Sent to that server.
    pub to_server: Cell<u64>,
    /// True from the first try to reach a server on.
    pub is_passed: Cell<bool>,
}
