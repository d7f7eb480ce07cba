//! What scripts read again: compiled code keeps values of dictionaries, variables and fields, and must not keep them for
//! longer than they hold.

use weir_test::{Server, both_drivers};

fn serve(http: &str, locations: &str) -> Server {
    let conf = format!(
        "worker_processes 2;\nevents {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         {locations}\n}} }}\n"
    );
    Server::builder(&conf).start()
}

/// Reads often enough for anything to be cached and compiled.
const HOT: &str =
    "local function hot(read) local value for _ = 1, 200 do value = read() end return value end";

both_drivers! {
    fn a_dictionary_s_value_is_the_last(driver) {
        let script = "local d = ngx.shared.d local function get() return d:get('k') end
            local function is(wanted, flags) local value, its = hot(get), select(2, get())
                if value ~= wanted or its ~= flags then error(tostring(value) .. ' for ' .. tostring(wanted)) end end
            d:delete('k') is(nil) d:set('k', 'one') is('one') d:set('k', 'one') is('one') d:set('k', 'two') is('two')
            d:set('k', 'two', 0, 7) is('two', 7) d:set('k', 'two') is('two') d:replace('k', 'three') is('three')
            d:delete('k') is(nil) d:add('k', 'four') is('four') d:add('k', 'five') is('four')
            d:set('k', nil) is(nil) d:set('k', 5) is(5) d:incr('k', 1) is(6) d:set('k', true) is(true)
            d:set('k', '6') is('6') d:incr('k', 1) is('6') d:set('k', ('x'):rep(300)) is(('x'):rep(300))
            d:set('k', 'short') is('short') d:flush_all() is(nil) d:set('k', 'short') is('short')
            d:delete('k') d:rpush('k', 'x') is(nil, 'value is a list') d:lpop('k') is(nil) d:set('k', 'end') is('end')
            for _ = 1, 200 do d:set('k', 'end') end is('end')
            d:expire('k', 0.001) repeat ngx.sleep(0.002) until d:get('k') == nil is(nil)
            d:set('k', 'end', 0.5) is('end') repeat ngx.sleep(0.05) until hot(get) == nil
            d:set('k', 'end') is('end') d:set('k', 'end', 0.001) repeat ngx.sleep(0.002) until hot(get) == nil
            d:set('k', 'end') is('end') ngx.print(d:ttl('k'))";
        let locations = format!("location / {{ content_by_lua_block {{ {HOT} {script} }} }}");
        let server = serve("lua_shared_dict d 1m;", &locations);
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "0");
        }
    }

    fn another_worker_s_value_is_seen(driver) {
        let locations = format!(
            "location /set {{ content_by_lua_block {{ ngx.shared.d:set('k', ngx.var.arg_to) ngx.print(ngx.worker.id()) }} }}
             location /get {{ content_by_lua_block {{ {HOT}
                ngx.print(hot(function() return ngx.shared.d:get('k') end)) }} }}"
        );
        let server = serve("lua_shared_dict d 1m;", &locations);
        let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
        for round in 0..40 {
            clients[round % 8].get(&format!("/set?to=value-{round}"));
            for client in &mut clients {
                assert_eq!(client.get("/get").text(), format!("value-{round}"));
            }
        }
    }

    fn what_is_read_without_a_call_is_used(driver) {
        // Of 8 KB some 60 entries; the one that is read all the time stays, those that are only written go.
        let script = "local d = ngx.shared.small d:set('kept', 'value')
            for at = 1, 2000 do d:get('kept') if at % 2 == 0 then d:set('kept', 'value') end d:set('k' .. at, 'another value') end
            ngx.print(d:get('kept'), ' ', d:get('k1'), ' ', d:get('k2000'))";
        let server = serve("lua_shared_dict small 8k;", &format!("location / {{ content_by_lua_block {{ {script} }} }}"));
        assert_eq!(server.client().get("/").text(), "value nil another value");
    }

    fn a_module_is_the_one_that_is_loaded(driver) {
        let script = "local function get() return require 'made' end
            local function is(made, wanted)
                package.loaded.made, package.preload.made = nil, made and function() return made end
                local good, module = pcall(hot, get)
                if not good then module = module:match(\"module 'made' not found\") end
                if module ~= wanted then error(tostring(module) .. ', not ' .. tostring(wanted)) end end
            local one, two = {}, {}
            is(one, one) is(two, two) is(true, true) is('text', 'text') is(nil, \"module 'made' not found\") is(one, one)
            package.preload.made, package.loaded.made = nil, nil
            package.preload.made = function() return require 'made' end
            local _, circle = pcall(get)
            local _, wrong = pcall(function() require(nil) end)
            ngx.print(circle:match('loop or previous error'), '; ', wrong:match('bad.*'), '; ', require 'string' == string)";
        let server = serve("", &format!("location / {{ content_by_lua_block {{ {HOT} {script} }} }}"));
        let mut client = server.client();
        for _ in 0..3 {
            let wrong = "bad argument #1 to 'require' (string expected, got nil)";
            assert_eq!(client.get("/").text(), format!("loop or previous error; {wrong}; true"));
        }
    }

    fn a_variable_s_value_is_the_last(driver) {
        let script = "local var = ngx.var local function is(name, wanted)
                local value = hot(function() return var[name] end)
                if value ~= wanted then error(name .. ' is ' .. tostring(value) .. ', not ' .. tostring(wanted)) end end
            is('given', 'start') var.given = 'new' is('given', 'new') var.given = nil is('given', nil) var.given = 5 is('given', '5')
            is('copy', 'start') is('arg_x', ngx.var.args:sub(3)) ngx.req.set_uri_args('x=2') is('arg_x', '2') is('args', 'x=2')
            is('http_x_a', nil) ngx.req.set_header('X-A', 'a') is('http_x_a', 'a') ngx.req.clear_header('X-A') is('http_x_a', nil)
            is('uri', '/') ngx.req.set_uri('/other') is('uri', '/other') is('request_method', 'GET')
            ngx.req.set_method(ngx.HTTP_POST) is('request_method', 'POST') is('none', nil) is('cookie_a', nil)
            ngx.req.set_header('Cookie', 'a=b') is('cookie_a', 'b') ngx.status = 404 is('status', '404')
            var.limit_rate = 100000 is('limit_rate', '100000')
            local long = ('x'):rep(1000) var.given = long is('given', long) var.given = 'short' is('given', 'short')
            local co = coroutine.wrap(function() var.given = 'inner' coroutine.yield() var.given = 'last' end)
            is('given', 'short') co() is('given', 'inner') co() is('given', 'last')
            ngx.thread.wait(ngx.thread.spawn(function() ngx.sleep(0) var.given = 'thread' end)) is('given', 'thread')
            ngx.location.capture('/inner', { share_all_vars = true }) is('given', 'subrequest')
            ngx.print(var.request_time ~= nil, var.msec > '1')";
        let locations = format!(
            "set $given start; set $copy $given;
             location / {{ content_by_lua_block {{ {HOT} {script} }} }}
             location /inner {{ content_by_lua_block {{ ngx.var.given = 'subrequest' ngx.print('x') }} }}
             location /plain {{ content_by_lua_block {{ {HOT} ngx.print(hot(function() return ngx.var.given .. ngx.var.arg_x end)) }} }}"
        );
        let server = serve("", &locations);
        let mut client = server.client();
        for round in 0..3 {
            assert_eq!(client.get(&format!("/?x={round}")).text(), "truetrue", "{}", server.error_log());
            for x in ["one", "two", "two"] {
                assert_eq!(client.get(&format!("/plain?x={x}")).text(), format!("start{x}"));
            }
        }
    }

    fn a_field_s_value_is_the_last(driver) {
        let script = "local header = ngx.header local function is(wanted)
                local value = hot(function() return header['X-A'] end)
                if value ~= wanted then error(tostring(value) .. ' for ' .. tostring(wanted)) end end
            is(nil) header['X-A'] = 'a' is('a') header['x-a'] = 'b' is('b') header.x_a = 'c' is('c') header['X-A'] = nil is(nil)
            header['X-A'] = ngx.var.arg_x is(ngx.var.arg_x) ngx.print(ngx.var.arg_x)";
        let locations = format!(
            "header_filter_by_lua_block {{ {HOT} local function read() return ngx.header['X-A'] end
                local before = hot(read) ngx.header['X-A'] = before .. '-filtered' ngx.header['X-B'] = hot(read) }}
             location / {{ content_by_lua_block {{ {HOT} {script} }} }}"
        );
        let server = serve("", &locations);
        let mut client = server.client();
        for x in ["one", "two", "two", "one"] {
            let response = client.get(&format!("/?x={x}"));
            assert_eq!(response.text(), x, "{}", server.error_log());
            assert_eq!(response.field("X-A"), Some(format!("{x}-filtered").as_str()));
            assert_eq!(response.field("X-B"), response.field("X-A"));
        }
    }

    /// Names that scripts make of what clients send, and the same name in any case, take no memory for ever, and are right.
    fn a_flood_of_names_is_forgotten(driver) {
        let script = "local function flood(prefix) for i = 1, 50000 do local _ = ngx.var[prefix .. i] end end
            local function cases() for n = 0, 2 ^ 14 - 1 do local name = ('request_method'):gsub('%a', function(letter)
                local upper = n % 2 == 1 n = (n - n % 2) / 2 return upper and letter:upper() or letter end)
                if ngx.var[name] ~= 'GET' then error(name) end end end
            local before = collectgarbage('count')
            flood('http_x') flood('arg_') flood('cookie_') cases() collectgarbage() collectgarbage()
            local grown = collectgarbage('count') - before
            ngx.say(grown < 3000 and 'little' or grown, ' ', ngx.var.http_late, ' ', ngx.var['hTTP_lATE'], ' ', ngx.var.arg_a, ' ', ngx.var.http_none)";
        let server = serve("", &format!("location / {{ content_by_lua_block {{ {script} }} }}"));
        let mut client = server.client();
        for value in ["one", "two"] {
            let said = client.request(format!("GET /?a=b HTTP/1.1\r\nHost: h\r\nLate: {value}\r\n\r\n")).text();
            assert_eq!(said, format!("little {value} {value} b nil\n"), "{}", server.error_log());
        }
    }

    fn fields_of_the_request_are_its_own(driver) {
        let script = "local function show(raw) local names, fields = {}, ngx.req.get_headers(0, raw)
                for name in pairs(fields) do names[#names + 1] = name end table.sort(names)
                for _, name in ipairs(names) do local value = fields[name]
                    ngx.print(name, '=', type(value) == 'table' and table.concat(value, ',') or value, ';') end end
            show(ngx.var.arg_raw == '1') if ngx.var.arg_set then ngx.req.set_header('X-Set', ngx.var.arg_set) show(true) end";
        let server = serve("", &format!("location / {{ content_by_lua_block {{ {script} }} }}"));
        let mut client = server.client();
        let cases = [
            ("/", "X-A: 1\r\nX-B: 2\r\n", "host=h;x-a=1;x-b=2;"),
            ("/", "X-A: 1\r\nX-B: 2\r\n", "host=h;x-a=1;x-b=2;"),
            ("/", "X-A: 1\r\nX-B: 3\r\nX-C:\r\n", "host=h;x-a=1;x-b=3;x-c=;"),
            ("/?raw=1", "X-A: 1\r\nX-B: 3\r\nX-C:\r\n", "Host=h;X-A=1;X-B=3;X-C=;"),
            ("/", "X-A: 1\r\nX-A: 2\r\n", "host=h;x-a=1,2;"),
            ("/", "X-A: 1\r\nX-A: 2\r\n", "host=h;x-a=1,2;"),
            ("/?set=x", "X-A: 1\r\nX-A: 2\r\n", "host=h;x-a=1,2;Host=h;X-A=1,2;X-Set=x;"),
            ("/", "", "host=h;"),
            ("/", "X-A: 1\r\nX-B: 2\r\n", "host=h;x-a=1;x-b=2;"),
        ];
        for (path, fields, wanted) in cases.iter().cycle().take(3 * cases.len()) {
            let said = client.request(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).text();
            assert_eq!(&said, wanted, "{path} {fields}");
        }
        // More than is remembered, twice the same, with one that differs at the end.
        for last in ["a", "a", "b"] {
            let long = "x".repeat(3000);
            let fields = format!("X-A: {long}\r\nX-B: {long}\r\nX-C: {last}\r\n");
            let said = client.request(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).text();
            assert_eq!(said, format!("host=h;x-a={long};x-b={long};x-c={last};"));
        }
    }
}
