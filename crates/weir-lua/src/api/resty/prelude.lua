-- `resty.core.*`
local preload = package.preload
local ngx = ngx
-- What lua-resty-core replaces elsewhere is native here; some of its modules have functions of their own.
local C = ngx._fast.C
local getters, setters, registry = ngx._getters, ngx._setters, debug.getregistry()
local ngx_resp, header = ngx.resp, ngx.header
local req_set, req_add = ngx.req.set_header, ngx.req._add_header
local resp_add, bypass = ngx_resp._add_header, ngx_resp._bypass_if_checks
ngx.req._add_header, ngx_resp._add_header, ngx_resp._bypass_if_checks = nil, nil, nil
local type, error, byte, find = type, error, string.byte, string.find
local ffi = require "ffi"
local copy, new, text_of = ffi.copy, ffi.new, ffi.string
local bytes, buffer, size = ffi.typeof "unsigned char[?]", nil, 0

-- `text` with each `from` as `to`, if `from` is in it: of both the first byte counts.
local function replaced(text, from, to)
    if not find(text, from, 1, true) then return text end
    local length, before, after = #text, byte(from), byte(to)
    if not before or not after then error("bad argument to 'str_replace_char' (a character expected)", 2) end
    if length > size then buffer, size = new(bytes, length), length end
    copy(buffer, text, length)
    for at = 0, length - 1 do
        if buffer[at] == before then buffer[at] = after end
    end
    return text_of(buffer, length)
end

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
    request = {
        set_req_header = function(name, value, override)
            if override then req_set(name, value) else req_add(name, value) end
        end,
    },
    response = {
        bypass_if_checks = bypass,
        set_resp_header = function(_, name, value, no_override)
            if not no_override then
                header[name] = value
            elseif type(value) ~= "table" or #value > 0 then
                resp_add(name, value)
            end
        end,
    },
    time = {
        monotonic_time = function() return C.monotonic() end,
        monotonic_msec = function() return C.monotonic() * 1000 end,
    },
    utils = { str_replace_char = replaced },
}
-- Of these the version has another name.
local underscored = { ctx = true, misc = true, worker = true }
for _, name in ipairs {
    "", "uri", "hash", "base64", "request", "response", "misc", "worker", "phase", "ctx", "var", "exit", "ndk", "utils",
    "coroutine", "shdict", "param", "socket", "time",
} do
    preload[name == "" and "resty.core" or "resty.core." .. name] = function()
        local module = own[name] or {}
        module[underscored[name] and "_VERSION" or "version"] = "0.1.33"
        return module
    end
end

-- Loaded from the beginning, as in OpenResty: applications look for it without requiring it.
require "resty.core"
