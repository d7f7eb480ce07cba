//! One check of a server by HTTP: the request, and as much of the response as is looked at.

use weir_http::Method;
use weir_http::h1::{
    BodyLength, ChunkStrictness, ChunkedDecoder, HeadLimits, HeadParse, ResponseHead, TrailerLimits,
};
use weir_rt::RecvOutcome;

use crate::connection::upstream_connection::UpstreamConnection;

/// A response to a check.
#[derive(Debug, Default)]
pub(crate) struct HttpCheckResult {
    head: ResponseHead,
    /// The head, which `head` speaks of, and what came after it before more was asked for.
    bytes: Vec<u8>,
    /// The beginning of the body, freed of its framing, where it was asked for.
    pub(crate) body: Vec<u8>,
}

impl HttpCheckResult {
    /// Reads a response's head.
    ///
    /// # Errors
    /// Why there is no valid response, in words for the log.
    pub(crate) async fn head(connection: &UpstreamConnection) -> Result<HttpCheckResult, String> {
        let mut checked = HttpCheckResult::default();
        loop {
            checked.bytes.extend_from_slice(&more(connection).await?.ok_or(CLOSED)?);
            if checked.parse()? {
                return Ok(checked);
            }
        }
    }

    /// The head at the start of what was received, if it is whole; interim ones are skipped.
    fn parse(&mut self) -> Result<bool, String> {
        loop {
            let limits = HeadLimits { max_line: HEAD, max_head: HEAD, ..HeadLimits::default() };
            match self.head.parse(&self.bytes, &limits) {
                Ok(HeadParse::Incomplete { .. }) if self.bytes.len() < HEAD => return Ok(false),
                Ok(HeadParse::Incomplete { .. }) => return Err("upstream sent too big header".to_owned()),
                Ok(HeadParse::Complete) if (100..200).contains(&self.head.status) => {
                    self.bytes.drain(..self.head.len);
                }
                Ok(HeadParse::Complete) => return Ok(true),
                Err(error) => return Err(error.message().to_owned()),
            }
        }
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// The values of the fields called `name`.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let fields = self.head.fields.iter();
        fields
            .filter(|field| field.name.of(&self.bytes).eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| field.value.of(&self.bytes))
    }

    /// Reads the body up to its end or to [`BODY`] bytes.
    ///
    /// # Errors
    /// For people: why it is not whole.
    pub(crate) async fn read_body(&mut self, connection: &UpstreamConnection) -> Result<(), String> {
        let length = self.head.body_length(Method::Get);
        let mut chunks = ChunkedDecoder::new(ChunkStrictness::Upstream, TrailerLimits::SKIPPED);
        let mut raw = self.bytes.split_off(self.head.len);
        loop {
            let whole = match length {
                BodyLength::None => true,
                BodyLength::Bytes(length) => {
                    self.body.append(&mut raw);
                    self.body.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                    self.body.len() as u64 == length
                }
                BodyLength::Chunked => unchunk(&mut chunks, &raw, &mut self.body)?,
                BodyLength::UntilClose => {
                    self.body.append(&mut raw);
                    false
                }
            };
            if whole || self.body.len() >= BODY {
                self.body.truncate(BODY);
                return Ok(());
            }
            raw = match more(connection).await? {
                Some(bytes) => bytes,
                None if length == BodyLength::UntilClose => return Ok(()),
                None => return Err(CLOSED.to_owned()),
            };
        }
    }
}

/// Adds what `raw` holds of a body to it; `true`: that was its end.
fn unchunk(decoder: &mut ChunkedDecoder, raw: &[u8], body: &mut Vec<u8>) -> Result<bool, String> {
    let mut at = 0;
    while at < raw.len() {
        let step = decoder.decode(&raw[at..]).map_err(|_| "upstream sent invalid chunked response")?;
        body.extend_from_slice(&raw[at..][step.data]);
        at += step.consumed;
        if step.done {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What comes next; `None`: the server has ended the connection.
async fn more(connection: &UpstreamConnection) -> Result<Option<Vec<u8>>, String> {
    match connection.stream.recv(Some(&connection.timer)).await {
        RecvOutcome::Data(bytes) => Ok(Some(bytes.into_vec())),
        RecvOutcome::Eof => Ok(None),
        RecvOutcome::TimedOut => Err(timed_out()),
        RecvOutcome::Err(errno) => Err(receive_failed(errno)),
    }
}

/// The system's error instead of a response.
pub(crate) fn receive_failed(errno: i32) -> String {
    format!("recv() failed ({errno}: {})", weir_rt::file::errno_text(errno))
}

/// A check has taken too long.
pub(crate) fn timed_out() -> String {
    "upstream timed out (110: Connection timed out)".to_owned()
}

pub(crate) const CLOSED: &str = "upstream prematurely closed connection";
/// The longest head of a response, in bytes.
const HEAD: usize = 16 * 1024;
/// This many bytes of a body are looked at, as in nginx's commercial version.
const BODY: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_heads_are_skipped() {
        let parse = |bytes: &[u8]| {
            let mut checked = HttpCheckResult { bytes: bytes.to_vec(), ..HttpCheckResult::default() };
            checked.parse().map(|whole| whole.then(|| checked.status()))
        };
        let bytes = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 No\r\n\r\nbody";
        assert_eq!(parse(bytes), Ok(Some(503)));
        assert_eq!(parse(b"HTTP/1.1 200"), Ok(None));
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
    }

    #[test]
    fn chunks_are_joined() {
        let (mut decoder, mut body) = (ChunkedDecoder::default(), Vec::new());
        let whole: Vec<bool> = [&b"3\r\nab"[..], b"c\r\n2\r\n", b"de\r\n0\r\n\r\n"]
            .into_iter()
            .map(|raw| unchunk(&mut decoder, raw, &mut body).expect("chunks"))
            .collect();
        assert_eq!((whole, &*body), (vec![false, false, true], &b"abcde"[..]));
        assert!(unchunk(&mut ChunkedDecoder::default(), b"x", &mut body).is_err());
    }
}
