//! A connection for a try: opened, and set up for its first request.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use weir_http::proxy_protocol;
use weir_rt::clock;
use weir_trace::{Cause, WaitKind};

use crate::config::directives::ProxyHeader;
use crate::config::failure_reason::{AttemptFailure, AttemptFault, FailureReason};
use crate::connection::upstream_connection::{ConnectOptions, UpstreamConnection};
use crate::connection::{handshake, upstream_connection};
use crate::error_log;
use crate::error_log::CONNECTING;
use crate::request::attempt_state::Attempt;
use crate::request::request_body;
use crate::tls_client::connect::NoTls;
use crate::tls_client::{SecureUpstream, ShownCertificate, UpstreamHandler, toward};
use crate::worker_side::local_upstream::PeerLease;
use weir_engine::exchange::Exchange;
use weir_engine::worker::UpstreamCloseReason;

impl Attempt {
    pub(crate) async fn connect(
        &self,
        x: &mut Exchange,
        lease: &mut PeerLease,
    ) -> Result<Box<UpstreamConnection>, AttemptFailure> {
        let settings = &self.up.settings;
        let peer = lease.peer.clone();
        let local = match &peer.bind {
            Some(bind) => Some(bind.clone()),
            None => request_body::local(x, settings).map_err(AttemptFailure::End)?,
        };
        let began = clock::monotonic_ns();
        let how = ConnectOptions {
            local: local.as_ref(),
            transparent: peer.bind.is_none() && settings.bind.as_ref().is_some_and(|bind| bind.transparent),
            rcvbuf: settings.socket_rcvbuf,
            sndbuf: settings.socket_sndbuf,
            nodelay: x.plan.core.tcp_nodelay,
            udp: x.connection.is_flow(),
        };
        let connect = Box::pin(UpstreamConnection::open(
            self.up.protocol.closes_as(),
            &peer.addr,
            &how,
            settings.connect_timeout,
        ));
        let opened = match self.unless_gone(x, WaitKind::UpstreamConnect, connect).await? {
            Ok(connection) => {
                if let Some(timed) = lease.measured() {
                    peer.state.line.connected(timed, clock::monotonic_ns().saturating_sub(began));
                }
                self.set_up(x, Box::new(connection)).await
            }
            Err(error) => Err(AttemptFailure::Next(error_log::connect(x, &peer, &error))),
        };
        if let Err(AttemptFailure::Next(fault)) = &opened {
            lease.fail(x, *fault, CONNECTING);
            self.records.failed(*fault);
        }
        opened
    }

    /// What a new connection needs before its first request.
    async fn set_up(
        &self,
        x: &mut Exchange,
        connection: Box<UpstreamConnection>,
    ) -> Result<Box<UpstreamConnection>, AttemptFailure> {
        let (settings, mut connection) = (&self.up.settings, connection);
        if x.connection.is_flow() {
            return Ok(connection);
        }
        if settings.socket_keepalive {
            upstream_connection::probe(&connection);
        }
        if let Some(version) = settings.proxy_protocol {
            // Before TLS, and not of it.
            connection.stream.send(proxy_header(x, version));
        }
        let Some(secure) = &self.secure else { return Ok(connection) };
        let handshake = match toward::handler(&x.plan) {
            Some(handler) => self.handshake_with(x, &connection, secure, &*handler).await,
            None => {
                let handshake = Box::pin(handshake::handshake(&connection, secure, settings.connect_timeout));
                self.unless_gone(x, WaitKind::UpstreamConnect, handshake).await
            }
        };
        let handshake = handshake.inspect_err(|failed| connection.end.ends(failed.closes()))?;
        match handshake {
            Ok(()) => {
                connection.secure = Some(secure.clone());
                Ok(connection)
            }
            Err(NoTls::TimedOut) => {
                connection.end.ends(UpstreamCloseReason::HandshakeTimeout);
                Err(AttemptFailure::Next(error_log::timed_out(x, Cause::ConnectTimeout, HANDSHAKING)))
            }
            Err(NoTls::Failed(message)) => {
                connection.end.ends(UpstreamCloseReason::HandshakeFailed);
                error_log::error(x, &format_args!("{message} while {HANDSHAKING}"));
                Err(AttemptFailure::Next(AttemptFault {
                    reason: FailureReason::ERROR,
                    cause: Cause::TlsFailed,
                }))
            }
        }
    }

    /// A handshake that a module's handler has to do with.
    async fn handshake_with(
        &self,
        x: &mut Exchange,
        connection: &UpstreamConnection,
        secure: &SecureUpstream,
        handler: &dyn UpstreamHandler,
    ) -> Result<Result<(), NoTls>, AttemptFailure> {
        let timeout = self.up.settings.connect_timeout;
        let Ok(shown) = shown(x, connection, secure, handler, timeout).await? else {
            return Ok(Err(NoTls::Failed(REFUSED.to_owned())));
        };
        let agree = Box::pin(handshake::agree(connection, secure, Some(shown), timeout));
        let made = match self.unless_gone(x, WaitKind::UpstreamConnect, agree).await? {
            Ok(made) => made,
            Err(failed) => return Ok(Err(failed)),
        };
        let facts = made.0.facts();
        let judged = toward::judge(handler, x, facts.clone(), secure.verdict(&facts)).await;
        let accepted = judged.and_then(|verdict| secure.accept(&facts, verdict));
        Ok(match accepted {
            Ok(()) => {
                handshake::establish(connection, made);
                Ok(())
            }
            Err(message) => Err(NoTls::Failed(message)),
        })
    }
}

/// What `handler` has the server be shown, asked for `ms` at most: it may wait for others.
async fn shown(
    x: &mut Exchange,
    connection: &UpstreamConnection,
    secure: &SecureUpstream,
    handler: &dyn UpstreamHandler,
    ms: u64,
) -> Result<Result<ShownCertificate, ()>, AttemptFailure> {
    connection.timer.arm(ms);
    let chosen = {
        let mut asked = handler.certificate(x, secure.only_version());
        let mut late = pin!(connection.timer.wait());
        poll_fn(|cx| match asked.as_mut().poll(cx) {
            Poll::Ready(chosen) => Poll::Ready(Some(chosen)),
            Poll::Pending => late.as_mut().poll(cx).map(|_| None),
        })
        .await
    };
    chosen.ok_or_else(|| {
        handler.abandoned(x);
        AttemptFailure::Next(error_log::timed_out(x, Cause::ConnectTimeout, LOADING))
    })
}

const LOADING: &str = "loading proxy ssl certificate by lua";
/// OpenSSL's words for a handler that does not want the handshake.
const REFUSED: &str = "SSL_do_handshake() failed (SSL: error:0A0000EA:SSL routines::callback failed)";

/// The client's address and the one it connected to. A unix socket has no such addresses.
pub(super) fn proxy_header(x: &Exchange, version: ProxyHeader) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let ends = x.client().to_socket_addr().zip(x.connection.local().to_socket_addr());
    match (version, ends) {
        (ProxyHeader::V1, Some((client, server))) => proxy_protocol::write_v1(&mut out, client, server),
        (ProxyHeader::V1, None) => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        (ProxyHeader::V2, ends) => {
            // Addresses of two families count as none.
            let none = (SocketAddr::from(([0, 0, 0, 0], 0)), SocketAddr::from(([0u16; 8], 0)));
            let (client, server) = ends.unwrap_or(none);
            proxy_protocol::write_v2(&mut out, client, server);
        }
    }
    out
}

const HANDSHAKING: &str = "SSL handshaking to upstream";
