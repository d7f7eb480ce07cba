//! `memcached_pass`: the same memcached behind nginx and Weir is asked the same, and clients get the same responses.

use crate::support;

use std::sync::{Arc, Mutex};

use weir_test::{Backend, BackendVisit, Server, both_drivers, require_program};

use support::get;

/// The next command, without its end.
fn command(visit: &mut BackendVisit) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(visit.bytes(1)?);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).ok()
}

/// A memcached that has what `answer` says, and the commands it got.
fn memcached(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (Backend, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let backend = Backend::start(move |visit| {
        while let Some(line) = command(visit) {
            log.lock().expect("no panic").push(line.clone());
            visit.send(answer(line.strip_prefix("get ").unwrap_or_default()));
        }
    });
    (backend, asked)
}

/// What is stored under `key`: each is a case.
fn kept(key: &str) -> String {
    let value =
        |flags: &str, value: &str| format!("VALUE {key} {flags} {}\r\n{value}\r\nEND\r\n", value.len());
    match key {
        "/none" => "END\r\n".to_owned(),
        "/empty.txt" => value("0", ""),
        "/zipped" => value("6", "\x1f?"),
        "/flags" => value("x", "hello"),
        "/error" => "ERROR\r\n".to_owned(),
        "/lf" => "END\n".to_owned(),
        "/key" => "VALUE /other 0 5\r\nhello\r\nEND\r\n".to_owned(),
        "/length" => "VALUE /length 0 x\r\n".to_owned(),
        "/short" => "VALUE /short\r\n".to_owned(),
        "/trailer" => "VALUE /trailer 0 5\r\nhello\r\nENX\r\n".to_owned(),
        "/long" => "V".repeat(5000),
        _ => value("0", &format!("value of {key}")),
    }
}

const CONF: &str = "http {
    types { text/css css; } default_type text/plain;
    upstream one { server 127.0.0.1:APP; keepalive 1; }
    server { listen 127.0.0.1:%%PORT%%; set $memcached_key $uri;
        location / { memcached_pass one; }
        location /zipped { memcached_gzip_flag 2; memcached_pass one; }
        location /flags { memcached_gzip_flag 2; memcached_pass one; }
        location /paged/ { set $memcached_key /none; error_page 404 = /fall; memcached_pass one; }
        location /fall { return 200 'instead $request_uri'; }
        location /unset { set $memcached_key ''; memcached_pass one; }
        location /if { if ($arg_hand) { memcached_pass one; } return 200 no; }
    } }";

const CASES: [&str; 20] = [
    "/a.css",
    "/a%20b%25c%0a",
    "/none",
    "/empty.txt",
    "/zipped",
    "/flags",
    "/error",
    "/lf",
    "/key",
    "/length",
    "/short",
    "/trailer",
    "/long",
    "/paged/x",
    "/unset",
    "/if?hand=1",
    "/if",
    "/kept?a=1",
    "/%ff",
    "/last",
];

/// Status, and what of the head memcached decides, and the body, of each case; then what was asked.
fn ask(start: impl FnOnce(&str) -> Server) -> (Vec<String>, Vec<String>) {
    let (app, asked) = memcached(kept);
    let server = start(&CONF.replace("APP", &app.port().to_string()));
    let ask = |request: String| {
        let answer = server.client().request(request);
        let field = |name: &str| answer.field(name).unwrap_or("-").to_owned();
        let names = ["Content-Type", "Content-Length", "Content-Encoding", "Accept-Ranges", "Content-Range"];
        let page = answer.text().contains("<hr>");
        let fields: Vec<_> = names.iter().filter(|_| !page).map(|name| field(name)).collect();
        let body = if page { "page".to_owned() } else { answer.text() };
        format!("{} {fields:?} {body}", answer.status)
    };
    let mut answers: Vec<_> = CASES
        .iter()
        .map(|path| ask(get(path).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")))
        .collect();
    let ranged = "GET /ranged HTTP/1.0\r\nRange: bytes=1-3\r\n\r\n";
    answers.push(ask(ranged.to_owned()));
    answers.push(ask("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab".to_owned()));
    let asked = std::mem::take(&mut *asked.lock().expect("no panic"));
    (answers, asked)
}

both_drivers! {
    fn values_are_answered_as_by_nginx(driver) {
        let (answers, asked) = ask(|conf| Server::builder(conf).driver(driver).allow("memcached").allow("too big header").start());
        assert_eq!(answers[0], "200 [\"text/css\", \"15\", \"-\", \"bytes\", \"-\"] value of /a.css");
        assert!(answers[2].starts_with("404 "), "{}", answers[2]);
        assert_eq!(answers[13], "200 [\"text/plain\", \"16\", \"-\", \"-\", \"-\"] instead /paged/x");
        assert_eq!(asked[1], "get /a%20b%25c%0A", "a key can't end the command");
        if require_program("nginx").is_some() {
            let nginx = |conf: &str| weir_test::nginx(&format!("events {{ }} {conf}"));
            let theirs = ask(|conf| nginx(conf).expect("it is there").allow("memcached").allow("too big header").start());
            assert_eq!((answers, asked), theirs);
        }
    }

    fn heads_have_no_body_and_what_is_wrong_is_logged(driver) {
        let (app, _) = memcached(kept);
        let server = Server::builder(&CONF.replace("APP", &app.port().to_string())).driver(driver).allow("memcached").start();
        let answer = {
            let mut client = server.client();
            client.send("HEAD /a.css HTTP/1.1\r\nHost: h\r\n\r\n");
            let answer = client.response_to_head();
            assert_eq!(client.get("/b").text(), "value of /b", "nothing of the body is left");
            answer
        };
        assert_eq!((answer.status, answer.field("Content-Length")), (200, Some("15")));
        for (path, status, words) in [
            ("/error", 502, "memcached sent invalid response: \"ERROR\" while reading response header from upstream"),
            ("/key", 502, "memcached sent invalid key in response \"VALUE /other 0 5\" for key \"/key\" while reading"),
            ("/length", 502, "memcached sent invalid length in response \"VALUE /length 0 x\" for key \"/length\""),
            ("/flags", 502, "memcached sent invalid flags in response \"VALUE /flags x 5\" for key \"/flags\""),
            ("/trailer", 200, "memcached sent invalid trailer"),
            ("/unset", 500, "the \"$memcached_key\" variable is not set"),
        ] {
            assert_eq!(server.get(path).status, status, "{path}");
            let _ = server.error_log_line(words);
        }
    }

    /// A connection is used again after values and after none, not after what was wrong.
    fn connections_are_kept(driver) {
        let (app, _) = memcached(kept);
        let server = Server::builder(&CONF.replace("APP", &app.port().to_string())).driver(driver).allow("memcached").start();
        for path in ["/a", "/none", "/paged/x", "/zipped", "/empty.txt", "/a"] {
            let _ = server.get(path);
        }
        assert_eq!(app.visits(), 1);
        assert_eq!(server.get("/trailer").text(), "hello");
        assert_eq!(server.get("/a").status, 200);
        assert_eq!(app.visits(), 2);
    }

    fn the_next_server_is_asked_for_what_one_has_not(driver) {
        let (first, _) = memcached(|_| "END\r\n".to_owned());
        let (second, _) = memcached(kept);
        let conf = format!(
            "http {{ upstream two {{ server 127.0.0.1:{}; server 127.0.0.1:{} backup; }}
                server {{ listen 127.0.0.1:%%PORT%%; set $memcached_key $uri;
                    location / {{ memcached_next_upstream not_found; memcached_pass two; }}
                    location /stay {{ memcached_pass two; }} }} }}",
            first.port(), second.port(),
        );
        let server = Server::builder(&conf).driver(driver).start();
        assert_eq!(server.get("/a").text(), "value of /a");
        assert_eq!(server.get("/stay").status, 404);
    }
}
