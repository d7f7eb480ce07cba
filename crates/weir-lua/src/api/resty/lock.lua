-- `resty.lock`: locks of all workers, in a shared dictionary. One that is forgotten goes when its time is over.
local ngx, setmetatable, type, min = ngx, setmetatable, type, math.min
local shared, sleep = ngx.shared, ngx.sleep

local methods = {}
local meta = { __index = methods }

function methods.new(_, name, options)
    local dict = shared[name]
    if not dict then return nil, "dictionary not found" end
    options = options or {}
    return setmetatable({
        dict = dict,
        timeout = options.timeout or 5, exptime = options.exptime or 30,
        step = options.step or 0.001, ratio = options.ratio or 2, max_step = options.max_step or 0.5,
    }, meta)
end

function methods:lock(key)
    if not key then return nil, "nil key" end
    if self.key then return nil, "locked" end
    local dict, exptime = self.dict, self.exptime
    local waited, step, timeout = 0, self.step, self.timeout
    while true do
        local ok, why = dict:add(key, true, exptime)
        if ok then
            self.key = key
            return waited
        end
        if why ~= "exists" then return nil, why end
        if timeout <= 0 then return nil, "timeout" end
        local pause = min(step, timeout)
        sleep(pause)
        waited, timeout = waited + pause, timeout - pause
        step = min(step * self.ratio, self.max_step)
    end
end

function methods:unlock()
    local key = self.key
    if not key then return nil, "unlocked" end
    self.key = nil
    local ok, why = self.dict:delete(key)
    if not ok then return nil, why end
    return 1
end

function methods:expire(seconds)
    if not self.key then return nil, "unlocked" end
    if seconds ~= nil and type(seconds) ~= "number" then return nil, "bad argument #1 to 'expire'" end
    local ok, why = self.dict:replace(self.key, true, seconds or self.exptime)
    if not ok then return nil, why end
    return true
end

methods._VERSION = "0.09"
return methods
