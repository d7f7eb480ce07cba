//! Connections and a configuration that changes.

use weir_http::h2::ErrorCode;
use weir_test::{Server, both_drivers};

use super::client::Client;

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
}
