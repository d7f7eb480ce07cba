//! The load maker of `weir compare`: one connection, one request at a time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use weir_http::Method;
use weir_http::h1::{
    BodyLength, ChunkStrictness, ChunkedDecoder, HeadLimits, HeadParse, ResponseHead, TrailerLimits,
};

use crate::interrupted::uninterrupted;

/// What is asked for: `http://HOST[:PORT]/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadUrl {
    /// For `Host`, and to connect to.
    host: String,
    /// With its arguments.
    pub(super) path: String,
}

impl LoadUrl {
    /// # Errors
    /// It is another scheme, or none.
    pub(super) fn parse(url: &str) -> Result<LoadUrl, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("\"{url}\" is no http:// address"))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() {
            return Err(format!("\"{url}\" names no host"));
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(LoadUrl { host: host.to_owned(), path: path.to_owned() })
    }

    /// The URL with the same host and another path.
    pub(super) fn with_path(&self, path: &str) -> LoadUrl {
        LoadUrl { host: self.host.clone(), path: path.to_owned() }
    }
}

/// A connection that is made again when the server has closed it.
pub(super) struct LoadConnection {
    host: String,
    stream: Option<TcpStream>,
    input: Vec<u8>,
}

impl LoadConnection {
    /// For requests to the host of `target`.
    pub(super) fn new(target: &LoadUrl) -> LoadConnection {
        LoadConnection { host: target.host.clone(), stream: None, input: Vec::new() }
    }

    /// Makes a request and reads the response to its end.
    ///
    /// # Errors
    /// No response comes, or it is an error: what is compared would not be what is meant.
    pub(super) fn get(&mut self, path: &str) -> Result<(), String> {
        let status = match self.exchange(path) {
            // A connection kept alive may have been closed while no request was sent.
            Err(_) => {
                self.stream = None;
                self.exchange(path)
            }
            status => status,
        };
        match status {
            Ok(..400) => Ok(()),
            Ok(status) => Err(format!("GET {path} of {} was answered {status}", self.host)),
            Err(error) => Err(format!("GET {path} of {}: {error}", self.host)),
        }
    }

    fn exchange(&mut self, path: &str) -> io::Result<u16> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                self.input.clear();
                self.stream.insert(connect(&self.host)?)
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir\r\n\r\n", self.host);
        stream.write_all(request.as_bytes())?;
        let mut head = ResponseHead::default();
        while head.parse(&self.input, &LIMITS).map_err(|bad| io::Error::other(bad.message()))?
            != HeadParse::Complete
        {
            more(stream, &mut self.input)?;
        }
        self.input.drain(..head.len);
        match head.body_length(Method::Get) {
            BodyLength::None => {}
            BodyLength::Bytes(length) => skip(stream, &mut self.input, length)?,
            BodyLength::Chunked => skip_chunks(stream, &mut self.input)?,
            BodyLength::UntilClose => io::copy(stream, &mut io::sink()).map(drop)?,
        }
        if !head.keep_alive() {
            self.stream = None;
        }
        Ok(head.status)
    }
}

fn connect(host: &str) -> io::Result<TcpStream> {
    let has_port =
        host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let stream = if has_port { TcpStream::connect(host)? } else { TcpStream::connect((host, 80))? };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn more(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 64 * 1024];
    match uninterrupted(|| stream.read(&mut piece))? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => {
            input.extend_from_slice(&piece[..length]);
            Ok(())
        }
    }
}

fn skip(stream: &mut TcpStream, input: &mut Vec<u8>, length: u64) -> io::Result<()> {
    let mut left = length;
    loop {
        let here = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
        input.drain(..here);
        left -= here as u64;
        if left == 0 {
            return Ok(());
        }
        more(stream, input)?;
    }
}

fn skip_chunks(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, TrailerLimits::SKIPPED);
    loop {
        let decoded = decoder.decode(input).map_err(|bad| io::Error::other(format!("{bad:?}")))?;
        input.drain(..decoded.consumed);
        if decoded.done {
            return Ok(());
        }
        if input.is_empty() {
            more(stream, input)?;
        }
    }
}

const LIMITS: HeadLimits = HeadLimits::new(16 * 1024, 256 * 1024, 1000);
/// How long a response may pause.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_path() {
        let target = LoadUrl::parse("http://127.0.0.1:80/a?b").expect("an address");
        assert_eq!((target.host.as_str(), target.path.as_str()), ("127.0.0.1:80", "/a?b"));
        assert_eq!(LoadUrl::parse("http://a").expect("an address").path, "/");
        assert_eq!(target.with_path("/c").path, "/c");
        for wrong in ["https://a/", "a", "/a", "http:///a"] {
            assert!(LoadUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answers_of_every_framing_are_read_to_their_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let target =
            LoadUrl::parse(&format!("http://{}/", listener.local_addr().expect("bound"))).expect("valid");
        let server = std::thread::spawn(move || {
            let answers: [&[&[u8]]; 2] = [
                &[
                    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                    b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n",
                ],
                &[b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"],
            ];
            for connection in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                for answer in connection {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).expect("a request");
                        head.push(byte[0]);
                    }
                    // Cut anywhere, it is the same.
                    answer.chunks(7).for_each(|piece| stream.write_all(piece).expect("a client that reads"));
                }
            }
        });
        let mut loader = LoadConnection::new(&target);
        for path in ["/1", "/2", "/3"] {
            assert_eq!(loader.get(path), Ok(()), "{path}");
        }
        assert!(loader.get("/4").is_err_and(|error| error.ends_with("was answered 404")));
        server.join().expect("no panic");
    }
}
