//! The client's handshake on a connected stream.

use std::cell::Cell;
use std::rc::Rc;

use weir_rt::file::errno_text;
use weir_rt::{RecvOutcome, Stream, Timer};
use weir_tls::{ClientConfig, ClientHandshake, HandshakeProgress, SessionFacts};

use super::files::ssl;
use super::layer::TlsLayer;

/// Why a TLS connection to a server was not made.
pub enum NoTls {
    /// The timer expired.
    TimedOut,
    /// In nginx's words.
    Failed(String),
}

/// Completes a handshake with the server `name`, as long as `timer` runs; from then on the stream's bytes go through it.
/// Whether the server is trusted is for the caller to determine, from the facts.
///
/// # Errors
/// The handshake failed or came too late.
pub async fn connect(
    stream: &Stream,
    timer: &Timer,
    config: &ClientConfig,
    name: &str,
) -> Result<SessionFacts, NoTls> {
    let (session, early) = complete(stream, timer, config, name).await?.into_session();
    let facts = session.facts();
    stream.set_layer(Box::new(TlsLayer::new(session, Rc::new(Cell::new(false)))), early);
    Ok(facts)
}

/// The handshake alone.
///
/// # Errors
/// As [`connect`].
pub(crate) async fn complete(
    stream: &Stream,
    timer: &Timer,
    config: &ClientConfig,
    name: &str,
) -> Result<ClientHandshake, NoTls> {
    let failed = |error: weir_tls::Error| NoTls::Failed(format!("SSL_do_handshake() failed {}", ssl(&error)));
    let mut connect = ClientHandshake::new(config, name).map_err(failed)?;
    let mut received = Vec::new();
    loop {
        let step = move || {
            let mut out = Vec::new();
            let progress = connect.handle(&received, &mut out);
            (connect, progress, out)
        };
        let (stepped, progress, out) = super::effort::at(config.effort(), step).await;
        connect = stepped;
        if !out.is_empty() {
            stream.send(out);
        }
        if progress.map_err(failed)? == HandshakeProgress::Complete {
            return Ok(connect);
        }
        received = match stream.recv(Some(timer)).await {
            RecvOutcome::Data(bytes) => bytes.to_vec(),
            RecvOutcome::TimedOut => return Err(NoTls::TimedOut),
            RecvOutcome::Eof => {
                return Err(NoTls::Failed("peer closed connection in SSL handshake".to_owned()));
            }
            RecvOutcome::Err(errno) => {
                let message = format!("SSL_do_handshake() failed ({errno}: {})", errno_text(errno));
                return Err(NoTls::Failed(message));
            }
        };
    }
}
