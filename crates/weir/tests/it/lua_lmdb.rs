//! LMDB as lua-resty-lmdb uses it: its directives, and the C functions that the library calls.
//!
//! Operations are declared and given as the library does it, which is not needed here.

use weir_test::{Server, TestServerBuilder, both_drivers, wait_for};

const LMDB: &str = r#"
local ffi = require "ffi"
require "resty.core.base"
ffi.cdef [[
typedef unsigned int MDB_dbi;
typedef enum { NGX_LMDB_OP_GET = 0, NGX_LMDB_OP_PREFIX, NGX_LMDB_OP_SET, NGX_LMDB_OP_DB_OPEN, NGX_LMDB_OP_DB_DROP } ngx_lua_resty_lmdb_operation_e;
typedef struct {
    ngx_lua_resty_lmdb_operation_e opcode;
    ngx_str_t key, value;
    MDB_dbi dbi;
    unsigned int flags;
} ngx_lua_resty_lmdb_operation_t;
typedef struct {
    size_t map_size;
    unsigned int page_size, max_readers, num_readers, allocated_pages;
    size_t in_use_pages;
    unsigned int entries;
} ngx_lua_resty_lmdb_ffi_status_t;
int ngx_lua_resty_lmdb_ffi_env_info(ngx_lua_resty_lmdb_ffi_status_t *lst, char **err);
int ngx_lua_resty_lmdb_ffi_execute(ngx_lua_resty_lmdb_operation_t *ops, size_t n, int need_write, unsigned char *buf, size_t buf_len, char **err);
int ngx_lua_resty_lmdb_ffi_prefix(ngx_lua_resty_lmdb_operation_t *ops, size_t n, unsigned char *buf, size_t buf_len, char **err);
]]
local C, err, M = ffi.C, ffi.new "char *[1]", {}
local size, buffer = 4096, ffi.new("unsigned char[?]", 4096)
local CODES = { GET = C.NGX_LMDB_OP_GET, SET = C.NGX_LMDB_OP_SET, OPEN = C.NGX_LMDB_OP_DB_OPEN, DROP = C.NGX_LMDB_OP_DB_DROP }

-- Operations are { code, key, value or nil, dbi = , flags = }; their results, or nil and why not.
function M.execute(list, write, room)
    local ops = ffi.new("ngx_lua_resty_lmdb_operation_t[?]", #list)
    for at, op in ipairs(list) do
        local one = ops[at - 1]
        one.opcode, one.dbi, one.flags = CODES[op[1]], op.dbi or 0, op.flags or 0
        if op[2] then one.key.data, one.key.len = op[2], #op[2] end
        if op[3] then one.value.data, one.value.len = op[3], #op[3] end
    end
    local code = C.ngx_lua_resty_lmdb_ffi_execute(ops, #list, write, buffer, room or size, err)
    if code == -1 then return nil, ffi.string(err[0]) end
    if code == -2 then return nil, "again" end
    local results = {}
    for at = 1, #list do
        local one = ops[at - 1]
        if list[at][1] == "OPEN" then
            results[at] = one.dbi
        elseif list[at][1] == "GET" then
            results[at] = one.value.data ~= nil and ffi.string(one.value.data, one.value.len) or false
        else
            results[at] = true
        end
    end
    return results
end

function M.open(name, create)
    local done, why = M.execute({ { "OPEN", name, flags = create and 0x40000 or 0 } }, true)
    return done and done[1], why
end
function M.get(dbi, key)
    local done, why = M.execute({ { "GET", key, dbi = dbi } }, false)
    if done then return done[1] end
    return nil, why
end
function M.set(dbi, key, value) return M.execute({ { "SET", key, value, dbi = dbi } }, true) end

function M.prefix(dbi, start, prefix, most, room)
    local ops = ffi.new("ngx_lua_resty_lmdb_operation_t[?]", most)
    for at, text in ipairs { start, prefix } do
        ops[at - 1].opcode, ops[at - 1].key.data, ops[at - 1].key.len = C.NGX_LMDB_OP_PREFIX, text, #text
    end
    ops[0].dbi = dbi
    local count = C.ngx_lua_resty_lmdb_ffi_prefix(ops, most, buffer, room or size, err)
    if count < 0 then return count == -1 and ffi.string(err[0]) or tostring(count) end
    local found = {}
    for at = 0, count - 1 do
        found[#found + 1] = ffi.string(ops[at].key.data, ops[at].key.len) .. "=" .. ffi.string(ops[at].value.data, ops[at].value.len)
    end
    return table.concat(found, " ")
end

function M.info()
    local status = ffi.new "ngx_lua_resty_lmdb_ffi_status_t[1]"
    if C.ngx_lua_resty_lmdb_ffi_env_info(status, err) ~= 0 then return ffi.string(err[0]) end
    return tonumber(status[0].map_size) .. " " .. status[0].max_readers .. " " .. status[0].entries .. " " .. status[0].page_size
end
return M
"#;

fn conf(main: &str, init: &str, locations: &str) -> TestServerBuilder {
    let text = format!(
        "{main} events {{}}
         http {{ lua_package_path '$prefix/?.lua;;'; default_type text/plain; {init}
         server {{ listen 127.0.0.1:%%PORT%%; {locations} }} }}\n"
    );
    Server::builder(&text).file("db.lua", LMDB)
}

/// `path` runs a script with `db`.
fn at(path: &str, script: &str) -> String {
    format!("location {path} {{ content_by_lua_block {{ local db = require 'db' {script} }} }}\n")
}

both_drivers! {
    fn transactions_are_whole(driver) {
        let server = conf("lmdb_environment_path lmdb; lmdb_map_size 2m; lmdb_max_databases 3;", "", &[
            at("/all", "
                local function show(done, why) ngx.say(type(done) == 'table' and table.concat(done, ',') or tostring(done), ' ', tostring(why)) end
                show(db.open('one', false))
                local dbi = assert(db.open('one', true))
                ngx.say(dbi == db.open('one', false))
                ngx.say(db.set(dbi, 'k', 'v') ~= nil, ' ', db.get(dbi, 'k'), ' ', tostring(db.get(dbi, 'x')))
                ngx.say(db.set(dbi, 'empty', '') ~= nil, ' <', db.get(dbi, 'empty'), '>')
                show(db.set(dbi, 'x', nil))
                show(db.execute({ { 'SET', 'lost', '1', dbi = dbi }, { 'SET', 'x', nil, dbi = dbi } }, true))
                ngx.say(tostring(db.get(dbi, 'lost')))
                show(db.execute({ { 'SET', 'a', '1', dbi = dbi }, { 'GET', 'a', dbi = dbi } }, true)[2])
                show(db.set(dbi, ('k'):rep(512), 'v'))
                show(db.get(77, 'k'))
                show(db.execute({ { 'GET', 'k', dbi = dbi } }, false, 0))
                show(db.execute({ { 'SET', 'k', '2', dbi = dbi } }, false))
                local two = assert(db.open('two', true))
                db.set(two, 'other', '1')
                show(db.execute({ { 'DROP', flags = 0, dbi = dbi } }, true) ~= nil)
                ngx.say(tostring(db.get(dbi, 'k')), ' ', db.get(two, 'other'))
                show(db.execute({ { 'DROP', flags = 1, dbi = two } }, true) ~= nil)
                show(db.open('two', false))
                ngx.say(db.info():gsub('%d+$', ''))"),
            at("/full", "local dbi = db.open('one', true)
                local big = ('v'):rep(100000)
                for n = 1, 100 do
                    local done, why = db.set(dbi, 'big' .. n, big)
                    if not done then return ngx.say(why) end
                end"),
            at("/prefix", "
                local dbi = db.open('pages', true)
                for _, key in ipairs { 'a', 'b1', 'b2', 'b22', 'b3', 'c' } do db.set(dbi, key, key:upper()) end
                ngx.say(db.prefix(dbi, 'b', 'b', 10))
                ngx.say(db.prefix(dbi, 'b2', 'b', 2))
                ngx.say(db.prefix(dbi, 'z', 'z', 10), '|')
                ngx.say(db.prefix(dbi, 'b', 'b', 10, 5))
                ngx.say(db.prefix(99, 'b', 'b', 10))"),
        ].concat()).driver(driver).start();
        assert_eq!(server.get("/all").text().lines().collect::<Vec<_>>(), [
            "nil MDB_NOTFOUND: No matching key/data pair found",
            "true",
            "true v false",
            "true <>",
            "nil MDB_NOTFOUND: No matching key/data pair found",
            "nil MDB_NOTFOUND: No matching key/data pair found",
            "false",
            "1 nil",
            "nil MDB_BAD_VALSIZE: Unsupported size of key/DB name/data, or wrong DUPFIXED size",
            "nil Invalid argument",
            "nil again",
            "nil unknown opcode",
            "true nil",
            "false 1",
            "true nil",
            "nil MDB_NOTFOUND: No matching key/data pair found",
            "2097152 126 1 1",
        ]);
        assert_eq!(server.get("/prefix").text(), "b1=B1 b2=B2 b22=B22 b3=B3\nb2=B2 b22=B22\n|\n-2\nInvalid argument\n");
        assert_eq!(server.get("/full").text(), "MDB_MAP_FULL: Environment mapsize limit reached\n");
        assert_eq!(server.get("/prefix").text().lines().next(), Some("b1=B1 b2=B2 b22=B22 b3=B3"), "what was there stays");
    }

    /// Eight workers count at once; what one has written, all see; a reload and another start keep it.
    fn all_workers_share_it_and_it_stays(driver) {
        let script = [
            at("/add", "
                local dbi = db.open('count', true)
                local n = assert(db.execute({ { 'SET', ngx.var.arg_k, ngx.var.arg_k, dbi = dbi } }, true))
                ngx.print(ngx.worker.id())"),
            at("/all", "
                local dbi = db.open('count', true)
                local _, count = db.prefix(dbi, 'k', 'k', 500):gsub('=', '')
                ngx.print(count)"),
        ].concat();
        let main = "worker_processes 8; lmdb_environment_path lmdb; lmdb_map_size 4m; ";
        let mut server = conf(main, "", &script).driver(driver).start();
        let mut workers = std::collections::BTreeSet::new();
        std::thread::scope(|scope| {
            let adders: Vec<_> = (0..8).map(|thread| {
                let server = &server;
                scope.spawn(move || (0..25).map(|n| server.get(&format!("/add?k=k{thread}-{n}")).text()).collect::<Vec<_>>())
            }).collect();
            for adder in adders {
                workers.extend(adder.join().expect("no panic"));
            }
        });
        assert!(workers.len() > 1, "{workers:?}");
        assert_eq!(server.get("/all").text(), "200");
        let again = format!("{main} events {{}} http {{ lua_package_path '$prefix/?.lua;;'; server {{ listen 127.0.0.1:%%PORT%%; {script} location /new {{ return 200 new; }} }} }}");
        server.reload(&again);
        wait_for("the new configuration", || (server.get("/new").text() == "new").then_some(()));
        assert_eq!(server.get("/all").text(), "200");
        let _ = server.get("/add?k=k-after");
        assert_eq!(server.get("/all").text(), "201");
    }

    fn there_is_none_without_a_path_and_before_workers_start(driver) {
        let server = conf("", "", &at("/", "ngx.print(db.info(), '|', tostring(select(2, db.get(1, 'k'))), '|', db.prefix(1, 'a', 'b', 2))")).driver(driver).start();
        let words = "no LMDB environment defined";
        assert_eq!(server.get("/").text(), format!("{words}|{words}|{words}"));
        let server = conf("lmdb_environment_path lmdb;", "init_by_lua_block { early = require 'db'.info() }", &at("/", "ngx.print(early, '|', (db.info():match '^%d+'))")).driver(driver).start();
        assert_eq!(server.get("/").text(), format!("{words}|1048576"));
    }
}

/// The directory and its files are kept between starts: what `lmdb_validation_tag` says of them, and what is no database.
#[test]
fn tags_and_foreign_files() {
    let script = [
        at("/set", "ngx.print(db.set(db.open('d', true), 'k', ngx.var.arg_v) ~= nil)"),
        at("/get", "ngx.print(tostring(db.get(db.open('d', true), 'k')))"),
    ]
    .concat();
    let place = weir_test::TempDir::new();
    let path = place.path().join("lmdb").display().to_string();
    let start = |tag: &str| {
        let main = format!("lmdb_environment_path {path}; {tag}");
        conf(&main, "", &script).allow("LMDB").start()
    };
    let server = start("lmdb_validation_tag one;");
    let _ = server.error_log_line("LMDB validation tag does not exist, assuming empty database");
    assert_eq!(server.get("/set?v=1").text(), "true");
    drop(server);
    assert_eq!(start("lmdb_validation_tag one;").get("/get").text(), "1");
    assert_eq!(start("").get("/get").text(), "1", "without a tag nothing is compared");
    let mut server = start("lmdb_validation_tag two;");
    let _ = server.error_log_line("LMDB validation tag \"one\" did not match configured tag \"two\"");
    assert_eq!(server.get("/get").text(), "false");
    assert_eq!(server.get("/set?v=2").text(), "true");
    // A reload with another tag empties what is open.
    let main = format!("lmdb_environment_path {path}; lmdb_validation_tag three;");
    server.reload(&format!("{main} events {{}} http {{ lua_package_path '$prefix/?.lua;;'; server {{ listen 127.0.0.1:%%PORT%%; {script} location /new {{ return 200 new; }} }} }}"));
    wait_for("the new configuration", || (server.get("/new").text() == "new").then_some(()));
    assert_eq!(server.get("/get").text(), "false");
    drop(server);
    std::fs::write(place.path().join("lmdb/data.mdb"), vec![7; 10_000]).expect("written");
    let server = start("");
    let _ = server.error_log_line("LMDB database is corrupted or incompatible, removing");
    assert_eq!(server.get("/get").text(), "false");
    drop(server);
    // A file in place of the directory, as `os.tmpname` makes it.
    std::fs::remove_dir_all(&path).expect("removed");
    std::fs::write(&path, "").expect("written");
    let server = start("");
    let _ = server.error_log_line("LMDB database is corrupted or incompatible, removing");
    assert_eq!(server.get("/set?v=1").text(), "true");
    assert_eq!(server.get("/get").text(), "1");
}

/// Kong's `bin/busted` names a file that `os.tmpname` has made; what can't be replaced is reported.
#[test]
fn a_file_in_place_of_the_directory() {
    let place = weir_test::TempDir::new();
    let run = |path: &std::path::Path| {
        let main = format!("lmdb_environment_path {};", path.display());
        std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["lua", "--main-conf", &main, "-e", "print('ran')"])
            .output()
            .expect("weir lua runs")
    };
    let file = place.path().join("file");
    std::fs::write(&file, "foreign").expect("written");
    let done = run(&file);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "ran\n", "{}", String::from_utf8_lossy(&done.stderr));
    assert!(file.join("data.mdb").exists());
    let target = place.path().join("target");
    std::fs::create_dir(&target).expect("made");
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&target, &link).expect("linked");
    assert_eq!(String::from_utf8_lossy(&run(&link).stdout), "ran\n", "a link to a directory is one");
    assert!(link.is_symlink() && target.join("data.mdb").exists());
}

both_drivers! {
    /// As lua-resty-events' broker: one worker takes the connections of a socket, the others want none.
    fn connections_of_a_socket_go_to_the_workers_that_want_them(driver) {
        let server = Server::builder("worker_processes 4; events {}
            http { init_worker_by_lua_block {
                local ffi = require 'ffi'
                require 'resty.core.base'
                ffi.cdef 'int ngx_lua_ffi_disable_listening_unix_socket(ngx_str_t *sock_name);'
                local name, text = 'unix:' .. ngx.config.prefix() .. 'broker', ffi.new 'ngx_str_t[1]'
                text[0].data, text[0].len = name, #name
                if ngx.worker.id() ~= 2 then assert(ffi.C.ngx_lua_ffi_disable_listening_unix_socket(text) == 0) end
                text[0].data, text[0].len = 'unix:/no', 8
                assert(ffi.C.ngx_lua_ffi_disable_listening_unix_socket(text) == -1)
            }
            server { listen unix:%%DIR%%/broker; location / { content_by_lua_block { ngx.print(ngx.worker.id()) } } }
            server { listen 127.0.0.1:%%PORT%%; location / { content_by_lua_block { ngx.print(ngx.worker.id()) } } } }")
            .driver(driver).start();
        let path = server.dir().path().join("broker");
        for _ in 0..20 {
            assert_eq!(weir_test::Client::connect_unix(&path).get("/").text(), "2");
        }
        let others: std::collections::BTreeSet<String> = (0..40).map(|_| server.get("/").text()).collect();
        assert!(others.len() > 1, "other sockets are all workers': {others:?}");
    }
}
