//! Connections that a session of `stream` passes on to another address of the configuration (`pass`).

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use weir_rt::net::SockAddr;

use super::{ClientConnection, Transport};
use crate::exchange::Exchange;
use crate::settings::listen::ListenAddress;
use crate::worker::Worker;
use crate::worker::generation::WorkerGeneration;

/// Where a connection goes on after its session.
pub struct SessionPass {
    /// The configuration that has the address.
    generation: Rc<WorkerGeneration>,
    /// The address, by its index in that configuration.
    at: usize,
    /// The address as the session has it: the connection's own from there on (`$server_addr`, `$server_port`).
    addr: SockAddr,
    /// The client, as the session has it.
    client: SockAddr,
}

/// What a connection has from the sessions that have passed it on.
#[derive(Default)]
struct PassedConnection {
    /// How many have.
    times: Cell<u32>,
}

impl SessionPass {
    /// Where the connection of `x` goes on if it is passed to `addr`: at the listening socket of that address, or else of all
    /// addresses with its port, in the configuration that is in force.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn find(x: &Exchange, addr: SockAddr) -> Result<SessionPass, String> {
        if matches!(x.transport, Transport::Flow(_)) {
            return Err("cannot pass UDP connection".to_owned());
        }
        let not_found = || format!("port not found for \"{addr}\"");
        let generation = x.worker.generation().ok_or_else(not_found)?;
        let addresses = &generation.configuration.addresses;
        let of_all = |one: &ListenAddress| !one.options.udp && one.addr.is_wildcard_of(&addr);
        let at = addresses.iter().position(|one| !one.options.udp && one.addr == addr);
        let at = at.or_else(|| addresses.iter().position(of_all)).ok_or_else(not_found)?;
        if x.connection.is_tls() && addresses[at].ssl {
            return Err(format!("cannot pass a connection with TLS to \"{addr}\", which expects TLS"));
        }
        let before = x.connection.state_if::<PassedConnection>();
        if before.is_some_and(|passed| passed.times.get() == MOST_TIMES) {
            return Err(format!("cannot pass a connection to \"{addr}\": it was passed {MOST_TIMES} times"));
        }
        Ok(SessionPass { generation, at, addr, client: x.client().clone() })
    }

    /// The address, as the configuration has it.
    pub fn address(&self) -> &ListenAddress {
        &self.generation.configuration.addresses[self.at]
    }
}

impl ClientConnection {
    /// The connection as it goes on at `pass`, with what is known of its client. This one does not end.
    ///
    /// # Errors
    /// Which of the address's servers the handshake's name means is not known.
    pub fn passed_on(&self, worker: &Worker, pass: &SessionPass) -> Result<ClientConnection, String> {
        let hosts = pass.generation.hosts()[pass.at].clone();
        let mut next =
            ClientConnection::new(self.number, pass.client.clone(), self.fd, hosts, worker.serial());
        (next.started_ms, next.account, next.debug) = (self.started_ms, self.account, self.debug);
        next.retired = self.retired.clone();
        let address = pass.address();
        next.expects_tls = address.ssl;
        if !address.proxy_protocol {
            next.proxied = self.proxied.clone();
        }
        next.tls = self.tls.clone();
        next.hello = self.hello.clone();
        next.local = OnceCell::from(pass.addr.clone());
        let name = self.hello.get().and_then(|hello| hello.server_name.as_deref());
        next.choose_by_name(name)?;
        let before = self.state_if::<PassedConnection>().map_or(0, |passed| passed.times.get());
        next.state::<PassedConnection>().times.set(before + 1);
        self.moves_on();
        Ok(next)
    }
}

/// How often a connection may be passed on: two servers of `stream` that pass to each other end here.
const MOST_TIMES: u32 = 8;
