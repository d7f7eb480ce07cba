//! The PROXY protocol header that `listen ... proxy_protocol` expects before the first request.

use std::rc::Rc;

use weir_http::proxy_protocol::{self, BadProxy, ProxiedEnds, ProxyProtocolHeader, ProxyProtocolParse};
use weir_rt::RecvOutcome;

use weir_engine::log::LogLevel;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientConnection, ProxiedAddresses, closing};
use weir_engine::worker::CloseReason;

/// Reads the header within `timeout` milliseconds and notes what it says; bytes after it stay in the input. The
/// header may come in any number of pieces. `false`: it is absent or invalid, the reason is logged, the connection is
/// to be closed without a response.
pub(crate) async fn read(connection: &Rc<ClientConnection>, wire: &Rc<ClientWire>, timeout: u64) -> bool {
    wire.timer.arm(timeout);
    loop {
        if let Some(done) = attempt(connection, wire) {
            return done;
        }
        wire.input.borrow_mut().hold();
        match wire.stream.recv(Some(&wire.timer)).await {
            RecvOutcome::Data(buf) => wire.input.borrow_mut().push(buf),
            gone => {
                lost(connection, &gone);
                return false;
            }
        }
    }
}

/// Parses what is there; `None` when more is needed.
fn attempt(connection: &ClientConnection, wire: &ClientWire) -> Option<bool> {
    let mut input = wire.input.borrow_mut();
    match proxy_protocol::parse(input.bytes()) {
        Ok(ProxyProtocolParse::Incomplete) => None,
        Ok(ProxyProtocolParse::Complete(header)) => {
            note(connection, &header, input.bytes());
            input.consume(header.len);
            Some(true)
        }
        Err(bad) => {
            connection.ends(CloseReason::ProxyProtocol);
            let message = refusal(bad, input.bytes());
            connection.log(LogLevel::Error, &message);
            Some(false)
        }
    }
}

/// Keeps the addresses; a header without any (`UNKNOWN`, `LOCAL`) leaves the connection's own addresses in place.
fn note(connection: &ClientConnection, header: &ProxyProtocolHeader, bytes: &[u8]) {
    let Some(ProxiedEnds { source, destination }) = header.addresses else { return };
    let tlvs = header.tlvs.of(bytes).into();
    let proxied = ProxiedAddresses { source: source.into(), destination: destination.into(), tlvs };
    // Set once: a connection is read here once, before anything else.
    let _ = connection.proxied.set(proxied);
}

/// nginx's words; of what is no header its first line is shown.
fn refusal(bad: BadProxy, bytes: &[u8]) -> String {
    let BadProxy::Broken = bad else { return format!("{bad} while reading PROXY protocol") };
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut shown = Vec::with_capacity(line.len());
    weir_http::escape::log_default(&mut shown, line);
    format!("broken header: \"{}\" while reading PROXY protocol", String::from_utf8_lossy(&shown))
}

fn lost(connection: &ClientConnection, gone: &RecvOutcome) {
    connection.ends(closing::in_the_middle(gone, CloseReason::Unused, CloseReason::HeaderTimeout));
    let how = match gone {
        RecvOutcome::TimedOut => "client timed out (110: Connection timed out)".to_owned(),
        RecvOutcome::Err(errno) => format!("recv() failed ({errno}: {})", weir_rt::file::errno_text(*errno)),
        RecvOutcome::Eof | RecvOutcome::Data(_) => "client closed connection".to_owned(),
    };
    connection.log(LogLevel::Info, &format_args!("{how} while reading PROXY protocol"));
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use weir_rt::{OutputChunk, Stream};

    use super::*;
    use crate::conn::h1;
    use weir_engine::testing::run;

    /// Lets a client that sends `pieces` one after the other, and then nothing, through header and requests. What it
    /// got, and the addresses that were noted.
    fn talk(pieces: &'static [&'static [u8]]) -> (String, Option<(String, String)>) {
        let server = "server { listen 8080 proxy_protocol; root /nowhere; client_header_timeout 10s; }";
        run(server, "GET /x HTTP/1.0\r\n\r\n", async |x| {
            let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
            let wire = Rc::new(ClientWire::new(Stream::from_fd(ours.into()).expect("a socket")));
            let client = Stream::from_fd(theirs.into()).expect("a socket");
            let (worker, connection) = (x.worker.clone(), x.connection.clone());
            weir_rt::spawn(async move {
                if read(&connection, &wire, 10_000).await {
                    h1::run(worker, connection, wire, 60_000).await;
                }
            });
            for piece in pieces {
                client.queue(OutputChunk::Static(piece));
                client.flush();
                weir_rt::yield_now().await;
            }
            client.shutdown_write().expect("the client ends");
            let mut answer = Vec::new();
            while let RecvOutcome::Data(buf) = client.recv(None).await {
                answer.extend_from_slice(&buf);
            }
            let text =
                |proxied: &ProxiedAddresses| (proxied.source.to_string(), proxied.destination.to_string());
            (String::from_utf8_lossy(&answer).into_owned(), x.connection.proxied.get().map(text))
        })
    }

    const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.7 1000 80\r\n";

    fn ends() -> Option<(String, String)> {
        Some(("192.0.2.7:1000".to_owned(), "198.51.100.7:80".to_owned()))
    }

    #[test]
    fn a_request_behind_the_header_is_answered_without_waiting_for_more() {
        const WHOLE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.7 1000 80\r\nGET /x HTTP/1.0\r\n\r\n";
        let (answer, found) = talk(&[WHOLE]);
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        assert_eq!(found, ends());
        let (answer, found) = talk(&[V1, b"GET /x HTTP/1.0\r\n\r\n"]);
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        assert_eq!(found, ends());
    }

    #[test]
    fn the_header_may_come_in_pieces() {
        let (answer, found) =
            talk(&[b"PRO", b"XY TCP4 192.0.2.7 198.51", b".100.7 1000 80\r", b"\nGET /x HTTP/1.0\r\n\r\n"]);
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        assert_eq!(found, ends());
    }

    #[test]
    fn a_header_of_an_unknown_connection_leaves_it_as_it_is() {
        let (answer, found) = talk(&[b"PROXY UNKNOWN\r\nGET /x HTTP/1.0\r\n\r\n"]);
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        assert_eq!(found, None);
    }

    #[test]
    fn without_a_header_there_is_no_answer() {
        assert_eq!(talk(&[b"GET /x HTTP/1.0\r\n\r\n"]), (String::new(), None));
        assert_eq!(talk(&[b"PROXY TCP4 192"]), (String::new(), None));
        assert_eq!(talk(&[]), (String::new(), None));
    }

    #[test]
    fn refusals_are_nginxs() {
        let broken = |line: &str| format!("broken header: \"{line}\" while reading PROXY protocol");
        for (bytes, message) in [
            (&b"GET / HTTP/1.1\r\nHost: a\r\n"[..], broken("GET / HTTP/1.1")),
            (b"PROXY TCP4 a b c d\r\n", broken("PROXY TCP4 a b c d")),
            (b"\x16\x03\x01\"", broken(r"\x16\x03\x01\x22")),
            (
                b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
                "unknown PROXY protocol version: 3 while reading PROXY protocol".to_owned(),
            ),
        ] {
            let bad = proxy_protocol::parse(bytes).expect_err("no header");
            assert_eq!(refusal(bad, bytes), message);
        }
    }
}
