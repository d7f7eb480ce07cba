//! What libraries reach into ngx_lua and lua-resty-core for: C functions by `ffi.C`, and the fields of `resty.core.*`.

use std::process::Command;

use weir_test::{Server, TempDir, both_drivers};

/// The fields of lua-resty-core 0.1.33's modules and lua-resty-lrucache's; those that are no functions with their kind.
const FIELDS: &[(&str, &str)] = &[
    ("resty.core", "version:string"),
    (
        "resty.core.base",
        "FFI_ABORT:number FFI_AGAIN:number FFI_BAD_CONTEXT:number FFI_BUSY:number FFI_DECLINED:number FFI_DONE:number FFI_ERROR:number FFI_NO_REQ_CTX:number FFI_OK:number allows_subsystem clear_tab get_errmsg_ptr get_request get_size_ptr get_string_buf get_string_buf_size new_tab ref_in_table set_string_buf_size version:string",
    ),
    ("resty.core.base64", "version:string"),
    ("resty.core.coroutine", "version:string"),
    ("resty.core.ctx", "_VERSION:string get_ctx_table"),
    ("resty.core.exit", "version:string"),
    ("resty.core.hash", "version:string"),
    ("resty.core.misc", "_VERSION:string register_ngx_magic_key_getter register_ngx_magic_key_setter"),
    ("resty.core.ndk", "version:string"),
    ("resty.core.param", "version:string"),
    ("resty.core.phase", "version:string"),
    (
        "resty.core.regex",
        "check_buf_size collect_captures destroy_compiled_regex is_regex_cache_empty re_match_compile re_sub_compile set_buf_grow_ratio version:string",
    ),
    ("resty.core.request", "set_req_header version:string"),
    ("resty.core.response", "bypass_if_checks set_resp_header version:string"),
    ("resty.core.shdict", "version:string"),
    ("resty.core.socket", "version:string"),
    ("resty.core.time", "monotonic_msec monotonic_time version:string"),
    ("resty.core.uri", "version:string"),
    ("resty.core.utils", "str_replace_char version:string"),
    ("resty.core.var", "version:string"),
    ("resty.core.worker", "_VERSION:string"),
    ("resty.lrucache", "_VERSION:string capacity count delete flush_all get get_keys new set"),
    ("resty.lrucache.pureffi", "_VERSION:string capacity count delete flush_all get get_keys new set"),
];

/// Libraries use them without a declaration of their own: lua-resty-core has declared them.
#[test]
fn types_of_lua_resty_core_are_there_from_the_start() {
    let program = "local ffi = require 'ffi'
        print(ffi.sizeof 'ngx_str_t', ffi.sizeof 'ngx_http_lua_ffi_str_t', ffi.sizeof 'ngx_http_lua_ffi_table_elt_t')
        print(ffi.offsetof('ngx_http_lua_ffi_table_elt_t', 'value'), ffi.typeof 'ngx_http_request_t *')";
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["lua", "-e", program]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "16\t16\t32\n16\tctype<struct ngx_http_request_s *>\n"
    );
}

#[test]
fn modules_have_the_fields_of_lua_resty_core() {
    let mut program = String::from(
        "local function shown(name)
             local names = {}
             for field, value in pairs(require(name)) do
                 if type(value) ~= 'table' then
                     names[#names + 1] = field .. (type(value) == 'function' and '' or ':' .. type(value))
                 end
             end
             table.sort(names)
             return table.concat(names, ' ')
         end\n",
    );
    for (module, _) in FIELDS {
        program += &format!("print(shown '{module}')\n");
    }
    let directory = TempDir::new();
    directory.write("main.lua", &program);
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output =
        weir.args(["lua", "main.lua"]).current_dir(directory.path()).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().count(), FIELDS.len(), "{output:?}");
    for ((module, fields), said) in FIELDS.iter().zip(said.lines()) {
        assert_eq!(said, *fields, "{module}");
    }
}

fn serve(locations: &str) -> Server {
    let conf = format!(
        "worker_processes 2; events {{}}\nhttp {{ lua_shared_dict d 1m;
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain; {locations} }} }}\n"
    );
    Server::builder(&conf).start()
}

fn say(script: &str) -> String {
    serve(&format!("location / {{ content_by_lua_block {{ {script} }} }}")).client().get("/a?b=1").text()
}

both_drivers! {
    /// As Kong and APIcast pass `ngx.ctx` over an internal redirect.
    fn contexts_are_found_by_their_numbers(driver) {
        let server = serve(
            "location /a { set $ref ''; rewrite_by_lua_block { ngx.ctx.seen = 'before' } content_by_lua_block {
                 local ref = require 'ffi'.C.ngx_http_lua_ffi_get_ctx_ref(require 'resty.core.base'.get_request(), nil, nil)
                 ngx.var.ref = ref
                 ngx.exec '/b'
             } }
             location /b { internal; content_by_lua_block {
                 local all = debug.getregistry().ngx_lua_ctx_tables
                 local ctx = all[tonumber(ngx.var.ref)]
                 ngx.ctx = ctx
                 ngx.print(ctx.seen, ' ', ngx.ctx.seen, ' ', type(all))
             } }
             location /none { content_by_lua_block {
                 ngx.print(require 'ffi'.C.ngx_http_lua_ffi_get_ctx_ref(nil, nil, nil))
             } }",
        );
        for _ in 0..3 {
            assert_eq!(server.client().get("/a").text(), "before before table");
            assert_eq!(server.client().get("/none").text(), "-2");
        }
    }
}

both_drivers! {
    /// Each as in the phase it is asked in: the number of the phase, a context's number or -100 or -2, what became of a line.
    fn in_every_phase(driver) {
        let names = "local C, base = require 'ffi'.C, require 'resty.core.base'
            local err = base.get_errmsg_ptr()
            local function said()
                local ref = C.ngx_http_lua_ffi_get_ctx_ref(base.get_request(), nil, nil)
                return C.ngx_http_lua_ffi_get_phase(base.get_request(), err) .. (ref >= 0 and '+' or tostring(ref)) ..
                    C.ngx_http_lua_ffi_raw_log(nil, 8, 'raw', 3) .. C.ngx_http_lua_ffi_raw_log(nil, 99, 'raw', 3)
            end";
        let conf = format!(
            "worker_processes 2; events {{}}\nhttp {{ lua_shared_dict d 1m;
             init_by_lua_block {{ {names} ngx.shared.d:set('init', said() .. require 'ffi'.string(err[0])) _G.said = said }}
             init_worker_by_lua_block {{ ngx.shared.d:set('init_worker', said())
                 ngx.timer.at(0, function() ngx.shared.d:set('timer', said()) end) }}
             upstream u {{ server 0.0.0.1; balancer_by_lua_block {{ ngx.shared.d:set('balancer', said())
                 require 'ngx.balancer'.set_current_peer('127.0.0.1', %%PORT%%) }} }}
             server {{ listen 127.0.0.1:%%PORT%%;
             location / {{
                 set_by_lua_block $s {{ ngx.shared.d:set('set', said()) return '' }}
                 rewrite_by_lua_block {{ ngx.shared.d:set('rewrite', said()) ngx.ctx.a = 1 }}
                 access_by_lua_block {{ ngx.shared.d:set('access', said()) }}
                 header_filter_by_lua_block {{ ngx.shared.d:set('header_filter', said()) }}
                 body_filter_by_lua_block {{ ngx.shared.d:set('body_filter', said()) }}
                 log_by_lua_block {{ ngx.shared.d:set('log', said()) }}
                 proxy_pass http://u/done;
             }}
             location /done {{ return 200 x; }}
             location /said {{ content_by_lua_block {{
                 for name in ('init init_worker timer set rewrite access header_filter body_filter log balancer'):gmatch '%S+' do
                     local value
                     repeat value = ngx.shared.d:get(name) if not value then ngx.sleep(0.01) end until value
                     ngx.say(name, ' ', value)
                 end
             }} }} }} }}\n"
        );
        let server = Server::builder(&conf).start();
        assert_eq!(server.client().get("/").text(), "x");
        assert_eq!(
            server.client().get("/said").text(),
            "init -1-1000-1no request context\ninit_worker 256-1000-1\ntimer 128-20-1\nset 1-20-1\nrewrite 2-20-1\n\
             access 4+0-1\nheader_filter 32+0-1\nbody_filter 64+0-1\nlog 16+0-1\nbalancer 512+0-1\n"
        );
    }
}

#[test]
fn of_the_request_and_dictionaries() {
    let said = say(
        "local ffi = require 'ffi'
         local C, base = ffi.C, require 'resty.core.base'
         local r = base.get_request()
         ngx.say(type(r), ' ', tostring(ffi.typeof(r)), ' ', type(require 'thread.exdata'()))
         ngx.say(C.ngx_http_lua_ffi_req_get_method(r), ' ', C.ngx_http_lua_ffi_get_resp_status(r), ' ', ngx.get_raw_phase(r))
         ffi.cdef [[ typedef struct { int len; const unsigned char *data; } fstr; typedef struct { fstr key, value; } felt; ]]
         local cut = ffi.new 'int[1]'
         local count = C.ngx_http_lua_ffi_req_get_headers_count(r, 100, cut)
         local into = ffi.new('felt[?]', count)
         C.ngx_http_lua_ffi_req_get_headers(r, into, count, 0)
         local function text(s) return ffi.string(s.data, s.len) end
         for at = 0, count - 1 do ngx.say(text(into[at].key), ' ', #text(into[at].value) > 0) end
         ngx.say(ngx.req.get_headers().host ~= nil)
         ngx.shared.d:set('k', 'value', 0, 7)
         ngx.shared.d:set('n', 2.5)
         local zone = C.ngx_http_lua_ffi_shdict_udata_to_zone(ngx.shared.d[1])
         local kind, buffer, size, number, flags, stale, err = ffi.new 'int[1]', ffi.new 'unsigned char *[1]', ffi.new('size_t[1]', 3), ffi.new 'double[1]', ffi.new 'int[1]', ffi.new 'int[1]', ffi.new 'char *[1]'
         local room = ffi.new 'unsigned char[3]'
         buffer[0] = room
         ngx.say(C.ngx_http_lua_ffi_shdict_get(zone, 'k', 1, kind, buffer, size, number, flags, 0, stale, err), ' ', kind[0], ' ',
             ffi.string(buffer[0], size[0]), ' ', flags[0], ' ', buffer[0] == room)
         ffi.cdef 'void free(void *);'
         C.free(buffer[0])
         ngx.say(C.ngx_http_lua_ffi_shdict_get(zone, 'n', 1, kind, buffer, size, number, flags, 0, stale, err), ' ', kind[0], ' ', number[0])
         ngx.say(C.ngx_http_lua_ffi_shdict_get(zone, 'x', 1, kind, buffer, size, number, flags, 0, stale, err), ' ', kind[0])
         number[0] = 3
         ngx.say(C.ngx_http_lua_ffi_shdict_incr(zone, 'n', 1, number, err, 0, 0, 0, stale), ' ', number[0])
         ngx.say(C.ngx_http_lua_ffi_shdict_incr(zone, 'k', 1, number, err, 0, 0, 0, stale), ' ', ffi.string(err[0]))
         ngx.say(C.ngx_http_lua_ffi_shdict_store(zone, 0, 's', 1, 4, 'text', 4, 0, 0, 0, err, stale), ' ', ngx.shared.d:get 's')
         ngx.say(C.ngx_http_lua_ffi_shdict_store(zone, 1, 's', 1, 4, 'text', 4, 0, 0, 0, err, stale), ' ', ffi.string(err[0]))
         ngx.say((select(2, pcall(C.ngx_http_lua_ffi_shdict_capacity, ffi.cast('void *', 64))):gsub('^.*:%d+: ', '')))
         ngx.say(C.ngx_http_lua_ffi_shdict_capacity(zone))
         ngx.say(pcall(function() return C.ngx_http_lua_ffi_nothing end))",
    );
    let (fields, dict) = said.split_once("host true\ntrue\n").unwrap_or((&said, ""));
    assert!(fields.starts_with("cdata ctype<void *> cdata\n2 200 8\n"), "{said}");
    assert!(
        dict.starts_with(
            "0 4 value 7 false\n0 3 2.5\n-5 0\n0 5.5\n-1 not a number\n0 text\n-5 exists\nbad \"zone\" argument\n1048576\nfalse"
        ),
        "{said}"
    );
}

/// As lua-resty-url does it; patterns that were destroyed, and positions that there are not, match nothing.
#[test]
fn patterns_are_structs() {
    let said = say("local ffi, core = require 'ffi', require 'resty.core.regex'
         local C = ffi.C
         local function try(compiled, flags, subject, from)
             local groups = C.ngx_http_lua_ffi_exec_regex(compiled, flags, subject, #subject, from or 0)
             if groups < 1 then return ngx.say(groups) end
             local found = core.collect_captures(compiled, groups, subject, flags)
             ngx.say(groups, ' ', found[0], ' ', found[1], ' ', found[2], ' ', found.first, ' ', #found)
         end
         ngx.say(core.is_regex_cache_empty())
         for _, options in ipairs { 'jo', '', 'o', 'D' } do
             local compiled, once, flags = core.re_match_compile('(?<first>[a-z]+)(\\\\d+)?', options)
             ngx.say(compiled.ncaptures, ' ', compiled.name_count, ' ', once, ' ', flags)
             try(compiled, flags, '--ab12')
             try(compiled, flags, '--ab--')
             try(compiled, flags, '----')
             try(compiled, flags, 'ab', 2)
             try(compiled, flags, 'ab', 99)
             try(compiled, flags, 'ab', -1)
         end
         ngx.say(core.is_regex_cache_empty())
         local compiled = core.re_match_compile('a', '')
         core.destroy_compiled_regex(compiled)
         core.destroy_compiled_regex(compiled)
         try(compiled, 0, 'a')
         ngx.say(core.re_match_compile('(', 'jo'))
         ngx.say((select(2, pcall(core.re_match_compile, 'a', '!')):gsub('^.*:%d+: ', '')))
         ngx.say(core.re_sub_compile('a', '', '$x'))
         local why = ffi.new 'unsigned char[64]'
         local made = C.ngx_http_lua_ffi_compile_regex('B', 1, 0, 8, why, 64)
         try(made, 0, 'ab')
         ngx.say(C.ngx_http_lua_ffi_compile_regex('(', 1, 0, 0, why, 64) == nil, ' ', ffi.string(why))
         for at = 1, 3000 do core.re_match_compile('x' .. at) end
         collectgarbage() collectgarbage()
         ngx.say(ngx.re.match('ab', '(b)', 'jo')[1])");
    let each = "3 ab12 ab 12 ab 2\n2 ab ab false ab 2\n-1\n-1\n-1\n2 ab ab false ab 2\n";
    let mut wanted = String::from("true\n");
    for (once, flags) in [(true, 5), (false, 0), (true, 1), (false, 8)] {
        let named = each.replace("first ", "");
        wanted += &format!("2 1 {once} {flags}\n{named}");
    }
    assert!(said.contains("false\n-31\nnilpcre2_compile() failed: "), "{said}");
    assert_eq!(said.lines().take(29).collect::<Vec<_>>(), wanted.lines().collect::<Vec<_>>(), "{said}");
    assert!(said.ends_with("b\n"), "{said}");
}

/// APIcast lists its services so.
#[test]
fn what_a_cache_holds_is_seen_from_outside() {
    let program = "local cache = require 'resty.lrucache'.new(3)
        local function show()
            local seen = {}
            for key, value in pairs(cache.hasht) do seen[#seen + 1] = tostring(key) .. '=' .. tostring(value) end
            table.sort(seen)
            print(table.concat(seen, ' '))
        end
        show()
        for at = 1, 4 do cache:set('k' .. at, at) end
        cache:set('k2', 'two')
        cache:set('k3', false)
        show()
        cache:delete 'k4'
        show()
        print(cache.hasht.k2, cache.hasht.k4, cache.hasht.k3)
        cache:flush_all()
        show()
        cache:set(1, 'one')
        show()";
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.args(["lua", "-e", program]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "\nk2=two k3=false k4=4\nk2=two k3=false\ntwo\tnil\tfalse\n\n1=one\n", "{output:?}");
}

/// Of Weir's own names those of `resty.core` stay Weir's, and those of digests where there is no OpenSSL for others'.
#[test]
fn libraries_in_the_path_go_first() {
    let names = ["random", "string", "sha1", "lrucache", "lock", "core.base", "core.regex"];
    let run = |http: &str| {
        let directory = TempDir::new();
        for name in names {
            let path = format!("lib/resty/{}.lua", name.replace('.', "/"));
            directory.write(&path, "return { mine = 'mine' }");
        }
        let conf = format!(
            "events {{}}\nhttp {{ {http} lua_package_path '{}/lib/?.lua;;';
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{
                 for name in ('{}'):gmatch '%S+' do ngx.print(name, '=', require('resty.' .. name).mine or 'weir', ' ') end
             }} }} }} }}\n",
            directory.path().display(),
            names.join(" "),
        );
        Server::builder(&conf).start().client().get("/").text()
    };
    assert_eq!(
        run("weir_openssl off;"),
        "random=weir string=mine sha1=weir lrucache=mine lock=mine core.base=weir core.regex=weir "
    );
    let with = run("");
    assert!(with.contains("string=mine") && with.ends_with("core.base=weir core.regex=weir "), "{with}");
}

/// The page of names says of each of nginx's whether Weir has it; `conformance/c-names` writes it from checkouts that no test has.
#[test]
fn the_page_of_names_is_true() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/lua-c-names.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (table, rest) = page.split_once("\n## That only lua-resty-core calls\n").expect("the second part");
    let mut wanted = Vec::new();
    for row in table.lines().filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        wanted.push((cells[1].trim_matches('`'), cells[3] == "yes"));
    }
    let (core, _) = rest.split_once("\n## ").expect("the third part");
    let core = core.lines().find(|line| line.starts_with('`')).expect("names");
    wanted.extend(core.split(", ").map(|name| (name.trim_matches(['`', '.']), true)));
    assert!(wanted.len() > 150, "{}", wanted.len());
    let names: Vec<_> = wanted.iter().map(|(name, _)| *name).collect();
    let program = format!(
        "local ffi = require 'ffi'
         for name in ('{}'):gmatch '%S+' do
             pcall(ffi.cdef, 'void ' .. name .. '(void);')
             print(pcall(function() return ffi.C[name] end))
         end",
        names.join(" ")
    );
    let directory = TempDir::new();
    directory.write("main.lua", &program);
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.args(["lua", "main.lua"]).current_dir(directory.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let found: Vec<_> = said.lines().map(|line| line.starts_with("true")).collect();
    assert_eq!(found.len(), names.len(), "{output:?}");
    let wrong: Vec<_> = wanted.iter().zip(found).filter(|((_, known), found)| known != found).collect();
    assert!(wrong.is_empty(), "conformance/c-names is to write the page again: {wrong:?}");
}
