//! The order of a start: `init_by_lua` of all workers, `init_worker_by_lua` of all, the switch, and then timers.

use weir_test::{Server, both_drivers, wait_for};

/// Timers of every kind, and an event: each asks the server which configuration serves, and notes it under the
/// configuration's name. The last worker's script renames the file `hold` to `held`, and ends when that is gone.
fn conf(workers: usize, name: &str, http: &str) -> String {
    format!(
        "thread_pool pool threads=1; worker_processes {workers}; events {{}}
http {{ lua_shared_dict seen 1m; lua_package_path '%%DIR%%/?.lua;;'; {http}
    init_worker_by_lua_block {{
        local seen, id = ngx.shared.seen, ngx.worker.id()
        local function ask(kind)
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', %%PORT%%))
            assert(sock:send('GET /name HTTP/1.0\\r\\n\\r\\n'))
            seen:rpush('{name}', kind .. '=' .. sock:receive('*a'):match('\\r\\n\\r\\n(.*)'))
        end
        ngx.timer.at(0, function() ask 'at' end)
        ngx.timer.at(0.02, function() ask 'later' end)
        local once = false
        ngx.timer.every(0.01, function() if not once then once = true ask 'every' end end)
        ngx.timer.at(0, function() assert(ngx.thread.wait(ngx.thread.spawn(ask, 'thread'))) end)
        ngx.timer.at(0, function() ngx.timer.at(0, function() ask 'inner' end) end)
        ngx.timer.at(0, function() assert(ngx.run_worker_thread('pool', 'work', 'work')) ask 'pool' end)
        weir.events.subscribe('start', '{name}' .. id, function() ask 'event' end)
        weir.events.publish(id, 'start', '{name}' .. id)
        while id + 1 == {workers} and os.rename('%%DIR%%/hold', '%%DIR%%/held') do
            repeat os.execute('sleep 0.01') until not os.rename('%%DIR%%/held', '%%DIR%%/held')
        end
    }}
    server {{ listen 127.0.0.1:%%PORT%%;
        location /name {{ return 200 {name}; }}
        location /late {{ content_by_lua_block {{ ngx.sleep(0.05) ngx.print('{name}') }} }}
        location /list {{ content_by_lua_block {{
            local seen, list = ngx.shared.seen, {{}}
            for _ = 1, seen:llen(ngx.var.arg_name) do
                local one = seen:lpop(ngx.var.arg_name)
                seen:rpush(ngx.var.arg_name, one)
                list[#list + 1] = one
            end
            table.sort(list)
            ngx.print(table.concat(list, ' ')) }} }} }} }}"
    )
}

const KINDS: [&str; 7] = ["at", "event", "every", "inner", "later", "pool", "thread"];

fn list(server: &Server, name: &str) -> String {
    server.get(&format!("/list?name={name}")).text()
}

/// Waits until everything of each worker's start has run, and found configuration `name`.
fn all_found(server: &Server, workers: usize, name: &str) {
    let wanted = KINDS.map(|kind| vec![format!("{kind}={name}"); workers].join(" ")).join(" ");
    let words = |list: &str| list.split(' ').filter(|word| !word.is_empty()).count();
    let found = wait_for("all timers", || {
        let found = list(server, name);
        (words(&found) == KINDS.len() * workers).then_some(found)
    });
    assert_eq!(found, wanted, "{workers} workers");
}

both_drivers! {
    /// As nginx's new workers, whose loops begin when their scripts have run and the sockets are theirs.
    fn timers_of_a_start_find_its_configuration_in_force(driver) {
        for workers in [1, 2, 8] {
            let mut server = Server::builder(&conf(workers, "first", ""))
                .file("work.lua", "return { work = function() return 1 end }").driver(driver).start();
            all_found(&server, workers, "first");
            let [hold, held] = ["hold", "held"].map(|name| server.dir().path().join(name));
            if workers > 1 {
                std::fs::write(&hold, "").expect("a file");
            }
            server.reload(&conf(workers, "second", ""));
            if workers > 1 {
                // No request meanwhile: it may come to the worker just before that is held.
                wait_for("the last script", || held.exists().then_some(()));
                // A worker that serves has had the time for all that is due.
                for _ in 0..workers {
                    assert_eq!(server.get("/late").text(), "first");
                }
                assert_eq!(list(&server, "second"), "");
                std::fs::remove_file(&held).expect("it was there");
            }
            all_found(&server, workers, "second");
        }
    }

    /// More workers, and fewer: those that end have no part in it.
    fn timers_of_workers_that_come_and_go(driver) {
        let mut server = Server::builder(&conf(1, "one", ""))
            .file("work.lua", "return { work = function() return 1 end }").driver(driver).start();
        all_found(&server, 1, "one");
        server.reload(&conf(3, "three", ""));
        all_found(&server, 3, "three");
        server.reload(&conf(2, "two", ""));
        wait_for("two", || (server.get("/name").text() == "two").then_some(()));
        wait_for("timers of two", || (list(&server, "two").split(' ').count() >= 2 * KINDS.len()).then_some(()));
        assert!(list(&server, "two").split(' ').all(|found| found.ends_with("=two")), "{}", list(&server, "two"));
    }

    /// In nginx the master runs `init_by_lua` before there are workers.
    fn no_worker_starts_before_all_have_run_init(driver) {
        let text = |workers: usize, name: &str| format!("worker_processes {workers}; events {{}}
http {{ lua_shared_dict seen 64k;
    init_by_lua_block {{ local file = io.open('%%DIR%%/order', 'a') file:write('{name} init\\n') file:close() }}
    init_worker_by_lua_block {{ local file = io.open('%%DIR%%/order', 'a') file:write('{name} worker\\n') file:close() }}
    server {{ listen 127.0.0.1:%%PORT%%; return 200 {name}; }} }}");
        for workers in [1, 3, 8] {
            let mut server = Server::builder(&text(workers, "first")).driver(driver).allow("blocks").start();
            server.reload(&text(workers, "second"));
            wait_for("second", || (server.get("/").text() == "second").then_some(()));
            let order = server.dir().read("order");
            for name in ["first", "second"] {
                let init = order.rfind(&format!("{name} init")).expect("it ran");
                let worker = order.find(&format!("{name} worker")).expect("it ran");
                assert!(init < worker, "{workers} workers: {order}");
                assert_eq!(order.matches(&format!("{name} worker")).count(), workers, "{order}");
            }
        }
    }

    /// `init_by_lua` of the last worker fails: nothing of the start was run by any.
    fn a_start_that_is_given_up_has_not_begun(driver) {
        let text = |name: &str| format!("worker_processes 2; events {{}}
http {{
    init_by_lua_block {{
        local file = assert(io.open('%%DIR%%/inits', 'a+'))
        file:write('x') file:flush()
        file:seek('set')
        local count = #file:read('*a')
        file:close()
        if os.rename('%%DIR%%/fail' .. count, '%%DIR%%/failed') then error('no second one') end
    }}
    init_worker_by_lua_block {{
        ngx.log(ngx.WARN, '{name} starts')
        ngx.timer.at(0, function(premature) ngx.log(ngx.WARN, '{name} timer ', premature) end)
    }}
    exit_worker_by_lua_block {{ ngx.log(ngx.WARN, '{name} exits') }}
    server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{ ngx.print('{name}') }} }} }} }}");
        let mut server = Server::builder(&text("first")).driver(driver)
            .allow("starts").allow("timer").allow("exits").allow("no second one").start();
        let path = server.dir().path().to_owned();
        let inits = || std::fs::read(path.join("inits")).map_or(0, |runs| runs.len());
        let before = inits();
        server.reload(&text("second"));
        wait_for("second", || (server.get("/").text() == "second").then_some(()));
        // Those that only try a configuration come first.
        let each = inits() - before;
        std::fs::write(path.join(format!("fail{}", inits() + each)), "").expect("a file");
        server.reload(&text("third"));
        let _ = server.error_log_line("no second one");
        wait_for("the last attempt", || path.join("failed").exists().then_some(()));
        server.reload(&text("fourth"));
        wait_for("fourth", || (server.get("/").text() == "fourth").then_some(()));
        server.quit();
        let log = server.error_log();
        assert!(!log.contains("third starts") && !log.contains("third timer") && !log.contains("third exits"), "{log}");
        assert_eq!(log.matches("fourth exits").count(), 2, "{log}");
    }

    /// A script that waits may wait for another worker's timer, or its own.
    fn what_a_start_waits_for_goes_on(driver) {
        let text = |name: &str| format!("worker_processes 3; events {{}}
http {{ lua_shared_dict seen 64k; lua_yield_everywhere on;
    init_worker_by_lua_block {{
        local seen = ngx.shared.seen
        if ngx.worker.id() == 0 then
            ngx.timer.at(0, function() seen:set('{name}', true) end)
        else
            repeat ngx.sleep(0.01) until seen:get '{name}'
            local own = require('ngx.semaphore').new()
            ngx.timer.at(0.01, function() own:post() end)
            assert(own:wait(60))
        end
    }}
    server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{ ngx.print('{name}') }} }} }} }}");
        let mut server = Server::builder(&text("first")).driver(driver).start();
        assert_eq!(server.get("/").text(), "first");
        server.reload(&text("second"));
        wait_for("second", || (server.get("/").text() == "second").then_some(()));
    }
}
