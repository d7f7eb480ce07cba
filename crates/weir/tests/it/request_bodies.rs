//! Request bodies that are read, stored in files, refused, or left alone: a server inside the test, since no module of
//! this build reads bodies yet.

use crate::support;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_conf::{ArgCount, Contexts, Directive};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Handler, LocalFuture, Module, ModuleDef, Text, Verdict};
use weir_modules::{Log, Rewrite};
use weir_server::{Server, ServerOptions};
use weir_test::{Client, DEADLINE, Driver, TempDir, both_drivers, free_port, wait_for};

use support::{get, upload};

/// A running server and its directory.
struct Site {
    directory: TempDir,
    address: SocketAddr,
    server: Server,
}

impl Site {
    fn new(driver: Driver, settings: &str) -> Site {
        let directory = TempDir::new();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let root = directory.path().display();
        let text = format!(
            "error_log {root}/error.log info; worker_processes 1; events {{ use {}; }}
            http {{ log_format t '$status $request_length $request'; access_log {root}/access.log t;
                client_body_temp_path {root}/temp 1; client_body_buffer_size 1k; {settings}
                server {{ listen {address};
                    location /echo {{ echo; }}
                    location /pieces {{ echo_pieces; }}
                    location /where {{ where; }}
                    location /hold {{ hold {}; }}
                    location /ok {{ return 200 ok; }} }} }}",
            driver.name(),
            driver as usize
        );
        fs::create_dir(directory.path().join("temp")).expect("a fresh folder");
        let configuration = weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|e| panic!("{e}"));
        let server = Server::start(Arc::new(configuration), ServerOptions::default()).expect("starts");
        Site { directory, address, server }
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits until the error log, which is written in the background, has this.
    #[track_caller]
    fn wait_told(&self, words: &str) {
        wait_for(words, || self.directory.read("error.log").contains(words).then_some(()));
    }

    /// Files below the directory for bodies.
    fn temp_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.directory.path().join("temp")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("ours") {
                let path = entry.expect("ours").path();
                if path.is_dir() { directories.push(path) } else { files.push(path) }
            }
        }
        files
    }

    /// Ends the server, so that the log is complete.
    #[track_caller]
    fn assert_logged(self, lines: &[&str]) {
        let Site { directory, server, .. } = self;
        server.quit();
        assert!(server.join(Some(DEADLINE)), "it ends");
        drop(server);
        let log = wait_for("log", || {
            Some(directory.read("access.log")).filter(|log| log.lines().count() >= lines.len())
        });
        assert_eq!(log.lines().collect::<Vec<_>>(), lines);
    }
}

/// A chunked upload, in chunks of `size` bytes.
fn chunked(path: &str, body: &[u8], size: usize) -> Vec<u8> {
    let mut out =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\nTrailer: t\r\n\r\n");
    out
}

/// Content that identifies its request in every 16 bytes.
fn tagged(tag: usize, length: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(length + 16);
    while content.len() < length {
        content.extend_from_slice(format!("<{tag:05}:{:08}>", content.len()).as_bytes());
    }
    content.truncate(length);
    content
}

both_drivers! {
    /// 100 uploads through one buffer ring, in pieces of all sizes: each gets its own bytes back.
    fn uploads_at_once_do_not_mix(driver) {
        let site = Site::new(driver, "client_max_body_size 0;");
        let address = site.address;
        support::together(10, |thread| {
            let mut client = Client::connect(address);
            for number in 0..10 {
                let tag = thread * 100 + number;
                let body = tagged(tag, 1 + tag * 331 % 300_000);
                let path = if number % 2 == 0 { "/echo" } else { "/pieces" };
                let request = match number % 3 {
                    0 => chunked(path, &body, 1 + tag * 7 % 5000),
                    _ => [upload(path, body.len()).as_bytes(), &body].concat(),
                };
                for piece in request.chunks(1 + tag * 13 % 70_000) {
                    client.send(piece);
                }
                let response = client.response();
                assert!(response.status == 200 && response.body == body, "{tag}: {}", response.status);
            }
        });
    }

    /// `client_body_buffer_size`: about that much in memory, above it in a file that has no name.
    fn large_bodies_go_to_files(driver) {
        let site = Site::new(driver, "");
        let mut client = site.client();
        let table = [(0, "memory"), (1, "memory"), (1024, "memory"), (1025, "file"), (1279, "file"), (1280, "file"), (200_000, "file")];
        for (length, place) in table {
            // As nginx: where the length is known, less than a quarter more stays in memory.
            let known = if length < 1280 { "memory" } else { place };
            let answer = client.request(upload("/where", length) + &"x".repeat(length));
            assert_eq!(answer.text(), format!("{length} {known}"));
            let answer = client.request(chunked("/where", "x".repeat(length).as_bytes(), 1000));
            assert_eq!(answer.text(), format!("{length} {place}"), "chunked");
        }
        assert_eq!(site.temp_files(), Vec::<PathBuf>::new());
        site.wait_told("a client request body is buffered to a temporary file");
        assert!(site.directory.read("error.log").contains("[warn]"));
    }

    /// `client_body_in_file_only`: always a file, which stays or goes with the request.
    fn bodies_only_in_files(driver) {
        for (setting, stays) in [("on", true), ("clean", false)] {
            let site = Site::new(driver, &format!("client_body_in_file_only {setting};"));
            let mut client = site.client();
            let answer = client.request(upload("/where", 5) + "hello");
            assert_eq!(answer.text(), "5 file");
            let path = answer.field("x-file").map(PathBuf::from).expect("it has a name");
            assert!(path.starts_with(site.directory.path().join("temp")), "{}", path.display());
            if stays {
                assert_eq!(fs::read_to_string(&path).expect("it stays"), "hello");
            } else {
                wait_for("end of the file", || (!path.exists()).then_some(()));
            }
        }
    }

    fn bodies_that_are_too_large_get_413(driver) {
        let site = Site::new(driver, "client_max_body_size 2k;");
        for (length, status) in [(2048, 200), (2049, 413), (100_000, 413)] {
            let body = vec![b'x'; length];
            let mut client = site.client();
            // It may be refused before all of it is taken.
            let _ = client.try_send([upload("/echo", length).as_bytes(), &body].concat());
            let response = client.response();
            assert_eq!((response.status, response.keeps_alive()), (status, status == 200), "length {length}");
            let mut client = site.client();
            let _ = client.try_send(chunked("/echo", &body, 500));
            let response = client.response();
            assert_eq!((response.status, response.keeps_alive()), (status, status == 200), "chunked {length}");
        }
        site.wait_told("client intended to send too large body: 2049 bytes");
        site.wait_told("client intended to send too large chunked body: ");
    }

    /// A client that asks gets "continue" when the body is wanted, once, before anything else.
    fn a_body_is_asked_for(driver) {
        let site = Site::new(driver, "");
        let mut client = site.client();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(client.response().status, 100);
        client.send("he");
        client.send("llo");
        assert_eq!(client.response().text(), "hello");
        client.send("POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "hello", "HTTP/1.0 knows no 100");
    }

    /// Long bodies are received by other means than what follows them, and never beyond their ends: in files, in memory
    /// and in pieces, by length and in chunks, with the next request in the same packet.
    fn what_follows_a_long_body_is_the_next_request(driver) {
        let site = Site::new(driver, "client_max_body_size 0;");
        let mut client = site.client();
        for (number, length) in [70_000, 32_769, 1_000_000, 65_536, 40_000, 3_000_000].into_iter().enumerate() {
            let body = tagged(number, length);
            for path in ["/echo", "/pieces"] {
                let by_length = [upload(path, body.len()).as_bytes(), &body].concat();
                for request in [by_length, chunked(path, &body, 9_999)] {
                    client.send([&request, get("/ok").as_bytes()].concat());
                    assert!(client.response().body == body, "{path} {length}");
                    assert_eq!(client.response().text(), "ok", "{path} {length}");
                }
            }
        }
    }

    /// Bodies after bodies after requests without one: each request finds its own beginning.
    fn bodies_in_a_pipeline(driver) {
        let site = Site::new(driver, "");
        let mut client = site.client();
        let mut sent = Vec::new();
        for number in 0..30 {
            let body = tagged(number, number * 97);
            sent.extend_from_slice(&[upload("/echo", body.len()).as_bytes(), &body].concat());
            sent.extend_from_slice(&chunked("/pieces", &body, 61));
            sent.extend_from_slice(get("/ok").as_bytes());
        }
        for piece in sent.chunks(1009) {
            client.send(piece);
        }
        for number in 0..30 {
            let body = tagged(number, number * 97);
            assert_eq!(client.response().body, body);
            assert_eq!(client.response().body, body);
            assert_eq!(client.response().text(), "ok");
        }
    }

    /// nginx: 408 in the log, no response; a client that leaves: 400, and no response either.
    fn a_body_that_does_not_come(driver) {
        let site = Site::new(driver, "client_body_timeout 3s;");
        let mut slow = site.client();
        slow.send(upload("/echo", 10) + "abc");
        slow.expect_close();
        let mut leaves = site.client();
        leaves.send(upload("/echo", 10) + "abc").half_close();
        leaves.expect_close();
        let mut chunk = site.client();
        chunk.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
        assert_eq!(chunk.response().status, 400);
        drop(chunk);
        site.wait_told("client timed out (110: Connection timed out) while reading client request body");
        let head = upload("/echo", 10).len() + 3;
        let lines = [
            format!("408 {head} POST /echo HTTP/1.1"),
            format!("400 {head} POST /echo HTTP/1.1"),
        ];
        let log = wait_for("three lines", || {
            Some(site.directory.read("access.log")).filter(|log| log.lines().count() == 3)
        });
        assert!(log.starts_with(&lines.join("\n")), "{log}");
        assert!(log.lines().last().is_some_and(|line| line.starts_with("400 ")), "{log}");
    }

    /// A reset in the middle of a body that is being read: one line, 400.
    fn a_reset_within_a_body(driver) {
        let site = Site::new(driver, "");
        for path in ["/echo", "/pieces"] {
            let mut client = site.client();
            client.send(upload(path, 100_000) + &"x".repeat(50_000));
            support::wait_taken(&client);
            client.abort();
        }
        let log = wait_for("lines", || Some(site.directory.read("access.log")).filter(|log| log.lines().count() == 2));
        assert!(log.lines().all(|line| line.starts_with("400 ")), "{log}");
        assert_eq!(site.client().get("/ok").text(), "ok");
    }

    /// 100 uploads that nothing reads while their handler waits: others are served, and at the end all get responses.
    fn uploads_nobody_reads_harm_nobody(driver) {
                let site = Site::new(driver, "client_max_body_size 0;");
        let mut held: Vec<TcpStream> = (0..100)
            .map(|number| {
                let mut stream = TcpStream::connect(site.address).expect("it listens");
                stream.write_all(upload("/hold", 50 << 20).as_bytes()).expect("taken");
                stream.set_nonblocking(true).expect("a socket");
                let block = tagged(number, 64 * 1024);
                for _ in 0..64 {
                    match stream.write(&block) {
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("upload {number}: {error}"),
                    }
                }
                stream
            })
            .collect();
        let mut other = site.client();
        for _ in 0..500 {
            assert_eq!(other.get("/ok").text(), "ok");
        }
        for number in 0..20 {
            let body = tagged(number, 40_000);
            let answer = other.request([upload("/echo", body.len()).as_bytes(), &body].concat());
            assert!(answer.body == body, "no bytes of others");
        }
        RELEASED[driver as usize].store(true, Ordering::Release);
        for stream in &mut held {
            stream.set_nonblocking(false).expect("a socket");
            stream.set_read_timeout(Some(DEADLINE)).expect("not zero");
            let mut start = [0; 12];
            stream.read_exact(&mut start).expect("an answer");
            assert_eq!(&start, b"HTTP/1.1 200");
        }
        drop(held);
        assert_eq!(other.get("/ok").text(), "ok");
    }

    /// `$request_length` counts the body as it came.
    fn request_lengths_count_bodies(driver) {
        let site = Site::new(driver, "");
        let plain = upload("/echo", 5) + "hello";
        let parts = chunked("/echo", b"hello", 2);
        assert_eq!(site.client().request(&plain).text(), "hello");
        assert_eq!(site.client().request(&parts).text(), "hello");
        let lines = [plain.len(), parts.len()].map(|length| format!("200 {length} POST /echo HTTP/1.1"));
        site.assert_logged(&[&lines[0], &lines[1]]);
    }
}

/// The handlers of this test, by their directives.
struct Bodies;

/// What a location does with bodies.
#[derive(Clone, Copy, Default)]
enum Conf {
    /// Nothing.
    #[default]
    Off,
    /// Reads all, sends it back.
    Echo,
    /// Reads piece by piece, sends it back.
    Pieces,
    /// Responds with the body's length and where it is stored.
    Where,
    /// Waits for this one of [`RELEASED`] without reading, then responds.
    Hold(usize),
}

impl Module for Bodies {
    const NAME: &'static str = "bodies";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] = &[
        Directive::<Conf>::new("echo", Contexts::LOCATION, ArgCount::NONE, |conf, _| set(conf, Conf::Echo)),
        Directive::<Conf>::new("echo_pieces", Contexts::LOCATION, ArgCount::NONE, |conf, _| {
            set(conf, Conf::Pieces)
        }),
        Directive::<Conf>::new("where", Contexts::LOCATION, ArgCount::NONE, |conf, _| set(conf, Conf::Where)),
        Directive::<Conf>::new("hold", Contexts::LOCATION, ArgCount::ONE, |conf, line| {
            set(conf, Conf::Hold(if line.bytes(0) == b"0" { 0 } else { 1 }))
        }),
    ];

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) {
        if !matches!(conf, Conf::Off) {
            plan.content(Self::NAME, *conf);
        }
    }
}

fn set(conf: &mut Conf, to: Conf) -> Result<(), weir_conf::Error> {
    *conf = to;
    Ok(())
}

impl Handler for Conf {
    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async move {
            let answer = match self {
                Conf::Off => return Verdict::Declined,
                Conf::Echo => match x.read_body().await {
                    Ok(()) => content(x),
                    Err(error) => return Verdict::Status(error.status()),
                },
                Conf::Pieces => match pieces(x).await {
                    Ok(all) => all,
                    Err(error) => return Verdict::Status(error.status()),
                },
                Conf::Where => match x.read_body().await {
                    Ok(()) => place(x),
                    Err(error) => return Verdict::Status(error.status()),
                },
                Conf::Hold(number) => {
                    while !RELEASED[*number].load(Ordering::Acquire) {
                        weir_rt::sleep(Duration::from_millis(5)).await;
                    }
                    b"released".to_vec()
                }
            };
            x.response.status = 200;
            x.respond(ResponseBody::Whole(BodyBuf::Bytes(answer)))
        })
    }
}

async fn pieces(x: &mut Exchange) -> Result<Vec<u8>, weir_engine::EngineError> {
    let mut all = Vec::new();
    while let Some(piece) = x.body_piece().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// The whole body, from wherever it lies.
fn content(x: &Exchange) -> Vec<u8> {
    let Some(file) = x.body.file() else { return x.body.memory().to_vec() };
    let mut all = vec![0; file.len as usize];
    let mut at = 0;
    while at < all.len() {
        let count = file.handle.pread(&mut all[at..], at as u64).expect("the server wrote it");
        assert!(count > 0, "as long as it says");
        at += count;
    }
    all
}

fn place(x: &mut Exchange) -> Vec<u8> {
    let length = content(x).len();
    let Some(file) = x.body.file() else { return format!("{length} memory").into_bytes() };
    let name = file.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let name = x.arena.push(name.as_bytes());
    x.response.add_named(Text::Static(b"X-File"), Text::Span(name));
    format!("{length} file").into_bytes()
}

static MODULES: [ModuleDef; CORE_MODULES.len() + 3] =
    with_core(&[ModuleDef::of::<Log>(), ModuleDef::of::<Rewrite>(), ModuleDef::of::<Bodies>()]);

/// Lets the holding handlers respond: those of the one test that uses them, on each driver.
static RELEASED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
