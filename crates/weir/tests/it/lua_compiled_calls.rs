//! Calls of `ngx.*` do not end compiled code where they don't in OpenResty: each is run in a hot loop, and what LuaJIT's compiler
//! made of it is looked at. `conformance/hot-loops` shows the same of OpenResty.

use std::collections::HashMap;

use weir_test::{Server, both_drivers};

/// What is not a loop of machine code, and why; with (*) nor is it in OpenResty.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("dict get_keys", "(*) makes a table of texts in C"),
    ("dict flush_expired", "(*) a function of C"),
    ("dict lpush", "(*) a function of C"),
    ("dict llen", "(*) a function of C"),
    ("encode_args", "(*) goes over a table by `next`"),
    ("hmac_sha1", "(*) a function of C"),
    ("config.prefix", "(*) a function of C"),
    ("coroutine.running", "(*) LuaJIT does not compile it"),
    ("timer.pending_count", "(*) a function of C"),
    ("tostring null", "(*) LuaJIT does not compile `tostring` of a userdata"),
    ("ndk.set_var", "OpenResty without set-misc has no such function; the result is a function that is made"),
    ("semaphore", "coroutines that wait are not reached from compiled code"),
    ("semaphore count", "as above"),
    ("var get capture text", "a capture by the text of its number, which is none in OpenResty"),
];

both_drivers! {
    fn calls_are_compiled_as_in_openresty(driver) {
        let conf = "events {}\nhttp { lua_shared_dict d 1m; server { listen 127.0.0.1:%%PORT%%;
            location ~ ^/(h)ot { set $own ''; content_by_lua_file hot.lua; } } }\n";
        let server = Server::builder(conf).file("hot.lua", include_str!("../data/lua_hot_loops.lua")).start();
        let mut client = server.client();
        client.send("GET /hot?a=1 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n\r\n");
        let response = client.response();
        let said = response.text();
        let found: HashMap<&str, &str> = said.lines().filter_map(|line| line.split_once(" = ")).collect();
        assert!(found.len() > 180, "{said}");
        let mut wrong = Vec::new();
        for (name, what) in &found {
            match (EXCEPTIONS.iter().any(|(exception, _)| exception == name), *what) {
                (false, "loop") => {}
                (true, what) if what != "loop" && !what.starts_with("ERROR") => {}
                (true, "loop") => wrong.push(format!("{name} is compiled: it is no exception any more")),
                (_, what) => wrong.push(format!("{name}: {what}")),
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        for (name, _) in EXCEPTIONS {
            assert!(found.contains_key(name), "{name} is not run");
        }
    }
}

/// What became of the values `1` and `2` in a table, and of `add_header` with one and then the other: as ngx_lua 0.10.32 does it.
const FIELDS: &str = "req Host 2 2|req If-Match 2 2|req Content-Type 2 2|req Range 2 2|req Authorization 2 2|req Date 2 2|\
    req X-Real-IP 2 2|req X-Forwarded-For 1,2 1,2|req Cookie 1,2 1,2|req Accept 1,2 1,2|req X 1,2 1,2|\
    resp ETag 2 2|resp Content-Type 2 2|resp Content-Length 2 2|resp Server 2 2|resp Location 2 2|resp Expires 2 2|\
    resp Refresh 2 2|resp Content-Range 2 2|resp Cache-Control 1,2 1,2|resp Link 1,2 1,2|resp Set-Cookie 1,2 1,2|resp x_a 1,2 1,2";

both_drivers! {
    /// First by the interpreter, then by compiled code.
    fn fields_of_which_there_is_one(driver) {
        let script = "
            local req, resp = require 'ngx.req', require 'ngx.resp'
            local function shown(value) return type(value) == 'table' and table.concat(value, ',') or tostring(value) end
            local function request(name)
                ngx.req.set_header(name, { '1', '2' })
                local set = shown(ngx.req.get_headers()[name])
                ngx.req.clear_header(name) req.add_header(name, '1') req.add_header(name, '2')
                local added = shown(ngx.req.get_headers()[name])
                ngx.req.clear_header(name)
                return 'req ' .. name .. ' ' .. set .. ' ' .. added
            end
            local function response(name)
                ngx.header[name] = { '1', '2' }
                local set = shown(ngx.header[name])
                ngx.header[name] = nil resp.add_header(name, '1') resp.add_header(name, '2')
                local added = shown(ngx.header[name])
                ngx.header[name] = nil
                return 'resp ' .. name .. ' ' .. set .. ' ' .. added
            end
            local wanted, wrong = ngx.req.get_body_data(), {}
            for _ = 1, 100 do
                for line in wanted:gmatch '[^|]+' do
                    local kind, name = line:match '^(%a+) (%S+)'
                    local found = (kind == 'req' and request or response)(name)
                    if found ~= line then wrong[#wrong + 1] = line .. ': ' .. found end
                end
            end
            ngx.say(table.concat(wrong, '; ', 1, math.min(#wrong, 9)))
            -- The head is sent: nothing is written, and that is logged.
            resp.add_header('X-Late', '1') ngx.header.x_late = { '1', '2' }
            ngx.say(ngx.header.x_late, ' ', pcall(function() ngx.header['Content-Length'] = 'x' end))";
        let conf = format!(
            "events {{}}\nhttp {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ client_body_buffer_size 64k; lua_need_request_body on;\n\
             content_by_lua_block {{ {script} }} }} }} }}\n"
        );
        let server = Server::builder(&conf).start();
        let mut client = server.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{FIELDS}", FIELDS.len()));
        assert_eq!(client.response().text(), "\nnil true\n");
        let _ = server.error_log_line("attempt to set ngx.header.HEADER after sending out response headers");
    }
}

both_drivers! {
    /// A copy of `ngx`, as Kong's sandbox makes for each request, has no places that nothing is in.
    fn the_table_of_the_api_has_no_room_to_spare(driver) {
        let script = "
            local ffi, wrong = require 'ffi', {}
            -- LuaJIT's `hmask` of a table.
            local function places(t) return ffi.cast('uint32_t *', tonumber(string.format('%p', t)))[13] + 1 end
            local function look(t, name)
                local count = 0
                for _ in pairs(t) do count = count + 1 end
                if places(t) > 2 * count and places(t) > 2 then wrong[#wrong + 1] = name .. ' ' .. places(t) .. ' for ' .. count end
                for key, value in pairs(t) do if type(value) == 'table' then look(value, name .. '.' .. key) end end
            end
            look(ngx, 'ngx')
            ngx.say(#wrong == 0 and 'none' or table.concat(wrong, ', '))";
        let conf = format!(
            "events {{}}\nhttp {{ lua_shared_dict d 1m; server {{ listen 127.0.0.1:%%PORT%%; location / {{\n\
             content_by_lua_block {{ {script} }} }} }} }}\n"
        );
        let server = Server::builder(&conf).start();
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "none\n");
    }
}
