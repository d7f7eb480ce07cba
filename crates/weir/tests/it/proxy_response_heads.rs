//! Heads of servers' responses: what of them clients get, and what the log says of invalid ones; what it says of
//! clients' heads.

use weir_test::{Backend, ConnectionEnd, Server, both_drivers};

/// A server that responds to each request with what `answer` says of its path.
fn answering(answer: fn(&str) -> String) -> Backend {
    Backend::start(move |visit| {
        let Some(head) = visit.head() else { return };
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        visit.send(answer(&path));
    })
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n")
}

both_drivers! {
    fn heads_without_a_body_keep_type_and_length(driver) {
        let backend = answering(|path| {
            let status = if path == "/204" { "204 No Content" } else { "304 Not Modified" };
            format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nContent-Type: text/css\r\n\r\n")
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{}; }}
            location /own {{ default_type text/css; return 204; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        for path in ["/204", "/304"] {
            // As it is read, a head with a length has a body; these have none.
            let answer = String::from_utf8(server.raw(get(path, ""))).expect("text");
            assert!(answer.contains("\r\nContent-Length: 5\r\n") && answer.contains("\r\nContent-Type: text/css\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        }
        let own = String::from_utf8(server.raw(get("/own", ""))).expect("text");
        assert!(own.starts_with("HTTP/1.1 204 ") && !own.contains("Content-"), "{own}");
    }

    fn a_redirect_inside_keeps_the_type(driver) {
        let backend = answering(|_| {
            "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /inside\r\nContent-Type: text/css; charset=utf-8\r\nContent-Length: 0\r\n\r\n".to_owned()
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{}; }}
            location /inside {{ internal; return 200 in; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let answer = server.get("/");
        assert_eq!((answer.text(), answer.field("Content-Type")), ("in".to_owned(), Some("text/css; charset=utf-8")));
    }

    /// nginx, HAProxy and all others: byte for byte, unless `charset` gives it another one.
    fn a_type_is_sent_as_its_server_wrote_it(driver) {
        const TYPES: [&str; 6] = [
            "text/plain;charset=utf-8", "text/html;  Charset=\"UTF-8\"", "text/css; a=b;charset=x", "text/html; charset=",
            "text/html;charset=koi8-r", "text/html; charset=utf-8",
        ];
        let backend = answering(|path| {
            let at: usize = path.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number");
            format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Type: {}\r\n\r\na", TYPES[at])
        });
        let conf = format!(r#"http {{ proxy_cache_path %%DIR%%/c keys_zone=z:1m; charset_map koi8-r utf-8 {{ E1 C3A1; }}
            server {{ listen 127.0.0.1:%%PORT%%; add_header X-Type $sent_http_content_type;
                location / {{ proxy_pass http://127.0.0.1:{port}; proxy_force_ranges on; }}
                location /kept/ {{ proxy_cache z; proxy_cache_valid 1h; proxy_pass http://127.0.0.1:{port}; }}
                location /lua/ {{ proxy_pass http://127.0.0.1:{port};
                    header_filter_by_lua_block {{ ngx.header["X-Lua"] = ngx.header.content_type }} }}
                location /sub/ {{ content_by_lua_block {{
                    ngx.print(ngx.location.capture("/" .. ngx.var.uri:match("%d+")).header["Content-Type"]) }} }}
                location /forced/ {{ charset utf-8; override_charset on; proxy_pass http://127.0.0.1:{port}; }}
                location /same/ {{ charset utf-8; proxy_pass http://127.0.0.1:{port}; }}
            }} }}"#, port = backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        for (at, kind) in TYPES.iter().enumerate() {
            for path in ["/", "/kept/", "/kept/", "/lua/", "/same/"] {
                let answer = server.get(&format!("{path}{at}"));
                assert_eq!(answer.field("Content-Type"), Some(*kind), "{path}");
                assert_eq!(answer.field("X-Type"), Some(*kind), "{path}");
                assert!(path != "/lua/" || answer.field("X-Lua") == Some(kind), "{answer}");
            }
            assert_eq!(server.get(&format!("/sub/{at}")).text(), *kind);
        }
        assert_eq!(server.get("/forced/4").field("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(server.get("/forced/1").field("Content-Type"), Some("text/html; charset=utf-8"));
    }

    fn forced_ranges_are_not_offered_where_one_is_given(driver) {
        let backend = answering(|_| {
            "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nContent-Length: 5\r\n\r\nhello".to_owned()
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; proxy_force_ranges on;
            location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let part = server.client().request(get("/", "Range: bytes=1-2\r\n"));
        assert_eq!((part.status, part.text(), part.field("Accept-Ranges")), (206, "el".to_owned(), None));
        assert_eq!(server.get("/").all("Accept-Ranges"), ["bytes"]);
    }

    fn what_is_no_head_is_quoted(driver) {
        let backend = answering(|path| {
            let line = match path {
                "/space" => "X Y: z",
                "/nul" => "X: y\0z",
                "/fold" => "X: y\r\n z",
                "/length" => "Content-Length: 1x",
                "/lengths" => "Content-Length: 1\r\nContent-Length: 2",
                "/coding" => "Transfer-Encoding: gzip",
                _ => "X-Accel-Limit-Rate: fast",
            };
            format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n")
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{}; }}
            location /none {{ proxy_pass http://$arg_h; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).allow("upstream").start();
        for (path, words) in [
            ("/space", r#"upstream sent invalid header: "X\x20..." while reading"#),
            ("/nul", r#"upstream sent invalid header: "X: y\x00..." while reading"#),
            ("/fold", r#"upstream sent invalid header: "\x20..." while reading"#),
            ("/length", r#"upstream sent invalid "Content-Length" header: "Content-Length: 1x" while reading"#),
            ("/lengths", r#"upstream sent duplicate header line: "Content-Length: 2", previous value: "Content-Length: 1" while"#),
            ("/coding", r#"upstream sent unknown "Transfer-Encoding": "gzip" while reading"#),
        ] {
            assert_eq!(server.get(path).status, 502, "{path}");
            let _ = server.error_log_line(words);
        }
        assert_eq!(server.get("/rate").status, 200);
        assert!(!server.error_log().contains("X-Accel-Limit-Rate"), "such a rate is none, silently");
        assert_eq!(server.get("/none?h=:1").status, 500);
        let _ = server.error_log_line("no host in upstream \":1\"");
    }

    fn clients_heads_are_quoted(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; return 200; } }").driver(driver).start();
        for (fields, words) in [
            ("Host: h\r\nX Y: z\r\n", r#"client sent invalid header line: "X\x20..." while reading client request headers"#),
            ("Host: a\r\nHost: b\r\n", r#"client sent duplicate host header: "Host: b", previous value: "Host: a" while"#),
            ("Host: h\r\nTransfer-Encoding: gzip\r\n", r#"client sent unknown "Transfer-Encoding": "gzip" while"#),
            ("Host: a/b\r\n", "client sent invalid host header while reading client request headers"),
        ] {
            let answer = server.client().request(format!("GET / HTTP/1.1\r\n{fields}\r\n"));
            assert!(matches!(answer.status, 400 | 501), "{fields}: {}", answer.status);
            let _ = server.error_log_line(words);
        }
        assert_eq!(server.client().request("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n").status, 400);
        let line = server.error_log_line("client sent invalid request while reading client request line");
        assert!(!line.contains("host:"), "the fields have not been read: {line}");
    }

    fn connections_begin_where_they_are_bound(driver) {
        let backend = Backend::start(|visit| {
            let peer = visit.peer().map(|peer| peer.ip().to_string());
            while visit.head().is_some() {
                visit.answer(peer.as_deref().unwrap_or_default());
            }
        });
        let conf = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_bind 127.0.0.9; proxy_pass http://127.0.0.1:{0}; }}
            location /as {{ proxy_bind $arg_a; proxy_pass http://127.0.0.1:{0}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).allow("invalid local address").start();
        assert_eq!(server.get("/").text(), "127.0.0.9");
        assert_eq!(server.get("/as?a=127.0.0.8:0").text(), "127.0.0.8");
        assert_eq!(server.get("/as?a=nonsense").text(), "127.0.0.1");
        let _ = server.error_log_line("invalid local address \"nonsense\"");
    }
}

#[test]
fn what_is_wrong_is_said_in_nginxs_words() {
    for (line, words) in [
        ("proxy_bind nonsense;", "invalid address \"nonsense\" in "),
        ("grpc_pass localhost;", "no port in upstream \"localhost\" in "),
        ("fastcgi_pass http://127.0.0.1:1;", "invalid host in upstream \"http://127.0.0.1:1\" in "),
        ("memcached_pass $host;", "no port in upstream \"$host\" in "),
        ("memcached_next_upstream http_404;", "invalid value \"http_404\" in "),
        ("tunnel_pass a b;", "invalid number of arguments in \"tunnel_pass\" directive in "),
        (
            "uwsgi_ssl_verify on; uwsgi_pass suwsgi://127.0.0.1:1;",
            "no uwsgi_ssl_trusted_certificate for uwsgi_ssl_verify",
        ),
        ("proxy_cache '';", "\"proxy_cache\" zone \"\" is unknown"),
    ] {
        let text = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ {line} }} }} }}");
        let exit = Server::builder(&text).run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(words), "{line}: {}", exit.stderr);
    }
    let exit = Server::builder("http { proxy_cache_path x; }").run(&["-t"]);
    assert!(
        exit.stderr.contains("invalid number of arguments in \"proxy_cache_path\" directive"),
        "{}",
        exit.stderr
    );
    let text = "http { server { listen 127.0.0.1:%%PORT%%; secure_link_secret w; proxy_send_lowat 1; } }";
    let exit = Server::builder(text).run(&["-t"]);
    let reported = exit.stderr.contains("[warn] \"proxy_send_lowat\" is not supported, ignored in ");
    assert!(exit.status.success() && reported, "{}", exit.stderr);
}

both_drivers! {
    fn a_cached_hit_s_412_has_nothing_of_the_kept_response(driver) {
        let backend = answering(|_| {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Up: 1\r\nETag: \"a\"\r\nCache-Control: max-age=100\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nhi".to_owned()
        });
        let conf = format!("http {{ proxy_cache_path %%DIR%%/c keys_zone=z:1m; server {{ listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_cache z; proxy_pass http://127.0.0.1:{}; add_header X-Own 1 always; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        assert_eq!(server.get("/").text(), "hi");
        for _ in 0..2 {
            let refused = server.client().request(get("/", "If-Match: \"no\"\r\n"));
            assert_eq!(refused.status, 412);
            let of_server = ["X-Up", "ETag", "Cache-Control", "Last-Modified"].map(|name| refused.field(name));
            assert_eq!(of_server, [None; 4], "{}", refused.head_text());
            assert_eq!(refused.all("X-Own"), ["1"]);
        }
        assert_eq!(server.client().request(get("/", "If-Match: \"a\"\r\n")).field("X-Up"), Some("1"));
    }

    fn an_etag_is_found_however_it_is_written(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; default_type text/plain;
             location /low { content_by_lua_block { ngx.header.etag = '\"a\"' ngx.say('x') } }
             location /more { more_set_headers 'eTAG: \"a\"'; content_by_lua_block { ngx.say('x') } }
             location /added { add_header etag '\"a\"'; return 200 x; }
             location /gzip { gzip on; gzip_min_length 1; add_header cache-control no-transform; gzip_types *;
                 content_by_lua_block { ngx.header['CACHE-CONTROL'] = 'no-transform' ngx.header['content-encoding'] = 'x'
                     ngx.print(('x'):rep(1000)) } } } }",
        )
        .driver(driver)
        .start();
        let low = server.client().request(get("/low", "If-None-Match: \"a\"\r\n"));
        assert_eq!((low.status, low.text().as_str()), (304, ""));
        assert!(low.head_text().contains("\r\netag: \"a\""), "as it was written: {}", low.head_text());
        assert_eq!(server.client().request(get("/low", "If-None-Match: \"b\"\r\n")).status, 200);
        assert_eq!(server.client().request(get("/low", "If-Match: \"b\"\r\n")).status, 412);
        let coded = server.client().request(get("/gzip", "Accept-Encoding: gzip\r\n"));
        assert_eq!(coded.all("content-encoding"), ["x"]);
    }

    fn a_444_resets_where_timed_out_connections_are_reset(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%;
             location /reset { reset_timedout_connection on; return 444; }
             location /lua { reset_timedout_connection on; content_by_lua_block { ngx.exit(444) } }
             location /fin { return 444; } } }",
        )
        .driver(driver)
        .start();
        let end = |path: &str| server.client().send(get(path, "")).rest();
        assert_eq!(end("/reset"), (Vec::new(), ConnectionEnd::Reset));
        assert_eq!(end("/lua"), (Vec::new(), ConnectionEnd::Reset));
        assert_eq!(end("/fin"), (Vec::new(), ConnectionEnd::Closed));
    }

    /// The body of a request that is refused or led elsewhere is not asked for.
    fn a_redirect_comes_without_100_continue(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%;
             location /rewrite { rewrite ^ /x permanent; }
             location /proxied/ { proxy_pass http://127.0.0.1:1; }
             location /lua { content_by_lua_block { ngx.redirect('/x') } }
             location /exit { content_by_lua_block { ngx.exit(403) } }
             location /page { error_page 404 =302 /y; return 404; }
             location /y { return 200 y; } } }",
        )
        .driver(driver)
        .file("html/dir/a", "")
        .start();
        let first = |path: &str| {
            let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
            let mut client = server.client();
            client.send(head).response_to_head().status
        };
        let firsts = ["/rewrite", "/proxied", "/lua", "/dir"].map(first);
        assert_eq!(firsts, [301, 301, 302, 301]);
        assert_eq!(["/exit", "/page"].map(first), [403, 302]);
    }
}
