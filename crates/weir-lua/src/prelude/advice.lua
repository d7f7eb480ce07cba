-- What the compiler does, told for `weir lua jit`: why it gives up, and where. Called when it compiles, not when code runs.
local told = ngx._jit_told
ngx._jit_told = nil
local require, type, sub, format, pcall = require, type, string.sub, string.format, pcall

local function place(util, names, func, pc)
    local info = util.funcinfo(func, pc)
    return info.loc or info.ffid and names.ffnames[info.ffid] or "a C function"
end

local function reason(util, names, code, extra)
    if type(code) ~= "number" then return code end
    local text = names.traceerr[code]
    if type(extra) == "function" then extra = place(util, names, extra) end
    if text == "NYI: bytecode %s" then extra = sub(names.bcnames, 6 * extra + 1, 6 * extra + 6) end
    return format(text, extra)
end

jit.attach(function(what, _, func, pc, code, extra)
    if what ~= "abort" then
        if what ~= "start" then told(what) end
        return
    end
    local util, names = require "jit.util", require "jit.vmdef"
    local known, why = pcall(reason, util, names, code, extra)
    told(what, place(util, names, func, pc), known and why or "trace error " .. code)
end, "trace")
