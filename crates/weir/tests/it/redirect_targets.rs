//! What scripts and servers say of where a request goes on, and what servers are sent then: nothing of it leads out of
//! a directory or ends a line before its time, and all of it arrives.

use weir_test::{Backend, Client, Response, Server, both_drivers};

fn serve(directives: &str) -> Server {
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain; {directives}
            location /shown {{ return 200 \"$uri?$args\"; }} }} }}"
    );
    Server::builder(&conf).allow("unsafe URI").allow("unsafe uri").allow("status code").start()
}

/// Responds with the request's head; `/to/...` with a redirect to what follows.
fn echo() -> Backend {
    Backend::start(|visit| {
        while let Some(head) = visit.head() {
            let target = head.split(' ').nth(1).unwrap_or_default();
            let accel = match target.strip_prefix("/to/") {
                Some(goal) => {
                    format!("X-Accel-Redirect: {}\r\n", goal.trim_start_matches('!').replace("NUL", "%00"))
                }
                None => String::new(),
            };
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{accel}\r\n{head}", head.len()));
        }
    })
}

fn both(response: &Response) -> (u16, String) {
    (response.status, response.text())
}

both_drivers! {
    fn no_error_page_follows_a_cycle_of_redirects(driver) {
        const LOCATIONS: &str = "
            location /turn { error_page 500 http://else.test/; rewrite ^ /turn last; }
            location /files { error_page 500 http://else.test/; try_files /absent /files; }
            location /one { error_page 500 http://else.test/; return 500; }";
        let statuses = |server: &Server| ["/turn", "/files", "/one"].map(|path| server.get(path).status);
        let server = Server::builder(&format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; {LOCATIONS} }} }}"));
        let server = server.allow("redirection cycle").start();
        assert_eq!(statuses(&server), [500, 500, 302]);
        let nginx = format!("events {{ }} http {{ server {{ listen 127.0.0.1:%%PORT%%; {LOCATIONS} }} }}");
        let Some(nginx) = weir_test::nginx(&nginx) else { return };
        assert_eq!(statuses(&nginx.allow("[").start()), [500, 500, 302]);
    }

    fn a_server_s_redirect_is_unescaped_and_checked(driver) {
        let backend = echo();
        let server = serve(&format!(
            "location / {{ proxy_pass http://127.0.0.1:{}$request_uri; }} location /up/ {{ alias html/; }}",
            backend.port()
        ));
        let ask = |goal: &str| both(&server.get(&format!("/to/{goal}")));
        assert_eq!(ask("/shown/a%20b%2525?c=%20"), (200, "/shown/a b%25?c=%20".to_owned()));
        assert_eq!(ask("/shown/%c3%a4"), (200, "/shown/\u{e4}?".to_owned()));
        for goal in ["/up/../nginx.conf", "/up/%2e%2e/x", "/up/..%2fx", "/shown/aNULb", "!?a=b", "!"] {
            assert_eq!(ask(goal).0, 404, "{goal}");
        }
        let _ = server.error_log_line("unsafe URI \"/up/..%2fx\" was detected");
    }

    fn a_script_s_redirect_is_unescaped_and_checked(driver) {
        let server = serve(
            "location /exec { content_by_lua_block { ngx.exec(ngx.unescape_uri(ngx.var.arg_to), ngx.var.arg_args) } }
             location /capture { content_by_lua_block {
                 ngx.print(ngx.location.capture(ngx.unescape_uri(ngx.var.arg_to)).body) } }"
        );
        for way in ["exec", "capture"] {
            let ask = |goal: &str| both(&server.get(&format!("/{way}?to={goal}")));
            assert_eq!(ask("/shown/a%2520b%252525?c=%2520"), (200, "/shown/a b%25?c=%20".to_owned()), "{way}");
            for goal in ["/shown/%252e%252e/x", "/shown/a%2500b", "/shown/../x", "?a"] {
                assert_eq!(ask(goal).0, 500, "{way} {goal}");
            }
        }
        let with = |to: &str| server.get(&format!("/exec?to={to}&args=x")).text();
        assert_eq!([with("/shown"), with("/shown?"), with("/shown?a")], ["/shown?x", "/shown?x", "/shown?a&x"]);
    }

    fn what_a_script_makes_of_a_request_arrives(driver) {
        let backend = echo();
        let server = serve(&format!(
            "location / {{ access_by_lua_block {{
                local given = ngx.unescape_uri(ngx.var.arg_v)
                if ngx.var.uri == '/args' then ngx.req.set_uri_args(given)
                elseif ngx.var.uri == '/table' then ngx.req.set_uri_args({{a = given}})
                elseif ngx.var.uri == '/name' then ngx.req.set_header(given, 'v')
                else ngx.req.set_header('X-A', {{given, ''}}) end
            }} proxy_pass http://127.0.0.1:{}; }}",
            backend.port()
        ));
        let reported = |path: &str| server.get(path).text();
        assert!(reported("/args?v=b%20c%0d%0aX:%20y").starts_with("GET /args?b%20c%0D%0AX:%20y HTTP/1"));
        assert!(reported("/table?v=b%0a").starts_with("GET /table?a=b%0A HTTP/1"));
        assert!(reported("/args?v=").starts_with("GET /args HTTP/1"));
        assert!(reported("/name?v=x_y").contains("\r\nx_y: v\r\n"));
        assert!(reported("/name?v=x%20(:%0dy").contains("\r\nx%20%28%3A%0Dy: v\r\n"));
        assert!(reported("/value?v=b%0d%0aX-B:c").contains("\r\nX-A: b%0D%0AX-B:c\r\n"));
        // Empty ones of a list are sent, as ngx_lua does; of two, one.
        assert_eq!(reported("/value?v=").matches("\r\nX-A: \r\n").count(), 1);
        assert!(reported("/value?v=b").contains("\r\nX-A: b\r\nX-A: \r\n"));
    }

    fn what_a_script_says_to_a_client_is_escaped(driver) {
        let server = serve(
            "location /name { content_by_lua_block { ngx.header[ngx.unescape_uri(ngx.var.arg_v)] = 'v' ngx.say('') } }
             location /value { content_by_lua_block {
                 ngx.header['X-A'] = 'before' ngx.header['X-A'] = ngx.unescape_uri(ngx.var.arg_v) ngx.say('') } }
             location /status { content_by_lua_block { ngx.status = tonumber(ngx.var.arg_v) ngx.print('on') } }"
        );
        let fields = |path: &str| server.get(path).fields;
        let has = |path: &str, name: &str, value: &str| fields(path).contains(&(name.to_owned(), value.to_owned()));
        assert!(has("/name?v=a/b%0d%0aX", "a%2Fb%0D%0AX", "v"));
        assert!(has("/value?v=a%0aX:b", "X-A", "a%0AX:b"));
        assert!(!fields("/value?v=").iter().any(|(name, _)| name == "X-A"));
        for status in ["0", "99", "1000", "-1"] {
            let response = server.get(&format!("/status?v={status}"));
            assert_eq!(both(&response), (200, "on".to_owned()), "{status}");
            let _ = server.error_log_line(&format!("invalid HTTP status code {status},"));
        }
    }

    /// Names that were let in are passed on, in every protocol.
    fn unusual_names_that_are_wanted_reach_servers(driver) {
        let backend = echo();
        let conf = format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; server_name on; underscores_in_headers on; {pass} }}
                server {{ listen 127.0.0.1:%%PORT%%; server_name any; ignore_invalid_headers off; {pass} }}
                server {{ listen 127.0.0.1:%%PORT%%; server_name off; {pass} }} }}",
            pass = format_args!("location / {{ proxy_pass http://127.0.0.1:{}; }}", backend.port())
        );
        let server = Server::builder(&conf).start();
        let reported = |host: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nx_y: 1\r\nx!y: 2\r\n\r\n");
            server.client().request(head).text()
        };
        let has = |text: String| (text.contains("\r\nx_y: 1\r\n"), text.contains("\r\nx!y: 2\r\n"));
        assert_eq!(["on", "any", "off"].map(reported).map(has), [(true, false), (true, true), (false, false)]);
    }

    /// `max_headers` counts what is taken.
    fn names_that_are_left_out_count_for_no_limit(driver) {
        let conf = "http { max_headers 3; server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 taken; } }
            server { listen 127.0.0.1:%%PORT_1%%; ignore_invalid_headers off; location / { return 200 taken; } } }";
        let server = Server::builder(conf).start();
        let status = |server_at: usize, fields: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\n{fields}\r\n");
            Client::connect(server.addr(server_at)).request(head).status
        };
        let unusual = "x_y: 1\r\nx!y: 2\r\n";
        assert_eq!([status(0, unusual), status(1, unusual)], [200, 400]);
        assert_eq!(status(0, &format!("{unusual}B: 1\r\n")), 200);
        assert_eq!(status(0, &format!("{unusual}B: 1\r\nC: 1\r\n{unusual}")), 400);
    }

    fn computed_targets_keep_their_bytes(driver) {
        let backend = Backend::start(|visit| {
            let line = visit.bytes(b"GET /y\xe4\xf6%41 HTTP/1".len()).unwrap_or_default();
            let _ = visit.head();
            let line = line.escape_ascii().to_string();
            visit.send(format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len()));
        });
        let server =
            serve(&format!("location /x {{ proxy_pass http://127.0.0.1:{}/y$arg_v; }}", backend.port()));
        let response = server.client().request(b"GET /x?v=\xe4\xf6%41 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(both(&response), (200, "GET /y\\xe4\\xf6%41 HTTP/1".to_owned()));
    }
}
