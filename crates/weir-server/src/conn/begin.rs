//! Which protocol a connection speaks.

use std::rc::Rc;

use weir_rt::RecvOutcome;

use super::{h1, h2};
use weir_engine::transport::tls::AgreedProtocol;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientConnection, keepalive};
use weir_engine::worker::Worker;

/// Serves a connection from its first byte to its last; `alpn` is what TLS agreed upon, where there is TLS.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    connection: Rc<ClientConnection>,
    wire: Rc<ClientWire>,
    alpn: Option<AgreedProtocol>,
) {
    let two = match alpn {
        Some(alpn) => alpn == AgreedProtocol::Http2,
        None if !connection.takes_http2() => false,
        None => match knows(&worker, &connection, &wire).await {
            Some(two) => two,
            None => return,
        },
    };
    if two {
        let owner = connection.clone();
        let task = Box::pin(h2::run(worker, connection, wire));
        owner.task_bytes.set(owner.task_bytes.get() + size_of_val(&*task) as u32);
        drop(owner);
        task.await;
    } else {
        let idle = connection.server().settings.client_header_timeout;
        h1::run(worker, connection, wire, idle).await;
    }
}

/// Whether the client begins with HTTP/2's preface (prior knowledge, RFC 9113 section 3.3); `None`: it has left. What was
/// read stays.
async fn knows(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    wire: &Rc<ClientWire>,
) -> Option<bool> {
    wire.timer.arm(connection.hosts.borrow().default().settings.client_header_timeout);
    loop {
        let begins = h2::begins(wire.input.borrow().bytes());
        if begins.is_some() {
            return begins;
        }
        worker.counters.waiting.add(1);
        wire.input.borrow_mut().hold();
        let received = wire.stream.recv(Some(&wire.timer)).await;
        worker.counters.waiting.sub(1);
        match received {
            RecvOutcome::Data(buf) => wire.input.borrow_mut().push(buf),
            gone if wire.input.borrow().is_empty() => {
                keepalive::gone(connection, worker, wire, &gone);
                return None;
            }
            // A part of the preface and nothing more: HTTP/1 reports what is wrong with it.
            _ => return Some(false),
        }
    }
}
