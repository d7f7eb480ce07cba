//! How many bytes a session of `stream` has moved, and where its connection goes on after it.

use std::cell::{Cell, RefCell};

use crate::transport::passed::SessionPass;

/// Bytes of a session so far. Those sent to the client are counted by its socket
/// ([`Exchange::bytes_sent`]).
#[derive(Default)]
pub struct SessionBytes {
    /// Received from the client, without a PROXY protocol header (`$bytes_received`).
    pub from_client: Cell<u64>,
    /// Received from the server that it is passed to.
    pub from_server: Cell<u64>,
    /// Sent to that server.
    pub to_server: Cell<u64>,
    /// True from the first try to reach a server on.
    pub is_passed: Cell<bool>,
    /// Where the connection goes on, once the content has said so (`pass`).
    pub goes_on: RefCell<Option<SessionPass>>,
}
