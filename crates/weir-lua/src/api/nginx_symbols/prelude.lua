-- C functions of ngx_lua that scripts declare and call themselves instead of lua-resty-core's. Here they are Lua; `ffi.C` is
-- a table that has them before what the C library has.
local ffi = require "ffi"
local ssl, balancer = ngx._ssl, ngx._balancer
local cast, copy, new, text_of, typeof = ffi.cast, ffi.copy, ffi.new, ffi.string, ffi.typeof
local ffi_C, tonumber, tostring, type, rawset = ffi.C, tonumber, tostring, type, rawset
local pcall, error, load_openssl, require = pcall, error, ngx._openssl.load, require
local concat, ipairs, OK, ERROR = table.concat, ipairs, 0, -1
-- Types of lua-resty-core, which is loaded from the start as far as libraries can see.
ffi.cdef [[
    typedef struct { size_t len; const unsigned char *data; } ngx_str_t;
    typedef struct ngx_http_request_s ngx_http_request_t;
    typedef struct { int len; const unsigned char *data; } ngx_http_lua_ffi_str_t;
    typedef struct { ngx_http_lua_ffi_str_t key, value; } ngx_http_lua_ffi_table_elt_t;
    typedef struct ngx_stream_lua_request_s ngx_stream_lua_request_t;
    typedef struct { int len; const unsigned char *data; } ngx_stream_lua_ffi_str_t;
]]

-- Reasons stay: a caller that gets one may keep the pointer.
local reasons = {}
local function failed(err, why)
    local reason = reasons[why]
    if not reason then
        reason = new("char[?]", #why + 1, why)
        reasons[why] = reason
    end
    err[0] = reason
    return ERROR
end

local function done(err, ok, why)
    if ok then return OK end
    return failed(err, why)
end

local function bytes(data, len) return text_of(data, tonumber(len)) end

-- Certificates and keys by the pointers that are given out for them.
local objects
local function represented()
    objects = objects or require "weir.ssl_objects"
    return objects
end
local function pointed(err, pointer, why)
    if pointer then return pointer end
    failed(err, why)
    return cast("void *", 0)
end

local function converted(out, err, der, why)
    if not der then return failed(err, why) end
    copy(out, der, #der)
    return #der
end

-- As much as there is room for; without any, how much there is.
local function told(out, len, err, value, why)
    if not value then return failed(err, why) end
    local room = tonumber(len[0])
    if room > 0 then
        if room > #value then room = #value end
        copy(out, value, room)
    else
        room = #value
    end
    len[0] = room
    return OK
end

-- Represents the TLS of the request's connection: no address, only a number that no object of OpenSSL's has.
local request_ssl = cast("void *", 1)
ssl.of_request = request_ssl

local function of_library(name) return ffi_C[name] end

-- What the C library, the program and OpenSSL have.
local function found(name)
    local ok, value = pcall(of_library, name)
    if ok then return value end
    local why = tostring(value):gsub("^[^:]*:%d+: ", "")
    if type(name) == "string" and why:find("undefined symbol", 1, true) then
        local loaded, reason = load_openssl(name)
        if loaded then
            ok, value = pcall(of_library, name)
            if ok then return value end
        elseif reason then
            why = why .. ": " .. reason
        end
    end
    -- Of the caller, as if LuaJIT itself had looked.
    error(why, 3)
end

-- OpenSSL's own functions where they are given that; elsewhere the library's.
local openssl, shown, turn = {}, {}, 0
local function answers(name, answer)
    openssl[name] = function(pointer, ...)
        if pointer ~= request_ssl then return found(name)(pointer, ...) end
        return answer(...)
    end
end

answers("SSL_session_reused", function() return ssl.is_resumed() and 1 or 0 end)

-- Stores of certificates that look into directories: which, is known of the calls that have said so alone.
openssl.X509_STORE_new = function()
    local store = found "X509_STORE_new" ()
    if store ~= nil then represented().began(store) end
    return store
end
for _, name in ipairs { "X509_STORE_load_locations", "X509_STORE_load_locations_ex" } do
    openssl[name] = function(store, file, directory, ...)
        local code = found(name)(store, file, directory, ...)
        if code == 1 and directory ~= nil then represented().looks_into(store, text_of(directory)) end
        return code
    end
end
openssl.X509_STORE_load_path = function(store, directory)
    local code = found "X509_STORE_load_path" (store, directory)
    if code == 1 then represented().looks_into(store, text_of(directory)) end
    return code
end
for _, name in ipairs { "X509_STORE_set_default_paths", "X509_STORE_set_default_paths_ex" } do
    openssl[name] = function(store, ...)
        local code = found(name)(store, ...)
        if code == 1 then represented().looks_into(store, represented().default_directory()) end
        return code
    end
end

-- The text stays for the next 64 calls; it must not be kept longer than a phase of a request.
answers("SSL_get_servername", function(kind)
    local name = kind == 0 and ssl.server_name()
    if not name then return cast("const char *", 0) end
    turn = turn % 64 + 1
    shown[turn] = new("char[?]", #name + 1, name)
    return cast("const char *", shown[turn])
end)

local own = {
    ssl_clear_certs = function(_, err) return done(err, ssl.clear_certs()) end,
    ssl_set_der_certificate = function(_, data, len, err) return done(err, ssl.set_der_cert(bytes(data, len))) end,
    ssl_set_der_private_key = function(_, data, len, err) return done(err, ssl.set_der_priv_key(bytes(data, len))) end,
    cert_pem_to_der = function(pem, len, out, err) return converted(out, err, ssl.cert_pem_to_der(bytes(pem, len))) end,
    priv_key_pem_to_der = function(pem, len, password, out, err)
        password = password ~= nil and text_of(password) or nil
        return converted(out, err, ssl.priv_key_pem_to_der(bytes(pem, len), password))
    end,
    parse_pem_cert = function(pem, len, err) return pointed(err, represented().parse_pem_cert(bytes(pem, len))) end,
    parse_pem_priv_key = function(pem, len, err) return pointed(err, represented().parse_pem_priv_key(bytes(pem, len))) end,
    parse_der_cert = function(data, len, err) return pointed(err, represented().parse_der_cert(bytes(data, len))) end,
    parse_der_priv_key = function(data, len, err) return pointed(err, represented().parse_der_priv_key(bytes(data, len))) end,
    set_cert = function(_, cert, err) return done(err, ssl.set_cert(represented().chain(cert))) end,
    set_priv_key = function(_, key, err) return done(err, ssl.set_priv_key(represented().key(key))) end,
    free_cert = function(cert) represented().free_cert(cert) end,
    free_priv_key = function(key) represented().free_priv_key(key) end,
    get_req_ssl_pointer = function(_, err)
        local random, why = ssl.client_random()
        if random then return request_ssl end
        if err ~= nil then failed(err, why) end
        return cast("void *", 0)
    end,
    ssl_verify_client = function(_, client, trusted, depth, err)
        local shown, known = represented().chain(client), represented().chain(trusted)
        if client ~= nil and not shown or trusted ~= nil and not known then return failed(err, "invalid certificate chain") end
        return done(err, ssl.verify_client(shown, depth, known))
    end,
    ssl_client_random = function(_, out, len, err) return told(out, len, err, ssl.client_random()) end,
    ssl_server_random = function(_, out, len, err) return told(out, len, err, ssl.server_random()) end,
    ssl_session_master_key = function(_, out, len, err) return told(out, len, err, ssl.master_key()) end,
    req_shared_ssl_ciphers = function(request, ciphers, count, without_grease, err)
        if request == nil then return failed(err, "bad request") end
        local shared, why = ssl.shared_ciphers(without_grease ~= 0)
        if not shared then return failed(err, why) end
        local room = #shared
        if room > count[0] then room = count[0] end
        for at = 1, room do ciphers[at - 1] = shared[at] end
        count[0] = room
        return OK
    end,
    balancer_set_upstream_tls = function(_, on, err) return done(err, balancer.set_upstream_tls(on ~= 0)) end,
}

-- nginx's counters, each a pointer to what it is at this moment.
local counters, counts, select = {}, ngx._process.counts, select
for at, names in ipairs { "accepted handled", "requests", "active", "reading", "writing", "waiting" } do
    for name in names:gmatch "%a+" do counters["ngx_stat_" .. name] = at end
end
local counter = typeof "uint64_t[1]"
local function counted(name)
    local at = counters[name]
    return at and counter((select(at, counts())))
end

-- The others of ngx_lua's, loaded when one is looked for.
ngx._c_names = { failed = failed, C = ffi_C, trusted = ngx._trusted }
ngx._trusted = nil
local more
local function of_ngx_lua(name)
    local short = name:match "^ngx_http_lua_ffi_(.+)$" or name:match "^ngx_stream_lua_ffi_(.+)$"
    short = short or name:match "^ngx_http_lua_(find_zone)$" or name:match "^ngx_stream_lua_(find_zone)$"
    if not short then return nil end
    if own[short] then return own[short] end
    more = more or require "weir.c_names"
    return more[short]
end

-- Those of modules that applications build their nginx with, by what their names begin with, and where they are.
local MODULES = {
    ["^ngx_http_lua_kong_"] = "weir.kong_names", ["^ngx_stream_lua_kong_"] = "weir.kong_names", ["^ngx_http_lua_ffi_set_next_upstream$"] = "weir.kong_names",
    ["^ngx_http_apicast_ffi_"] = "weir.kong_names", ["^ngx_lua_resty_lmdb_ffi_"] = "weir.lmdb_names", ["^ngx_lua_ffi_"] = "weir.events_names",
}
local function of_module(name)
    if name:sub(1, 4) ~= "ngx_" then return nil end
    for pattern, module in pairs(MODULES) do
        if name:find(pattern) then return require(module)[name] end
    end
    return nil
end

-- The environment: in `init_by_lua` the one that the server was started with, as `os.getenv` has it there. Kong reads it for its vault.
local removed, environments = ngx._environment_list, {}
ngx._environment_list = nil
local function environment()
    local left, list = found "environ", removed()
    if not list then return left end
    local at = 0
    while left ~= nil and left[at] ~= nil do
        list[#list + 1] = text_of(left[at])
        at = at + 1
    end
    local text = concat(list, "\0")
    local known = environments[text]
    if known then return known.pointer end
    -- Callers keep the pointer.
    known = { array = new("char *[?]", #list + 1) }
    for i, variable in ipairs(list) do
        known[i] = new("char[?]", #variable + 1, variable)
        known.array[i - 1] = known[i]
    end
    known.pointer = cast(typeof(left), known.array)
    environments[text] = known
    return known.pointer
end

local names = setmetatable({}, {
    __index = function(names, name)
        local value = type(name) == "string" and (of_ngx_lua(name) or of_module(name) or openssl[name])
        value = value or counted(name) or name == "environ" and environment() or found(name)
        -- Functions are looked up once, as LuaJIT does it; variables have new values, and constants are numbers as they are.
        local kind = type(value)
        if kind == "function" or kind == "cdata" and tostring(typeof(value)):find("(", 1, true) then
            rawset(names, name, value)
        end
        return value
    end,
    __newindex = function(_, name, value) ffi_C[name] = value end,
})
ffi.C = names
