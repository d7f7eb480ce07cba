-- `thread.exdata`
local preload = package.preload
local select = select
-- A value of the running coroutine's own; without one, which request it is.
local running, setmetatable = coroutine.running, setmetatable
local request = ngx._request
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
