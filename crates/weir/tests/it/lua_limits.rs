//! What a script can't do: stop the server, take all of its memory, or any of its stack.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use weir_test::{Client, Driver, Server, both_drivers, wait_for};

/// A server with `http` and `locations`, and one that says "fine".
fn conf(http: &str, locations: &str) -> String {
    format!(
        "events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location /fine {{ content_by_lua_block {{ ngx.say('fine') }} }}\n{locations}\n}} }}\n"
    )
}

fn serve(http: &str, locations: &str) -> Server {
    Server::builder(&conf(http, locations)).start()
}

/// The location `path` with a content script.
fn content(path: &str, script: &str) -> String {
    format!("location {path} {{ content_by_lua_block {{ {script} }} }}\n")
}

fn is_fine(server: &Server) {
    assert_eq!(server.client().get("/fine").text(), "fine\n");
}

/// Scripts that fail, by their paths, and words of what is logged then.
const WRONG: &[(&str, &str, &str)] = &[
    ("/syntax", "local = 1", "failed to load inlined Lua code: content_by_lua(nginx.conf:"),
    ("/runtime", "local a = nil; a.b = 1", "runtime error: content_by_lua(nginx.conf:"),
    ("/object", "error({})", "lua entry thread aborted: runtime error: unknown reason"),
    (
        "/thread",
        "local t = ngx.thread.spawn(function() ngx.sleep(0.001) error('in a thread') end)
                 error(select(2, ngx.thread.wait(t)))",
        "lua user thread aborted: runtime error: content_by_lua(nginx.conf:",
    ),
    ("/memory", "ngx.say(#('x'):rep(1e9))", "memory allocation error: not enough memory"),
    ("/loop", "while true do end", "lua_cpu_limit of 50ms exceeded"),
    ("/stack", "local function f(s) return (s:gsub('.', f)) end f('x')", ": C stack overflow"),
    ("/deep", "local function f() return 1 + f() end f()", ": stack overflow"),
    ("/yield", "('x'):gsub('.', function() ngx.sleep(0.001) end)", "attempt to yield across C-call boundary"),
];

both_drivers! {
    fn loops_end(driver) {
        let catches = "local function loop() while true do end end ";
        let scripts = [
            ("/empty", "while true do end".to_owned()),
            ("/counts", "local n = 0 for i = 1, 1e15 do n = n + i % 7 end ngx.say(n)".to_owned()),
            ("/calls", "local function f() end while true do f() end".to_owned()),
            ("/interpreted", "jit.off(true, true) while true do end".to_owned()),
            ("/caught", format!("{catches} while true do pcall(loop) end")),
            ("/handled", format!("{catches} while true do xpcall(loop, function() while true do end end) end")),
            ("/resumed", format!("{catches} while true do coroutine.resume(coroutine.create(loop)) end")),
            ("/wrapped", format!("{catches} while true do pcall(coroutine.wrap(loop)) end")),
            ("/spawned", format!("{catches} while true do ngx.thread.wait(ngx.thread.spawn(loop)) end")),
            ("/yields", "while true do coroutine.yield() end".to_owned()),
            ("/find", "ngx.say(string.find(('a'):rep(60), ('a?'):rep(60) .. ('a'):rep(60) .. 'b'))".to_owned()),
            ("/gsub", "ngx.say((('a'):rep(1000000):gsub('.-b', '')))".to_owned()),
            ("/gmatch", "for word in ('a'):rep(1000000):gmatch('.-b') do ngx.say(word) end".to_owned()),
            ("/sort", "while true do local t = {} for i = 1, 1e5 do t[i] = (i * 7919) % 100003 end table.sort(t) end".to_owned()),
            ("/rep", "while true do local s = ('ab'):rep(2e6) end".to_owned()),
            ("/concat", "local t = {} for i = 1, 1e4 do t[i] = 'x' end while true do table.concat(t, ',') end".to_owned()),
        ];
        let locations: String = scripts.iter().map(|(path, script)| content(path, script)).collect();
        let server = serve("lua_cpu_limit 50ms;", &locations);
        for (path, _) in &scripts {
            let response = server.client().get(path);
            assert_eq!(response.status, 500, "{path}: {response}");
            let _ = server.error_log_line(&format!("request: \"GET {path} "));
            let log = server.error_log();
            assert_eq!(log.matches("lua entry thread aborted: runtime error: content_by_lua(nginx.conf:").count(),
                log.matches("lua entry thread aborted").count(), "{path}: {log}");
            is_fine(&server);
        }
        let line = server.error_log_line("lua_cpu_limit of 50ms exceeded");
        assert!(line.contains("content_by_lua(nginx.conf:"), "{line}");
    }

    fn loops_end_where_scripts_cannot_wait(driver) {
        let server = serve(
            "lua_cpu_limit 50ms; init_by_lua_block { local n = 0 for i = 1, 3e7 do n = n + i % 3 end }",
            "location /head { header_filter_by_lua_block { while true do end } return 200 x; }
             location /set { set_by_lua_block $a { while true do end } return 200 x; }
             location /log { log_by_lua_block { while true do end } return 200 x; }
             location /waits { content_by_lua_block { for i = 1, 20 do ngx.sleep(0.01) end ngx.say('waited') } }",
        );
        assert_eq!(server.client().get("/head").status, 500);
        assert_eq!(server.client().get("/set").status, 500);
        assert_eq!(server.client().get("/log").text(), "x");
        assert_eq!(server.client().get("/waits").text(), "waited\n");
        for phase in ["header_filter", "set", "log"] {
            let line = server.error_log_line(&format!("failed to run {phase}_by_lua*: {phase}_by_lua(nginx.conf:"));
            assert!(line.contains("lua_cpu_limit of 50ms exceeded"), "{line}");
        }
        is_fine(&server);
    }

    /// PCRE2's limit, which OpenResty leaves as it is: a match of some three million steps is finished.
    fn a_match_has_ten_million_steps(driver) {
        let server = Server::start(&conf("", &content("/match", "
            for _, n in ipairs { 20, 28, 60 } do
                local found, _, err = ngx.re.find(('a'):rep(n) .. 'b', [[^(a|aa)+$]])
                ngx.say(n, ' ', tostring(found), ' ', err)
            end")));
        assert_eq!(server.get("/match").text(), "20 nil nil\n28 nil nil\n60 nil pcre_exec() failed: -47\n");
    }

    /// What scripts run into is counted by place, and without that in `/metrics`.
    fn limits_are_counted(driver) {
        let scripts = [
            content("/loop", "while true do end"),
            content("/memory", "ngx.say(#('x'):rep(1e9))"),
            content("/many", "local kept = {} for i = 1, 100 do kept[i] = coroutine.create(print) end"),
            content("/later", "for i = 1, 3 do ngx.timer.at(3600, print) end"),
            content("/match", "ngx.re.find(('a'):rep(100) .. 'b', [[^(a|aa)+$]])"),
            content("/global", "oops = 1"),
            content("/blocks", "os.rename('/nothing/a', '/nothing/b')"),
        ];
        let conf = conf(
            "lua_shared_dict seen 1m; lua_cpu_limit 50ms; lua_memory_limit 32m; lua_max_coroutines 10;
             lua_max_pending_timers 2; lua_regex_match_limit 100;",
            &scripts.concat(),
        );
        let conf = conf.replace("%%PORT%%", "%%PORT_0%%");
        let server = Server::builder(&format!("worker_processes 1; admin 127.0.0.1:%%PORT_1%%; {conf}")).start();
        for path in ["/loop", "/memory", "/many", "/later", "/match", "/global", "/blocks"] {
            let _ = server.client().get(path);
        }
        let door = server.addr(1);
        wait_for("admin listener", || std::net::TcpStream::connect(door).is_ok().then_some(()));
        let metrics = Client::connect(door).get("/metrics").text();
        let count = |of: &str| -> u64 {
            let behind = metrics.split_once(of).unwrap_or_else(|| panic!("{of}: {metrics}")).1;
            behind.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
        };
        for (kind, times) in [
            ("lua_cpu_limit", 1),
            ("lua_max_coroutines", 1),
            ("lua_max_pending_timers", 1),
            ("lua_regex_match_limit", 1),
            ("global", 1),
            ("os.rename", 1),
        ] {
            assert_eq!(count(&format!("weir_lua_traps_total{{kind=\"{kind}\"}}")), times, "{kind}: {metrics}");
        }
        // LuaJIT may ask once more with the rest of its garbage collected.
        assert!(count("weir_lua_traps_total{kind=\"lua_memory_limit\"}") >= 1);
        assert!(count("weir_lua_memory_bytes{worker=\"0\"}") > 100_000);
        assert_eq!(count("weir_dict_capacity_bytes{dict=\"seen\"}"), 1 << 20);
        let reported = Client::connect(door).get("/lua/traps").text();
        assert!(reported.lines().any(|line| line.contains("lua_cpu_limit") && line.contains("content_by_lua(nginx.conf:")), "{reported}");
    }

    /// A plain search takes the sum of both lengths, not their product: this one would take hours.
    fn long_texts_are_found(driver) {
        let server = serve("", &content("/", "
            local s = ('a'):rep(2000000)
            ngx.say(s:find(('a'):rep(1000000) .. 'b', 1, true), ' ', (s .. 'b'):find(('a'):rep(1000) .. 'b', 1, true))
            ngx.say(('ab'):rep(3), #('x'):rep(3000000), #('xyz'):rep(100000), ('x'):rep(0), ('x'):rep(1), table.concat({1, 2, 'x'}, '-'))"));
        assert_eq!(server.client().get("/").text(), "nil 19990012000001\nababab3000000300000x1-2-x\n");
    }

    fn memory_has_a_limit(driver) {
        let server = serve("lua_memory_limit 32m;", &[
            content("/table", "local t = {} for i = 1, 1e9 do t[i] = {i} end"),
            content("/text", "local s = 'x' while true do s = s .. s end"),
            content("/rep", "ngx.say(#('x'):rep(1e9))"),
            content("/caught", "local kept = {} local ok, err = pcall(function() for i = 1, 1e9 do kept[i] = ('x'):rep(1e5) .. i end end)
                                kept = nil collectgarbage() ngx.say(ok, ' ', err)"),
            content("/pushed", "ngx.req.read_body() local kept = {} for i = 1, 1e9 do kept[i] = ngx.req.get_body_data() .. i end"),
            content("/garbage", "local n = 0 for i = 1, 200 do n = n + #(('x'):rep(1e5) .. i) end ngx.say(n)"),
            "location /filter { header_filter_by_lua_block { local t = {} for i = 1, 1e9 do t[i] = {i} end } return 200 x; }\n".to_owned(),
        ].concat());
        for path in ["/table", "/text", "/rep", "/filter"] {
            assert_eq!(server.client().get(path).status, 500, "{path}");
            is_fine(&server);
        }
        let body = "x".repeat(300_000);
        let length = body.len();
        let post = format!("POST /pushed HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        assert_eq!(server.client().request(post).status, 500);
        assert_eq!(server.client().get("/caught").text(), "false not enough memory\n");
        let mut client = server.client();
        for _ in 0..20 {
            assert_eq!(client.get("/garbage").text(), "20000492\n", "garbage is no reason to fail");
        }
        let _ = server.error_log_line("lua entry thread aborted: memory allocation error: not enough memory");
    }

    fn stacks_and_coroutines_have_limits(driver) {
        let server = serve("lua_max_coroutines 100;", &[
            content("/gsub", "local function f(s) return (s:gsub('.', f)) end ngx.say(pcall(f, 'x'))"),
            content("/meta", "local m = {} m.__index = function(t, k) return (('x'):gsub('.', setmetatable({}, m))) end
                              ngx.say(pcall(string.gsub, 'x', '.', setmetatable({}, m)))"),
            content("/sort", "local function f() table.sort({1, 2}, f) end ngx.say(pcall(f))"),
            content("/lua", "local function f() return 1 + f() end ngx.say(pcall(f))"),
            content("/nested", "local t = {} for i = 1, 1e5 do t = {t} end ngx.say(pcall(ngx.say, t))"),
            content("/cycle", "local t = {} t[1] = t ngx.say(pcall(ngx.say, t))"),
            content("/json", "local t = {} for i = 1, 1e5 do t = {t} end ngx.say(pcall(require('cjson').encode, t))
                              ngx.say(pcall(require('cjson').decode, ('['):rep(1e6)))"),
            content("/many", "local kept = {} for i = 1, 1e6 do kept[i] = coroutine.create(function() end) end"),
            content("/threads", "for i = 1, 1e6 do ngx.thread.spawn(function() ngx.sleep(60) end) end"),
            content("/few", "for i = 1, 150 do local t = ngx.thread.spawn(function() ngx.sleep(0) end) ngx.thread.wait(t)
                             coroutine.wrap(function() end)() end ngx.say('all')"),
            content("/old", "local a = coroutine.create(function() end) coroutine.resume(a)
                             local b, c = coroutine.create(print), coroutine.create(print) ngx.say(a ~= b and a ~= c, coroutine.status(a))"),
            "location /wrap { header_filter_by_lua_block {
                 local function f() local ok, err = pcall(coroutine.wrap(f)) error(err, 0) end ngx.header.x_wrap = select(2, pcall(f))
                 local function g() local ok, err = coroutine.resume(coroutine.create(g)) error(err, 0) end
                 ngx.header.x_resume = select(2, pcall(g)) } return 200 x; }\n".to_owned(),
        ].concat());
        let says = |path: &str| server.client().get(path).text();
        for path in ["/gsub", "/meta"] {
            assert!(says(path).contains("C stack overflow"), "{}", says(path));
        }
        for path in ["/sort", "/lua"] {
            assert!(says(path).contains("stack overflow"), "{}", says(path));
        }
        assert!(says("/nested").contains("nested too deep"), "{}", says("/nested"));
        assert!(says("/cycle").contains("nested too deep"), "{}", says("/cycle"));
        assert!(says("/json").contains("excessively nested") || says("/json").contains("too many nested"), "{}", says("/json"));
        for path in ["/many", "/threads"] {
            assert_eq!(server.client().get(path).status, 500, "{path}");
        }
        let line = server.error_log_line("lua_max_coroutines of 100 exceeded");
        assert!(line.contains("content_by_lua(nginx.conf:"), "{line}");
        assert_eq!(says("/few"), "all\n");
        assert_eq!(says("/old"), "truedead\n");
        let head = server.client().get("/wrap");
        assert!(head.field("x-wrap").is_some_and(|said| said.contains("stack overflow")), "{head}");
        assert!(head.field("x-resume").is_some_and(|said| said.contains("stack overflow")), "{head}");
        is_fine(&server);
    }

    /// Each error ends its own request, with its words in the log, and none of the others.
    fn errors_hurt_nobody_else(driver) {
        let mut locations: String = WRONG.iter().map(|(path, script, _)| content(path, script)).collect();
        locations.push_str("location /nowhere { header_filter_by_lua_block { ngx.sleep(0) } return 200 x; }\n");
        let server = serve("lua_cpu_limit 50ms; lua_memory_limit 24m;", &locations);
        let over = AtomicBool::new(false);
        let served = thread::scope(|scope| {
            let load: Vec<_> = (0..3).map(|_| scope.spawn(|| {
                let (mut client, mut served) = (server.client(), 0);
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/fine").text(), "fine\n");
                    served += 1;
                }
                served
            })).collect();
            for _ in 0..3 {
                for (path, _, _) in WRONG {
                    assert_eq!(server.client().get(path).status, 500, "{path}");
                }
                assert_eq!(server.client().get("/nowhere").status, 500);
            }
            over.store(true, Ordering::Relaxed);
            load.into_iter().map(|load| load.join().expect("served")).sum::<u32>()
        });
        assert!(served > 0);
        for (path, _, words) in WRONG {
            let lines = || {
                let log = server.error_log();
                let messages = log.split(" [error] ");
                messages.filter(|text| text.contains(&format!("\"GET {path} ")) && text.contains(words)).count()
            };
            wait_for(path, || (lines() == 3).then_some(()));
        }
        let _ = server.error_log_line("API disabled in the context of header_filter_by_lua*");
    }

    fn errors_tell_their_line_and_request(driver) {
        let server = serve("", "location / { content_by_lua_block {
            local function inner()
                error('here')
            end
            coroutine.wrap(inner)() } }
            location /file { content_by_lua_file html/a.lua; }");
        assert_eq!(server.client().get("/").status, 500);
        let text = std::fs::read_to_string(server.dir().path().join("nginx.conf")).expect("the configuration");
        let line = text.lines().position(|line| line.contains("error('here')")).expect("the line") + 1;
        let reported = server.error_log_line("request id: ");
        assert!(reported.contains(&format!("nginx.conf:{line}, request id: ")), "{reported}");
        let log = server.error_log();
        assert!(log.contains("\ncoroutine 0:\n") && log.contains("\ncoroutine 1:\n"), "{log}");
    }

    fn traps_are_told_once(driver) {
        let server = serve("init_by_lua_block { io.open('/dev/null'):close() at_start = 1 }", &content("/trap", "
            shared = nil; shared = 1; shared = nil
            io.open('/dev/null'):close()
            ngx.say(os.rename('', ''))"));
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(client.get("/trap").status, 200);
        }
        for words in ["writing a global Lua variable ('shared')", ": io.open blocks the worker", ": os.rename blocks the worker"] {
            let _ = server.error_log_line(words);
            assert_eq!(server.error_log().matches(words).count(), 1, "{words}");
        }
        assert!(!server.error_log().contains("at_start"));
    }
}

/// The allocation that fails is one of the process.
static ONE: Mutex<()> = Mutex::new(());

both_drivers! {
    /// Each allocation of a request in turn finds no memory: that request may fail, the server and the next one don't.
    fn each_allocation_may_fail(driver) {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let scripts = [
            ("/content", "content_by_lua_block { local t = {} for i = 1, 20 do t[i] = {i, tostring(i) .. 'x'} end
                local f = function(a) return function() return a .. #t end end ngx.say(f(ngx.var.uri)(), table.concat({1, 2, 'y'})) }"),
            ("/threads", "content_by_lua_block { local function f(n) ngx.sleep(0) coroutine.wrap(function() coroutine.yield({n}) end)() return n .. 't' end
                local a, b = ngx.thread.spawn(f, 1), ngx.thread.spawn(f, 2) ngx.say(ngx.thread.wait(a)) ngx.say(ngx.thread.wait(b)) }"),
            ("/sub", "content_by_lua_block { local r = ngx.location.capture('/inner', {args = {a = 1}}) ngx.say(r.status, r.body, r.header.x_a) }"),
            ("/api", "rewrite_by_lua_block { ngx.ctx.a = {} ngx.req.set_header('X', {'1', '2'}) } content_by_lua_block {
                local h = ngx.req.get_headers() local a = ngx.req.get_uri_args() ngx.header.x_a = {'1', h.x[2]}
                ngx.shared.d:set('k', 'v' .. a.q) ngx.shared.d:rpush('l', 'x') ngx.say(ngx.shared.d:get('k'), #ngx.shared.d:get_keys(), ngx.ctx.a ~= nil)
                local m = ngx.re.match('abc', '(b)(c)', 'o') ngx.say(m[2], (ngx.re.gsub('aXbX', 'X', '$0-')))
                local j = require 'cjson' ngx.say(j.encode(j.decode('{\"a\":[1,2,{\"b\":null}]}')), ngx.encode_base64('x'), ngx.md5('y')) }"),
            ("/filters", "set_by_lua_block $s { return ngx.var.uri .. #{1, 2} } access_by_lua_block { local t = {ngx.now()} ngx.ctx.t = t }
                header_filter_by_lua_block { ngx.header.x_a = 'a' .. #ngx.resp.get_headers() ngx.header.content_length = nil }
                body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() .. tostring(ngx.arg[2]) } log_by_lua_block { local t = {ngx.var.status .. 'x'} }
                return 200 $s;"),
            ("/pcall", "content_by_lua_block { for i = 1, 5 do pcall(function() local t = {('x'):rep(i)} error(t) end) end
                ngx.say(pcall(error, {})) }"),
        ];
        let mut locations: String = scripts.iter().map(|(path, body)| format!("location {path} {{ {body} }}\n")).collect();
        locations.push_str("location /inner { content_by_lua_block { ngx.header.x_a = 'h' ngx.print(ngx.var.args, {1, {2}}) } }\n");
        let text = conf("error_log logs/error.log; lua_memory_limit 256m; lua_shared_dict d 1m;", &locations).replace("%%PORT%%", "0");
        let directory = weir_test::TempDir::new();
        std::fs::create_dir_all(directory.path().join("logs")).expect("a folder");
        let driver = match Driver::current() {
            Some(Driver::Epoll) => weir::DriverChoice::Epoll,
            _ => weir::DriverChoice::IoUring,
        };
        let server = weir::Server::builder().conf(text).prefix(directory.path()).driver(driver).workers(1).start().expect("starts");
        let address = server.addresses()[0].to_string().parse().expect("an address");
        for (path, _) in &scripts {
            let failed = fail_each(address, path);
            assert!(failed > 0, "{path}: no allocation failed");
        }
        server.stop();
    }
}

/// How many requests failed until one did not come to the allocation that would have failed.
fn fail_each(address: std::net::SocketAddr, path: &str) -> usize {
    let (mut failed, path) = (0, format!("{path}?q=1"));
    let expected = Client::connect(address).get(&path).text();
    for number in 1..3000 {
        weir_lua::fuzzed::fail_allocation(number);
        let mut client = Client::connect(address);
        let sent = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).try_response();
        let left = weir_lua::fuzzed::allocations_left();
        weir_lua::fuzzed::fail_allocation(0);
        let well = sent.as_ref().is_ok_and(|response| response.status == 200);
        assert!(
            well || sent.as_ref().map_or(true, |response| response.status == 500),
            "{path} {number}: {sent:?}"
        );
        failed += usize::from(!sent.as_ref().is_ok_and(|response| response.text() == expected));
        assert_eq!(
            Client::connect(address).get("/fine").text(),
            "fine\n",
            "behind {path}, allocation {number}"
        );
        if left > 0 {
            assert!(well, "{path}: {sent:?}");
            return failed;
        }
    }
    panic!("{path} allocates without end");
}
