//! The PROXY protocol header that `listen ... proxy_protocol` expects before the first request.

use std::rc::Rc;

use weir_http::proxy_protocol::{self, Addresses, BadProxy, Header, Parse};
use weir_rt::Recv;

use super::h1::Wire;
use super::{Connection, Proxied};
use crate::log::{self, Level};

/// Reads the header within `client_header_timeout` and notes what it says; bytes behind it stay in the input. The
/// header may come in any number of pieces. `false`: there is none, the reason is logged, the connection is to be
/// closed without an answer.
pub(crate) async fn read(connection: &Rc<Connection>, wire: &Rc<Wire>) -> bool {
    wire.timer.arm(connection.hosts.borrow().default().settings.client_header_timeout);
    loop {
        if let Some(done) = attempt(connection, wire) {
            return done;
        }
        wire.input.borrow_mut().hold();
        match wire.stream.recv(Some(&wire.timer)).await {
            Recv::Data(buf) => wire.input.borrow_mut().push(buf),
            gone => {
                lost(connection, &gone);
                return false;
            }
        }
    }
}

/// Parses what is there; `None` when more is needed.
fn attempt(connection: &Connection, wire: &Wire) -> Option<bool> {
    let mut input = wire.input.borrow_mut();
    match proxy_protocol::parse(input.bytes()) {
        Ok(Parse::Incomplete) => None,
        Ok(Parse::Complete(header)) => {
            note(connection, &header, input.bytes());
            input.consume(header.len);
            Some(true)
        }
        Err(bad) => {
            let message = refusal(bad, input.bytes());
            log::connection(connection, Level::Error, &message);
            Some(false)
        }
    }
}

/// Keeps the addresses; a header without any (`UNKNOWN`, `LOCAL`) leaves the connection to stand for itself.
fn note(connection: &Connection, header: &Header, bytes: &[u8]) {
    let Some(Addresses { source, destination }) = header.addresses else { return };
    let tlvs = header.tlvs.of(bytes).into();
    let proxied = Proxied { source: source.into(), destination: destination.into(), tlvs };
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

fn lost(connection: &Connection, gone: &Recv) {
    let how = match gone {
        Recv::TimedOut => "client timed out (110: Connection timed out)".to_owned(),
        Recv::Err(errno) => format!("recv() failed ({errno}: {})", weir_rt::file::errno_text(*errno)),
        Recv::Eof | Recv::Data(_) => "client closed connection".to_owned(),
    };
    log::connection(connection, Level::Info, &format_args!("{how} while reading PROXY protocol"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_nginxs() {
        for (bytes, message) in [
            (
                &b"GET / HTTP/1.1\r\nHost: a\r\n"[..],
                "broken header: \"GET / HTTP/1.1\" while reading PROXY protocol",
            ),
            (b"PROXY TCP4 a b c d\r\n", "broken header: \"PROXY TCP4 a b c d\" while reading PROXY protocol"),
            (b"\x16\x03\x01\"", "broken header: \"\\x16\\x03\\x01\\x22\" while reading PROXY protocol"),
            (
                b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
                "unknown PROXY protocol version: 3 while reading PROXY protocol",
            ),
        ] {
            let bad = proxy_protocol::parse(bytes).expect_err("no header");
            assert_eq!(refusal(bad, bytes), message);
        }
    }
}
