//! Scripts before a worker serves: `init_worker_by_lua` that waits, and the privileged agent.

use weir_test::{Server, both_drivers, wait_for};

fn get(server: &Server, path: &str) -> String {
    let answer = server.client().get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// Waits until `key` is `wanted`.
fn sees(server: &Server, key: &str, wanted: &str) {
    wait_for(&format!("{key} = {wanted}"), || {
        (get(server, &format!("/seen?key={key}")) == wanted).then_some(())
    });
}

/// A configuration with `main` outside, `http` inside; `/seen` says what scripts have put under a key.
fn conf(main: &str, http: &str) -> String {
    format!(
        "worker_processes 2;\n{main}\nevents {{}}\nhttp {{ lua_shared_dict seen 1m;\n{http}\n\
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location /seen {{ content_by_lua_block {{ ngx.print(tostring(ngx.shared.seen:get(ngx.var.arg_key))) }} }}\n\
         location /say {{ content_by_lua_block {{ assert(weir.events.publish(tonumber(ngx.var.arg_to) or 'all', 'a', 'b', 1)) }} }}\n\
         location /quit {{ content_by_lua_block {{ require('ngx.process').signal_graceful_exit() ngx.print('bye') }} }}
         location /kind {{ content_by_lua_block {{ ngx.print(require('ngx.process').type()) }} }}\n}} }}\n"
    )
}

/// Waits in every way before its worker serves.
const WAITING: &str = "lua_yield_everywhere on;
    init_worker_by_lua_block {
        local seen, id = ngx.shared.seen, ngx.worker.id()
        local sem = require('ngx.semaphore').new()
        local thread = ngx.thread.spawn(function() ngx.sleep(0.05) sem:post() return 'slept' end)
        assert(sem:wait(60))
        local _, said = ngx.thread.wait(thread)
        local sock = ngx.socket.tcp()
        local ok, why = sock:connect('unix:/nonexistent/socket')
        seen:set('ready' .. id, table.concat({ said, tostring(ok), ngx.get_phase(), tostring(pcall(function() return ngx.var.uri end)) }, ' '))
        seen:incr('ready', 1, 0)
    }";

both_drivers! {
    fn a_worker_serves_when_its_script_has_waited(driver) {
        let text = conf("", WAITING);
        let mut server = Server::builder(&text).driver(driver).allow("/nonexistent/socket").start();
        // The first request finds all workers ready.
        assert_eq!(get(&server, "/seen?key=ready"), "2");
        for id in 0..2 {
            assert_eq!(get(&server, &format!("/seen?key=ready{id}")), "slept nil init_worker false");
        }
        server.reload(&text);
        sees(&server, "ready", "4");
    }

    /// As in OpenResty, which runs these for a request that nobody sent: Kong looks there for its log and its workspace.
    fn scripts_of_a_worker_have_a_context_and_a_request(driver) {
        let asks = "local has = require('resty.core.base').get_request() ~= nil
            ngx.ctx.a = 1
            local was = ngx.ctx.a
            ngx.ctx = { b = 2 }
            ngx.log(ngx.WARN, ngx.get_phase(), ' asks: ', has, ' ', was, ' ', ngx.ctx.a, ' ', ngx.ctx.b)";
        for yields in ["off", "on"] {
            let text = conf(
                "",
                &format!(
                    "lua_yield_everywhere {yields}; init_by_lua_block {{ assert(require('resty.core.base').get_request() == nil) }}
                     init_worker_by_lua_block {{ {asks} }} exit_worker_by_lua_block {{ {asks} }}"
                ),
            );
            let mut server = Server::builder(&text).driver(driver).allow(" asks: ").start();
            let line = server.error_log_line("init_worker asks: ");
            assert!(line.contains("init_worker asks: true 1 nil 2"), "{line}");
            server.quit();
            let line = server.error_log_line("exit_worker asks: ");
            assert!(line.contains("exit_worker asks: true 1 nil 2"), "{line}");
        }
    }

    fn a_script_that_fails_keeps_no_worker_from_serving(driver) {
        let text = conf("", "lua_yield_everywhere on; init_worker_by_lua_block { ngx.sleep(0.001) error('oops') }");
        let server = Server::builder(&text).driver(driver).allow("oops").start();
        assert_eq!(get(&server, "/kind"), "single");
        let line = server.error_log_line("oops");
        assert!(line.contains("lua entry thread aborted: runtime error: init_worker_by_lua(nginx.conf:"), "{line}");
        // Off, it may not wait.
        let text = conf("", "init_worker_by_lua_block { ngx.sleep(0.001) }");
        let server = Server::builder(&text).driver(driver).allow("API disabled").start();
        assert_eq!(get(&server, "/kind"), "single");
        let line = server.error_log_line("API disabled");
        assert!(line.contains("API disabled in the context of init_worker_by_lua*"), "{line}");
    }
}

/// Has an agent, which says what it is and receives events.
const AGENT: &str = "
    init_by_lua_block {
        local process = require 'ngx.process'
        assert(select(2, process.enable_privileged_agent('x')) == \"bad 'connections' argument: number expected and greater than 0\")
        assert(process.enable_privileged_agent(100))
        if process.type() ~= 'master' and process.type() ~= 'single' then error(process.type()) end
    }
    init_worker_by_lua_block {
        local seen, kind = ngx.shared.seen, require('ngx.process').type()
        seen:incr(kind, 1, 0)
        if kind == 'privileged agent' then
            ngx.timer.at(0, function()
                seen:set('agent', table.concat({ tostring(ngx.worker.id()), ngx.worker.count(), ngx.get_phase() }, ' '))
            end)
            ngx.timer.at(3600, function(premature)
                ngx.log(ngx.WARN, 'the agent leaves ', premature)
            end)
            weir.events.subscribe('a', 'b', function(data, event, source, wid)
                seen:incr('heard', data, 0)
                weir.events.publish('all', 'agent', 'heard')
            end)
        else
            weir.events.subscribe('agent', 'heard', function(_, _, _, wid) seen:incr('answered', wid, 0) end)
        end
    }
    exit_worker_by_lua_block { ngx.log(ngx.WARN, require('ngx.process').type(), ' exits') }";

#[test]
fn the_agent_has_a_vm_and_no_listeners() {
    let text = conf("master_process on;", AGENT);
    let mut server = Server::builder(&text).allow("agent").start();
    sees(&server, "worker", "2");
    sees(&server, "privileged%20agent", "nil");
    sees(&server, "agent", "nil 2 timer");
    for _ in 0..4 {
        assert_eq!(get(&server, "/kind"), "worker");
    }
    assert_eq!(get(&server, "/say"), "");
    sees(&server, "heard", "1");
    sees(&server, "answered", "-2");
    assert_eq!(get(&server, "/say?to=-1"), "");
    sees(&server, "heard", "2");
    server.reload(&text);
    sees(&server, "worker", "4");
    let _ = server.error_log_line("the agent leaves true");
    let _ = server.error_log_line("privileged agent exits");
    assert_eq!(get(&server, "/say?to=-1"), "");
    // A configuration that wants none ends it.
    server.reload(&conf("master_process on;", ""));
    wait_for("the agent's end", || {
        (server.error_log().matches("the agent leaves true").count() == 2).then_some(())
    });
    server.quit();
}

/// As in OpenResty it does not exist without a master.
#[test]
fn one_process_has_no_agent() {
    let server = Server::builder(&conf("", AGENT)).allow("exits").start();
    assert_eq!(get(&server, "/kind"), "single");
    sees(&server, "single", "2");
    assert!(!server.error_log().contains("start privileged agent"), "{}", server.error_log());
}

/// A request for it gets its response.
#[test]
fn one_process_ends_when_a_script_says_so() {
    let mut server = Server::builder(&conf("", "")).start();
    assert_eq!(get(&server, "/quit"), "bye");
    assert!(server.wait_exit().status.success());
    assert!(server.error_log().contains("gracefully shutting down"), "{}", server.error_log());
}

both_drivers! {
    /// As Kong takes its number: whichever worker's VM runs `init_by_lua` first writes, the others find what it has written.
    fn what_init_writes_to_a_dictionary_is_there_in_each_workers(driver) {
        for workers in [1, 2, 8] {
            let mut server = Server::builder(&format!("worker_processes {workers}; events {{}}
                http {{ lua_shared_dict d 1m;
                init_by_lua_block {{
                    local d = ngx.shared.d
                    d:flush_all()
                    d:safe_add('number', tostring({{}}))
                    number = assert(d:get 'number', 'nothing was written')
                }}
                server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{ ngx.print(number == ngx.shared.d:get 'number') }} }} }} }}"))
                .driver(driver).start();
            for _ in 0..2 * workers {
                assert_eq!(server.get("/").text(), "true", "{workers} workers");
            }
            assert!(server.quit().status.success());
        }
    }
}
