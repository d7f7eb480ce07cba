//! What a connection of HTTP/2 takes of memory.

use weir_http::h2::StreamKey;

use super::mux::H2Mux;
use super::slot::StreamSlot;
use crate::exchange::Exchange;
use crate::transport::ProtocolState;
use crate::worker::memory::COUNTED;

impl ProtocolState for H2Mux {
    /// Itself with the protocol's tables, and the places of streams; what streams are about to send is not in it.
    fn held_bytes(&self) -> usize {
        let keys = self.starved.borrow().capacity() * size_of::<StreamKey>();
        let held = self.held.borrow().capacity() * size_of::<(StreamKey, Box<Exchange>)>();
        let slots = self.slots.borrow().capacity() * size_of::<StreamSlot>();
        let protocol = self.h2.borrow().held_bytes() + self.ledger.borrow().held_bytes();
        COUNTED + size_of::<H2Mux>() + protocol + slots + held + keys
    }

    fn look(&self) {
        self.wake();
    }
}
