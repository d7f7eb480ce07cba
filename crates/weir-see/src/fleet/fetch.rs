//! One request to an admin listener. The listener decides what comes: time and size are bounded.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use weir_engine::trace::HostAddress;
use weir_http::Method;
use weir_http::h1::{BodyLength, HeadLimits, HeadParse, ResponseHead};

use crate::interrupted::uninterrupted;

/// What is asked of an admin listener.
pub(crate) struct HostQuestion<'a> {
    pub(crate) address: &'a HostAddress,
    pub(crate) path: &'a str,
    pub(crate) token: Option<&'a str>,
    /// Bytes of the response at most.
    pub(crate) largest: usize,
}

/// The body of the response.
///
/// # Errors
/// Why it did not come, for people.
pub(crate) fn get(question: &HostQuestion<'_>) -> Result<Vec<u8>, String> {
    let (status, body) = exchange(question).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "does not respond in time".to_owned(),
        _ => format!("does not respond: {error}"),
    })?;
    match status {
        200 => Ok(body),
        401 => Err("needs its token (--token-file, or token_file= of admin_host)".to_owned()),
        403 => Err("responds to requests from elsewhere only where its admin line has a token".to_owned()),
        status => Err(format!("responds with {status} and not with what was asked for")),
    }
}

fn exchange(question: &HostQuestion<'_>) -> io::Result<(u16, Vec<u8>)> {
    let HostQuestion { address, path, token, largest } = *question;
    let until = Instant::now() + PATIENCE;
    let mut stream = connect(address, until)?;
    let authorization = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n{authorization}Connection: close\r\n\r\n",
        host(address)
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
        if input.len() > largest {
            return Err(io::Error::other(format!("its response is larger than {} MB", largest >> 20)));
        }
    }
    Ok((head.status, input))
}

/// What requests call the host.
fn host(address: &HostAddress) -> &str {
    match address {
        HostAddress::Tcp(host) => host,
        HostAddress::Unix(_) => "localhost",
    }
}

fn connect(address: &HostAddress, until: Instant) -> io::Result<AdminStream> {
    match address {
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

const LIMITS: HeadLimits = HeadLimits::new(16 * 1024, 64 * 1024, 100);
/// How long a server may take for all of its response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

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
        let (path, token) = ("/totals", Some("secret"));
        let got = get(&HostQuestion { address: &address, path, token, largest: 1 << 20 });
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
            (&[b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 3 << 20]], "larger than 1 MB"),
            (&[&[b'x'; 3 << 20]], "does not respond"),
        ];
        for (pieces, expected) in OTHERS {
            assert!(asked(pieces).is_err_and(|why| why.contains(expected)), "{expected}");
        }
    }
}
