//! Scripts in every phase that has them, as clients see them.

use weir_test::{Server, both_drivers};

/// A server whose locations are `locations`.
fn serve(locations: &str) -> Server {
    serve_with("", locations)
}

fn serve_with(http: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ access_log logs/access.log; {http}\nserver {{ listen 127.0.0.1:%%PORT%%; \
         default_type text/plain;\n{locations}\n}} }}\n"
    );
    Server::builder(&conf).file("html/a.txt", "file\n").start()
}

/// A content script at `/`, and what it says.
fn say(script: &str) -> String {
    let server = serve(&format!("location / {{ content_by_lua_block {{ {script} }} }}"));
    server.client().get("/?x=1&y=a%20b&y=2").text()
}

both_drivers! {
    fn what_is_said_arrives(driver) {
        assert_eq!(say("ngx.say('a', 1, 1.5, true, nil, {'x', {'y', 2}}, ngx.null)"), "a11.5truenilxy2null\n");
        assert_eq!(say("ngx.print(2^53, ' ', 0.1)"), "9.007199254741e+15 0.1");
        assert_eq!(say("local ok, err = pcall(ngx.say, {a=1}) ngx.print(err)"), "bad argument #1 to '?' (non-array table found)");
        let wrong = "bad argument #2 to '?' (string, number, boolean, nil, ngx.null, or array table expected, but got function)";
        assert_eq!(say("local ok, err = pcall(ngx.print, 1, print) ngx.print(err)"), wrong);
        assert_eq!(say("ngx.eof() ngx.log(ngx.INFO, select(2, ngx.say('x')))"), "");
    }

    fn the_request_is_seen(driver) {
        assert_eq!(say("ngx.say(ngx.var.uri, ngx.var.arg_x, ngx.req.get_method(), ngx.get_phase())"), "/1GETcontent\n");
        let args = "local a, cut = ngx.req.get_uri_args() ngx.say(a.x, a.y[1], a.y[2], cut)";
        assert_eq!(say(args), "1a b2nil\n");
        assert_eq!(say("local a, cut = ngx.req.get_uri_args(2) ngx.say(type(a.y), cut)"), "stringtruncated\n");
        assert_eq!(say("ngx.say(ngx.req.get_headers().host == ngx.var.http_host, ngx.req.http_version())"), "true1.1\n");
        assert_eq!(say("ngx.req.set_header('X-A', {1, 2}) local h = ngx.req.get_headers() ngx.say(h.x_a[2], #h['X-A'])"), "22\n");
        assert_eq!(say("ngx.req.set_uri_args({q = 'a b', t = true}) ngx.say(#ngx.var.args)"), "9\n");
        assert_eq!(say("ngx.say(ngx.is_subrequest, ngx.req.is_internal(), ngx.headers_sent)"), "falsefalsefalse\n");
    }

    fn fields_of_the_answer_are_set(driver) {
        let server = serve(
            "location / { content_by_lua_block { ngx.header['X-A'] = {'1', '2'} ngx.header.content_type = 'a/b' \
             ngx.header.x_c = 'gone' ngx.header.x_c = nil ngx.header.x_d = 'a\\r\\nb' ngx.status = 201 \
             ngx.say(ngx.header.x_a[2], ngx.header['content-type'], ngx.resp.get_headers()['x-d']) } }",
        );
        let response = server.client().get("/");
        assert_eq!((response.status, response.text().as_str()), (201, "2a/ba%0D%0Ab\n"), "{response}");
        assert_eq!(response.field("Content-Type"), Some("a/b"));
        assert_eq!(response.field("X-C"), None);
        assert_eq!(response.all("X-A"), ["1", "2"]);
    }

    fn scripts_end_and_go_elsewhere(driver) {
        let server = serve(
            "location /exit { content_by_lua_block { ngx.exit(404) ngx.say('never') } }
             location /denied { access_by_lua_block { ngx.exit(ngx.HTTP_FORBIDDEN) } echo x; }
             location /let { access_by_lua_block { ngx.exit(ngx.OK) } echo let; }
             location /answered { access_by_lua_block { ngx.say('here') ngx.exit(200) } echo x; }
             location /redirect { content_by_lua_block { ngx.redirect('/let', 301) } }
             location /exec { rewrite_by_lua_block { ngx.ctx.a = 1 } content_by_lua_block { ngx.exec('/goal', {q = 1}) } }
             location /goal { content_by_lua_block { ngx.say(ngx.ctx.a, ngx.var.args) } }
             location /named { content_by_lua_block { ngx.exec('@named') } }
             location @named { echo named; }
             location /uri { rewrite_by_lua_block { ngx.req.set_uri('/goal', true) } echo x; }
             location /close { content_by_lua_block { ngx.exit(444) } }
             location /caught { content_by_lua_block { pcall(function() ngx.exit(403) end) ngx.say('never') } }
             location /file { rewrite_by_lua_block { ngx.var.x = 'b' } set $x a; add_header X-X $x always; root html; try_files /a.txt =404; }",
        );
        let mut client = server.client();
        assert_eq!(client.get("/exit").status, 404);
        assert_eq!(client.get("/denied").status, 403);
        assert_eq!(client.get("/let").text(), "let\n");
        assert_eq!(client.get("/answered").text(), "here\n");
        let moved = client.get("/redirect");
        assert_eq!(moved.status, 301);
        assert!(moved.field("Location").is_some_and(|place| place.ends_with("/let")), "{moved}");
        assert_eq!(client.get("/exec").text(), "1q=1\n", "ngx.ctx outlives ngx.exec");
        assert_eq!(client.get("/named").text(), "named\n");
        assert_eq!(client.get("/uri").text(), "nilnil\n");
        assert_eq!(client.get("/caught").status, 403);
        let file = client.get("/file");
        assert_eq!((file.text().as_str(), file.field("X-X")), ("file\n", Some("b")));
        assert!(server.client().send("GET /close HTTP/1.1\r\nHost: a\r\n\r\n").try_response().is_err());
    }

    /// Whatever clocks do meanwhile: Kong reckons latencies from it, and its specs compare two.
    fn a_request_began_once(driver) {
        let server = serve_with("init_by_lua_block { started = 0 }", "location / {
            rewrite_by_lua_block {
                local function later()
                    local before = ngx.now()
                    repeat ngx.update_time() until ngx.now() > before + 0.005
                end
                started = ngx.req.start_time()
                assert(started <= ngx.now())
                later()
                assert(ngx.req.start_time() == started)
                ngx.ctx.later = later
            }
            access_by_lua_block { ngx.ctx.later() assert(ngx.req.start_time() == started) ngx.sleep(0.003) ngx.exec('/other') }
        }
        location /other { content_by_lua_block { ngx.print(ngx.req.start_time() - started) } }");
        assert_eq!(server.client().get("/").text(), "0");
    }

    /// What a script has seen pass has passed for variables, too: Kong's logs add latencies of both.
    fn variables_know_the_time_that_scripts_have_seen(driver) {
        let server = serve_with("", "location / {
            content_by_lua_block {
                ngx.ctx.started = ngx.req.start_time()
                local stop = ngx.now() + 0.02
                repeat ngx.update_time() until ngx.now() > stop
                ngx.say(ngx.var.request_time + 0 >= 0.018, ' ', ngx.var.msec + 0.001 > stop)
            }
            header_filter_by_lua_block {
                -- Without an update: the first reading of a script.
                local stop = os.clock() + 0.02
                repeat until os.clock() > stop
                local passed = ngx.now() - ngx.ctx.started
                ngx.header['X-Time'] = tostring(ngx.var.request_time + 0.002 >= passed)
            }
        }");
        let response = server.client().get("/");
        assert_eq!((response.text().as_str(), response.field("X-Time")), ("true true\n", Some("true")));
    }

    fn waiting_lets_others_run(driver) {
        let server = serve(
            "location /sleep { content_by_lua_block { ngx.say('a') ngx.flush(true) ngx.sleep(0.01) ngx.say('b') } }
             location /threads { content_by_lua_block {
                local function f(n) ngx.sleep(n / 100) ngx.say('t', n) return n * 2 end
                local a, b = ngx.thread.spawn(f, 100), ngx.thread.spawn(f, 1)
                ngx.say('spawned')
                ngx.say(ngx.thread.wait(a, b))
                ngx.say(ngx.thread.wait(a))
                ngx.say(ngx.thread.wait(b))
                local c = ngx.thread.spawn(function() error('broken') end)
                ngx.say(ngx.thread.wait(c))
                local d = ngx.thread.spawn(function() ngx.sleep(100) end)
                ngx.say(ngx.thread.kill(d), coroutine.status(d)) } }
             location /coroutines { content_by_lua_block {
                local co = coroutine.create(function(x) local y = coroutine.yield(x + 1) ngx.sleep(0.01) return y * 2 end)
                ngx.say(coroutine.resume(co, 1))
                ngx.say(coroutine.resume(co, 21))
                ngx.say(coroutine.status(co))
                ngx.say(coroutine.resume(co))
                for v in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) do ngx.print(v, ' ') end
                ngx.say(pcall(coroutine.wrap(function() error({}) end))) } }",
        );
        let mut client = server.client();
        assert_eq!(client.get("/sleep").text(), "a\nb\n");
        let text = client.get("/threads").text();
        let wanted = "spawned\nt1\ntrue2\nt100\ntrue200\nnilalready waited or killed\nfalsebroken\n1dead\n";
        assert_eq!(text, wanted);
        let text = client.get("/coroutines").text();
        assert!(text.starts_with("true2\ntrue42\ndead\nfalsecannot resume dead coroutine\n1 2 3 "), "{text}");
    }

    /// What has ended leaves its place, also in the registry.
    fn coroutines_by_the_thousand(driver) {
        let script = "local n = 0 for i = 1, 20000 do local co = coroutine.wrap(function() coroutine.yield(1) n = n + 1 end) co() co() end
                      collectgarbage() ngx.say(n, collectgarbage('count') < 20000)";
        assert_eq!(say(script), "20000true\n");
    }

    fn bodies_and_subrequests(driver) {
        let server = serve(
            "location /body { content_by_lua_block { ngx.req.read_body() local a = ngx.req.get_post_args()
                ngx.say(ngx.req.get_body_data(), a.x, a.y[2]) } }
             location /set { content_by_lua_block { ngx.req.read_body() ngx.req.set_body_data('new') ngx.say(ngx.req.get_body_data(),
                ngx.var.content_length) } }
             location /one { content_by_lua_block { local r = ngx.location.capture('/inner?a=1', {args = {b = 2}})
                ngx.say(r.status, r.body, r.header['content-type'], r.truncated) } }
             location /two { content_by_lua_block { local a, b = ngx.location.capture_multi{{'/inner'}, {'/missing'}}
                ngx.say(a.status, b.status) } }
             location /inner { content_by_lua_block { ngx.ctx.x = 1 ngx.print(ngx.var.args, ngx.is_subrequest) } }
             location /missing { return 404; }",
        );
        let mut client = server.client();
        let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nx=1&y=2&y=3");
        assert_eq!(client.request(post("/body")).text(), "x=1&y=2&y=313\n");
        assert_eq!(client.request(post("/set")).text(), "new3\n");
        assert_eq!(client.get("/one").text(), "200a=1&b=2truetext/plainfalse\n");
        assert_eq!(client.get("/two").text(), "200404\n");
    }

    fn filters_and_logs(driver) {
        let server = serve_with(
            "log_by_lua_block { ngx.log(ngx.WARN, 'over: ', ngx.status, ' ', ngx.ctx.seen) require('ngx.errlog').raw_log(ngx.WARN, 'as it is') }",
            "location / { echo abc; header_filter_by_lua_block { ngx.header.x_f = '1' ngx.header.content_length = nil ngx.ctx.seen = 'yes' }
             body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } }
             location /refuse { return 200 abc; header_filter_by_lua_block { error('no') } }",
        );
        let response = server.client().get("/");
        assert_eq!((response.text().as_str(), response.field("X-F")), ("ABC\n", Some("1")), "{response}");
        let _ = server.error_log_line("[lua] log_by_lua(nginx.conf:2):1: over: 200 yes while logging request, client: 127.0.0.1");
        let _ = server.error_log_line(" as it is while logging request, client: 127.0.0.1");
        assert_eq!(server.client().get("/refuse").status, 500);
        let _ = server.error_log_line("failed to run header_filter_by_lua*: header_filter_by_lua(nginx.conf:");
    }

    /// As OpenResty: of what scripts say and of what upstreams send the end comes by itself after the last bytes, of files and pages with
    /// them. Scripts that change `ngx.arg[1]` only `if not ngx.arg[2]` rely on it, as Kong's plugins do.
    fn the_end_of_a_body_comes_alone_where_its_pieces_do(driver) {
        let up = Server::builder("events {}\nhttp { server { listen 127.0.0.1:%%PORT%%; location / { return 200 upstream; } } }\n").start();
        let conf = "events {}\nhttp { error_page 418 /page; body_filter_by_lua_block { ngx.arg[1] = '[' .. #ngx.arg[1] .. ',' .. tostring(ngx.arg[2]) .. ']' }
            header_filter_by_lua_block { ngx.header.content_length = nil }
            upstream kept { server UP; keepalive 4; }
            server { listen 127.0.0.1:%%PORT%%; root html; proxy_http_version 1.1;
            location /kept { proxy_set_header Connection ''; proxy_pass http://kept/; }
            location /say { content_by_lua_block { ngx.say('hello') } }
            location /exit { content_by_lua_block { ngx.print('hello') ngx.exit(200) } }
            location /eof { content_by_lua_block { ngx.print('hello') ngx.eof() } }
            location /access { access_by_lua_block { ngx.status = 401 ngx.header.content_length = 5 ngx.print('hello') ngx.exit(401) } }
            location /nothing { content_by_lua_block { ngx.exit(200) } }
            location /return { return 200 hello; }
            location /page { internal; content_by_lua_block { ngx.print('page') } }
            location /418 { return 418; }
            location /capture { content_by_lua_block { ngx.print(ngx.location.capture('/say').body) } }
            location /a.txt { }
            location /proxy { proxy_pass http://UP/; } location /unbuffered { proxy_buffering off; proxy_pass http://UP/; }
            location /mended { proxy_intercept_errors on; error_page 404 =200 /say; proxy_pass http://127.0.0.1:%%PORT%%/no; } } }\n"
            .replace("UP", &up.addr(0).to_string());
        let server = Server::builder(&conf).driver(driver).file("html/a.txt", "a file").allow("No such file").start();
        for (path, wanted) in [
            ("/say", "[6,false][0,true]"),
            ("/exit", "[5,false][0,true]"),
            ("/eof", "[5,false][0,true]"),
            ("/access", "[5,false][0,true]"),
            ("/nothing", "[0,true]"),
            ("/return", "[5,true]"),
            ("/418", "[4,false][0,true]"),
            ("/capture", "[17,false][0,true]"),
            ("/a.txt", "[6,true]"),
            ("/proxy", "[8,false][0,true]"),
            ("/unbuffered", "[8,false][0,true]"),
            ("/mended", "[6,false][0,true]"),
            ("/kept", "[8,false][0,true]"),
        ] {
            // What is known of a response from earlier ones changes nothing.
            for _ in 0..3 {
                assert_eq!(server.client().get(path).text(), wanted, "{path}");
            }
        }
    }

    /// Each failed request is its own; the next one gets its response.
    fn errors_end_their_request_only(driver) {
        let server = serve(
            "location /runtime { content_by_lua_block { local function bad() error('oops') end bad() } }
             location /value { content_by_lua_block { error({code = 1}) } }
             location /nothing { content_by_lua_block { error() } }
             location /syntax { content_by_lua_block { local = 3 } }
             location /late { content_by_lua_block { ngx.say('begun') ngx.flush(true) error('late') } }
             location /deep { content_by_lua_block { local function f() return 1 + f() end f() } }
             location /context { content_by_lua_block { ngx.say('x') } header_filter_by_lua_block { ngx.say('y') } }
             location /file { content_by_lua_file missing.lua; }
             location /global { content_by_lua_block { leaked = 1 ngx.say(leaked) } }
             location /ok { content_by_lua_block { ngx.say('ok') } }",
        );
        for (path, words) in [
            ("/runtime", "lua entry thread aborted: runtime error: content_by_lua(nginx.conf:"),
            ("/value", "lua entry thread aborted: runtime error: unknown reason"),
            ("/nothing", "lua entry thread aborted: runtime error: unknown reason"),
            ("/syntax", "failed to load inlined Lua code: content_by_lua(nginx.conf:"),
            ("/deep", "stack overflow"),
            ("/context", "API disabled in the context of header_filter_by_lua*"),
            ("/file", "failed to load external Lua file \""),
        ] {
            let status = if path == "/file" { 404 } else { 500 };
            assert_eq!(server.client().get(path).status, status, "{path}");
            let _ = server.error_log_line(words);
            assert_eq!(server.client().get("/ok").text(), "ok\n");
        }
        let (late, _) = server.client().send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").rest();
        assert!(late.starts_with(b"HTTP/1.1 200 OK\r\n") && !late.ends_with(b"0\r\n\r\n"), "the answer is cut off");
        assert_eq!(server.client().get("/global").text(), "1\n");
        let _ = server.error_log_line("writing a global Lua variable ('leaked')");
    }

    fn a_vm_is_prepared(driver) {
        let server = serve_with(
            "init_by_lua_block { greeting = 'hi' } init_worker_by_lua_block { worker = ngx.worker.id() }
             lua_package_path '$prefix/lua/?.lua;;';",
            "location / { content_by_lua_block { ngx.say(greeting, worker, require('resty.core') and require('table.new')(1, 1) and 1) } }",
        );
        assert_eq!(server.client().get("/").text(), "hi01\n");
    }
}
