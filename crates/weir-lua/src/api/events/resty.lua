-- `resty.events` over `weir.events`: there is no broker, and nothing is listened on. What is configured for that has no effect.
local events = require "weir.events"
local ngx, type, assert, setmetatable = ngx, type, assert, setmetatable
local Events = { _VERSION = "0.3.1" }
Events.__index = Events

local function number(options, name, least)
    local value = options[name]
    if value == nil then return end
    assert(type(value) == "number", 'optional "' .. name .. '" option must be a number')
    assert(value > least, '"' .. name .. '" must be greater than ' .. least)
end

function Events.new(options)
    assert(type(options) == "table", "Expected a table, got " .. type(options))
    number(options, "unique_timeout", 0)
    number(options, "max_queue_len", 0)
    number(options, "max_payload_len", 0)
    -- Objects of one address hear one another, as with the library.
    local channel = events.channel("resty.events " .. (options.listening or ""))
    return setmetatable({ opts = options, channel = channel, seconds = options.unique_timeout or 5 }, Events)
end

function Events:init_worker()
    self.ready = true
    return true
end

-- Where workers would connect to.
function Events:run() return ngx.exit(444) end

function Events:publish(target, source, event, data)
    assert(type(target) == "string" and target ~= "", "target is required")
    if target ~= "all" and target ~= "current" then target = "unique " .. target end
    return self.channel:publish(target, source, event, data, self.seconds)
end

function Events:subscribe(source, event, callback) return self.channel:subscribe(source, event, callback) end
function Events:unsubscribe(id)
    assert(type(id) == "string" and id ~= "", "id is required")
    self.channel:unsubscribe(id)
end
function Events:is_ready() return self.ready end

return Events
