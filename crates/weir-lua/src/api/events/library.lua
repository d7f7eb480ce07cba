-- `weir.events`: what one worker says, and all of them hear.
local _, native = ...
local events = native.events
local join, publish, take = events.join, events.publish, events.take
local type, error, xpcall, pcall, tostring, setmetatable = type, error, xpcall, pcall, tostring, setmetatable
local traceback, floor = debug.traceback, math.floor
local ngx, log, ERR = ngx, ngx.log, ngx.ERR

local channels = {}
local busy, joined, number = false, false, 0

local function hear()
    local name, source, event, data, wid = take()
    while name do
        local channel = channels[name]
        if channel then channel:hear(source, event, data, wid) end
        name, source, event, data, wid = take()
    end
end

-- Handlers run one after another: "recursive" where one of them, or another coroutine meanwhile, asks for more.
local function poll()
    if busy then return "recursive" end
    busy = true
    local ok, why = pcall(hear)
    busy = false
    if not ok then return nil, tostring(why) end
    return "done"
end

local Channel = {}
Channel.__index = Channel

local function call(handlers, source, event, data, wid)
    if not handlers then return end
    -- Those that come and go meanwhile count from the next event on.
    local list = {}
    for at = 1, #handlers do list[at] = handlers[at] end
    for at = 1, #list do
        local handler = list[at].call or list[at].weak[1]
        if handler and not list[at].gone then
            local ok, why = xpcall(handler, traceback, data, event, source, wid)
            if not ok then
                log(ERR, "events: a handler failed; source=", source, ", event=", event, ", wid=", wid, ": ", tostring(why))
            end
        end
    end
end

function Channel:hear(source, event, data, wid)
    if self.who then wid = self.who(wid) end
    local of_source = self.handlers[source]
    call(self.handlers["*"] and self.handlers["*"]["*"], source, event, data, wid)
    call(of_source and of_source["*"], source, event, data, wid)
    call(of_source and of_source[event], source, event, data, wid)
end

-- `self.handlers[source][event]` is a list, with "*" for any.
local function list_of(self, source, event)
    local of_source = self.handlers[source] or {}
    self.handlers[source] = of_source
    of_source[event] = of_source[event] or {}
    return of_source[event]
end

local function name(value, what)
    if type(value) ~= "string" or value == "" then error(what .. " is required", 3) end
    return value
end

-- Calls `handler(data, event, source, wid)` for an event; "*" is any. What `unsubscribe` wants.
function Channel:subscribe(source, event, handler, weak)
    name(source, "source")
    name(event, "event")
    if type(handler) ~= "function" then error("function expected, got " .. type(handler), 2) end
    if source == "*" and event ~= "*" then error("an event of any source is \"*\"", 2) end
    if not joined then joined = join(poll) end
    number = number + 1
    local entry = { call = handler, id = tostring(number), list = list_of(self, source, event) }
    if weak then entry.call, entry.weak = nil, setmetatable({ handler }, { __mode = "v" }) end
    entry.list[#entry.list + 1] = entry
    self.ids[entry.id] = entry
    return entry.id
end

local function remove(entry)
    entry.gone = true
    for at = 1, #entry.list do
        if entry.list[at] == entry then return table.remove(entry.list, at) end
    end
end

-- Whether it was there.
function Channel:unsubscribe(id)
    local entry = self.ids[id]
    if not entry then return false end
    self.ids[id] = nil
    remove(entry)
    return true
end

-- Removes a handler where it was subscribed for an event; whether it was.
function Channel:forget(source, event, handler)
    local list = self.handlers[source] and self.handlers[source][event]
    local found = false
    for at = list and #list or 0, 1, -1 do
        local entry = list[at]
        if (entry.call or entry.weak[1]) == handler then
            self.ids[entry.id], found = nil, true
            remove(entry)
        end
    end
    return found
end

-- For "all" workers, the "current" one, the one of a number, or with any other text one worker, once in `seconds` (5).
function Channel:publish(target, source, event, data, seconds)
    if target == "current" then target = ngx.worker.id() or -1 end
    if type(target) ~= "number" then name(target, "target") end
    name(source, "source")
    name(event, "event")
    local ok, why = pcall(publish, target, self.name, source, event, data, floor((seconds or 5) * 1000))
    if not ok then return nil, "failed to publish event: " .. tostring(why) end
    return true
end

local function open(channel)
    channels[channel] = channels[channel] or setmetatable({ name = channel, handlers = {}, ids = {} }, Channel)
    return channels[channel]
end

local own = open("weir")
return {
    publish = function(...) return own:publish(...) end,
    subscribe = function(...) return own:subscribe(...) end,
    unsubscribe = function(...) return own:unsubscribe(...) end,
    poll = poll,
    -- Another one, whose events are its own: libraries are made of it.
    channel = open,
}
