//! What can't be determined is never taken for "no": attacks that make a check give up get no further than the check.

use std::sync::{Arc, Mutex};

use weir_test::{Backend, Driver, FcgiApp, FcgiOut, Server, both_drivers};

/// Patterns that explode on many letters: rules as they are written, whose last alternative is what they are for.
const CONF: &str = r#"http {
    map $http_x_map $mapped { "~(?:^(?:[a-z]+/?)+-old$|evil)" bad; default good; }
    map $http_x_volatile $role { volatile; "~^(?:[a-z]+/?)+$" guest; default admin; }
    server { listen 127.0.0.1:%%PORT%%; root html;
        location ~ (?:^/(?:[a-z]+/?)+-old$|\.bak$|/private/) { return 403 "denied\n"; }
        location / { return 200 "static\n"; }
        location /if { if ($http_user_agent ~* "(?:(?:[a-z]+ ?)+/crawl|evilbot)") { return 403; }
            return 200 "passed\n"; }
        location ^~ /unless { if ($http_user_agent !~* "^(?:[a-z]+ ?)+$") { return 200 "passed\n"; }
            return 403; }
        location ^~ /rw/ { rewrite "(?:^/rw/(?:[a-z]+/?)+-$|/admin$)" /denied last; return 200 "passed\n"; }
        location = /denied { return 403; }
        location = /map { if ($mapped = bad) { return 403; } return 200 "passed\n"; }
        location = /add { add_header X-Role $role always; return 200 "passed\n"; }
        location = /page { error_page 500 /fallback; if ($mapped = bad) { return 403; } return 200 "passed\n"; }
        location = /fallback { internal; return 200 "fallback\n"; }
        location = /proxied { proxy_set_header X-Role $role; proxy_pass http://127.0.0.1:%%PORT1%%; }
        location = /referer { valid_referers "~^(?:[a-z]+/?)+$"; if ($invalid_referer) { return 403; }
            return 200 "passed\n"; }
        location = /gzip { gzip on; gzip_min_length 1; gzip_types *; gzip_disable "^(?:[a-z]+ ?)+$";
            return 200 "passed and long enough to be packed\n"; }
        location = /redirect { proxy_pass http://127.0.0.1:%%PORT1%%;
            proxy_redirect "~^http://[0-9.:]+/(?:[a-z]+/?)+$" /; }
    }
    server { listen 127.0.0.1:%%PORT%%; server_name "~^(?:[a-z]+\.?)+-old\.test$"; return 200 "named\n"; }
}"#;

fn letters() -> String {
    "a".repeat(40)
}

fn start(driver: Driver) -> (Server, Backend) {
    let secret = format!("http://10.0.0.1/{}!", letters());
    let backend = Backend::start(move |visit| {
        while visit.head().is_some() {
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {secret}\r\nContent-Length: 3\r\n\r\nok\n");
            if !visit.send(head) {
                return;
            }
        }
    });
    let conf = CONF.replace("%%PORT1%%", &backend.port().to_string());
    let alert = "pcre2_match() failed: -47";
    (Server::builder(&conf).driver(driver).allow(alert).start(), backend)
}

fn get(server: &Server, path: &str, fields: &str) -> weir_test::Response {
    server.client().request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

both_drivers! {
    fn a_pattern_that_gives_up_ends_the_request_with_500(driver) {
        let (server, backend) = start(driver);
        let many = letters();
        for (path, fields) in [
            (format!("/{many}/private/y"), String::new()),
            (format!("/{many}{many}.bak"), String::new()),
            ("/if".into(), format!("User-Agent: {many} evilbot\r\n")),
            ("/unless".into(), format!("User-Agent: {many}!\r\n")),
            (format!("/rw/{many}/admin"), String::new()),
            ("/map".into(), format!("X-Map: {many} evil\r\n")),
            ("/add".into(), format!("X-Volatile: {many}!\r\n")),
            ("/proxied".into(), format!("X-Volatile: {many}!\r\n")),
            ("/referer".into(), format!("Referer: http://{many}!\r\n")),
            ("/redirect".into(), String::new()),
        ] {
            let response = get(&server, &path, &fields);
            assert_eq!(response.status, 500, "{path} {fields}: {response:?}");
            assert!(response.field("location").is_none(), "{response:?}");
        }
        assert_eq!(backend.heads(), 1, "only /redirect has come to the server");
        let log = server.error_log_line("using \"(?:^/(?:[a-z]+/?)+-old$|\\.bak$|/private/)\" in ");
        assert!(log.contains("[alert]") && log.contains("pcre2_match() failed: -47 on \"/aaaa"), "{log}");
        assert!(log.contains("nginx.conf:5,"), "the pattern's place: {log}");
        assert_eq!(get(&server, "/x/private/y", "").status, 403);
        assert_eq!(get(&server, "/x", "").text(), "static\n");
        assert_eq!(get(&server, "/map", "X-Map: evil\r\n").status, 403);
        assert_eq!(get(&server, "/map", "X-Map: x\r\n").text(), "passed\n");
    }

    fn an_error_page_serves_a_pattern_that_gave_up(driver) {
        let (server, _backend) = start(driver);
        let response = get(&server, "/page", &format!("X-Map: {} evil\r\n", letters()));
        assert_eq!((response.status, response.text().as_str()), (500, "fallback\n"));
    }

    fn gzip_is_left_out_where_its_pattern_gives_up(driver) {
        let (server, _backend) = start(driver);
        let fields = format!("Accept-Encoding: gzip\r\nUser-Agent: {}!\r\n", letters());
        let response = get(&server, "/gzip", &fields);
        assert_eq!((response.status, response.field("content-encoding")), (200, None));
    }

    /// nginx closes without a response; this one says why.
    fn a_server_name_that_gives_up_is_no_default_server(driver) {
        let (server, _backend) = start(driver);
        let host = format!("{}.test", letters());
        let response = server.client().request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 500);
        assert!(!response.keeps_alive());
    }

    /// 20 letters take some million steps: PCRE2's limit, and so nginx's, is ten.
    fn what_nginx_answers_is_answered(driver) {
        let (server, _backend) = start(driver);
        let response = get(&server, "/map", &format!("X-Map: {}!\r\n", "a".repeat(20)));
        assert_eq!(response.text(), "passed\n");
    }

    /// What a server speaks after an upgrade is seen by no location: HTTP/2 must not be it.
    fn only_named_protocols_are_upgraded_to(driver) {
        let heads = Arc::new(Mutex::new(String::new()));
        let seen = heads.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                seen.lock().expect("no panic").push_str(&head.to_ascii_lowercase());
                if !visit.answer("ok") {
                    return;
                }
            }
        });
        let conf = "http { server { listen 127.0.0.1:%%PORT%%; proxy_pass http://127.0.0.1:%%PORT1%%;
            location /on { proxy_upgrade on; proxy_pass http://127.0.0.1:%%PORT1%%; }
            location /named { proxy_upgrade x-own; proxy_pass http://127.0.0.1:%%PORT1%%; }
            location /recipe { proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
                proxy_pass http://127.0.0.1:%%PORT1%%; } } }";
        let conf = conf.replacen("proxy_pass http://127.0.0.1:%%PORT1%%;\n", "\n", 1);
        let server = Server::builder(&conf.replace("%%PORT1%%", &backend.port().to_string())).driver(driver).start();
        let ask = |path: &str, wish: &str| {
            heads.lock().expect("no panic").clear();
            let fields = format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {wish}\r\nHTTP2-Settings: AAMAAABk\r\n");
            assert_eq!(get(&server, path, &fields).text(), "ok");
            let head = heads.lock().expect("no panic").clone();
            assert!(!head.contains("http2-settings"), "{path} {wish}: {head}");
            head
        };
        for path in ["/on", "/named"] {
            for wish in ["h2c", "H2C", "h2c, foo", "TLS/1.0"] {
                assert!(!ask(path, wish).contains("upgrade"), "{path} {wish}");
            }
        }
        assert!(ask("/on", "WebSocket, h2c").contains("\nupgrade: websocket\r\nconnection: upgrade"));
        assert!(ask("/named", "x-own").contains("\nupgrade: x-own\r\n"));
        assert!(!ask("/named", "websocket").contains("upgrade"));
        ask("/recipe", "h2c");
    }

    fn a_101_that_nobody_asked_for_is_a_bad_gateway(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                if !visit.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n") {
                    return;
                }
            }
        });
        let app = FcgiApp::start(|_| FcgiOut::answer("Status: 101 Switching Protocols\r\n\r\n"));
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_pass http://127.0.0.1:{0}; }}
            location /on {{ proxy_upgrade on; proxy_pass http://127.0.0.1:{0}; }}
            location /fcgi {{ fastcgi_pass 127.0.0.1:{1}; }} }} }}", backend.port(), app.port());
        let server = Server::builder(&conf).driver(driver).allow("upstream sent 101").start();
        for (path, fields) in [("/", ""), ("/on", ""), ("/fcgi", ""), ("/on", "Upgrade: h2c\r\nConnection: upgrade\r\n"),
            ("/", "Upgrade: websocket\r\nConnection: upgrade\r\n")] {
            assert_eq!(get(&server, path, fields).status, 502, "{path} {fields}");
        }
    }

    /// nginx compares lengths only, and writes beside the directory.
    fn copies_stay_in_the_directory_of_an_alias(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
            location /dav/ { alias %%DIR%%/dav/; dav_methods PUT DELETE MKCOL COPY MOVE; } } }")
            .driver(driver).file("dav/f", "text").file("dav/a/x", "text").file("html/x", "x").allow("").start();
        let copy = |from: &str, to: &str| {
            server.client().request(format!("COPY {from} HTTP/1.1\r\nHost: a.test\r\nDestination: {to}\r\n\r\n")).status
        };
        for to in ["/abcd../html/pwn", "/abcd../pwn", "/zzzz/g", "/da", "http://a.test.evil/dav/g",
            "http://a.test@evil/dav/g", "http://a.testb/dav/g", "http://a.test:80x/dav/g"] {
            assert_eq!(copy("/dav/f", to), 400, "{to}");
        }
        for to in ["/dav/a/n?/", "/dav/a/n/?/", "/dav/a/n/"] {
            let status = copy("/dav/a/", to);
            assert!((400..500).contains(&status), "{to}: {status}");
        }
        let dir = server.dir().path();
        for made in ["pwn", "html/pwn", "dav/g", "dav/a/n"] {
            assert!(!dir.join(made).exists(), "{made}");
        }
        assert_eq!(copy("/dav/f", "http://a.test:80/dav/g"), 204);
        assert_eq!(copy("/dav/f", "/dav/h"), 204);
        assert!(dir.join("dav/g").exists() && dir.join("dav/h").exists());
    }

    fn paths_that_lead_upwards_are_mapped_to_nothing(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/html;
            location /als { alias %%DIR%%/html/; }
            location /try { alias %%DIR%%/html/; try_files $uri =404; }
            location /rewritten { rewrite ^ /$arg_f break; }
            location /lua { rewrite_by_lua_block { ngx.req.set_uri('/' .. ngx.var.arg_f) } }
            location /pcall { content_by_lua_block { ngx.say(pcall(ngx.req.set_uri, '/../x')) } } } }")
            .driver(driver).file("html/a.txt", "a").file("secret.txt", "SECRET").allow("").start();
        for path in ["/als../secret.txt", "/try../secret.txt", "/rewritten?f=../secret.txt", "/lua?f=../secret.txt",
            "/rewritten?f=x/../../secret.txt"] {
            let response = get(&server, path, "");
            assert!(response.status >= 400 && !response.text().contains("SECRET"), "{path}: {}", response.status);
        }
        assert_eq!(get(&server, "/als/a.txt", "").text(), "a");
        assert_eq!(get(&server, "/rewritten?f=a.txt", "").text(), "a");
        assert_eq!(get(&server, "/lua?f=a.txt", "").text(), "a");
        let said = get(&server, "/pcall", "").text();
        assert!(said.starts_with("falseunsafe uri") || said.contains("unsafe uri"), "{said}");
    }

    /// nginx sends such line ends as they are: response splitting, and fields of a client's own for servers.
    fn line_ends_of_variables_end_no_field(driver) {
        let heads = Arc::new(Mutex::new(String::new()));
        let seen = heads.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                seen.lock().expect("no panic").push_str(&head);
                if !visit.answer("ok") {
                    return;
                }
            }
        });
        for (setting, statuses) in [("", [200, 400, 200]), ("invalid_header_values drop;", [200, 400, 200]),
            ("invalid_header_values reject;", [500, 500, 500]), ("invalid_header_values off;", [200, 302, 200])] {
            let conf = format!("http {{ server {{ {setting} listen 127.0.0.1:%%PORT%%;
                location /add {{ add_header X-Uri $uri always; return 200 ok; }}
                location /to {{ return 302 http://a$uri; }}
                location /pass {{ proxy_set_header X-Uri $uri; proxy_pass http://127.0.0.1:{}/; }} }} }}", backend.port());
            let server = Server::builder(&conf).driver(driver).allow("").start();
            heads.lock().expect("no panic").clear();
            for (path, status) in ["/add", "/to", "/pass"].into_iter().zip(statuses) {
                let said = server.raw(format!("GET {path}%0d%0aX-Evil:%20y HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
                let said = String::from_utf8_lossy(&said).into_owned();
                assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{setting} {path}: {said}");
                assert_eq!(said.contains("\nX-Evil"), setting.contains("off") && path != "/pass", "{setting} {path}: {said}");
            }
            let head = heads.lock().expect("no panic").clone();
            assert_eq!(head.contains("\nX-Evil"), setting.contains("off"), "{setting}: {head}");
            let plain = server.raw("GET /add HTTP/1.0\r\nX: a\x01b\r\n\r\n");
            let status = if setting.contains("reject") { "400" } else { "200" };
            assert!(String::from_utf8_lossy(&plain).starts_with(&format!("HTTP/1.1 {status}")), "{setting}");
            assert!(server.get("/add/x").field("x-uri") == Some("/add/x"));
        }
    }

    /// What the configuration writes itself, control bytes that end no line, and folds without a colon (`$ssl_client_cert`)
    /// make no field: they go out as nginx sends them, unless `invalid_header_values` says what else is to go.
    fn values_that_end_no_field_are_kept(driver) {
        for (setting, controls) in [("", true), ("invalid_header_values drop;", false), ("invalid_header_values off;", true)] {
            let conf = format!("http {{ map $arg_a $fold {{ default \"A\\n\\tB\\n\"; k \"A\\n\\tB\"; f \"A\\n\\tX-Evil: y\"; r \"A\\rB\"; }}
                server {{ {setting} listen 127.0.0.1:%%PORT%%;
                location / {{ add_header X-Uri \"$uri\\n\" always; return 200 ok; }}
                location /fold {{ add_header X-Fold $fold always; add_header X-Last 1; return 200 ok; }} }} }}");
            let server = Server::builder(&conf).driver(driver).allow("").start();
            let said = |target: &str| {
                let said = server.raw(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
                String::from_utf8_lossy(&said).into_owned()
            };
            assert!(said("/a").contains("\r\nX-Uri: /a\n\r\n"), "{setting}: {}", said("/a"));
            assert_eq!(said("/%02a").contains("\r\nX-Uri: /\x02a\n\r\n"), controls, "{setting}: {}", said("/%02a"));
            // The line end of the last line belongs to what the server has not folded.
            assert!(!said("/fold").contains("X-Fold") || setting.contains("off"), "{setting}: {}", said("/fold"));
            let kept = said("/fold?a=k");
            assert!(kept.contains("\r\nX-Fold: A\n\tB\r\n"), "{setting}: {kept}");
            for (which, off) in [("f", "\r\nX-Fold: A\n\tX-Evil: y\r\n"), ("r", "\r\nX-Fold: A\rB\r\n")] {
                let said = said(&format!("/fold?a={which}"));
                assert_eq!(said.contains(off), setting.contains("off"), "{setting}: {said}");
                assert!(said.contains("X-Last: 1\r\n"), "{setting}: {said}");
            }
        }
    }

    /// Found by conformance/differ: scripts of a server ran in its locations alone, and what no location has was served.
    fn scripts_of_a_server_run_where_no_location_is_met(driver) {
        for (script, status) in [
            ("access_by_lua_block { ngx.exit(403) }", 403),
            ("rewrite_by_lua_block { ngx.exit(402) }", 402),
            ("precontent_by_lua_block { ngx.exit(409) }", 409),
            ("rewrite_by_lua_block { ngx.header['X-Seen'] = ngx.var.uri }", 200),
        ] {
            for (outer, inner) in [(script, ""), ("", script)] {
                let conf = format!("http {{ {outer} server {{ {inner} listen 127.0.0.1:%%PORT%%; location /in {{ }} }} }}");
                let server = Server::builder(&conf).driver(driver).file("html/a.txt", "a").file("html/in/a.txt", "in").start();
                for path in ["/a.txt", "/in/a.txt"] {
                    let response = server.get(path);
                    assert_eq!(response.status, status, "{outer}{inner} {path}");
                    assert!(status != 200 || response.field("x-seen") == Some(path), "{outer}{inner} {path}");
                }
            }
        }
    }
}
