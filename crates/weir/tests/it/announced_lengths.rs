//! Bodies of another length than their head has announced: what comes next on the connection is never taken for their rest, and no
//! client waits for bytes that never come.

use weir_test::{ConnectionEnd, Server, both_drivers};

/// Ways to a body of another length, each with the status of its head.
const WAYS: &[(&str, &str, u16)] = &[
    ("nothing is left", "return 200 longer; body_filter_by_lua_block { ngx.arg[1] = nil }", 200),
    (
        "less is left",
        "return 200 longer; body_filter_by_lua_block { if not ngx.arg[2] or ngx.arg[1] ~= '' then ngx.arg[1] = 'abc' end }",
        200,
    ),
    (
        "more is made of it",
        "return 200 longer; body_filter_by_lua_block { if ngx.arg[1] ~= '' then ngx.arg[1] = ('x'):rep(500) end }",
        200,
    ),
    ("an error page is dropped", "return 404; body_filter_by_lua_block { ngx.arg[1] = nil }", 404),
    (
        "a page of a header filter is dropped",
        "return 200 x; header_filter_by_lua_block { if ngx.status == 200 then return ngx.exit(412) end } body_filter_by_lua_block { ngx.arg[1] = nil }",
        412,
    ),
    (
        "a script announces too much",
        "content_by_lua_block { ngx.header.content_length = 10 ngx.print('abc') }",
        200,
    ),
    (
        "a script announces too little",
        "content_by_lua_block { ngx.header.content_length = 3 ngx.print('abcdef') }",
        200,
    ),
    (
        "it announces too much and flushes",
        "content_by_lua_block { ngx.header.content_length = 10 ngx.print('abc') ngx.flush(true) ngx.print('d') }",
        200,
    ),
    (
        "it announces too little and flushes",
        "content_by_lua_block { ngx.header.content_length = 3 ngx.print('abc') ngx.flush(true) ngx.print('HTTP/1.1 200 OK') }",
        200,
    ),
    (
        "a file is cut",
        "root %%DIR%%; try_files /file =404; body_filter_by_lua_block { ngx.arg[1] = nil }",
        200,
    ),
];

both_drivers! {
    fn a_body_of_another_length_ends_the_connection(driver) {
        let locations: String = WAYS
            .iter()
            .enumerate()
            .map(|(n, (_, way, _))| format!("location = /{n} {{ {way} }}\n"))
            .collect();
        let conf = format!(
            "events {{}}\nhttp {{ server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain; {locations}
             location / {{ return 200 next; }} }} }}\n"
        );
        let server = Server::builder(&conf).file("file", "f".repeat(3000)).start();
        for (n, (what, _, status)) in WAYS.iter().enumerate() {
            // Twice: what is known of the first may serve the second.
            for round in 0..2 {
                let asked = format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
                let (said, end) = server.client().send(asked).rest();
                let said = String::from_utf8_lossy(&said);
                assert_eq!(end, ConnectionEnd::Closed, "{what}, round {round}: {said:?}");
                assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {said:?}");
                let heads = said.matches("HTTP/1.1 200 OK\r\n").count() + said.matches("HTTP/1.1 4").count();
                assert_eq!(heads, 1, "{what}: nothing follows: {said:?}");
            }
        }
        let log = server.error_log();
        assert!(log.contains("the body has 3 bytes, Content-Length says 10: the connection is closed"), "{log}");
    }

    fn bodies_of_their_length_keep_it(driver) {
        let conf = "events {}\nhttp { server { listen 127.0.0.1:%%PORT%%; default_type text/plain;
            location = /same { return 200 longer; body_filter_by_lua_block { if ngx.arg[1] ~= '' then ngx.arg[1] = ngx.arg[1]:upper() end } }
            location = /none { return 204; body_filter_by_lua_block { ngx.arg[1] = nil } }
            location = /said { content_by_lua_block { ngx.header.content_length = 3 ngx.print('abc') } }
            location = /dropped { return 200 longer;
                header_filter_by_lua_block { ngx.header.content_length = nil } body_filter_by_lua_block { ngx.arg[1] = nil } }
            } }\n";
        let server = Server::builder(conf).start();
        let mut asked = String::new();
        for path in ["same", "none", "said", "dropped", "same"] {
            asked += &format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
            asked += &format!("HEAD /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        asked += "GET /said HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let (said, end) = server.client().send(asked).rest();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(end, ConnectionEnd::Closed, "it closes after the last: {said}");
        assert_eq!(said.matches("HTTP/1.1 2").count(), 11, "{said}");
        assert!(!server.error_log().contains("Content-Length says"));
    }
}
