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

    fn what_a_busy_script_made_late_goes_on_in_the_order_of_its_deadlines(driver) {
        let server = serve(driver, "", &content("/late", "
            local passed = {}
            local function now() ngx.update_time() return ngx.now() * 1000 end
            -- Deadlines are known to what the calls take: on a busy machine that may be long.
            local function timer(ms)
                local self = { name = 'timer ' .. ms, from = now() + ms }
                ngx.timer.at(ms / 1000, function() passed[#passed + 1] = self end)
                self.to = now() + ms
            end
            local function sleeper(ms)
                local self = { name = 'sleeper ' .. ms, from = now() + ms }
                ngx.thread.spawn(function() ngx.sleep(ms / 1000) passed[#passed + 1] = self end)
                self.to = now() + ms
            end
            timer(50) sleeper(40) timer(10) sleeper(60) timer(30) sleeper(20) timer(0) timer(70)
            local till = now() + 100
            repeat until now() > till
            repeat ngx.sleep(0.001) until #passed == 8
            local wrong = {}
            for later = 2, #passed do
                for earlier = 1, later - 1 do
                    if passed[later].to + 2 < passed[earlier].from then
                        wrong[#wrong + 1] = passed[earlier].name .. ' before ' .. passed[later].name
                    end
                end
            end
            ngx.print(table.concat(wrong, ', '))"));
        for _ in 0..3 {
            assert_eq!(server.client().get("/late").text(), "");
        }
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

/// What waits runs with `premature` when its configuration is replaced, and when the server ends.
#[test]
fn timers_that_wait_run_before_their_worker_goes() {
    let script = "ngx.timer.at(3600, function(premature, name)
            ngx.log(ngx.WARN, name, ' premature ', premature, ' ', ngx.worker.exiting(), ' ', tostring(select(2, ngx.timer.at(1, function() end))))
            ngx.timer.at(0, function() ngx.log(ngx.WARN, name, ' again') end)
        end, ngx.var.arg_name)
        ngx.timer.every(3600, function(premature, name) ngx.log(ngx.WARN, name, ' every ', premature) end, ngx.var.arg_name)";
    let exit = "exit_worker_by_lua_block { ngx.log(ngx.WARN, 'exits') }";
    let text = conf(exit, &content("/wait", script));
    let mut server = Server::start(&text);
    assert_eq!(server.client().get("/wait?name=old").status, 200);
    server.reload(&text);
    let is_new = |name: &str| {
        let line = server.error_log_line(&format!("{name} premature "));
        assert!(
            line.contains(&format!("{name} premature true true process exiting, context: ngx.timer")),
            "{line}"
        );
        let _ = server.error_log_line(&format!("{name} every true, context: ngx.timer"));
        let _ = server.error_log_line(&format!("{name} again, context: ngx.timer"));
    };
    is_new("old");
    let _ = server.error_log_line("exits");
    assert_eq!(server.client().get("/wait?name=new").status, 200);
    server.quit();
    let log = server.error_log();
    for part in ["new premature true true process exiting", "new every true", "new again"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert_eq!(log.matches(" exits").count(), 2, "{log}");
    let last = log.rfind("new again").expect("it was seen");
    assert!(log.rfind(" exits").is_some_and(|exits| exits > last), "{log}");
}

both_drivers! {
    fn threads_of_pools_run_modules(driver) {
        let http = "lua_package_path '%%DIR%%/?.lua;;'; lua_shared_dict kept 100k;";
        let module = "local M = {}
            function M.echo(...) return ... end
            function M.wrong() error('oops') end
            function M.none() return function() end end
            function M.kept() return ngx.shared.kept:get('a') end
            function M.count() count = (count or 0) + 1 return count end
            function M.work(n) local sum = 0 for i = 1, n do sum = sum + i end return sum end
            return M";
        let script = "
            ngx.shared.kept:set('a', 3)
            local run, out = ngx.run_worker_thread, {}
            local function tell(...)
                local texts = {}
                for at = 1, select('#', ...) do texts[at] = tostring((select(at, ...))) end
                ngx.say((table.concat(texts, ' '):gsub('\\n.*', '')))
            end
            tell(run('pool', 'work')) tell(run({}, 'work', 'echo')) tell(run('pool', {}, 'echo')) tell(run('pool', 'work', {}))
            tell(run('none', 'work', 'echo')) tell(run('pool', 'nothing', 'echo')) tell(run('pool', 'work', 'nothing'))
            tell(run('pool', 'number', 'echo'))
            tell(run('pool', 'work', 'echo', 1, 'a', true, nil, 2.5, ngx.null))
            local ok, first, second = run('pool', 'work', 'echo', { 1, { x = 'y' } }, nil)
            tell(ok, first[1], first[2].x, second)
            tell(run('pool', 'work', 'echo', function() end)) tell(run('pool', 'work', 'echo', { coroutine.create(function() end) }))
            tell(run('pool', 'work', 'echo', io.stdout))
            local circle = {} circle[1] = circle
            tell(run('pool', 'work', 'echo', circle))
            tell(run('pool', 'work', 'wrong')) tell(run('pool', 'work', 'none')) tell(run('pool', 'work', 'kept'))
            tell(run('pool', 'work', 'count')) tell(run('pool', 'work', 'count'))
            local threads = {}
            for at = 1, 4 do threads[at] = ngx.thread.spawn(run, 'pool', 'work', 'work', 1000 * at) end
            for at = 1, 4 do tell(ngx.thread.wait(threads[at])) end";
        let text = format!("thread_pool pool threads=1;\n{}", conf(http, &content("/run", script)));
        let builder = Server::builder(&text).driver(driver).file("work.lua", module).file("number.lua", "return 1");
        let directory = builder.dir().display().to_string();
        let server = builder.start();
        let said = server.client().get("/run").text().replace(&directory, "DIR");
        let wanted = "false expecting at least 3 arguments\nfalse threadpool should be a string\n\
            false module name should be a string\nfalse function name should be a string\nfalse thread pool none not found\n\
            false module 'nothing' not found:\nfalse invalid function\nfalse invalid lua module\n\
            true 1 a true nil 2.5 userdata: NULL\ntrue 1 y nil\nfalse unsupported Lua type: LUA_TFUNCTION in the argument\n\
            false unsupported Lua type: LUA_TTHREAD in the argument\nfalse unsupported Lua type: LUA_TUSERDATA in the argument\n\
            false suspicious circular references, table depth exceed max depth: 100 in the argument\n\
            false DIR/work.lua:3: oops\nfalse unsupported Lua type: LUA_TFUNCTION in the return value\ntrue 3\ntrue 1\ntrue 2\n\
            true true 500500\ntrue true 2001000\ntrue true 4501500\ntrue true 8002000\n";
        assert_eq!(said, wanted);
    }

    fn locks_are_of_all_workers(driver) {
        let server = serve(driver, "lua_shared_dict locks 100k;", &content("/lock",
            "local new = require('resty.lock').new
             local one, other = new(nil, 'locks'), new(nil, 'locks', { timeout = 0 })
             ngx.say(one:lock('a'), ' ', tostring(select(2, one:lock('a'))), ' ', tostring(select(2, other:lock('a'))))
             ngx.say(one:unlock(), ' ', tostring(select(2, one:unlock())), ' ', other:lock('a'))
             local waits = new(nil, 'locks', { step = 0.001 })
             local thread = ngx.thread.spawn(function() return waits:lock('a') end)
             other:unlock()
             local ok, waited = ngx.thread.wait(thread)
             ngx.say(ok, ' ', waited > 0, ' ', tostring(select(2, new(nil, 'none'))))"));
        assert_eq!(server.client().get("/lock").text(), "0 locked timeout\n1 unlocked 0\ntrue true dictionary not found\n");
    }
}

both_drivers! {
    /// OpenResty handles what was posted before what is delayed, and what is delayed in the order in which it was made: a script that
    /// lets others go first (`ngx.sleep(0)`) finds done what its timers for 0 seconds and its semaphores were to do. Kong's tests rely on it.
    fn a_sleep_of_no_time_comes_after_timers_and_semaphores_before_it(driver) {
        let script = "local semaphore, seen = require 'ngx.semaphore', {}
            local function say(text) return function() seen[#seen + 1] = text end end
            -- Semaphores, of which each wakes the next.
            local chain = {}
            for i = 1, 4 do chain[i] = semaphore.new(0) end
            for i = 1, 4 do
                ngx.thread.spawn(function()
                    for round = 1, 2 do
                        assert(chain[i]:wait(10))
                        if i < 4 then chain[i + 1]:post() else say('chain' .. round)() end
                    end
                end)
            end
            chain[1]:post() ngx.sleep(0) say('slept')()
            chain[1]:post() ngx.sleep(0) say('slept')()
            ngx.timer.at(0, say 'timer') ngx.timer.at(0, say 'second') ngx.sleep(0) say('slept')()
            -- What a timer makes comes after those that waited already.
            ngx.timer.at(0, function() ngx.timer.at(0, say 'inner') end) ngx.sleep(0) say('slept')()
            ngx.sleep(0) ngx.sleep(0) say('slept')()
            ngx.timer.at(0, function() seen[#seen + 1] = 'begun' ngx.sleep(0) seen[#seen + 1] = 'ended' end)
            ngx.sleep(0) say('slept')() ngx.sleep(0) ngx.sleep(0)
            local thread = ngx.thread.spawn(function() ngx.sleep(0) say('thread')() end)
            ngx.timer.at(0, say 'timer') ngx.sleep(0) say('slept')()
            ngx.thread.wait(thread)
            ngx.say(table.concat(seen, ' '))";
        let server = serve(driver, "", &content("/order", script));
        let wanted = "chain1 slept chain2 slept timer second slept slept inner slept begun slept ended thread timer slept\n";
        for _ in 0..3 {
            assert_eq!(server.client().get("/order").text(), wanted);
        }
    }

    /// Timers and semaphores that go on for ever don't keep a script from going on.
    fn a_sleep_of_no_time_ends_beside_endless_timers(driver) {
        let script = "local semaphore = require 'ngx.semaphore'
            local left, right, ended = semaphore.new(0), semaphore.new(0), false
            local function pass(from, to)
                return function() while not ended do from:wait(10) to:post() end end
            end
            local function again() if not ended then ngx.timer.at(0, again) end end
            for _ = 1, 4 do ngx.timer.at(0, again) end
            ngx.timer.at(0, pass(left, right)) ngx.timer.at(0, pass(right, left)) left:post()
            for _ = 1, 20 do ngx.sleep(0) end
            ended = true left:post() right:post()
            ngx.say 'done'";
        let server = serve(driver, "", &content("/ends", script));
        assert_eq!(server.client().get("/ends").text(), "done\n");
    }
}
