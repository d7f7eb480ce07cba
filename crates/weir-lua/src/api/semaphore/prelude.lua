-- `ngx.semaphore`
local preload = package.preload
local type, tonumber, error, setmetatable = type, tonumber, error, setmetatable
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
