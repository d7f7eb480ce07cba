-- `resty.core.*`
local preload = package.preload
local ngx = ngx
-- What lua-resty-core replaces elsewhere is native here; some of its modules have functions of their own.
local C = ngx._fast.C
local getters, setters, registry = ngx._getters, ngx._setters, debug.getregistry()
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

-- Loaded from the beginning, as in OpenResty: applications look for it without requiring it.
require "resty.core"
