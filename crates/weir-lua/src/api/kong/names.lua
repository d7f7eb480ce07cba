-- `weir.kong_names`: the C functions of lua-kong-nginx-module and apicast-nginx-module by their whole names, loaded when the first of them is looked for. The
-- request that they are given counts as the running one: what is not one is null.
local _, native = ...
local ffi = require "ffi"
local kong, c_names = native.kong, native.c_names
local C, out = native.fast.C, native.fast.out
local failed, request_ssl, objects = c_names.failed, native.ssl.of_request, require "weir.ssl_objects"
local cast, new, copy, text_of, typeof = ffi.cast, ffi.new, ffi.copy, ffi.string, ffi.typeof
local tonumber, type, pcall, pairs = tonumber, type, pcall, pairs
local OK, ERROR, AGAIN, DECLINED, ABORT = 0, -1, -2, -5, -6

local names = {}

-- Why another peer is tried: nginx's bits.
for name, bit in pairs {
    error = 0x2, timeout = 0x4, invalid_header = 0x8, http_500 = 0x10, http_502 = 0x20, http_503 = 0x40, http_504 = 0x80,
    http_403 = 0x100, http_404 = 0x200, http_429 = 0x400, non_idempotent = 0x4000, off = 0x80000000,
} do
    names["ngx_http_lua_kong_next_upstream_mask_" .. name] = bit
end

local function is_done(ok, ...)
    return ok and (...) ~= nil and OK or ERROR
end

function names.ngx_http_lua_ffi_set_next_upstream(_, mask, err)
    mask = tonumber(mask)
    -- Bits are put together as signed numbers.
    if mask < 0 then mask = mask + 0x100000000 end
    if pcall(kong.set_next_upstream, mask) then return OK end
    return failed(err, "no request found")
end

function names.ngx_http_lua_kong_ffi_set_grpc_authority(_, text, length)
    return pcall(kong.set_authority, text_of(text, length)) and OK or ERROR
end

-- Levels of the log

local STDERR, DEBUG = 0, 8
function names.ngx_http_lua_kong_ffi_set_dynamic_log_level(level, timeout)
    level, timeout = tonumber(level), tonumber(timeout)
    if timeout ~= 0 and (level < STDERR or level > DEBUG) then return ERROR end
    kong.set_log_level(level, timeout)
    return OK
end
function names.ngx_http_lua_kong_ffi_get_dynamic_log_level(_, level, timeout, original)
    if level == nil or timeout == nil or original == nil then return ERROR end
    level[0], timeout[0], original[0] = kong.log_level()
    return OK
end

-- Variables by their numbers

local variables, texts
local function numbered()
    variables = variables or kong.variables()
    return variables
end
function names.ngx_http_lua_kong_ffi_var_load_indexes(into)
    local known = numbered()
    if into == nil then return #known end
    texts = texts or new("ngx_str_t[?]", #known)
    for at = 1, #known do
        local text = texts[at - 1]
        text.data, text.len = cast("unsigned char *", known[at]), #known[at]
        into[at - 1] = texts + at - 1
    end
    return OK
end

local function refused(request, err)
    return failed(err, request == nil and "no request object found" or "API disabled in the current context")
end
local bytes = typeof "unsigned char *"
function names.ngx_http_lua_kong_ffi_var_get_by_index(request, index, value, length, err)
    local found = C.variable(index, nil, 0, out)
    if found == 1 then
        value[0], length[0] = cast(bytes, out.at), out.len
        return OK
    end
    if found == 0 then return DECLINED end
    return refused(request, err)
end
-- What a script sets each variable by: as long as the VM, as of `ngx.var`.
local own_of = {}
function names.ngx_http_lua_kong_ffi_var_set_by_index(request, index, value, length, err)
    local name = numbered()[index + 1]
    if request == nil then return refused(request, err) end
    local own = own_of[index]
    if not own then
        own = C.settable(name, #name)
        if own >= 0 then own_of[index] = own end
    end
    local text = value ~= nil and text_of(cast("const char *", value), length) or nil
    if own >= 0 then
        if C.set_variable(own, text, text and #text or 0) == 1 then return OK end
    elseif C.set_module_variable(name, #name, text or "", text and #text or 0) == 1 then
        return OK
    end
    if C.variable(index, nil, 0, out) < 0 then return refused(request, err) end
    return failed(err, "variable not changeable")
end

local tag, tagged
function names.ngx_http_lua_kong_ffi_get_static_tag()
    tag = tag or new "ngx_str_t[1]"
    tagged = kong.tag() or ""
    tag[0].data, tag[0].len = cast(bytes, tagged), #tagged
    return tag + 0
end

-- TLS of clients

function names.ngx_http_lua_kong_ffi_get_full_client_certificate_chain(_, buffer, length)
    local known, chain = pcall(kong.client_chain)
    if not known then return ERROR end
    if chain == false then return ABORT end
    if not chain then return DECLINED end
    local room = length[0]
    length[0] = #chain
    if #chain > room then return AGAIN end
    copy(buffer, chain, #chain)
    return OK
end

local reasons = {}
function names.ngx_http_lua_kong_ffi_disable_session_reuse()
    local ok, why = kong.disable_session_reuse()
    if ok then return nil end
    reasons[why] = reasons[why] or new("char[?]", #why + 1, why)
    return cast("const char *", reasons[why])
end

-- Sockets have no object of OpenSSL's; what represents the request's connection is known to the functions of OpenSSL's that are
-- made here.
function names.ngx_http_lua_kong_ffi_get_socket_ssl() return ERROR end
function names.ngx_http_lua_kong_ffi_get_request_ssl(_, into)
    if into == nil then return ABORT end
    if not native.ssl.client_random() then return ERROR end
    into[0] = request_ssl
    return OK
end

-- TLS toward servers

function names.ngx_http_lua_kong_ffi_set_upstream_client_cert_and_key(_, chain, key)
    chain, key = objects.chain(chain), objects.key(key)
    if not chain or not key then return ERROR end
    return is_done(pcall(kong.set_cert_and_key, chain, key))
end
function names.ngx_http_lua_kong_ffi_set_upstream_ssl_trusted_store(_, store)
    local trust = objects.trust(store)
    return trust and is_done(pcall(kong.set_trusted_store, trust)) or ERROR
end
function names.ngx_http_lua_kong_ffi_set_upstream_ssl_verify(_, verify)
    return is_done(pcall(kong.set_verify, verify ~= 0 and verify ~= false))
end
function names.ngx_http_lua_kong_ffi_set_upstream_ssl_verify_depth(_, depth)
    return is_done(pcall(kong.set_verify_depth, tonumber(depth)))
end
function names.ngx_http_lua_kong_ffi_set_upstream_ssl_sans_dnsnames(_, text, length)
    return is_done(pcall(kong.set_hosts, text_of(text, length)))
end
function names.ngx_http_lua_kong_ffi_set_upstream_ssl_sans_uris(_, text, length)
    return is_done(pcall(kong.set_uris, text_of(text, length)))
end

-- Those of its module for `stream`, which do the same for sessions.
local of_sessions = {}
for name, value in pairs(names) do
    local short = name:match "^ngx_http_lua_kong_(.+)$"
    if short then of_sessions["ngx_stream_lua_kong_" .. short] = value end
end
for name, value in pairs(of_sessions) do names[name] = value end
names.ngx_stream_lua_kong_get_socket_ssl = names.ngx_http_lua_kong_ffi_get_socket_ssl
function names.ngx_stream_lua_kong_ffi_proxy_ssl_disable() return is_done(pcall(kong.set_plain)) end

-- apicast-nginx-module's, which do the same.
names.ngx_http_apicast_ffi_set_proxy_cert_key = names.ngx_http_lua_kong_ffi_set_upstream_client_cert_and_key
names.ngx_http_apicast_ffi_set_proxy_ca_cert = names.ngx_http_lua_kong_ffi_set_upstream_ssl_trusted_store
function names.ngx_http_apicast_ffi_set_ssl_verify(request, verify, depth)
    local code = names.ngx_http_lua_kong_ffi_set_upstream_ssl_verify(request, verify)
    return code == OK and names.ngx_http_lua_kong_ffi_set_upstream_ssl_verify_depth(request, depth) or code
end
-- Its text stays until the next one is asked for.
local client_chain
function names.ngx_http_apicast_ffi_get_full_client_certificate_chain(_, value, length)
    local known, chain = pcall(kong.client_chain)
    if not known or chain == false then return ERROR end
    if not chain then return DECLINED end
    client_chain = chain
    value[0], length[0] = cast("void *", cast("const char *", client_chain)), #client_chain
    return OK
end

return names
