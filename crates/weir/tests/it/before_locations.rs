//! What a server responds before it has looked for a location: by which of its settings.

use weir_test::{Response, Server, both_drivers};

use crate::support::get;

/// Ways to respond before a location is found, by the argument `by`, and their statuses.
const WAYS: &str = "if ($arg_by = text) { return 200 text; }
    if ($arg_by = away) { return 302 /x; }
    if ($arg_by = page) { return 403; }
    if ($arg_by = moved) { rewrite ^ /y permanent; }
    server_rewrite_by_lua_block { local by = ngx.var.arg_by
        if by == 'exit' then ngx.exit(402)
        elseif by == 'says' then ngx.say('lua') ngx.exit(200)
        elseif by == 'redirects' then return ngx.redirect('/z') end }";
const STATUSES: [(&str, u16); 7] = [
    ("text", 200),
    ("away", 302),
    ("page", 403),
    ("moved", 301),
    ("exit", 402),
    ("says", 200),
    ("redirects", 302),
];

/// Settings of the server, and what of each response they show in: whether its connection is kept, a field and its value.
/// That it is the count or the age of requests that ends a connection is found with the location, as in nginx.
const SETTINGS: [(&str, bool, &str, Option<&str>); 11] = [
    ("", true, "connection", Some("keep-alive")),
    ("keepalive_timeout 0;", false, "connection", Some("close")),
    ("keepalive_timeout 0 7;", false, "keep-alive", None),
    ("keepalive_timeout 5 7;", true, "keep-alive", Some("timeout=7")),
    ("keepalive_requests 1;", true, "connection", Some("keep-alive")),
    ("keepalive_time 0;", true, "connection", Some("keep-alive")),
    ("keepalive_disable msie6 safari;", true, "connection", Some("keep-alive")),
    ("server_tokens off;", true, "server", Some("weir")),
    ("add_header A b always;", true, "a", Some("b")),
    ("more_set_headers 'A: c';", true, "a", Some("c")),
    (
        "error_page 403 402 =418 /ep; location /ep { keepalive_timeout 0; add_header X y always; return 418; }",
        true,
        "x",
        None,
    ),
];

fn serve(driver: weir_test::Driver, workers: usize, settings: &str, location: &str) -> Server {
    let text = format!("worker_processes {workers}; events {{}} http {{ server {{ listen 127.0.0.1:%%PORT%%; {settings} {WAYS}
        location / {{ {location} return 200 found; }} }} }}");
    Server::builder(&text).driver(driver).start()
}

both_drivers! {
    /// Each of them, first and when its head has come before.
    fn the_settings_of_the_server_count(driver) {
        for (settings, keeps, field, value) in SETTINGS {
            let server = serve(driver, 1, settings, "");
            for (by, status) in STATUSES {
                let what = format!("{settings} {by}");
                // What error_page leads to has a location.
                let (status, keeps, value) = match settings.starts_with("error_page") && status > 401 {
                    true => (418, false, Some("y")),
                    false => (status, keeps, value),
                };
                let request = get(&format!("/a?by={by}"));
                let mut client = server.client();
                for round in 0..3 {
                    let said: Response = client.request(&request);
                    assert_eq!((said.status, said.field(field)), (status, value), "{what} {round}");
                    assert_eq!(said.keeps_alive(), keeps, "{what} {round}");
                    if !keeps {
                        client.expect_close();
                        client = server.client();
                    }
                }
            }
        }
    }

    /// A pipeline ends with the first response that says so; one from a location with time to wait is kept.
    fn no_time_to_wait_ends_a_pipeline(driver) {
        for workers in [1, 8] {
            let server = serve(driver, workers, "keepalive_timeout 0;", "keepalive_timeout 75s;");
            for (by, status) in STATUSES {
                let mut client = server.client();
                client.send(get("/a").repeat(2) + &get(&format!("/a?by={by}")).repeat(2));
                for _ in 0..2 {
                    let said = client.response();
                    assert_eq!((&*said.text(), said.keeps_alive()), ("found", true), "{by}");
                }
                let said = client.response();
                assert_eq!((said.status, said.keeps_alive()), (status, false), "{by}");
                client.expect_close();
            }
        }
    }

    /// Old clients ask for it, and are not given it either.
    fn no_time_to_wait_is_for_http_1_0_too(driver) {
        let server = serve(driver, 1, "keepalive_timeout 0;", "");
        for (by, status) in STATUSES {
            let mut client = server.client();
            let said = client.request(format!("GET /a?by={by} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
            assert_eq!((said.status, said.field("connection")), (status, Some("close")), "{by}");
            client.expect_close();
        }
    }

    /// A request that goes to another path inside begins again in the server, whose settings count then, too; one that goes to a
    /// named location, or whose path is rewritten, does not.
    fn an_internal_redirect_leads_through_the_server(driver) {
        for (setting, last) in [("keepalive_requests 3;", 3), ("keepalive_timeout 0;", 1), ("", 9)] {
            let text = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; {setting} root html;
                location / {{ keepalive_requests 9; keepalive_timeout 60s;
                    location = /page {{ error_page 404 =200 /end; return 404; }}
                    location = /exec {{ content_by_lua_block {{ ngx.exec('/end') }} }}
                    location = /tries {{ try_files /none /end; }}
                    location = /dir/ {{ index end.html; }}
                    location = /accel {{ proxy_pass http://127.0.0.1:%%PORT_1%%; }}
                    location = /named {{ error_page 404 =200 @end; return 404; }}
                    location = /rewritten {{ rewrite ^ /end; }}
                    location = /end {{ return 200 end; }} }}
                location @end {{ keepalive_requests 9; keepalive_timeout 60s; return 200 end; }} }}
                server {{ listen 127.0.0.1:%%PORT_1%%; location / {{ add_header X-Accel-Redirect /end; return 204; }} }} }}");
            let server = Server::builder(&text).driver(driver).file("html/dir/end.html", "end").start();
            for path in ["/page", "/exec", "/tries", "/dir/", "/accel", "/named", "/rewritten"] {
                let last = if matches!(path, "/named" | "/rewritten") { 9 } else { last };
                let mut client = server.client();
                for number in 1..=last {
                    let said = client.request(get(path));
                    assert_eq!((&*said.text(), said.keeps_alive()), ("end", number < last), "{setting} {path} {number}");
                }
                client.expect_close();
            }
        }
    }
}
