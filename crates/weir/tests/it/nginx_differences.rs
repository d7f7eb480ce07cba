//! What `conformance/differ` found by running generated configurations on nginx and on Weir.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_test::{Backend, FcgiApp, FcgiOut, Server, both_drivers, wait_for};

both_drivers! {
    /// A 204 that the server says itself has no type, also where a header filter sets one or makes the status 204.
    fn a_204_has_no_type_whatever_filters_set(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
            location /script { return 204; header_filter_by_lua_block { ngx.header.content_type = 'text/x' } }
            location /more { return 204; more_set_headers 'Content-Type: text/x'; }
            location /status { return 200 a; header_filter_by_lua_block { ngx.status = 204 } }
            location /page { return 200 a; header_filter_by_lua_block { ngx.header.content_type = 'text/x' } } } }").driver(driver).start();
        for path in ["/script", "/more", "/status"] {
            let said = server.get(path);
            assert_eq!((said.status, said.field("content-type")), (204, None), "{path}");
        }
        assert_eq!(server.get("/page").field("content-type"), Some("text/x"));
    }

    /// nginx's own 494 to 497 are 400 in its pages alone: with a body, from a script or from an upstream server they are themselves.
    fn statuses_of_nginxs_own_pages_are_ordinary_elsewhere(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
            error_page 495 /error;
            location = /error { return 200 page; }
            location /text { return 494 text; }
            location /script { content_by_lua_block { ngx.status = 496 ngx.print('text') } }
            location /page { return 497; }
            location /exit { content_by_lua_block { ngx.exit(496) } }
            location /own { return 495; }
            location /proxied/ { proxy_pass http://127.0.0.1:%%PORT%%/; } } }").driver(driver).start();
        for (path, line, body) in [
            ("/text", "HTTP/1.1 494 \r\n", "text"),
            ("/script", "HTTP/1.1 496 \r\n", "text"),
            ("/page", "HTTP/1.1 400 Bad Request\r\n", "plain HTTP request was sent to HTTPS port"),
            ("/exit", "HTTP/1.1 400 Bad Request\r\n", "No required SSL certificate was sent"),
            ("/own", "HTTP/1.1 400 Bad Request\r\n", "page"),
        ] {
            for path in [path.to_owned(), format!("/proxied{path}")] {
                let said = server.get(&path);
                assert!(said.head.starts_with(line.as_bytes()), "{path}: {}", said.head.escape_ascii());
                assert!(said.text().contains(body), "{path}: {}", said.text());
            }
        }
    }

    /// A copy of a request (`mirror`) does not count a second time: limits around its location refused it.
    fn limits_count_a_mirrored_request_once(driver) {
        let copies = Arc::new(AtomicUsize::new(0));
        let seen = copies.clone();
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
                if !visit.answer("ok") {
                    return;
                }
            }
        });
        for limit in ["limit_req zone=requests;", "limit_conn connections 1;"] {
            copies.store(0, Ordering::SeqCst);
            let conf = format!("http {{ limit_req_zone $server_addr zone=requests:64k rate=1r/m;
                limit_conn_zone $server_addr zone=connections:64k;
                server {{ listen 127.0.0.1:%%PORT%%; {limit}
                    location / {{ mirror /copy; return 204; }}
                    location /static/ {{ mirror /copy; }}
                    location = /copy {{ internal; proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
            let server = Server::builder(&conf).driver(driver).file("html/static/a", "a").allow("limiting").start();
            assert_eq!(server.get("/static/a").status, 200, "{limit}");
            wait_for(limit, || (copies.load(Ordering::SeqCst) == 1).then_some(()));
        }
    }

    /// A response to HEAD has no content (RFC 9110, 9.3.2), also where the line or a field is refused.
    fn what_is_refused_of_a_head_request_has_no_page(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; } }").driver(driver).start();
        for head in ["HEAD /a b HTTP/1.1\r\nHost: a", "HEAD a HTTP/1.1\r\nHost: a", "HEAD * HTTP/1.1\r\nHost: a",
            "\r\nHEAD /\x01 HTTP/1.1\r\nHost: a", "HEAD / HTTP/1.1x\r\nHost: a", "HEAD / HTTP/2.0\r\nHost: a",
            "HEAD / HTTP/1.1", "HEAD / HTTP/1.1\r\nHost: a\r\nHost: b", "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: x"] {
            let said = server.raw(format!("{head}\r\n\r\n"));
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with("HTTP/1.1 400 ") || said.starts_with("HTTP/1.1 505 "), "{head}: {said}");
            assert!(said.ends_with("\r\n\r\n"), "{head}: {said}");
        }
        let said = server.raw("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(said.ends_with(b"</html>\r\n"));
    }

    /// What fills a cache is a GET for HEAD, before `proxy_method` counts: an empty body was kept, or another method's.
    fn a_head_that_fills_a_cache_is_a_get_whatever_proxy_method_says(driver) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                seen.lock().expect("no panic").push(head.lines().next().unwrap_or_default().to_owned());
                if !visit.answer("page") {
                    return;
                }
            }
        });
        let conf = format!("http {{ proxy_cache_path cache keys_zone=kept:1m; server {{ listen 127.0.0.1:%%PORT%%;
            proxy_cache kept; proxy_cache_valid 1h; proxy_method HEAD;
            location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let said = server.raw("HEAD /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(said.starts_with(b"HTTP/1.1 200") && said.ends_with(b"\r\n\r\n"), "{}", String::from_utf8_lossy(&said));
        assert_eq!(server.get("/a").text(), "page");
        assert_eq!(*lines.lock().expect("no panic"), ["GET /a HTTP/1.1"]);
    }

    /// `X-Accel-Redirect` takes the fields that are about the client along, hidden or not, and cookies as they are changed.
    fn a_redirect_by_the_upstream_server_keeps_its_fields(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: /files/a.txt\r\n\
                    Content-Type: text/own\r\nContent-Disposition: attachment\r\nCache-Control: no-store\r\n\
                    Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\nExpires: Thu, 01 Jan 1970 00:00:02 GMT\r\n\
                    X-Accel-Charset: utf-8\r\nX-Other: lost\r\nSet-Cookie: a=b; path=/up\r\n\r\n");
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_pass http://127.0.0.1:{}; proxy_cookie_path /up /front; proxy_hide_header Content-Type;
                proxy_hide_header Set-Cookie; proxy_hide_header Cache-Control; proxy_hide_header Content-Disposition;
                proxy_hide_header Expires; }}
            location /files/ {{ internal; root html; charset off; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).file("html/files/a.txt", "file").allow("duplicate header").start();
        let said = server.get("/x");
        assert_eq!((said.status, said.text().as_str()), (200, "file"));
        assert_eq!(said.field("content-type"), Some("text/own"));
        assert_eq!(said.field("content-disposition"), Some("attachment"));
        assert_eq!(said.field("cache-control"), Some("no-store"));
        assert_eq!(said.all("expires"), ["Thu, 01 Jan 1970 00:00:01 GMT"]);
        assert_eq!(said.field("set-cookie"), Some("a=b; path=/front"));
        assert_eq!(said.field("x-other"), None);
    }

    /// `alias` replaces the location's part of a URI: one that was changed without a new location need not have it.
    fn alias_refuses_a_uri_that_was_changed_in_its_location(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
            location /a/ { alias html/; rewrite ^/a/x$ /a/file break; rewrite ^/a/last$ /a/file last;
                rewrite ^/a/d/$ /a/folder/ break; }
            location /lua/ { alias html/; rewrite_by_lua_block { ngx.req.set_uri('/lua/file') } }
            location /try/ { alias html/; rewrite ^/try/x$ /try/file break; try_files $uri =404; }
            location /name/ { alias html/; rewrite ^/name/x$ /name/file break;
                content_by_lua_block { ngx.print('[', ngx.var.request_filename or '', ']') } }
            location /jump/ { rewrite_by_lua_block { ngx.req.set_uri('/a/file', true) } }
            location /named/ { alias html/; rewrite ^/named/x$ /named/none break; error_page 500 = @named; }
            location @named { return 200 named; } } }").driver(driver).file("html/file", "file").file("html/folder/a", "a")
            .allow("cannot be used in location").start();
        assert_eq!(server.get("/a/file").text(), "file");
        assert_eq!(server.get("/a/last").text(), "file");
        assert_eq!(server.get("/jump/x").text(), "file");
        for path in ["/a/x", "/a/d/", "/lua/x", "/try/x"] {
            assert_eq!(server.get(path).status, 500, "{path}");
        }
        assert_eq!(server.get("/name/x").text(), "[]");
        assert_eq!(server.get("/named/x").text(), "named");
        let log = server.error_log();
        assert!(log.contains("\"alias\" cannot be used in location \"/a/\" where URI was rewritten"), "{log}");
    }

    /// `proxy_pass_header` shows the upstream server's `Server` and `Date`, and none where it sent none.
    fn fields_of_the_server_that_are_passed_and_missing_are_missing(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let own = if head.starts_with("GET /own") { "Server: own\r\nDate: today\r\n" } else { "" };
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{own}\r\n"));
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{};
            proxy_pass_header Server; proxy_pass_header Date; location /hidden {{ proxy_pass http://127.0.0.1:{0};
                proxy_pass_header X; }} }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let said = server.get("/none");
        assert_eq!((said.field("server"), said.field("date")), (None, None));
        let said = server.get("/own");
        assert_eq!((said.field("server"), said.field("date")), (Some("own"), Some("today")));
        let said = server.get("/hidden");
        assert!(said.field("server").is_some() && said.field("date").is_some());
    }

    /// A FastCGI response that ends before its length: the client gets what came, whether or not it came with the end.
    fn what_came_of_a_fastcgi_response_that_ends_early_is_sent(driver) {
        let app = FcgiApp::start(|_| FcgiOut::answer("Content-Length: 100\r\n\r\nonly ten.\n"));
        for more in ["", "fastcgi_buffering off;", "fastcgi_keep_conn on;"] {
            let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
                location / {{ fastcgi_pass 127.0.0.1:{}; {more} }} }} }}", app.port());
            let server = Server::builder(&conf).driver(driver).allow("prematurely closed").start();
            let said = server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n\r\nonly ten.\n"), "{more}: {said}");
        }
    }

    /// A FastCGI connection that is cut before the length of the response: it is logged, and the client does not wait for
    /// the rest, as it does with nginx.
    fn a_fastcgi_connection_that_is_cut_in_a_body_is_logged(driver) {
        let app = FcgiApp::start(|_| vec![FcgiOut::Stdout(b"Content-Length: 100\r\n\r\nonly ten.\n".to_vec())]);
        let cut = "upstream prematurely closed connection while reading upstream";
        for more in ["", "fastcgi_buffering off;"] {
            let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
                location / {{ fastcgi_pass 127.0.0.1:{}; {more} }} }} }}", app.port());
            let server = Server::builder(&conf).driver(driver).allow(cut).start();
            let said = server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n\r\nonly ten.\n"), "{more}: {said}");
            assert!(server.error_log_line(cut).contains("[error]"), "{more}");
        }
    }

    /// What a filter says of its error is the one line of it, and has the peer whose response it is.
    fn an_error_of_gunzip_is_one_line(driver) {
        let backend = Backend::start(|visit| {
            if visit.head().is_some() {
                let broken = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 255, 255, 255, 255];
                visit.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 14\r\n\r\n");
                visit.send(broken);
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; gunzip on;
            location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).allow("gzip data").start();
        let said = server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(said.starts_with(b"HTTP/1.1 200"), "{}", said.escape_ascii());
        let line = server.error_log_line("gzip data are broken");
        let expected = format!("request: \"GET / HTTP/1.1\", upstream: \"http://127.0.0.1:{}/\", host: \"a\"", backend.port());
        assert!(line.contains(&expected), "{line}");
        assert_eq!(server.access_log_lines(1).len(), 1);
        let log = server.error_log();
        assert_eq!(log.lines().filter(|line| line.contains("[error]")).count(), 1, "{log}");
    }

    /// A file that can't be put in its place is named together with the peer whose response it is.
    fn the_line_of_a_store_that_fails_has_the_peer(driver) {
        let backend = Backend::answering("stored");
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            root files; location / {{ proxy_store $document_root/one/x; proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).file("files/one", "1").driver(driver).allow("rename()").start();
        assert_eq!(server.get("/a").text(), "stored");
        let line = server.error_log_line("rename()");
        assert!(line.contains(&format!("while reading upstream, client: 127.0.0.1, server: , request: \"GET /a HTTP/1.1\", upstream: \"http://127.0.0.1:{}/a\"", backend.port())), "{line}");
    }

    /// Messages have the peer to the end of the request, also those about the page that the client gets instead.
    fn messages_after_a_response_have_its_peer(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some()
                && visit.send("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
            {}
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; root files; error_page 500 /page;
            location / {{ proxy_intercept_errors on; proxy_pass http://127.0.0.1:{}; }}
            location = /page {{ }} }} }}", backend.port());
        let server = Server::builder(&conf).file("files/x", "").driver(driver).allow("open()").start();
        assert_eq!(server.get("/a?b").status, 404);
        let line = server.error_log_line("files/page\" failed (2: No such file or directory)");
        let expected = format!("request: \"GET /a?b HTTP/1.1\", upstream: \"http://127.0.0.1:{}/a?b\", host: \"localhost\"", backend.port());
        assert!(line.contains(&expected), "{line}");
    }

    /// XFL of gzip's header (RFC 1952 section 2.3.1).
    fn a_gzip_header_says_how_it_was_packed(driver) {
        let conf = "http { gzip on; gzip_min_length 1; gzip_types *; server { listen 127.0.0.1:%%PORT%%; root files;
            location /1 { gzip_comp_level 1; return 200 text; } location /5 { gzip_comp_level 5; return 200 text; }
            location /9 { gzip_comp_level 9; return 200 text; } } }";
        let server = Server::builder(conf).driver(driver).start();
        for (path, extra) in [("/1", 4), ("/5", 0), ("/9", 2)] {
            let said = server.client().request(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
            assert_eq!(said.body.get(..10), Some(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, extra, 3][..]), "{path}");
        }
    }

    /// The page of a 416 is not of the time of the response that it replaces.
    fn a_416_has_no_last_modified_of_the_upstream_server(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                if !visit.send("HTTP/1.1 200 OK\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\nX-Up: a\r\nContent-Length: 2\r\n\r\nok") {
                    return;
                }
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_force_ranges on; proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let said = server.client().request("GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=9-\r\n\r\n");
        assert_eq!((said.status, said.field("last-modified"), said.field("x-up")), (416, None, Some("a")));
    }

    /// A script's error while a body is filtered is one line, as in nginx, and no fault of the server's.
    fn an_error_of_a_body_filter_script_is_one_line(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%;
            location / { return 200 a; body_filter_by_lua_block { error('no') } } } }")
            .driver(driver).allow("failed to run body_filter_by_lua").start();
        server.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(server.error_log_line("body_filter_by_lua(nginx.conf:2):1: no").contains("[error]"));
        assert!(!server.error_log().contains("internal error"), "{}", server.error_log());
    }

    /// What a script says at once has a length that nobody promised: `body_filter_by_lua` may change it.
    fn a_filter_of_scripts_may_change_the_length_of_what_a_script_says(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; http2 on;
            location /more { content_by_lua_block { ngx.say('x') }
                body_filter_by_lua_block { if ngx.arg[2] then ngx.arg[1] = (ngx.arg[1] or '') .. 'more' end } }
            location /none { content_by_lua_block { ngx.say('x') } body_filter_by_lua_block { ngx.arg[1] = nil } }
            location /exit { content_by_lua_block { ngx.exit(200) }
                body_filter_by_lua_block { if ngx.arg[2] then ngx.arg[1] = 'end' end } }
            location /access { access_by_lua_block { ngx.print('a') ngx.exit(200) } root html;
                body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1] .. ngx.arg[1] } }
            location /set { content_by_lua_block { ngx.header.content_length = 3 ngx.print('abc') }
                body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } }
            location /plain { content_by_lua_block { ngx.say('x') } } } }").driver(driver).start();
        // All on one connection: a body that is longer than its length would be the next response.
        let mut client = server.client();
        for (path, body) in [("/more", "x\nmore"), ("/none", ""), ("/exit", "end"), ("/access", "aa")] {
            let said = client.get(path);
            assert_eq!((said.text().as_str(), said.field("content-length")), (body, None), "{path}");
            assert_eq!(said.field("transfer-encoding"), Some("chunked"), "{path}");
        }
        for (path, body, length) in [("/set", "ABC", "3"), ("/plain", "x\n", "2")] {
            let said = client.get(path);
            assert_eq!((said.text().as_str(), said.field("content-length")), (body, Some(length)), "{path}");
        }
    }

    /// PUT without a body is no empty file: what was there was cut to nothing.
    fn a_put_without_a_body_changes_nothing(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; location / { root html; dav_methods PUT; } } }")
            .driver(driver).file("html/kept", "kept").allow("must be in a file").start();
        let put = |more: &str| server.raw(format!("PUT /kept HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}"));
        assert!(put("\r\n").starts_with(b"HTTP/1.1 500"));
        assert_eq!(server.get("/kept").text(), "kept");
        assert!(put("Content-Length: 3\r\n\r\nnew").starts_with(b"HTTP/1.1 204"));
        assert_eq!(server.get("/kept").text(), "new");
        assert!(put("Content-Length: 0\r\n\r\n").starts_with(b"HTTP/1.1 204"));
        assert_eq!(server.get("/kept").text(), "");
        assert!(put("Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n").starts_with(b"HTTP/1.1 204"));
        assert_eq!(server.get("/kept").text(), "x");
    }

    /// As in OpenResty: the script of a server comes before its `rewrite` and `set`.
    fn a_servers_script_runs_before_its_rewrites(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; set $seen none; rewrite ^ /changed break;
            server_rewrite_by_lua_block { ngx.ctx.uri = ngx.var.uri if ngx.var.arg_refuse then ngx.exit(402) end }
            location / { content_by_lua_block { ngx.say(ngx.ctx.uri, ' ', ngx.var.uri) } } } }").driver(driver).start();
        assert_eq!(server.get("/asked").text(), "/asked /changed\n");
        assert_eq!(server.get("/asked?refuse=1").status, 402);
    }

    /// A subrequest has no response of its own, so that its line says nothing of its completion.
    fn the_line_of_a_subrequest_has_no_completion(driver) {
        let server = Server::builder("http { log_format own '$uri $request_completion.'; access_log lines.log own;
            server { listen 127.0.0.1:%%PORT%%; log_subrequest on;
                location = /main { mirror /copy; return 200 main; }
                location / { mirror /copy; }
                location = /copy { internal; return 204; } } }").driver(driver).file("html/file", "a").start();
        assert_eq!(server.get("/file").status, 200);
        let path = server.dir().path().join("lines.log");
        let lines = wait_for("two lines", || {
            let text = std::fs::read_to_string(&path).ok()?;
            (text.lines().count() == 2).then_some(text)
        });
        assert!(lines.contains("/file OK.\n") && lines.contains("/copy .\n"), "{lines}");
    }

    /// A location's pattern that is given up: the 500 has the settings of the prefix location beside it.
    fn a_pattern_that_is_given_up_has_the_prefix_locations_settings(driver) {
        let server = Server::builder("http { add_header X-Of server always; server { listen 127.0.0.1:%%PORT%%;
            location ~ (?:^/p/(?:[a-z]+/?)+-old$|\\.bak$) { return 403; }
            location /p/ { add_header X-Of prefix always; return 200 passed; } } }")
            .driver(driver).allow("pcre2_match() failed: -47").start();
        let said = server.get(&format!("/p/{}.bak", "a".repeat(40)));
        assert_eq!((said.status, said.field("x-of")), (500, Some("prefix")));
        assert_eq!(server.get("/p/a.bak").status, 403);
    }

    /// A header filter may give a 204 or 304 a status with a body: its end was not sent, and the client waited.
    fn a_status_with_a_body_in_place_of_one_without_ends(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let status = if head.starts_with("GET /304") { "304 Not Modified" } else { "204 No Content" };
                if !visit.send(format!("HTTP/1.1 {status}\r\n\r\n")) {
                    return;
                }
            }
        });
        let conf = format!("http {{ header_filter_by_lua_block {{ ngx.status = 202 }}
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{}; }}
                location /own {{ return 204; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let mut client = server.client();
        for path in ["/304", "/204", "/own"] {
            let said = client.get(path);
            assert_eq!((said.status, said.text().as_str()), (202, ""), "{path}");
        }
    }

    /// What an upstream server said before it broke off waits for the subrequest before it, and is sent after it.
    fn what_came_of_a_body_that_breaks_off_follows_the_subrequest_before_it(driver) {
        let backend = Backend::start(|visit| {
            if visit.head().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nonly ten.\n");
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ add_before_body /side; proxy_pass http://127.0.0.1:{}; }}
            location /side {{ return 200 side; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).allow("prematurely closed").start();
        let said = server.raw("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        let said = String::from_utf8_lossy(&said);
        assert!(said.ends_with("\r\n\r\nsideonly ten.\n"), "{said}");
    }

    /// `$request_method` is the request's in its subrequests; `$content_length` of chunks is known once they were read,
    /// whoever has asked before.
    fn subrequests_and_their_request_have_the_method_and_length_of_nginx(driver) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heads = seen.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                heads.lock().expect("no panic").push(head.to_string());
                if !visit.answer("ok") {
                    return;
                }
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            proxy_set_header X-Method $request_method; proxy_set_header X-Length $content_length;
            location / {{ auth_request /auth; proxy_pass http://127.0.0.1:{0}; }}
            location = /auth {{ proxy_pass_request_body off; proxy_set_header X-Method $request_method;
                proxy_set_header X-Length $content_length; proxy_set_header Content-Length ''; proxy_pass http://127.0.0.1:{0}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let said = server.client().request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
        assert_eq!(said.status, 200);
        let heads = seen.lock().expect("no panic").clone();
        assert!(heads[0].starts_with("GET /auth") && heads[0].contains("X-Method: POST"), "{heads:?}");
        assert!(heads[1].starts_with("POST /") && heads[1].contains("X-Length: 2\r\n"), "{heads:?}");
    }

    /// What `try_files` finds does not change what a `proxy_pass` without URI sends.
    fn a_proxy_beside_try_files_sends_the_target_as_it_came(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                if !visit.answer(head.lines().next().unwrap_or_default()) {
                    return;
                }
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; root html;
            location / {{ try_files /there $uri; proxy_pass http://127.0.0.1:{0}; }}
            location /with/ {{ try_files /with/there $uri; proxy_pass http://127.0.0.1:{0}/up/; }} }} }}", backend.port());
        let files = Server::builder(&conf).driver(driver).file("html/there", "a").file("html/with/there", "b");
        let server = files.start();
        assert_eq!(server.get("/a%20b?c").text(), "GET /a%20b?c HTTP/1.1");
        assert_eq!(server.get("/with/a").text(), "GET /up/there HTTP/1.1");
    }

    /// `proxy_cache_max_range_offset 0`: no range is for the cache, so that the conditions are the server's business.
    fn no_range_is_for_the_cache_where_its_offset_may_be_none(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                if !visit.answer("ok") {
                    return;
                }
            }
        });
        let conf = format!("http {{ proxy_cache_path cache keys_zone=zone:1m; server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_cache zone; proxy_cache_valid 1h; proxy_cache_max_range_offset 0;
                proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let ask = |fields: &str| server.client().request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}If-Match: \"x\"\r\n\r\n"));
        assert_eq!(ask("Range: bytes=x-y\r\n").status, 200);
        assert_eq!(ask("").status, 412);
    }
}
