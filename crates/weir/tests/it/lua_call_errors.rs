//! What wrong calls of threads, semaphores, sleeps and output give, in OpenResty's words.

use weir_test::{Driver, Server, both_drivers, wait_for};

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
}
