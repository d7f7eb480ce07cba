//! Which of several streams is sent first: by urgencies (RFC 9218), by dependencies and weights (RFC 7540), and when the line is
//! full.

use weir_http::h2::StreamKey;
use weir_test::{Driver, Server, both_drivers};

use super::attacks::frame;
use super::client::Client;
use crate::support::pattern;

const SIZE: usize = 2_000_000;

fn started(driver: Driver) -> Server {
    Server::builder("http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%; } }")
        .driver(driver)
        .file("big", pattern(8 * SIZE))
        .file("file", pattern(SIZE))
        .file("small", pattern(20_000))
        .start()
}

/// Streams for the file with these priorities, and windows for all of them at once, after `frames`.
fn opened(server: &Server, priorities: &[&str], frames: &[u8]) -> (Client, Vec<StreamKey>) {
    let mut client = Client::with_window(server.addr(0), 0);
    let keys = priorities.iter().map(|value| {
        let field = [("priority", *value)];
        client.open("GET", "/file", if value.is_empty() { &[] } else { &field }, None)
    });
    let keys: Vec<StreamKey> = keys.collect();
    client.until("all heads", |client| client.answers.values().all(|answer| answer.status == 200));
    let mut out = frames.to_vec();
    for key in &keys {
        client.conn.widen(*key, SIZE as u32, &mut out);
    }
    client.raw(&out);
    (client, keys)
}

/// Bytes that the others had when the stream `first` ended.
fn behind(client: &mut Client, first: StreamKey) -> Vec<usize> {
    client.until("all", |client| client.answers.values().all(|answer| answer.ended));
    let last = client.order.iter().rposition(|key| *key == first).expect("it has content");
    let pieces = |of: &StreamKey| client.order[..last].iter().filter(|key| *key == of).count();
    let mut others: Vec<_> = client.answers.keys().copied().filter(|key| *key != first).collect();
    others.sort_by_key(|key| client.conn.id(*key));
    others
        .iter()
        .map(|key| pieces(key) * SIZE / client.order.iter().filter(|other| *other == key).count())
        .collect()
}

/// A PRIORITY frame.
fn depends(id: u32, parent: u32, weight: u16) -> Vec<u8> {
    frame(2, 0, id, &[&parent.to_be_bytes()[..], &[(weight - 1) as u8]].concat())
}

both_drivers! {
    fn an_urgent_file_is_whole_before_another_begins(driver) {
        let server = started(driver);
        let (mut client, keys) = opened(&server, &["u=7", "u=0", "u=6, i"], &[]);
        assert_eq!(behind(&mut client, keys[1]), [0, 0]);
        assert_eq!(behind(&mut client, keys[2])[0], 0, "urgency comes before turns");
    }

    fn files_that_nobody_set_come_one_after_the_other(driver) {
        let server = started(driver);
        let (mut client, keys) = opened(&server, &["", "", ""], &[]);
        assert_eq!(behind(&mut client, keys[0]), [0, 0]);
        assert_eq!(behind(&mut client, keys[1])[1], 0);
    }

    /// RFC 9218 section 8: what a server says of its response goes before what the client has said.
    fn a_response_says_how_urgent_it_is(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT_0%%; http2 on; root %%DIR%%;
                location = /passed { proxy_pass http://127.0.0.1:%%PORT_1%%/small; }
                location = /own { alias %%DIR%%/small; add_header Priority u=0; } }
              server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%; add_header Priority u=0; } }",
        ).driver(driver).file("file", pattern(SIZE)).file("small", pattern(20_000)).start();
        for path in ["/passed", "/own"] {
            let mut client = Client::with_window(server.addr(0), 0);
            let other = client.open("GET", "/file", &[], None);
            let urgent = client.open("GET", path, &[("priority", "u=7")], None);
            client.until("heads", |client| client.answers.values().all(|answer| answer.status == 200));
            assert_eq!(client.answers[&urgent].field("priority"), Some("u=0"));
            let mut out = Vec::new();
            [other, urgent].iter().for_each(|key| client.conn.widen(*key, SIZE as u32, &mut out));
            client.raw(&out);
            assert_eq!(behind(&mut client, urgent), [0], "{path}");
        }
    }

    /// A client that says nothing gets what its page waits for first; one that says something gets what it wants.
    fn style_sheets_and_scripts_come_first_where_that_is_wanted(driver) {
        let server = Server::builder(
            "http { types { text/css css; text/javascript js; image/png png; }
              server { listen 127.0.0.1:%%PORT_0%%; http2 on; http2_reprioritize_blocking_assets on; root %%DIR%%; }
              server { listen 127.0.0.1:%%PORT_1%%; http2 on; root %%DIR%%; } }",
        ).driver(driver).file("a.png", pattern(SIZE)).file("a.css", pattern(SIZE)).file("a.js", pattern(SIZE)).start();
        for (port, said, last) in [(0, "", 0), (0, "u=3", 2), (1, "", 2)] {
            let mut client = Client::with_window(server.addr(port), 0);
            let field = [("priority", said)];
            let fields = if said.is_empty() { &[][..] } else { &field };
            let keys = ["/a.png", "/a.js", "/a.css"].map(|path| client.open("GET", path, fields, None));
            client.until("heads", |client| client.answers.values().all(|answer| answer.status == 200));
            let mut out = Vec::new();
            keys.iter().for_each(|key| client.conn.widen(*key, SIZE as u32, &mut out));
            client.raw(&out);
            let others = behind(&mut client, keys[last]);
            assert!(others.iter().all(|bytes| *bytes == SIZE), "port {port}, \"{said}\": {others:?}");
        }
    }

    fn incremental_ones_share(driver) {
        let server = started(driver);
        let (mut client, keys) = opened(&server, &["i", "i"], &[]);
        let other = behind(&mut client, keys[0])[0];
        assert!(other > SIZE * 8 / 10, "{other}");
    }

    fn weights_of_older_clients_are_shares(driver) {
        let server = started(driver);
        let (mut client, keys) = opened(&server, &["", ""], &[depends(1, 0, 256), depends(3, 0, 1)].concat());
        let other = behind(&mut client, keys[0])[0];
        assert!(other <= 64 * 1024, "of weight 1 beside 256: {other}");
        let (mut client, keys) = opened(&server, &["", ""], &[depends(1, 0, 64), depends(3, 0, 192)].concat());
        let other = behind(&mut client, keys[1])[0];
        assert!(other.abs_diff(SIZE / 3) < SIZE / 20, "a third of the other: {other}");
    }

    fn what_a_stream_depends_on_is_whole_before_it(driver) {
        let server = started(driver);
        let frames = [depends(5, 3, 16), depends(1, 5, 256)].concat();
        let (mut client, keys) = opened(&server, &["", "", ""], &frames);
        assert_eq!(behind(&mut client, keys[1]), [0, 0]);
        assert_eq!(behind(&mut client, keys[2])[0], 0);
    }

    /// Chromium sends both.
    fn an_urgency_makes_dependencies_mean_nothing(driver) {
        let server = started(driver);
        let (mut client, keys) = opened(&server, &["u=2", "u=1"], &[depends(1, 0, 256), depends(3, 1, 1)].concat());
        assert_eq!(behind(&mut client, keys[1]), [0]);
    }

    /// The client takes a large file as fast as it comes, and asks for something urgent: that is read, and its response is not
    /// behind all of the file.
    fn an_urgent_request_is_served_amid_a_large_response(driver) {
        let server = started(driver);
        let mut client = Client::with_window(server.addr(0), 0x7fff_ffff);
        client.raw(&frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
        let big = client.open("GET", "/big", &[("priority", "u=7")], None);
        client.until("some of it", |client| client.order.len() > 10);
        let urgent = client.open("GET", "/small", &[("priority", "u=0")], None);
        client.until("both", |client| client.answers.values().all(|answer| answer.ended));
        let at = client.order.iter().rposition(|key| *key == urgent).expect("it has content");
        let after = client.order[at..].iter().filter(|key| **key == big).count();
        assert!(after * 2 > client.order.len(), "{after} pieces of {} after it", client.order.len());
        assert!(client.answers[&big].body == pattern(8 * SIZE) && client.answers[&urgent].body == pattern(20_000));
    }

    /// A client that takes nothing is read as long as what it asks for has room, and is given up as before.
    fn a_client_that_takes_nothing_is_read_for_a_while_only(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%; send_timeout 1s;
                http2_max_concurrent_streams 10000; keepalive_requests 100000; } }",
        ).driver(driver).file("big", pattern(8 * SIZE)).file("small", pattern(20_000)).start();
        let mut client = Client::with_window(server.addr(0), 0x7fff_ffff);
        client.raw(&frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
        client.open("GET", "/big", &[], None);
        // Nothing reads while these are asked for. The server closes: the client's writes fail, or what it reads then ends.
        for _ in 0..20 {
            client.get("/small");
        }
        let line = server.error_log_line("client timed out (110: Connection timed out) while sending to client");
        assert!(line.contains("while sending to client"), "{line}");
    }
}
