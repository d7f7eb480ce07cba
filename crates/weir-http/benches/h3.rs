//! Nanoseconds per request of a server's side of HTTP/3, without QUIC: 32 requests, each responded to with a head of seven fields
//! and six bytes, as `--bench h2` has them. `cargo bench -p weir-http --bench h3`.

use std::hint::black_box;
use std::time::Instant;

use weir_http::KnownField;
use weir_http::coder::FieldIndexing;
use weir_http::h3::{H3Config, H3Connection, H3Event, H3Failure, frame_head, kind};
use weir_http::hpack::SectionLimits;
use weir_http::message::StreamEnd;
use weir_http::qpack::QpackEncoder;

const STREAMS: u64 = 32;
const ROUNDS: u64 = 2000;

const CONFIG: H3Config = H3Config {
    table: 4096,
    longest: 8192,
    blocked: 100,
    limits: SectionLimits::new(32_768, 1000),
    connect_protocol: true,
};

fn ask(client: &mut H3Connection, id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    client.head(id, &mut out, |coder, out| {
        coder.field(b":method", b"GET", FieldIndexing::Allowed, out);
        coder.field(b":scheme", b"https", FieldIndexing::Allowed, out);
        coder.field(b":authority", b"127.0.0.1:8080", FieldIndexing::Allowed, out);
        coder.field(b":path", b"/6b.txt", FieldIndexing::Not, out);
        coder.known(KnownField::UserAgent, b"h2load nghttp2/1.52.0", out);
    });
    out
}

#[inline(never)]
fn respond(server: &mut H3Connection, id: u64, request: &[u8], out: &mut Vec<u8>) -> Result<(), H3Failure> {
    let (_, event) = server.receive(id, request, StreamEnd::Last)?;
    assert!(matches!(event, Some(H3Event::Head { .. })) && server.checked().is_ok());
    server.head(id, out, |coder: &mut QpackEncoder, out| {
        coder.status(200, out);
        coder.known(KnownField::Server, b"weir/0.1.0", out);
        coder.known(KnownField::Date, b"Sat, 21 Nov 2026 14:00:00 GMT", out);
        coder.known(KnownField::ContentType, b"text/plain", out);
        coder.known(KnownField::ContentLength, b"6", out);
        coder.known(KnownField::LastModified, b"Sat, 21 Nov 2026 13:00:00 GMT", out);
        coder.known(KnownField::Etag, b"\"6b01b7b4-6\"", out);
        coder.known(KnownField::AcceptRanges, b"bytes", out);
    });
    frame_head(kind::DATA, 6, out);
    out.extend_from_slice(b"hello\n");
    server.forget(id);
    Ok(())
}

/// Gives `to` what `from` has for its encoder's and its decoder's stream, of which `uni` is the first.
fn exchange(from: &mut H3Connection, uni: u64, to: &mut H3Connection) -> Result<(), H3Failure> {
    let encoder = std::mem::take(from.encoder_output());
    to.receive_uni(uni, &encoder, StreamEnd::More)?;
    let decoder = std::mem::take(from.decoder_output());
    to.receive_uni(uni + 4, &decoder, StreamEnd::More)?;
    Ok(())
}

fn begin(from: &H3Connection, uni: u64, to: &mut H3Connection) -> Result<(), H3Failure> {
    let (mut control, mut encoder, mut decoder) = (Vec::new(), Vec::new(), Vec::new());
    from.begin_control(&mut control);
    from.begin_encoder(&mut encoder);
    from.begin_decoder(&mut decoder);
    for (id, bytes) in [(uni, control), (uni + 4, encoder), (uni + 8, decoder)] {
        to.receive_uni(id, &bytes, StreamEnd::More)?;
    }
    Ok(())
}

fn main() -> Result<(), H3Failure> {
    let (mut client, mut server) = (H3Connection::client(CONFIG), H3Connection::new(CONFIG));
    begin(&client, 2, &mut server)?;
    begin(&server, 3, &mut client)?;
    let (mut best, mut out) = (f64::MAX, Vec::new());
    for round in 0..ROUNDS {
        let ids = (0..STREAMS).map(|stream| 4 * (round * STREAMS + stream));
        let requests: Vec<(u64, Vec<u8>)> = ids.map(|id| (id, ask(&mut client, id))).collect();
        exchange(&mut client, 6, &mut server)?;
        out.clear();
        let (mut ends, start) = (Vec::with_capacity(requests.len()), Instant::now());
        for (id, request) in &requests {
            respond(&mut server, *id, black_box(request), &mut out)?;
            ends.push(out.len());
        }
        black_box(&out);
        best = best.min(start.elapsed().as_nanos() as f64 / STREAMS as f64);
        exchange(&mut server, 7, &mut client)?;
        let mut start = 0;
        for ((id, _), end) in requests.iter().zip(ends) {
            let response = out.get(start..end).unwrap_or_default();
            let (_, event) = client.receive(*id, response, StreamEnd::More)?;
            assert!(matches!(event, Some(H3Event::Head { .. })));
            client.forget(*id);
            start = end;
        }
        exchange(&mut client, 6, &mut server)?;
    }
    println!("{best:.0} ns a request, {} bytes a response", out.len() as u64 / STREAMS);
    Ok(())
}
