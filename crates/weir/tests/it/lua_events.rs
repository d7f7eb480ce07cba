//! `weir.events`, and libraries that are made of it.

use weir_test::{Client, Driver, Server, both_drivers, wait_for};

/// A server of three workers; `/seen` says what scripts have put under a key.
fn serve(driver: Driver, http: &str, locations: &str) -> Server {
    let text = format!(
        "worker_processes 3;\nevents {{}}\nhttp {{ lua_shared_dict seen 1m;\n\
         init_by_lua_block {{ seen = ngx.shared.seen }}\n{http}\n\
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location /seen {{ content_by_lua_block {{ ngx.print(tostring(seen:get(ngx.var.arg_key))) }} }}\n\
         {locations}\n}} }}\n"
    );
    Server::builder(&text).driver(driver).allow("a handler failed").start()
}

fn content(path: &str, script: &str) -> String {
    format!("location {path} {{ content_by_lua_block {{ {script} }} }}\n")
}

/// Waits until `key` is `wanted`.
fn sees(server: &Server, key: &str, wanted: &str) {
    let said = std::cell::RefCell::default();
    wait_for(&format!("{key} = {wanted}"), || {
        *said.borrow_mut() = server.client().get(&format!("/seen?key={key}")).text();
        (*said.borrow() == wanted).then_some(())
    });
}

fn get(server: &Server, path: &str) -> String {
    let answer = server.client().get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// Counts what each worker hears, and has the last.
const COUNTING: &str = "init_worker_by_lua_block {
    local id = ngx.worker.id()
    weir.events.subscribe('shop', 'sold', function(data, event, source, wid)
        seen:set('last' .. id, table.concat({ source, event, data.name, #data.list, wid }, ' '))
        seen:incr('heard', 1, 0)
        seen:incr('heard' .. id, 1, 0)
    end)
    weir.events.subscribe('shop', '*', function(data, event) seen:incr('shop ' .. event, 1, 0) end)
    weir.events.subscribe('*', '*', function() seen:incr('all', 1, 0) end)
    weir.events.subscribe('shop', 'wrong', function() error('oops') end)
 }";

both_drivers! {
    fn all_workers_hear_what_one_says(driver) {
        let server = serve(driver, COUNTING, &[
            content("/say", "ngx.print(ngx.worker.id())
                assert(weir.events.publish('all', 'shop', 'sold', { name = 'ann', list = { 1, 2, 3 } }))"),
            content("/wrong", "assert(weir.events.publish('all', 'shop', 'wrong'))"),
        ].concat());
        let sender = get(&server, "/say");
        for id in 0..3 {
            sees(&server, &format!("last{id}"), &format!("shop sold ann 3 {sender}"));
        }
        sees(&server, "heard", "3");
        sees(&server, "all", "3");
        assert_eq!(get(&server, "/wrong"), "");
        // What comes after one that fails is heard.
        sees(&server, "all", "6");
        let line = server.error_log_line("a handler failed");
        assert!(line.contains("source=shop, event=wrong") && line.contains("oops"), "{line}");
        assert_eq!(get(&server, "/say").len(), 1);
        sees(&server, "heard", "6");
    }

    fn events_are_for_one_worker_too(driver) {
        let server = serve(driver, COUNTING, &[
            content("/to", "assert(weir.events.publish(tonumber(ngx.var.arg_id), 'shop', 'sold', { name = 'x', list = {} }))"),
            content("/current", "ngx.print(ngx.worker.id()) assert(weir.events.publish('current', 'shop', 'sold', { name = 'me', list = {} }))"),
            content("/once", "for _ = 1, 5 do assert(weir.events.publish('key', 'shop', 'sold', { name = 'x', list = {} }, 3600)) end
                assert(weir.events.publish('all', 'shop', 'end'))"),
            content("/bad", "local function why(...) return (tostring(select(2, ...)):gsub('^.-: ', '')) end
                ngx.say(why(weir.events.publish('all', 'shop', 'sold', function() end)))
                ngx.say(why(pcall(weir.events.publish, '', 'shop', 'sold')))
                ngx.say(why(pcall(weir.events.publish, 'all', nil, 'sold')))
                ngx.say(why(pcall(weir.events.subscribe, 'shop', 'sold', 1)))"),
        ].concat());
        for id in [2, 0, 2] {
            assert_eq!(get(&server, &format!("/to?id={id}")), "");
        }
        sees(&server, "heard2", "2");
        sees(&server, "heard0", "1");
        sees(&server, "heard1", "nil");
        let own = get(&server, "/current");
        sees(&server, &format!("last{own}"), &format!("shop sold me 0 {own}"));
        sees(&server, "heard", "4");
        assert_eq!(get(&server, "/once"), "");
        // Three say the end, so the receiver of the one has heard it before.
        sees(&server, "all", "8");
        sees(&server, "heard", "5");
        assert_eq!(get(&server, "/bad"), "unsupported Lua type: LUA_TFUNCTION in the data\ntarget is required\n\
            source is required\nfunction expected, got number\n");
    }

    fn handlers_may_wait_and_are_called_in_order(driver) {
        let server = serve(driver, "init_worker_by_lua_block {
                weir.events.subscribe('n', 'n', function(number)
                    ngx.sleep(0.001)
                    local key = 'list' .. ngx.worker.id()
                    seen:set(key, (seen:get(key) or '') .. number .. ' ')
                end)
             }",
            &content("/say", "for at = 1, 9 do weir.events.publish('all', 'n', 'n', at) end"));
        assert_eq!(get(&server, "/say"), "");
        for id in 0..3 {
            sees(&server, &format!("list{id}"), "1 2 3 4 5 6 7 8 9 ");
        }
    }

    fn who_unsubscribes_hears_no_more(driver) {
        let server = serve(driver, "init_worker_by_lua_block {
                local id
                id = weir.events.subscribe('a', 'b', function()
                    seen:incr('first', 1, 0)
                    seen:set('gone', tostring(weir.events.unsubscribe(id)) .. tostring(weir.events.unsubscribe(id)))
                end)
                weir.events.subscribe('a', 'b', function() seen:incr('second', 1, 0) end)
             }",
            &content("/say", "for _ = 1, 3 do weir.events.publish('all', 'a', 'b') end"));
        assert_eq!(get(&server, "/say"), "");
        sees(&server, "second", "9");
        sees(&server, "first", "3");
        sees(&server, "gone", "truefalse");
    }

    fn libraries_for_events_need_neither_dictionary_nor_broker(driver) {
        let server = serve(driver, "init_worker_by_lua_block {
                local we = require 'resty.worker.events'
                seen:incr('started', 0, 0)
                we.register(function() seen:incr('started', 1) end, we.events._source, we.events.started)
                local list = we.event_list('shop', 'sold')
                local function sold(data, event, source, pid)
                    seen:set('pid', pid)
                    seen:incr('sold ' .. event .. source, data.count, 0)
                    seen:incr('sold', data.count, 0)
                end
                we.register(sold, list._source, list.sold)
                we.register_weak(function() seen:incr('weak', 1, 0) end, 'shop', 'sold')
                kept = function() seen:incr('kept', 1, 0) end
                we.register_weak(kept, 'shop')
                collectgarbage() collectgarbage()
                assert(we.configure { shm = 'seen', interval = 1 } and we.configured())
                forget = function() return we.unregister(sold, 'shop', 'sold'), we.unregister(sold, 'shop', 'sold') end

                local ev = require('resty.events').new { listening = 'unix:none.sock', unique_timeout = 3600 }
                assert(ev:init_worker() and ev:is_ready())
                ev:subscribe('shop', '*', function(data, event, source, wid) seen:incr('ev ', 1, 0) seen:incr('ev', data, 0) end)
                publish = function(...) return ev:publish(...) end

                local compat = require 'resty.events.compat'
                assert(compat.configure { listening = 'unix:other.sock' })
                compat.register(function(data) seen:incr('compat', data, 0) end, 'shop', 'sold')
             }",
            &[
                content("/post", "local we = require 'resty.worker.events'
                    ngx.header['X-Pid'] = ngx.worker.pid()
                    ngx.say(we.post('shop', 'sold', { count = 1 }), ' ', we.poll())
                    ngx.say(we.post_local('shop', 'other', { count = 100 }))
                    ngx.say(select(2, we.post('', 'sold')), ' ', select(2, we.post('shop')))
                    ngx.say(select(2, we.configure { timeout = 0 }))"),
                content("/one", "local we = require 'resty.worker.events'
                    for _ = 1, 3 do ngx.print(tostring(we.post('shop', 'sold', { count = 10 }, 'the one'))) end"),
                content("/publish", "ngx.say(publish('all', 'shop', 'sold', 1), publish('u', 'shop', 'sold', 10), publish('u', 'shop', 'sold', 10))"),
                content("/compat", "local compat = require 'resty.events.compat'
                    ngx.say(compat.post('shop', 'sold', 2), compat.post_local('shop', 'sold', 100))"),
                content("/forget", "local first, second = forget() ngx.print(tostring(first), tostring(second))"),
            ].concat());
        wait_for("all have started", || {
            let heard: u32 = server.client().get("/seen?key=started").text().parse().ok()?;
            (heard >= 3).then_some(()) // the last one is heard by all, the first by those that were there
        });
        let posted = server.client().get("/post");
        assert_eq!(posted.text(), "true done\ntrue\nsource is required event is required\n\"timeout\" must be greater than 0\n");
        sees(&server, "sold", "3");
        sees(&server, "kept", "4");
        sees(&server, "weak", "nil");
        sees(&server, "pid", posted.field("X-Pid").expect("the number of the worker that has posted"));
        assert_eq!(get(&server, "/one"), "truetruetrue");
        sees(&server, "sold", "13");
        assert_eq!(get(&server, "/publish"), "truetruetrue\n");
        sees(&server, "ev", "13");
        assert_eq!(get(&server, "/compat"), "donedone\n");
        sees(&server, "compat", "106");
        assert_eq!(get(&server, "/forget"), "truefalse");
    }
}

/// Libraries tell workers apart by their numbers: mlcache does not hear its own events, healthchecks are made by one.
#[test]
fn workers_have_numbers_of_their_own() {
    let conf = "worker_processes 3;\nevents {}\nhttp { lua_shared_dict seen 1m;
        init_worker_by_lua_block {
            local pid = ngx.worker.pid()
            assert(io.open('/proc/' .. pid .. '/stat'))
            ngx.shared.seen:rpush('pids', pid)
        }
        server { listen 127.0.0.1:%%PORT%%; location / { content_by_lua_block {
            local distinct, started, listed = {}, 0, 0
            for _ = 1, ngx.shared.seen:llen('pids') do
                local pid = ngx.shared.seen:lpop('pids')
                ngx.shared.seen:rpush('pids', pid)
                if not distinct[pid] then started, distinct[pid] = started + 1, true end
            end
            for _, pid in ipairs(ngx.worker.pids()) do if distinct[pid] then listed = listed + 1 end end
            require 'ffi'.cdef 'int kill(int, int);'
            ngx.say(started, ' ', listed, ' ', distinct[ngx.worker.pid()], ' ', require 'ffi'.C.kill(ngx.worker.pid(), 0))
        } } } }";
    for master in ["on", "off"] {
        let server = Server::start(&format!("master_process {master};\n{conf}"));
        wait_for("all have started, each with its number", || {
            (server.client().get("/").text() == "3 3 true 0\n").then_some(())
        });
    }
}

/// nginx's workers are other processes after a reload: libraries and people wait for other numbers, and a number that has
/// gone is nothing's. A configuration that is refused takes none away.
#[test]
fn a_reload_gives_workers_other_numbers() {
    let conf = |init: &str| {
        let pids = "local pids, own = ngx.worker.pids(), ''
            require 'ffi'.cdef 'int kill(int, int);'
            for _, pid in ipairs(pids) do
                assert(require 'ffi'.C.kill(pid, 0) == 0)
                if pid == ngx.worker.pid() then own = ' own' end
            end
            ngx.print(table.concat(pids, ' '), own)";
        format!(
            "worker_processes 2; master_process on; thread_pool pool threads=1;
             stream {{ server {{ listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {{ {pids} }} }} }}
             http {{ {init} lua_package_path '%%DIR%%/?.lua;;';
                server {{ listen 127.0.0.1:%%PORT%%;
                    location / {{ content_by_lua_block {{ {pids} }} }}
                    location /thread {{ content_by_lua_block {{
                        ngx.print(select(2, ngx.run_worker_thread('pool', 'x', 'f'))) }} }}
                    location /gone {{ content_by_lua_block {{ require 'ffi'.cdef 'int kill(int, int);'
                        ngx.print(require 'ffi'.C.kill(tonumber(ngx.var.arg_pid), 0)) }} }} }} }}"
        )
    };
    let module = "return { f = function() return 'thread' end }";
    let mut server = Server::builder(&conf("")).file("x.lua", module).allow("on purpose").start();
    let numbers = |text: &str| {
        // Requests that are with the configuration before see the numbers of the one in force.
        let text = text.strip_suffix(" own")?;
        Some(text.split(' ').map(|pid| pid.parse().expect("a number")).collect::<Vec<u32>>())
    };
    let mut before = wait_for("both have started", || {
        numbers(&server.get("/").text()).filter(|numbers| numbers.len() == 2)
    });
    for _ in 0..2 {
        server.reload(&conf(""));
        let after = wait_for("all numbers are others", || {
            let after = numbers(&server.get("/").text())?;
            (after.len() == 2 && !after.iter().any(|pid| before.contains(pid))).then_some(after)
        });
        let session = Client::connect(server.addr(1)).rest().0;
        assert_eq!(numbers(&String::from_utf8_lossy(&session)).as_ref(), Some(&after));
        assert_eq!(server.get("/thread").text(), "thread");
        assert_eq!(numbers(&server.get("/").text()).as_ref(), Some(&after));
        server.reload(&conf("init_by_lua_block { error 'on purpose' }"));
        let _ = server.error_log_line("on purpose");
        wait_for("the numbers of the configuration in force", || {
            (numbers(&server.get("/").text()).as_ref() == Some(&after)).then_some(())
        });
        before = after;
    }
    server.reload(&conf(""));
    wait_for("its number has gone", || {
        (server.get(&format!("/gone?pid={}", before[0])).text() == "-1").then_some(())
    });
}

/// A reload's scripts hear, those before do not any more, and are notified before.
#[test]
fn events_follow_reloads() {
    let conf = |name: &str| {
        format!(
            "worker_processes 2;\nevents {{}}\nhttp {{ lua_shared_dict seen 1m;
             init_worker_by_lua_block {{
                local we = require 'resty.worker.events'
                we.register(function() ngx.log(ngx.WARN, '{name} hears the end') end, we.events._source, we.events.stopping)
                assert(we.configure {{}})
                weir.events.subscribe('a', 'b', function() ngx.shared.seen:incr('{name}', 1, 0) end)
             }}
             server {{ listen 127.0.0.1:%%PORT%%;
             location /seen {{ content_by_lua_block {{ ngx.print(tostring(ngx.shared.seen:get(ngx.var.arg_key))) }} }}
             location /say {{ content_by_lua_block {{ weir.events.publish('all', 'a', 'b') }} }} }} }}"
        )
    };
    let mut server = Server::start(&conf("old"));
    assert_eq!(get(&server, "/say"), "");
    sees(&server, "old", "2");
    server.reload(&conf("new"));
    let _ = server.error_log_line("old hears the end");
    let before: u32 = get(&server, "/seen?key=old").parse().expect("a number");
    assert!(before == 2, "{before}");
    assert_eq!(get(&server, "/say"), "");
    sees(&server, "new", "2");
    server.quit();
    assert!(server.error_log().contains("new hears the end"), "{}", server.error_log());
}
