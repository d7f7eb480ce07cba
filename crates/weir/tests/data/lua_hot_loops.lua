-- Runs every function of lua-resty-core's modules in a hot loop, and says what LuaJIT's compiler made of each: `loop` is compiled as a
-- whole, `stitch` leaves compiled code for the call, `none` is interpreted. The lines are NAME = WHAT (the first reason).
-- Used by tests/it/lua_compiled_calls.rs and conformance/hot-loops; needs a dictionary `d`, a variable `$own` and a location with a
-- capture.
local vmdef, util = require "jit.vmdef", require "jit.util"
local prelude = [[
local base, regex, request, response, utils = require "resty.core.base", require "resty.core.regex", require "resty.core.request", require "resty.core.response", require "resty.core.utils"
local time, ctx = require "resty.core.time", require "resty.core.ctx"
local b64, errlog, ngx_re, ngx_req, ngx_resp, process, semaphore = require "ngx.base64", require "ngx.errlog", require "ngx.re", require "ngx.req", require "ngx.resp", require "ngx.process", require "ngx.semaphore"
local exdata = require "thread.exdata"
local ngx, re, d, req, resp, h, var = ngx, ngx.re, ngx.shared.d, ngx.req, ngx.resp, ngx.header, ngx.var
local sem = semaphore.new(1)
local list = { "a", "b" }
local nkeys, isempty, isarray, clone, clear, new = require "table.nkeys", require "table.isempty", require "table.isarray", require "table.clone", require "table.clear", require "table.new"
local s
]]
local cases = {
    { "req.get_headers", "s = req.get_headers()" },
    { "req.get_headers raw", "s = req.get_headers(0, true)" },
    { "req.get_headers index", "s = req.get_headers().x_a" },
    { "req.get_uri_args", "s = req.get_uri_args()" },
    { "req.start_time", "s = req.start_time()" },
    { "req.get_method", "s = req.get_method()" },
    { "req.set_method", "req.set_method(ngx.HTTP_GET)" },
    { "req.set_header", "req.set_header('x-b', 'v')" },
    { "req.set_header number", "req.set_header('x-b', i)" },
    { "req.set_header nil", "req.set_header('x-b', nil)" },
    { "req.set_header list", "req.set_header('x-b', list)" },
    { "req.clear_header", "req.clear_header('x-b')" },
    { "req.is_internal", "s = req.is_internal()" },
    { "req.http_version", "s = req.http_version()" },
    { "ngx.req.add_header", "ngx_req.add_header('x-c', 'v') if i % 8 == 0 then req.clear_header('x-c') end" },
    { "ngx.req.add_header list", "ngx_req.add_header('x-c', list) if i % 8 == 0 then req.clear_header('x-c') end" },
    { "core set_req_header", "request.set_req_header('x-d', 'v', true)" },
    { "header set", "h['x-e'] = 'v'" },
    { "header set number", "h['x-e'] = i" },
    { "header set nil", "h['x-e'] = nil" },
    { "header set list", "h['x-e'] = list" },
    { "header set underscore", "h.x_e = 'v'" },
    { "header set content_type", "h.content_type = 'text/plain'" },
    { "header set content-length", "h['content-length'] = nil" },
    { "header get", "s = h['x-e']" },
    { "header get underscore", "s = h.x_e" },
    { "header get list", "s = h['x-list']" },
    { "header get nothing", "s = h['x-nothing']" },
    { "header get content_type", "s = h.content_type" },
    { "header get content_length", "s = h.content_length" },
    { "header get location", "s = h.location" },
    { "header get server", "s = h.server" },
    { "header get connection", "s = h.connection" },
    { "core set_resp_header", "response.set_resp_header(nil, 'x-f', 'v')" },
    { "ngx.resp.add_header", "ngx_resp.add_header('x-g', 'v') if i % 8 == 0 then h['x-g'] = nil end" },
    { "ngx.resp.add_header list", "ngx_resp.add_header('x-g', list) if i % 8 == 0 then h['x-g'] = nil end" },
    { "ngx.resp.set_status", "ngx_resp.set_status(200, 'Fine')" },
    { "ngx.resp.bypass_if_checks", "ngx_resp.bypass_if_checks()" },
    { "ngx.resp.get_headers", "s = resp.get_headers()" },
    { "escape_uri", "s = ngx.escape_uri('a b')" },
    { "escape_uri number", "s = ngx.escape_uri(i)" },
    { "escape_uri nil", "s = ngx.escape_uri(nil)" },
    { "escape_uri type", "s = ngx.escape_uri('a b', 0)" },
    { "unescape_uri", "s = ngx.unescape_uri('a%20b')" },
    { "unescape_uri nil", "s = ngx.unescape_uri(nil)" },
    { "unescape_uri number", "s = ngx.unescape_uri(i)" },
    { "md5", "s = ngx.md5('a')" },
    { "md5 number", "s = ngx.md5(i)" },
    { "md5 nil", "s = ngx.md5(nil)" },
    { "md5_bin", "s = ngx.md5_bin('a')" },
    { "md5_bin nil", "s = ngx.md5_bin(nil)" },
    { "sha1_bin", "s = ngx.sha1_bin('a')" },
    { "sha1_bin number", "s = ngx.sha1_bin(i)" },
    { "crc32_short", "s = ngx.crc32_short('a')" },
    { "crc32_long", "s = ngx.crc32_long('a')" },
    { "crc32_long number", "s = ngx.crc32_long(i)" },
    { "crc32_short nil", "s = ngx.crc32_short(nil)" },
    { "encode_base64", "s = ngx.encode_base64('ab')" },
    { "encode_base64 number", "s = ngx.encode_base64(i)" },
    { "encode_base64 nil", "s = ngx.encode_base64(nil)" },
    { "encode_base64 bare", "s = ngx.encode_base64('ab', true)" },
    { "decode_base64", "s = ngx.decode_base64('YWI=')" },
    { "decode_base64 wrong", "s = ngx.decode_base64('****')" },
    { "decode_base64mime", "s = ngx.decode_base64mime('YWI=')" },
    { "base64url", "s = b64.decode_base64url(b64.encode_base64url('ab>?'))" },
    { "encode_base64url", "s = b64.encode_base64url('ab>?')" },
    { "decode_base64url", "s = b64.decode_base64url('YWI-Pw')" },
    { "quote_sql_str", "s = ngx.quote_sql_str('a')" },
    { "encode_args", "s = ngx.encode_args({a = 1})" },
    { "decode_args", "s = ngx.decode_args('a=1')" },
    { "hmac_sha1", "s = ngx.hmac_sha1('k', 'v')" },
    { "dict get", "s = d:get('a')" },
    { "dict get number", "s = d:get('n')" },
    { "dict get boolean", "s = d:get('b')" },
    { "dict get missing", "s = d:get('none')" },
    { "dict get number key", "s = d:get(i)" },
    { "dict get_stale", "s = d:get_stale('a')" },
    { "dict set", "d:set('a', 'v')" },
    { "dict set number", "d:set('n', i)" },
    { "dict set nil", "d:set('z', nil)" },
    { "dict set ttl", "d:set('t', 'v', 10)" },
    { "dict set flags", "d:set('t', 'v', 0, 3)" },
    { "dict set boolean", "d:set('b', true)" },
    { "dict safe_set", "d:safe_set('a', 'v')" },
    { "dict add", "d:add('a', 'v')" },
    { "dict safe_add", "d:safe_add('a', 'v')" },
    { "dict replace", "d:replace('a', 'v')" },
    { "dict delete", "d:delete('q')" },
    { "dict incr", "d:incr('n', 1)" },
    { "dict incr init", "d:incr('m', 1, 0)" },
    { "dict incr ttl", "d:incr('m2', 1, 0, 10)" },
    { "dict incr missing", "s = d:incr('none', 1)" },
    { "dict ttl", "s = d:ttl('t')" },
    { "dict ttl missing", "s = d:ttl('none')" },
    { "dict expire", "d:expire('t', 10)" },
    { "dict capacity", "s = d:capacity()" },
    { "dict free_space", "s = d:free_space()" },
    { "dict flush_all", "if i % 50 == 0 then d:flush_all() end" },
    { "dict flush_all each", "d:flush_all()" },
    { "dict get_keys", "s = d:get_keys(1)" },
    { "dict lpush", "d:lpush('l', 'v') d:lpop('l')" },
    { "dict llen", "s = d:llen('l')" },
    { "dict flush_expired", "d:flush_expired(1)" },
    { "re.match", "s = re.match('abc', 'b', 'jo')" },
    { "re.match captures", "s = re.match('abc', '(?<x>b)(c)', 'jo')" },
    { "re.match none", "s = re.match('abc', 'z', 'jo')" },
    { "re.match ctx", "local c = {pos = 1} s = re.match('abc', 'b', 'jo', c)" },
    { "re.match no o", "s = re.match('abc', 'b', 'j')" },
    { "re.match no options", "s = re.match('abc', 'b')" },
    { "re.find", "s = re.find('abc', 'b', 'jo')" },
    { "re.find nth", "s = re.find('abc', '(b)(c)', 'jo', nil, 2)" },
    { "re.gmatch", "local it = re.gmatch('abcb', 'b', 'jo') it() it() it()" },
    { "re.gmatch loop", "for m in re.gmatch('abcb', 'b', 'jo') do s = m end" },
    { "re.sub", "s = re.sub('abc', 'b', 'x', 'jo')" },
    { "re.sub template", "s = re.sub('abc', '(b)', '[$1]', 'jo')" },
    { "re.gsub", "s = re.gsub('abcb', 'b', 'x', 'jo')" },
    { "re.gsub function", "s = re.gsub('abcb', 'b', function(m) return m[0] end, 'jo')" },
    { "re.sub no o", "s = re.sub('abc', 'b', 'x')" },
    { "re.split", "s = ngx_re.split('a,b', ',')" },
    { "re.split regex", "s = ngx_re.split('a,b', '[,;]', 'jo')" },
    { "core re_match_compile", "s = regex.re_match_compile('b', 'jo')" },
    { "core collect_captures", "local c, _, f = regex.re_match_compile('(b)', 'jo') s = regex.collect_captures(c, 2, 'b', f)" },
    { "var get", "s = var.uri" },
    { "var get arg", "s = var.arg_a" },
    { "var get http", "s = var.http_host" },
    { "var get request_uri", "s = var.request_uri" },
    { "var get remote_addr", "s = var.remote_addr" },
    { "var get time", "s = var.request_time" },
    { "var get unknown", "s = var.nothing_here" },
    { "var get capture", "s = var[1]" },
    { "var get capture 0", "s = var[0]" },
    { "var get capture text", "s = var['1']" },
    { "var set", "var.own = 'v'" },
    { "var set number", "var.own = i" },
    { "var set nil", "var.own = nil" },
    { "var set args", "var.args = 'a=1'" },
    { "ctx get", "s = ngx.ctx" },
    { "ctx field", "ngx.ctx.a = i s = ngx.ctx.a" },
    { "ctx set", "ngx.ctx = {}" },
    { "core get_ctx_table", "s = ctx.get_ctx_table()" },
    { "status", "s = ngx.status" },
    { "status set", "ngx.status = 200" },
    { "headers_sent", "s = ngx.headers_sent" },
    { "is_subrequest", "s = ngx.is_subrequest" },
    { "get_phase", "s = ngx.get_phase()" },
    { "get_raw_phase", "s = ngx.get_raw_phase(base.get_request())" },
    { "now", "s = ngx.now()" },
    { "time", "s = ngx.time()" },
    { "update_time", "ngx.update_time()" },
    { "today", "s = ngx.today()" },
    { "localtime", "s = ngx.localtime()" },
    { "utctime", "s = ngx.utctime()" },
    { "cookie_time", "s = ngx.cookie_time(1)" },
    { "http_time", "s = ngx.http_time(1)" },
    { "parse_http_time", "s = ngx.parse_http_time('Thu, 01 Jan 1970 00:00:01 GMT')" },
    { "monotonic_time", "s = time.monotonic_time()" },
    { "monotonic_msec", "s = time.monotonic_msec()" },
    { "worker.pid", "s = ngx.worker.pid()" },
    { "worker.id", "s = ngx.worker.id()" },
    { "worker.count", "s = ngx.worker.count()" },
    { "worker.exiting", "s = ngx.worker.exiting()" },
    { "worker.pids", "s = ngx.worker.pids()" },
    { "process.type", "s = process.type()" },
    { "process.get_master_pid", "s = process.get_master_pid()" },
    { "errlog.raw_log", "errlog.raw_log(ngx.DEBUG, 'x')" },
    { "errlog.get_sys_filter_level", "s = errlog.get_sys_filter_level()" },
    { "base get_request", "s = base.get_request()" },
    { "base get_string_buf", "s = base.get_string_buf(100)" },
    { "base get_size_ptr", "s = base.get_size_ptr()" },
    { "base get_errmsg_ptr", "s = base.get_errmsg_ptr()" },
    { "base ref_in_table", "base.ref_in_table(list, i) list = {'a','b'}" },
    { "base new_tab", "s = base.new_tab(1, 1)" },
    { "base clear_tab", "base.clear_tab({1})" },
    { "base allows_subsystem", "base.allows_subsystem('http')" },
    { "exdata", "s = exdata()" },
    { "utils.str_replace_char", "s = utils.str_replace_char('a-b', '-', '_')" },
    { "utils.str_replace_char none", "s = utils.str_replace_char('ab', '-', '_')" },
    { "semaphore", "sem:post(1) sem:wait(0)" },
    { "semaphore count", "s = sem:count()" },
    { "table.nkeys", "s = nkeys({1})" },
    { "table.isempty", "s = isempty({1})" },
    { "table.isarray", "s = isarray({1})" },
    { "table.clone", "s = clone({1})" },
    { "table.clear", "clear({1})" },
    { "table.new", "s = new(1,0)" },
    { "coroutine.running", "s = coroutine.running()" },
    { "config.subsystem", "s = ngx.config.subsystem" },
    { "config.prefix", "s = ngx.config.prefix()" },
    { "ngx.log debug", "ngx.log(ngx.DEBUG, 'x')" },
    { "tostring null", "s = tostring(ngx.null)" },
    { "timer.pending_count", "s = ngx.timer.pending_count()" },
    { "ndk.set_var", "s = ndk.set_var.set_escape_uri and 1" },
}

local function seed()
    local d = ngx.shared.d
    d:set("a", "v") d:set("n", 1) d:set("b", true) d:set("t", "v", 100)
    ngx.header["x-list"] = { "a", "b" }
end

-- The words for why a trace was given up.
local function reason_of(code, more)
    local words = type(code) == "number" and vmdef.traceerr[code] or tostring(code)
    if type(more) == "function" then
        local info = util.funcinfo(more)
        more = info.ffid and vmdef.ffnames[info.ffid] or info.loc or "C"
    end
    return (words:gsub("%%[sdq]", (tostring(more):gsub("%%", "%%%%"))))
end

-- One try: what the loop has become, and why it is no more.
local function try(body)
    seed()
    jit.flush()
    local run = assert(loadstring(prelude .. "return function() for i = 1, 400 do " .. body .. " end end", "=case"))()
    local done, why = {}, nil
    local function seen(what, trace, _, _, code, more)
        if what == "stop" then done[#done + 1] = trace end
        if what == "abort" then why = why or reason_of(code, more) end
    end
    jit.attach(seen, "trace")
    local ok, wrong = pcall(run)
    jit.attach(seen)
    if not ok then return "ERROR", wrong end
    local kinds = {}
    for _, trace in ipairs(done) do
        local info = util.traceinfo(trace)
        if info then kinds[info.linktype] = true end
    end
    return kinds.stitch and "stitch" or kinds.loop and "loop" or "none", why
end

local said = {}
for _, case in ipairs(cases) do
    local what, why
    for _ = 1, 3 do
        what, why = try(case[2])
        if what == "loop" then break end
    end
    said[#said + 1] = case[1] .. " = " .. what .. (what ~= "loop" and why and " (" .. why .. ")" or "")
end
ngx.status = 200
ngx.header["Content-Type"] = "text/plain"
ngx.header["X-List"] = nil
ngx.print(table.concat(said, "\n"), "\n")
