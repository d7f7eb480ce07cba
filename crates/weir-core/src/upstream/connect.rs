//! A connection for a try: opened, and set up for its first request.

use weir_trace::WaitKind;

use super::attempt::{CONNECTING, Failed, Run};
use super::connection::Connection;
use super::local::Lease;
use super::log;
use super::request;
use crate::exchange::Exchange;

impl Run<'_> {
    pub(super) async fn connect(&self, x: &mut Exchange, lease: &mut Lease) -> Result<Connection, Failed> {
        let settings = &self.up.settings;
        let local = request::local(x, settings).map_err(Failed::End)?;
        let peer = lease.peer.clone();
        let connect = Connection::open(&peer.addr, local.as_ref(), settings.connect_timeout);
        let opened = match self.unless_gone(x, WaitKind::UpstreamConnect, connect).await? {
            Ok(connection) => self.set_up(x, connection).await,
            Err(error) => Err(Failed::Next(log::connect(x, &peer, &error))),
        };
        if let Err(Failed::Next(fault)) = &opened {
            lease.fail(x, *fault, CONNECTING);
            self.tries.failed(*fault);
        }
        opened
    }

    /// What a new connection needs before its first request.
    async fn set_up(&self, _x: &mut Exchange, connection: Connection) -> Result<Connection, Failed> {
        if self.up.settings.socket_keepalive {
            request::probe(&connection);
        }
        Ok(connection)
    }
}
