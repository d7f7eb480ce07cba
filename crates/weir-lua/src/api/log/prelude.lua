-- `ngx.log` and `print`, of tables too.
local ngx = ngx
local type = type
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
-- What is not logged ends here, in compiled code, too.
local C = ngx._fast.C
ngx.log = function(...)
    local level = ...
    if type(level) == "number" and C.hears(level) == 0 then return end
    if has_table(...) then return show_log(...) end
    return raw_log(...)
end
print = function(...)
    if has_table(...) then return show_print(...) end
    return raw_print(...)
end
ngx._print = nil
