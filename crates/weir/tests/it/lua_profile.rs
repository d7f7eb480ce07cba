//! Lua in samples, stalls and traces: what the running program says about scripts, by file and line.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_test::{Server, ServerSignal, both_drivers, wait_for};

use crate::support::says;

const CONF: &str = "worker_processes 1; events { } profile_cpu 50; profile_blocked 30ms;
    http { lua_package_path '$prefix/?.lua;;'; lua_shared_dict d 1m; log_format price '$uri $lua_cpu_time $lua_alloc';
        server { listen 127.0.0.1:%%PORT%%; keepalive_requests 1000000;
        location /compiled { content_by_lua_block { ngx.say(require('work').compiled(15000)) } }
        location /interpreted { content_by_lua_block { ngx.say(require('work').interpreted(60000)) } }
        location /stuck { content_by_lua_block { ngx.say(require('work').interpreted(400000)) } }
        location /waiting { content_by_lua_block { require('work').waiting() } }
        location /making { content_by_lua_block { ngx.say(require('work').making(20000)) } }
        location /garbage { content_by_lua_block { require('work').garbage() } }
        location /timers { content_by_lua_block { require('work').timers() } }
        location /end { content_by_lua_block { ngx.shared.d:set('end', true) } }
        location /trap { content_by_lua_block { io.open('/dev/null'):close() } }
        location /priced { access_log logs/price.log price;
            content_by_lua_block { ngx.say(require('work').interpreted(30000)) } }
        location /torture { content_by_lua_block { ngx.say(require('torture').run()) } } } }";

/// The loops are in lines 3, 9 and 13, the last of which is never compiled; line 12 waits.
const WORK: &str = "local function burn(n)
    local s = 0
    for i = 1, n do s = (s * 31 + i % 7) % 1000003 end
    return s
end
local function texts(n)
    local s = 0
    jit.off(true, true)
    for i = 1, n do s = s + #tostring(i) end
    return s
end
local function nap() ngx.sleep(0.01) end
local function make(n) local t for i = 1, n do t = function() i = i + 1 return i end end return t end
return {
    compiled = function(n)
        local a = burn(100 * n)
        return a + 1
    end,
    interpreted = function(n)
        local a = texts(n)
        return a + 1
    end,
    waiting = function()
        nap()
        ngx.say('awake')
    end,
    making = function(n)
        make(n)
        ngx.shared.d:set('made', n)
        return 'made'
    end,
    timers = function()
        for i = 1, 3 do ngx.timer.at(3600 + i, function() end) end
        ngx.timer.every(7200, print)
        ngx.timer.at(0, function() repeat ngx.sleep(0.01) until ngx.shared.d:get('end') end)
    end,
    garbage = function()
        local t
        for i = 1, 20000 do t = { i } end
        ngx.say(assert(loadstring('local s = 0 for i = 1, 5000 do s = s + i end return s'))())
    end,
    held = (function() local kept = {} for i = 1, 1e5 do kept[i] = i end return function() return #kept end end)(),
}";

/// What LuaJIT does with stacks: callbacks from C, finalizers, flushed traces, errors, coroutines, code made up at run
/// time.
const TORTURE: &str = "local ffi = require 'ffi'
ffi.cdef [[void qsort(void *, size_t, size_t, int (*)(const int *, const int *));]]
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local function sorted()
    local list = ffi.new('int[40]')
    for i = 0, 39 do list[i] = (i * 7) % 40 end
    local less = ffi.cast('int (*)(const int *, const int *)', function(a, b) return a[0] - b[0] end)
    ffi.C.qsort(list, 40, 4, less)
    less:free()
    return list[0]
end
local function finalized()
    for i = 1, 20 do
        local proxy = newproxy(true)
        getmetatable(proxy).__gc = function() fib(5) end
    end
    collectgarbage('step', 100)
end
local function failing(n)
    if n == 0 then error('deep') end
    return failing(n - 1) + 1
end
local function coroutines()
    local co = coroutine.wrap(function(n) for i = 1, n do coroutine.yield(fib(8)) end end)
    for i = 1, 5 do co(6) end
end
local function loops()
    local s, t = 0, {}
    for i = 1, 3000 do s = s + i % 3 t[i % 50] = { i } end
    return s
end
local count = 0
return { run = function()
    count = count + 1
    fib(12) sorted() finalized() coroutines() loops()
    xpcall(failing, debug.traceback, 50)
    assert(loadstring('local s = 0 for i = 1, 500 do s = s + i end return s', '=made' .. count))()
    ngx.shared.d:set('k', count)
    for i = 1, 100 do ngx.shared.d:get('k') end
    ngx.re.gsub(('hello '):rep(50), 'l+', function(m) return m[0] .. fib(3) end, 'jo')
    if count % 7 == 0 then jit.flush() end
    if count % 5 == 0 then ngx.sleep(0) end
    return 'well'
end }";

/// The program's output for these arguments, about that server.
fn tell(server: &Server, words: &[&str]) -> String {
    readable(&says::says(words, &says::of(server)))
}

/// Without the escapes of raw stacks.
fn readable(text: &str) -> String {
    text.replace("%20", " ").replace("%5B", "[").replace("%5D", "]")
}

fn started() -> Server {
    let server = Server::builder(CONF).file("work.lua", WORK).file("torture.lua", TORTURE).start();
    says::ready(&server);
    server
}

/// Does something while a client requests `path` again and again.
fn under<T>(server: &Server, path: &str, look: impl FnOnce() -> T) -> T {
    /// Ends the load also when looking fails.
    struct Enough<'a>(&'a AtomicBool);
    impl Drop for Enough<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let enough = AtomicBool::new(false);
    let mut client = server.client();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !enough.load(Relaxed) {
                assert_eq!(client.get(path).status, 200);
            }
        });
        let _enough = Enough(&enough);
        look()
    })
}

/// Nanoseconds or bytes in the stacks that are wanted. Stacks are as the server sends them: names of Lua, addresses of all
/// else, since the symbols of an unoptimised program take seconds to read.
fn total(raw: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let lines = raw.lines().skip(1).filter(|line| !line.starts_with('='));
    let stacks = lines.filter_map(|line| {
        let mut fields = line.split('\t').skip(1);
        let value: u64 = fields.next()?.parse().ok()?;
        let frames = fields.map(|frame| if frame.starts_with('@') { "@" } else { &frame[1..] });
        Some((frames.collect::<Vec<_>>().join(";"), value))
    });
    stacks.filter(|(stack, _)| wanted(stack)).map(|(_, value)| value).sum()
}

/// Of the samples of scripts in `location`, the nanoseconds of those with `line`; and of all.
fn share(server: &Server, location: &str, line: &str) -> (u64, u64, String) {
    let mut client = server.client();
    let raw = wait_for("enough samples", || {
        (0..30).for_each(|_| assert_eq!(client.get(location).status, 200));
        let raw = tell(server, &["flame", "cpu", "--last", "-t", "100s", "--route", location, "--raw"]);
        (total(&raw, |stack| stack.contains("work.lua:")) >= 300_000_000).then_some(raw)
    });
    let with = total(&raw, |stack| stack.split([';', ' ']).any(|frame| frame.ends_with(line)));
    (with, total(&raw, |stack| stack.contains("work.lua:")), raw)
}

both_drivers! {
    /// Compiled code has lines, and the lines of its callers.
    fn the_line_that_burns_in_compiled_code_is_the_widest(driver) {
        let server = started();
        let (guilty, all, raw) = share(&server, "/compiled", "/work.lua:3");
        assert!(guilty * 10 >= all * 8, "{guilty} of {all} ns\n{raw}");
        let called = |stack: &str| {
            let frames: Vec<&str> = stack.split([';', ' ']).collect();
            let at = |end: &str| frames.iter().position(|frame| frame.ends_with(end));
            at("/work.lua:16").is_some_and(|outer| at("/work.lua:3").is_some_and(|inner| outer < inner))
        };
        let rooted = total(&raw, |stack| called(stack) && stack.contains("content_by_lua(nginx.conf:4):1"));
        assert!(rooted * 10 >= guilty * 8, "{rooted} of {guilty} ns with the lines that have called\n{raw}");
        assert!(raw.contains("/work.lua:3 [jit]"), "{raw}");
    }

    /// So has the interpreter, below the C functions that it calls.
    fn the_line_that_burns_in_the_interpreter_is_the_widest(driver) {
        let server = started();
        let (guilty, all, raw) = share(&server, "/interpreted", "/work.lua:9");
        assert!(guilty * 10 >= all * 8, "{guilty} of {all} ns\n{raw}");
        let mixed = total(&raw, |stack| stack.contains("/work.lua:9;tostring;@"));
        assert!(mixed > 0, "C functions below the line\n{raw}");
        let rooted = total(&raw, |stack| {
            stack.contains("@;@;@;content_by_lua(nginx.conf:5):1;") && stack.contains("/work.lua:20;")
        });
        assert!(rooted * 10 >= guilty * 8, "{rooted} of {guilty} ns with the lines that have called, below native code\n{raw}");
    }

    fn a_loop_that_a_script_blocks_is_named_with_its_line(driver) {
        let server = started();
        wait_for("a stall with its line", || {
            assert_eq!(server.client().get("/stuck").status, 200);
            let reported = tell(&server, &["blocked", "--raw"]);
            let lines = ["location /stuck", "/work.lua:9\n", "/work.lua:20\n", "content_by_lua(nginx.conf:6):1\n"];
            lines.iter().all(|line| reported.contains(line)).then_some(())
        });
    }

    /// A wait is in the tree below the lines that it was called from, and in the graph of waits.
    fn a_wait_has_the_lines_of_its_script(driver) {
        let server = started();
        let (traced, raw) = under(&server, "/waiting", || {
            let traced = tell(&server, &["trace", "/waiting"]);
            let raw = wait_for("waits", || {
                let raw = tell(&server, &["flame", "wait", "-t", "1s", "--raw"]);
                (total(&raw, |stack| stack.ends_with("wait timer")) > 0).then_some(raw)
            });
            (traced, raw)
        });
        let at = |text: &str| traced.find(text).unwrap_or_else(|| panic!("{text}\n{traced}"));
        let lines = ["-> content_by_lua ", "-> lua content_by_lua(nginx.conf:7):1", "/work.lua:24 ", "/work.lua:12 ", ".. timer"];
        assert!(lines.map(at).is_sorted(), "{traced}");
        let timer = |stack: &str| stack.ends_with("wait timer");
        let called = |stack: &str| stack.contains("/work.lua:24;") && stack.contains("/work.lua:12;wait timer");
        assert_eq!(total(&raw, timer), total(&raw, |stack| timer(stack) && called(stack)), "{raw}");
    }

    /// Times are in the log, and so are bytes: 30,000 texts of six bytes and their heads.
    fn a_request_is_priced(driver) {
        let server = started();
        let line = wait_for("a line with figures", || {
            assert_eq!(server.get("/priced").status, 200);
            let log = server.dir().path().join("logs/price.log");
            let text = std::fs::read_to_string(log).unwrap_or_default();
            text.split_once('\n').map(|(line, _)| line.to_owned())
        });
        let figures: Vec<&str> = line.split(' ').collect();
        let [uri, time, bytes] = figures[..] else { panic!("{line}") };
        assert_eq!(uri, "/priced");
        assert!(time.parse::<f64>().is_ok_and(|ms| ms > 0.0), "{line}");
        assert!(bytes.parse::<u64>().is_ok_and(|bytes| bytes > 500_000), "{line}");
    }

    fn a_worker_tells_its_stack_while_it_is_stuck(driver) {
        let server = started();
        under(&server, "/stuck", || {
            wait_for("its lines, native code below them", || {
                let reported = tell(&server, &["bt", "0", "--raw"]);
                let head = "worker 0 is in content content_by_lua, location /stuck, req ";
                let lines = ["/work.lua:9\n", "/work.lua:20\n", "content_by_lua(nginx.conf:6):1\n    0x"];
                let places: Option<Vec<usize>> = lines.iter().map(|line| reported.find(line)).collect();
                (reported.starts_with(head) && places?.is_sorted()).then_some(())
            });
        });
    }

    /// What is allocated and what is not compiled has lines, too; and tables report on machines and dictionaries.
    fn allocations_and_what_is_not_compiled_have_lines(driver) {
        let server = started();
        let raw = under(&server, "/making", || {
            wait_for("enough samples", || {
                let raw = tell(&server, &["flame", "alloc", "-t", "1s", "--raw"]);
                (total(&raw, |stack| stack.contains("work.lua:13;")) >= 4 << 20).then_some(raw)
            })
        });
        let all = total(&raw, |_| true);
        let guilty = total(&raw, |stack| stack.contains("work.lua:28;") && stack.contains("work.lua:13;"));
        assert!(guilty * 10 >= all * 8, "{guilty} of {all} bytes\n{raw}");
        let reported = tell(&server, &["lua", "jit"]);
        let parts = ["gave up", "work.lua:13", "NYI: bytecode FNEW", "make the function once"];
        assert!(reported.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{reported}");
        assert!(tell(&server, &["lua", "heap"]).contains("MiB"));
        assert!(tell(&server, &["lua", "gc"]).starts_with("worker "));
        let reported = tell(&server, &["lua", "objects"]);
        assert!(["strings ", "tables ", "functions ", "prototypes "].iter().all(|of| reported.contains(of)), "{reported}");
        let reported = tell(&server, &["lua", "tables"]);
        let held = |line: &str| line.contains("local kept of ") && line.contains("work.lua:42");
        assert!(reported.lines().any(held), "{reported}");
        let _ = server.get("/trap");
        let reported = tell(&server, &["lua", "traps"]);
        assert!(reported.lines().any(|line| line.contains("io.open") && line.contains("content_by_lua(nginx.conf:")), "{reported}");
        let reported = tell(&server, &["dict", "--json"]);
        assert!(reported.contains(r#""name":"d","capacity_bytes":1048576"#) && reported.contains(r#""entries":1"#), "{reported}");
    }

    /// Of the run of a script, what the collector and the compiler took of it.
    fn a_trace_tells_the_collector_and_the_compiler(driver) {
        let server = started();
        let traced = under(&server, "/garbage", || tell(&server, &["trace", "/garbage"]));
        let line = traced.lines().find(|line| line.contains("content_by_lua ")).unwrap_or_else(|| panic!("{traced}"));
        let figure = |name: &str| -> f64 {
            let behind = line.split_once(name).unwrap_or_else(|| panic!("{name}: {traced}")).1;
            behind.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
        };
        let (run, gc, jit) = (figure("content_by_lua "), figure(" gc "), figure(" jit "));
        assert!(gc > 0.0 && jit > 0.0 && gc + jit < run, "{line}");
        let reported = tell(&server, &["lua", "gc", "--json"]);
        let sum = |key: &str| -> u64 {
            let digits = reported.split_once(key).expect("the key").1.split([',', '}']).next().expect("a number");
            digits.parse().expect("a number")
        };
        assert!(sum(r#""gc_ns":"#) > 0 && sum(r#""compiler_ns":"#) > 0, "{reported}");
    }

    /// Timers by function and kind, those that wait and those that run.
    fn timers_are_listed(driver) {
        let server = started();
        assert_eq!(server.get("/timers").status, 200);
        let reported = wait_for("one that runs", || {
            let reported = tell(&server, &["lua", "timers"]);
            reported.contains("running").then_some(reported)
        });
        let line = |words: &[&str]| reported.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(line(&["0      3  at ", " pending ", "/work.lua:33"]), "{reported}");
        assert!(line(&["0      1  at ", " running ", "/work.lua:35"]), "{reported}");
        let rows = tell(&server, &["lua", "timers", "--json"]);
        let hours = |row: &&str| row.contains(r#""kind":"at","state":"pending","due_ns":3"#);
        assert!(rows.split('{').any(|row| hours(&row) && row.contains(r#""count":3"#)), "{rows}");
        assert_eq!(server.get("/end").status, 200);
        wait_for("its end", || (!tell(&server, &["lua", "timers"]).contains("running")).then_some(()));
    }

    /// 10,000 signals a second while Lua does all it can to its stacks, and configurations with their VMs come and go.
    /// A crash would be a response that is missing. `WEIR_TORTURE_SECONDS=60` for the minute of the issue.
    fn the_walk_through_lua_survives_torture(driver) {
        let mut server = started();
        let seconds = std::env::var("WEIR_TORTURE_SECONDS").unwrap_or("3".to_owned());
        let done = AtomicBool::new(false);
        let (before, raw) = std::thread::scope(|scope| {
            let (port, done) = (server.port(0), &done);
            let load = move || {
                let mut served = 0;
                while !done.load(Relaxed) {
                    let mut client = weir_test::Client::connect(([127, 0, 0, 1], port).into());
                    for _ in 0..20 {
                        let answer = client.get("/torture");
                        assert_eq!((answer.status, &*answer.text()), (200, "well\n"));
                        served += 1;
                    }
                }
                served
            };
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(load)).collect();
            let directory = server.dir().path().to_owned();
            let words = ["flame", "cpu", "--hz", "9999", "-t", &format!("{seconds}s"), "--raw", "-c", "nginx.conf", "-p"];
            let mut flame = Command::new(env!("CARGO_BIN_EXE_weir"));
            let flame = flame.args(words).arg(directory).stdout(std::process::Stdio::piped());
            let flame = flame.stderr(std::process::Stdio::piped()).spawn().expect("the program runs");
            let flame = scope.spawn(move || flame.wait_with_output());
            while !flame.is_finished() {
                server.signal(ServerSignal::Hup);
                (0..3).for_each(|_| assert_eq!(server.get("/torture").status, 200));
            }
            done.store(true, Relaxed);
            let served: usize = threads.into_iter().map(|thread| thread.join().expect("all were answered")).sum();
            let out = flame.join().expect("no panic").expect("it ended");
            assert!(out.status.success(), "{out:?}");
            (served, readable(&String::from_utf8_lossy(&out.stdout)))
        });
        assert!(before > 0 && raw.contains("torture.lua:"), "{before} answers\n{raw}");
    }
}
