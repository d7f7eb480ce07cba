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
            if type(key) ~= "number" then return false end
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

preload["resty.core.base"] = function()
    return {
        version = "0.1.33", FFI_OK = 0, FFI_ERROR = -1, FFI_AGAIN = -2, FFI_BUSY = -3, FFI_DONE = -4, FFI_DECLINED = -5,
        FFI_ABORT = -6, FFI_NO_REQ_CTX = -100, FFI_BAD_CONTEXT = -101,
        new_tab = new, clear_tab = clear,
        allows_subsystem = function() end,
    }
end
-- What lua-resty-core replaces elsewhere is native here.
for _, name in pairs {
    "resty.core", "resty.core.uri", "resty.core.hash", "resty.core.base64", "resty.core.request", "resty.core.response",
    "resty.core.misc", "resty.core.worker", "resty.core.phase", "resty.core.ctx", "resty.core.var",
    "resty.core.exit", "resty.core.ndk", "resty.core.utils", "resty.core.coroutine", "resty.core.regex",
    "resty.core.shdict", "resty.core.param", "resty.core.socket",
} do
    preload[name] = function() return { version = "0.1.33" } end
end

-- LuaJIT's own modules in Lua.
local source, loadstring, assert = ngx._jit_source, loadstring, assert
ngx._jit_source = nil
for _, name in ipairs { "v", "vmdef", "dump", "bc", "bcsave", "p", "zone", "dis_x86", "dis_x64", "dis_arm64" } do
    preload["jit." .. name] = function(...)
        return assert(loadstring(source(name), "=jit/" .. name))(...)
    end
end

local semaphore = ngx._semaphore
ngx._semaphore = nil
preload["ngx.semaphore"] = function()
    local methods = {}
    local meta = { __index = methods }
    local function of(self)
        if type(self) ~= "table" or self.sem == nil then error("not a semaphore instance", 3) end
        return self.sem
    end
    function methods:wait(seconds)
        local sem = of(self)
        if type(seconds) ~= "number" or seconds < 0 then error("no timeout or invalid timeout", 2) end
        return semaphore.wait(sem, seconds)
    end
    function methods:post(units)
        local sem = of(self)
        units = units or 1
        if type(units) ~= "number" or units < 1 then error("invalid argument: " .. tostring(units), 2) end
        return semaphore.post(sem, units)
    end
    function methods:count()
        return semaphore.count(of(self))
    end
    return {
        version = "0.1.33",
        new = function(units)
            units = units or 0
            if type(units) ~= "number" or units < 0 then error("no initial resource count", 2) end
            return setmetatable({ sem = semaphore.new(units) }, meta)
        end,
    }
end

preload["ngx.resp"] = function() return { add_header = ngx.resp._add_header } end
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
