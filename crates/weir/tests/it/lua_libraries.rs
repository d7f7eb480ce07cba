//! Modules in Lua that are built into the program: lua-resty-string's, lrucache, errlog, process, lua-resty-core's.

use std::process::Command;

use weir_test::{Server, TempDir, both_drivers, require_program};

fn serve(http: &str, script: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location / {{ content_by_lua_block {{ {script} }} }} }} }}\n"
    );
    Server::builder(&conf).start()
}

/// What a content script says.
fn say(script: &str) -> String {
    serve("", script).client().get("/").text()
}

#[test]
fn digests_of_texts_that_come_in_parts() {
    let said = say("local to_hex = require('resty.string').to_hex
        for _, name in ipairs { 'md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512' } do
            local sum = require('resty.' .. name):new()
            assert(sum:update('hel') and sum:update('lo'))
            ngx.say(name, ' ', to_hex(sum:final()):sub(1, 8), ' ', #sum:final())
            assert(sum:reset() and sum:update('hello'))
            ngx.say(to_hex(sum:final()):sub(1, 8))
        end");
    let known = [
        ("md5", "5d41402a", 16),
        ("sha1", "aaf4c61d", 20),
        ("sha224", "ea09ae9c", 28),
        ("sha256", "2cf24dba", 32),
        ("sha384", "59e17487", 48),
        ("sha512", "9b71d224", 64),
    ];
    let wanted: String =
        known.iter().map(|(name, start, size)| format!("{name} {start} {size}\n{start}\n")).collect();
    assert_eq!(said, wanted);
}

/// The cases of RFC 2202 and RFC 4231 with a short key, and one with a long key.
#[test]
fn codes_of_messages() {
    let said = say("local hmac = require 'resty.hmac'
        for _, name in ipairs { 'MD5', 'SHA1', 'SHA256', 'SHA512' } do
            local h = hmac:new('Jefe', hmac.ALGOS[name])
            h:update('what do ya want ')
            local said = h:final('for nothing?', true)
            h:reset()
            ngx.say(name, ' ', said, ' ', h:final('what do ya want for nothing?', true) == said)
        end
        local long = hmac:new(('\\170'):rep(131), hmac.ALGOS.SHA256)
        ngx.say(long:final('Test Using Larger Than Block-Size Key - Hash Key First', true))");
    assert_eq!(
        said,
        "MD5 750c783e6ab0b503eaa86e310a5db738 true\n\
         SHA1 effcdf6ae5eb2fa2d27416d5f184df9c259a7c79 true\n\
         SHA256 5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843 true\n\
         SHA512 164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737 true\n\
         60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54\n"
    );
}

#[test]
fn aes_with_passwords_and_with_keys() {
    let said = say("local aes, to_hex = require 'resty.aes', require('resty.string').to_hex
        ngx.say(to_hex(aes:new('secret'):encrypt('hello')))
        ngx.say(to_hex(aes:new('secret', 'saltsalt', aes.cipher(256, 'cbc'), aes.hash.sha512, 5):encrypt('hello')))
        local iv = ('i'):rep(12)
        local gcm = assert(aes:new(('k'):rep(32), nil, aes.cipher(256, 'gcm'), { iv = iv }))
        local made = gcm:encrypt('hello', 'more')
        ngx.say(gcm:decrypt(made[1], made[2], 'more'), ' ', gcm:decrypt(made[1], made[2], 'less'))
        ngx.say(aes.cipher(128, 'none'), ' ', aes:new('short', nil, aes.cipher(), { iv = iv }))
        ngx.say(aes:new('secret', 'salt'))
        local c = aes:new(('k'):rep(16), nil, aes.cipher(128, 'ecb'), { iv = iv }, nil, nil, false)
        ngx.say(#c:encrypt(('x'):rep(32)), ' ', c:encrypt('x'))
        ngx.say(pcall(aes.encrypt, 'self', 'text'))");
    // What OpenSSL makes of the same.
    assert_eq!(
        said,
        "7b47a4dbb11e2cddb2f3740c9e3a552b\n\
         eaf127de6e1a7b266fada35921abc185\n\
         hello nilEVP_DecryptFinal_ex failed\n\
         nil nilbad key length\n\
         nilsalt must be 8 characters or nil\n\
         32 nilEVP_EncryptFinal_ex failed\n\
         falsebad argument #1 self: table expected, got string\n"
    );
}

#[test]
fn random_bytes_and_numbers_in_texts() {
    let said = say("local random, text = require 'resty.random', require 'resty.string'
        local a, b = random.bytes(16), random.bytes(16, true)
        ngx.say(#a, ' ', a == b, ' ', #random.bytes(0), ' ', pcall(random.bytes, -1))
        ngx.say(text.atoi('42'), ' ', text.atoi(''), ' ', text.atoi('4x'), ' ', text.to_hex('a\\0z'))");
    assert!(said.starts_with("16 false 0 false"), "{said}");
    assert!(said.ends_with("42 -1 -1 61007a\n"), "{said}");
}

#[test]
fn the_least_used_entry_of_lrucache_goes() {
    let said = say("for _, name in ipairs { 'resty.lrucache', 'resty.lrucache.pureffi' } do
            local cache = require(name).new(2)
            cache:set('a', 1) cache:set('b', 2, nil, 7) cache:get('a') cache:set('c', { 3 })
            ngx.say(cache:get('a'), ' ', cache:get('b'), ' ', cache:get('c')[1], ' ', table.concat(cache:get_keys(), ' '))
            cache:set('old', 5, -1, 9)
            local value, stale, flags = cache:get('old')
            ngx.say(value, ' ', stale, ' ', flags, ' ', cache:count(), ' ', cache:capacity())
            cache:delete('old') cache:flush_all()
            ngx.say(cache:count(), ' ', cache:get('c'), ' ', #cache:get_keys())
        end
        ngx.say(require('resty.lrucache').new(0))");
    let each = "1 nil 3 c a\nnil 5 9 2 2\n0 nil 0\n";
    assert_eq!(said, format!("{each}{each}nilsize too small\n"));
}

#[test]
fn what_the_path_has_goes_first() {
    let conf =
        "events {}\nhttp { lua_package_path '$prefix/html/?.lua;;'; server { listen 127.0.0.1:%%PORT%%;\n\
        location / { content_by_lua_block { ngx.say(require('resty.lrucache'), type(require('resty.string')),
        pcall(require, 'resty.none')) } } } }\n";
    let server = Server::builder(conf)
        .file("html/resty/lrucache.lua", "return 'mine '")
        .file("html/resty/string.lua", "return 'mine '")
        .start();
    let said = server.client().get("/").text();
    assert!(said.starts_with("mine stringfalsemodule 'resty.none' not found:"), "{said}");
}

#[test]
fn tables_and_coroutines_have_what_openresty_added() {
    let said = say("local exdata, base = require 'thread.exdata', require 'resty.core.base'
        ngx.say(exdata() == base.get_request(), ' ', base.get_request() ~= nil)
        local ffi = require 'ffi'
        local function set(number) exdata(ffi.cast('void *', number)) end
        local function get() return tonumber(ffi.cast('intptr_t', exdata())) end
        set(5)
        local inner = coroutine.wrap(function() local before = exdata() == base.get_request() set(6) return before, get() end)
        ngx.say(get(), ' ', table.concat({ tostring(inner()) }), ' ', get())
        ngx.say(type(require 'thread.exdata2'()), ' ', pcall(exdata, 5))
        local list = {}
        ngx.say(base.ref_in_table(list, 'a'), base.ref_in_table(list, 'b'), base.ref_in_table(list, nil))
        ngx.say(table.isempty {}, table.isarray { 1, 2 }, table.nkeys { a = 1, 2 }, #table.clone { 1, 2 })
        ngx.say(pcall(base.allows_subsystem, 'stream'))");
    assert_eq!(
        said,
        "true true\n5 true 5\ncdata falsebad argument #1 to 'exdata' (cdata expected, got number)\n12-1\ntruetrue22\nfalseunsupported subsystem: http\n"
    );
}

both_drivers! {
    fn scripts_read_the_error_log(driver) {
        let server = serve(
            "lua_capture_error_log 8k; error_log error.log info;",
            "local errlog = require 'ngx.errlog'
             errlog.get_logs(1000)
             ngx.log(ngx.ERR, 'first') errlog.raw_log(ngx.INFO, 'second') ngx.log(ngx.DEBUG, 'none')
             local logs = errlog.get_logs()
             ngx.say(#logs / 3, ' ', logs[1], ' ', logs[4], ' ', math.abs(logs[2] - ngx.now()) < 600)
             ngx.print(logs[3], '\\n', logs[6], '\\n')
             ngx.log(ngx.ERR, 'one') ngx.log(ngx.ERR, 'two')
             assert(#errlog.get_logs(1) == 3 and #errlog.get_logs(1) == 3 and #errlog.get_logs() == 0)
             assert(errlog.set_filter_level(ngx.ERR))
             ngx.log(ngx.WARN, 'third')
             ngx.say(#errlog.get_logs(), ' ', errlog.get_sys_filter_level(), ' ', select(2, errlog.set_filter_level(99)))
             ngx.say(pcall(errlog.raw_log, 99, 'x'))
             errlog.set_filter_level(ngx.DEBUG)",
        );
        let said = server.client().get("/").text();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "2 4 7 true", "{said}");
        assert!(lines[1].contains(" [error] ") && lines[1].contains("[lua] content_by_lua("), "{said}");
        assert!(lines[1].contains(": first, client: 127.0.0.1"), "{said}");
        assert!(lines[2].contains(" [info] ") && lines[2].contains(" second, client: 127.0.0.1"), "{said}");
        assert_eq!(lines[3], "0 7 bad log level", "{said}");
        assert!(lines[4].starts_with("false") && lines[4].ends_with("bad log level"), "{said}");
        let _ = server.error_log_line(" third, client");
    }

    fn nothing_is_captured_without_the_directive(driver) {
        let server = serve("", "ngx.say(require('ngx.errlog').get_logs())
            ngx.say(require('ngx.errlog').set_filter_level(ngx.ERR))");
        let none = "nildirective \"lua_capture_error_log\" is not set\n";
        assert_eq!(server.client().get("/").text(), none.repeat(2));
    }

    fn memory_goes_back_after_so_many_requests(driver) {
        let server = serve("lua_malloc_trim 2; error_log error.log debug;", "ngx.say('x')");
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "x\n");
        }
        let _ = server.error_log_line("malloc_trim(1) returned ");
    }
}

#[test]
fn processes_have_types() {
    let server = serve(
        "init_by_lua_block { kind = require('ngx.process').type() no = { require('ngx.process').enable_privileged_agent() } }",
        "local process = require 'ngx.process'
         ngx.say(kind, ' ', process.type(), ' ', process.get_master_pid() == ngx.worker.pid())
         ngx.say(no[1], ' ', no[2]) ngx.say(process.enable_privileged_agent())",
    );
    let said = server.client().get("/").text();
    assert!(said.starts_with("single single true\ntrue nil\n"), "{said}");
    assert!(said.ends_with("nilAPI disabled in the current context\n"), "{said}");
}

/// By a clock of whole seconds it would mostly be 0.
#[test]
fn times_have_milliseconds() {
    let said = say("local began = ngx.now() ngx.sleep(0.05)
        local passed, since = ngx.now() - began, ngx.now() - ngx.req.start_time()
        ngx.say(passed > 0.03, ' ', since > 0.03)");
    assert_eq!(said, "true true\n");
}

#[test]
fn sizes_of_the_captured_log_are_checked() {
    let conf = |size: &str| format!("events {{}}\nhttp {{ lua_capture_error_log {size}; }}\n");
    for (size, message) in [
        ("3k", "invalid capture error log size \"3k\", minimum size is 4096"),
        ("x", "invalid capture error log size \"x\""),
    ] {
        let reported = Server::builder(&conf(size)).run(&["-t"]);
        assert!(!reported.status.success() && reported.stderr.contains(message), "{}", reported.stderr);
    }
}

/// What a module in C declares itself, so that no headers of LuaJIT are needed.
const MODULE: &str = r#"
typedef struct lua_State lua_State;
typedef int (*lua_CFunction)(lua_State *);
extern double luaL_checknumber(lua_State *, int);
extern int luaL_error(lua_State *, const char *, ...);
extern void lua_pushnumber(lua_State *, double);
extern void lua_pushcclosure(lua_State *, lua_CFunction, int);
extern void lua_createtable(lua_State *, int, int);
extern void lua_setfield(lua_State *, int, const char *);
extern void lua_pushvalue(lua_State *, int);
extern void lua_call(lua_State *, int, int);
extern int lua_gettop(lua_State *);
extern int luaJIT_setmode(lua_State *, int, int);
extern int luaopen_math(lua_State *);
extern lua_State *luaL_newstate(void);
extern void lua_close(lua_State *);
extern void lua_getfield(lua_State *, int, const char *);
static int twice(lua_State *l) { lua_pushnumber(l, 2 * luaL_checknumber(l, 1)); return 1; }
static int fails(lua_State *l) { return luaL_error(l, "number %d", 7); }
static int calls(lua_State *l) { lua_pushvalue(l, 1); lua_call(l, 0, 1); return 1; }
/* A state of its own with one library; what is compiled there is thrown away (LUAJIT_MODE_ENGINE, LUAJIT_MODE_FLUSH). */
static int own(lua_State *l) {
    lua_State *other = luaL_newstate();
    int flushed = luaJIT_setmode(other, 0, 0x200);
    lua_pushcclosure(other, luaopen_math, 0); lua_call(other, 0, 1);
    lua_getfield(other, -1, "sqrt"); lua_pushnumber(other, 16); lua_call(other, 1, 1);
    lua_pushnumber(l, flushed + luaL_checknumber(other, -1));
    lua_close(other);
    return 1;
}
int luaopen_proof_part(lua_State *l) {
    lua_createtable(l, 0, 4);
    lua_pushcclosure(l, own, 0); lua_setfield(l, -2, "own");
    lua_pushcclosure(l, twice, 0); lua_setfield(l, -2, "twice");
    lua_pushcclosure(l, fails, 0); lua_setfield(l, -2, "fails");
    lua_pushcclosure(l, calls, 0); lua_setfield(l, -2, "calls");
    return 1;
}
"#;

#[test]
fn functions_of_nginx_are_found_by_libraries() {
    let said = say("require 'resty.core.base' local ffi = require 'ffi'
        ffi.cdef 'uintptr_t ngx_escape_uri(unsigned char *to, const unsigned char *from, size_t size, uintptr_t kind);'
        local uri = '/a b?c' local more = tonumber(ffi.C.ngx_escape_uri(nil, uri, #uri, 0))
        local to = ffi.new('unsigned char[?]', #uri + 2 * more) ffi.C.ngx_escape_uri(to, uri, #uri, 0)
        ngx.say(more, ' ', ffi.string(to, #uri + 2 * more), ' ', ffi.sizeof('ngx_str_t'), ' ', tostring(ffi.typeof('ngx_http_request_t *')))");
    assert_eq!(said, "2 /a%20b%3Fc 16 ctype<struct ngx_http_request_s *>\n");
}

#[test]
fn modules_in_c_are_loaded() {
    let Some(cc) = require_program("cc") else { return };
    let directory = TempDir::new();
    let source = directory.write("part.c", MODULE);
    std::fs::create_dir(directory.path().join("proof")).expect("a folder");
    let module = directory.path().join("proof/part.so");
    let built = Command::new(cc).args(["-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    assert!(built.is_ok_and(|status| status.success()));
    let path = directory.path().display();
    let server = serve(
        &format!("lua_package_cpath '{path}/?.so;;';"),
        "local part = require 'proof.part'
         ngx.say(part.twice(21), ' ', part.own(), ' ', pcall(part.twice, 'x'))
         ngx.say(pcall(part.fails))
         ngx.say(part.calls(function() return ngx.var.uri end))
         -- C has no place to come back to.
         ngx.say(pcall(part.calls, function() ngx.sleep(0.001) end))",
    );
    let said = server.client().get("/a").text();
    let (first, last) = said.split_once("false").expect("a line");
    assert_eq!(first, "42 5 ");
    let wanted = "bad argument #1 to '?' (number expected, got string)\nfalsenumber 7\n/a\nfalse";
    assert!(
        last.starts_with(wanted) && last.ends_with("\nfalseattempt to yield across C-call boundary\n"),
        "{said}"
    );
}

/// `resty.shell`, with what it needs, is there without files: Kong's and others' scripts find it in OpenResty.
#[test]
fn commands_to_their_end() {
    let said = say(r#"local run = require('resty.shell').run
        ngx.say(run([[cat; echo no >&2; exit 3]], 'in'))
        ngx.say(run({ 'echo', '-n', 'a  b' }))
        ngx.say(run('kill -9 $$'))
        ngx.say(run('echo much', nil, 5000, 3))
        local ok, out, err, why = run('exec sleep 60', nil, 20)
        ngx.say(ok, ' ', out, ' ', err, ' ', why)"#);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "falseinno",
            "exit3",
            "truea  bexit0",
            "falsesignal9",
            "nilmuchfailed to read stdout: too much data",
            "nil   failed to wait for process: timeout"
        ],
    );
}

#[test]
fn signals_by_name() {
    let said = say(r#"local signal = require 'resty.signal'
        ngx.say(signal.signum 'NONE', ' ', signal.signum 'TERM', ' ', signal.signum(42), ' ', signal.signum 'nope')
        local proc = assert(require('ngx.pipe').spawn { 'sleep', '60' })
        ngx.say(signal.kill(proc:pid(), 'NONE'), ' ', signal.kill(proc:pid(), 'USR1'))
        ngx.say(proc:wait())
        ngx.say(signal.kill(2147483647, 0))"#);
    assert_eq!(said, "0 15 42 nilunknown signal name\ntrue true\nfalsesignal10\nnilNo such process\n");
}

#[test]
fn tables_that_are_used_again() {
    let said = say(r#"local pool = require 'tablepool'
        local one, raw = pool.fetch('a', 4, 0), pool.fetch('a', 0, 4)
        one[1], raw.x = 1, 1
        pool.release('a', setmetatable(one, {}))
        pool.release('a', raw, true)
        ngx.say(pool.fetch('b', 0, 0) ~= raw, ' ', pool.fetch('a') == raw and raw.x, ' ', pool.fetch('a') == one and #one)
        ngx.say(getmetatable(one), ' ', pcall(pool.release, 'a'))
        local seen = {}
        for _ = 1, 201 do pool.release('many', {}) end
        for _ = 1, 201 do
            local t = pool.fetch('many', 0, 0)
            if t.taken then ngx.say('twice') end
            t.taken = true
        end"#);
    assert_eq!(said, "true 1 0\nnil falseobject empty\n");
}
