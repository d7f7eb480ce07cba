//! What the log says was sent is what came, on every transport and from every source of a body: bills are made from it.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use weir_test::{
    Backend, DEADLINE, Driver, FcgiApp, FcgiOut, Server, both_drivers, read_some, require_program, wait_for,
};

use super::attacks::frame;
use super::tls::own;
use crate::scgi_uwsgi::read as read_cgi;

/// Bytes that came: all of them, and those of the body; as in nginx with the framing of chunks, and without that of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) whole: u64,
    pub(super) body: u64,
}

const SIZES: [usize; 7] = [0, 1, 8192, 8193, 65_536, 65_537, 1 << 20];

fn connect(addr: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(addr).expect("the server listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    socket
}

/// By HTTP/1, on a connection that the server closes.
fn ask_h1(addr: SocketAddr, version: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Came {
    let mut socket = connect(addr);
    let mut head = format!("{method} {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n");
    fields.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    socket.write_all(format!("{head}\r\n").as_bytes()).expect("the server reads");
    let mut all = Vec::new();
    socket.read_to_end(&mut all).expect("an answer");
    let head = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    Came { whole: all.len() as u64, body: (all.len() - head) as u64 }
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127);
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// By HTTP/2 without TLS, frame by frame.
fn ask_h2(addr: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)]) -> Came {
    let mut socket = connect(addr);
    let usual = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a")];
    let block: Vec<u8> = usual.iter().chain(fields).flat_map(|(name, value)| literal(name, value)).collect();
    let wide = [&[0, 4][..], &(1_u32 << 30).to_be_bytes()].concat();
    let mut out = weir_http::h2::PREFACE.to_vec();
    out.extend(
        [frame(4, 0, 0, &wide), frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()), frame(1, 5, 1, &block)]
            .concat(),
    );
    socket.write_all(&out).expect("the server reads");
    let mut came = Came { whole: 0, body: 0 };
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).expect("a frame");
        let [a, b, c, kind, flags, .., stream] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        socket.read_exact(&mut vec![0; length as usize]).expect("a whole frame");
        assert!(kind != 3 && kind != 7, "an end: {head:?}");
        if stream == 1 && kind < 2 {
            came.whole += 9 + u64::from(length);
            came.body += if kind == 0 { u64::from(length) } else { 0 };
            if flags & 1 == 1 {
                return came;
            }
        }
    }
}

/// What was logged of the request with that number.
pub(super) fn logged(server: &Server, number: usize) -> Came {
    let file = server.dir().path().join("sent.log");
    wait_for("the line of the request", || {
        let text = std::fs::read_to_string(&file).ok()?;
        // What is being written may be there in part.
        let text = &text[..=text.rfind('\n')?];
        let line = text.lines().find(|line| line.contains(&format!("?id={number} ")))?.to_owned();
        let mut words = line.split(' ').skip(1).map(|word| word.parse().expect("a number"));
        Some(Came { whole: words.next()?, body: words.next()? })
    })
}

/// What an application says to a request for a path that ends in a number: this many bytes.
fn says(path: &str) -> String {
    let size = path.rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or(0);
    format!("Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n{}", "x".repeat(size))
}

/// An application of SCGI or uwsgi, whose requests have the path as the value of `REQUEST_URI`.
fn application(protocol: &'static str) -> Backend {
    Backend::start(move |visit| {
        let Some((_, pairs, _)) = read_cgi(visit, protocol) else { return };
        let path = pairs.iter().find(|(name, _)| name == "REQUEST_URI").map(|(_, value)| value.as_str());
        visit.send(says(path.unwrap_or_default()));
    })
}

/// The server, and those that it asks.
struct Served {
    server: Server,
    _applications: (FcgiApp, [Backend; 2]),
}

impl std::ops::Deref for Served {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn serve(driver: Driver) -> Served {
    let pair = own("localhost");
    let fastcgi = FcgiApp::start(|request| {
        let text = says(request.param("REQUEST_URI"));
        let pieces = text.as_bytes().chunks(60_000).map(|piece| FcgiOut::Stdout(piece.to_vec()));
        pieces.chain([FcgiOut::Stdout(Vec::new()), FcgiOut::End]).collect()
    });
    let cgi = ["scgi", "uwsgi"].map(application);
    let conf = "http { log_format sent '$request_uri $bytes_sent $body_bytes_sent'; access_log sent.log sent;
            ssl_certificate a.crt; ssl_certificate_key a.key; root files; sub_filter_types *;
            proxy_cache_path cache keys_zone=kept:1m; gzip_types *; gzip_min_length 1;
            server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; http2 on;
                error_page 404 /pages/8193;
                location /plain/ { alias files/; sendfile off; }
                location /sendfile/ { alias files/; sendfile on; }
                location /threads/ { alias files/; aio threads; }
                location /direct/ { alias files/; directio 512; }
                location /kept_open/ { alias files/; open_file_cache max=10; }
                location /gzip/ { alias files/; gzip on; }
                location /sub/ { alias files/; sub_filter y z; sub_filter_once off; }
                location /ssi/ { ssi on; ssi_types *; alias includes/; }
                location /pages/ { alias files/; }
                location /print/ { content_by_lua_block { ngx.print(string.rep('x', tonumber(ngx.var.uri:match('%d+')))) } }
                location /say/ { content_by_lua_block {
                    for _ = 1, tonumber(ngx.var.uri:match('%d+')) / 1000 do ngx.say(string.rep('x', 999)) end } }
                location /return { return 200 'some text'; }
                location /buffered/ { proxy_pass http://127.0.0.1:%%PORT_2%%/; }
                location /unbuffered/ { proxy_buffering off; proxy_pass http://127.0.0.1:%%PORT_2%%/; }
                location /cached/ { proxy_cache kept; proxy_cache_valid any 1h; proxy_cache_key $uri;
                    proxy_pass http://127.0.0.1:%%PORT_2%%/; }
                location /fastcgi/ { fastcgi_pass 127.0.0.1:FASTCGI; fastcgi_param REQUEST_URI $uri; }
                location /scgi/ { scgi_pass 127.0.0.1:SCGI; scgi_param REQUEST_URI $uri; }
                location /uwsgi/ { uwsgi_pass 127.0.0.1:UWSGI; uwsgi_param REQUEST_URI $uri; }
                location /grpc/ { rewrite ^/grpc(.*) $1 break; grpc_pass grpc://127.0.0.1:%%PORT_2%%; }
                location /gzip_cached/ { gzip on; gzip_proxied any; proxy_cache kept; proxy_cache_valid any 1h;
                    proxy_cache_key $uri; proxy_pass http://127.0.0.1:%%PORT_2%%/; }
                location /gzip_fastcgi/ { gzip on; fastcgi_pass 127.0.0.1:FASTCGI; fastcgi_param REQUEST_URI $uri; }
                location /slice/ { slice 10k; proxy_cache kept; proxy_cache_key $uri$slice_range; proxy_cache_valid any 1h;
                    proxy_set_header Range $slice_range; proxy_http_version 1.1; proxy_pass http://127.0.0.1:%%PORT_2%%/; } }
            server { listen 127.0.0.1:%%PORT_2%%; http2 on; access_log off; } }";
    let mut conf = conf.to_owned();
    for (name, port) in [("FASTCGI", fastcgi.port()), ("UWSGI", cgi[1].port()), ("SCGI", cgi[0].port())] {
        conf = conf.replace(&format!(":{name};"), &format!(":{port};"));
    }
    let mut builder =
        Server::builder(&conf).file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver);
    for size in SIZES {
        builder = builder
            .file(&format!("files/{size}"), vec![b'x'; size])
            .file(&format!("includes/{size}"), format!("<!--#include virtual=\"/pages/{size}\" -->"));
    }
    for size in [MIDDLE, BIG] {
        let file = std::fs::File::create(builder.dir().join(format!("files/{size}")));
        file.and_then(|file| file.set_len(size as u64)).expect("ours");
    }
    Served { server: builder.start(), _applications: (fastcgi, cgi) }
}

const SOURCES: [&str; 22] = [
    "plain",
    "sendfile",
    "threads",
    "direct",
    "kept_open",
    "gzip",
    "sub",
    "ssi",
    "print",
    "say",
    "buffered",
    "unbuffered",
    "cached",
    "cached",
    "slice",
    "fastcgi",
    "scgi",
    "uwsgi",
    "grpc",
    "gzip_cached",
    "gzip_cached",
    "gzip_fastcgi",
];

/// What sends a large body in other ways than each other.
const LARGE: [&str; 11] = [
    "plain",
    "sendfile",
    "print",
    "say",
    "buffered",
    "unbuffered",
    "fastcgi",
    "scgi",
    "cached",
    "slice",
    "grpc",
];
/// More than a connection and the sockets hold at a time.
const BIG: usize = 24 << 20;
/// The framing of the chunks of a megabyte takes no more, in pieces of 4 KB.
const FRAMING: u64 = 4000;
/// Of several streams at a time.
const MIDDLE: usize = 2 << 20;

/// A connection of HTTP/2 without TLS that counts the bytes of its streams.
pub(super) struct Link {
    socket: TcpStream,
    came: HashMap<u32, Came>,
    over: HashSet<u32>,
    pongs: usize,
    /// Nothing more comes.
    pub(super) ended: bool,
}

impl Link {
    /// A connection whose windows hold `window` bytes.
    pub(super) fn open(server: &Server, window: u32) -> Link {
        let socket = connect(server.addr(0));
        let wide = [&[0, 4][..], &window.to_be_bytes()].concat();
        let mut link = Link { socket, came: HashMap::new(), over: HashSet::new(), pongs: 0, ended: false };
        let frames = [frame(4, 0, 0, &wide), frame(8, 0, 0, &(window - 65_535).to_be_bytes())].concat();
        link.send(&[&weir_http::h2::PREFACE[..], &frames].concat());
        link
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    pub(super) fn ask(&mut self, stream: u32, path: &str) {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.send(&frame(1, 5, stream, &block));
    }

    pub(super) fn came(&self, stream: u32) -> Came {
        self.came.get(&stream).copied().unwrap_or(Came { whole: 0, body: 0 })
    }

    pub(super) fn body(&self, stream: u32) -> u64 {
        self.came(stream).body
    }

    pub(super) fn over(&self, stream: u32) -> bool {
        self.over.contains(&stream)
    }

    /// A PING was answered.
    pub(super) fn ponged(&self) -> bool {
        self.pongs > 0
    }

    /// Reads whatever still comes.
    pub(super) fn read_to_end(&mut self) {
        while !self.ended {
            self.frame();
        }
    }

    /// Leaves with a reset.
    pub(super) fn reset(self) {
        weir_sys::socket::set_linger_zero(&self.socket).expect("a TCP socket");
    }

    /// Reads frames until that is so.
    #[track_caller]
    pub(super) fn until(&mut self, done: impl Fn(&Link) -> bool) {
        while !done(self) {
            assert!(!self.ended, "the end: {:?}", self.came);
            self.frame();
        }
    }

    /// As many of `buffer`'s bytes as come.
    fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() && !self.ended {
            let read = read_some(&mut self.socket, &mut buffer[done..]).expect("no reset, and in time");
            (done, self.ended) = (done + read, read == 0);
        }
        done
    }

    /// A frame, or what comes of it.
    fn frame(&mut self) {
        let mut head = [0; 9];
        let head_came = self.fill(&mut head);
        if head_came < head.len() {
            return;
        }
        let [a, b, c, kind, flags, d, e, f, g] = head;
        let (length, stream) = (u32::from_be_bytes([0, a, b, c]), u32::from_be_bytes([d, e, f, g]));
        let content = self.fill(&mut vec![0; length as usize]) as u64;
        self.pongs += usize::from(kind == 6 && flags & 1 == 1);
        if kind < 2 {
            let came = self.came.entry(stream).or_insert(Came { whole: 0, body: 0 });
            came.whole += 9 + content;
            came.body += if kind == 0 { content } else { 0 };
            if flags & 1 == 1 {
                self.over.insert(stream);
            }
        }
    }
}

both_drivers! {
    fn the_log_says_what_came(driver) {
        let server = serve(driver);
        let (addr, mut wrong, mut number) = (server.addr(0), Vec::new(), 0);
        let mut all = |method: &str, path: &str, fields: &[(&str, &str)]| {
            for transport in ["1.0", "1.1", "2"] {
                number += 1;
                let path = format!("{path}?id={number}");
                let came = match transport {
                    "2" => ask_h2(addr, method, &path, fields),
                    version => ask_h1(addr, version, method, &path, fields),
                };
                let logged = logged(&server, number);
                if came != logged {
                    wrong.push(format!("HTTP/{transport} {method} {path} {fields:?}: {came:?}, but {logged:?}"));
                }
            }
        };
        for source in SOURCES {
            for size in SIZES {
                let fields: &[_] = if source.starts_with("gzip") { &[("accept-encoding", "gzip")] } else { &[] };
                all("GET", &format!("/{source}/{size}"), fields);
            }
        }
        for path in ["/return", "/none", "/plain/65536", "/print/20000", "/buffered/20000"] {
            all("GET", path, &[]);
            all("HEAD", path, &[]);
        }
        for source in ["plain", "sendfile", "cached", "buffered"] {
            all("GET", &format!("/{source}/65536"), &[("range", "bytes=100-50099")]);
            all("GET", &format!("/{source}/65536"), &[("range", "bytes=100-50099,60000-60099")]);
            all("GET", &format!("/{source}/65536"), &[("range", "bytes=70000-")]);
        }
        all("GET", "/plain/65536", &[("if-modified-since", "Fri, 31 Dec 2100 23:59:59 GMT")]);
        assert!(wrong.is_empty(), "{} of {number}:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// Over TLS, by curl, which counts the body without the framing of chunks and without frames.
    fn the_log_says_what_came_over_tls(driver) {
        let Some(curl) = require_program("curl") else { return };
        let server = serve(driver);
        let (mut number, mut wrong) = (0, Vec::new());
        for version in ["--http1.0", "--http1.1", "--http2"] {
            let mut command = Command::new(&curl);
            command.args(["-sSk", "--noproxy", "*", "--max-time", "90", "-H", "accept-encoding: gzip", version]);
            command.args(["-w", "%{size_header} %{size_download}\n"]);
            let mut asked = Vec::new();
            for (source, size) in SOURCES.iter().flat_map(|source| SIZES.map(|size| (source, size))) {
                number += 1;
                asked.push((format!("{version} {source} {size}"), number));
                command.args(["-o", "/dev/null", &format!("https://{}/{source}/{size}?id={number}", server.addr(1))]);
            }
            let output = command.output().expect("curl runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.lines().count(), asked.len(), "{text} {output:?}");
            for (line, (what, number)) in text.lines().zip(asked) {
                let (head, body) = line.split_once(' ').expect("two numbers");
                let (head, body): (u64, u64) = (head.parse().expect("a number"), body.parse().expect("a number"));
                let logged = logged(&server, number);
                let framing = logged.body.saturating_sub(body);
                let whole = if version == "--http2" { logged.whole } else { head + body + framing };
                let most = if version == "--http1.1" { FRAMING } else { 0 };
                if logged != (Came { whole, body: body + framing }) || framing > most || logged.whole <= body {
                    wrong.push(format!("{what}: {head} and {body}, but {logged:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {number}:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// A stream that its client resets, with the connection in order: frame by frame what came.
    fn the_log_says_what_came_of_a_stream_that_was_reset(driver) {
        let server = serve(driver);
        let mut wrong = Vec::new();
        for (number, source) in LARGE.iter().enumerate() {
            let mut link = Link::open(&server, 1 << 30);
            link.ask(1, &format!("/{source}/{BIG}?id={number}"));
            link.until(|link| link.body(1) >= 100_000 || link.over(1));
            link.send(&[frame(3, 0, 1, &[0, 0, 0, 8]), frame(6, 0, 0, &[7; 8])].concat());
            link.until(|link| link.pongs == 1);
            let (came, logged) = (link.came(1), logged(&server, number));
            if came != logged || came.body < 100_000 {
                wrong.push(format!("{source}: {came:?}, but {logged:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The client ends its direction, or says GOAWAY, with several streams open, and counts what still comes.
    fn the_log_says_what_came_before_the_connection_ended(driver) {
        let server = serve(driver);
        let (mut wrong, mut number) = (Vec::new(), 0);
        for source in LARGE {
            for goaway in [true, false] {
                let mut link = Link::open(&server, 1 << 30);
                let streams = [1, 3, 5].map(|stream| {
                    number += 1;
                    link.ask(stream, &format!("/{source}/{MIDDLE}?id={number}"));
                    (stream, number)
                });
                link.until(|link| streams.iter().all(|(stream, _)| link.body(*stream) >= 10_000));
                if goaway {
                    link.send(&frame(7, 0, 0, &[0; 8]));
                    link.until(|link| streams.iter().all(|(stream, _)| link.over(*stream)));
                } else {
                    link.socket.shutdown(Shutdown::Write).expect("connected");
                    link.until(|link| link.ended);
                }
                for (stream, number) in streams {
                    let (came, logged) = (link.came(stream), logged(&server, number));
                    if came != logged || came.body < 10_000 {
                        wrong.push(format!("{source}, GOAWAY: {goaway}, {stream}: {came:?}, but {logged:?}"));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A client that leaves got no more than was logged, and what was logged is not what it never could get.
    fn the_log_says_what_a_client_that_left_could_get(driver) {
        let server = serve(driver);
        std::fs::File::create(server.dir().path().join("files/big")).and_then(|file| file.set_len(64 << 20)).expect("a file");
        let mut socket = connect(server.addr(0));
        socket.write_all(b"GET /plain/big?id=1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("the server reads");
        let mut part = vec![0; 100_000];
        socket.read_exact(&mut part).expect("some of it");
        drop(socket);
        let came = logged(&server, 1);
        assert!(came.whole >= 100_000 && came.body < 64 << 20, "{came:?}");
        let mut socket = connect(server.addr(0));
        let block: Vec<u8> = [(":method", "GET"), (":scheme", "http"), (":path", "/plain/big?id=2"), (":authority", "a")]
            .iter().flat_map(|(name, value)| literal(name, value)).collect();
        let out = [&weir_http::h2::PREFACE[..], &frame(4, 0, 0, &[]), &frame(1, 5, 1, &block)].concat();
        socket.write_all(&out).expect("the server reads");
        let mut part = vec![0; 60_000];
        socket.read_exact(&mut part).expect("some of it");
        socket.write_all(&frame(3, 0, 1, &[0, 0, 0, 8])).expect("the server reads");
        let came = logged(&server, 2);
        assert!(came.body <= 65_535 && came.whole >= 59_000, "what the window allowed: {came:?}");
        // One that asks for little and resets it before its window opens: nothing of the body was sent.
        let mut socket = connect(server.addr(0));
        let block: Vec<u8> = [(":method", "GET"), (":scheme", "http"), (":path", "/plain/65536?id=3"), (":authority", "a")]
            .iter().flat_map(|(name, value)| literal(name, value)).collect();
        let closed = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let out = [&weir_http::h2::PREFACE[..], &closed, &frame(1, 5, 1, &block), &frame(3, 0, 1, &[0, 0, 0, 8])].concat();
        socket.write_all(&out).expect("the server reads");
        assert_eq!(logged(&server, 3).body, 0);
    }
}
