-- `resty.worker.events` over `weir.events`: events come at once, so there is nothing to be polled and no dictionary to be
-- configured. What is configured for that has no effect.
local _, native = ...
local events = require "weir.events"
local ngx, type, error, next, setmetatable, tostring = ngx, type, error, next, setmetatable, tostring
local log, ERR, number_of = ngx.log, ngx.ERR, native.fast.C.worker_number
local channel = events.channel("resty.worker.events")
local module = { _VERSION = "2.0.1" }
local configured, timeout = false, 2

-- Its handlers get the number that `ngx.worker.pid` gives to the worker that has posted.
function channel.who(worker) return number_of(worker) end

local function names(...)
    local list = { ... }
    if not next(list) then list[1] = "*" end
    return list
end

local function register(weak, handler, source, ...)
    if type(handler) ~= "function" then error("expected function, got: " .. type(handler), 3) end
    for _, event in next, names(...) do channel:subscribe(source or "*", event, handler, weak) end
    return true
end

function module.register(handler, source, ...) return register(false, handler, source, ...) end
function module.register_weak(handler, source, ...) return register(true, handler, source, ...) end

function module.unregister(handler, source, ...)
    if type(handler) ~= "function" then error("expected function, got: " .. type(handler), 2) end
    local found = false
    for _, event in next, names(...) do found = channel:forget(source or "*", event, handler) or found end
    return found
end

local function post(target, source, event, data)
    for what, value in next, { source = source or false, event = event or false } do
        if type(value) ~= "string" or value == "" then return nil, what .. " is required" end
    end
    local ok, why = channel:publish(target, source, event, data, timeout)
    if ok then return true end
    why = 'failed posting event "' .. event .. '" by "' .. source .. '"; ' .. tostring(why)
    log(ERR, "worker-events: ", why)
    return nil, why
end

-- With `unique`, one worker hears it, once in the configured time.
function module.post(source, event, data, unique)
    return post(unique == nil and "all" or "unique " .. tostring(unique), source, event, data)
end

function module.post_local(source, event, data) return post("current", source, event, data) end

module.poll = events.poll

local bounds = {
    timeout = { function(value) return value > 0 end, '"timeout" must be greater than 0' },
    interval = { function(value) return value >= 0 end, '"interval" must be greater than or equal to 0' },
    wait_interval = { function(value) return value >= 0 end, '"wait_interval" must be greater than or equal to 0' },
    wait_max = { function(value) return value >= 0 end, '"wait_max" must be greater than or equal to 0' },
    shm_retries = { function(value) return value >= 0 end, '"shm_retries" must be 0 or greater' },
}

local function stopping(premature)
    if not premature then return end
    module.post(module.events._source, module.events.stopping)
    module.poll()
end

function module.configure(options)
    if type(options) ~= "table" then error("Expected a table, got " .. type(options), 2) end
    for option, bound in next, bounds do
        local value = options[option]
        if value ~= nil and type(value) ~= "number" then return nil, 'optional "' .. option .. '" option must be a number' end
        if value ~= nil and not bound[1](value) then return nil, bound[2] end
    end
    timeout = options.timeout or timeout
    if configured then
        module.poll()
        return true
    end
    configured = true
    local ok, why = module.post(module.events._source, module.events.started)
    if not ok then return nil, why end
    -- One that runs when the worker leaves, for that is when it hears of it.
    ok, why = ngx.timer.at(1e8, stopping)
    if not ok then return nil, "failed to create timer: " .. tostring(why) end
    return true
end

function module.configured() return configured end

function module.event_list(source, ...)
    local list = { _source = source }
    for _, event in next, { ... } do list[event] = event end
    return setmetatable(list, {
        __index = function(_, key) error("event '" .. tostring(key) .. "' is an unknown event", 2) end,
    })
end

module.events = module.event_list("resty-worker-events", "started", "stopping")

return module
