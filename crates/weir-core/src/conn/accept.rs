//! Accepting connections.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use weir_rt::net::{self, SockAddr};
use weir_rt::{Listener, Stream};

use super::h1::Wire;
use super::{Connection, h1, proxy};
use crate::log::{self, Level};
use crate::server::notify::{Notify, either};
use crate::worker::Worker;

/// Accepts from `listener` until `end` is notified. What the kernel had accepted by then is still served.
pub(crate) async fn run(worker: Rc<Worker>, listener: Listener, address: Rc<Cell<usize>>, end: Rc<Notify>) {
    let mut told = None;
    loop {
        worker.room().await;
        let accepted = either(listener.accept(), end.forever()).await;
        match accepted {
            Some(Ok(stream)) => take(&worker, stream, address.get()),
            Some(Err(error)) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let now = weir_rt::now_ms();
                if told.is_none_or(|told| now >= told + TELL_MS) {
                    told = Some(now);
                    log::cycle(
                        Level::Crit,
                        &format_args!("accept4() failed ({errno}: {})", weir_rt::file::errno_text(errno)),
                    );
                }
            }
            None => return,
        }
    }
}

/// Makes a connection of an accepted socket and starts its task.
fn take(worker: &Rc<Worker>, stream: Stream, address: usize) {
    let Some(generation) = worker.generation() else { return };
    let fd = stream.fd();
    let peer = net::peer_addr(fd).unwrap_or(SockAddr::UNSPECIFIED);
    let Some(hosts) = generation.hosts.get(address).cloned() else { return };
    let connection = Rc::new(Connection {
        number: worker.connection_number(),
        peer,
        fd,
        hosts: RefCell::new(hosts),
        serial: Cell::new(worker.serial()),
        requests: Cell::new(0),
        started_ms: weir_rt::now_ms(),
        accept_wait: crate::trace::accepted(worker, fd),
        proxied: OnceCell::new(),
        ssl: false,
        retired: Cell::new(false),
        local: OnceCell::new(),
    });
    let proxy_protocol = generation.configuration.addresses[address].proxy_protocol;
    connection.narrow(&generation);
    let wire = Rc::new(Wire::new(stream));
    let open = worker.open(&wire, &connection);
    let worker = worker.clone();
    weir_rt::spawn(async move {
        if !proxy_protocol || proxy::read(&connection, &wire).await {
            h1::run(worker.clone(), connection, wire).await;
        }
        drop(open);
    });
}

/// Accepting is tried every 50 ms when descriptors run out; a log line each time would fill the disk as well. nginx
/// tries, and tells, every half a second.
const TELL_MS: u64 = 500;
