-- `weir.c_names`: C functions of ngx_lua that libraries call without lua-resty-core, `ngx_http_lua_ffi_` before each name; loaded
-- when the first of them is looked for. The request that they are given counts as the running one: what is not one is null.
local _, native = ...
local ffi = require "ffi"
local regex = require "weir.regex"
local C, out, given, text_of = native.fast.C, native.fast.out, native.fast.value, native.fast.string
local failed, zones = native.c_names.failed, native.zones
local cast, copy, tonumber, floor, pcall, error = ffi.cast, ffi.copy, tonumber, math.floor, pcall, error
local type, require = type, require
local ngx, rawget = ngx, rawget
local OK, ERROR, DECLINED, NO_REQUEST, BAD_CONTEXT, NO_REF = 0, -1, -5, -100, -101, -2
ffi.cdef [[
    void *weir_c_names_malloc(size_t) __asm__("malloc");
]]
local malloc, pairs_of = ffi.C.weir_c_names_malloc, ffi.typeof "ngx_http_lua_ffi_table_elt_t *"

local function bytes(at, length) return text_of(at, tonumber(length)) end

local names = {}

-- Sockets: the second argument is what a socket object has in its first place.

local trusted = native.c_names.trusted
function names.socket_tcp_settrustedstore(_, socket, store, err)
    -- A null pointer: as the block says.
    if type(socket) == "userdata" and store == nil then
        trusted[socket] = nil
        return OK
    end
    local trust = require "weir.ssl_objects".trust(store)
    if type(socket) ~= "userdata" or not trust then return failed(err, "bad store arg: X509_STORE of OpenSSL's expected") end
    trusted[socket] = trust
    return OK
end

-- The request

function names.get_ctx_ref(_, in_tls_phase, tls_ref)
    local anchor = C.ctx()
    if in_tls_phase ~= nil then
        in_tls_phase[0], tls_ref[0] = 0, NO_REF
    end
    if anchor >= 0 then return anchor end
    return anchor == -1 and NO_REQUEST or NO_REF
end

local methods = {}
for name, number in pairs(ngx) do
    local method = type(number) == "number" and tostring(name):match "^HTTP_(%u+)$"
    -- Statuses begin at 100, and methods are powers of two.
    if method and bit.band(number, number - 1) == 0 then methods[method] = number end
end
function names.req_get_method()
    if C.request(0, out) ~= 1 then return BAD_CONTEXT end
    return methods[text_of(out.at, out.len)] or 1
end
function names.req_get_method_name(_, name, length)
    if C.request(0, out) ~= 1 then return BAD_CONTEXT end
    name[0], length[0] = cast("unsigned char *", out.at), out.len
    return OK
end
function names.req_start_time()
    return C.request(1, out) == 1 and out.number or 0
end
function names.req_is_internal()
    if C.request(3, out) ~= 1 then return BAD_CONTEXT end
    return out.number
end

-- All names are given: the prelude's own lists know those of the last request.
local function request_fields(most, raw)
    out.strings = 0
    return C.list(0, most < 0 and 100 or most, raw, nil, 0, out)
end
function names.req_get_headers_count(_, most, truncated)
    local count = request_fields(most, 1)
    if count < 0 then return BAD_CONTEXT end
    if truncated ~= nil then truncated[0] = out.flag end
    return count
end
function names.req_get_headers(_, into, count, raw)
    local found = request_fields(count, raw)
    if found < 0 then return BAD_CONTEXT end
    into = cast(pairs_of, into)
    for at = 0, found - 1 do
        local pair, field = out.pairs[at], into[at]
        field.key.data, field.key.len = cast("const unsigned char *", pair.name), pair.name_len
        field.value.data, field.value.len = cast("const unsigned char *", pair.value), pair.value_len
    end
    return OK
end

function names.get_resp_status()
    local status = C.status()
    return status >= 0 and status or BAD_CONTEXT
end
function names.set_resp_status(_, status)
    if C.set_status(status) == 1 then return OK end
    return pcall(function() ngx.status = status end) and OK or BAD_CONTEXT
end
function names.headers_sent()
    local sent = C.headers_sent()
    return sent >= 0 and sent or BAD_CONTEXT
end
function names.is_subrequest()
    local is = C.is_subrequest()
    return is >= 0 and is or BAD_CONTEXT
end

function names.get_phase(_, err)
    local known, phase = pcall(ngx.get_raw_phase)
    if not known then return failed(err, "no request context") end
    return phase
end

-- The log, the worker, times

function names.raw_log(_, level, message, length)
    return C.raw_log(level, message, length) == 1 and OK or ERROR
end
function names.errlog_get_sys_filter_level() return C.log_limit() end

names.now, names.update_time = ngx.now, ngx.update_time
function names.time() return floor(ngx.now()) end
function names.monotonic_msec() return floor(C.monotonic() * 1000) end
names.worker_pid, names.worker_count = ngx.worker.pid, ngx.worker.count
function names.worker_id() return ngx.worker.id() or -1 end
function names.worker_exiting() return ngx.worker.exiting() and 1 or 0 end
names.master_pid = function() return native.process.get_master_pid() end

-- Digests and encoders

local function into(to, made)
    copy(to, made, #made)
    return #made
end
function names.md5_bin(from, length, to) into(to, ngx.md5_bin(bytes(from, length))) end
function names.md5(from, length, to) into(to, ngx.md5(bytes(from, length))) end
function names.sha1_bin(from, length, to) into(to, ngx.sha1_bin(bytes(from, length))) end
function names.crc32_long(from, length) return ngx.crc32_long(bytes(from, length)) end
names.crc32_short = names.crc32_long
function names.encode_base64(from, length, to, bare)
    return into(to, ngx.encode_base64(bytes(from, length), bare ~= 0))
end
function names.decode_base64(from, length, to, made)
    local decoded = ngx.decode_base64(bytes(from, length))
    if not decoded then return 0 end
    made[0] = into(to, decoded)
    return 1
end
function names.uri_escaped_length(from, length, kind)
    return #ngx.escape_uri(bytes(from, length), tonumber(kind))
end
function names.escape_uri(from, length, to, kind)
    into(to, ngx.escape_uri(bytes(from, length), tonumber(kind)))
end
function names.unescape_uri(from, length, to) return into(to, ngx.unescape_uri(bytes(from, length))) end
function names.str_replace_char(buffer, length, from, to)
    buffer = cast("unsigned char *", buffer)
    for at = 0, tonumber(length) - 1 do
        if buffer[at] == from then buffer[at] = to end
    end
end

-- Patterns

local LETTERS = { { "o", 1 }, { "d", 2 }, { "j", 4 }, { "D", 8 }, { "U", 16 } }
local PCRE = {
    { "i", 8 }, { "m", 0x400 }, { "s", 0x20 }, { "x", 0x80 }, { "a", 0x80000000 }, { "u", 0x80000 }, { "J", 0x203 },
}
local function letters(of, flags, made)
    for at = 1, #of do
        local flag = of[at][2]
        if bit.band(flags, flag) == bit.tobit(flag) then made = made .. of[at][1] end
    end
    return made
end
-- The caller destroys what it compiles, so that it is never one that is cached.
function names.compile_regex(pattern, length, flags, pcre, why, room)
    local options = letters(PCRE, pcre, letters(LETTERS, bit.band(flags, bit.bnot(regex.ONCE)), ""))
    local compiled, wrong = regex.compile(bytes(pattern, length), options)
    if not compiled then
        wrong = wrong:sub(1, tonumber(room) - 1)
        copy(why, wrong)
        return nil
    end
    return compiled
end
names.destroy_regex = regex.destroy
function names.exec_regex(compiled, _, subject, length, from)
    return regex.exec(compiled, subject, tonumber(length), from)
end
local version
function names.pcre_version()
    version = version or ffi.new("char[?]", #native.re.version() + 1, native.re.version())
    return cast("const char *", version)
end

-- Shared dictionaries: a zone is what `ngx.shared.NAME[1]` is.

-- `ngx_http_lua_find_zone`, `ngx_stream_lua_find_zone`
function names.find_zone(name, length)
    local found = rawget(ngx.shared, bytes(name, length))
    return found and cast("void *", found[1]) or cast("void *", 0)
end
function names.shdict_udata_to_zone(zone) return cast("void *", zone) end
local function dict(zone)
    return zones[tonumber(cast("uintptr_t", zone))] or error('bad "zone" argument', 3)
end

local KINDS = { [0] = 0, 4, 3, 1, 5 }
function names.shdict_get(zone, key, length, kind, buffer, size, number, flags, stale, is_stale, err)
    local found = C.dict_get(dict(zone), key, length, stale, out)
    kind[0] = KINDS[found]
    if found == 0 then return DECLINED end
    if found == 4 then return failed(err, "value is a list") end
    flags[0], is_stale[0] = out.flags, out.flag
    if found ~= 1 then
        number[0] = out.number
        if found == 3 then
            size[0], buffer[0][0] = 1, out.number
        end
        return OK
    end
    -- A buffer of the caller's, or one that it frees.
    if out.len > size[0] then
        buffer[0] = cast("unsigned char *", malloc(out.len + 1))
        if buffer[0] == nil then return failed(err, "no memory") end
    end
    copy(buffer[0], out.at, out.len)
    size[0] = out.len
    return OK
end

local REASONS = { [5] = "exists", [6] = "not found", [7] = "no memory", [8] = "not a number" }
local ADD, REPLACE, SAFE = 1, 2, 4
local GIVEN = { [0] = 3, [1] = 2, [3] = 1, [4] = 0 }
function names.shdict_store(zone, how, key, length, kind, value, size, number, ttl, flags, err, forced)
    given.kind = GIVEN[kind] or 3
    given.number, given.ttl, given.flags = number, tonumber(ttl) / 1000, flags
    given.when = bit.band(how, ADD) ~= 0 and 1 or bit.band(how, REPLACE) ~= 0 and 2 or 0
    given.evict = bit.band(how, SAFE) == 0 and 1 or 0
    local outcome = C.dict_set(dict(zone), key, length, value, size, given, out)
    forced[0] = out.flag
    if outcome == 1 then return OK end
    failed(err, REASONS[outcome])
    return outcome == 7 and ERROR or DECLINED
end
function names.shdict_incr(zone, key, length, by, err, has_init, init, ttl, forced)
    given.number, given.init, given.when, given.ttl = by[0], init, has_init, tonumber(ttl) / 1000
    local outcome = C.dict_incr(dict(zone), key, length, given, out)
    forced[0] = out.flag
    if outcome ~= 1 then return failed(err, REASONS[outcome]) end
    by[0] = out.number
    return OK
end
local function whole(zone, what)
    C.dict_whole(dict(zone), what, out)
    return out.number
end
function names.shdict_capacity(zone) return whole(zone, 1) end
function names.shdict_free_space(zone) return whole(zone, 2) end
function names.shdict_flush_all(zone)
    C.dict_whole(dict(zone), 0, out)
    return OK
end

return names
