//! Heads and bytes of WebSockets: each side's bytes are those of its number, so that a byte of another one, a missing one and
//! one too many are seen.

use super::plan::{TunnelDoor, TunnelPlan};
use crate::request::content;

/// Contents of clients and of servers have numbers of their own.
const OF_CLIENTS: u64 = 4_000_000;
const OF_SERVERS: u64 = 5_000_000;
/// Bytes of a refusal's body.
const REFUSAL: u64 = 60;
/// The field that has the number in responses.
const NUMBER: &str = "X-T";

impl TunnelPlan {
    /// What the client sends first: the request, and one before it where it `follows`.
    pub fn request(&self) -> Vec<u8> {
        let first = if self.follows { "GET /ws/first HTTP/1.1\r\nHost: sim\r\n\r\n" } else { "" };
        let door = match self.door {
            TunnelDoor::Own => "own",
            TunnelDoor::Lines => "lines",
        };
        format!(
            "{first}GET /ws/{door}?t={} HTTP/1.1\r\nHost: sim\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\n\r\n",
            self.number
        )
        .into_bytes()
    }

    /// The head with which a server accepts.
    pub fn acceptance(&self) -> Vec<u8> {
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: x\r\n{NUMBER}: {}\r\n\r\n",
            self.number
        )
        .into_bytes()
    }

    /// The response with which a server refuses.
    pub fn refusal(&self) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Length: {REFUSAL}\r\n{NUMBER}: {}\r\n\r\n",
            self.number
        );
        [head.as_bytes(), &self.refusal_body()].concat()
    }

    /// The body of a refusal.
    pub fn refusal_body(&self) -> Vec<u8> {
        content(OF_SERVERS + self.number, REFUSAL)
    }

    /// The client's bytes.
    pub fn client_content(&self) -> Vec<u8> {
        content(OF_CLIENTS + self.number, self.client.sends)
    }

    /// The server's.
    pub fn server_content(&self) -> Vec<u8> {
        content(OF_SERVERS + self.number, self.server.sends)
    }

    /// What a response's head has that its plan does not allow; `None`: nothing.
    pub fn head_fault(&self, head: &TunnelHead) -> Option<String> {
        let has = |name: &str, value: &str| head.value(name).is_some_and(|v| v.eq_ignore_ascii_case(value));
        let is_good = match head.status() {
            101 => {
                has("upgrade", "websocket")
                    && has("connection", "upgrade")
                    && has(NUMBER, &self.number.to_string())
            }
            403 => has(NUMBER, &self.number.to_string()),
            status => status >= 500,
        };
        (!is_good).then(|| format!("{:?}", head.0))
    }
}

/// The head of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelHead(String);

impl TunnelHead {
    /// The head that `bytes` begin with, and its length with the empty line; `None`: more is to come.
    pub fn read(bytes: &[u8]) -> Option<(TunnelHead, usize)> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        Some((TunnelHead(String::from_utf8_lossy(&bytes[..end]).into_owned()), end + 4))
    }

    /// The status of a response; 0: it is none.
    pub fn status(&self) -> u16 {
        let word = self.0.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// A field's value.
    pub fn value(&self, name: &str) -> Option<&str> {
        let fields = self.0.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The length of the body that a response says.
    pub fn length(&self) -> usize {
        self.value("content-length").and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// The number that a request asks with.
    ///
    /// # Errors
    /// It does not ask for a WebSocket.
    pub fn asked(&self) -> Result<u64, String> {
        let asks = |name: &str, value: &str| self.value(name).is_some_and(|v| v.eq_ignore_ascii_case(value));
        let number = self.0.split(' ').nth(1).and_then(|target| target.split_once("?t="));
        match number.and_then(|(_, number)| number.parse().ok()) {
            Some(number) if asks("upgrade", "websocket") && asks("connection", "upgrade") => Ok(number),
            _ => Err(format!("{:?}", self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::tunnels::plan::TunnelsPlan;

    #[test]
    fn a_request_and_its_responses_are_read_as_they_are_written() {
        let plan = |seed| TunnelsPlan::drawn(&mut Draw::new(seed), 1000, None, true).tunnels;
        let tunnel = (0..).find_map(|seed| plan(seed).into_iter().find(|one| !one.follows));
        let tunnel = tunnel.expect("one is drawn");
        let (head, length) = TunnelHead::read(&tunnel.request()).expect("a head");
        assert_eq!((head.asked(), length), (Ok(tunnel.number), tunnel.request().len()));
        for (bytes, status) in [(tunnel.acceptance(), 101), (tunnel.refusal(), 403)] {
            let (head, _) = TunnelHead::read(&bytes).expect("a head");
            assert_eq!((head.status(), tunnel.head_fault(&head)), (status, None));
            assert!(TunnelPlan { number: 99, ..tunnel.clone() }.head_fault(&head).is_some());
        }
        assert_eq!(TunnelHead::read(b"GET / HTTP/1.1\r\n"), None);
    }
}
