//! A connection for a try: opened, and set up for its first request.

use weir_trace::{Cause, WaitKind};

use super::attempt::{CONNECTING, Failed, Run};
use super::connection::Connection;
use super::local::Lease;
use super::log;
use super::reason::{Fault, Reason};
use super::request;
use super::secure::{self, NoTls};
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
    async fn set_up(&self, x: &mut Exchange, connection: Connection) -> Result<Connection, Failed> {
        let (settings, mut connection) = (&self.up.settings, connection);
        if settings.socket_keepalive {
            request::probe(&connection);
        }
        let Some(secure) = &self.secure else { return Ok(connection) };
        let handshake = secure::handshake(&connection, secure, settings.connect_timeout);
        match self.unless_gone(x, WaitKind::UpstreamConnect, handshake).await? {
            Ok(()) => {
                connection.secure = Some(secure.clone());
                Ok(connection)
            }
            Err(NoTls::TimedOut) => Err(Failed::Next(log::timed_out(x, Cause::ConnectTimeout, HANDSHAKING))),
            Err(NoTls::Failed(message)) => {
                log::error(x, &format_args!("{message} while {HANDSHAKING}"));
                Err(Failed::Next(Fault { reason: Reason::ERROR, cause: Cause::ConnectFailed }))
            }
        }
    }
}

const HANDSHAKING: &str = "SSL handshaking to upstream";
