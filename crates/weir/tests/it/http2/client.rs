//! A client of HTTP/2 that does what a test says and stores what it receives.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use weir_http::h2::{DataGrant, ErrorCode, H2Config, H2Connection, H2Event, StreamEnd, StreamKey};
use weir_http::hpack::{FieldIndexing, SectionLimits};
use weir_test::DEADLINE;

/// What came on a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) interim: Vec<u16>,
    pub(crate) ended: bool,
    pub(crate) reset: Option<ErrorCode>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Client {
    socket: TcpStream,
    pub(crate) conn: H2Connection,
    input: Vec<u8>,
    out: Vec<u8>,
    bodies: HashMap<StreamKey, (Vec<u8>, usize)>,
    pub(crate) answers: HashMap<StreamKey, Answer>,
    /// The streams of pieces of content, in the order in which they came.
    pub(crate) order: Vec<StreamKey>,
    pub(crate) goaway: Option<(u32, ErrorCode)>,
    /// Content is used, so that windows open, as it comes.
    pub(crate) reads: bool,
    pub(crate) closed: bool,
    /// The request that is begun gets its content later.
    open_ended: bool,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        Client::with_window(addr, 1 << 20)
    }

    /// A client that lets the server send `window` bytes on each stream.
    pub(crate) fn with_window(addr: SocketAddr, window: u32) -> Client {
        let socket = TcpStream::connect(addr).expect("the server listens");
        let mut client = Client::over(socket, window);
        client.flush();
        client
    }

    /// A connection that begins as HTTP/1.1: it asks for `path`, and gets the response on the stream that is returned.
    pub(crate) fn upgrade(addr: SocketAddr, path: &str) -> (Client, StreamKey) {
        Client::upgrade_with(addr, &format!("GET {path}"), "\r\n")
    }

    /// As `upgrade`, of a request that begins with `line`, a method and a path; `rest` is its last fields and its body.
    pub(crate) fn upgrade_with(addr: SocketAddr, line: &str, rest: &str) -> (Client, StreamKey) {
        let mut socket = TcpStream::connect(addr).expect("the server listens");
        let head = "Host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
        socket.write_all(format!("{line} HTTP/1.1\r\n{head}{rest}").as_bytes()).expect("the server reads");
        let expected = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
        let mut answer = vec![0; expected.len()];
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        socket.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, expected, "{}", answer.escape_ascii());
        let mut client = Client::over(socket, 65_535);
        // The stream is there without a frame.
        let key = client.conn.open(StreamEnd::Last, &mut Vec::new(), |_, _| {}).expect("streams are free");
        client.answers.insert(key, Answer::default());
        client.flush();
        (client, key)
    }

    fn over(socket: TcpStream, window: u32) -> Client {
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let headers = SectionLimits::new(1 << 16, 1000);
        let config = H2Config {
            max_streams: 0,
            stream_window: window,
            window: 1 << 20,
            headers,
            max_frame: weir_http::h2::MIN_FRAME,
            connect_protocol: false,
        };
        let mut out = Vec::new();
        let conn = H2Connection::client(&config, &mut out);
        Client {
            socket,
            conn,
            input: Vec::new(),
            out,
            bodies: HashMap::new(),
            answers: HashMap::new(),
            order: Vec::new(),
            goaway: None,
            reads: true,
            closed: false,
            open_ended: false,
        }
    }

    /// Asks for a tunnel of `protocol` and sends `bytes` through it.
    pub(crate) fn tunnel(&mut self, protocol: &str, path: &str, bytes: &[u8]) -> StreamKey {
        self.begin("CONNECT", b"localhost", path, Some(protocol), &[], Some(bytes))
    }

    /// Asks for `path`.
    pub(crate) fn get(&mut self, path: &str) -> StreamKey {
        self.open("GET", path, &[], None)
    }

    /// Asks for `path` and waits for all of the response.
    pub(crate) fn fetch(&mut self, path: &str) -> Answer {
        let key = self.get(path);
        self.answer(key)
    }

    /// Asks `host` for `path` and waits for all of the response.
    pub(crate) fn fetch_from(&mut self, host: &str, path: &str) -> Answer {
        let key = self.begin("GET", host.as_bytes(), path, None, &[], None);
        self.answer(key)
    }

    /// Begins a request; a body is sent as the windows allow.
    pub(crate) fn open(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> StreamKey {
        self.begin(method, b"localhost", path, None, fields, body)
    }

    /// Begins a request whose content is sent by [`Client::send`].
    pub(crate) fn begin_body(&mut self, path: &str, fields: &[(&str, &str)]) -> StreamKey {
        self.open_ended = true;
        let key = self.begin("POST", b"localhost", path, None, fields, Some(b""));
        self.open_ended = false;
        key
    }

    /// Sends more of a request's content.
    pub(crate) fn send(&mut self, key: StreamKey, bytes: &[u8], last: bool) {
        self.bodies.entry(key).or_default().0.extend_from_slice(bytes);
        self.conn.offer(key, bytes.len() as u64, StreamEnd::last_if(last));
        self.flush();
    }

    fn begin(
        &mut self,
        method: &str,
        host: &[u8],
        path: &str,
        protocol: Option<&str>,
        fields: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> StreamKey {
        let write = |coder: &mut weir_http::hpack::HpackEncoder, out: &mut Vec<u8>| {
            coder.pseudo(":method", method.as_bytes(), out);
            coder.pseudo(":scheme", b"http", out);
            coder.pseudo(":authority", host, out);
            coder.pseudo(":path", path.as_bytes(), out);
            if let Some(protocol) = protocol {
                coder.pseudo(":protocol", protocol.as_bytes(), out);
            }
            for (name, value) in fields {
                coder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Allowed, out);
            }
        };
        let key = self
            .conn
            .open(StreamEnd::last_if(body.is_none()), &mut self.out, write)
            .expect("streams are free");
        self.answers.insert(key, Answer::default());
        if let Some(body) = body {
            // What is to be sent later, through a tunnel or piece by piece, leaves the stream open.
            self.conn.offer(
                key,
                body.len() as u64,
                StreamEnd::last_if(protocol.is_none() && !self.open_ended),
            );
            self.bodies.insert(key, (body.to_vec(), 0));
        }
        self.flush();
        key
    }

    /// Sends `bytes` as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.flush();
    }

    /// Lets the server send `bytes` more on a stream.
    pub(crate) fn open_window(&mut self, key: StreamKey, bytes: u32) {
        let frame = [&[0, 0, 4, 8, 0][..], &self.conn.id(key).to_be_bytes(), &bytes.to_be_bytes()].concat();
        self.raw(&frame);
    }

    pub(crate) fn reset(&mut self, key: StreamKey) {
        self.conn.reset(key, ErrorCode::Cancel, &mut self.out);
        self.flush();
    }

    /// Waits for the whole response on `key`.
    #[track_caller]
    pub(crate) fn answer(&mut self, key: StreamKey) -> Answer {
        self.until("an answer", |client| {
            client.answers.get(&key).is_some_and(|answer| answer.ended || answer.reset.is_some())
        });
        self.conn.release(key, &mut self.out);
        self.answers.remove(&key).expect("it is there")
    }

    /// Reads until `done`.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Client) -> bool) {
        while !done(self) {
            assert!(!self.closed, "connection closed while waiting for {what}: {:?}", self.goaway);
            self.read();
        }
    }

    /// Reads until the server closes.
    pub(crate) fn until_closed(&mut self) {
        while !self.closed {
            self.read();
        }
    }

    fn read(&mut self) {
        let mut buf = [0; 65_536];
        match self.socket.read(&mut buf) {
            Ok(0) => self.closed = true,
            Ok(n) => self.input.extend_from_slice(&buf[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => self.closed = true,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return,
            Err(error) => panic!("{error}"),
        }
        self.take();
        self.flush();
    }

    fn take(&mut self) {
        loop {
            let received = self.conn.receive(&self.input, 0, &mut self.out);
            let (used, event) = received.unwrap_or_else(|failure| panic!("server {failure}"));
            if let Some(event) = &event {
                self.event(event);
            }
            self.input.drain(..used);
            if event.is_none() {
                return;
            }
        }
    }

    fn event(&mut self, event: &H2Event) {
        let fields = || {
            let section = self.conn.section();
            let text = |span: weir_http::Span| String::from_utf8_lossy(span.of(&section.text)).into_owned();
            section.items.iter().map(|item| (text(item.label), text(item.value))).collect::<Vec<_>>()
        };
        let status = self.conn.message().status;
        match event {
            H2Event::Head { key, end } => {
                let fields = fields();
                let Some(answer) = self.answers.get_mut(key) else { return };
                (answer.status, answer.fields) = (status.expect("checked"), fields);
                answer.ended = *end;
            }
            H2Event::Interim { key } => {
                if let Some(answer) = self.answers.get_mut(key) {
                    answer.interim.push(status.expect("checked"));
                }
            }
            H2Event::Data { key, range, end } => {
                let bytes = &self.input[range.clone()];
                if self.reads {
                    self.conn.consumed(*key, bytes.len() as u64, &mut self.out);
                }
                let Some(answer) = self.answers.get_mut(key) else { return };
                answer.body.extend_from_slice(bytes);
                answer.ended |= end;
                self.order.push(*key);
            }
            H2Event::Trailers { key } => {
                let fields = fields();
                let Some(answer) = self.answers.get_mut(key) else { return };
                (answer.trailers, answer.ended) = (fields, true);
            }
            H2Event::Reset { key, code, .. } => {
                if let Some(answer) = self.answers.get_mut(key) {
                    answer.reset = Some(*code);
                }
            }
            H2Event::Malformed { reason, .. } => panic!("server {reason}"),
            H2Event::GoAway { last, code } => self.goaway = Some((*last, *code)),
        }
    }

    /// Sends what is there, bodies as far as the windows go.
    pub(crate) fn flush(&mut self) {
        while let Some(DataGrant { key, len, .. }) = self.conn.next_data(&mut self.out) {
            let (body, sent) = self.bodies.get_mut(&key).expect("a body was offered");
            self.out.extend_from_slice(&body[*sent..*sent + len as usize]);
            *sent += len as usize;
        }
        let out = std::mem::take(&mut self.out);
        if let Err(error) = self.socket.write_all(&out) {
            // The server may have closed; what it said before is still to be read.
            self.closed |= error.kind() == std::io::ErrorKind::NotConnected;
        }
    }
}
