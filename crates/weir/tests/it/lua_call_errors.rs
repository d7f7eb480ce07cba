//! What scripts are told, in OpenResty's words: wrong arguments, closed sockets, subrequests that fail.

use std::sync::atomic::{AtomicBool, Ordering};

use weir_test::{Backend, Driver, Server, both_drivers, wait_for};

/// `t(function, arguments…)` says what a call gives, errors without the place that they name.
const TELL: &str = "init_by_lua_block {
    function t(f, ...)
        local said = { pcall(f, ...) }
        for at = 1, 4 do said[at] = tostring(said[at]):gsub('^[^ ]+:%d+: ', '') end
        ngx.say(table.concat(said, ' ', 1, 3))
    end }";

fn serve(driver: Driver, http: &str, locations: &str) -> Server {
    let text = format!(
        "worker_processes 1;\nevents {{}}\nhttp {{ {TELL} {http} server {{ listen 127.0.0.1:%%PORT%%;\n\
         default_type text/plain; error_log %%DIR%%/error.log info;\n{locations}\n}} }}\n"
    );
    Server::builder(&text).driver(driver).start()
}

/// What a content script says.
fn say(driver: Driver, script: &str) -> String {
    let server = serve(driver, "", &format!("location / {{ content_by_lua_block {{ {script} }} }}"));
    server.get("/").text()
}

both_drivers! {
    fn light_threads_semaphores_and_sleeps(driver) {
        let said = say(driver, "
            t(ngx.thread.spawn, 1) t(ngx.thread.wait) t(ngx.thread.wait, 1) t(ngx.thread.kill, 1)
            t(ngx.sleep) t(ngx.sleep, -1) t(ngx.sleep, 0, 1)
            local new = require('ngx.semaphore').new
            t(new, -1) local s = new('2')
            t(s.count, s) t(s.wait, s) t(s.wait, s, -1) t(s.post, s, 0) t(s.post, s, '1') t(s.count, s)
            local none = new()
            t(none.wait, none, 0) t(none.wait, none, 0.001)");
        assert_eq!(
            said,
            "false bad argument #1 to 'spawn' (Lua function expected) nil\n\
             false at least one coroutine should be specified nil\n\
             false bad argument #1 to 'wait' (lua thread expected) nil\n\
             false bad argument #1 to 'kill' (lua thread expected) nil\n\
             false attempt to pass 0 arguments, but accepted 1 nil\n\
             false invalid sleep duration \"-1000\" nil\n\
             false attempt to pass 2 arguments, but accepted 1 nil\n\
             false no negative number nil\n\
             true 2 nil\n\
             false attempt to perform arithmetic on a nil value nil\n\
             false no negative number nil\n\
             false positive number required nil\n\
             true true nil\n\
             true 3 nil\n\
             true nil timeout\n\
             true false timeout\n"
        );
    }

    fn output_that_is_not_there_and_arguments(driver) {
        let server = serve(driver, "", "
            location /early { content_by_lua_block {
                local ok, why = ngx.flush(true) ngx.say(tostring(ok), ' ', why)
                t(ngx.flush, 1) t(ngx.flush, true, 1) t(ngx.eof, 1) t(ngx.send_headers) } }
            location /abort { content_by_lua_block { t(ngx.on_abort) t(ngx.on_abort, 1) } }
            location /timer { content_by_lua_block {
                local said, sema = nil, require('ngx.semaphore').new()
                ngx.timer.at(0, function() said = select(2, pcall(ngx.on_abort)) sema:post() end)
                sema:wait(3600) ngx.say(said) } }
            location /aborts { lua_check_client_abort on; content_by_lua_block { t(ngx.on_abort) t(ngx.on_abort, function() end) } }
            location /logs { log_by_lua_block { ngx.log(ngx.WARN, 'at the end') error('too late') } return 200 x; }");
        assert_eq!(
            server.get("/early").text(),
            "nil nothing to flush\n\
             false bad argument #1 to 'flush' (boolean expected, got number) nil\n\
             false attempt to pass 2 arguments, but accepted 0 or 1 nil\n\
             false no argument is expected nil\n\
             true 1 nil\n"
        );
        assert_eq!(server.get("/abort").text(), "true nil lua_check_client_abort is off\n".repeat(2));
        assert_eq!(server.get("/timer").text(), "API disabled in the context of ngx.timer\n");
        assert_eq!(
            server.get("/aborts").text(),
            "false bad argument #1 to 'on_abort' (Lua function expected) nil\ntrue 1 nil\n"
        );
        server.get("/logs");
        let line = server.error_log_line("at the end");
        assert!(line.contains("at the end while logging request, client: "), "{line}");
        let _ = server.error_log_line(" while logging request, client: ");
        wait_for("the error's end", || {
            server.error_log().lines().filter(|line| line.contains(" while logging request, client: ")).nth(1).map(drop)
        });
    }

    /// Each subrequest knows of the servers that it asked alone, and the request of its own.
    fn subrequests_have_servers_of_their_own(driver) {
        let server = serve(driver, "", "
            location /each { content_by_lua_block {
                for _ = 1, 2 do ngx.say(ngx.location.capture('/asks').header['X-Asked']) end
                ngx.say(tostring(ngx.var.upstream_addr)) } }
            location /asks { proxy_pass http://127.0.0.1:%%PORT%%/answers;
                header_filter_by_lua_block { ngx.header['X-Asked'] = ngx.var.upstream_status } }
            location /answers { return 200 x; }
            location /checked { auth_request /asks; proxy_pass http://127.0.0.1:%%PORT%%/gone; add_header X-Asked $upstream_status always; }
            location /gone { return 410; }");
        assert_eq!(server.get("/each").text(), "200\n200\nnil\n");
        assert_eq!(server.get("/checked").field("x-asked"), Some("410"));
    }

    fn jumps_wait_for_subrequests(driver) {
        let server = serve(driver, "", "
            location /jump { rewrite_by_lua_block {
                GO = require('ngx.semaphore').new()
                local thread = ngx.thread.spawn(function() ngx.location.capture('/slow') end)
                local ok, why = pcall(ngx.req.set_uri, '/other', true)
                ngx.ctx.why = tostring(why) GO:post() ngx.thread.wait(thread)
            } content_by_lua_block { ngx.say(ngx.ctx.why) } }
            location /slow { content_by_lua_block { GO:wait(3600) } }
            location /other { return 200 other; }");
        assert!(server.get("/jump").text().ends_with("attempt to abort with pending subrequests\n"));
    }

    fn hosts_that_cannot_be_read(driver) {
        let server = serve(driver, "", "location / { content_by_lua_block {
            local s, port = ngx.socket.tcp(), ngx.var.server_port
            local function c(host) local ok, why = s:connect(host, 1) ngx.say(tostring(ok), ' ', why) end
            c('127.0.0.1:' .. port) c('127.0.0.1:x') c(':80') c('a/b') c('[::1') c('[x]') c('unix:')
            local u = ngx.socket.udp()
            local function p(host) local ok, why = u:setpeername(host, 1) ngx.say(tostring(ok), ' ', why) end
            p('127.0.0.1:' .. port) p('127.0.0.1:x') p('unix:')
            ngx.say(s:bind('127.0.0.1:0')) s:connect('unix:/nowhere/at-all')
            t(s.settimeout, s, 0/0) assert(s:connect('127.0.0.1', port)) t(s.setoption, s, 'keepalive', 'x')
        } }");
        let unread = |host: &str, why: &str| format!("nil failed to parse host name \"{host}\": {why}\n");
        let wanted = [
            "1 nil\n".to_owned(),
            unread("127.0.0.1:x", "invalid port"),
            unread(":80", "no host"),
            unread("a/b", "invalid host"),
            unread("[::1", "invalid host"),
            unread("[x]", "invalid IPv6 address"),
            unread("unix:", "no path in the unix domain socket"),
            "1 nil\n".to_owned(),
            unread("127.0.0.1:x", "invalid port"),
            unread("unix:", "no path in the unix domain socket"),
            "nilbad address\n".to_owned(),
            "false bad timeout value nil\n".to_owned(),
            "false bad argument #3 to '?' (cannot convert 'string' to 'int') nil\n".to_owned(),
        ];
        assert_eq!(server.get("/").text(), wanted.concat());
        let line = server.error_log_line("connect() to unix:/nowhere/at-all failed (2: No such file or directory)");
        assert!(line.contains("[crit]"), "{line}");
    }

    fn the_end_of_all_is_found_again(driver) {
        let backend = Backend::start(|visit| {
            visit.send("all");
        });
        let said = say(driver, &format!("
            local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {}))
            for _, what in ipairs {{ '*a', '*a', '*l', '*l' }} do t(s.receive, s, what) end
            t(s.close, s) t(s.close, s)", backend.port()));
        assert_eq!(said, "true all nil\ntrue  nil\ntrue nil closed\ntrue nil closed\ntrue 1 nil\ntrue nil closed\n");
    }

    fn a_connection_with_bytes_that_nobody_asked_for_is_not_kept(driver) {
        let sent = AtomicBool::new(false);
        let backend = Backend::start(move |visit| {
            match visit.bytes(1).as_deref() {
                Some(b"a") => {
                    visit.send("unasked for");
                    sent.store(true, Ordering::SeqCst);
                    visit.bytes(1);
                }
                Some(b"b") => {
                    wait_for("the other to be answered", || sent.load(Ordering::SeqCst).then_some(()));
                    visit.send("now\n");
                }
                _ => {}
            }
        });
        let said = say(driver, &format!("
            local a, b = ngx.socket.tcp(), ngx.socket.tcp()
            assert(a:connect('127.0.0.1', {0})) a:send('a')
            assert(b:connect('127.0.0.1', {0})) b:send('b') assert(b:receive() == 'now')
            t(a.setkeepalive, a) t(a.send, a, 'x')", backend.port()));
        assert_eq!(said, "true nil connection in dubious state\ntrue nil closed\n");
    }

    fn sockets_of_others_and_those_on_their_way(driver) {
        let server = serve(driver, "", "
            location /keep { content_by_lua_block { KEPT = ngx.socket.tcp() assert(KEPT:connect('127.0.0.1', ngx.var.server_port)) ngx.say('kept') } }
            location /use { content_by_lua_block { t(KEPT.connect, KEPT, '127.0.0.1', ngx.var.server_port) t(KEPT.send, KEPT, 'x') } }
            location /busy { content_by_lua_block {
                local s, port = ngx.socket.tcp(), ngx.var.server_port
                local thread = ngx.thread.spawn(function() return s:connect('127.0.0.1', port) end)
                for _, call in ipairs { 'receive', 'close', 'setkeepalive' } do t(s[call], s) end
                t(s.connect, s, '127.0.0.1', port) t(ngx.thread.wait, thread) } }");
        assert_eq!(server.get("/keep").text(), "kept\n");
        // The first request is over a moment after its answer has come.
        let closed = "false bad request nil\ntrue nil closed\n";
        wait_for("the socket to be closed", || (server.get("/use").text() == closed).then_some(()));
        let line = server.error_log_line("attempt to send data on a closed socket: ");
        assert!(line.contains(", ft:0 eof:0, client: "), "{line}");
        let busy = "true nil socket busy connecting\n".repeat(4);
        assert_eq!(server.get("/busy").text(), format!("{busy}true true 1\n"));
    }

    fn datagrams_tell_whom_they_were_for(driver) {
        let server = serve(driver, "", "location / { content_by_lua_block {
            local s = ngx.socket.udp() s:settimeout(1)
            t(s.setpeername, s, nil, 1) t(s.settimeout, s, 1, 2) t(s.setpeername, s, 'unix:/nowhere/at-all')
            assert(s:setpeername('127.0.0.1', ngx.var.server_port)) t(s.send, s, { true }) } }");
        assert_eq!(
            server.get("/").text(),
            "false bad argument #2 to 'setpeername' (string expected, got nil) nil\n\
             false ngx.socket settimeout: expecting at least 2 arguments (including the object) but seen 3 nil\n\
             true nil no such file or directory\n\
             false bad argument #1 to 'send' (bad data type boolean found) nil\n"
        );
        let line = server.error_log_line("connect() failed (2: No such file or directory), upstream: unix:/nowhere/at-all");
        assert!(line.contains("[crit]"), "{line}");
    }

    fn subrequests_that_fail_have_a_status_and_no_page(driver) {
        let server = serve(driver, "", "
            location = / { content_by_lua_block {
                for _, uri in ipairs { '/500', '/text', '/404', '/301', '/exit', '/raise', '/page', '/none' } do
                    local r = ngx.location.capture(uri)
                    ngx.say(r.status, ' ', #r.body, ' ', tostring(r.truncated), ' ', tostring(r.header['Content-Type']),
                        ' ', type(r.header['Content-Length']), ' ', tostring(r.header.Location))
                end } }
            location /500 { return 500; }
            location /text { return 500 text; }
            location /404 { return 404; }
            location /301 { return 301 /there; }
            location /exit { content_by_lua_block { ngx.exit(403) } }
            location /raise { content_by_lua_block { error('raised') } }
            location /page { error_page 418 = /text; return 418; }");
        assert_eq!(
            server.get("/").text(),
            "500 0 true text/plain nil nil\n\
             500 4 false text/plain number nil\n\
             404 0 true text/plain nil nil\n\
             301 0 true text/plain nil /there\n\
             403 0 true text/plain nil nil\n\
             500 0 true text/plain nil nil\n\
             418 0 true text/plain nil nil\n\
             404 0 true text/plain nil nil\n"
        );
    }

    fn options_of_subrequests(driver) {
        let server = serve(driver, "", "
            location / { content_by_lua_block {
                local capture, multi = ngx.location.capture, ngx.location.capture_multi
                local r = capture('/fields', { headers = { ['X-Own'] = 'own', ['X-Other'] = 5, ['X-Cut'] = 'a\\r\\nb' } })
                ngx.say(r.body, ' ', ngx.var.http_x_own)
                ngx.say(capture('/length', { method = ngx.HTTP_POST, body = 'abc' }).body)
                t(capture, '') t(capture, '/', 1) t(capture, '/', { method = -1 }) t(capture, '/', { headers = 1 })
                t(capture, '/', { headers = { a = {} } }) t(capture, '/', { vars = { none = '1' } })
                t(capture, '/', { share_all_vars = 1 }) t(capture, '/', { ctx = 1 })
                t(multi) t(multi, {}) t(multi, { {} }) t(multi, { { '/', 1 } }) } }
            location /fields { return 200 '$http_x_own $http_x_other $http_x_cut'; }
            location /length { content_by_lua_block { ngx.print(ngx.req.get_headers()['Content-Length']) } }
            location /again { content_by_lua_block { local r = ngx.location.capture('/again') ngx.print(r.status) } }");
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Own: client\r\n\r\n");
        assert_eq!(
            client.response().text(),
            "own 5 a%0D%0Ab client\n3\n\
             false unsafe uri in argument #1:  nil\n\
             false expecting table as the 2nd argument for subrequest 0, but got number nil\n\
             false failed to adjust the subrequest: -1 nil\n\
             false Bad headers option value nil\n\
             false attempt to use bad variable value type table nil\n\
             false failed to adjust the subrequest: -1 nil\n\
             false Bad share_all_vars option value nil\n\
             false Bad ctx option value type number, expected a Lua table nil\n\
             false only one argument is expected, but got 0 nil\n\
             false at least one subrequest should be specified nil\n\
             false query argument 0 expecting one or two arguments nil\n\
             false expecting table as the 2nd argument for subrequest 0, but got number nil\n"
        );
        let _ = server.error_log_line("variable \"none\" cannot be assigned a value (maybe you forgot to define it first?) ");
        assert_eq!(server.get("/again").text(), "200");
        let _ = server.error_log_line("lua subrequests cycle while processing \"/again\"");
        let _ = server.error_log_line("failed to issue subrequest: -1");
    }
}
