-- `resty.lrucache` and `resty.lrucache.pureffi`: a table of this many entries, of which the least used goes. Entries
-- are numbers, their neighbours in the order of use are in arrays: a get makes no garbage and stays compiled.
local new_table = require "table.new"
local ffi = require "ffi"
local now = ngx.now
local setmetatable, next, type, tonumber, floor = setmetatable, next, type, tonumber, math.floor

local methods = { _VERSION = "0.15" }
local meta = { __index = methods }
local links = ffi.typeof("int32_t[?]")
local times = ffi.typeof("double[?]")
local numbers = ffi.typeof("uint32_t[?]")

-- Entry 0 is the ring's head: after it the last used one, before it the next to be evicted. Free entries are a list.
local function empty(self)
    local size, after = self.size, self.after
    for at = 1, size - 1 do after[at] = at + 1 end
    after[size] = 0
    self.free, self.used = 1, 0
    after[0], self.before[0] = 0, 0
    self.places = new_table(0, size)
    self.keys, self.values = new_table(size, 0), new_table(size, 0)
end

local function each(self, key)
    local at
    key, at = next(self.places, key)
    if key ~= nil then return key, self.values[at] end
end

-- Keys with their values, as lua-resty-lrucache has them: libraries look through it.
local function shown(self)
    return setmetatable({}, {
        __index = function(_, key)
            local at = self.places[key]
            if at then return self.values[at] end
        end,
        __pairs = function() return each, self, nil end,
    })
end

function methods.new(size)
    if type(size) ~= "number" or not (size >= 1) then return nil, "size too small" end
    -- Above, the arrays' lengths would be cut to 32 bits.
    if size >= 2 ^ 31 - 1 then return nil, "size too large" end
    size = floor(size)
    local self = {
        size = size, after = links(size + 1), before = links(size + 1), ends = times(size + 1), flags = numbers(size + 1),
    }
    self.hasht = shown(self)
    empty(self)
    return setmetatable(self, meta)
end

local function unlink(after, before, at)
    local one, other = before[at], after[at]
    after[one], before[other] = other, one
end

local function to_front(after, before, at)
    local first = after[0]
    after[at], before[at] = first, 0
    after[0], before[first] = at, at
end

local function forget(self, at)
    local after = self.after
    unlink(after, self.before, at)
    self.places[self.keys[at]] = nil
    self.keys[at], self.values[at] = false, false
    after[at], self.free = self.free, at
    self.used = self.used - 1
end

function methods:get(key)
    local at = self.places[key]
    if not at then return nil end
    local after, before = self.after, self.before
    if after[0] ~= at then
        unlink(after, before, at)
        to_front(after, before, at)
    end
    local value, flags, ends = self.values[at], tonumber(self.flags[at]), self.ends[at]
    if ends >= 0 and ends < now() then return nil, value, flags end
    return value, nil, flags
end

function methods:set(key, value, ttl, flags)
    local after, before, places = self.after, self.before, self.places
    local at = places[key]
    if at then
        unlink(after, before, at)
    else
        if self.free == 0 then forget(self, before[0]) end
        at = self.free
        self.free, self.used = after[at], self.used + 1
        places[key], self.keys[at] = at, key
    end
    to_front(after, before, at)
    self.values[at] = value
    self.ends[at] = ttl and now() + ttl or -1
    if type(flags) ~= "number" or flags < 0 then flags = 0 end
    self.flags[at] = flags
end

function methods:delete(key)
    local at = self.places[key]
    if not at then return false end
    forget(self, at)
    return true
end

function methods:count() return self.used end
function methods:capacity() return self.size end
function methods:flush_all() empty(self) end

-- The last used first; `into` ends with a nil after them.
function methods:get_keys(most, into)
    most = (not most or most <= 0) and self.used or most
    into = into or new_table(most + 1, 0)
    local after, count = self.after, 0
    local at = after[0]
    while at ~= 0 and count < most do
        count = count + 1
        into[count] = self.keys[at]
        at = after[at]
    end
    into[count + 1] = nil
    return into
end

return methods
