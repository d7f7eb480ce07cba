-- What the compiler does, reported for `weir lua jit`: why it gives up, and where. Called when it compiles, not when
-- code runs.
local told = ngx._jit_told
ngx._jit_told = nil
local require, type, sub, format, pcall = require, type, string.sub, string.format, pcall
-- Loaded here: a `require` that fails for lack of memory leaves a module that can't be had any more.
local util, loaded = require "jit.util", package.loaded

local function place(names, func, pc)
    local info = util.funcinfo(func, pc)
    return info.loc or info.ffid and names.ffnames[info.ffid] or "a C function"
end

local function reason(names, code, extra)
    if type(code) ~= "number" then return code end
    local text = names.traceerr[code]
    if type(extra) == "function" then extra = place(names, extra) end
    if text == "NYI: bytecode %s" then extra = sub(names.bcnames, 6 * extra + 1, 6 * extra + 6) end
    return format(text, extra)
end

jit.attach(function(what, _, func, pc, code, extra)
    if what ~= "abort" then
        if what ~= "start" then told(what) end
        return
    end
    local had, names = pcall(require, "jit.vmdef")
    if not had then
        loaded["jit.vmdef"] = nil
        return
    end
    local known, why = pcall(reason, names, code, extra)
    told(what, place(names, func, pc), known and why or "trace error " .. code)
end, "trace")
