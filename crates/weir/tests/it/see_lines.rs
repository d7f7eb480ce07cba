//! `weir top lines`: what each line of the configuration costs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use weir_http::json::JsonValue;
use weir_test::{Client, DEADLINE, Server, both_drivers};

use crate::support::says as said;

/// The lines that are looked for are commented with their numbers.
const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%;
http {
    gzip_types text/plain;
    gzip on; # 4
    server {
        listen 127.0.0.1:%%PORT_0%%;
        default_type text/plain;
        keepalive_requests 1000000;
        location /text { root html; } # 9
        location /lua {
            content_by_lua_block { local n = 0; for i = 1, 300000 do n = n + i % 7 end; ngx.say(n) } # 11
        }
        location /one { return 200 one; } # 13
    }
}
";

/// A row: the line, its share of what requests run, and its text.
#[derive(Debug)]
struct Row {
    line: String,
    share: f64,
    text: String,
}

fn rows(text: &str) -> Vec<Row> {
    let json = JsonValue::parse(text.as_bytes()).expect("JSON");
    let list = json.list().expect("a list").iter();
    let text =
        |row: &JsonValue, key: &str| row.field(key).and_then(JsonValue::text).unwrap_or_default().to_owned();
    list.map(|row| Row {
        line: text(row, "line"),
        share: match row.field("share_of_run") {
            Some(JsonValue::Number(share)) => share.parse().expect("a number"),
            _ => 0.0,
        },
        text: text(row, "text"),
    })
    .collect()
}

/// The table of a second in which clients asked for `path`, once `right` says so.
fn asked(server: &Server, path: &str, fields: &str, right: impl Fn(&[Row]) -> bool) -> Vec<Row> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.client();
                while !done.load(Relaxed) {
                    let _ = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
                }
            });
        }
        let end = Instant::now() + DEADLINE;
        loop {
            let table = said::says(&["top", "lines", "-d", "300ms", "--json"], &said::of(server));
            let found = rows(&table);
            if right(&found) || Instant::now() > end {
                done.store(true, Relaxed);
                return found;
            }
        }
    })
}

both_drivers! {
    fn the_line_that_costs_most_is_first(driver) {
        for workers in ["1", "3"] {
            let text: String = (0..40_000).map(|n| format!("{} ", n * 7919 % 10_007)).collect();
            let server = Server::builder(&CONF.replace("%%WORKERS%%", workers))
                .file("html/text/a.txt", &text)
                .driver(driver)
                .start();
            said::ready(&server);
            for (path, fields, line, text) in [
                ("/text/a.txt", "Accept-Encoding: gzip\r\n", "nginx.conf:4", "gzip on;"),
                ("/lua", "", "nginx.conf:11", "content_by_lua_block {"),
            ] {
                let heaviest = |rows: &[Row]| rows.first().is_some_and(|row| row.line == line && row.share > 0.5);
                let found = asked(&server, path, fields, heaviest);
                assert!(heaviest(&found), "{path}: {found:?}");
                assert_eq!(found[0].text, text);
                let sum: f64 = found.iter().map(|row| row.share).sum();
                assert!((0.99..1.01).contains(&sum), "{found:?}");
            }
            // Of a small response most belongs to no line, and the rest to its own.
            let found = asked(&server, "/one", "", |rows| rows.len() > 1);
            assert!(found.iter().any(|row| row.line == "nginx.conf:13"), "{found:?}");
            assert!(found.iter().any(|row| row.line == "(server)"), "{found:?}");
            let table = Client::connect(server.addr(1)).request("GET /top/lines?every=100ms HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(table.text().starts_with("line "), "{table}");
        }
    }

    /// After a reload the lines are those of the new text.
    fn lines_follow_a_reload(driver) {
        let conf = CONF.replace("%%WORKERS%%", "2");
        let mut server = Server::builder(&conf).driver(driver).start();
        said::ready(&server);
        let found = asked(&server, "/one", "", |rows| rows.iter().any(|row| row.line == "nginx.conf:13"));
        assert!(found.iter().any(|row| row.line == "nginx.conf:13"), "{found:?}");
        server.reload(&conf.replace("# 4\n", "# 4\n\n\n"));
        let found = asked(&server, "/one", "", |rows| rows.iter().any(|row| row.line == "nginx.conf:15"));
        assert!(found.iter().any(|row| row.line == "nginx.conf:15"), "{found:?}");
    }
}
