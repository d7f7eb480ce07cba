//! What goes wrong with cosockets, in OpenResty's words: hosts, connections that are not pooled, sockets of others.

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
        // The first request is over a moment after its response has come.
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
}
