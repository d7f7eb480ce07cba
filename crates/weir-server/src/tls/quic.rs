//! The TLS of a connection of QUIC: what its handshake is made with, and what is known once it is over.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use weir_rt::clock;
use weir_tls::HelloFields;
use weir_tls::quic::{QuicFacts, QuicServerConfig};

use super::accept::{self, ChosenHandshake};
use super::counted;
use super::hook::{HandshakeRefusal, TrustedClients};
use super::server::ServerTls;
use super::state::ClientJudgement;
use weir_engine::log::LogLevel;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::tls::ConnectionTls;
use weir_engine::worker::{CloseReason, HandshakeFault, Worker};

/// A handshake that may begin.
pub(crate) struct QuicHandshake {
    /// What it is made with.
    pub(crate) crypto: Arc<QuicServerConfig>,
    tls: Arc<ServerTls>,
    asked: Option<TrustedClients>,
    /// Requests are served that came in early data: the handshake is not over.
    pub(crate) early: Rc<Cell<bool>>,
    /// In ticks.
    begun: u64,
}

/// Chooses the server by the name in `hello`, and what the handshake is made with. Handlers may wait.
///
/// # Errors
/// The client is refused.
pub(crate) async fn choose(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    hello: HelloFields,
) -> Result<QuicHandshake, HandshakeRefusal> {
    let begun = clock::ticks();
    let server = accept::named(connection, hello.server_name.as_deref())?;
    let chosen = accept::choose(worker, connection, &server, hello).await?;
    let ChosenHandshake { tls, config, choice, .. } = chosen;
    let protocols = server.http3.protocols();
    let crypto = QuicServerConfig::new(&config, protocols).map_err(|_| HandshakeRefusal::NoVersion)?;
    let crypto = connection.hello.get().map_or_else(|| crypto.clone(), |hello| crypto.for_client(hello));
    let crypto = crypto.with_connection_ids(server.http3.connection_ids);
    Ok(QuicHandshake { crypto, tls, asked: choice.clients, early: Rc::default(), begun })
}

/// The handshake is over: requests find what is known of it.
pub(crate) async fn established(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    handshake: &QuicHandshake,
    facts: QuicFacts,
) {
    let judgement = ClientJudgement::new(handshake.tls.trust().clone());
    let known = ConnectionTls::new(facts.session, Some(facts.secrets), handshake.early.clone(), judgement);
    let shown = accept::judged(connection, &handshake.tls, known, handshake.asked.clone()).await;
    if let Some(known) = connection.tls.get() {
        counted::agreed(worker, &known.facts, shown, clock::ticks().saturating_sub(handshake.begun));
    }
}

/// The client was refused before its handshake began.
pub(crate) fn refused(connection: &ClientConnection, refusal: HandshakeRefusal) {
    connection.ends(CloseReason::HandshakeFailed);
    counted::failed(connection, refusal.fault());
    let message = format_args!("SSL_do_handshake() failed (SSL: {}) while {HANDSHAKING}", refusal.text());
    connection.log(LogLevel::Info, &message);
}

/// The handshake failed, for this reason.
pub(crate) fn failed(connection: &ClientConnection, reason: &str) {
    connection.ends(CloseReason::HandshakeFailed);
    counted::failed(connection, HandshakeFault::Closed);
    connection.log(LogLevel::Info, &format_args!("QUIC handshake failed: {reason} while {HANDSHAKING}"));
}

/// The handshake took too long.
pub(crate) fn timed_out(connection: &ClientConnection) {
    counted::failed(connection, HandshakeFault::Timeout);
    let message = format_args!("client timed out (110: Connection timed out) while {HANDSHAKING}");
    connection.log(LogLevel::Info, &message);
}

const HANDSHAKING: &str = "QUIC handshaking";
