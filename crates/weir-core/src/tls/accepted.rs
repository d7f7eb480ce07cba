//! What a request on an address with TLS needs to be answered.

use super::settings::Verify;
use crate::exchange::Exchange;
use crate::log::Level;

/// Whether the request may go on.
///
/// # Errors
/// nginx's own status: 497 for a request without TLS, 495 for a certificate that is not trusted, 496 for none.
pub(crate) fn check(x: &mut Exchange) -> Result<(), u16> {
    if !x.connection.expects_tls {
        return Ok(());
    }
    let connection = x.connection.clone();
    let Some(tls) = connection.tls.get() else {
        return refuse(x, 497, "client sent plain HTTP request to HTTPS port");
    };
    let verify = x.server.verify_client;
    if verify == Verify::Off {
        return Ok(());
    }
    let asked = connection.server();
    if let Some(asked) = &asked.tls
        && let Err(problem) = tls.verify(asked)
        && !(verify == Verify::OptionalNoCa && problem.is_about_trust())
    {
        let message = format!("client SSL certificate verify error: ({}:{})", problem.code, problem.text);
        return refuse(x, 495, &message);
    }
    if verify == Verify::On && tls.certificate().is_none() {
        return refuse(x, 496, "client sent no required SSL certificate");
    }
    if let Err(why) = tls.status() {
        return refuse(x, 495, &format!("client SSL certificate verify error: {why}"));
    }
    Ok(())
}

/// A host other than the name of the handshake: a server that asks for certificates does not answer there.
pub(crate) fn misdirected(x: &Exchange) -> bool {
    let asks = x.server.verify_client != Verify::Off;
    if asks {
        let message =
            "client attempted to request the server name different from the one that was negotiated";
        x.log(Level::Info, &message);
    }
    asks
}

fn refuse(x: &mut Exchange, status: u16, message: &str) -> Result<(), u16> {
    x.log(Level::Info, &message);
    x.keep_alive = false;
    Err(status)
}
