//! `Upgrade: h2c`: an HTTP/1.1 connection that goes on as HTTP/2 (RFC 7540 section 3.2; RFC 9113 has it no more, clients
//! have).

use std::rc::Rc;

use weir_http::{KnownField, Version, base64, header};

use super::request;
use weir_engine::exchange::Exchange;
use weir_engine::read;
use weir_engine::transport::h2::H2Stream;
use weir_engine::transport::h2::mux::H2Mux;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientStream, Transport};
use weir_http::h2::StreamEnd;

/// Whether the request of `x`, whose head was read, asks for it, and can have it: on a connection without TLS, without a
/// body or with one that the server's `client_max_body_size` allows. The settings of the client.
pub(crate) fn wanted(x: &Exchange) -> Option<Vec<u8>> {
    let request = &x.request;
    let plain = !x.connection.is_tls() && request.head.version == Version::V11;
    let most = x.plan.core.client_max_body_size;
    let is_too_large = most != 0 && request.head.content_length.is_some_and(|length| length > most);
    if !plain || is_too_large || !x.connection.takes_http2() || !x.connection.server().http2.upgrade {
        return None;
    }
    let mut upgrades = header::tokens(request.value(&x.arena, KnownField::Upgrade)?);
    if !upgrades.any(|token| token.eq_ignore_ascii_case(b"h2c")) {
        return None;
    }
    let mut settings = request.head.fields.iter().filter(|field| field.known == KnownField::Http2Settings);
    let first = settings.next()?;
    match settings.next() {
        None => base64::decode_url(x.arena.get(first.value)),
        Some(_) => None,
    }
}

/// Reads the body of `x`, all of which comes before the connection changes (RFC 7540 section 3.2).
///
/// # Errors
/// The status to respond with, by HTTP/1.
pub(crate) async fn read_body(x: &mut Exchange) -> Result<(), u16> {
    if !x.request.head.has_body() {
        return Ok(());
    }
    read::start(x);
    x.read_body().await.map_err(|error| error.status())?;
    let length = x.body.file().map_or(x.body.memory().len() as u64, |file| file.len);
    let head = &mut x.request.head;
    (head.content_length, head.chunked) = (Some(length), false);
    Ok(())
}

/// Responds to `x` on the first stream of the HTTP/2 connection that `wire` becomes, and serves that to its end.
pub(crate) async fn serve(x: &mut Exchange, wire: &Rc<ClientWire>, settings: &[u8]) {
    wire.compose(|out| {
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        );
    });
    let (worker, connection) = (x.worker.clone(), x.connection.clone());
    let mux = H2Mux::new(&worker, &connection, wire);
    let upgraded = mux.h2.borrow_mut().upgrade(settings);
    let mut spare = None;
    match upgraded {
        Ok(key) => {
            let mut own = worker.take_exchange(&connection, connection.hosts.borrow().default());
            // The request goes on in an exchange that can outlive this call.
            std::mem::swap(&mut *own, x);
            own.request.head.version = Version::V20;
            own.request.head.retain_fields(|field| {
                !matches!(
                    field.known,
                    KnownField::Connection
                        | KnownField::Upgrade
                        | KnownField::Http2Settings
                        | KnownField::TransferEncoding
                )
            });
            own.bytes_before = 0;
            own.transport = Transport::Stream(ClientStream::H2(H2Stream { mux: mux.clone(), key }));
            mux.begin(key, StreamEnd::Last);
            spare = request::answer(&mux, key, own);
        }
        Err(failure) => mux.failed(&failure),
    }
    super::serve(&mux, spare).await;
}
