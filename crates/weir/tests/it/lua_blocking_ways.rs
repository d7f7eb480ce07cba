//! Ways in which a script blocks the loop: each is reported with its file and line, whatever code the thread is in.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_test::{Server, both_drivers, wait_for};

/// Name, and a script that blocks for a fifth of a second in the line that ends with `--!`.
const WAYS: &[(&str, &str)] = &[
    ("os_execute", "os.execute('sleep 0.2') --!"),
    (
        "popen_read",
        "local pipe = io.popen('sleep 0.2; echo x')\nlocal text = pipe:read('*a') --!\npipe:close()",
    ),
    ("popen_close", "local pipe = io.popen('sleep 0.2')\npipe:close() --!"),
    ("fifo_open", "local file = io.open(ngx.config.prefix() .. 'fifo') --!\nfile:close()"),
    (
        "read_much",
        "local zero = io.open('/dev/zero')\nlocal file\nfor i = 1, 20 do zero:read(2^24) end --!\nzero:close()",
    ),
    (
        "file_lines",
        "local pipe = io.popen('sleep 0.2; echo x')\nfor line in pipe:lines() do ngx.say(line) end --!\npipe:close()",
    ),
    ("usleep", "jit.off()\nffi.C.usleep(200000) --!"),
    ("usleep_compiled", "jit.on()\nfor i = 1, 400 do ffi.C.usleep(500) end --!"),
    ("nanosleep", "local time = ffi.new('struct way_time', 0, 200000000)\nffi.C.nanosleep(time, nil) --!"),
    ("poll", "ffi.C.poll(nil, 0, 200) --!"),
    (
        "clock",
        "jit.off()\nlocal time, last = ffi.new('struct way_time'), ways.now() + 0.2\nrepeat for i = 1, 100 do ffi.C.clock_gettime(1, time) end until ways.now() > last --!",
    ),
    (
        "clock_compiled",
        "jit.on()\nlocal time, last = ffi.new('struct way_time'), ways.now() + 0.2\nrepeat for i = 1, 1000 do ffi.C.clock_gettime(1, time) end until ways.now() > last --!",
    ),
    (
        "socket",
        "local two, time = ffi.new('int[2]'), ffi.new('struct way_time', 0, 200000)\nassert(ffi.C.socketpair(1, 1, 0, two) == 0)\nffi.C.setsockopt(two[0], 1, 20, time, 16)\nffi.C.recv(two[0], ffi.new('char[8]'), 8, 0) --!\nffi.C.close(two[0]) ffi.C.close(two[1])",
    ),
    ("system", "ffi.C.system('sleep 0.2') --!"),
    (
        "names",
        "local last = ways.now() + 0.2\nlocal list = ffi.new('void *[1]')\nrepeat ffi.C.getaddrinfo('127.0.0.1', '80', nil, list) ffi.C.freeaddrinfo(list[0]) until ways.now() > last --!",
    ),
    (
        "memory",
        "local room = ffi.new('char[?]', 2^18)\nlocal last = ways.now() + 0.2\nrepeat for i = 1, 50 do ffi.C.memset(room, 1, 2^18) end until ways.now() > last --!",
    ),
    (
        "sort_by_library",
        "local list = ffi.new('int[2]', 2, 1)\nlocal less = ffi.cast('int (*)(const int *, const int *)', function(a, b)\n    ffi.C.usleep(200000) --!\n    return a[0] - b[0]\nend)\nffi.C.qsort(list, 2, 4, less)\nless:free()",
    ),
    (
        "loop",
        "jit.off(true, true)\nlocal last, s = ways.now() + 0.2, 0\nrepeat for i = 1, 5000 do s = s + i % 7 end until ways.now() > last --!",
    ),
    (
        "loop_compiled",
        "jit.on()\nlocal last, s = ways.now() + 0.2, 0\nrepeat for i = 1, 50000 do s = s + i % 7 end until ways.now() > last --!",
    ),
    (
        "pattern",
        "local last = ways.now() + 0.2\nrepeat string.find(('a'):rep(60), 'a-a-a-a-b') until ways.now() > last --!",
    ),
    (
        "sort",
        "local list = {}\nfor i = 1, 20000 do list[i] = i * 7919 % 20011 end\nlocal last = ways.now() + 0.2\nrepeat table.sort(list, function(a, b) return a < b end) table.sort(list, function(a, b) return a > b end) until ways.now() > last --!",
    ),
    (
        "concat",
        "local list = {}\nfor i = 1, 10000 do list[i] = 'abc' end\nlocal last = ways.now() + 0.2\nrepeat local text = table.concat(list) until ways.now() > last --!",
    ),
    (
        "rep_and_upper",
        "local last = ways.now() + 0.2\nrepeat local text = ('abc'):rep(100000):upper() until ways.now() > last --!",
    ),
    (
        "regex",
        "local text = ('ab '):rep(10000)\nlocal last = ways.now() + 0.2\nrepeat ngx.re.gsub(text, '[a-z]+', 'x', 'jo') until ways.now() > last --!",
    ),
    (
        "md5",
        "local text = ('abc'):rep(30000)\nlocal last = ways.now() + 0.2\nrepeat for i = 1, 20 do ngx.md5(text) end until ways.now() > last --!",
    ),
    (
        "base64",
        "local text = ('abc'):rep(30000)\nlocal last = ways.now() + 0.2\nrepeat for i = 1, 20 do ngx.encode_base64(text) end until ways.now() > last --!",
    ),
    (
        "garbage",
        "local kept = {}\nfor i = 1, 50000 do kept[i] = { i } end\nlocal last = ways.now() + 0.2\nrepeat collectgarbage() until ways.now() > last --!",
    ),
    ("in_pcall", "pcall(function()\n    ffi.C.usleep(200000) --!\nend)"),
    ("in_coroutine", "local inner = coroutine.wrap(function()\n    ffi.C.usleep(200000) --!\nend)\ninner()"),
    (
        "in_metamethod",
        "local object = setmetatable({}, { __index = function()\n    ffi.C.usleep(200000) --!\nend })\nreturn object.key",
    ),
    ("in_gsub", "local text = ('abc'):gsub('b', function()\n    ffi.C.usleep(200000) --!\nend)"),
    ("in_thread", "ngx.thread.wait(ngx.thread.spawn(function()\n    ffi.C.usleep(200000) --!\nend))"),
    (
        "in_loaded_text",
        "local text = assert(loadstring('local ffi = ...\\nffi.C.usleep(200000)', '@in_loaded_text.lua'))\nlocal line_two = '--!'\ntext(ffi)",
    ),
];

/// The same from compiled code, in which functions are inlined, return and replace each other: a short call in each iteration, and
/// a long one in the last, which is compiled by then. Where the short ones are of other lines they return at once, since a sleep of
/// any length takes some 60 µs, and all of them long enough to be looked at. The line that calls it is marked `--2`, further ones `--3`.
const COMPILED_WAYS: &[(&str, &str)] = &[
    ("jit_loop", "for i = 1, #waits do\n    ffi.C.usleep(waits[i]) --!\nend"),
    (
        "jit_inlined",
        "local function wait(n)\n    local _ = n + 1\n    ffi.C.usleep(n) --!\n    return n\nend\nlocal s = 0\nfor i = 1, #waits do\n    s = s + wait(waits[i]) --2\n    s = s + 1\nend",
    ),
    (
        "jit_after_return",
        "local function pick(i)\n    local n = waits[i]\n    return n\nend\nfor i = 1, #waits do\n    local n = pick(i)\n    ffi.C.usleep(n) --!\nend",
    ),
    (
        "jit_between",
        "local function pick(i)\n    return waits[i]\nend\nlocal function wait(n)\n    local m = pick(n)\n    ffi.C.usleep(m) --!\n    return pick(n)\nend\nlocal s = 0\nfor i = 1, #waits do\n    s = s + pick(i)\n    s = s + wait(i) --2\n    s = s + pick(i)\nend",
    ),
    (
        "jit_second_of_two",
        "for i = 1, #waits do\n    ffi.C.poll(nil, 0, 0)\n    ffi.C.poll(nil, 0, waits[i] / 1000) --!\n    ffi.C.poll(nil, 0, 0)\nend",
    ),
    (
        "jit_poll",
        "local function wait(n)\n    ffi.C.poll(nil, 0, n) --!\nend\nfor i = 1, #waits do\n    wait(waits[i] > 1000 and 200 or 0) --2\nend",
    ),
    (
        "jit_read",
        "local two, time, room = ffi.new('int[2]'), ffi.new('struct way_time', 0, 200000), ffi.new('char[8]')\nassert(ffi.C.socketpair(1, 1, 0, two) == 0)\nffi.C.setsockopt(two[0], 1, 20, time, 16)\nffi.C.send(two[1], ffi.new('char[400]'), #waits - 1, 0)\nlocal function take()\n    return ffi.C.read(two[0], room, 1) + 0 --!\nend\nfor i = 1, #waits do\n    local got = take() --2\nend\nffi.C.close(two[0]) ffi.C.close(two[1])",
    ),
    (
        "jit_tail_call_to_c",
        "local function wait(n)\n    local m = n\n    return ffi.C.usleep(m) --!\nend\nfor i = 1, #waits do\n    local _ = wait(waits[i]) --2\nend",
    ),
    (
        "jit_tail_called",
        "local function wait(n)\n    ffi.C.usleep(n) --!\n    return n\nend\nlocal function outer(n)\n    local m = n\n    return wait(m)\nend\nfor i = 1, #waits do\n    local n = outer(waits[i]) --2\nend",
    ),
    (
        "jit_tail_called_first",
        "local step\nlocal function other(i)\n    local n = waits[i]\n    ffi.C.usleep(n) --!\n    return step(i + 1)\nend\nfunction step(i)\n    if i > #waits then return i end\n    return other(i)\nend\nlocal _ = step(1) --2",
    ),
    (
        "jit_side_trace",
        "local s = 0\nfor i = 1, #waits do\n    if i % 2 == 0 then\n        ffi.C.usleep(waits[i]) --!\n    else\n        s = s + waits[i]\n    end\nend",
    ),
    (
        "jit_inlined_in_side_trace",
        "local function wait(n, even)\n    local m = n\n    if even then\n        ffi.C.usleep(m) --!\n        return m\n    end\n    return n\nend\nlocal s = 0\nfor i = 1, #waits do\n    s = s + wait(waits[i], i % 2 == 0) --2\n    s = s + 1\nend",
    ),
    (
        "jit_stitched",
        "local s = 0\nlocal function wait(n)\n    ffi.C.usleep(n) --!\n    return n\nend\nfor i = 1, #waits do\n    s = s + collectgarbage('count')\n    s = s + wait(waits[i]) --2\n    s = s + 1\nend",
    ),
    (
        "jit_recursive",
        "local function down(i)\n    ffi.C.usleep(waits[i]) --!\n    if i < #waits then\n        return 1 + down(i + 1) --2\n    end\n    return 0\nend\nlocal _ = down(1) --3",
    ),
    (
        "jit_after_recursion",
        "local function down(i)\n    if i == 0 then return 0 end\n    local n = down(i - 1) --3\n    ffi.C.poll(nil, 0, waits[i] / 1000) --!\n    return n + 1\nend\nlocal _ = down(#waits) --2",
    ),
    (
        "jit_flushed",
        "local function wait(n)\n    local m = n\n    ffi.C.usleep(m) --!\n    return m\nend\nfor run = 1, 2 do\n    for i = 1, #waits + run - 2 do\n        local _ = wait(waits[i]) --2\n    end\n    jit.flush()\nend",
    ),
    (
        "jit_metamethod",
        "local object = setmetatable({}, { __index = function(t, i)\n    local n = waits[i]\n    ffi.C.usleep(n) --!\n    return n\nend })\nlocal s = 0\nfor i = 1, #waits do\n    s = s + object[i] --2\nend",
    ),
    (
        "jit_pcall",
        "local function wait(i)\n    local n = waits[i]\n    ffi.C.usleep(n) --!\n    return n\nend\nfor i = 1, #waits do\n    local ok, n = pcall(wait, i) --2\nend",
    ),
    (
        "jit_varargs",
        "local function wait(...)\n    local n = select(2, ...)\n    ffi.C.usleep(n) --!\n    return n\nend\nlocal s = 0\nfor i = 1, #waits do\n    s = s + wait(i, waits[i], s) --2\nend",
    ),
    (
        "jit_iterator",
        "local function next_wait(list, i)\n    i = i + 1\n    if list[i] then\n        ffi.C.usleep(list[i]) --!\n        return i\n    end\nend\nlocal s = 0\nfor i in next_wait, waits, 0 do --2\n    s = s + i\nend",
    ),
    (
        "jit_coroutine",
        "local inner = coroutine.wrap(function()\n    local function pick(i)\n        return waits[i]\n    end\n    for i = 1, #waits do\n        local n = pick(i)\n        ffi.C.usleep(n) --!\n    end\nend)\ninner() --3",
    ),
];

const WAYS_LUA: &str = "local ffi = require 'ffi'
ffi.cdef [[
    struct way_time { long s, ns; };
    int usleep(unsigned);
    int nanosleep(const struct way_time *, struct way_time *);
    int poll(void *, unsigned long, int);
    int clock_gettime(int, struct way_time *);
    int socketpair(int, int, int, int *);
    int setsockopt(int, int, int, const void *, unsigned);
    long recv(int, void *, size_t, int);
    long send(int, const void *, size_t, int);
    long read(int, void *, size_t);
    int close(int);
    int system(const char *);
    int getaddrinfo(const char *, const char *, const void *, void **);
    void freeaddrinfo(void *);
    void *memset(void *, int, size_t);
    void qsort(void *, size_t, size_t, int (*)(const int *, const int *));
]]
local time = ffi.new('struct way_time')
local function now()
    ffi.C.clock_gettime(1, time)
    return tonumber(time.s) + tonumber(time.ns) / 1e9
end
local waits = {}
for i = 1, 299 do waits[i] = 1 end
waits[300] = 200000
return { now = now, waits = waits }";

fn started(more: &str) -> Server {
    let location =
        |(name, _): &(&str, &str)| format!("location /{name}/ {{ content_by_lua_file {name}.lua; }}\n");
    let locations: String = WAYS.iter().chain(COMPILED_WAYS).map(location).collect();
    let conf = format!(
        "worker_processes 1; events {{ }} profile_blocked 20ms;
        http {{ lua_package_path '$prefix/?.lua;;'; keepalive_requests 1000;
        server {{ listen 127.0.0.1:%%PORT%%; {locations} {more} }} }}"
    );
    let mut server = Server::builder(&conf).file("ways.lua", WAYS_LUA);
    for (name, script) in WAYS {
        let script = format!("local ffi, ways = require 'ffi', require 'ways' {script}\nngx.say('done')");
        server = server
            .file(&format!("{name}.lua"), script.replace("return object.key\n", "local _ = object.key\n"));
    }
    for (name, script) in COMPILED_WAYS {
        let begin = "local ffi, ways = require 'ffi', require 'ways' local waits = ways.waits jit.on()";
        server = server.file(&format!("{name}.lua"), format!("{begin} {script}\nngx.say('done')"));
    }
    let server = server.start();
    crate::support::says::ready(&server);
    server
}

/// What the program prints, asking that server.
fn weir(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(words).args(["-c", "nginx.conf", "-p"]).arg(server.dir().path());
    let out = command.output().expect("the program runs");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("text")
}

/// The report of the last stall in `location` that has a stack.
fn report(server: &Server, location: &str, options: &[&str]) -> Option<String> {
    let all = weir(server, &[&["blocked", "-v"], options].concat());
    let begins: Vec<usize> = all.match_indices("worker 0 ").map(|(at, _)| at).collect();
    let ends = begins.iter().skip(1).copied().chain([all.len()]);
    let reports: Vec<&str> = begins.iter().zip(ends).map(|(from, to)| &all[*from..to]).collect();
    reports
        .into_iter()
        .rfind(|report| report.contains(location) && report.contains("\n    "))
        .map(str::to_owned)
}

/// [`report`], with addresses, waited for as long as one comes where it comes at all; empty if none does.
fn reported(server: &Server, location: &str) -> String {
    let end = Instant::now() + REPORTED;
    loop {
        match report(server, location, &["--raw"]) {
            Some(report) => return report,
            None if Instant::now() > end => return String::new(),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A stall is reported at once; on a busy machine its stack is looked up later.
const REPORTED: Duration = Duration::from_secs(15);

/// Opens the other end after a while. Nothing is written: the script waits for that only, and may have closed its end.
fn open_later(fifo: PathBuf) -> JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        fs::File::options().write(true).open(fifo).expect("the server opens it to read");
    })
}

const TRIES: usize = 4;

both_drivers! {
    /// Also in C libraries, and nothing is guessed there.
    fn native_callers_have_their_names(driver) {
        let server = started("");
        // On a busy machine nothing may be found of one call.
        let seen = wait_for("a report", || {
            server.get("/system/");
            report(&server, "location /system/", &[]).filter(|seen| seen.contains("system.lua:1\n"))
        });
        let at = |name: &str| seen.find(name).unwrap_or_else(|| panic!("{name} is missing: {seen}"));
        let order = ["wait4", "system.lua:1\n", "::ScriptRun::", "start_thread"].map(at);
        assert!(order.is_sorted(), "{seen}");
        assert!(!seen.contains(" ?\n"), "{seen}");
    }

    /// In one line: the function, the line of the script, how often.
    fn equal_stalls_are_one_line(driver) {
        let server = started("");
        let (mut client, mut times) = (server.client(), 0);
        let row = wait_for("two in a row", || {
            times += 1;
            client.get("/os_execute/");
            let text = weir(&server, &["blocked"]);
            let row = text.lines().find(|row| row.starts_with("/os_execute/ "))?.to_owned();
            // What comes before the line may take long enough to be found, too, on a busy machine.
            let counted = row.split("os_execute.lua:1").nth(1)?.split_whitespace().next()?.parse::<u32>().ok()?;
            (counted >= 2).then_some(row)
        });
        assert!(row.contains("(wait4) at ") && row.contains("ms"), "{row}");
        let id = row.split_whitespace().last().expect("a word").to_owned();
        let explained = weir(&server, &["explain", &id]);
        assert!(explained.contains("kept because it blocked its worker\n") && explained.contains("blocked its worker for "), "{explained}");
    }

    fn every_way_to_block_is_named_by_file_and_line(driver) {
        let server = started("");
        let mut client = server.client();
        let mut wrong = Vec::new();
        let fifo = server.dir().path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("coreutils").success());
        for (name, script) in WAYS {
            let line = script.lines().position(|line| line.contains("--!")).expect("it is marked") + 1;
            let place = format!("{name}.lua:{line}");
            let mut seen = String::new();
            // On a busy machine what comes before the line may take long enough to be found, too, or nothing may be found of
            // one call.
            let found = (0..TRIES).any(|_| {
                let writer = (*name == "fifo_open").then(|| open_later(fifo.clone()));
                let response = client.get(&format!("/{name}/"));
                assert_eq!(response.text(), if *name == "file_lines" { "x\ndone\n" } else { "done\n" }, "{name}");
                writer.into_iter().for_each(|writer| writer.join().expect("it opens"));
                seen = reported(&server, &format!("location /{name}/"));
                seen.contains(&place)
            });
            if !found {
                wrong.push(format!("{place} is missing:\n{seen}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), WAYS.len(), wrong.join("\n"));
    }

    /// Innermost, and then the line that called that one; and no other.
    fn calls_from_compiled_code_are_of_their_own_lines(driver) {
        let server = started("");
        let mut client = server.client();
        let mut wrong = Vec::new();
        for (name, script) in COMPILED_WAYS {
            let place = |mark: &str| {
                let line = script.lines().position(|line| line.contains(mark))?;
                Some(format!("{name}.lua:{}", line + 1))
            };
            let expected: Vec<String> = ["--!", "--2"].iter().filter_map(|mark| place(mark)).collect();
            let mut seen = String::new();
            let found = (0..TRIES).any(|_| {
                assert_eq!(client.get(&format!("/{name}/")).text(), "done\n", "{name}");
                seen = reported(&server, &format!("location /{name}/"));
                let lines = seen.lines().filter_map(|line| line.trim().rsplit('/').next());
                let lines: Vec<&str> = lines.filter(|line| line.starts_with(&format!("{name}.lua:"))).collect();
                let marked = |line: &&str| {
                    let number = line.rsplit(':').next().and_then(|number| number.parse::<usize>().ok());
                    number.and_then(|number| script.lines().nth(number - 1)).is_some_and(|line| line.contains("--"))
                };
                lines.starts_with(&expected.iter().map(String::as_str).collect::<Vec<_>>()) && lines.iter().all(marked)
            });
            if !found {
                wrong.push(format!("{expected:?} are missing:\n{seen}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), COMPILED_WAYS.len(), wrong.join("\n"));
    }
}
