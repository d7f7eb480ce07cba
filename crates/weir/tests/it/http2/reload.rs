//! Connections and a configuration that changes.

use std::io::{Read, Write};

use weir_http::h2::ErrorCode;
use weir_test::{Server, both_drivers, wait_for};

use super::attacks::frame;
use super::client::Client;
use super::counts::Link;

/// More than a connection and the sockets hold at a time.
const BIG: u64 = 24 << 20;

/// Loads the configuration again, and waits until the server at the second address is another one; what that would do to
/// other connections has been done some timers' ticks later.
fn reload(server: &mut Server, text: &str) {
    server.reload(text);
    wait_for("the new configuration", || {
        (Client::connect(server.addr(1)).fetch("/").text() == "two").then_some(())
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
}

fn conf(text: &str) -> String {
    format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT_0%%; http2 on; return 200 same; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; http2 on; location / {{ return 200 {text}; }} }} }}"
    )
}

both_drivers! {
    /// Those that are idle at once, and with GOAWAY.
    fn connections_end_where_their_server_changes(driver) {
        let mut server = Server::builder(&conf("one")).driver(driver).start();
        let (mut stays, mut ends) = (Client::connect(server.addr(0)), Client::connect(server.addr(1)));
        assert_eq!((stays.fetch("/").text(), ends.fetch("/").text()), ("same".into(), "one".into()));
        server.reload(&conf("two"));
        ends.until_closed();
        assert!(matches!(ends.goaway, Some((1, ErrorCode::No))), "{:?}", ends.goaway);
        assert_eq!(stays.fetch("/").text(), "same");
        assert_eq!(stays.goaway, None);
        assert_eq!(Client::connect(server.addr(1)).fetch("/").text(), "two");
    }

    /// The client of a full connection has the time of `send_timeout` that it had before.
    fn a_slow_client_outlasts_a_reload(driver) {
        let conf = |text: &str| conf(text).replace("return 200 same;", "location / { root files; }");
        let builder = Server::builder(&conf("one")).file("files/small", "x").driver(driver);
        let file = std::fs::File::create(builder.dir().join("files/big"));
        file.and_then(|file| file.set_len(BIG)).expect("ours");
        let mut server = builder.start();
        // It is in memory then, and comes as fast as the sockets take it.
        let mut first = Link::open(&server, 1 << 30);
        first.ask(1, "/big");
        first.until(|link| link.over(1));
        let mut link = Link::open(&server, 1 << 30);
        link.ask(1, "/big");
        // Nothing is read from here on, and what is not read does not fit into the sockets, which are full soon.
        link.until(|link| link.body(1) >= 10_000);
        std::thread::sleep(std::time::Duration::from_millis(100));
        reload(&mut server, &conf("two"));
        link.until(|link| link.over(1));
        assert_eq!(link.body(1), BIG);
    }

    /// A request whose head has come in part when its connection ends is not refused: GOAWAY says that it may be sent again.
    fn a_head_in_two_pieces_is_not_reset_by_a_reload(driver) {
        let mut server = Server::builder(&conf("one")).driver(driver).start();
        let mut socket = std::net::TcpStream::connect(server.addr(1)).expect("the server listens");
        let head = |stream| frame(1, 5, stream, b"\x82\x86\x84\x41\x01a");
        let begin = [&weir_http::h2::PREFACE[..], &frame(4, 0, 0, &[]), &head(1), &head(3)[..11]].concat();
        socket.write_all(&begin).expect("the server reads");
        wait_for("the first request", || (server.access_log_lines(1).len() == 1).then_some(()));
        reload(&mut server, &conf("two"));
        socket.write_all(&head(3)[11..]).expect("the server reads");
        socket.set_read_timeout(Some(weir_test::DEADLINE)).expect("a timeout");
        let mut all = Vec::new();
        socket.read_to_end(&mut all).expect("what the server says");
        assert!(!all.windows(9).any(|nine| nine == [0, 0, 4, 3, 0, 0, 0, 0, 3]), "{}", all.escape_ascii());
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert!(all.ends_with(&goaway), "{}", all.escape_ascii());
    }
}
