//! Messages of HTTP/1 as the simulation's clients and upstream servers read and write them: by the letter, and nothing else.

/// What a message is, which decides how long its body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Without a length there is no body.
    Request,
    /// Without a length it goes to the end of the connection.
    Response,
}

/// A message that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireMessage {
    /// The first line.
    pub line: String,
    /// The head's other lines, as they have come.
    pub fields: Vec<String>,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// The lines after the last chunk.
    pub trailers: Vec<String>,
}

impl WireMessage {
    /// The status of a response; 0 for a line without one.
    pub fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Names and values as they have come.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
    }

    /// Whether the connection ends with it.
    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"))
    }
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMessage(pub String);

/// Reads messages from a stream of bytes.
#[derive(Clone, Debug)]
pub struct MessageReader {
    kind: MessageKind,
    bytes: Vec<u8>,
}

impl MessageReader {
    /// A reader of such messages.
    pub fn new(kind: MessageKind) -> MessageReader {
        MessageReader { kind, bytes: Vec::new() }
    }

    /// More bytes have come.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are no whole message yet.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next message; `ended`: nothing comes any more.
    ///
    /// # Errors
    /// What comes is no message.
    pub fn next(&mut self, ended: bool) -> Result<Option<WireMessage>, BadMessage> {
        let Some(end) = find(&self.bytes, b"\r\n\r\n") else { return Ok(None) };
        let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        let mut lines = head.split("\r\n").map(str::to_owned);
        let line = lines.next().unwrap_or_default();
        let mut message =
            WireMessage { line, fields: lines.collect(), body: Vec::new(), trailers: Vec::new() };
        if self.kind == MessageKind::Response && !message.line.starts_with("HTTP/1.1 ") {
            return Err(BadMessage(format!("no response: {:?}", message.line)));
        }
        let rest = &self.bytes[end + 4..];
        let taken = match (message.field("transfer-encoding"), message.field("content-length")) {
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => chunked(rest, &mut message)?,
            (Some(_), _) => return Err(BadMessage("two framings".to_owned())),
            (None, Some(length)) => {
                let length: usize =
                    length.parse().map_err(|_| BadMessage(format!("Content-Length: {length}")))?;
                rest.get(..length).map(|body| {
                    message.body = body.to_vec();
                    length
                })
            }
            (None, None) if self.kind == MessageKind::Request => Some(0),
            (None, None) if ended => {
                message.body = rest.to_vec();
                Some(rest.len())
            }
            (None, None) => None,
        };
        let Some(taken) = taken else { return Ok(None) };
        self.bytes.drain(..end + 4 + taken);
        Ok(Some(message))
    }

    /// The status of a response whose head has come and whose body has not.
    pub fn status_of_part(&self) -> u16 {
        let line = self.bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let word = String::from_utf8_lossy(line).split(' ').nth(1).and_then(|word| word.parse().ok());
        if find(&self.bytes, b"\r\n\r\n").is_some() { word.unwrap_or(0) } else { 0 }
    }
}

/// `content` in chunks of up to `size` bytes, with the last one.
pub fn in_chunks(content: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in content.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// Reads chunks to the last one; the bytes that they take. `None`: not all are there.
fn chunked(bytes: &[u8], message: &mut WireMessage) -> Result<Option<usize>, BadMessage> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        let length =
            usize::from_str_radix(&line, 16).map_err(|_| BadMessage(format!("a chunk's line: {line:?}")))?;
        if length == 0 {
            return Ok(trailers(&rest[end + 2..], message).map(|taken| at + end + 2 + taken));
        }
        let Some(chunk) = rest.get(end + 2..end + 2 + length + 2) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err(BadMessage("a chunk without its end".to_owned()));
        }
        message.body.extend_from_slice(&chunk[..length]);
        at += end + 2 + length + 2;
    }
}

/// Reads what follows the last chunk; the bytes that it takes. `None`: not all is there.
fn trailers(bytes: &[u8], message: &mut WireMessage) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = find(&bytes[at..], b"\r\n")?;
        let line = String::from_utf8_lossy(&bytes[at..at + end]).into_owned();
        at += end + 2;
        if line.is_empty() {
            return Some(at);
        }
        message.trailers.push(line);
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: MessageKind, text: &str) -> Vec<Result<Option<(u16, String)>, BadMessage>> {
        let mut reader = MessageReader::new(kind);
        reader.add(text.as_bytes());
        let mut all = Vec::new();
        loop {
            let next = reader.next(false);
            let is_last = !matches!(next, Ok(Some(_)));
            all.push(next.map(|m| m.map(|m| (m.status(), String::from_utf8_lossy(&m.body).into_owned()))));
            if is_last {
                return all;
            }
        }
    }

    #[test]
    fn messages_end_where_they_say() {
        let two = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 404 Not Found\r\n\
                   Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\nHTTP/1.1 200";
        let [first, second, third] = &read(MessageKind::Response, two)[..] else { panic!("three") };
        assert_eq!(*first, Ok(Some((200, "abc".to_owned()))));
        assert_eq!((second, third), (&Ok(Some((404, "def".to_owned()))), &Ok(None)));
        assert_eq!(read(MessageKind::Request, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").len(), 2);
    }

    #[test]
    fn a_body_without_a_length_goes_to_the_end() {
        let mut reader = MessageReader::new(MessageKind::Response);
        reader.add(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc");
        assert_eq!((reader.next(false), reader.status_of_part()), (Ok(None), 200));
        let message = reader.next(true).expect("good").expect("whole");
        assert!(message.closes() && message.body == b"abc");
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for text in [
            "what\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(matches!(read(MessageKind::Response, text)[..], [Err(_)]), "{text}");
        }
    }
}
