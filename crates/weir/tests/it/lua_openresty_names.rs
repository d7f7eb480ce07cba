//! LuaJIT is OpenResty's: with what Lua 5.2 has, and with the extensions of its own LuaJIT; and the names of C that scripts find
//! in it by `ffi.C`: OpenSSL's, nginx's, constants.

use std::process::Command;

use weir_test::{Server, TempDir, both_drivers};

/// Each with what OpenResty's LuaJIT (15f58c96, built with `LUAJIT_ENABLE_LUA52COMPAT`) says of it.
const EXPRESSIONS: &[(&str, &str)] = &[
    (r#"return loadstring(";;;") ~= nil"#, "true true"),
    (r#"return loadstring("goto x ::x:: ;") ~= nil"#, "true true"),
    (r#"return loadstring("while true do break local a = 1 end") ~= nil"#, "true true"),
    (r#"return loadstring("for i = 1, 2 do if i then break end ; end") ~= nil"#, "true true"),
    ("return #setmetatable({}, { __len = function() return 7 end })", "true 7"),
    (
        "local t = {} for k, v in pairs(setmetatable({}, { __pairs = function() return function(_, k) if not k then return 1, 2 end end end })) do t[#t+1] = k + v end return t[1], #t",
        "true 3 1",
    ),
    (
        "local n = 0 for i, v in ipairs(setmetatable({}, { __ipairs = function() return function(_, i) if i < 3 then return i + 1, i end end, nil, 0 end })) do n = n + v end return n",
        "true 3",
    ),
    ("local t = table.pack(1, nil, 3) return t.n, t[1], t[2], t[3]", "true 3 1 nil 3"),
    ("return table.unpack({ 1, 2, 3 }, 2)", "true 2 3"),
    ("return unpack == table.unpack", "true true"),
    ("return type(package.searchers), package.searchers == package.loaders", "true table true"),
    (r#"return rawlen({ 1, 2 }), rawlen("abc")"#, "true 2 3"),
    (r#"return os.execute("true")"#, "true true exit 0"),
    (r#"return os.execute("exit 3")"#, "true nil exit 3"),
    (r#"return os.execute("kill -9 $$")"#, "true nil signal 9"),
    ("return os.execute()", "true true"),
    (r#"return io.popen("exit 4"):close()"#, "true nil exit 4"),
    (r#"return io.popen("true"):close()"#, "true true exit 0"),
    (
        "return coroutine.wrap(function() local co, main = coroutine.running() return type(co), main end)()",
        "true thread false",
    ),
    (r#"return load("return ...", "n", "t", {})(5)"#, "true 5"),
    (r#"return (load("x = 1", "n", "b"))"#, "true nil"),
    (r#"return select(2, load("x = 1", "n", "b"))"#, "true attempt to load chunk with wrong mode"),
    (r#"return "\x41\z   b""#, "true Ab"),
    (r#"return string.rep("a", 3, ",")"#, "true a,a,a"),
    (
        r#"return ("%q"):format("a\nb")"#,
        r#"true "a\
b""#,
    ),
    ("return math.log(8, 2), math.log10(100)", "true 3 2"),
    ("return xpcall(function(...) return ... end, print, 1, 2)", "true true 1 2"),
    (r#"return tostring(setmetatable({}, { __tostring = function() return "mine" end }))"#, "true mine"),
    ("return getmetatable(setmetatable({}, { __metatable = 3 }))", "true 3"),
    (
        "return setmetatable({}, { __eq = function() return true end }) == setmetatable({}, { __eq = function() return true end })",
        "true false",
    ),
    (
        "return pcall(function() return setmetatable({}, { __lt = function() return 1 end }) < setmetatable({}, {}) end)",
        "true true true",
    ),
    (
        "return pcall(function() return setmetatable({}, { __lt = function() return false end }) <= setmetatable({}, {}) end)",
        "true true true",
    ),
    (
        r#"return pcall(function() return setmetatable({}, { __concat = function() return "c" end }) .. 1 end)"#,
        "true true c",
    ),
    (
        "return debug.setuservalue ~= nil, debug.getuservalue ~= nil, debug.upvalueid ~= nil",
        "true true true true",
    ),
    ("return setfenv ~= nil, getfenv ~= nil, module ~= nil, loadstring ~= nil", "true true true true true"),
    ("return tostring(-0.0), 10 / 2, 2 ^ 53, 7 % -3, math.fmod(-5, 3)", "true -0 5 9.007199254741e+15 -2 -2"),
    (
        r#"return tonumber("0x1p4"), tonumber("1e1"), tonumber("z", 36), tonumber("8", 8)"#,
        "true 16 10 35 nil",
    ),
    (r#"return ("x"):rep(0), ("abc"):byte(-1), #("a\0b")"#, "true  99 3"),
    (r#"return table.concat({ 1, 2, 3 }, "-", 2), select(-1, 1, 2, 3)"#, "true 2-3 3"),
    ("return bit.bor(1, 2), bit.tohex(255, 4), bit.band(2^32 + 1, 3)", "true 3 00ff 1"),
    (
        "return table.nkeys({ 1, 2, a = 3 }), table.isarray({ 1, 2 }), table.isarray({ a = 1 }), table.isempty({})",
        "true 3 true false true",
    ),
    ("local t = { 1, a = {} } local c = table.clone(t) return c ~= t, c[1], c.a == t.a", "true true 1 true"),
    // With the same places for the same keys, without the metatable; not one more than there were.
    ("local t = setmetatable({ 1, 2, nil, 4, [2.5] = 3 }, { __index = { z = 9 } }) for i = 1, 40 do t['k' .. i] = i end
      local c, same = table.clone(t), true
      local key, other
      repeat key, other = next(t, key), next(c, other) same = same and key == other and (not key or rawget(c, key) == t[key]) until not key
      c.k1, c.more = 0, 1
      return same, getmetatable(c), c.z, t.k1, t.more, c[4]", "true true nil nil 1 nil 4"),
    ("local t, sum = { a = 1, b = 2, c = 3 }, 0 for i = 1, 20000 do local c = table.clone(t) c.d = i sum = sum + c.a + c.d end return sum, next(table.clone({}))", "true 200030000 nil"),
    ("return pcall(table.clone, 1) == false and pcall(table.clone) == false", "true true"),
    (r#"local b = require "string.buffer".new() b:put("a", 1) return b:tostring(), #b"#, "true a1 2"),
    (
        "local old = jit.prngstate({ 1, 2, 3 }) local now, third = jit.prngstate(5), jit.prngstate(old)
         return #old, table.concat(now, ','), table.concat(third, ','), table.concat(jit.prngstate()) == table.concat(old)",
        "true 8 1,2,3,0,0,0,0,0 5,0,0,0,0,0,0,0 true",
    ),
    (
        "local function refused(state) return (select(2, pcall(jit.prngstate, state)):match('PRNG state must be an array')) end
         return refused(-1) == refused({ 1, 2 ^ 32 }), refused({ 1, 2, 3, 4, 5, 6, 7, 8, 9 }) == refused({ 0.5 }), refused(0.5)",
        "true true true PRNG state must be an array",
    ),
    (r#"return require "string.buffer".decode(require "string.buffer".encode({ 1, "x" }))[2]"#, "true x"),
];

#[test]
fn the_language_is_that_of_openresty() {
    let mut program = String::from(
        "for _, m in ipairs { 'nkeys', 'isarray', 'clone', 'isempty' } do require('table.' .. m) end
         local function shown(...)
             local all = {}
             for i = 1, select('#', ...) do all[i] = tostring((select(i, ...))) end
             return table.concat(all, ' ')
         end\n",
    );
    for (expression, _) in EXPRESSIONS {
        program += &format!("io.write(shown(pcall(loadstring([==[{expression}]==]))), '\\0')\n");
    }
    let said = lua(&program);
    let said: Vec<&str> = said.split_terminator('\0').collect();
    assert_eq!(said.len(), EXPRESSIONS.len());
    for ((expression, wanted), said) in EXPRESSIONS.iter().zip(said) {
        assert_eq!(said, *wanted, "{expression}");
    }
}

/// What a program of `weir lua` writes.
fn lua(program: &str) -> String {
    let directory = TempDir::new();
    directory.write("main.lua", program);
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output =
        weir.args(["lua", "main.lua"]).current_dir(directory.path()).output().expect("the binary starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("it writes text")
}

/// A server whose `/` says what `script` does.
fn serve(http: &str, script: &str) -> Server {
    let conf = format!(
        "worker_processes 2; events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location / {{ content_by_lua_block {{ {script} }} }} }} }}\n"
    );
    Server::builder(&conf).start()
}

fn say(http: &str, script: &str) -> String {
    serve(http, script).client().get("/").text()
}

/// Of a libcrypto that the system has; its absence is what `without_openssl...` is about.
fn has_openssl() -> bool {
    lua("local ffi = require 'ffi' print(pcall(ffi.load, 'crypto.so.3') or pcall(ffi.load, 'crypto'))")
        .starts_with("true")
}

/// `OBJ_sn2nid` is the first that lua-resty-openssl looks for; a script that loads `legacy` first has `default` still.
const OPENSSL: &str = "local ffi = require 'ffi'
    pcall(ffi.cdef, [[
        int OBJ_sn2nid(const char *);
        int weir_test_nowhere(void);
        void *OSSL_PROVIDER_load(void *, const char *);
        int OSSL_PROVIDER_available(void *, const char *);]])
    local ok, found = pcall(function() return ffi.C.OBJ_sn2nid('SHA256') end)
    ngx.say(ok, ' ', (tostring(found):gsub('^.*undefined symbol', 'undefined symbol')))
    if ok then
        pcall(ffi.C.OSSL_PROVIDER_load, nil, 'legacy')
        ngx.say('default ', ffi.C.OSSL_PROVIDER_available(nil, 'default'))
    end
    local other, why = pcall(function() return ffi.C.weir_test_nowhere end)
    ngx.say(other, ' ', (why:gsub('^.*undefined symbol', 'undefined symbol')))";

both_drivers! {
    fn openssl_is_found_by_its_names(driver) {
        if !has_openssl() {
            return println!("SKIPPED: libcrypto.so.3 is not installed");
        }
        let server = serve("", OPENSSL);
        // Of the second request's names some were looked up before.
        for _ in 0..2 {
            assert_eq!(
                server.client().get("/").text(),
                "true 672\ndefault 1\nfalse undefined symbol: weir_test_nowhere\n"
            );
        }
    }
}

#[test]
fn without_openssl_it_is_said_what_is_missing() {
    let off = say("weir_openssl off;", OPENSSL);
    assert_eq!(off, "false undefined symbol: OBJ_sn2nid\nfalse undefined symbol: weir_test_nowhere\n");
    let gone = say("weir_openssl /nowhere/libcrypto.so.3;", OPENSSL);
    let (first, second) = gone.split_once('\n').expect("two lines");
    assert!(
        first.starts_with("false undefined symbol: OBJ_sn2nid: ")
            && first.contains("/nowhere/libcrypto.so.3"),
        "{gone}"
    );
    assert_eq!(second, "false undefined symbol: weir_test_nowhere\n", "others fail as before");
}

#[test]
fn a_place_of_openssl_that_is_none_is_refused() {
    let conf = "events {}\nhttp {\n    weir_openssl on;\n}\n";
    let directory = TempDir::new();
    directory.write("weir.conf", conf);
    let weir = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["-t", "-p", ".", "-c", "weir.conf"])
        .current_dir(directory.path())
        .output()
        .expect("the binary starts");
    let err = String::from_utf8_lossy(&weir.stderr);
    assert!(
        err.contains("\"system\", \"off\" or the path of a libcrypto") && err.contains("weir.conf:3"),
        "{err}"
    );
}

#[test]
fn constants_variables_and_functions_of_nginx_are_found() {
    let said = lua(r#"local ffi = require 'ffi'
        ffi.cdef [[
            enum { A = 5 }; static const int B = 6; extern int opterr;
            typedef unsigned char u_char;
            u_char *ngx_hex_dump(u_char *dst, u_char *src, size_t len);
            intptr_t ngx_atoi(u_char *line, size_t n); intptr_t ngx_hextoi(u_char *line, size_t n);
            uint32_t ngx_murmur_hash2(u_char *data, size_t len);
            struct str { size_t len; u_char *data; }; intptr_t ngx_parse_time(struct str *line, uintptr_t is_sec);
        ]]
        local C = ffi.C
        C.opterr = 3
        print(C.A, C.B, C.opterr)
        local function bytes(text) return ffi.cast('u_char *', text) end
        local to = ffi.new('u_char[6]')
        print(ffi.string(to, C.ngx_hex_dump(to, bytes '\x00\xffa', 3) - to))
        print(tonumber(C.ngx_atoi(bytes '120', 3)), tonumber(C.ngx_hextoi(bytes 'fF', 2)), tonumber(C.ngx_atoi(bytes 'x', 1)))
        print(tonumber(C.ngx_parse_time(ffi.new('struct str', 3, bytes '1h5'), 1)), tonumber(C.ngx_parse_time(ffi.new('struct str', 2, bytes '1s'), 0)))
        for _, text in ipairs { '', 'a', 'ab', 'abc', 'abcd', 'abcde', 'hello world', '\255\254\253\252\251\250\249' } do
            io.write(tonumber(C.ngx_murmur_hash2(bytes(text), #text)), ' ')
        end
        print(pcall(function() return C.undeclared end))"#);
    // As nginx 1.31.5 has it.
    let hashes = "0 2456313694 446775395 324500635 646393889 1594468574 1151865881 4117637519 ";
    assert_eq!(
        said,
        format!(
            "5\t6\t3\n00ff61\n120\t255\t-1\n3605\t1000\n{hashes}false\tmain.lua:21: missing declaration for symbol 'undeclared'\n"
        )
    );
}

/// Libraries look for these before they do anything.
#[test]
fn what_openresty_has_from_the_beginning_is_there() {
    let said = lua(
        "print(type(package.loaded['resty.core']), ngx.config.nginx_configure():find('--with-pcre-jit', 1, true) ~= nil)
         local balancer = require 'ngx.balancer'
         print(balancer.set_current_peer('127.0.0.1', 80))
         print(balancer.set_more_tries(1))
         print(balancer.get_last_failure())
         print(balancer.set_timeouts(1, 1, 1))
         print(balancer.enable_keepalive())
         print(ngx._openssl)",
    );
    let wanted = "table\ttrue\nnil\tno upstream found\nnil\tno upstream found\nnil\tnil\tno upstream found\n\
                  false\tno upstream found\nnil\tno upstream found\nnil\n";
    assert_eq!(said, wanted);
}

/// Configurations of others have variables with names like Weir's own: `set` and `map` of them are theirs.
#[test]
fn names_of_weirs_own_variables_may_be_the_configurations() {
    let names = [
        "trace_id",
        "traceparent",
        "cause",
        "trace_run",
        "trace_kernel",
        "trace_total",
        "upstream_cause",
        "lua_alloc",
        "invalid_referer",
    ];
    for name in names {
        let http = format!("map $uri ${name} {{ default mapped; }}");
        assert_eq!(say(&http, &format!("ngx.print(ngx.var.{name})")), "mapped", "{name}");
        let conf = format!(
            "events {{}}\nhttp {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ set ${name} own; return 200 ${name}; }} }} }}\n"
        );
        assert_eq!(Server::builder(&conf).start().client().get("/").text(), "own", "{name}");
    }
}

both_drivers! {
    /// As OpenResty's master has them: `init_by_lua` runs in it before `env` counts.
    fn init_sees_the_environment_that_the_server_was_started_with(driver) {
        let conf = r#"worker_processes 2; events {} http {
            lua_package_path '/own/?.lua;;'; lua_package_cpath '/own/?.so;;';
            init_by_lua_block {
                seen = os.getenv 'WEIR_TEST_GIVEN' none = os.getenv 'WEIR_TEST_NONE'
                local ffi = require 'ffi'
                ffi.cdef 'int setenv(const char *name, const char *value, int overwrite);'
                ffi.C.setenv('WEIR_TEST_SET', 'by a script', 1)
                ffi.cdef 'extern char **environ;'
                function variables()
                    local found, environ, at = {}, ffi.C.environ, 0
                    assert(environ == ffi.C.environ, 'the same pointer')
                    while environ[at] ~= nil do
                        local variable = ffi.string(environ[at])
                        if variable:find '^WEIR_TEST' and not variable:find 'QUOTED' then found[#found + 1] = variable end
                        at = at + 1
                    end
                    table.sort(found)
                    return table.concat(found, ' ')
                end
                environ = variables()
                local program = io.popen [[printf '%s, %s, %s' "$WEIR_TEST_GIVEN" "$WEIR_TEST_QUOTED" "$WEIR_TEST_SET"; exit 3]]
                said = program:read '*a' .. ' ' .. select(3, program:close())
                ended = table.concat({ select(2, os.execute [[test "$WEIR_TEST_GIVEN" = x && exit 4]]) }, ' ') .. tostring(os.execute())
            }
            init_worker_by_lua_block { later = select(3, os.execute [[test -z "$WEIR_TEST_GIVEN" && exit 5]]) }
            server { listen 127.0.0.1:%%PORT%%; location / { content_by_lua_block {
                ngx.say(seen, ' ', none, ' ', os.getenv 'WEIR_TEST_GIVEN')
                ngx.say(environ, ', ', variables()) ngx.say(package.path) ngx.say(package.cpath) ngx.say(said) ngx.say(ended, ' ', later)
            } } } }"#;
        let quoted = "it's \"$HOME\" `x`";
        let given = [("WEIR_TEST_GIVEN", "x"), ("WEIR_TEST_QUOTED", quoted), ("WEIR_TEST_SET", "before"), ("LUA_PATH", "/given/?.lua;;"), ("LUA_CPATH", "/given/?.so")];
        let builder = given.iter().fold(Server::builder(conf), |builder, (name, value)| builder.env(name, value));
        let said = builder.start().client().get("/").text();
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("x nil nil"));
        assert_eq!(lines.next(), Some("WEIR_TEST_GIVEN=x WEIR_TEST_SET=by a script, WEIR_TEST_SET=by a script"));
        let path = lines.next().expect("the path");
        assert!(path.starts_with("/own/?.lua;/given/?.lua;") && path.contains("./?.lua"), "{path}");
        assert_eq!(lines.next(), Some("/own/?.so;/given/?.so;"));
        // Programs that it starts see it, too; what a script has set goes first.
        assert_eq!(lines.next(), Some(format!("x, {quoted}, by a script 3").as_str()));
        assert_eq!(lines.next(), Some("exit 4true 5"));
    }

    /// While the C library's system(3) waits, the process ignores SIGINT and SIGQUIT, and one that waits to be read is lost: a
    /// server would not quit. By `os.execute`, and as a module in C calls it.
    fn a_shell_that_is_waited_for_takes_no_signal_away(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; location / { content_by_lua_block {
                local ffi = require 'ffi'
                ffi.cdef 'int system(const char *command);'
                local look = [[grep -E 'Sig(Ign|Blk)' /proc/$PPID/status > %%DIR%%/parent; grep SigBlk /proc/self/status > %%DIR%%/own; exit 3]]
                local by = { lua = function() return select(3, os.execute(look)) end, c = function() return ffi.C.system(look) / 256 end }
                ngx.say(by[ngx.var.arg_by]())
            } } } }",
        ).driver(driver).start();
        let set = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a set");
            u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("hexadecimal")
        };
        // What starts the tests may have it ignore them.
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
        let before = set(&status, "SigIgn");
        for by in ["lua", "c"] {
            assert_eq!(server.get(&format!("/?by={by}")).text(), "3\n");
            let bits = |file: &str, name: &str| {
                let text = std::fs::read_to_string(server.dir().path().join(file)).expect("the shell wrote it");
                set(&text, name)
            };
            assert_eq!(bits("parent", "SigIgn") & !before, 0, "{by}");
            assert_eq!(bits("own", "SigBlk"), 0, "{by}: the program can be interrupted");
        }
    }
}
