//! What functions of the Lua API say of wrong arguments and wrong phases, in OpenResty's words; and what they
//! make of arguments that are odd, but allowed. Each line was asked of OpenResty, too.

use weir_test::{Server, both_drivers};

/// Lines of Lua values, a request each.
const HEAD: &str = "local function t(...) local n, s = select('#', ...), {} for i = 1, n do s[i] = tostring((select(i, ...))) end \
     ngx.say(table.concat(s, '|')) end local function p(...) t(pcall(...)) end local req = ngx.req ";

fn serve(driver: weir_test::Driver, locations: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain; client_body_temp_path temp;\n{locations}\n}} }}\n"
    );
    Server::builder(&conf).driver(driver).file("html/a.txt", "a file").start()
}

/// What scripts say, each in a location of its own, to a request with arguments, fields and a body.
fn ask(driver: weir_test::Driver, scripts: &[(&str, &str)]) {
    let locations: String = scripts
        .iter()
        .enumerate()
        .map(|(at, (script, _))| format!("location /{at} {{ content_by_lua_block {{ {HEAD} {script} }} }}\n"))
        .collect();
    let server = serve(driver, &locations);
    for (at, (script, said)) in scripts.iter().enumerate() {
        let request = format!(
            "POST /{at}?a=1&b=2 HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\nContent-Length: 7\r\n\r\nc=3&d=4"
        );
        assert_eq!(server.client().request(&request).text(), format!("{said}\n"), "{script}");
    }
}

both_drivers! {
    fn wrong_arguments_are_told_as_openresty_tells_them(driver) {
        ask(driver, &[
            ("p(req.set_header, nil, 'a')", "false|bad 'name' argument: string expected, got nil"),
            ("p(req.set_header, 'Content-Length', 'x')", "false|failed to set header"),
            ("p(req.set_method)", "false|bad method number"),
            ("p(req.set_method, 'GET')", "false|bad method number"),
            ("p(req.set_uri, '/x', nil)", "false|bad argument #2 to '?' (boolean expected, got nil)"),
            ("p(req.set_uri, '/x', false, 1)", "false|bad argument #3 to '?' (boolean expected, got number)"),
            ("p(req.set_uri, '/x', true, true, 1)", "false|expecting 1, 2 or 3 arguments but seen 4"),
            ("p(req.set_uri)", "false|expecting 1, 2 or 3 arguments but seen 0"),
            ("p(req.set_uri_args, 'a', 'b')", "false|expecting 1 argument but seen 2"),
            ("p(req.set_uri_args, true)", "false|bad argument #1 to '?' (string, number, or table expected, but got boolean)"),
            ("p(req.read_body, 1)", "false|expecting 0 arguments but seen 1"),
            ("p(req.discard_body, 1)", "false|expecting 0 arguments but seen 1"),
            ("p(req.get_body_file, 1)", "false|expecting 0 arguments but seen 1"),
            ("p(req.get_body_data, 'x')", "false|bad argument #1 to '?' (number expected, got string)"),
            ("p(req.set_body_data, 'a', 'b')", "false|expecting 1 arguments but seen 2"),
            ("p(req.set_body_file, 'a', true, 1)", "false|expecting 1 or 2 arguments but seen 3"),
            ("req.read_body() p(req.init_body, 1, 2)", "false|expecting 0 or 1 argument but seen 2"),
            ("req.read_body() p(req.init_body, -1)", "false|bad size argument: -1"),
            ("p(req.init_body, -1)", "false|request body not read yet"),
            ("req.read_body() p(req.get_post_args, 'x')", "false|bad argument #1 to '?' (number expected, got string)"),
            ("p(ngx.encode_args, true)", "false|bad argument #1 to '?' (table expected, got boolean)"),
            ("p(ngx.encode_args, {}, 1)", "false|expecting 1 argument but seen 2"),
            ("p(ngx.sleep)", "false|attempt to pass 0 arguments, but accepted 1"),
            ("p(ngx.sleep, -1)", "false|invalid sleep duration \"-1000\""),
            ("p(ngx.thread.spawn, 1)", "false|bad argument #1 to 'spawn' (Lua function expected)"),
            ("p(ngx.location.capture, '/x', 1)", "false|expecting table as the 2nd argument for subrequest 0, but got number"),
            ("p(ngx.location.capture, '/x', { ctx = 1 })", "false|Bad ctx option value type number, expected a Lua table"),
            ("p(ngx.location.capture, '')", "false|unsafe uri in argument #1: "),
            ("p(ngx.location.capture_multi)", "false|only one argument is expected, but got 0"),
            ("p(ngx.quote_sql_str)", "false|expecting one argument"),
            ("p(req.set_body_file, '/none')", "false|request body not read yet"),
            ("req.read_body() p(req.set_body_file, '/none')", "false|stat() \"/none\" failed"),
            ("p(ngx.decode_args, 'a', 'x')", "false|bad argument #2 to '?' (number expected, got string)"),
            ("p(ngx.decode_args, 'a', 1, {})", "false|expecting 1 or 2 arguments but seen 3"),
            ("p(ngx.hmac_sha1, 'a')", "false|expecting 2 arguments, but got 1"),
            ("p(ngx.say, { a = 1 })", "false|bad argument #1 to '?' (non-array table found)"),
            ("p(ngx.say, { print })", "false|bad argument #1 to '?' (bad data type function found)"),
            ("p(ngx.redirect)", "false|expecting one or two arguments"),
            ("p(ngx.redirect, '/x', 301, 1)", "false|expecting one or two arguments"),
            ("p(ngx.redirect, '/x', nil)", "false|bad argument #2 to '?' (number expected, got nil)"),
            ("p(ngx.exec, '/x', true)", "false|bad argument #2 to '?' (string, number, or table expected, but got boolean)"),
            ("p(ngx.flush, 1)", "false|bad argument #1 to 'flush' (boolean expected, got number)"),
            ("p(ngx.flush, true, true)", "false|attempt to pass 2 arguments, but accepted 0 or 1"),
            ("p(ngx.flush, true)", "true|nil|nothing to flush"),
            ("p(ngx.thread.wait)", "false|at least one coroutine should be specified"),
            ("p(function() return ngx.arg[1] end)", "false|API disabled in the current context"),
            ("p(function() ngx.ctx = 1 end)", "false|ctx should be a table while getting a number"),
            ("t(select(2, pcall(function() ngx.var[1] = 'x' end)):match('[^:]+$'))", " bad variable name"),
            ("t(select(2, pcall(function() ngx.say({ a = 1 }) end)):match('bad.*'))", "bad argument #1 to 'say' (non-array table found)"),
        ]);
    }

    fn odd_arguments_mean_what_they_mean_there(driver) {
        ask(driver, &[
            ("req.set_header('X-A', '') t(ngx.var.http_x_a)", "nil"),
            ("req.set_header(12, true) t(req.get_headers()['12'])", "true"),
            ("req.set_header('Host', { 'a', 'b' }) t(ngx.var.http_host, ngx.var.host)", "b|b"),
            ("p(req.clear_header, nil) p(req.clear_header, {})", "true\ntrue"),
            ("ngx.header.x_new = '' t(ngx.header.x_new)", "nil"),
            ("ngx.header.x_new = { 'a', nil, 'c' } t(ngx.header.x_new)", "a"),
            ("ngx.header[true] = 1 t(ngx.header['true'])", "1"),
            ("ngx.header[''] = 1 t(ngx.header[''])", "nil"),
            ("ngx.header.server = 'mine' t(ngx.resp.get_headers().server)", "mine"),
            ("ngx.header['Transfer-Encoding'] = 'chunked' t('whole')", "whole"),
            ("p(function() ngx.status = 99 end) t(ngx.status)", "true\n200"),
            ("req.set_uri_args('') t(ngx.var.is_args, #(ngx.var.args or ''))", "|0"),
            ("req.set_uri_args('a b\\n') t(ngx.var.args)", "a%20b%0A"),
            ("local into = { old = 1 } local args = req.get_uri_args(1, into) t(args == into, args.old, args.a)", "true|nil|1"),
            ("t(req.get_body_data(3)) req.read_body() t(req.get_body_data(3), req.get_body_data(0), req.get_body_data(99))", "nil\nc=3|c=3&d=4|c=3&d=4"),
            ("t(require('table.isarray')({ [1.5] = 1 }), (ngx.re.gsub('abc', 'b', function() end)))", "false|anilc"),
            ("local a = require 'table.isarray' t(a({ [100] = 1 }), a({ [2^40] = 1 }), a({ [0] = 1, [-1] = 1 }), a({ [1/0] = 1 }), a({ [-0.5] = 1 }), a({ x = 1 }))",
             "true|true|true|true|false|false"),
            ("t(ngx.escape_uri({}):match('^table%%3A') ~= nil, ngx.unescape_uri(ngx.null))", "true|userdata: NULL"),
            ("t(-0 == 0) ngx.say(-0)", "true\n0"),
            ("local now = ngx.now() for i = 1, 1e6 do if ngx.now() ~= now or ngx.time() ~= math.floor(now) then t(i) end end t('kept')", "kept"),
            ("local before = ngx.now() repeat ngx.update_time() until ngx.now() > before t(req.start_time() <= ngx.now())", "true"),
            ("local split = require('ngx.re').split t(table.concat(split('a,b,,c,,', ','), ' '), #split(',', ','), #split('', ','), table.concat(split('a.b.c', '.', nil, nil, 2), ' '))
              t(table.concat(split('a,b,c', ',', 'jo', nil, 2), ' '), #split('abc', 'abc'), table.concat(split('a--b', '--'), ' '))", "a b  c|0|0| .b.c\na b,c|0|a b"),
        ]);
    }

    fn places_are_told(driver) {
        let server = serve(driver, "
            location /log { return 200; log_by_lua_block { ngx.log(ngx.WARN, 'told') ngx.say('x') } }
            location /table { log_by_lua_block { error({}) } return 200; }
            location /long { content_by_lua_block { ngx.log(ngx.ERR, string.rep('x', 3000), 'end') } }
            location /uri { rewrite_by_lua_block { ngx.req.set_uri('/there', true) } }
            location /there { content_by_lua_block { ngx.say(ngx.req.is_internal(), ngx.var.args) } }
            location /exec { content_by_lua_block { ngx.exec('/there%20') } }
            location '/there ' { return 200 'unescaped'; }
            location @named { return 200 named; }
            location /named { content_by_lua_block { ngx.exec('@named?a=b') } }
            location /closed { content_by_lua_block { ngx.say('x') ngx.exit(444) } }
            location /none { content_by_lua_block { ngx.status = 201 ngx.exit(204) } }
            location /refused { content_by_lua_block { ngx.say('x') } header_filter_by_lua_block { return ngx.exit(403) } }
            error_page 582 = /page;
            location /filtered { return 200 x; header_filter_by_lua_block { return ngx.exit(582) } }
            location /page { return 200 y; header_filter_by_lua_block { return ngx.exit(302) } }
            location /host { set $one $host; content_by_lua_block { ngx.req.set_header('Host', 'new') ngx.say(ngx.var.host) } }");
        let get = |path: &str| server.get(path);
        assert_eq!(get("/log").status, 200);
        let _ = server.error_log_line(":1: told while logging request, client");
        let _ = server.error_log_line("API disabled in the context of log_by_lua*");
        let _ = get("/table");
        let _ = server.error_log_line("failed to run log_by_lua*: unknown reason");
        let _ = get("/long");
        let _ = server.error_log_line("xxxend, client");
        assert_eq!(get("/uri?a").text(), "truea\n");
        assert_eq!(get("/exec").text(), "unescaped");
        assert_eq!(get("/named").text(), "named");
        let _ = server.error_log_line("query strings a=b ignored when exec'ing named location @named");
        let mut closed = server.client();
        closed.send("GET /closed HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(closed.rest().0, b"", "what was said and has not gone stays here");
        assert_eq!(get("/none").status, 204);
        assert_eq!(get("/refused").status, 403);
        assert_eq!(get("/filtered").status, 302);
        assert_eq!(get("/host").text(), "new\n");
    }
}

both_drivers! {
    fn kinds_of_escaping_and_values_that_are_no_strings(driver) {
        ask(driver, &[
            ("local e = ngx.escape_uri t(e('a b+/?#%\"\\'<', 0), e('a b+/?#%\"\\'<', 1), e('a b+/?#%\"\\'<', 2))",
             "a%20b+/%3F%23%25\"'<|a%20b%2B/%3F%23%25\"'<|a%20b%2B%2F%3F%23%25%22'%3C"),
            ("local e = ngx.escape_uri t(e('a b+/?#%\"\\'<', 3), e('a b+/?#%\"\\'<', 4), e('a b+/?#%\"\\'<', 5))",
             "a%20b+/?%23%25%22%27<|a%20b+/?#%%22%27<|a%20b+/?#%25\"'<"),
            ("t(ngx.escape_uri('a b', 6), ngx.escape_uri('a/b', 1.5), ngx.escape_uri('a/b', 2.5))", "a%20b|a/b|a%2Fb"),
            ("t(ngx.escape_uri(nil), ngx.escape_uri(false), ngx.escape_uri(true), ngx.unescape_uri(false))", "||true|"),
            ("local ok, err = pcall(ngx.escape_uri, 'x', 7) t(ok, (err:gsub('.*: ', '')))", "false|\"type\" 7 out of range"),
            ("local ok, err = pcall(ngx.escape_uri, 'x', '2') t(ok, (err:gsub('.*: ', '')))", "false|\"type\" is not a number"),
        ]);
    }

    fn fields_are_added_as_openresty_adds_them(driver) {
        const ADD: &str = "local add, get = require 'ngx.req'.add_header, function(name) \
             local v = ngx.req.get_headers()[name] return type(v) == 'table' and table.concat(v, ',') or v end ";
        let scripts: Vec<(String, &str)> = [
            ("p(add, 'X-B')", "false|bad 'value' argument: string or table expected, got nil"),
            ("p(add, 'X-B', {})", "false|bad 'value' argument: non-empty table expected"),
            ("p(add, 'X-B', { a = 1 })", "false|bad 'value' argument: non-empty table expected"),
            ("p(add, nil, 'x')", "false|bad 'name' argument: string expected, got nil"),
            ("p(add, 'Content-Length', 'x')", "false|failed to set header"),
            ("add('X-B', { 1, true }) add('X-B', 'c') t(get('x-b'))", "1,true,c"),
            ("add('X-B', { nil, 2 }) t(get('x-b'))", "nil,2"),
            ("add('X-B', '') t(get('x-b'))", ""),
            ("add('Host', 'other') t(get('host'))", "other"),
            ("req.set_header('X-B', { nil, 2 }) t(get('x-b'))", "nil,2"),
            ("add('X-A', '2') t(get('x-a'))", "1,2"),
            ("local r = require 'ngx.resp'.add_header r('X-R', { nil, 2 }) t(table.concat(ngx.header['X-R'], ','))", "nil,2"),
        ]
        .into_iter()
        .map(|(script, said)| (format!("{ADD} {script}"), said))
        .collect();
        let scripts: Vec<(&str, &str)> = scripts.iter().map(|(script, said)| (&**script, *said)).collect();
        ask(driver, &scripts);
    }

    fn what_can_t_be_logged_is_told_as_openresty_tells_it(driver) {
        ask(driver, &[
            // What is not logged is not looked at.
            ("p(ngx.log, ngx.DEBUG, print) p(ngx.log, ngx.DEBUG, {})", "true\ntrue"),
            ("p(ngx.log, 99, 'a') p(ngx.log)", "false|bad argument #1 to '?' (bad log level: 99)\nfalse|bad argument #1 to '?' (number expected, got no value)"),
            ("p(ngx.log, ngx.INFO, print)", "false|bad argument #1 to '?' (string, number, boolean, or nil expected, got function)"),
            ("p(ngx.log, ngx.INFO, 'a', 1ULL)", "false|bad argument #2 to '?' (string, number, boolean, or nil expected, got cdata)"),
            ("p(ngx.log, ngx.INFO, io.stdout)", "false|bad argument #1 to '?' (string, number, boolean, or nil expected, got userdata)"),
        ]);
    }

    fn a_redirect_names_the_unsafe_byte(driver) {
        ask(driver, &[
            ("p(ngx.redirect, '/a\\nb')", "false|unsafe byte \"0x0a\" in redirect uri \"/a\\x0Ab\""),
            ("p(ngx.redirect, '/a\\127\"')", "false|unsafe byte \"0x7f\" in redirect uri \"/a\\x7F\\x22\""),
            ("p(ngx.redirect, '/\\195\\169\\\\\\1')", "false|unsafe byte \"0x01\" in redirect uri \"/\\xC3\\xA9\\x5C\\x01\""),
        ]);
    }

    fn sockets_say_what_is_wrong_with_arguments_of_tls(driver) {
        ask(driver, &[
            ("local s = ngx.socket.tcp() t(s:settrustedstore('x'))", "nil|bad store arg: cdata expected, got string"),
            ("local s = ngx.socket.tcp() t(s:settrustedstore({}))", "nil|bad store arg: cdata expected, got table"),
            ("local s = ngx.socket.tcp() local ok, e = pcall(s.settrustedstore, s) t(ok, (e:gsub('.*: ', '')))",
             "false|socket is never created nor connected"),
            ("local s = ngx.socket.tcp() local ok, e = pcall(s.sslhandshake, s, nil, {}) t(ok, (e:gsub('.*: ', '')))",
             "false|cannot convert 'table' to 'const unsigned char *'"),
            ("local s = ngx.socket.tcp() local ok, e = pcall(s.sslhandshake, s, nil, 12) t(ok, (e:gsub('.*: ', '')))",
             "false|cannot convert 'number' to 'const unsigned char *'"),
        ]);
    }
}

#[test]
fn what_hurts_performance_is_alerted_once() {
    let conf = "http { lua_code_cache off; lua_sa_restart on; server { lua_code_cache off; listen 127.0.0.1:%%PORT%%;
        location / { lua_code_cache off; content_by_lua_block { ngx.say(1) } } } }";
    let exit = Server::builder(conf).run(&["-t"]);
    assert!(exit.status.success(), "{}", exit.stderr);
    let alerts = exit.stderr.matches("[alert] lua_code_cache is off; this will hurt performance").count();
    assert_eq!(alerts, 1, "{}", exit.stderr);
}
