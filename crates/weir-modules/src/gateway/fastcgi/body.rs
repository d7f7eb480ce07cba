//! The body of a response, taken out of its records.

use weir_engine::log::LogLevel;
use weir_http::fastcgi::{FastcgiConnection, RecordEvent, RecordKind, RecordReader};
use weir_upstream::protocol::BodyDecode;

/// Reads records after the head.
#[derive(Debug)]
pub(super) struct FastcgiBody {
    reader: RecordReader,
    /// How much is to come, if the head said so.
    rest: Option<u64>,
    /// Such a response has none, whatever the application sends.
    wanted: bool,
    /// Whether the connection's end is the response's.
    connection: FastcgiConnection,
    /// The message that comes on stderr.
    stderr: Vec<u8>,
    messages: Vec<(LogLevel, String)>,
    /// Messages that the log has got.
    reported: u32,
}

impl FastcgiBody {
    pub(super) fn new(
        reader: RecordReader,
        length: Option<u64>,
        wanted: bool,
        connection: FastcgiConnection,
    ) -> FastcgiBody {
        FastcgiBody {
            reader,
            rest: length,
            wanted,
            connection,
            stderr: Vec::new(),
            messages: Vec::new(),
            reported: 0,
        }
    }

    /// Content of stdout, as much of it as the response may have; how many bytes are more than that.
    fn take(&mut self, content: &[u8], out: &mut Vec<u8>) -> usize {
        if !self.wanted {
            return 0;
        }
        let Some(rest) = &mut self.rest else {
            out.extend_from_slice(content);
            return 0;
        };
        let most = usize::try_from(*rest).unwrap_or(usize::MAX).min(content.len());
        *rest -= most as u64;
        out.extend_from_slice(content.get(..most).unwrap_or_default());
        if most < content.len() {
            self.messages.push((LogLevel::Warn, MORE_THAN_SAID.to_owned()));
        }
        content.len() - most
    }

    /// A message of the application, for the error log.
    fn complain(&mut self) {
        let message = std::mem::take(&mut self.stderr);
        self.reported = self.reported.saturating_add(1);
        if self.reported <= STDERR {
            self.messages
                .push((LogLevel::Error, format!("{} while reading upstream", stderr_text(&message))));
        }
    }

    /// Something ended that may only end after all of the body.
    fn over(&self, what: &str) -> Result<(), String> {
        match self.rest {
            Some(1..) => Err(format!("upstream prematurely closed FastCGI {what}")),
            _ => Ok(()),
        }
    }
}

impl BodyDecode for FastcgiBody {
    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), String> {
        let mut at = 0;
        loop {
            let bytes = input.get(at..).unwrap_or_default();
            let (taken, event) = self.reader.read(bytes).map_err(|bad| bad.to_string())?;
            at += taken;
            match event {
                RecordEvent::More => return Ok((at, false)),
                RecordEvent::Data(RecordKind::Stdout, range) => {
                    let excess = self.take(bytes.get(range).unwrap_or_default(), out);
                    if excess > 0 {
                        // The response is whole; what is not taken keeps the connection from being used again.
                        return Ok((at - excess, true));
                    }
                }
                RecordEvent::Data(RecordKind::Stderr, range) => {
                    self.stderr.extend_from_slice(bytes.get(range).unwrap_or_default());
                }
                RecordEvent::End { kind: RecordKind::Stderr, empty: false } => self.complain(),
                RecordEvent::End { kind: RecordKind::Stdout, empty: true } => self.over("stdout")?,
                RecordEvent::End { kind: RecordKind::End, .. } => {
                    self.over("request")?;
                    return Ok((at, true));
                }
                _ => {}
            }
        }
    }

    fn messages(&mut self) -> Vec<(LogLevel, String)> {
        std::mem::take(&mut self.messages)
    }

    /// nginx takes any end of a connection that is not kept alive for that of the response, and leaves a client waiting
    /// whose Content-Length says more.
    fn may_end(&self) -> bool {
        self.connection == FastcgiConnection::Closed && !matches!(self.rest, Some(1..))
    }
}

/// Messages of one response that the log gets: of records with one byte each it would grow twenty-five times as fast as they
/// come.
pub(super) const STDERR: u32 = 1000;

/// A message of the application in nginx's words, without what ends its last line.
pub(super) fn stderr_text(message: &[u8]) -> String {
    let end = message.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | b'.' | b' '));
    let text = message.get(..end.map_or(1, |end| end + 1)).unwrap_or_default();
    format!("FastCGI sent in stderr: \"{}\"", String::from_utf8_lossy(text))
}

const MORE_THAN_SAID: &str =
    "upstream sent more data than specified in \"Content-Length\" header while reading upstream";

#[cfg(test)]
mod tests {
    use weir_http::fastcgi::FastcgiConnection::{Closed, Kept};
    use weir_http::fastcgi::{RecordWriter, finish, record, record_head};

    use super::*;

    fn read(
        length: Option<u64>,
        wanted: bool,
        connection: FastcgiConnection,
        wire: &[u8],
    ) -> Result<(String, bool), String> {
        let mut body =
            FastcgiBody::new(RecordReader::new(RecordWriter::Application), length, wanted, connection);
        let mut out = Vec::new();
        let (taken, done) = body.decode(wire, &mut out)?;
        let said: Vec<_> = body.messages().into_iter().map(|(_, text)| text).collect();
        assert!(done || taken == wire.len());
        Ok((format!("{}|{}", String::from_utf8_lossy(&out), said.join(";")), done))
    }

    #[test]
    fn a_body_ends_where_its_request_ends() {
        let mut wire = Vec::new();
        record(&mut wire, RecordKind::Stdout, b"abc");
        record(&mut wire, RecordKind::Stderr, b"oh.\n");
        assert_eq!(
            read(None, true, Closed, &wire),
            Ok(("abc|FastCGI sent in stderr: \"oh\" while reading upstream".into(), false))
        );
        record_head(&mut wire, RecordKind::Stdout, 0);
        assert!(read(None, true, Closed, &wire).is_ok_and(|(_, done)| !done));
        let early = read(Some(4), true, Kept, &wire);
        assert_eq!(early, Err("upstream prematurely closed FastCGI stdout".to_owned()));
        finish(&mut wire, 0);
        assert!(read(None, true, Kept, &wire).is_ok_and(|(_, done)| done));
        assert!(
            read(Some(2), true, Kept, &wire)
                .is_ok_and(|(text, done)| done && text.starts_with("ab|upstream sent more"))
        );
        assert!(read(None, false, Kept, &wire).is_ok_and(|(text, done)| done && text.starts_with('|')));
    }
}
