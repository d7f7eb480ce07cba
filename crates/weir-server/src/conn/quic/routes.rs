//! Which socket of the process a datagram belongs to.
//!
//! The sockets of an address are one group (SO_REUSEPORT), and the kernel chooses one by the addresses of both sides. A client that
//! has another address from some datagram on, since it has changed its network or a box between has forgotten it, comes to another
//! socket, mostly of another worker. So our connection IDs begin with the number of the socket that the connection is on, and
//! its datagrams are handed over to that.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};
use weir_rt::{RuntimeHandle, SockAddr};

use super::endpoint::QuicEndpoint;
use crate::conn::sharing::own_tag;
use weir_engine::transport::sharing::{ProcessTag, SharedDatagram, TAG_BYTES};

/// The number of a socket of QUIC among those of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteNumber(u16);

/// The sockets of the process, by their numbers.
static ROUTES: Mutex<Vec<Option<SocketRoute>>> = Mutex::new(Vec::new());

/// A socket, as others know it.
#[derive(Clone)]
struct SocketRoute {
    remote: RuntimeHandle,
    /// The address that it is bound to.
    bound: SockAddr,
    /// It takes new connections.
    is_open: bool,
}

thread_local! {
    /// The sockets of this thread.
    static OWN: RefCell<Vec<(RouteNumber, Weak<QuicEndpoint>)>> = const { RefCell::new(Vec::new()) };
}

fn routes() -> MutexGuard<'static, Vec<Option<SocketRoute>>> {
    ROUTES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RouteNumber {
    /// A number that no other socket has, for one of this thread that is bound to `bound`.
    pub(super) fn take(bound: &SockAddr) -> RouteNumber {
        let mut routes = routes();
        let free = routes.iter().position(Option::is_none).unwrap_or(routes.len());
        if free == routes.len() {
            routes.push(None);
        }
        routes[free] = Some(SocketRoute { remote: weir_rt::remote(), bound: bound.clone(), is_open: true });
        RouteNumber(
            u16::try_from(free)
                .expect("a process has fewer sockets, since each has a descriptor and a worker"),
        )
    }

    /// From here on it is `endpoint`'s.
    pub(super) fn belongs_to(self, endpoint: &Rc<QuicEndpoint>) {
        OWN.with_borrow_mut(|own| own.push((self, Rc::downgrade(endpoint))));
    }

    /// Its socket is closed.
    pub(super) fn give_back(self) {
        OWN.with_borrow_mut(|own| own.retain(|(number, _)| *number != self));
        if let Some(place) = routes().get_mut(usize::from(self.0)) {
            *place = None;
        }
    }

    /// Its socket takes no new connections any more.
    pub(super) fn close(self) {
        if let Some(Some(route)) = routes().get_mut(usize::from(self.0)) {
            route.is_open = false;
        }
    }

    /// A socket of the same address that takes new connections; `None`: the process has none.
    pub(super) fn successor(self) -> Option<RouteNumber> {
        let routes = routes();
        let bound = &routes.get(usize::from(self.0))?.as_ref()?.bound;
        let takes = |route: &Option<SocketRoute>| {
            route.as_ref().is_some_and(|route| route.is_open && route.bound == *bound)
        };
        routes.iter().position(takes).and_then(|at| u16::try_from(at).ok()).map(RouteNumber)
    }

    /// Hands a datagram over; `false`: the process has no such socket.
    pub(super) fn hand_over(self, from: SocketAddr, here: Option<IpAddr>, datagram: &[u8]) -> bool {
        let datagram = datagram.to_vec();
        self.run_there(move |endpoint| endpoint.handle(Instant::now(), from, here, &datagram))
    }

    /// Runs `call` on the thread of the socket; `false`: the process has no such socket.
    pub(super) fn run_there(self, call: impl FnOnce(&Rc<QuicEndpoint>) + Send + 'static) -> bool {
        let Some(route) = routes().get(usize::from(self.0)).cloned().flatten() else { return false };
        route.remote.run(Box::new(move || {
            let own = OWN.with_borrow(|own| own.iter().find(|(number, _)| *number == self).cloned());
            if let Some(endpoint) = own.and_then(|(_, endpoint)| endpoint.upgrade()) {
                call(&endpoint);
            }
        }));
        true
    }
}

/// Gives a datagram that another process has read to the socket that it is for.
pub(super) fn deliver(datagram: SharedDatagram<&[u8]>) {
    if let Some(to) = DatagramAim::of(datagram.bytes)
        && to.process == own_tag()
    {
        to.socket.hand_over(datagram.from, datagram.here, datagram.bytes);
    }
}

/// Where a datagram is to go by the connection ID that its first packet is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatagramAim {
    pub(super) process: ProcessTag,
    pub(super) socket: RouteNumber,
}

impl DatagramAim {
    /// `None`: the ID is none of ours by its length and place (RFC 8999 section 5).
    pub(super) fn of(datagram: &[u8]) -> Option<DatagramAim> {
        let first = *datagram.first()?;
        match first & 0x80 {
            0 => datagram.get(1..=ID_BYTES).and_then(DatagramAim::in_id),
            _ if usize::from(*datagram.get(5)?) != ID_BYTES => None,
            _ => datagram.get(6..6 + ID_BYTES).and_then(DatagramAim::in_id),
        }
    }

    fn in_id(id: &[u8]) -> Option<DatagramAim> {
        let (socket, rest) = id.split_first_chunk()?;
        let (process, _) = rest.split_first_chunk()?;
        Some(DatagramAim { process: ProcessTag(*process), socket: RouteNumber(u16::from_be_bytes(*socket)) })
    }
}

/// Makes connection IDs that lead to a socket.
pub(super) struct RoutedIds {
    number: RouteNumber,
    random: RandomConnectionIdGenerator,
}

impl RoutedIds {
    pub(super) fn new(number: RouteNumber) -> RoutedIds {
        RoutedIds { number, random: RandomConnectionIdGenerator::new(ID_BYTES) }
    }
}

impl ConnectionIdGenerator for RoutedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&self.random.generate_cid());
        id[..2].copy_from_slice(&self.number.0.to_be_bytes());
        id[2..2 + TAG_BYTES].copy_from_slice(&own_tag().0);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        // Of whichever process: the clients of one that is gone are told so.
        match DatagramAim::in_id(id) {
            Some(aim) if aim.socket == self.number => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Bytes of our connection IDs. Clients' own first ones have at least 8, and mostly 8 or 20.
const ID_BYTES: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_says_by_its_connection_id_which_socket_it_is_for() {
        let id = RoutedIds::new(RouteNumber(0x0102)).generate_cid();
        let short = [&[0x40][..], &id, b"rest"].concat();
        let long = [&[0xe0, 0, 0, 0, 1, 13][..], &id, &[0], b"rest"].concat();
        let own = DatagramAim { process: own_tag(), socket: RouteNumber(0x0102) };
        for datagram in [short, long] {
            assert_eq!(DatagramAim::of(&datagram), Some(own));
            for end in 0..datagram.len() - 5 {
                assert_eq!(DatagramAim::of(&datagram[..end]), None, "{end} bytes");
            }
        }
        let first = [&[0xc0, 0, 0, 0, 1, 8][..], &[9; 8], &[0], b"rest of a first packet"].concat();
        assert_eq!(DatagramAim::of(&first), None, "the client has chosen this ID");
    }

    #[test]
    fn ids_differ_and_are_valid_for_their_socket_alone() {
        let mut ids = RoutedIds::new(RouteNumber(3));
        let (one, two) = (ids.generate_cid(), ids.generate_cid());
        assert_ne!(one, two);
        assert_eq!((one.len(), ids.cid_len()), (ID_BYTES, ID_BYTES));
        assert!(ids.validate(&one).is_ok());
        assert!(RoutedIds::new(RouteNumber(4)).validate(&one).is_err());
    }
}
