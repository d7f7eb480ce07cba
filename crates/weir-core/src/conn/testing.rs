//! Connections for unit tests, without sockets.

use std::cell::Cell;
use std::rc::Rc;

use weir_http::h1::Parse;
use weir_rt::net::SockAddr;

use super::head;
use crate::conf::server::Hosts;
use crate::exchange::Exchange;
use crate::transport::Connection;
use crate::worker::Worker;

/// Connection 7, in its second request, from 192.0.2.1:54321 to 198.51.100.1:8080.
pub(crate) fn connection(hosts: &Rc<Hosts>, worker: &Worker) -> Rc<Connection> {
    let addr = |text: &str| text.parse::<SockAddr>().expect("an address");
    let (peer, local) = (addr("192.0.2.1:54321"), addr("198.51.100.1:8080"));
    Rc::new(Connection {
        number: 7,
        born: 0,
        requests: Cell::new(2),
        ..Connection::unconnected(hosts.clone(), peer, local, worker)
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
