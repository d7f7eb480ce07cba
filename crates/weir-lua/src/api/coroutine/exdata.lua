-- `thread.exdata`
local preload = package.preload
local select = select
-- A value of the running coroutine's own; without one, which request it is.
local running, setmetatable = coroutine.running, setmetatable
local C, out = ngx._fast.C, ngx._fast.out
local ffi = require "ffi"
local cast, pointer, type, error = ffi.cast, ffi.typeof "void *", type, error
local null = cast(pointer, 0)
local function request()
    if C.request(4, out) ~= 1 then return null end
    local address = cast(pointer, out.at)
    return address
end
local function nothing() return null end
for name, otherwise in pairs { ["thread.exdata"] = request, ["thread.exdata2"] = nothing } do
    preload[name] = function()
        -- Whether anybody has set one: until then it is not asked which coroutine this is.
        local values, main, any = setmetatable({}, { __mode = "k" }), {}, false
        return function(...)
            if select("#", ...) > 0 then
                local given = (...)
                if type(given) ~= "cdata" then error("bad argument #1 to '" .. name:sub(8) .. "' (cdata expected, got " .. type(given) .. ")", 2) end
                values[running() or main], any = cast(pointer, given), true
                return
            end
            local value
            if any then value = values[running() or main] end
            return value or otherwise()
        end
    end
end
