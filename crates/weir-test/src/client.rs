//! A client that sends exactly the bytes it is given.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use crate::{DEADLINE, MalformedResponse, ReceivedPart, RequestKind, Response};

/// One connection, with what was received and not yet read as a response.
#[derive(Debug)]
pub struct Client {
    stream: ClientStream,
    received: Vec<u8>,
}

impl Client {
    /// Connects over TCP.
    ///
    /// # Panics
    /// When the connection is not accepted.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        stream.set_nodelay(true).expect("a TCP socket has the option");
        Self::over(ClientStream::Tcp(stream))
    }

    /// Connects over a unix socket.
    ///
    /// # Panics
    /// When the connection is not accepted.
    #[must_use]
    #[track_caller]
    pub fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path)
            .unwrap_or_else(|error| panic!("connect to unix:{}: {error}", path.display()));
        Self::over(ClientStream::Unix(stream))
    }

    fn over(stream: ClientStream) -> Self {
        stream.limit_write();
        Self { stream, received: Vec::new() }
    }

    /// The client's own address.
    ///
    /// # Panics
    /// On a unix socket, which has none.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match &self.stream {
            ClientStream::Tcp(stream) => stream.local_addr().expect("connected"),
            ClientStream::Unix(_) => panic!("a unix socket has no address of its own"),
        }
    }

    /// Sends all bytes, in one write where the kernel takes them.
    ///
    /// # Panics
    /// When the server has closed or does not read.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap_or_else(|error| panic!("send: {error}"));
        self
    }

    /// As [`Self::send`], for a server that may close meanwhile.
    ///
    /// # Errors
    /// `BrokenPipe` or `ConnectionReset` when it has closed, `WouldBlock` when it does not read within the deadline.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Reads the next response, of a request other than HEAD. Interim ones (100, 103) are responses of their own.
    ///
    /// # Panics
    /// When none comes, or one that a server may not send.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.try_response().unwrap_or_else(|error| panic!("no response: {error}"))
    }

    /// Reads the response to a HEAD request.
    ///
    /// # Panics
    /// As [`Self::response`].
    #[track_caller]
    pub fn response_to_head(&mut self) -> Response {
        self.try_response_to(RequestKind::Head).unwrap_or_else(|error| panic!("no response: {error}"))
    }

    /// Reads the next response, of a request other than HEAD.
    ///
    /// # Errors
    /// As [`Self::try_response_to`].
    pub fn try_response(&mut self) -> Result<Response, ReadError> {
        self.try_response_to(RequestKind::Other)
    }

    /// Reads the next response, to a request of this kind.
    ///
    /// # Errors
    /// [`ReadError`], with what was received still there for [`Self::rest`].
    pub fn try_response_to(&mut self, request: RequestKind) -> Result<Response, ReadError> {
        let end = Instant::now() + DEADLINE;
        let mut closed = false;
        loop {
            if closed && self.received.is_empty() {
                return Err(ReadError::Closed);
            }
            let parsed = Response::parse_to(request, &self.received, ReceivedPart::of(closed))
                .map_err(ReadError::Malformed)?;
            if let Some((response, taken)) = parsed {
                self.received.drain(..taken);
                return Ok(response);
            }
            closed = self.receive(end)? == 0;
        }
    }

    /// Sends a request and reads its response.
    ///
    /// # Panics
    /// As [`Self::send`] and [`Self::response`].
    #[track_caller]
    pub fn request(&mut self, bytes: impl AsRef<[u8]>) -> Response {
        let kind = RequestKind::of(bytes.as_ref());
        self.send(bytes);
        self.try_response_to(kind).unwrap_or_else(|error| panic!("no response: {error}"))
    }

    /// `GET path` in HTTP/1.1, keeping the connection.
    ///
    /// # Panics
    /// As [`Self::request`].
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        self.request(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Waits until at least `count` bytes are received, without reading a response from them; returns all so far.
    ///
    /// # Errors
    /// [`ReadError`] when they do not come.
    pub fn peek(&mut self, count: usize) -> Result<&[u8], ReadError> {
        let end = Instant::now() + DEADLINE;
        while self.received.len() < count {
            if self.receive(end)? == 0 {
                return Err(ReadError::Closed);
            }
        }
        Ok(&self.received)
    }

    /// Waits until what has come and was not taken holds `text`.
    ///
    /// # Panics
    /// When the connection ends, or the deadline is over, before.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let mut count = text.len();
        loop {
            let bytes = self.peek(count).unwrap_or_else(|error| panic!("no {text:?}: {error}"));
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                return;
            }
            count = bytes.len() + 1;
        }
    }

    /// Waits for the next `count` bytes and takes them.
    ///
    /// # Panics
    /// When they do not come.
    #[track_caller]
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.peek(count).unwrap_or_else(|error| panic!("no {count} bytes: {error}"));
        self.received.drain(..count).collect()
    }

    /// Reads until the connection ends, and says how.
    ///
    /// # Panics
    /// When it does not end within the deadline.
    #[track_caller]
    pub fn rest(&mut self) -> (Vec<u8>, ConnectionEnd) {
        let end = Instant::now() + DEADLINE;
        let how = loop {
            match self.receive(end) {
                Ok(0) => break ConnectionEnd::Closed,
                Ok(_) => {}
                Err(ReadError::Reset) => break ConnectionEnd::Reset,
                Err(error) => panic!("{error}; received {:?}", String::from_utf8_lossy(&self.received)),
            }
        };
        (std::mem::take(&mut self.received), how)
    }

    /// Checks that the server closes in good order (FIN) and sends nothing more.
    ///
    /// # Panics
    /// When it sends something, resets or keeps the connection.
    #[track_caller]
    pub fn expect_close(&mut self) {
        let (rest, how) = self.rest();
        assert_eq!((String::from_utf8_lossy(&rest).as_ref(), how), ("", ConnectionEnd::Closed));
    }

    /// Ends the client's own direction (FIN); responses can still be read.
    ///
    /// # Panics
    /// When the connection is gone.
    #[track_caller]
    pub fn half_close(&mut self) -> &mut Self {
        match &self.stream {
            ClientStream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            ClientStream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
        .unwrap_or_else(|error| panic!("half-close: {error}"));
        self
    }

    /// Leaves by a reset (RST), as a client that crashed.
    ///
    /// # Panics
    /// When the socket refuses the option.
    #[track_caller]
    pub fn abort(self) {
        weir_sys::socket::set_linger_zero(&self.stream).unwrap_or_else(|error| panic!("SO_LINGER: {error}"));
    }

    /// One read; `Ok(0)` at the end of the stream.
    fn receive(&mut self, end: Instant) -> Result<usize, ReadError> {
        let mut piece = [0; 64 * 1024];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ReadError::Timeout);
            }
            self.stream.limit_read(left);
            match self.stream.read(&mut piece) {
                Ok(count) => {
                    self.received.extend_from_slice(&piece[..count]);
                    return Ok(count);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(ReadError::Timeout),
                    ErrorKind::ConnectionReset => return Err(ReadError::Reset),
                    kind => return Err(ReadError::Io(kind)),
                },
            }
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// By FIN: the server closed in good order.
    Closed,
    /// By RST.
    Reset,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The server closed before the first byte.
    Closed,
    /// The server reset the connection.
    Reset,
    /// Nothing (more) came within the deadline.
    Timeout,
    /// What came is no response, or only a part of one.
    Malformed(MalformedResponse),
    /// Another error of the socket.
    Io(ErrorKind),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Reset => f.write_str("the server reset the connection"),
            Self::Timeout => write!(f, "nothing came within {DEADLINE:?}"),
            Self::Malformed(what) => write!(f, "malformed: {what}"),
            Self::Io(kind) => write!(f, "{kind}"),
        }
    }
}

impl std::error::Error for ReadError {}

#[derive(Debug)]
enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ClientStream {
    fn limit_read(&self, limit: std::time::Duration) {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Self::Unix(stream) => stream.set_read_timeout(Some(limit)),
        }
        .expect("the limit is not zero");
    }

    /// A server that never reads must not hang the test.
    fn limit_write(&self) {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(DEADLINE)),
            Self::Unix(stream) => stream.set_write_timeout(Some(DEADLINE)),
        }
        .expect("the limit is not zero");
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for ClientStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    /// A server of one connection.
    fn serve(answer: impl FnOnce(TcpStream) + Send + 'static) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || answer(listener.accept().expect("the client below").0));
        Client::connect(address)
    }

    fn read_request(stream: &mut TcpStream) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a whole request");
            request.push(byte[0]);
        }
    }

    #[test]
    fn responses_sent_together_are_read_one_by_one() {
        let mut client = serve(|mut stream| {
            read_request(&mut stream);
            let two = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 204 No Content\r\n\r\n";
            stream.write_all(two).expect("the client reads");
        });
        assert_eq!(client.get("/").text(), "a");
        assert_eq!(client.response().status, 204);
        assert_eq!(client.try_response(), Err(ReadError::Closed));
    }

    #[test]
    fn a_body_cut_short_is_told_from_a_close() {
        let mut client = serve(|mut stream| {
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").expect("the client reads");
        });
        client.send("GET / HTTP/1.1\r\n\r\n");
        assert!(matches!(client.try_response(), Err(ReadError::Malformed(_))));
    }

    #[test]
    fn a_reset_is_told_from_a_close() {
        // Not before the client is connected: a reset that comes first fails that.
        let mut client = serve(|mut stream| {
            stream.read_exact(&mut [0]).expect("the client's byte");
            weir_sys::socket::set_linger_zero(&stream).expect("a TCP socket");
        });
        client.send("x");
        assert_eq!(client.rest(), (Vec::new(), ConnectionEnd::Reset));
        serve(drop).expect_close();
    }

    /// How the server's first read ends.
    fn read_by_server(
        leave: impl FnOnce(&mut Client) + 'static,
    ) -> (Client, Receiver<Result<usize, ErrorKind>>) {
        let (sender, ends) = channel();
        let mut client = serve(move |mut stream| {
            let end = stream.read(&mut [0; 8]).map_err(|error| error.kind());
            sender.send(end).expect("the test waits");
        });
        leave(&mut client);
        (client, ends)
    }

    #[test]
    fn a_server_sees_an_abort_as_reset_and_a_half_close_as_end() {
        let (_client, ends) = read_by_server(|client| {
            client.half_close();
        });
        assert_eq!(ends.recv_timeout(DEADLINE), Ok(Ok(0)));
        let (client, ends) = read_by_server(|_| {});
        client.abort();
        assert_eq!(ends.recv_timeout(DEADLINE), Ok(Err(ErrorKind::ConnectionReset)));
    }
}
