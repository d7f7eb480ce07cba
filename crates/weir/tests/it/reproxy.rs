//! `reproxy`: what `X-Reproxy-URL` leads to, what it does not lead to, and that nothing is left of the response that had it.

use weir_test::{
    Backend, BackendVisit, Client, Driver, FcgiApp, FcgiOut, Response, Server, TestServerBuilder,
    both_drivers,
};

use crate::http2::client::Client as Http2Client;

/// An application: the query of `/app` is the URL that its response names, with a body that nobody shall see. `/moved?URL` is a
/// redirect, `/shown` the head of the request.
fn application() -> Backend {
    Backend::start(|visit| {
        while let Some(head) = visit.head() {
            read_body(visit, &head);
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let (status, field, body) = match path {
                "/moved" => ("302 Found", format!("Location: {query}\r\n"), "moved".to_owned()),
                "/shown" => ("200 OK", String::new(), head.clone()),
                "/large" => ("200 OK", format!("X-Reproxy-URL: {query}\r\n"), "s".repeat(3 << 20)),
                "/bytes" => ("200 OK", String::new(), "b".repeat(3 << 20)),
                _ => ("201 Created", format!("X-Reproxy-URL: {query}\r\nX-App: 1\r\n"), "secret".to_owned()),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{field}\r\n", body.len());
            if !visit.send(head + &body) {
                break;
            }
        }
    })
}

/// Reads the body that follows `head`: a connection that is good for another request has none of it left.
fn read_body(visit: &mut BackendVisit, head: &str) {
    let lower = head.to_ascii_lowercase();
    let length =
        lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
    if let Some(length) = length.filter(|length| *length < 1000) {
        let _body = visit.bytes(length);
    }
    if lower.contains("transfer-encoding: chunked") {
        let mut end = Vec::new();
        while !end.ends_with(b"0\r\n\r\n") {
            let Some(byte) = visit.bytes(1) else { return };
            end.extend(byte);
        }
    }
}

/// A server with `reproxy` as given, before the application; `%%APP%%` is its port.
fn serve(driver: Driver, workers: usize, app: &Backend, reproxy: &str) -> TestServerBuilder {
    let conf = format!(
        "worker_processes {workers}; http {{
            upstream app {{ server 127.0.0.1:%%APP%%; keepalive 8; }}
            server {{ listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:%%PORT_1%%; server_name own.test *.wild.test;
            {reproxy}
            location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
            location /files/ {{ internal; root content; default_type text/css; add_header X-File 1; }}
            location /again/ {{ rewrite ^/again/(.*)$ /app?/again/$1 break; proxy_pass http://app; }}
            location @fetch {{ proxy_pass $reproxy_url; proxy_set_header X-Fetched $reproxy_url; }} }} }}"
    );
    Server::builder(&conf.replace("%%APP%%", &app.port().to_string()))
        .driver(driver)
        .file("content/files/a.css", "the file")
        .file("content/files/b c", "another")
        .allow("reproxy")
        .allow("is no URL to be delivered")
        .allow("leads to no path")
        .allow("unsafe URI")
        .allow("internal delegations")
}

fn ask(server: &Server, method: &str, path: &str, host: &str) -> Response {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    server.client().request(head)
}

fn is_refused(server: &Server, path: &str, host: &str) {
    let response = ask(server, "GET", path, host);
    assert_eq!(response.status, 502, "{path}: {}", response.text());
    assert!(!response.text().contains("secret") && response.field("X-App").is_none(), "{path}");
    assert_eq!(response.field("X-Reproxy-URL"), None, "{path}");
}

both_drivers! {
    fn a_path_and_a_name_of_the_server_stay_inside(driver) {
        let app = application();
        for workers in [1, 4] {
            let server = serve(driver, workers, &app, "reproxy on;").start();
            let port = server.port(0);
            let own = [
                "/files/a.css".to_owned(), "files/a.css".to_owned(), "./x/../files/a.css".to_owned(), "//own.test/files/a.css".to_owned(),
                "http://OWN.test/files/a.css".to_owned(), "https://a.wild.test/files/a.css#f".to_owned(),
                format!("http://own.test:{port}/files/a.css"), "/app?/app?/files/a.css".to_owned(),
            ];
            for url in &own {
                let response = ask(&server, "GET", &format!("/app?{url}"), "own.test");
                assert_eq!((response.status, &response.text()[..]), (200, "the file"), "{url}");
                assert_eq!((response.field("Content-Type"), response.field("X-File")), (Some("text/css"), Some("1")), "{url}");
                assert_eq!((response.field("X-App"), response.field("X-Reproxy-URL")), (None, None), "{url}");
            }
            assert_eq!(ask(&server, "GET", "/app?/files/b%20c", "any").text(), "another");
            let head = server.client().send("HEAD /app?/files/a.css HTTP/1.1\r\nHost: a\r\n\r\n").response_to_head();
            assert_eq!((head.status, head.field("Content-Length")), (200, Some("8")));
            assert_eq!(ask(&server, "GET", "/app?/files/absent", "a").status, 404);
            assert_eq!(ask(&server, "GET", "/files/a.css", "a").status, 404, "it is internal");
        }
    }

    /// What the client has sent goes to the application alone, and the connection is good for another request.
    fn the_delegated_request_is_a_get_without_a_body(driver) {
        let app = application();
        for buffering in ["on", "off"] {
            let conf = format!("reproxy @fetch 127.0.0.1:%%APP%%; proxy_request_buffering {buffering};");
            let server = serve(driver, 1, &app, &conf).start();
            let mut client = server.client();
            let urls = ["/shown".to_owned(), format!("http://127.0.0.1:{}/shown", app.port())];
            for (at, url) in urls.iter().cycle().take(6).enumerate() {
                let framing = if at % 2 == 0 { "Content-Length: 9\r\n\r\n123456789" } else { "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" };
                let head = format!("PUT /app?{url} HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nX-Kept: 1\r\n{framing}");
                let shown = client.request(head).text();
                assert!(shown.starts_with("GET /shown HTTP/1.1\r\n"), "{buffering} {url}: {shown}");
                assert!(shown.contains("X-Kept: 1\r\n"), "{shown}");
                let lower = shown.to_ascii_lowercase();
                for gone in ["content-length", "transfer-encoding", "content-type"] {
                    assert!(!lower.contains(gone), "{buffering} {url}: {shown}");
                }
            }
        }
    }

    /// A body whose end never comes while the application has responded.
    fn an_unfinished_body_goes_nowhere(driver) {
        let app = application();
        let server = serve(driver, 1, &app, "reproxy @fetch *; proxy_request_buffering off;").start();
        for url in ["/files/a.css".to_owned(), format!("http://127.0.0.1:{}/shown", app.port())] {
            let mut client = server.client();
            client.send(format!("POST /app?{url} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome"));
            let response = client.response();
            assert_eq!(response.status, 200, "{url}");
            assert!(response.text().contains("the file") || response.text().starts_with("GET /shown HTTP/1.1\r\n"));
        }
        assert_eq!(ask(&server, "GET", "/app?/files/a.css", "a").text(), "the file");
    }

    fn only_hosts_of_the_list_are_asked(driver) {
        let (app, other) = (application(), Backend::answering("elsewhere"));
        let (here, there) = (app.port(), other.port());
        let list = format!("reproxy @fetch 127.0.0.1:{there} unix:/absent/socket;");
        let server = serve(driver, 2, &app, &list).allow("absent/socket").start();
        let fetched = ask(&server, "POST", &format!("/app?http://127.0.0.1:{there}/x?y"), "a");
        assert_eq!((fetched.status, &fetched.text()[..]), (200, "elsewhere"));
        for url in [
            format!("http://127.0.0.1:{here}/shown"), "http://127.0.0.1/".to_owned(), format!("https://127.0.0.1:{here}/"),
            format!("http://localhost:{there}/"), format!("http://127.0.0.1.own.test:{there}/"), "http://app/shown".to_owned(),
            "http://[::1]/".to_owned(), "http://169.254.169.254/latest/meta-data".to_owned(), "http://[unix:/run/other.sock]/".to_owned(),
            "http://2130706433/".to_owned(), "//elsewhere.test/".to_owned(),
        ] {
            is_refused(&server, &format!("/app?{url}"), "a");
        }
        // What the client says who it has asked has no say.
        is_refused(&server, "/app?http://elsewhere.test/files/a.css", "elsewhere.test");
        let visits = app.heads();
        is_refused(&server, "/app?http://[unix:/absent/socket]/x", "a");
        assert_eq!(app.heads(), visits + 1);
        let alone = serve(driver, 1, &app, "reproxy on;").start();
        is_refused(&alone, &format!("/app?http://127.0.0.1:{there}/"), "a");
        is_refused(&alone, "/app?http://own.test:1/files/a.css", "own.test");
        let off = serve(driver, 1, &app, "").start();
        let as_is = ask(&off, "GET", "/app?/files/a.css", "a");
        assert_eq!((as_is.status, as_is.field("X-Reproxy-URL"), &as_is.text()[..]), (201, Some("/files/a.css"), "secret"));
    }

    fn what_is_no_url_is_refused(driver) {
        let app = application();
        let server = serve(driver, 1, &app, "reproxy @fetch * unix:*;").start();
        for url in [
            "", "ftp://127.0.0.1/", "file:///etc/passwd", "javascript:alert(1)", "http:", "http://", "http:///x", "http://u@127.0.0.1/",
            "http://127.0.0.1:0/", "http://127.0.0.1:99999/", "http://a_b%2f/", "http://127.0.0.1\\@evil/", "/%2e%2e/x", "/a%00b", "/files/%2e%2e/x",
            "http://[unix:relative]/", "http://[::1", "data:,x", "@fetch:x",
        ] {
            is_refused(&server, &format!("/app?{url}"), "a");
        }
        // A name of a location is a relative path.
        assert_eq!(ask(&server, "GET", "/app?@fetch", "a").status, 502);
    }

    fn delegations_end(driver) {
        let app = application();
        let server = serve(driver, 1, &app, "reproxy on;").start();
        is_refused(&server, "/again/x", "a");
        let line = server.error_log_line("too many internal delegations, the last one to \"/again/x\"");
        assert!(line.contains("request: \"GET /again/x HTTP/1.1\""), "{line}");
        let nested = |count: usize| format!("{}/files/a.css", "/app?".repeat(count));
        assert_eq!(ask(&server, "GET", &nested(5), "a").text(), "the file");
        is_refused(&server, &nested(6), "a");
        let none = serve(driver, 1, &app, "reproxy on; reproxy_max_delegations 0;").start();
        is_refused(&none, &nested(1), "a");
        let ten = serve(driver, 1, &app, "reproxy on; reproxy_max_delegations 10;").start();
        assert_eq!(ask(&ten, "GET", &nested(10), "a").text(), "the file");
        is_refused(&ten, &nested(11), "a");
    }

    /// Redirects of what was asked for are followed, relative ones from where they are; those of the application are not.
    fn redirects_of_delegated_requests_are_followed(driver) {
        let app = application();
        let here = format!("http://127.0.0.1:{}", app.port());
        let server = serve(driver, 1, &app, "reproxy @fetch 127.0.0.1:%%APP%%;").start();
        for url in [
            format!("{here}/moved?/shown"), format!("{here}/moved?shown"), format!("{here}/moved?{here}/shown"),
            format!("{here}/app?shown"), format!("/moved?{here}/shown"),
        ] {
            let response = ask(&server, "GET", &format!("/app?{url}"), "a");
            let text = response.text();
            assert!(response.status == 200 && text.starts_with("GET /shown HTTP/1"), "{url}: {text}");
            assert!(text.contains(&format!("X-Fetched: {here}/shown\r\n")), "{url}: {text}");
        }
        assert_eq!(ask(&server, "GET", &format!("/app?{here}/moved?http://own.test/files/a.css"), "a").text(), "the file");
        is_refused(&server, &format!("/app?{here}/moved?http://169.254.169.254/"), "a");
        assert_eq!(ask(&server, "GET", "/moved?/shown", "a").status, 302);
    }

    fn large_bodies_are_given_up_and_delivered(driver) {
        let app = application();
        for workers in [1, 3] {
            let server = serve(driver, workers, &app, "reproxy @fetch 127.0.0.1:%%APP%%;").start();
            let mut client = server.client();
            for _ in 0..3 {
                for url in ["/bytes".to_owned(), format!("http://127.0.0.1:{}/bytes", app.port())] {
                    let response = client.get(&format!("/large?{url}"));
                    assert_eq!((response.status, response.body.len()), (200, 3 << 20), "{url}");
                    assert!(response.body.iter().all(|byte| *byte == b'b'));
                    assert_eq!(client.get("/large?/files/a.css").text(), "the file");
                }
            }
        }
    }

    fn streams_of_http2_get_what_was_delegated(driver) {
        let app = application();
        let server = serve(driver, 1, &app, "http2 on; reproxy @fetch 127.0.0.1:%%APP%%;").start();
        let mut client = Http2Client::connect(server.addr(0));
        for (url, len) in [("/files/a.css", 8), ("/bytes", 3 << 20)] {
            let response = client.fetch(&format!("/large?{url}"));
            assert_eq!((response.status, response.body.len()), (200, len), "{url}");
        }
        let fetched = client.fetch(&format!("/app?http://127.0.0.1:{}/shown", app.port()));
        assert!(String::from_utf8_lossy(&fetched.body).starts_with("GET /shown HTTP/1"));
        assert_eq!(client.fetch("/app?ftp://x/").status, 502);
    }

    fn responses_of_other_handlers_are_replaced(driver) {
        let fcgi = FcgiApp::start(|_| FcgiOut::answer("X-Reproxy-URL: /files/a.css\r\nSet-Cookie: a=b\r\n\r\nsecret"));
        let app = application();
        let conf = format!(
            "reproxy on; error_page 502 /sorry; location = /sorry {{ return 200 sorry; }}
             location /fcgi {{ fastcgi_pass 127.0.0.1:{}; }}
             location /lua {{ content_by_lua_block {{
                 ngx.header['X-Reproxy-URL'] = ngx.var.arg_to or '/files/a.css'
                 ngx.say('secret') ngx.flush(true) ngx.say('secret') }} }}",
            fcgi.port()
        );
        let server = serve(driver, 1, &app, &conf).allow("[").start();
        for path in ["/fcgi", "/lua"] {
            let response = ask(&server, "POST", path, "a");
            assert_eq!((response.status, &response.text()[..]), (200, "the file"), "{path}");
            assert_eq!((response.field("Set-Cookie"), response.field("X-Reproxy-URL")), (None, None), "{path}");
        }
        for path in ["/lua?to=gopher:x", "/app?gopher:x"] {
            let response = ask(&server, "GET", path, "a");
            assert_eq!((response.status, &response.text()[..]), (502, "sorry"), "{path}");
        }
    }

    fn a_subrequest_is_delegated_for_itself(driver) {
        let app = application();
        let conf = "reproxy on; location = /page { ssi on; ssi_types *; root content; }";
        let page = "<!--#include virtual=\"/app?/files/a.css\" -->,<!--#include virtual=\"/app?/files/a.css\" -->";
        let server = serve(driver, 1, &app, conf).file("content/page", page).start();
        assert_eq!(server.get("/page").text(), "the file,the file");
    }
}

#[test]
fn lines_that_allow_nothing_or_too_much_are_errors() {
    for (line, expected) in [
        ("reproxy @a;", "no hosts are named that may be asked; \"*\" allows all"),
        ("reproxy on a.test;", "hosts are allowed with a named location only"),
        ("reproxy maybe;", "invalid value \"maybe\""),
        ("reproxy @ a;", "invalid value \"@\""),
        ("reproxy @a http://b/;", "invalid value \"http://b/\""),
        ("reproxy @a b:0;", "invalid value \"b:0\""),
        ("reproxy on; reproxy on;", "\"reproxy\" directive is duplicate"),
        ("reproxy_max_delegations 11;", "value must be"),
    ] {
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;\n{line} }} }}");
        let exit = Server::builder(&conf).run(&["-t"]);
        assert!(exit.stderr.contains(expected) && exit.stderr.contains(":2:"), "{line}: {}", exit.stderr);
    }
}

/// Of the client's connection nothing is left over that the next request would read.
#[test]
fn requests_that_follow_at_once_are_served() {
    let app = application();
    let server = serve(Driver::Epoll, 1, &app, "reproxy on;").start();
    let one = "POST /app?/files/a.css HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let mut client = Client::connect(server.addr(0));
    client.send(one.repeat(20));
    for _ in 0..20 {
        assert_eq!(client.response().text(), "the file");
    }
}
