-- Modules that libraries for OpenResty require, answered from here.
local preload = package.preload
local type, next, pairs, rawget = type, next, pairs, rawget

local new, clear = require "table.new", require "table.clear"
preload["table.isempty"] = function() return function(t) return next(t) == nil end end
preload["table.nkeys"] = function()
    return function(t)
        local count = 0
        for _ in pairs(t) do count = count + 1 end
        return count
    end
end
preload["table.isarray"] = function()
    return function(t)
        for key in pairs(t) do
            if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then return false end
        end
        return true
    end
end
preload["table.clone"] = function()
    return function(t)
        local copy = new(#t, 0)
        for key, value in pairs(t) do copy[key] = value end
        return copy
    end
end
table.new, table.clear = new, clear
table.isempty, table.nkeys = require "table.isempty", require "table.nkeys"
table.isarray, table.clone = require "table.isarray", require "table.clone"

-- What lua-resty-core replaces elsewhere is native here; some of its modules have functions of their own.
local C = ngx._fast.C
local getters, setters, registry = ngx._getters, ngx._setters, debug.getregistry()
ngx._getters, ngx._setters = nil, nil
local own = {
    ctx = {
        get_ctx_table = function(table)
            local anchor = C.ctx()
            if anchor >= 0 then return registry[anchor] end
            if table then ngx.ctx = table end
            return ngx.ctx
        end,
    },
    misc = {
        register_ngx_magic_key_getter = function(key, get) getters[key] = get end,
        register_ngx_magic_key_setter = function(key, set) setters[key] = set end,
    },
    regex = {
        -- Whether it is a pattern; what is found by it is `ngx.re`'s to say.
        re_match_compile = function(pattern, options)
            local _, _, why = ngx.re.find("", pattern, options)
            if why then return nil, why end
            return true
        end,
    },
    time = {
        monotonic_time = function() return C.monotonic() end,
        monotonic_msec = function() return C.monotonic() * 1000 end,
    },
    utils = {
        str_replace_char = function(text, from, to)
            return (text:gsub((from:gsub("%p", "%%%0")), (to:gsub("%%", "%%%%"))))
        end,
    },
}
for _, name in ipairs {
    "", "uri", "hash", "base64", "request", "response", "misc", "worker", "phase", "ctx", "var", "exit", "ndk", "utils",
    "coroutine", "regex", "shdict", "param", "socket", "time",
} do
    preload[name == "" and "resty.core" or "resty.core." .. name] = function()
        local module = own[name] or {}
        module.version = "0.1.33"
        return module
    end
end

-- Modules that stand in the program. A library that the path has goes before ours where it can run.
local loadstring, assert, loaders = loadstring, assert, package.loaders
local source = ngx._library.source
local native = {
    digest = ngx._digest, cipher = ngx._cipher, errlog = ngx._errlog, process = ngx._process, request = ngx._request,
    balancer = ngx._balancer, pipe = ngx._pipe, fast = ngx._fast,
    ssl = ngx._ssl,
    cli = ngx._cli, events = ngx._events, upstream = ngx._upstream,
    resolver = ngx._resolver, log = ngx._log,
}
local behind = {}
for _, name in ipairs(ngx._library.names()) do
    local function loader(...)
        return assert(loadstring(source(name), "=" .. name))(name, native)
    end
    local first = name:find("^resty%.lrucache") or name:find("^resty%.events") or name == "resty.worker.events"
    if first or name == "resty.lock" then behind[name] = loader else preload[name] = loader end
end
loaders[#loaders + 1] = function(name) return behind[name] end
for _, name in ipairs { "_library", "_digest", "_cipher", "_errlog", "_process", "_request", "_balancer", "_pipe", "_ssl", "_cli", "_events", "_upstream", "_resolver", "_log" } do
    ngx[name] = nil
end

-- What Weir has that OpenResty has no name for.
local weir = rawget(_G, "weir") or {}
rawset(_G, "weir", weir)
weir.ssl = { key = native.ssl.device_key }
-- Made when they are asked for.
local lazily = { events = true, upstream = true, resolver = true, log = true }
setmetatable(weir, {
    __index = function(_, name)
        if not lazily[name] then return nil end
        local module = require("weir." .. name)
        rawset(weir, name, module)
        return module
    end,
})

-- A value of the running coroutine's own; without one, which request it is.
local running, setmetatable = coroutine.running, setmetatable
local request = native.request
for _, name in ipairs { "thread.exdata", "thread.exdata2" } do
    preload[name] = function()
        local values, main = setmetatable({}, { __mode = "k" }), {}
        return function(...)
            local key = running() or main
            if select("#", ...) > 0 then
                values[key] = (...)
                return
            end
            local value = values[key]
            if value == nil and name == "thread.exdata" then return request() end
            return value
        end
    end
end

local semaphore = ngx._semaphore
ngx._semaphore = nil
preload["ngx.semaphore"] = function()
    local methods = { version = "0.1.33" }
    local meta = { __index = methods }
    local function of(self)
        if type(self) ~= "table" or self.sem == nil then error("not a semaphore instance", 3) end
        return self.sem
    end
    function methods.new(units)
        units = tonumber(units) or 0
        if units < 0 then error("no negative number", 2) end
        return setmetatable({ sem = semaphore.new(units) }, meta)
    end
    function methods:wait(seconds)
        local sem = of(self)
        local wanted = tonumber(seconds)
        if not wanted then error("attempt to perform arithmetic on a " .. type(wanted) .. " value", 2) end
        if wanted < 0 then error("no negative number", 2) end
        return semaphore.wait(sem, wanted)
    end
    function methods:post(units)
        local sem = of(self)
        units = tonumber(units) or 1
        if units < 1 then error("positive number required", 2) end
        return semaphore.post(sem, units)
    end
    function methods:count()
        return semaphore.count(of(self))
    end
    return methods
end

preload["ngx.resp"] = function()
    local resp = ngx.resp
    return {
        add_header = resp._add_header,
        set_status = resp._set_status,
        bypass_if_checks = resp._bypass_if_checks,
    }
end
preload["ngx.req"] = function() return { add_header = ngx.req._add_header } end
preload["ngx.base64"] = function()
    local encode, decode, gsub = ngx.encode_base64, ngx.decode_base64, string.gsub
    local to, from = { ["+"] = "-", ["/"] = "_" }, { ["-"] = "+", ["_"] = "/" }
    return {
        version = "0.1.33",
        encode_base64url = function(text)
            if type(text) ~= "string" then return nil, "must provide a string" end
            return (gsub(encode(text, true), "[+/]", to))
        end,
        decode_base64url = function(text)
            if type(text) ~= "string" then return nil, "must provide a string" end
            local bytes = decode((gsub(text, "[-_]", from)))
            if not bytes then return nil, "invalid input" end
            return bytes
        end,
    }
end
ngx._fast = nil
rawget(_G, "jit").opt.start("maxtrace=8000", "maxrecord=16000", "minstitch=3", "maxmcode=40960")
