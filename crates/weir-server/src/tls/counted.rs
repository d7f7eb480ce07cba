//! Handshakes, counted; and the last ones that failed, by whom and for which server: a count does not say that.

use std::cell::RefCell;
use std::collections::VecDeque;

use weir_engine::transport::ClientConnection;
use weir_engine::worker::{HandshakeFault, ShownCertificate, Worker};
use weir_rt::SockAddr;
use weir_tls::SessionFacts;

/// A handshake that failed.
#[derive(Clone, Debug)]
pub struct FailedHandshake {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// The client.
    pub client: SockAddr,
    /// The name of a server that the client asked for, as it was sent, or the beginning of it; `None` if it sent none, or
    /// did not come that far.
    pub server_name: Option<String>,
    /// Why.
    pub fault: HandshakeFault,
}

thread_local! {
    /// Of this worker, oldest first.
    static FAILED: RefCell<VecDeque<FailedHandshake>> = const { RefCell::new(VecDeque::new()) };
}

/// The last handshakes that failed on the worker whose thread calls this, oldest first.
pub fn last_failed() -> Vec<FailedHandshake> {
    FAILED.with_borrow(|failed| failed.iter().cloned().collect())
}

/// Notes one that fails; it is counted when its connection ends.
pub(super) fn failed(connection: &ClientConnection, fault: HandshakeFault) {
    connection.handshake_fails(fault);
    let failed = FailedHandshake {
        unix_ms: weir_rt::clock::unix_ns() / 1_000_000,
        client: connection.peer.clone(),
        server_name: connection.hello.get().and_then(|hello| hello.server_name.as_deref()).map(shortened),
        fault,
    };
    FAILED.with_borrow_mut(|all| {
        if all.len() == REMEMBERED {
            all.pop_front();
        }
        all.push_back(failed);
    });
}

/// Counts one that is complete, `ticks` after its first byte.
pub(super) fn agreed(worker: &Worker, facts: &SessionFacts, shown: Option<ShownCertificate>, ticks: u64) {
    worker.counters.handshakes().agreed(facts, shown);
    worker.recorder.borrow().handshake(facts.resumed, ticks);
}

/// A name of a host has 253 letters at most (RFC 1035, section 2.3.4); clients may send more.
fn shortened(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

const LONGEST_NAME: usize = 255;
/// Failed handshakes that a worker remembers: some 300 bytes each.
const REMEMBERED: usize = 32;
