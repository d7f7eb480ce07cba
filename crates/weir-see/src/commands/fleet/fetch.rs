//! One request to an admin listener. The listener decides what comes: time and size are bounded.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weir_http::Method;
use weir_http::h1::{BodyLength, HeadLimits, HeadParse, ResponseHead};

use crate::interrupted::uninterrupted;

/// Where an admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostAddress {
    /// `HOST:PORT`
    Tcp(String),
    /// `unix:PATH`
    Unix(PathBuf),
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::Tcp(host) => f.write_str(host),
            HostAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl HostAddress {
    /// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`, `unix:PATH`; also with `http://`. Without a port it is 9180.
    ///
    /// # Errors
    /// It is empty, or has a path.
    pub(super) fn parse(word: &str) -> Result<HostAddress, String> {
        if let Some(path) = word.strip_prefix("unix:") {
            return Ok(HostAddress::Unix(path.into()));
        }
        let host = word.strip_prefix("http://").unwrap_or(word).trim_end_matches('/');
        if host.is_empty() || host.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
            return Err(format!("\"{word}\" is no address of an admin listener: HOST:PORT or unix:PATH"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
            !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!before.contains(':') || before.ends_with(']'))
        });
        Ok(HostAddress::Tcp(if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") }))
    }

    fn host(&self) -> &str {
        match self {
            HostAddress::Tcp(host) => host,
            HostAddress::Unix(_) => "localhost",
        }
    }

    fn connect(&self, until: Instant) -> io::Result<AdminStream> {
        match self {
            HostAddress::Unix(path) => Ok(AdminStream::Unix(UnixStream::connect(path)?)),
            HostAddress::Tcp(host) => {
                let mut last = io::Error::from(io::ErrorKind::NotFound);
                for address in host.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, left(until)?) {
                        Ok(stream) => return Ok(AdminStream::Tcp(stream)),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

/// The body of what is at `path`.
///
/// # Errors
/// Why it did not come, for people.
pub(super) fn get(address: &HostAddress, path: &str, token: Option<&str>) -> Result<Vec<u8>, String> {
    let (status, body) = exchange(address, path, token).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "does not respond in time".to_owned(),
        _ => format!("does not respond: {error}"),
    })?;
    match status {
        200 => Ok(body),
        401 => Err("needs its token (--token-file)".to_owned()),
        403 => Err("responds to requests from elsewhere only where its admin line has a token".to_owned()),
        status => Err(format!("responds with {status} and not with what was asked for")),
    }
}

fn exchange(address: &HostAddress, path: &str, token: Option<&str>) -> io::Result<(u16, Vec<u8>)> {
    let until = Instant::now() + PATIENCE;
    let mut stream = address.connect(until)?;
    let authorization = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n{authorization}Connection: close\r\n\r\n",
        address.host()
    );
    stream.limit(until)?;
    stream.write_all(request.as_bytes())?;
    let mut input = Vec::new();
    let mut head = ResponseHead::default();
    while head.parse(&input, &LIMITS).map_err(|bad| io::Error::other(bad.message()))? != HeadParse::Complete {
        if more(&mut stream, &mut input, until)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    input.drain(..head.len);
    let wanted = match head.body_length(Method::Get) {
        BodyLength::None => 0,
        BodyLength::Bytes(length) => length,
        BodyLength::UntilClose => u64::MAX,
        BodyLength::Chunked => return Err(io::Error::other("its response is a stream")),
    };
    while (input.len() as u64) < wanted {
        if more(&mut stream, &mut input, until)? == 0 {
            if wanted == u64::MAX {
                break;
            }
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if input.len() > LARGEST {
            return Err(io::Error::other(format!("its response is larger than {} MB", LARGEST >> 20)));
        }
    }
    Ok((head.status, input))
}

fn more(stream: &mut AdminStream, input: &mut Vec<u8>, until: Instant) -> io::Result<usize> {
    let mut piece = [0; 64 * 1024];
    stream.limit(until)?;
    let length = uninterrupted(|| stream.read(&mut piece))?;
    input.extend_from_slice(&piece[..length]);
    Ok(length)
}

/// The time that is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

enum AdminStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AdminStream {
    /// Reads and writes end by `until`.
    fn limit(&self, until: Instant) -> io::Result<()> {
        let left = Some(left(until)?);
        match self {
            AdminStream::Tcp(stream) => {
                stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left))
            }
            AdminStream::Unix(stream) => {
                stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left))
            }
        }
    }
}

impl Read for AdminStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            AdminStream::Tcp(stream) => stream.read(into),
            AdminStream::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for AdminStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            AdminStream::Tcp(stream) => stream.write(bytes),
            AdminStream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The port of the embedded configuration's admin listener.
const DEFAULT_PORT: u16 = 9180;
const LIMITS: HeadLimits = HeadLimits { max_line: 16 * 1024, max_head: 64 * 1024, max_fields: 100 };
/// How long a server may take for all of its response.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a response at most: some 20,000 locations.
const LARGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_have_a_port() {
        let shown = |word: &str| HostAddress::parse(word).map(|address| address.to_string());
        for (word, expected) in [
            ("a", "a:9180"),
            ("a:1", "a:1"),
            ("http://a:1/", "a:1"),
            ("[::1]:8", "[::1]:8"),
            ("[::1]", "[::1]:9180"),
            ("unix:/run/admin.sock", "unix:/run/admin.sock"),
        ] {
            assert_eq!(shown(word), Ok(expected.to_owned()), "{word}");
        }
        for wrong in ["", "http://", "a/b", "a b", "a\r\nX: 1"] {
            assert!(shown(wrong).is_err(), "{wrong:?}");
        }
    }

    /// What a listener that sends `pieces` to its client comes to.
    fn asked(pieces: &'static [&'static [u8]]) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = HostAddress::parse(&listener.local_addr().expect("bound").to_string()).expect("valid");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                head.push(byte[0]);
            }
            // A client that has enough may be gone.
            for piece in pieces {
                let _ = stream.write_all(piece);
            }
            String::from_utf8(head).expect("text")
        });
        let got = get(&address, "/totals", Some("secret"));
        let head = server.join().expect("no panic");
        assert!(head.contains("\r\nAuthorization: Bearer secret\r\n"), "{head}");
        got
    }

    #[test]
    fn responses_are_read_whole_and_others_are_explained() {
        assert_eq!(
            asked(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", b"llo"]),
            Ok(b"hello".to_vec())
        );
        assert_eq!(asked(&[b"HTTP/1.1 200 OK\r\n\r\nhello"]), Ok(b"hello".to_vec()));
        const OTHERS: &[(&[&[u8]], &str)] = &[
            (&[b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"], "--token-file"),
            (&[b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"], "404"),
            (&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"], "does not respond"),
            (&[b"SSH-2.0-x\r\n\r\n"], "does not respond"),
            (&[], "does not respond"),
        ];
        for (pieces, expected) in OTHERS {
            assert!(asked(pieces).is_err_and(|why| why.contains(expected)), "{expected}");
        }
    }
}
