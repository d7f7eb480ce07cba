//! Clients that take nothing for longer than `send_timeout`: which one holds, and what the log says they got.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use weir_test::{Server, both_drivers, wait_for};

use super::attacks::frame;
use super::counts::{Link, logged};

/// More than a connection and the sockets hold at a time.
const BIG: u64 = 24 << 20;
const WIDE: u32 = 1 << 30;

fn serve(driver: weir_test::Driver, timeout: &str, locations: &str) -> Server {
    let conf = format!(
        "http {{ log_format sent '$request_uri $bytes_sent $body_bytes_sent'; access_log sent.log sent;
            server {{ listen 127.0.0.1:%%PORT_0%%; http2 on; send_timeout {timeout};
                {locations} }}
            server {{ listen 127.0.0.1:%%PORT_1%%; access_log off; location / {{ alias files/; }} }} }}"
    );
    let builder = Server::builder(&conf).file("files/small", "x").driver(driver);
    let file = std::fs::File::create(builder.dir().join("files/big"));
    file.and_then(|file| file.set_len(BIG)).expect("ours");
    builder.start()
}

fn lines(server: &Server) -> usize {
    std::fs::read_to_string(server.dir().path().join("sent.log")).map_or(0, |text| text.lines().count())
}

/// The streams 1 and 3 are to share the connection.
fn shared(link: &mut Link) {
    [b"\0\0\0\x01i", b"\0\0\0\x03i"].iter().for_each(|update| link.send(&frame(16, 0, 0, *update)));
}

both_drivers! {
    /// The client stops reading, the server gives up and closes; what the kernel had taken until then still comes.
    fn the_log_says_what_came_of_a_connection_that_broke(driver) {
        let server = serve(driver, "1s", "location /file { alias files/big; }
            location /piped { proxy_pass http://127.0.0.1:%%PORT_1%%/big; }
            location /lua { content_by_lua_block { for _ = 1, 1600 do ngx.print(string.rep('x', 16000)) end } }");
        let (mut wrong, mut number) = (Vec::new(), 0);
        for paths in [["/file"; 3], ["/piped"; 3], ["/lua"; 3], ["/file", "/piped", "/lua"]] {
            let mut link = Link::open(&server, WIDE);
            let streams: Vec<(u32, usize)> = [1, 3, 5].into_iter().zip(paths).map(|(stream, path)| {
                number += 1;
                link.ask(stream, &format!("{path}?id={number}"));
                (stream, number)
            }).collect();
            link.until(|link| streams.iter().all(|(stream, _)| link.body(*stream) >= 10_000));
            let logged: Vec<_> = streams.iter().map(|(_, number)| logged(&server, *number)).collect();
            link.read_to_end();
            let came: Vec<_> = streams.iter().map(|(stream, _)| link.came(*stream)).collect();
            // The head of a frame that is cut off is nobody's.
            let whole = |all: &[super::counts::Came]| all.iter().map(|came| came.whole).sum::<u64>();
            let bodies = came.iter().zip(&logged).all(|(came, logged)| came.body == logged.body);
            if !bodies || !(0..9).contains(&(whole(&logged) as i64 - whole(&came) as i64)) {
                wrong.push(format!("{paths:?}: {came:?}, but {logged:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// What is composed for a client that has left, because the request goes on without it, is not sent.
    fn what_is_composed_after_the_client_has_left_is_not_counted(driver) {
        let server = serve(driver, "60s", "location /late { access_log off;
            content_by_lua_block { ngx.sleep(1) ngx.print('some text') } }
            location /wait { proxy_ignore_client_abort on; proxy_pass http://127.0.0.1:%%PORT_0%%/late; }");
        let mut link = Link::open(&server, WIDE);
        link.ask(1, "/wait?id=1");
        link.send(&frame(6, 0, 0, &[7; 8]));
        link.until(Link::ponged);
        link.reset();
        let logged = logged(&server, 1);
        assert_eq!((logged.whole, logged.body), (0, 0));
    }

    /// Of equal urgency the first response is whole before the next begins. One that waits for that longer than `send_timeout`
    /// is not given up while the client takes the first one: a file, a small response that is composed, a script's.
    fn who_waits_for_a_turn_has_time(driver) {
        let server = serve(driver, "400ms", "location /file { alias files/big; } location /small { return 200 small; }
            location /lua { content_by_lua_block { ngx.print(string.rep('x', 300000)) } }");
        let mut link = Link::open(&server, WIDE);
        ["/file?id=1", "/file?id=2", "/small", "/lua"].iter().zip([1, 3, 5, 7]).for_each(|(path, id)| link.ask(id, path));
        // Three seconds and more, of which each quarter brings something.
        for part in 1..=30 {
            link.until(|link| link.body(1) >= BIG * part / 30);
            std::thread::sleep(Duration::from_millis(100));
        }
        link.until(|link| [3, 5, 7].iter().all(|stream| link.over(*stream)));
        assert_eq!([1, 3, 5, 7].map(|stream| link.body(stream)), [BIG, BIG, 5, 300_000]);
    }

    /// The server's `send_timeout` is short, the location's is long: its client may take its time.
    fn a_location_has_more_patience_than_its_server(driver) {
        let server = serve(driver, "300ms", "location /file { alias files/big; send_timeout 1h; }");
        let mut link = Link::open(&server, WIDE);
        link.ask(1, "/file?id=1");
        link.until(|link| link.body(1) >= 10_000);
        // It is not seen that nothing happens but by letting the time pass in which it would.
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            assert_eq!(lines(&server), 0, "it was given up");
            std::thread::sleep(Duration::from_millis(50));
        }
        link.until(|link| link.over(1));
        assert_eq!(link.body(1), BIG);
        assert_eq!(logged(&server, 1).body, BIG);
    }

    /// The location's is short, the server's is long: the stream ends, and the connection serves others.
    fn a_stream_that_is_given_up_leaves_the_connection_to_others(driver) {
        let server = serve(driver, "1h", "location /short { alias files/big; send_timeout 300ms; }
            location /long { alias files/big; }");
        let mut link = Link::open(&server, WIDE);
        shared(&mut link);
        link.ask(1, "/short?id=1");
        link.ask(3, "/long?id=2");
        link.until(|link| link.body(1) >= 10_000 && link.body(3) >= 10_000);
        wait_for("the end of the first", || (lines(&server) == 1).then_some(()));
        assert!(logged(&server, 1).body < BIG);
        link.until(|link| link.over(3));
        assert_eq!(link.body(3), BIG);
        assert!(link.body(1) < BIG && !link.over(1));
    }

    /// A head that comes byte by byte has no more time than another: in one frame, and in many.
    fn a_head_that_trickles_in_has_no_more_time(driver) {
        let conf = "http { client_header_timeout 1s; server { listen 127.0.0.1:%%PORT%%; http2 on; return 200 ok; } }";
        let server = Server::builder(conf).driver(driver).start();
        let block = [&b"\x82\x86\x84\x01\x01a"[..], &b"\0\x03x-a\x03abc".repeat(60)].concat();
        let pieces: Vec<u8> = block.chunks(60).flat_map(|part| frame(9, 0, 1, part)).collect();
        for (first, drip) in [(frame(1, 5, 1, &block)[..9].to_vec(), block), (frame(1, 1, 1, &[]), pieces)] {
            let mut socket = std::net::TcpStream::connect(server.addr(0)).expect("the server listens");
            socket.set_read_timeout(Some(weir_test::DEADLINE)).expect("a timeout");
            let begin = [&weir_http::h2::PREFACE[..], &frame(4, 0, 0, &[]), &first].concat();
            socket.write_all(&begin).expect("the server reads");
            let mut other = socket.try_clone().expect("a descriptor");
            let mut came = Vec::new();
            std::thread::scope(|scope| {
                // All of it would take a minute.
                let step = drip.len().div_ceil(600);
                let dripper = scope.spawn(move || {
                    drip.chunks(step).all(|piece| {
                        std::thread::sleep(Duration::from_millis(100));
                        other.write_all(piece).is_ok()
                    })
                });
                let _reset_or_end = socket.read_to_end(&mut came);
                assert!(!dripper.join().expect("no panic"), "all of the head was taken");
            });
            let reset = frame(3, 0, 1, &[0, 0, 0, 1]);
            assert!(came.windows(reset.len()).any(|part| part == reset), "{}", came.escape_ascii());
        }
    }

    /// A stream that has something to say now and then gives a client that takes nothing no more time.
    fn a_connection_that_takes_nothing_is_not_kept_by_a_stream_that_drips(driver) {
        let server = serve(driver, "700ms", "location /file { alias files/big; }
            location /drip { content_by_lua_block {
                for piece = 1, 300 do
                    ngx.print('x')
                    if not ngx.flush() then return ngx.log(ngx.WARN, 'left after ', piece) end
                    ngx.sleep(0.1)
                end
                ngx.log(ngx.WARN, 'dripped to its end')
            } }");
        let mut link = Link::open(&server, WIDE);
        shared(&mut link);
        link.ask(1, "/file?id=1");
        link.ask(3, "/drip?id=2");
        link.until(|link| link.body(1) >= 10_000 && link.body(3) >= 1);
        let _ = logged(&server, 2);
        let log = server.error_log();
        assert!(log.contains("left after ") && !log.contains("dripped to its end"), "{log}");
    }

    /// Frames that open no stream give a connection that is idle no more time, whole or byte by byte.
    fn a_client_that_asks_for_nothing_does_not_keep_its_connection(driver) {
        let conf = "http { keepalive_timeout 1s; client_body_timeout 300ms; client_header_timeout 1h;
            server { listen 127.0.0.1:%%PORT%%; http2 on; location / { return 200 ok; }
                location /body { client_max_body_size 1m; content_by_lua_block { ngx.req.read_body() } } } }";
        let server = Server::builder(conf).driver(driver).start();
        let ping = frame(6, 0, 0, &[7; 8]);
        let bytes: Vec<Vec<u8>> = ping.iter().cycle().take(600).map(|byte| vec![*byte]).collect();
        let get = frame(1, 5, 1, b"\x82\x86\x84\x01\x01a");
        let post = frame(1, 4, 1, b"\x83\x86\x04\x05/body\x01\x01a");
        for (first, drip) in [
            (Vec::new(), vec![ping.clone(); 600]),
            (get.clone(), vec![ping; 600]),
            (get.clone(), vec![frame(4, 0, 0, &[]); 600]),
            (get.clone(), vec![frame(4, 1, 0, &[]); 600]),
            (Vec::new(), vec![frame(8, 0, 0, &[0, 0, 0, 1]); 600]),
            (get.clone(), vec![frame(2, 0, 3, &[0, 0, 0, 0, 1]); 600]),
            (get.clone(), vec![frame(0x42, 0, 0, &[]); 600]),
            (get, bytes),
            (post, vec![frame(0, 0, 1, &[]); 600]),
        ] {
            let socket = std::net::TcpStream::connect(server.addr(0)).expect("the server listens");
            let begin = [&weir_http::h2::PREFACE[..], &frame(4, 0, 0, &[]), &first].concat();
            let what = format!("after {} bytes: {:?}", first.len(), &drip[0]);
            assert!(!drips(socket, &begin, drip), "{what}: all of it was taken");
        }
    }
}

/// Sends `begin`, then a piece each 100 milliseconds, a minute at most; `false`: the server closed before the end.
fn drips(mut socket: std::net::TcpStream, begin: &[u8], drip: Vec<Vec<u8>>) -> bool {
    socket.set_read_timeout(Some(weir_test::DEADLINE)).expect("a timeout");
    socket.write_all(begin).expect("the server reads");
    let mut other = socket.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        let dripper = scope.spawn(move || {
            drip.iter().all(|piece| {
                std::thread::sleep(Duration::from_millis(100));
                other.write_all(piece).is_ok()
            })
        });
        let _reset_or_end = socket.read_to_end(&mut Vec::new());
        dripper.join().expect("no panic")
    })
}
