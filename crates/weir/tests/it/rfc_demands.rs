//! What the RFCs demand of a gateway and no other file has: see conformance/requirements.md.

use weir_test::{Backend, Server, both_drivers};

/// A server before another one that responds with the head that it got.
fn echoing(directives: &str) -> (Backend, Server) {
    let backend = Backend::start(|visit| {
        while let Some(head) = visit.head() {
            visit.answer(&head);
        }
    });
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%%; server_name a.test;
             location / {{ proxy_pass http://127.0.0.1:{}; {directives} }} }} }}",
        backend.port()
    );
    let server = Server::builder(&conf).start();
    (backend, server)
}

both_drivers! {
    /// RFC 9110 sections 5.1, 5.3, 7.6.1, 7.7, RFC 9112 section 2.3.
    fn what_is_of_the_clients_connection_stays_and_all_else_passes(driver) {
        let (_backend, server) = echoing("");
        for version in ["1.1", "1.0"] {
            let request = format!(
                "GET /a//b%20c/../d?x=%0A&y=/./ HTTP/{version}\r\nHost: a.test\r\nX-Same: 1\r\nKeep-Alive: 300\r\n\
                 Connection: keep-alive, TE, Upgrade, HTTP2-Settings\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\
                 Proxy-Connection: keep-alive\r\nX-Unknown:  what\t is \r\nX-Same: 2\r\n\r\n"
            );
            let head = server.client().request(request).text();
            assert!(head.starts_with("GET /a//b%20c/../d?x=%0A&y=/./ HTTP/1.1\r\n"), "{version}: {head}");
            let names: Vec<_> = head.lines().skip(1).filter_map(|line| line.split_once(": ")).collect();
            let own: Vec<_> = names.iter().filter(|(name, _)| !matches!(*name, "Host" | "Connection")).collect();
            assert_eq!(own, [&("X-Same", "1"), &("X-Unknown", "what\t is"), &("X-Same", "2")], "{version}: {head}");
            // What Weir says of its own connection, if anything.
            let connection = names.iter().find(|(name, _)| *name == "Connection").map_or("", |(_, value)| *value);
            assert!(matches!(connection, "" | "close"), "{version}: {head}");
            assert!(head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1, "{head}");
        }
    }

    /// RFC 9112 section 3.2.2.
    fn the_host_of_an_absolute_target_outweighs_the_field(driver) {
        let (_backend, server) = echoing("proxy_set_header Host $host;");
        let head = server.client().request("GET http://B.test:81/x HTTP/1.1\r\nHost: c.test\r\n\r\n").text();
        assert!(head.starts_with("GET /x HTTP/1.1\r\nHost: b.test\r\n") && !head.contains("c.test"), "{head}");
    }

    /// RFC 9110 sections 6.6.1 and 11.6.1.
    fn responses_have_a_date_and_401_says_what_is_wanted(driver) {
        let (_backend, server) = echoing("} location /own { return 200 own; } location /locked { auth_basic \"a realm\"; auth_basic_user_file %%DIR%%/none;");
        for path in ["/passed", "/own", "/locked"] {
            let response = server.get(path);
            let date = response.all("Date");
            assert_eq!(date.len(), 1, "{path}: {}", response.head_text());
            assert!(date[0].len() == 29 && date[0].ends_with(" GMT"), "{path}: {date:?}");
        }
        let locked = server.get("/locked");
        assert_eq!((locked.status, locked.field("WWW-Authenticate")), (401, Some("Basic realm=\"a realm\"")));
    }

    /// Names that servers which write them with underscores take for a length's are not passed on, whatever is configured;
    /// nginx passes them.
    fn names_like_a_lengths_are_not_passed_on(driver) {
        let (_backend, server) = echoing("} ignore_invalid_headers off; underscores_in_headers on; location /x {");
        let names = ["Transfer_Encoding", "content_length", "Transfer-Encoding\u{a0}", "Content-Length;"];
        let fields: String = names.iter().map(|name| format!("{name}: chunked\r\n")).collect();
        let head = server.client().request(format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}X_Other: 1\r\nX;y: 2\r\n\r\n")).text();
        let sent = head.to_ascii_lowercase();
        assert!(sent.contains("\r\nx_other: 1\r\nx;y: 2\r\n"), "{head}");
        assert!(!sent.contains("encoding") && !sent.contains("length"), "{head}");
    }
}
