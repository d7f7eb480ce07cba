//! One check of a server by gRPC: `grpc.health.v1.Health/Check` on a connection of HTTP/2 of its own.
//!
//! The two messages of that protocol have one field each, so they are written and read here by hand.

use std::fmt;

use weir_http::h2::{self, ErrorCode, H2Config, H2Event, StreamEnd};
use weir_http::hpack::{self, DecodedSection, FieldIndexing, HpackEncoder};
use weir_rt::RecvOutcome;
use weir_trace::protobuf::{self, ProtobufMessage};

use crate::connection::upstream_connection::UpstreamConnection;
use crate::health::http_check::{CLOSED, receive_failed, timed_out};

/// What a server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrpcHealth {
    /// `grpc-status`; 0 is success, 12 a server that does not know the method.
    pub(crate) status: u32,
    /// The state of the service that the message has.
    pub(crate) serving: GrpcCheckState,
}

/// `grpc.health.v1.HealthCheckResponse.ServingStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcCheckState {
    /// 0, which is what an empty message means, or no message at all.
    Unknown,
    /// 1
    Serving,
    /// 2
    NotServing,
    /// 3
    ServiceUnknown,
    /// A number that the protocol does not have.
    Other(u64),
}

impl fmt::Display for GrpcCheckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrpcCheckState::Unknown => f.write_str("UNKNOWN"),
            GrpcCheckState::Serving => f.write_str("SERVING"),
            GrpcCheckState::NotServing => f.write_str("NOT_SERVING"),
            GrpcCheckState::ServiceUnknown => f.write_str("SERVICE_UNKNOWN"),
            GrpcCheckState::Other(number) => write!(f, "in state {number}"),
        }
    }
}

impl GrpcCheckState {
    fn of(number: u64) -> GrpcCheckState {
        match number {
            0 => GrpcCheckState::Unknown,
            1 => GrpcCheckState::Serving,
            2 => GrpcCheckState::NotServing,
            3 => GrpcCheckState::ServiceUnknown,
            other => GrpcCheckState::Other(other),
        }
    }
}

/// Asks the server at the other end of `connection` for `service`; empty: for all of it. The connection's timer bounds it.
///
/// # Errors
/// For people: why there is no response.
pub(crate) async fn ask(
    connection: &UpstreamConnection,
    host: &str,
    service: &str,
) -> Result<GrpcHealth, String> {
    let mut out = Vec::new();
    let mut call = GrpcHealthCall::begin(host, service, &mut out).ok_or(REFUSED)?;
    let mut input = Vec::new();
    loop {
        if !out.is_empty() {
            connection.stream.send(std::mem::take(&mut out));
        }
        if let Some(answer) = call.answer()? {
            return Ok(answer);
        }
        match connection.stream.recv(Some(&connection.timer)).await {
            RecvOutcome::Data(bytes) => input.extend_from_slice(&bytes),
            RecvOutcome::Eof => return Err(CLOSED.to_owned()),
            RecvOutcome::TimedOut => return Err(timed_out()),
            RecvOutcome::Err(errno) => return Err(receive_failed(errno)),
        }
        call.received(&mut input, weir_rt::now_ms(), &mut out)?;
    }
}

/// The one call of a connection, without I/O.
struct GrpcHealthCall {
    h2: h2::H2Connection,
    /// `:status` of the head.
    http: Option<u16>,
    grpc: Option<u32>,
    message: Vec<u8>,
    ended: bool,
}

impl GrpcHealthCall {
    /// Composes the request; it fits every server's first windows.
    fn begin(host: &str, service: &str, out: &mut Vec<u8>) -> Option<GrpcHealthCall> {
        let config = H2Config {
            max_streams: 0,
            stream_window: 0xffff,
            window: 0xffff,
            headers: hpack::SectionLimits::new(16 * 1024, 100),
            max_frame: h2::MIN_FRAME,
            connect_protocol: false,
        };
        let mut h2 = h2::H2Connection::client(&config, out);
        let key = h2.open(StreamEnd::More, out, |coder, out| head(host, coder, out))?;
        let message = request(service);
        if !h2.data_at_once(key, message.len() as u64, out) {
            return None;
        }
        out.extend_from_slice(&message);
        Some(GrpcHealthCall { h2, http: None, grpc: None, message: Vec::new(), ended: false })
    }

    /// Takes what came out of `input`; what is to be sent in reply is appended to `out`.
    fn received(&mut self, input: &mut Vec<u8>, now: u64, out: &mut Vec<u8>) -> Result<(), String> {
        loop {
            let received = self.h2.receive(input, now, out);
            let (used, event) = received.map_err(|failure| format!("upstream {}", failure.reason))?;
            match event {
                None => {
                    input.drain(..used);
                    return Ok(());
                }
                Some(event) => self.event(event, input, out)?,
            }
            input.drain(..used);
        }
    }

    fn event(&mut self, event: H2Event, input: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match event {
            H2Event::Head { end, .. } => {
                self.http = self.h2.message().status;
                self.ended = end;
                self.fields();
            }
            H2Event::Trailers { .. } => {
                self.ended = true;
                self.fields();
            }
            H2Event::Data { key, range, end } => {
                let piece = input.get(range).unwrap_or_default();
                self.message.extend_from_slice(piece);
                self.h2.consumed(key, piece.len() as u64, out);
                self.ended |= end;
                if self.message.len() > MESSAGE {
                    return Err("upstream sent too long message".to_owned());
                }
            }
            H2Event::Reset { code, .. } => {
                return Err(format!("upstream rejected request with error {}", code as u32));
            }
            H2Event::Malformed { reason, .. } => return Err(format!("upstream {reason}")),
            H2Event::GoAway { last, code } if last == 0 || code != ErrorCode::No => {
                return Err(REFUSED.to_owned());
            }
            H2Event::Interim { .. } | H2Event::GoAway { .. } => {}
        }
        Ok(())
    }

    /// Looks for `grpc-status` in the section that came.
    fn fields(&mut self) {
        let section: &DecodedSection = self.h2.section();
        let found = section.items.iter().find(|item| item.label.of(&section.text) == b"grpc-status");
        let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
        self.grpc = self.grpc.or(found.and_then(|item| number(item.value.of(&section.text))));
    }

    /// The response, once it is whole.
    fn answer(&self) -> Result<Option<GrpcHealth>, String> {
        match (self.http, self.grpc) {
            (Some(http), _) if http != 200 => Err(format!("the status was {http}")),
            _ if !self.ended => Ok(None),
            (_, None) => Err("upstream sent no \"grpc-status\"".to_owned()),
            (_, Some(status)) => Ok(Some(GrpcHealth { status, serving: serving(&self.message)? })),
        }
    }
}

fn head(host: &str, coder: &mut HpackEncoder, out: &mut Vec<u8>) {
    coder.pseudo(":method", b"POST", out);
    coder.pseudo(":scheme", b"http", out);
    coder.pseudo(":path", b"/grpc.health.v1.Health/Check", out);
    coder.pseudo(":authority", host.as_bytes(), out);
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "weir")] {
        coder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Not, out);
    }
}

/// `HealthCheckRequest { string service = 1; }` after the head of a gRPC message.
fn request(service: &str) -> Vec<u8> {
    let mut field = ProtobufMessage::default();
    if !service.is_empty() {
        field.bytes(1, service.as_bytes());
    }
    let mut message = vec![0];
    message.extend_from_slice(&(field.0.len() as u32).to_be_bytes());
    message.append(&mut field.0);
    message
}

/// The state in `HealthCheckResponse { ServingStatus status = 1; }`, after the head of its message.
fn serving(message: &[u8]) -> Result<GrpcCheckState, String> {
    let Some((head, rest)) = message.split_first_chunk::<5>() else {
        return if message.is_empty() { Ok(GrpcCheckState::Unknown) } else { Err(BROKEN.to_owned()) };
    };
    let [packed, length @ ..] = *head;
    if packed != 0 || u32::from_be_bytes(length) as usize != rest.len() {
        return Err(BROKEN.to_owned());
    }
    let fields = protobuf::read(rest).ok_or(BROKEN)?;
    let status = fields.iter().rev().find_map(|(number, field)| field.number().filter(|_| *number == 1));
    Ok(GrpcCheckState::of(status.unwrap_or_default()))
}

/// The longest response, in bytes; usual ones have seven.
const MESSAGE: usize = 4096;
const BROKEN: &str = "upstream sent invalid message";
const REFUSED: &str = "upstream takes no request";

#[cfg(test)]
mod tests {
    use weir_http::h2::StreamKey;

    use super::*;

    /// A server's side, which sees a request and responds in pieces of `cut` bytes.
    fn talk(
        cut: usize,
        answer: impl Fn(&mut h2::H2Connection, StreamKey, &mut Vec<u8>),
    ) -> Result<Option<GrpcHealth>, String> {
        let config = H2Config {
            max_streams: 8,
            stream_window: 0xffff,
            window: 0xffff,
            headers: hpack::SectionLimits::new(4096, 64),
            max_frame: h2::MIN_FRAME,
            connect_protocol: false,
        };
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let mut call = GrpcHealthCall::begin("a", "pkg.Service", &mut to_server).expect("room");
        let mut server = h2::H2Connection::server(&config, &mut to_client);
        let (mut at, mut asked) = (0, Vec::new());
        while let (used, Some(event)) = server.receive(&to_server[at..], 0, &mut to_client).expect("frames") {
            if let H2Event::Data { key, range, end } = event {
                asked.extend_from_slice(&to_server[at..][range]);
                if end {
                    answer(&mut server, key, &mut to_client);
                }
            }
            at += used;
        }
        assert_eq!(asked, b"\0\0\0\0\x0d\x0a\x0bpkg.Service");
        let (mut input, mut out) = (Vec::new(), Vec::new());
        for piece in to_client.chunks(cut) {
            input.extend_from_slice(piece);
            call.received(&mut input, 0, &mut out)?;
        }
        call.answer()
    }

    fn answered(
        message: &'static [u8],
        status: &'static str,
    ) -> impl Fn(&mut h2::H2Connection, StreamKey, &mut Vec<u8>) {
        move |server, key, out| {
            server.head(key, StreamEnd::More, out, |coder, out| {
                coder.status(200, out);
                coder.field(b"content-type", b"application/grpc", FieldIndexing::Allowed, out);
            });
            server.offer(key, message.len() as u64, StreamEnd::More);
            while server.next_data(out).is_some() {
                out.extend_from_slice(message);
            }
            server.head(key, StreamEnd::Last, out, |coder, out| {
                coder.field(b"grpc-status", status.as_bytes(), FieldIndexing::Allowed, out);
            });
        }
    }

    #[test]
    fn the_state_is_read_however_the_bytes_are_cut() {
        for cut in [1, 2, 7, 4096] {
            let of = |message, status| talk(cut, answered(message, status));
            let is = |status, serving| Ok(Some(GrpcHealth { status, serving }));
            assert_eq!(of(b"\0\0\0\0\x02\x08\x01", "0"), is(0, GrpcCheckState::Serving));
            assert_eq!(of(b"\0\0\0\0\x02\x08\x02", "0"), is(0, GrpcCheckState::NotServing));
            assert_eq!(of(b"\0\0\0\0\x00", "0"), is(0, GrpcCheckState::Unknown));
            assert_eq!(of(b"\0\0\0\0\x07\x12\x01x\x08\x01\x18\x05", "0"), is(0, GrpcCheckState::Serving));
            assert_eq!(of(b"\0\0\0\0\x03\x08\x01", "0"), Err(BROKEN.to_owned()));
            assert_eq!(of(b"\x01\0\0\0\x02\x08\x01", "0"), Err(BROKEN.to_owned()));
            let refused = talk(cut, |server, key, out| {
                server.head(key, StreamEnd::Last, out, |coder, out| {
                    coder.status(200, out);
                    coder.field(b"grpc-status", b"12", FieldIndexing::Allowed, out);
                });
            });
            assert_eq!(refused, is(12, GrpcCheckState::Unknown));
            let page = talk(cut, |server, key, out| {
                server.head(key, StreamEnd::Last, out, |coder, out| coder.status(502, out));
            });
            assert_eq!(page, Err("the status was 502".to_owned()));
            let reset = talk(cut, |server, key, out| server.reset(key, ErrorCode::Internal, out));
            assert_eq!(reset, Err("upstream rejected request with error 2".to_owned()));
        }
    }

    #[test]
    fn a_long_name_has_its_length_in_two_bytes() {
        let message = request(&"s".repeat(200));
        assert_eq!(message[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 0x01]);
    }
}
