//! Bodies that scripts make, bodies of responses to HEAD, and clients that leave meanwhile.

use weir_test::{Server, both_drivers, wait_for};

fn serve(http: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n{locations}\n}} }}\n"
    );
    Server::builder(&conf).file("html/a.txt", "a file").allow("hurt performance").start()
}

/// Whether a directory has no files, or is not there.
fn is_empty(directory: &std::path::Path) -> bool {
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

/// What a content script says to a request with the body "hello".
fn post(script: &str) -> String {
    let server = serve(
        "",
        &format!(
            "client_body_temp_path temp; location / {{ content_by_lua_block {{ ngx.req.read_body() {script} }} }}"
        ),
    );
    server.client().request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").text()
}

both_drivers! {
    fn bodies_are_made_by_scripts(driver) {
        let make = "ngx.req.append_body('ab') ngx.req.append_body('cde') ngx.req.finish_body()
                    ngx.say(ngx.req.get_body_data(), ngx.var.http_content_length)";
        assert_eq!(post(&format!("ngx.req.init_body() {make}")), "abcde5\n");
        let file = "local f = io.open(ngx.req.get_body_file()) ngx.say(f and f:read('*a'))";
        assert_eq!(post(&format!("ngx.req.set_body_file(ngx.config.prefix() .. 'html/a.txt') {file}")), "a file\n");
        assert_eq!(post("ngx.req.init_body(2) ngx.req.append_body('abc') ngx.req.finish_body() ngx.say(ngx.req.get_body_file() ~= nil)"), "true\n");
        assert_eq!(post("ngx.say(pcall(ngx.req.append_body, 'x'))"), "falserequest_body not initialized\n");
        assert_eq!(post("ngx.req.set_body_data('other') ngx.say(ngx.req.get_body_data())"), "other\n");
        let server = serve("", "location / { content_by_lua_block { ngx.say(pcall(ngx.req.init_body)) } }");
        let answer = server.client().request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").text();
        assert_eq!(answer, "falserequest body not read yet\n");
    }

    /// As in OpenResty: whoever reads large bodies in a script opens the file by its name, in any phase up to the log.
    fn files_of_bodies_have_their_names_until_the_request_ends(driver) {
        let read = "local name = ngx.req.get_body_file() local f = name and io.open(name) local size = f and f:seek('end')";
        let server = serve(
            "lua_shared_dict d 1m; client_body_buffer_size 1k;",
            &format!(
                "client_body_temp_path temp 1; client_max_body_size 10m;
                 location /read {{ content_by_lua_block {{ ngx.req.read_body() {read} ngx.say(name and size) }} log_by_lua_block {{ {read} ngx.shared.d:set('log', size) }} }}
                 location /need {{ lua_need_request_body on; content_by_lua_block {{ {read} ngx.say(size) }} }}
                 location /proxied {{ access_by_lua_block {{ ngx.req.read_body() {read} ngx.req.set_header('X-Size', size) }}
                    proxy_pass http://$http_host/sizes; }}
                 location /sizes {{ content_by_lua_block {{ ngx.req.read_body() {read} ngx.say(ngx.var.http_x_size == tostring(size) and size) }} }}
                 location /log {{ content_by_lua_block {{ ngx.say(ngx.shared.d:get('log')) }} }}"
            ),
        );
        for path in ["/read", "/need", "/proxied"] {
            for (framing, body) in [
                ("Content-Length: 30000", "x".repeat(30_000)),
                ("Transfer-Encoding: chunked", format!("7530\r\n{}\r\n0\r\n\r\n", "x".repeat(30_000))),
            ] {
                let host = server.addr(0);
                let request = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{body}");
                assert_eq!(server.client().request(&request).text(), "30000\n", "{path} {framing}");
            }
        }
        wait_for("the size in the log phase", || (server.get("/log").text() == "30000\n").then_some(()));
        let temp = server.dir().path().join("temp");
        wait_for("files without names", || (0..10).all(|level| is_empty(&temp.join(level.to_string()))).then_some(()));
    }

    /// As nginx: a body whose length is known may be a quarter larger than `client_body_buffer_size`, less one byte, and stay in memory. The
    /// mock servers of Kong's tests find nothing in memory of one in a file.
    fn a_body_of_known_length_may_be_a_quarter_larger_than_the_buffer(driver) {
        let conf = "events {}\nhttp { server { listen 127.0.0.1:%%PORT%%; client_body_temp_path temp; client_body_buffer_size 2000;
            location / { content_by_lua_block { ngx.req.read_body() local data = ngx.req.get_body_data()
                ngx.print(data and #data or 'file ' .. tostring(ngx.req.get_body_file() ~= nil)) } } } }\n";
        let server = Server::builder(conf).driver(driver).allow("buffered to a temporary file").start();
        for (length, wanted) in [(2000, "2000"), (2001, "2001"), (2499, "2499"), (2500, "file true"), (9000, "file true")] {
            let body = "x".repeat(length);
            let known = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
            assert_eq!(server.client().request(known).text(), wanted, "{length}");
            let chunked = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n");
            let wanted = if length > 2000 { "file true" } else { wanted };
            assert_eq!(server.client().request(chunked).text(), wanted, "{length} in chunks");
        }
        let mut client = server.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2400\r\n\r\n{}", "x".repeat(100)));
        client.send("x".repeat(2300));
        assert_eq!(client.response().text(), "2400", "in two pieces");
    }

    /// A script that names chunks gets them, once; a length that is known goes to others.
    fn scripts_may_want_chunks(driver) {
        let conf = "events {}\nhttp { server { listen 127.0.0.1:%%PORT%%;
            location / { content_by_lua_block { ngx.header['Transfer-Encoding'] = ngx.var.arg_v ngx.print('hello') } }
            location /filter { return 200 hello; header_filter_by_lua_block { ngx.header.transfer_encoding = 'Chunked' } } } }\n";
        let server = Server::builder(conf).driver(driver).start();
        for (path, chunked) in [("/?v=chunked", true), ("/?v=identity", false), ("/", false), ("/filter", true)] {
            let answer = server.client().get(path);
            assert_eq!(answer.text(), "hello", "{path}");
            let head = (answer.field("transfer-encoding"), answer.field("content-length"));
            assert_eq!(head, if chunked { (Some("chunked"), None) } else { (None, Some("5")) }, "{path}");
            assert_eq!(answer.to_string().to_lowercase().matches("transfer-encoding").count(), usize::from(chunked), "{path}");
        }
        let old = server.client().request("GET /?v=chunked HTTP/1.0\r\n\r\n");
        assert_eq!((old.text().as_str(), old.field("transfer-encoding")), ("hello", None));
    }

    /// As nginx, which writes its own field first; Kong's tests look for both in a 426.
    fn a_connection_field_of_a_script_comes_after_the_servers_own(driver) {
        let conf = "events {}\nhttp { server { listen 127.0.0.1:%%PORT%%;
            location / { content_by_lua_block { ngx.status = 426 ngx.header.connection = ngx.var.arg_v ngx.print('hello') } }
            location /twice { content_by_lua_block { ngx.header.connection = { 'Upgrade', 'x' } ngx.print('hello') } }
            location /added { add_header Connection Upgrade; return 200 hello; } } }\n";
        let server = Server::builder(conf).driver(driver).start();
        let table: [(&str, &[&str]); 6] = [
            ("/?v=Upgrade", &["keep-alive", "Upgrade"]),
            ("/?v=close", &["close"]),
            ("/?v=Keep-Alive", &["Keep-Alive"]),
            ("/", &["keep-alive"]),
            ("/twice", &["keep-alive", "Upgrade", "x"]),
            ("/added", &["keep-alive", "Upgrade"]),
        ];
        for (path, wanted) in table {
            let text = server.client().get(path).to_string();
            let fields: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).filter(|(name, _)| name.eq_ignore_ascii_case("connection")).map(|(_, value)| value.trim()).collect();
            assert_eq!(fields, wanted, "{path}");
        }
        let leaving = server.client().request("GET /?v=Upgrade HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").to_string();
        assert!(leaving.contains("Connection: close") && leaving.contains("onnection: Upgrade"), "{leaving}");
    }

    /// What is said to HEAD after the head goes nowhere, but counts for its length.
    fn head_has_no_body(driver) {
        let server = serve("", "location / { content_by_lua_block { ngx.say('a') local ok, err = ngx.say('b') ngx.log(ngx.WARN, 'second: ', err) } }");
        let answer = server.client().request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.field("content-length"), Some("4"));
        let _ = server.error_log_line("second: header only");
    }

    fn scripts_learn_that_clients_have_left(driver) {
        let server = serve(
            "lua_shared_dict d 1m; lua_check_client_abort on;",
            "location /told { content_by_lua_block { local d = ngx.shared.d
                ngx.say(ngx.on_abort(function() d:set('told', true) ngx.exit(499) end), select(2, ngx.on_abort(print)))
                ngx.flush(true) ngx.sleep(3600) } }
             location /ended { content_by_lua_block { ngx.say('waiting') ngx.flush(true) ngx.sleep(3600) } log_by_lua_block { ngx.shared.d:set('ended', ngx.status) } }
             location /off { lua_check_client_abort off; content_by_lua_block { ngx.say(ngx.on_abort(print)) } }
             location /get { content_by_lua_block { ngx.say(ngx.shared.d:get('told'), ngx.shared.d:get('ended') ~= nil) } }",
        );
        assert_eq!(server.get("/off").text(), "nillua_check_client_abort is off\n");
        for (path, said) in [("/told", "1duplicate call\n"), ("/ended", "waiting\n")] {
            let mut client = server.client();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let mut seen = String::new();
            while !seen.contains(said) {
                let bytes = client.peek(seen.len() + 1).expect("the script speaks before it waits");
                seen = String::from_utf8_lossy(bytes).into_owned();
            }
            client.abort();
        }
        wait_for("both scripts to hear of it", || (server.get("/get").text() == "truetrue\n").then_some(()));
    }
}
