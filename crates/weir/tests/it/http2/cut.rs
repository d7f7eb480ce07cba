//! Responses that break off: what had come of them leaves before the reset, as it does by HTTP/1, and is counted.

use std::process::Command;

use weir_http::h2::{ErrorCode, StreamKey};
use weir_sys::process::ServerSignal;
use weir_test::{
    Backend, BackendVisit, Driver, FcgiApp, FcgiOut, Server, both_drivers, require_program, wait_for,
};

use super::attacks::frame;
use super::client::Client;
use super::peer::Peer;
use super::tls::own;
use crate::scgi_uwsgi::read as read_cgi;

const TEN: &str = "only ten.\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
/// The beginning of a gzip stream of a hundred bytes as they are.
const PACKED: [u8; 15] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, 100, 0, 155, 255];
/// More than a connection and its window hold at a time.
const BIG: usize = 1_000_000;

/// A server of HTTP/1 whose responses end in the middle.
fn http(visit: &mut BackendVisit) {
    let Some(head) = visit.head() else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let second = head.contains("bytes=10-19");
    let said = match path.rsplit('/').next().unwrap_or_default() {
        "chunks" => format!("{HEAD}Transfer-Encoding: chunked\r\n\r\na\r\n{TEN}\r\n"),
        "unchunked" => format!("{HEAD}Transfer-Encoding: chunked\r\n\r\na\r\n{TEN}\r\nzz\r\n"),
        "whole" => format!("{HEAD}Content-Length: 3\r\n\r\nok\n"),
        "big" => format!("{HEAD}Content-Length: {}\r\n\r\n{}", 2 * BIG, "b".repeat(BIG)),
        "packed" => format!("{HEAD}Content-Encoding: gzip\r\nContent-Length: 200\r\n\r\n"),
        "slices" if second => {
            "HTTP/1.1 206 A\r\nETag: \"a\"\r\nContent-Range: bytes 10-19/30\r\nContent-Length: 10\r\n\r\nfive\n".to_owned()
        }
        "slices" => {
            format!(
                "HTTP/1.1 206 A\r\nETag: \"a\"\r\nContent-Range: bytes 0-9/30\r\nContent-Length: 10\r\n\r\n{TEN}"
            )
        }
        _ => format!("{HEAD}Content-Length: 100\r\n\r\n{TEN}"),
    };
    visit.send(said);
    if path.ends_with("packed") {
        visit.send(PACKED);
        visit.send(TEN);
    }
}

fn cgi(protocol: &'static str) -> Backend {
    Backend::start(move |visit| {
        if read_cgi(visit, protocol).is_some() {
            visit.send(format!("Status: 200 OK\r\nContent-Length: 100\r\n\r\n{TEN}"));
        }
    })
}

/// The servers that break off.
struct Upstreams {
    http: Backend,
    fastcgi: FcgiApp,
    scgi: Backend,
    uwsgi: Backend,
    memcached: Backend,
    http2: Peer,
}

impl Upstreams {
    fn start() -> Upstreams {
        Upstreams {
            http: Backend::start(http),
            fastcgi: FcgiApp::start(|request| {
                let said = FcgiOut::answer(&format!("Content-Length: 100\r\n\r\n{TEN}"));
                let cut = request.param("REQUEST_URI").contains("cut");
                if cut { said[..1].to_vec() } else { said }
            }),
            scgi: cgi("scgi"),
            uwsgi: cgi("uwsgi"),
            memcached: Backend::start(|visit| {
                if visit.bytes("get /memcached\r\n".len()).is_some() {
                    visit.send(format!("VALUE /memcached 0 100\r\n{TEN}"));
                }
            }),
            http2: Peer::start(),
        }
    }

    fn conf(&self, locations: &str, more: &str) -> String {
        let mut conf = format!(
            "http {{ log_format sent '$request_uri $body_bytes_sent $request_completion. $status'; access_log sent.log sent; {more}
                proxy_cache_path cache keys_zone=kept:1m; gzip_types *; gzip_min_length 1; sub_filter_types *;
                addition_types *; ssi_types *; proxy_http_version 1.1;
                server {{ listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; http2 on;
                    ssl_certificate a.crt; ssl_certificate_key a.key;
                    {locations} }} }}"
        );
        for (name, port) in [
            ("HTTP2", self.http2.port),
            ("HTTP", self.http.port()),
            ("FASTCGI", self.fastcgi.port()),
            ("SCGI", self.scgi.port()),
            ("UWSGI", self.uwsgi.port()),
            ("MEMCACHED", self.memcached.port()),
        ] {
            conf = conf.replace(&format!("@{name}@"), &format!("127.0.0.1:{port}"));
        }
        conf
    }

    fn serve(&self, driver: Driver, locations: &str, more: &str) -> Server {
        let pair = own("localhost");
        Server::builder(&self.conf(locations, more))
            .file("a.crt", &pair.certificate)
            .file("a.key", &pair.key)
            .file("files/included", format!("{TEN}<!--#include virtual=\"/buffered/early\" -->"))
            .driver(driver)
            .allow("prematurely closed")
            .allow("invalid chunked")
            .allow("rejected")
            .allow("thrown")
            .allow("truncated")
            .allow("upstream")
            .start()
    }
}

/// What the log says of the `nth` request for that path: bytes of content, `$request_completion` and a dot, the status.
fn logged(server: &Server, path: &str, nth: usize) -> (usize, String) {
    let file = server.dir().path().join("sent.log");
    wait_for("the line of the request", || {
        let text = std::fs::read_to_string(&file).ok()?;
        let line = text.lines().filter(|line| line.starts_with(&format!("{path} "))).nth(nth)?.to_owned();
        let (bytes, rest) = line.split_once(' ')?.1.split_once(' ')?;
        Some((bytes.parse().ok()?, rest.to_owned()))
    })
}

const LOCATIONS: &str = "location /buffered/ { proxy_pass http://@HTTP@; }
    location /unbuffered/ { proxy_buffering off; proxy_pass http://@HTTP@; }
    location /fastcgi/ { fastcgi_param REQUEST_URI $uri; fastcgi_pass @FASTCGI@; }
    location /unbuffered_fastcgi/ { fastcgi_buffering off; fastcgi_param REQUEST_URI $uri; fastcgi_pass @FASTCGI@; }
    location /scgi/ { scgi_param SCGI 1; scgi_pass @SCGI@; }
    location /uwsgi/ { uwsgi_param A 1; uwsgi_pass @UWSGI@; }
    location /memcached { set $memcached_key $uri; memcached_pass @MEMCACHED@; }
    location /http2/ { proxy_http_version 2; proxy_pass http://@HTTP2@/cut; }
    location /grpc/ { rewrite ^ /cut break; grpc_pass grpc://@HTTP2@; }
    location /cached/ { proxy_cache kept; proxy_cache_lock on; proxy_cache_valid any 1h; proxy_pass http://@HTTP@; }
    location /slice/ { slice 10; proxy_cache kept; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;
        proxy_cache_valid any 1h; proxy_pass http://@HTTP@; }
    location /sub/ { sub_filter none some; proxy_pass http://@HTTP@; }
    location /gzip/ { gzip on; proxy_pass http://@HTTP@; }
    location /gunzip/ { gunzip on; proxy_pass http://@HTTP@; }
    location /ssi/ { ssi on; proxy_pass http://@HTTP@; }
    location /before/ { add_before_body /unbuffered/whole; proxy_pass http://@HTTP@; }
    location /after/ { add_after_body /unbuffered/whole; proxy_pass http://@HTTP@; }
    location /paced/ { limit_rate 1000; proxy_pass http://@HTTP@; }
    location /filtered/ { body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } proxy_pass http://@HTTP@; }
    location /replaced { error_page 500 /buffered/early; return 500; }
    location /printed { content_by_lua_block { ngx.print('only ten.\\n') ngx.flush() error('thrown') } }
    location /waited { content_by_lua_block { ngx.print('only ten.\\n') ngx.flush(true) error('thrown') } }
    location /exited { content_by_lua_block { ngx.print('only ten.\\n') ngx.flush() ngx.exit(444) } }
    location /held { content_by_lua_block { ngx.print(string.rep('b', 30000)) ngx.flush() error('thrown') } }
    location /large { content_by_lua_block { ngx.print(string.rep('b', 1000000)) ngx.flush() error('thrown') } }
    location /file { alias files/large; }
    location /thrown { content_by_lua_block { ngx.print('only ten.\\n') ngx.flush() ngx.print('more') }
        body_filter_by_lua_block { if ngx.arg[1] == 'more' then error('thrown') end } }";

/// Paths, and what comes of them by HTTP/1.
const CASES: [(&str, &str); 28] = [
    ("/buffered/early", TEN),
    ("/buffered/chunks", TEN),
    ("/buffered/unchunked", TEN),
    ("/unbuffered/early", TEN),
    ("/unbuffered/chunks", TEN),
    ("/unbuffered/unchunked", TEN),
    ("/fastcgi/early", TEN),
    ("/fastcgi/cut", TEN),
    ("/unbuffered_fastcgi/early", TEN),
    ("/unbuffered_fastcgi/cut", TEN),
    ("/scgi/", TEN),
    ("/uwsgi/", TEN),
    ("/memcached", TEN),
    ("/http2/", TEN),
    ("/grpc/", TEN),
    ("/cached/early", TEN),
    ("/slice/slices", "only ten.\nfive\n"),
    ("/sub/early", TEN),
    ("/ssi/early", TEN),
    ("/before/early", "ok\nonly ten.\n"),
    ("/after/early", TEN),
    ("/paced/early", TEN),
    ("/filtered/early", "ONLY TEN.\n"),
    ("/printed", TEN),
    ("/waited", TEN),
    ("/exited", TEN),
    ("/thrown", TEN),
    ("/gunzip/packed", TEN),
];

/// Has a client that took nothing so far take what comes of `key`, of which `held` bytes have come.
fn take(client: &mut Client, key: StreamKey, held: usize) {
    let mut out = Vec::new();
    client.conn.consumed(key, held as u64, &mut out);
    client.reads = true;
    client.raw(&out);
}

/// A client whose window is full with `WINDOW` bytes of a response.
fn stuck(server: &Server, path: &str) -> (Client, StreamKey) {
    let mut client = Client::with_window(server.addr(0), WINDOW as u32);
    client.reads = false;
    let key = client.get(path);
    client.until("a window full", |client| client.answers[&key].body.len() == WINDOW);
    (client, key)
}

/// The same with `HELD` bytes that wait for the client, of a response that has broken off.
fn held(server: &Server) -> (Client, StreamKey) {
    let stuck = stuck(server, "/held");
    let _line = server.error_log_line("thrown");
    stuck
}

/// Less than what makes a script wait for its client.
const HELD: usize = 30_000;
const WINDOW: usize = 5000;

both_drivers! {
    fn what_came_of_a_response_that_breaks_off_is_sent_and_counted(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "");
        let mut client = Client::connect(server.addr(0));
        let mut wrong = Vec::new();
        for (path, expected) in CASES {
            let came = client.fetch(path);
            let logged = logged(&server, path, 0);
            let status = if path == "/exited" { 444 } else { 200 };
            let right = (came.text().as_str(), came.reset) == (expected, Some(ErrorCode::Internal))
                && logged == (expected.len(), format!(". {status}"));
            if !right || came.status != 200 {
                wrong.push(format!("{path}: {} {:?} {:?}, logged {logged:?}", came.status, came.text(), came.reset));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let came = client.fetch("/replaced");
        assert_eq!((came.status, came.text().as_str(), came.reset), (500, TEN, Some(ErrorCode::Internal)));
        let key = client.open("GET", "/gzip/early", &[("accept-encoding", "gzip")], None);
        let came = client.answer(key);
        assert!(came.body.starts_with(&[0x1f, 0x8b]) && came.body.len() > 18, "{:?}", came.body);
        assert_eq!(came.body.len(), logged(&server, "/gzip/early", 0).0);
    }

    /// The client's window is small, and it takes its time.
    fn what_came_of_a_large_response_leaves_at_the_clients_pace(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "");
        for path in ["/buffered/big", "/unbuffered/big", "/cached/big", "/large"] {
            let came = Client::with_window(server.addr(0), WINDOW as u32).fetch(path);
            assert_eq!((came.body.len(), came.reset), (BIG, Some(ErrorCode::Internal)), "{path}");
            assert_eq!(logged(&server, path, 0), (BIG, ". 200".into()), "{path}");
        }
    }

    /// ... but no more than `send_timeout` for each piece.
    fn a_client_that_takes_nothing_of_what_came_is_given_up(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "send_timeout 300ms;");
        for path in ["/unbuffered/big", "/large", "/held"] {
            let (mut client, key) = stuck(&server, path);
            let came = client.answer(key);
            assert_eq!((came.body.len(), came.reset), (WINDOW, Some(ErrorCode::Internal)), "{path}");
            assert_eq!(logged(&server, path, 0), (WINDOW, ". 200".into()), "{path}");
        }
    }

    /// While the rest of a response that has broken off waits for the client's window.
    fn a_client_leaves_while_what_came_waits_for_it(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "send_timeout 1h;");
        for (nth, resets) in [true, false].into_iter().enumerate() {
            let (mut client, key) = held(&server);
            if resets {
                client.reset(key);
                assert_eq!(client.fetch("/printed").text(), TEN);
            }
            drop(client);
            assert_eq!(logged(&server, "/held", nth), (WINDOW, ". 200".into()));
        }
    }

    /// Streams that are open when the client sends GOAWAY go on.
    fn a_connection_ends_after_what_came_has_left(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "send_timeout 1h;");
        let (mut client, key) = held(&server);
        client.raw(&frame(7, 0, 0, &[0; 8]));
        take(&mut client, key, WINDOW);
        client.until("a reset", |client| client.answers[&key].reset.is_some());
        assert_eq!(client.answers[&key].body.len(), HELD);
        assert_eq!(logged(&server, "/held", 0), (HELD, ". 200".into()));
    }

    /// When a server reloads or quits the rest still leaves, and the connection ends with GOAWAY.
    fn what_came_leaves_before_a_server_does(driver) {
        const PATIENT: &str = "send_timeout 1h; keepalive_timeout 1h;";
        let upstreams = Upstreams::start();
        let mut server = upstreams.serve(driver, LOCATIONS, PATIENT);
        for nth in 0..2 {
            let (mut client, key) = held(&server);
            match nth {
                0 => server.reload(&upstreams.conf(&format!("location /new {{ }} {LOCATIONS}"), PATIENT)),
                _ => server.signal(ServerSignal::Quit),
            }
            take(&mut client, key, WINDOW);
            let came = client.answer(key);
            assert_eq!((came.body.len(), came.reset), (HELD, Some(ErrorCode::Internal)));
            client.until_closed();
            assert!(matches!(client.goaway, Some((_, ErrorCode::No))), "{:?}", client.goaway);
            assert_eq!(logged(&server, "/held", nth), (HELD, ". 200".into()));
        }
        assert!(server.wait_exit().status.success());
    }

    /// Another client does not wait for the one that filled the cache and is slow to take what came.
    fn a_fill_that_broke_off_is_over_for_others(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "send_timeout 1h; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h;");
        let (mut client, key) = stuck(&server, "/cached/early/big");
        let came = Client::connect(server.addr(0)).fetch("/cached/early/big");
        assert_eq!((came.body.len(), came.reset), (BIG, Some(ErrorCode::Internal)));
        take(&mut client, key, WINDOW);
        assert_eq!(client.answer(key).body.len(), BIG);
    }

    fn a_file_that_shrinks_ends_where_it_was_sent_to(driver) {
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "send_timeout 1h;");
        let file = std::fs::File::create(server.dir().path().join("files/large")).expect("ours");
        file.set_len(BIG as u64).expect("ours");
        let mut client = Client::with_window(server.addr(0), WINDOW as u32);
        client.reads = false;
        let key = client.get("/file");
        client.until("a window full", |client| client.answers[&key].body.len() == WINDOW);
        file.set_len(BIG as u64 / 2).expect("ours");
        take(&mut client, key, WINDOW);
        let came = client.answer(key);
        assert!((WINDOW..=BIG / 2).contains(&came.body.len()), "{}", came.body.len());
        assert_eq!(came.reset, Some(ErrorCode::Internal));
        assert_eq!(logged(&server, "/file", 0), (came.body.len(), ". 200".into()));
    }

    fn what_came_leaves_over_tls(driver) {
        let Some(curl) = require_program("curl") else { return };
        let upstreams = Upstreams::start();
        let server = upstreams.serve(driver, LOCATIONS, "");
        for (path, bytes) in [("/buffered/early", TEN.len()), ("/unbuffered/big", BIG), ("/large", BIG)] {
            let mut command = Command::new(&curl);
            command.args(["-sk", "--noproxy", "*", "--max-time", "90", "--http2", "-o", "/dev/null", "-w", "%{size_download}"]);
            let output = command.arg(format!("https://{}{path}", server.addr(1))).output().expect("curl runs");
            assert_eq!(String::from_utf8_lossy(&output.stdout), bytes.to_string(), "{path}: {:?}", output.status);
            assert!(!output.status.success(), "{path}: it is not whole");
            assert_eq!(logged(&server, path, 0).0, bytes, "{path}");
        }
    }
}
