//! Messages of JSON in a stream, as the Language Server Protocol frames them: `Content-Length: N`, an empty line, N bytes.

/// What has come and is not a whole message yet.
#[derive(Debug, Default)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
}

/// Why a stream can't be read any further: where the next message begins is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnframedStream {
    /// A line of a header is no field, or the header is too long.
    Header,
    /// There is no `Content-Length`, or it is no number.
    Length,
    /// A message is longer than 256 MiB.
    Long,
}

impl std::fmt::Display for UnframedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UnframedStream::Header => "the header of a message is malformed",
            UnframedStream::Length => "a message has no valid Content-Length",
            UnframedStream::Long => "a message is too long",
        })
    }
}

impl std::error::Error for UnframedStream {}

impl MessageBuffer {
    /// Adds what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether no part of a message is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next message out; `None` until it is whole.
    ///
    /// # Errors
    /// The stream can't be read any further.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, UnframedStream> {
        let Some(end) = self.bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            // The empty line may be on its way.
            let too_long = self.bytes.len() > LONGEST_HEADER + 3;
            return if too_long { Err(UnframedStream::Header) } else { Ok(None) };
        };
        let length = content_length(&self.bytes[..end])?;
        let (start, end) = (end + 4, end + 4 + length);
        if self.bytes.len() < end {
            return Ok(None);
        }
        let message = self.bytes[start..end].to_vec();
        self.bytes.drain(..end);
        Ok(Some(message))
    }

    /// A message with its header.
    #[must_use]
    pub fn framed(message: &str) -> Vec<u8> {
        format!("Content-Length: {}\r\n\r\n{message}", message.len()).into_bytes()
    }
}

fn content_length(header: &[u8]) -> Result<usize, UnframedStream> {
    if header.len() > LONGEST_HEADER {
        return Err(UnframedStream::Header);
    }
    let header = std::str::from_utf8(header).map_err(|_| UnframedStream::Header)?;
    let mut length = None;
    for line in header.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or(UnframedStream::Header)?;
        if name.trim().eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().map_err(|_| UnframedStream::Length)?);
        }
    }
    match length {
        Some(length) if length > LONGEST_MESSAGE => Err(UnframedStream::Long),
        length => length.ok_or(UnframedStream::Length),
    }
}

/// Bytes of a header.
const LONGEST_HEADER: usize = 4096;

/// Bytes of a message: the text of a file of 64 MiB, with escapes.
const LONGEST_MESSAGE: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_are_fields_and_one_is_the_length() {
        let next = |text: &str| {
            let mut buffer = MessageBuffer::default();
            buffer.push(text.as_bytes());
            buffer.next_message()
        };
        assert_eq!(next("Content-Length: 2\r\n\r\n{}"), Ok(Some(b"{}".to_vec())));
        assert_eq!(next("Content-Type: a/b\r\ncontent-length:0\r\n\r\n"), Ok(Some(Vec::new())));
        assert_eq!(next("Content-Length: 3\r\n\r\n{}"), Ok(None));
        assert_eq!(next("Content-Type: a\r\n\r\n{}"), Err(UnframedStream::Length));
        for length in ["-1", "x", "", "99999999999999999999999"] {
            assert_eq!(next(&format!("Content-Length: {length}\r\n\r\n")), Err(UnframedStream::Length));
        }
        assert_eq!(next("Content-Length: 999999999\r\n\r\n"), Err(UnframedStream::Long));
        assert_eq!(next("{}\r\n\r\n"), Err(UnframedStream::Header));
        assert_eq!(next(&"a".repeat(5000)), Err(UnframedStream::Header));
    }

    proptest! {
        /// However the stream is cut, the messages are those that were sent.
        #[test]
        fn messages_survive_every_cut(
            messages in prop::collection::vec(".{0,20}", 0..5),
            cuts in prop::collection::vec(1..40_usize, 1..8),
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|message| MessageBuffer::framed(message)).collect();
            let (mut buffer, mut found, mut rest) = (MessageBuffer::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                buffer.push(part);
                while let Some(message) = buffer.next_message().expect("framed") {
                    found.push(String::from_utf8(message).expect("UTF-8"));
                }
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, messages);
        }
    }
}
