//! Lua across reloads: VMs that go and come, and the dictionaries that they share.

use weir_test::{Server, both_drivers, wait_for};

/// Counts what runs of the configuration's scripts; `name` identifies the generation in the log.
fn conf(workers: usize, name: &str) -> String {
    format!(
        "worker_processes {workers}; events {{}}
http {{ lua_shared_dict d 1m; lua_shared_dict seen 64k;
    init_by_lua_block {{ ngx.shared.seen:incr('inits', 1, 0) ngx.shared.seen:rpush('list', 'init') }}
    init_worker_by_lua_block {{ ngx.shared.seen:incr('workers', 1, 0) }}
    exit_worker_by_lua_block {{ ngx.log(ngx.NOTICE, 'exits in {name}') }}
    server {{ listen 127.0.0.1:%%PORT%%;
        location /name {{ content_by_lua_block {{ ngx.say('{name}') }} }}
        location /seen {{ content_by_lua_block {{ local seen = ngx.shared.seen
            ngx.say(seen:get('inits'), ' ', seen:llen('list'), ' ', seen:get('workers')) }} }}
        location /put {{ content_by_lua_block {{ ngx.say((ngx.shared.d:set('large', ('x'):rep(200000)))) }} }}
        location /get {{ content_by_lua_block {{ ngx.say(#(ngx.shared.d:get('large') or '')) }} }}
        location /go {{ content_by_lua_block {{ ngx.shared.seen:set('go', true) }} }}
        location /slow {{ content_by_lua_block {{
            ngx.shared.seen:set('waits', true)
            repeat ngx.sleep(0.01) until ngx.shared.seen:get('go')
            ngx.log(ngx.NOTICE, 'slow ends in {name}')
            ngx.say('{name} ', ngx.worker.exiting()) }} }}
        location /waits {{ content_by_lua_block {{ ngx.say((ngx.shared.seen:get('waits'))) }} }}
    }} }}"
    )
}

/// Waits for a response.
fn sees(server: &Server, path: &str, wanted: &str) {
    wait_for(&format!("{path}: {wanted}"), || (server.get(path).text() == wanted).then_some(()));
}

both_drivers! {
    /// Of all runs of `init_by_lua` the first one's writes count; a value of a fifth of the dictionary has room in it, and
    /// outlives the VM that stored it.
    fn dictionaries_live_through_reloads(driver) {
        let mut server = Server::builder(&conf(3, "old")).driver(driver).start();
        sees(&server, "/seen", "1 1 3\n");
        assert_eq!(server.get("/put").text(), "true\n");
        assert_eq!(server.get("/get").text(), "200000\n");
        server.reload(&conf(3, "new"));
        sees(&server, "/name", "new\n");
        // Three workers have come beside three, and one `init_by_lua` beside one.
        sees(&server, "/seen", "2 2 6\n");
        assert_eq!(server.get("/get").text(), "200000\n");
    }

    /// The old VM is notified that it ends, serves what it has begun, and ends behind that; the new one has begun long
    /// before.
    fn the_old_vm_ends_behind_its_last_exchange(driver) {
        let mut server = Server::builder(&conf(1, "old")).driver(driver).start();
        let mut slow = server.client();
        slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        sees(&server, "/waits", "true\n");
        server.reload(&conf(1, "new"));
        sees(&server, "/name", "new\n");
        sees(&server, "/seen", "2 2 2\n");
        assert!(!server.error_log().contains("exits in old"), "{}", server.error_log());
        assert_eq!(server.get("/go").status, 200);
        assert_eq!(slow.response().text(), "old true\n");
        let _ = server.error_log_line("slow ends in old");
        let _ = server.error_log_line("exits in old");
        assert!(!server.error_log().contains("exits in new"), "{}", server.error_log());
    }

    /// `init_by_lua` of a new configuration takes a loop's time: workers run it by turns, so that the others serve.
    fn workers_run_init_by_turns(driver) {
        let text = |name: &str| format!("worker_processes 3; events {{}}
http {{
    init_by_lua_block {{
        local file = assert(io.open('%%DIR%%/inits', 'a+'))
        file:write('x') file:flush()
        file:seek('set')
        local hold = '%%DIR%%/hold' .. #file:read('*a')
        file:close()
        while os.rename(hold, hold) do os.execute('sleep 0.01') end
    }}
    server {{ listen 127.0.0.1:%%PORT%%;
        location /name {{ content_by_lua_block {{ ngx.say('{name} ', ngx.worker.id()) }} }}
    }} }}");
        let mut server = Server::builder(&text("first")).driver(driver).start();
        let path = server.dir().path().to_owned();
        let inits = || std::fs::read(path.join("inits")).map_or(0, |runs| runs.len());
        let serves = |server: &Server, name: &str| {
            wait_for(name, || server.get("/name").text().starts_with(name).then_some(()));
        };
        // A reload tries a configuration before the workers get it.
        let before = inits();
        server.reload(&text("old"));
        serves(&server, "old ");
        let tried = inits() + (inits() - before - 3);
        let holds = [1, 2, 3].map(|turn| path.join(format!("hold{}", tried + turn)));
        for hold in &holds {
            std::fs::write(hold, "").expect("a file");
        }
        server.reload(&text("new"));
        for (turn, hold) in holds.iter().enumerate() {
            wait_for("the next worker's init_by_lua", || (inits() == tried + turn + 1).then_some(()));
            let response = server.get("/name").text();
            assert!(response.starts_with("old "), "{response}");
            assert_ne!(response, format!("old {turn}\n"));
            std::fs::remove_file(hold).expect("it was there");
        }
        serves(&server, "new ");
        assert_eq!(inits(), tried + 3);
    }

    /// As a lock of lua-resty-lock's that nobody has given back: what is collected with its VM reaches dictionaries.
    fn what_is_collected_with_a_vm_reaches_dictionaries(driver) {
        let conf = |name: &str| format!("events {{}} http {{ lua_shared_dict locks 1m;
            server {{ listen 127.0.0.1:%%PORT%%;
                location /hold {{ content_by_lua_block {{
                    local ffi, locks = require 'ffi', ngx.shared.locks
                    package.loaded.held = ffi.gc(ffi.new 'char[1]', function() locks:delete 'key' locks:set('freed', true) end)
                    ngx.say((locks:add('key', true, 100)))
                }} }}
                location /is {{ content_by_lua_block {{ ngx.say('{name} ', tostring(ngx.shared.locks:get 'key'), ' ', tostring(ngx.shared.locks:get 'freed')) }} }} }} }}");
        let mut server = Server::builder(&conf("old")).driver(driver).start();
        assert_eq!(server.get("/hold").text(), "true\n");
        sees(&server, "/is", "old true nil\n");
        server.reload(&conf("new"));
        sees(&server, "/is", "new nil true\n");
    }
}
