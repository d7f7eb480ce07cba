//! Connections for unit tests, without sockets.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use weir_http::h1::Parse;
use weir_rt::net::SockAddr;

use super::{Connection, head};
use crate::conf::server::Hosts;
use crate::exchange::Exchange;
use crate::worker::Worker;

/// Connection 7, in its second request, from 192.0.2.1:54321 to 198.51.100.1:8080.
pub(crate) fn connection(hosts: &Rc<Hosts>, worker: &Worker) -> Rc<Connection> {
    let addr = |text: &str| text.parse::<SockAddr>().expect("an address");
    Rc::new(Connection {
        number: 7,
        peer: addr("192.0.2.1:54321"),
        fd: -1,
        hosts: RefCell::new(hosts.clone()),
        serial: Cell::new(worker.serial()),
        born: 0,
        requests: Cell::new(2),
        started_ms: weir_rt::now_ms(),
        accept_wait: 0,
        proxied: OnceCell::new(),
        debug: false,
        expects_tls: false,
        hello: OnceCell::new(),
        tls: OnceCell::new(),
        named: RefCell::default(),
        retired: Cell::new(false),
        local: OnceCell::from(addr("198.51.100.1:8080")),
        states: OnceCell::new(),
    })
}

/// Makes `x` the request whose whole head is `bytes`.
pub(crate) fn read(x: &mut Exchange, bytes: &[u8]) {
    let limits = x.server.settings.limits();
    assert_eq!(x.request.head.parse(bytes, &limits), Ok(Parse::Complete), "the head is whole and good");
    let len = x.request.head.len;
    x.arena.push(&bytes[..len]);
    assert!(head::check(x).is_ok(), "the request is good");
}
