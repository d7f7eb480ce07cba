//! What is known of requests whose head came before: where they lead to, and what was made of them there.

use std::any::Any;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use weir_rt::net::SockAddr;

use crate::plan::Plan;
use crate::plan::hosts::AddressServers;
use crate::plan::server::VirtualServer;
use crate::transport::ClientConnection;

/// Which requests something that is stored with a head is for.
pub(crate) struct KnownScope {
    /// The servers of the address that the head came to, ...
    pub(crate) hosts: Weak<AddressServers>,
    /// ... and the one of them that it led to.
    pub(crate) server: Weak<VirtualServer>,
    /// The location.
    pub(crate) plan: Rc<Plan>,
}

/// Where requests with a head are passed to. Neither is their head read nor are phases run: nothing but the location's content
/// handler has to do with them, and that gets what it has made of the first of them.
pub(crate) struct KnownPass {
    pub(crate) scope: KnownScope,
    /// The connection, where what was made follows from that, too.
    pub(crate) connection: Option<ConnectionFacts>,
    /// What the handler has made of it.
    pub(crate) made: Rc<dyn Any>,
}

/// What [`ValueBasis::Connection`](crate::variable::ValueBasis) means of a connection.
#[derive(PartialEq, Eq)]
pub(crate) struct ConnectionFacts {
    /// `None` of a unix socket.
    client: Option<IpAddr>,
    local: SockAddr,
    is_tls: bool,
}

impl ConnectionFacts {
    pub(crate) fn of(connection: &ClientConnection) -> ConnectionFacts {
        ConnectionFacts {
            client: connection.peer.ip(),
            local: connection.local().clone(),
            is_tls: connection.is_tls(),
        }
    }

    /// Whether they are those of `connection`, too.
    #[inline]
    pub(crate) fn fit(&self, connection: &ClientConnection) -> bool {
        self.client == connection.peer.ip()
            && self.is_tls == connection.is_tls()
            && self.local == *connection.local()
    }
}
