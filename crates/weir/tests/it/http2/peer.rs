//! A server of HTTP/2 that does what the paths of requests say, and stores what it received.

use std::collections::HashMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_http::h2::{DataGrant, ErrorCode, H2Config, H2Connection, H2Event, StreamEnd, StreamKey};
use weir_http::hpack::{FieldIndexing, HpackEncoder, SectionLimits};

/// What a [`Peer`] saw.
#[derive(Default)]
pub(crate) struct Seen {
    /// Connections so far.
    pub(crate) connections: usize,
    /// `:path`s in the order in which they came.
    pub(crate) paths: Vec<String>,
    /// Fields of the last request.
    pub(crate) fields: Vec<(String, String)>,
    /// Streams that the other side has reset: their paths.
    pub(crate) resets: Vec<(String, ErrorCode)>,
    /// Bytes of content sent for a path.
    pub(crate) sent: HashMap<String, u64>,
    /// Connections that the other side has ended.
    pub(crate) ended: usize,
    /// The response to `grpc.health.v1.Health/Check`: 1 serving, 2 not; 0: there is no such method.
    pub(crate) health: u8,
}

/// A server; each connection has a thread.
pub(crate) struct Peer {
    pub(crate) port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Peer {
    /// Listens on a free port.
    ///
    /// * `/echo`: content comes back as it comes, with a trailer;
    /// * `/whole`: the length of the content, when all of it has come;
    /// * `/conn`: the number of the connection;
    /// * `/refused`: the first stream of all is refused, the next ones get responses as `/conn`;
    /// * `/away`: the first connection says goodbye instead of a response;
    /// * `/forbidden`: 403, a head alone;
    /// * `/rejected`: an error instead of a response;
    /// * `/broken`: an error after the head;
    /// * `/cut`: an error after ten bytes of a hundred;
    /// * `/status`: a response of a head alone, as gRPC reports errors;
    /// * `/grpc.health.v1.Health/Check`: what [`Seen::health`] says;
    /// * `/big`: four megabytes; `/silent`: nothing.
    pub(crate) fn start() -> Peer {
        Peer::start_with(true)
    }

    /// The same; `tunnels`: extended CONNECT is taken.
    pub(crate) fn start_with(tunnels: bool) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let all = seen.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let seen = all.clone();
                std::thread::spawn(move || {
                    let number = {
                        let mut seen = lock(&seen);
                        seen.connections += 1;
                        seen.connections
                    };
                    Link::new(socket, number, seen.clone(), tunnels).run();
                    lock(&seen).ended += 1;
                });
            }
        });
        Peer { port, seen }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Link {
    socket: TcpStream,
    number: usize,
    seen: Arc<Mutex<Seen>>,
    conn: H2Connection,
    out: Vec<u8>,
    streams: HashMap<StreamKey, Request>,
}

struct Request {
    path: String,
    received: usize,
    content: Vec<u8>,
    trailer: bool,
}

impl Link {
    fn new(socket: TcpStream, number: usize, seen: Arc<Mutex<Seen>>, tunnels: bool) -> Link {
        let config = H2Config {
            max_streams: 100,
            stream_window: 65_535,
            window: 1 << 20,
            headers: SectionLimits::new(1 << 16, 1000),
            max_frame: weir_http::h2::MIN_FRAME,
            connect_protocol: tunnels,
        };
        let mut out = Vec::new();
        let conn = H2Connection::server(&config, &mut out);
        Link { socket, number, seen, conn, out, streams: HashMap::new() }
    }

    /// Until the other side is gone.
    fn run(&mut self) {
        let mut input = Vec::new();
        let mut buf = [0; 65_536];
        loop {
            self.flush();
            match weir_test::read_some(&mut self.socket, &mut buf) {
                Ok(0) | Err(_) => return,
                Ok(n) => input.extend_from_slice(&buf[..n]),
            }
            loop {
                let Ok((used, event)) = self.conn.receive(&input, 0, &mut self.out) else { return };
                let Some(event) = event else {
                    input.drain(..used);
                    break;
                };
                self.event(&event, &input);
                input.drain(..used);
            }
        }
    }

    fn event(&mut self, event: &H2Event, input: &[u8]) {
        match event {
            H2Event::Head { key, end } => self.begun(*key, *end),
            H2Event::Data { key, range, end } => {
                let content = &input[range.clone()];
                self.conn.consumed(*key, content.len() as u64, &mut self.out);
                self.content(*key, content, *end);
            }
            H2Event::Trailers { key } => self.content(*key, &[], true),
            H2Event::Reset { key, code, .. } => {
                if let Some(request) = self.streams.remove(key) {
                    lock(&self.seen).resets.push((request.path, *code));
                }
                self.conn.release(*key, &mut self.out);
            }
            _ => {}
        }
    }

    fn begun(&mut self, key: StreamKey, end: bool) {
        let section = self.conn.section();
        let text = |span: weir_http::Span| String::from_utf8_lossy(span.of(&section.text)).into_owned();
        let fields: Vec<_> = section.items.iter().map(|item| (text(item.label), text(item.value))).collect();
        let path = fields.iter().find(|(name, _)| name == ":path").map(|(_, path)| path.clone());
        let path = path.unwrap_or_default();
        let earlier = {
            let mut seen = lock(&self.seen);
            seen.fields = fields;
            seen.paths.push(path.clone());
            seen.paths.iter().filter(|other| **other == path).count() - 1
        };
        let request = Request { path: path.clone(), received: 0, content: Vec::new(), trailer: false };
        self.streams.insert(key, request);
        match path.as_str() {
            "/refused" if earlier == 0 => return self.conn.reset(key, ErrorCode::Refused, &mut self.out),
            "/away" if earlier == 0 => {
                // GOAWAY, stream 0, nothing was begun with, no error.
                self.out.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                return;
            }
            "/rejected" => return self.conn.reset(key, ErrorCode::Internal, &mut self.out),
            "/silent" => return,
            "/status" => return self.head(key, true),
            "/broken" => {
                self.head(key, false);
                self.flush();
                return self.conn.reset(key, ErrorCode::Internal, &mut self.out);
            }
            "/cut" => {
                self.head(key, false);
                self.give(key, b"only ten.\n", false);
                self.flush();
                return self.conn.reset(key, ErrorCode::Internal, &mut self.out);
            }
            "/whole" => {}
            "/forbidden" => {
                return self
                    .conn
                    .head(key, StreamEnd::Last, &mut self.out, |coder, out| coder.status(403, out));
            }
            HEALTH if lock(&self.seen).health == 0 => return self.head(key, true),
            HEALTH => {
                self.head(key, false);
                let message = [0, 0, 0, 0, 2, 8, lock(&self.seen).health];
                self.give(key, &message, false);
            }
            "/echo" => self.head(key, false),
            "/big" => {
                self.head(key, false);
                self.give(key, &vec![b'b'; BIG], false);
            }
            _ => {
                self.head(key, false);
                let number = self.number.to_string();
                self.give(key, number.as_bytes(), false);
            }
        }
        if end {
            self.content(key, &[], true);
        }
    }

    fn content(&mut self, key: StreamKey, content: &[u8], end: bool) {
        let Some(request) = self.streams.get_mut(&key) else { return };
        request.received += content.len();
        let (path, received) = (request.path.clone(), request.received);
        if path == "/echo" {
            self.give(key, content, false);
        }
        if end && path == "/whole" {
            self.head(key, false);
            self.give(key, received.to_string().as_bytes(), false);
        }
        if end
            && path != "/silent"
            && let Some(request) = self.streams.get_mut(&key)
        {
            request.trailer = true;
        }
    }

    fn head(&mut self, key: StreamKey, end: bool) {
        self.conn.head(key, StreamEnd::last_if(end), &mut self.out, |coder, out| {
            coder.status(200, out);
            field(coder, "content-type", "application/grpc", out);
            if end {
                field(coder, "grpc-status", "12", out);
            }
        });
    }

    fn give(&mut self, key: StreamKey, content: &[u8], last: bool) {
        if let Some(request) = self.streams.get_mut(&key) {
            request.content.extend_from_slice(content);
            self.conn.offer(key, content.len() as u64, StreamEnd::last_if(last));
        }
    }

    /// Sends what may be sent, and trailers after content that has gone.
    fn flush(&mut self) {
        while let Some(DataGrant { key, len, .. }) = self.conn.next_data(&mut self.out) {
            let Some(request) = self.streams.get_mut(&key) else { continue };
            self.out.extend(request.content.drain(..len as usize));
            *lock(&self.seen).sent.entry(request.path.clone()).or_default() += len;
        }
        let done: Vec<StreamKey> = self
            .streams
            .iter()
            .filter(|(_, it)| it.trailer && it.content.is_empty())
            .map(|(key, _)| *key)
            .collect();
        for key in done {
            self.streams.remove(&key);
            self.conn.head(key, StreamEnd::Last, &mut self.out, |coder, out| {
                field(coder, "grpc-status", "0", out);
                field(coder, "x-last", "yes", out);
            });
            self.conn.release(key, &mut self.out);
        }
        let out = std::mem::take(&mut self.out);
        // A peer that has left is noticed by the next read.
        let _ = self.socket.write_all(&out);
    }
}

fn field(coder: &mut HpackEncoder, name: &str, value: &str, out: &mut Vec<u8>) {
    coder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Allowed, out);
}

const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// Bytes of `/big`.
pub(crate) const BIG: usize = 4 << 20;
