//! The TLS handshake with a server.

use std::cell::Cell;
use std::rc::Rc;

use weir_tls::TlsSession;

use crate::connection::upstream_connection::UpstreamConnection;
use crate::tls_client::connect::{NoTls, complete};
use crate::tls_client::layer::TlsLayer;
use crate::tls_client::tls_facts::UpstreamTlsFacts;
use crate::tls_client::{SecureUpstream, ShownCertificate};

/// Completes a handshake within `ms`; from then on the connection's bytes go through it.
///
/// # Errors
/// The handshake failed, or the server is not the one that is meant.
pub(crate) async fn handshake(
    connection: &UpstreamConnection,
    secure: &SecureUpstream,
    ms: u64,
) -> Result<(), NoTls> {
    let made = agree(connection, secure, None, ms).await?;
    secure.check(&made.0.facts()).map_err(NoTls::Failed)?;
    establish(connection, made);
    Ok(())
}

/// A session, and what the server has sent in it already.
pub(crate) type HandshakeResult = (TlsSession, Vec<u8>);

/// Completes a handshake within `ms`, in which the server is shown what a handler has chosen; its certificate is not
/// looked at.
///
/// # Errors
/// The handshake failed.
pub(crate) async fn agree(
    connection: &UpstreamConnection,
    secure: &SecureUpstream,
    shown: Option<ShownCertificate>,
    ms: u64,
) -> Result<HandshakeResult, NoTls> {
    let config = secure.config_with(shown).await.map_err(NoTls::Failed)?;
    connection.timer.arm(ms);
    Ok(complete(&connection.stream, &connection.timer, &config, secure.name()).await?.into_session())
}

/// From here on the connection's bytes go through the session.
pub(crate) fn establish(connection: &UpstreamConnection, (session, early): HandshakeResult) {
    let _ = connection.tls.set(Rc::new(UpstreamTlsFacts::new(session.facts())));
    let layer = TlsLayer::new(session, Rc::new(Cell::new(false)));
    connection.stream.set_layer(Box::new(layer), early);
}
