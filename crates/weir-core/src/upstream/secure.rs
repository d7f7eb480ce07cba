//! The TLS handshake with a server.

use std::cell::Cell;
use std::rc::Rc;

use weir_rt::Recv;
use weir_rt::file::errno_text;
use weir_tls::{ClientConfig, Connect, Progress, Session};

use super::connection::Connection;
use crate::tls::files::ssl;
use crate::tls::layer::TlsLayer;
use crate::tls::{Secure, Shown};

/// Why there is no TLS.
pub(super) enum NoTls {
    /// `proxy_connect_timeout` has passed.
    TimedOut,
    /// In nginx's words.
    Failed(String),
}

/// Completes a handshake within `ms`; from then on the connection's bytes go through it.
///
/// # Errors
/// The handshake failed, or the server is not the one that is meant.
pub(super) async fn handshake(connection: &Connection, secure: &Secure, ms: u64) -> Result<(), NoTls> {
    let made = agree(connection, secure, None, ms).await?;
    secure.check(&made.0.facts()).map_err(NoTls::Failed)?;
    establish(connection, made);
    Ok(())
}

/// A session, and what the server has sent in it already.
pub(super) type Made = (Session, Vec<u8>);

/// Completes a handshake within `ms`, in which the server is shown what a handler has chosen; its certificate is not
/// looked at.
///
/// # Errors
/// The handshake failed.
pub(super) async fn agree(
    connection: &Connection,
    secure: &Secure,
    shown: Option<Shown>,
    ms: u64,
) -> Result<Made, NoTls> {
    let config = secure.config_with(shown).await.map_err(NoTls::Failed)?;
    connection.timer.arm(ms);
    Ok(complete(connection, &config, secure.name()).await?.into_session())
}

/// From here on the connection's bytes go through the session.
pub(super) fn establish(connection: &Connection, (session, early): Made) {
    let layer = TlsLayer::new(session, Rc::new(Cell::new(false)));
    connection.stream.set_layer(Box::new(layer), early);
}

async fn complete(connection: &Connection, config: &ClientConfig, name: &str) -> Result<Connect, NoTls> {
    let failed = |error: weir_tls::Error| NoTls::Failed(format!("SSL_do_handshake() failed {}", ssl(&error)));
    let mut connect = Connect::new(config, name).map_err(failed)?;
    let mut received = Vec::new();
    loop {
        let step = move || {
            let mut out = Vec::new();
            let progress = connect.handle(&received, &mut out);
            (connect, progress, out)
        };
        let (stepped, progress, out) = crate::tls::at(config.effort(), step).await;
        connect = stepped;
        if !out.is_empty() {
            connection.stream.send(out);
        }
        if progress.map_err(failed)? == Progress::Complete {
            return Ok(connect);
        }
        received = match connection.stream.recv(Some(&connection.timer)).await {
            Recv::Data(bytes) => bytes.to_vec(),
            Recv::TimedOut => return Err(NoTls::TimedOut),
            Recv::Eof => return Err(NoTls::Failed("peer closed connection in SSL handshake".to_owned())),
            Recv::Err(errno) => {
                let message = format!("SSL_do_handshake() failed ({errno}: {})", errno_text(errno));
                return Err(NoTls::Failed(message));
            }
        };
    }
}
