//! The bytes of a session: each side's are those of its number, so that a byte of another one, a missing one and one too many
//! are seen.

use super::plan::{ClientHeader, SentHeader, SessionDoor, SessionPlan};
use crate::request::content;

/// Contents of clients and of servers have numbers of their own.
const OF_CLIENTS: u64 = 2_000_000;
const OF_SERVERS: u64 = 3_000_000;

impl SessionPlan {
    /// What the client sends before its contents: a header of the PROXY protocol, which is not the server's, and what is.
    pub fn beginning(&self) -> (Vec<u8>, Vec<u8>) {
        let line = format!("S n={}\n", self.number).into_bytes();
        match self.door {
            SessionDoor::Headed(header) => (self.header(header), line),
            SessionDoor::Named(Some(server)) => {
                (Vec::new(), [client_hello(["a.sim", "b.sim"][server]), line].concat())
            }
            _ => (Vec::new(), line),
        }
    }

    /// The port of the client that a header says.
    pub fn headed_port(&self) -> u16 {
        1000 + (self.number % 10_000) as u16
    }

    fn header(&self, kind: ClientHeader) -> Vec<u8> {
        let port = self.headed_port();
        let text = format!("PROXY TCP4 10.1.2.3 10.0.0.1 {port} 7002\r\n");
        match kind {
            ClientHeader::Text => text.into_bytes(),
            ClientHeader::Binary => {
                let ends = [&[10, 1, 2, 3, 10, 0, 0, 1][..], &port.to_be_bytes(), &7002u16.to_be_bytes()];
                [&SIGNATURE[..], &[0x21, 0x11, 0, 12], &ends.concat()].concat()
            }
            ClientHeader::Unknown => b"PROXY UNKNOWN\r\n".to_vec(),
            ClientHeader::Wrong => b"PROXY what is this\r\n".to_vec(),
            ClientHeader::Part => text.as_bytes()[..20].to_vec(),
        }
    }

    /// The client's contents.
    pub fn client_content(&self) -> Vec<u8> {
        content(OF_CLIENTS + self.number, self.sends)
    }

    /// The server's.
    pub fn server_content(&self) -> Vec<u8> {
        content(OF_SERVERS + self.number, self.server.sends)
    }
}

/// What begins a header of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The beginning of a session as a server has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionBeginning {
    /// The session's number.
    pub number: u64,
    /// The client's port, as a header of the PROXY protocol says it.
    pub port: Option<u16>,
    /// The bytes of that header.
    pub header: usize,
    /// All that was read.
    pub length: usize,
}

/// Reads what a server gets first, where `sent` says whether a header precedes it. `Ok(None)`: more is to come.
///
/// # Errors
/// It is something else.
pub fn session_beginning(sent: SentHeader, bytes: &[u8]) -> Result<Option<SessionBeginning>, String> {
    let wrong =
        |what: &str| Err(format!("{what}: {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)])));
    let Some((header, port)) = sent_header(sent, bytes)? else { return Ok(None) };
    let mut rest = &bytes[header..];
    if rest.first() == Some(&0x16) {
        let Some(length) = rest.get(3..5).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]]))) else {
            return Ok(None);
        };
        let Some(after) = rest.get(5 + length..) else { return Ok(None) };
        rest = after;
    }
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        return if rest.len() > 30 { wrong("no first line") } else { Ok(None) };
    };
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    let Some(number) = text.strip_prefix("S n=").and_then(|word| word.parse().ok()) else {
        return wrong("another first line");
    };
    let length = bytes.len() - rest.len() + end + 1;
    Ok(Some(SessionBeginning { number, port, header, length }))
}

/// The length of the header, and the client's port in it.
fn sent_header(sent: SentHeader, bytes: &[u8]) -> Result<Option<(usize, Option<u16>)>, String> {
    match sent {
        SentHeader::None => Ok(Some((0, None))),
        SentHeader::Text => {
            let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
            let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let words: Vec<&str> = text.split(' ').collect();
            let port = words.get(4).and_then(|word| word.parse().ok());
            match (&words[..], port) {
                (["PROXY", "TCP4", "127.0.0.1", "127.0.0.1", ..], Some(_)) => Ok(Some((end + 2, port))),
                _ => Err(format!("a header of the PROXY protocol: {text:?}")),
            }
        }
        SentHeader::Binary => {
            let Some(header) = bytes.get(..28) else { return Ok(None) };
            let is_right = header.starts_with(&SIGNATURE) && header[12..16] == [0x21, 0x11, 0, 12];
            let port = u16::from_be_bytes([header[24], header[25]]);
            match is_right {
                true => Ok(Some((28, Some(port)))),
                false => Err(format!("a header of the PROXY protocol: {header:?}")),
            }
        }
    }
}

/// The least that begins TLS with a name.
fn client_hello(name: &str) -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let entry = [&[0][..], &with_length(name.as_bytes())].concat();
    let extension = [&[0, 0][..], &with_length(&with_length(&entry))].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &with_length(&[0x13, 0x01]), &[1, 0], &with_length(&extension)]
        .concat();
    let message = [&[1, 0][..], &with_length(&body)].concat();
    [&[0x16, 3, 1][..], &with_length(&message)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_read_whole_or_not_yet() {
        let header = b"PROXY TCP4 127.0.0.1 127.0.0.1 40001 7001\r\n";
        let bytes = [&header[..], &client_hello("a.sim"), b"S n=12\nrest"].concat();
        let whole = SessionBeginning {
            number: 12,
            port: Some(40_001),
            header: header.len(),
            length: bytes.len() - 4,
        };
        for end in 0..bytes.len() - 4 {
            assert_eq!(session_beginning(SentHeader::Text, &bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(session_beginning(SentHeader::Text, &bytes), Ok(Some(whole)));
        assert!(session_beginning(SentHeader::None, &bytes).is_err());
        assert!(session_beginning(SentHeader::Binary, &bytes).is_err());
    }
}
