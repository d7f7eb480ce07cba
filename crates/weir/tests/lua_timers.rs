//! Lua without a request: timers.

use weir_test::{Driver, Server, both_drivers, wait_for};

/// A server of one worker with `http` and `locations`; `/seen` says what scripts have put under a key, and what they have
/// pushed is listed by `/list`.
fn conf(http: &str, locations: &str) -> String {
    format!(
        "worker_processes 1;\nevents {{}}\nhttp {{ lua_shared_dict seen 100k;\n{http}\n\
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location /seen {{ content_by_lua_block {{ ngx.print(tostring(ngx.shared.seen:get(ngx.var.arg_key))) }} }}\n\
         {locations}\n}} }}\n"
    )
}

fn serve(driver: Driver, http: &str, locations: &str) -> Server {
    Server::builder(&conf(http, locations)).driver(driver).start()
}

fn content(path: &str, script: &str) -> String {
    format!("location {path} {{ content_by_lua_block {{ {script} }} }}\n")
}

/// Waits until `key` is `wanted`.
fn sees(server: &Server, key: &str, wanted: &str) {
    wait_for(&format!("{key} = {wanted}"), || {
        (server.client().get(&format!("/seen?key={key}")).text() == wanted).then_some(())
    });
}

both_drivers! {
    fn timers_run_with_their_arguments(driver) {
        let server = serve(driver,
            "init_worker_by_lua_block { ngx.timer.at(0, function(premature, ...)
                local has = pcall(function() return ngx.var.uri end)
                ngx.shared.seen:set('early', table.concat({ tostring(premature), select('#', ...), ngx.get_phase(), tostring(has) }, ' '))
             end) }",
            &[
                content("/args", "ngx.say(ngx.timer.at(0.001, function(premature, a, b, c, d)
                    ngx.sleep(0.001)
                    ngx.ctx.d = d
                    ngx.shared.seen:set('args', tostring(premature) .. a .. tostring(b) .. tostring(c) .. ngx.ctx.d)
                 end, 'x', nil, false, 4))"),
                content("/every", "ngx.timer.every(0.001, function(premature, step) ngx.shared.seen:incr('every', step, 0) end, 1)"),
                content("/nested", "local function again(premature, left)
                    if left > 0 then return ngx.timer.at(0, again, left - 1) end
                    ngx.shared.seen:set('nested', ngx.timer.running_count())
                 end again(false, 5)"),
                content("/threads", "ngx.timer.at(0, function()
                    local threads = {}
                    for i = 1, 3 do threads[i] = ngx.thread.spawn(function() ngx.sleep(0.001) return i end) end
                    local sum = 0
                    for _, thread in ipairs(threads) do sum = sum + select(2, ngx.thread.wait(thread)) end
                    ngx.shared.seen:set('threads', sum)
                 end)"),
            ].concat());
        sees(&server, "early", "false 0 timer false");
        assert_eq!(server.client().get("/args").text(), "1\n");
        sees(&server, "args", "falsexnilfalse4");
        assert_eq!(server.client().get("/nested").status, 200);
        sees(&server, "nested", "1");
        assert_eq!(server.client().get("/threads").status, 200);
        sees(&server, "threads", "6");
        assert_eq!(server.client().get("/every").status, 200);
        wait_for("ten times", || {
            let times = server.client().get("/seen?key=every").text();
            times.parse::<u32>().ok().filter(|times| *times >= 10)
        });
    }

    fn what_timers_log_names_them_and_the_client(driver) {
        let server = serve(driver,
            "init_worker_by_lua_block { ngx.timer.at(0, function() ngx.log(ngx.WARN, 'of nobody') end) }",
            &content("/wrong", "ngx.timer.at(0, function() ngx.log(ngx.WARN, 'of a client') error('wrong') end)"));
        assert!(server.error_log_line("of nobody").ends_with("of nobody, context: ngx.timer"));
        assert_eq!(server.client().get("/wrong").status, 200);
        let end = format!(", context: ngx.timer, client: 127.0.0.1, server: 127.0.0.1:{}", server.port(0));
        let line = server.error_log_line("of a client");
        assert!(line.ends_with(&end), "{line}");
        let line = server.error_log_line("lua entry thread aborted: runtime error: content_by_lua(nginx.conf:");
        assert!(line.ends_with(": wrong"), "{line}");
        let line = server.error_log_line("in function <content_by_lua(");
        let log = server.error_log();
        assert!(log.contains(&end), "{line}: {log}");
    }

    fn what_needs_a_request_is_refused_in_timers(driver) {
        let scripts = ["ngx.say('x')", "return ngx.var.uri", "ngx.req.get_headers()", "ngx.exec('/x')", "local s = ngx.status",
            "local h = ngx.header.a", "ngx.location.capture('/x')", "ngx.req.read_body()", "local s = ngx.headers_sent",
            "ngx.req.set_header('a', 'b')", "ngx.req.get_method()", "ngx.redirect('/x')"];
        let calls: String = scripts.iter().enumerate().map(|(at, script)| format!(
            "local ok, why = pcall(function() {script} end)
             ngx.shared.seen:set('{at}', (tostring(why):gsub('^.-: ', '')))\n")).collect();
        let server = serve(driver, "", &content("/refused", &format!("ngx.timer.at(0, function() {calls} end)")));
        assert_eq!(server.client().get("/refused").status, 200);
        let [context, current] = ["API disabled in the context of ngx.timer", "API disabled in the current context"];
        for (at, wanted) in [context, current, current, context, current, current, context, context, current, current, current,
            context].into_iter().enumerate()
        {
            sees(&server, &at.to_string(), wanted);
        }
    }

    fn timers_have_limits(driver) {
        let http = "lua_max_pending_timers 2; lua_max_running_timers 1;";
        let server = Server::builder(&conf(http, &[
            content("/pending", "local function nothing() end
                ngx.say(tostring(ngx.timer.at(3600, nothing)))
                ngx.say(tostring(ngx.timer.at(3600, nothing)))
                ngx.say(tostring(select(2, ngx.timer.at(3600, nothing))))
                ngx.say(ngx.timer.pending_count(), ' ', ngx.timer.running_count())"),
            content("/running", "ngx.timer.at(0, function() ngx.shared.seen:set('running', ngx.timer.running_count()) repeat ngx.sleep(0.001) until ngx.worker.exiting() end)
                ngx.timer.at(0, function() end)"),
        ].concat())).driver(driver).allow("lua_max_running_timers are not enough").start();
        assert_eq!(server.client().get("/running").status, 200);
        sees(&server, "running", "1");
        let line = server.error_log_line("lua_max_running_timers are not enough");
        assert!(line.contains("[alert]") && line.contains(": lua failed to run timer with function defined at =content_by_lua(nginx.conf:"), "{line}");
        assert_eq!(server.client().get("/pending").text(), "1\n1\ntoo many pending timers\n2 1\n");
    }
}
