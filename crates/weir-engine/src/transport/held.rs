//! What a connection of a client takes of memory.

use std::rc::Weak;

use weir_rt::TASK_PLACE;

use super::ClientConnection;
use super::slots;
use super::tls::ConnectionTls;
use super::wire::ClientWire;
use crate::worker::memory::{COUNTED, MemoryKind};

impl ClientConnection {
    /// What the memory of the connection with this `wire` is counted as.
    pub(super) fn memory_kind(&self, wire: &ClientWire) -> MemoryKind {
        match (self.is_tls(), wire.multiplexed.get()) {
            (false, _) if self.expects_tls => MemoryKind::Handshake,
            (false, false) => MemoryKind::Http1,
            (true, false) => MemoryKind::Http1Tls,
            (false, true) => MemoryKind::Http2,
            (true, true) => MemoryKind::Http2Tls,
        }
    }

    /// Bytes that it takes besides its wire: itself, its task, its place in the worker's table, its protocol's state and
    /// what is known of its TLS. What modules keep for it is theirs.
    pub(super) fn held_bytes(&self) -> usize {
        let itself =
            COUNTED + size_of::<ClientConnection>() + slots::place_of::<super::open::OpenConnection>();
        let protocol = self.protocol.get().and_then(Weak::upgrade).map_or(0, |state| state.held_bytes());
        let tls = self.tls.get().map_or(0, |_| size_of::<ConnectionTls>() + TLS_FACTS);
        let hello = self.hello.get().map_or(0, |hello| COUNTED + size_of_val(&**hello) + HELLO_TEXTS);
        itself + TASK_PLACE + self.task_bytes.get() as usize + protocol + tls + hello
    }
}

impl ClientWire {
    /// Bytes that it takes: itself, its socket with what is on its way, and what was received and not used.
    pub(super) fn held_bytes(&self) -> usize {
        COUNTED + size_of::<ClientWire>() + self.stream.held_bytes() + self.buffered_bytes()
    }
}

/// Bytes of texts and lists that a handshake leaves: its facts, and what the client's certificates were judged to be.
const TLS_FACTS: usize = 128;
/// Bytes of the lists and the name in a ClientHello.
const HELLO_TEXTS: usize = 192;
