-- The tables that scripts start with: constants, and what of `ngx` is computed when it is asked for.
local ngx = ngx

for name, value in pairs {
    OK = 0, ERROR = -1, AGAIN = -2, DONE = -4, DECLINED = -5,
    STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5, NOTICE = 6, INFO = 7, DEBUG = 8,
    HTTP_GET = 2, HTTP_HEAD = 4, HTTP_POST = 8, HTTP_PUT = 16, HTTP_DELETE = 32, HTTP_MKCOL = 64,
    HTTP_COPY = 128, HTTP_MOVE = 256, HTTP_OPTIONS = 512, HTTP_PROPFIND = 1024, HTTP_PROPPATCH = 2048,
    HTTP_LOCK = 4096, HTTP_UNLOCK = 8192, HTTP_PATCH = 16384, HTTP_TRACE = 32768,
    HTTP_CONTINUE = 100, HTTP_SWITCHING_PROTOCOLS = 101, HTTP_OK = 200, HTTP_CREATED = 201, HTTP_ACCEPTED = 202,
    HTTP_NO_CONTENT = 204, HTTP_PARTIAL_CONTENT = 206, HTTP_SPECIAL_RESPONSE = 300, HTTP_MOVED_PERMANENTLY = 301,
    HTTP_MOVED_TEMPORARILY = 302, HTTP_SEE_OTHER = 303, HTTP_NOT_MODIFIED = 304, HTTP_TEMPORARY_REDIRECT = 307,
    HTTP_PERMANENT_REDIRECT = 308, HTTP_BAD_REQUEST = 400, HTTP_UNAUTHORIZED = 401, HTTP_PAYMENT_REQUIRED = 402,
    HTTP_FORBIDDEN = 403, HTTP_NOT_FOUND = 404, HTTP_NOT_ALLOWED = 405, HTTP_NOT_ACCEPTABLE = 406,
    HTTP_REQUEST_TIMEOUT = 408, HTTP_CONFLICT = 409, HTTP_GONE = 410, HTTP_UPGRADE_REQUIRED = 426,
    HTTP_TOO_MANY_REQUESTS = 429, HTTP_CLOSE = 444, HTTP_ILLEGAL = 451, HTTP_INTERNAL_SERVER_ERROR = 500,
    HTTP_NOT_IMPLEMENTED = 501, HTTP_METHOD_NOT_IMPLEMENTED = 501, HTTP_BAD_GATEWAY = 502,
    HTTP_SERVICE_UNAVAILABLE = 503, HTTP_GATEWAY_TIMEOUT = 504, HTTP_VERSION_NOT_SUPPORTED = 505,
    HTTP_INSUFFICIENT_STORAGE = 507,
} do
    ngx[name] = value
end

ngx.config.subsystem = "http"
-- Libraries that have much to say to the debug log ask whether it is there.
ngx.config.debug = ngx.config._debug()
ngx.config._debug = nil
ngx.config.nginx_version = 1031005
ngx.config.ngx_lua_version = 10032
ngx.config.nginx_configure = function() return "" end

local C = ngx._fast.C
local registry = debug.getregistry()
local other_ctx, other_status = ngx._ctx, ngx._status
local other_sent, other_subrequest, set_status = ngx._headers_sent, ngx._is_subrequest, ngx._set_status
local type = type
local new_table = require "table.new"
-- What `init_worker_by_lua` has as its context: it is no request's.
local INIT_WORKER, worker_ctx = 2, {}
local getters = {
    ctx = function()
        local anchor = C.ctx()
        if anchor >= 0 then return registry[anchor] end
        if anchor == -1 then
            if C.phase() == INIT_WORKER then return worker_ctx end
            return other_ctx()
        end
        -- The first time. Anchored as luaL_ref does: free places are a list that begins at 0.
        local table, place = new_table(0, -2 - anchor), registry[0]
        if place and place ~= 0 then
            registry[0] = registry[place]
        else
            place = #registry + 1
        end
        registry[place] = table
        C.give_ctx(place)
        return table
    end,
    status = function()
        local status = C.status()
        if status >= 0 then return status end
        return other_status()
    end,
    headers_sent = function()
        local sent = C.headers_sent()
        if sent >= 0 then return sent == 1 end
        return other_sent()
    end,
    is_subrequest = function()
        local is = C.is_subrequest()
        if is >= 0 then return is == 1 end
        return other_subrequest()
    end,
}
local set_ctx = ngx._set_ctx
local setters = {
    ctx = function(table)
        if type(table) == "table" then
            local anchor = C.ctx()
            -- The table goes, its place stays: nothing else knows that one.
            if anchor >= 0 then
                registry[anchor] = table
                return
            end
            if C.phase() == INIT_WORKER then
                worker_ctx = table
                return
            end
        end
        set_ctx(table)
    end,
    status = function(status)
        if type(status) == "number" and C.set_status(status) == 1 then return end
        set_status(status)
    end,
    headers_sent = function() error("attempt to write a readonly ngx value: headers_sent", 2) end,
    is_subrequest = function() error("attempt to write a readonly ngx value: is_subrequest", 2) end,
}
for _, name in ipairs { "_ctx", "_set_ctx", "_status", "_set_status", "_headers_sent", "_is_subrequest" } do
    ngx[name] = nil
end
ngx._getters, ngx._setters = getters, setters
local phases = {}
for number, name in pairs {
    [0] = "init", "init_worker", "exit_worker", "set", "server_rewrite", "rewrite", "access", "precontent", "content",
    "header_filter", "body_filter", "log", "timer", "balancer",
    [14] = "ssl_client_hello", [15] = "ssl_cert", [16] = "ssl_session_fetch", [17] = "ssl_session_store",
    [18] = "proxy_ssl_cert", [19] = "proxy_ssl_verify", [20] = "init_worker",
} do
    phases[2 ^ number] = name
end
function ngx.get_phase() return phases[C.phase()] end

-- What a VM's worker is does not change: no call that ends a trace.
for _, name in ipairs { "pid", "id", "count" } do
    local value = ngx.worker[name]()
    ngx.worker[name] = function() return value end
end
local rawset = rawset
setmetatable(ngx, {
    __index = function(_, key)
        local get = getters[key]
        if get then
            -- Not a tail call: such a metamethod is not compiled.
            local value = get()
            return value
        end
    end,
    __newindex = function(self, key, value)
        local set = setters[key]
        if set then
            set(value)
            return
        end
        rawset(self, key, value)
    end,
})

-- What a table or a userdata is shown as is Lua's business.
local tostring, select = tostring, select
local getmetatable = getmetatable
local function shown(write)
    return function(...)
        local count = select("#", ...)
        local values = { ... }
        for at = 1, count do
            local value = values[at]
            if type(value) == "table" then
                local meta = getmetatable(value)
                if meta and meta.__tostring then values[at] = tostring(value) end
            end
        end
        return write(unpack(values, 1, count))
    end
end
local raw_log, raw_print = ngx.log, ngx._print
local has_table = function(...)
    for at = 1, select("#", ...) do
        if type((select(at, ...))) == "table" then return true end
    end
end
local show_log, show_print = shown(raw_log), shown(raw_print)
ngx.log = function(...)
    if has_table(...) then return show_log(...) end
    return raw_log(...)
end
print = function(...)
    if has_table(...) then return show_print(...) end
    return raw_print(...)
end
ngx._print = nil

-- One text after another is what scripts say most. In a function of its own, which is compiled also when it is called by
-- what is not, as the rest of a script is behind a wait; one with `...` is interpreted there, and a call by `C` then is
-- two thousand instructions.
local function saying(other, line)
    local function say(said) return C.say(said, #said, line) == 1 end
    return function(...)
        local said = ...
        if type(said) == "string" and select("#", ...) == 1 and say(said) then return 1 end
        return other(...)
    end
end
ngx.print, ngx.say = saying(ngx.print, 0), saying(ngx.say, 1)

package.loaded.ngx = ngx

-- What is loaded already is a field of a table: no call that ends a trace.
local loaded, load = package.loaded, require
function require(name)
    local module = loaded[name]
    if type(module) == "table" then return module end
    if type(name) ~= "string" and type(name) ~= "number" then
        error("bad argument #1 to 'require' (string expected, got " .. type(name) .. ")", 2)
    end
    return load(name)
end

-- Called once `init_by_lua` is done: a global that a script writes after that is told, since all requests share it.
local guarded = false
function __weir_guard()
    guarded = true
end
local warn_global = ngx._warn_global
ngx._warn_global = nil
setmetatable(_G, {
    __newindex = function(self, key, value)
        rawset(self, key, value)
        if guarded then warn_global(tostring(key)) end
    end,
})
