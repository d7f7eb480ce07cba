//! A response as it came over the wire, parsed strictly.
//!
//! Strictly means: whatever RFC 9112 does not let a server send is an error here, even where clients forgive it.

use std::fmt;

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status line and header section as sent, with the empty line that ends it.
    pub head: Vec<u8>,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// What follows the code, often shown to people; may be empty.
    pub reason: String,
    /// Header fields, in their order, values without white space around them.
    pub fields: Vec<(String, String)>,
    /// The content, with chunked coding removed.
    pub body: Vec<u8>,
    /// Trailer fields, after the last chunk.
    pub trailers: Vec<(String, String)>,
    /// Sizes of the chunks of a chunked body, in bytes, without the last one of 0.
    pub chunks: Vec<usize>,
}

impl Response {
    /// The value of a field, by its name in any case; `None` when it is missing.
    ///
    /// # Panics
    /// When the field is there more than once: use [`Self::all`] where that is right.
    #[must_use]
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() < 2, "{name} is there {} times: {self}", values.len());
        values.first().copied()
    }

    /// All values of a field, in their order.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&str> {
        let same = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The header section as text, for comparing it as a whole.
    #[must_use]
    pub fn head_text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }

    /// True when the connection stays open after this response (RFC 9112 9.3), by what the response says.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        let says = |option: &str| {
            self.all("connection").iter().any(|v| v.split(',').any(|o| o.trim().eq_ignore_ascii_case(option)))
        };
        if self.version == "HTTP/1.0" { says("keep-alive") } else { !says("close") }
    }

    /// Parses the response at the beginning of `bytes`, to a request other than HEAD.
    ///
    /// # Errors
    /// As [`Self::parse_to`].
    pub fn parse(bytes: &[u8], received: ReceivedPart) -> Result<Option<(Self, usize)>, MalformedResponse> {
        Self::parse_to(RequestKind::Other, bytes, received)
    }

    /// Parses the response at the beginning of `bytes`, to a request of this kind. `Ok(None)` when more bytes are needed;
    /// else the response and how many bytes it took.
    ///
    /// # Errors
    /// [`MalformedResponse`] when a server may not send this (RFC 9112), or when the end cuts a response short.
    pub fn parse_to(
        request: RequestKind,
        bytes: &[u8],
        received: ReceivedPart,
    ) -> Result<Option<(Self, usize)>, MalformedResponse> {
        let at_end = received == ReceivedPart::All;
        let Some(head_len) = find(bytes, b"\r\n\r\n").map(|at| at + 4) else {
            return if at_end { bad("the connection ended inside the header section") } else { Ok(None) };
        };
        let mut response = Self::parse_head(&bytes[..head_len])?;
        let rest = &bytes[head_len..];
        let taken = match response.framing(request)? {
            BodyFraming::Length(length) if rest.len() >= length => {
                response.body = rest[..length].to_vec();
                Some(length)
            }
            BodyFraming::Length(_) => None,
            BodyFraming::Chunked => response.take_chunked(rest)?,
            BodyFraming::UntilEnd if at_end => {
                response.body = rest.to_vec();
                Some(rest.len())
            }
            BodyFraming::UntilEnd => None,
        };
        match taken {
            Some(taken) => Ok(Some((response, head_len + taken))),
            None if at_end => {
                bad(&format!("the connection ended after {} bytes of a longer body", rest.len()))
            }
            None => Ok(None),
        }
    }

    fn parse_head(head: &[u8]) -> Result<Self, MalformedResponse> {
        let mut lines = lines(&head[..head.len() - 2])?;
        let status_line = lines.remove(0);
        let text = String::from_utf8_lossy(status_line);
        let mut parts = text.splitn(3, ' ');
        let (version, status) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let Some(reason) = parts.next() else { return bad(&format!("no space behind the code: {text}")) };
        let digits = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
        if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || !digits {
            return bad(&format!("status line: {text}"));
        }
        Ok(Self {
            head: head.to_vec(),
            version: version.to_owned(),
            status: status.parse().expect("three digits fit"),
            reason: reason.to_owned(),
            fields: lines.into_iter().map(field).collect::<Result<_, _>>()?,
            body: Vec::new(),
            trailers: Vec::new(),
            chunks: Vec::new(),
        })
    }

    /// RFC 9112 6.3, and 6.1 and 8.6 of RFC 9110 for what may not be sent at all.
    fn framing(&self, request: RequestKind) -> Result<BodyFraming, MalformedResponse> {
        let codings = self.all("transfer-encoding");
        let lengths = self.all("content-length");
        if lengths.len() + codings.len() > 1 {
            return bad("more than one of Content-Length and Transfer-Encoding");
        }
        let interim = (100..200).contains(&self.status);
        if (interim || self.status == 204) && lengths.len() + codings.len() > 0 {
            return bad("a 1xx or 204 response with a body's length");
        }
        let length = match lengths.first() {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().map_err(|_| MalformedResponse(format!("Content-Length: {digits}")))?)
            }
            Some(other) => return bad(&format!("Content-Length: {other}")),
            None => None,
        };
        if let Some(coding) = codings.first().filter(|coding| !coding.eq_ignore_ascii_case("chunked")) {
            return bad(&format!("Transfer-Encoding: {coding}"));
        }
        Ok(if request == RequestKind::Head || interim || matches!(self.status, 204 | 304) {
            BodyFraming::Length(0)
        } else if !codings.is_empty() {
            if self.version == "HTTP/1.0" {
                return bad("chunked in HTTP/1.0");
            }
            BodyFraming::Chunked
        } else {
            length.map_or(BodyFraming::UntilEnd, BodyFraming::Length)
        })
    }

    /// RFC 9112 7.1. Returns the bytes taken, or `None` when the last chunk is not there yet.
    fn take_chunked(&mut self, bytes: &[u8]) -> Result<Option<usize>, MalformedResponse> {
        let mut at = 0;
        loop {
            let Some(line) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
            let size = chunk_size(&bytes[at..at + line])?;
            at += line + 2;
            if size == 0 {
                return self.take_trailers(&bytes[at..]).map(|taken| taken.map(|taken| at + taken));
            }
            let Some(chunk) = bytes[at..].get(..size.saturating_add(2)) else { return Ok(None) };
            let Some(data) = chunk.strip_suffix(b"\r\n") else {
                return bad("a chunk is longer than its size");
            };
            self.body.extend_from_slice(data);
            self.chunks.push(size);
            at += size + 2;
        }
    }

    fn take_trailers(&mut self, bytes: &[u8]) -> Result<Option<usize>, MalformedResponse> {
        if bytes.starts_with(b"\r\n") {
            return Ok(Some(2));
        }
        let Some(len) = find(bytes, b"\r\n\r\n").map(|at| at + 4) else { return Ok(None) };
        self.trailers = lines(&bytes[..len - 2])?.into_iter().map(field).collect::<Result<_, _>>()?;
        Ok(Some(len))
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(SHOWN)];
        write!(f, "{}{}", self.head_text(), String::from_utf8_lossy(shown))?;
        if self.body.len() > SHOWN { write!(f, "… ({} bytes)", self.body.len()) } else { Ok(()) }
    }
}

/// Which method a response's request has, as far as it decides where the response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// HEAD: the response has no body, whatever its fields say.
    Head,
    /// Any other.
    Other,
}

impl RequestKind {
    /// That of a request, which begins with its method.
    #[must_use]
    pub fn of(request: &[u8]) -> RequestKind {
        if request.starts_with(b"HEAD") { RequestKind::Head } else { RequestKind::Other }
    }
}

/// How much of a connection's bytes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedPart {
    /// More may come.
    SoFar,
    /// The connection has ended.
    All,
}

impl ReceivedPart {
    /// All of them, if the connection has `ended`.
    pub fn of(ended: bool) -> ReceivedPart {
        if ended { ReceivedPart::All } else { ReceivedPart::SoFar }
    }
}

/// What a server may not send, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedResponse(pub String);

impl fmt::Display for MalformedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MalformedResponse {}

enum BodyFraming {
    Length(usize),
    Chunked,
    UntilEnd,
}

fn bad<T>(what: &str) -> Result<T, MalformedResponse> {
    Err(MalformedResponse(what.to_owned()))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Lines without their CR LF; a CR or LF alone is malformed. `bytes` ends in CR LF.
fn lines(bytes: &[u8]) -> Result<Vec<&[u8]>, MalformedResponse> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while let Some(len) = find(rest, b"\r\n") {
        let line = &rest[..len];
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return bad(&format!("a bare CR, LF or a NUL: {:?}", String::from_utf8_lossy(line)));
        }
        lines.push(line);
        rest = &rest[len + 2..];
    }
    Ok(lines)
}

/// `name: value`, without folding and without space before the colon (RFC 9112 5.1, 5.2).
fn field(line: &[u8]) -> Result<(String, String), MalformedResponse> {
    let text = String::from_utf8_lossy(line).into_owned();
    let Some((name, value)) = text.split_once(':') else { return bad(&format!("no colon: {text}")) };
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return bad(&format!("field name: {text:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// Hexadecimal digits alone: Weir and nginx send no chunk extensions.
fn chunk_size(line: &[u8]) -> Result<usize, MalformedResponse> {
    let text = String::from_utf8_lossy(line);
    if line.is_empty() || !line.iter().all(u8::is_ascii_hexdigit) {
        return bad(&format!("chunk size: {text:?}"));
    }
    usize::from_str_radix(&text, 16).map_err(|_| MalformedResponse(format!("chunk size: {text}")))
}

/// How much of a body is printed when a test fails, in bytes.
const SHOWN: usize = 400;

#[cfg(test)]
mod tests;
