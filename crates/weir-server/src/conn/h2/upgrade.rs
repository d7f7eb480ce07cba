//! `Upgrade: h2c`: an HTTP/1.1 connection that goes on as HTTP/2 (RFC 7540 section 3.2; RFC 9113 has it no more, clients
//! have).

use std::rc::Rc;

use weir_http::{KnownField, Version, base64, header};

use super::request;
use weir_engine::exchange::Exchange;
use weir_engine::transport::h2::H2Stream;
use weir_engine::transport::h2::mux::H2Mux;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientStream, Transport};
use weir_http::h2::StreamEnd;

/// Whether the request of `x`, whose head was read, asks for it, and can have it: one without a body, on a connection
/// without TLS. The settings of the client.
pub(crate) fn wanted(x: &Exchange) -> Option<Vec<u8>> {
    let request = &x.request;
    let plain = !x.connection.is_tls() && request.head.version == Version::V11 && !request.head.has_body();
    if !plain || !x.connection.takes_http2() || !x.connection.server().http2.upgrade {
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
                    KnownField::Connection | KnownField::Upgrade | KnownField::Http2Settings
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
