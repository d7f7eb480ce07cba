-- `ngx.shared`: a table for each dictionary, whose number is at 0, and what C functions know it by at 1.
local dict = ngx._dict
ngx._dict = nil
local C, out, given, text = ngx._fast.C, ngx._fast.out, ngx._fast.value, ngx._fast.string
local glance, clear = ngx._fast.glance, require "table.clear"
local type, tostring, tonumber, error = type, tostring, tonumber, error
local methods = {}
for name, method in pairs(dict) do
    if name ~= "names" then methods[name] = method end
end

-- Where the dictionaries are, by their numbers; and what this VM knows of their entries, by key: a mark, the version of
-- it with which the value was read, that value, its flags if there are any, and when it expires. It holds as long as the
-- mark has that version.
local places, known, counts = {}, {}, {}
local function place_of(zone)
    local place = type(zone) == "table" and places[zone[0]]
    if not place then error('bad "zone" argument', 3) end
    return place
end

-- The key as a text, or nil and what is wrong with it.
local function key_of(key)
    if type(key) ~= "string" then
        if key == nil then return nil, "nil key" end
        key = tostring(key)
    end
    if #key == 0 then return nil, "empty key" end
    if #key > 65535 then return nil, "key too long" end
    return key
end

-- How many entries are known at most, and of how many bytes their keys and values may be.
local MOST, LONGEST = 500, 256
local function remember(number, key, value, flags)
    local entries = known[number]
    if #key > LONGEST then return end
    local entry = entries[key]
    if not entry then
        if counts[number] >= MOST then
            clear(entries)
            counts[number] = 0
        end
        counts[number] = counts[number] + 1
        entry = { out.mark, -1, value, flags, out.expires }
        entries[key] = entry
    end
    entry[1], entry[3], entry[4], entry[5] = out.mark, value, flags, out.expires
    entry[2] = out.version
end

-- Notes that an entry was used, as the server does.
local function touch(mark)
    local stamp = glance.stamp + 1
    glance.stamp = stamp
    if stamp >= mark.used + glance.gap then mark.used = stamp end
end

local function look(zone, key, stale)
    local place, wrong = place_of(zone)
    key, wrong = key_of(key)
    if not key then return nil, wrong end
    local kind = C.dict_get(place, key, #key, stale, out)
    if kind == 0 then return nil end
    local value, flags = nil, out.flags
    if kind == 1 then
        value = text(out.at, out.len)
    elseif kind == 2 then
        value = out.number
    elseif kind == 3 then
        value = out.number ~= 0
    else
        return nil, "value is a list"
    end
    if flags == 0 then flags = nil end
    if out.mark ~= nil and kind == 1 then remember(zone[0], key, value, flags) end
    if flags then return value, flags end
    return value
end
function methods.get(zone, key)
    local entries = type(zone) == "table" and known[zone[0]]
    local entry = entries and entries[key]
    if entry then
        local mark = entry[1]
        if mark.version == entry[2] and glance.now < entry[5] then
            touch(mark)
            local flags = entry[4]
            if flags then return entry[3], flags end
            return entry[3]
        end
    end
    return look(zone, key, 0)
end
function methods.get_stale(zone, key)
    local value, flags = look(zone, key, 1)
    if value == nil then return nil, flags end
    return value, flags, out.flag ~= 0
end

local FOREVER = math.huge
local reasons = { [0] = "closed", [5] = "exists", [6] = "not found", [7] = "no memory", [8] = "not a number" }
local function store(zone, when, evict, key, value, ttl, flags)
    local place, wrong = place_of(zone)
    if ttl == nil then
        ttl = 0
    elseif type(ttl) ~= "number" or ttl < 0 then
        error('bad "exptime" argument', 3)
    end
    key, wrong = key_of(key)
    if not key then return nil, wrong end
    local bytes, kind = "", type(value)
    if kind == "string" then
        bytes, given.kind = value, 0
    elseif kind == "number" then
        given.number, given.kind = value, 1
    elseif kind == "boolean" then
        given.number, given.kind = value and 1 or 0, 2
    elseif value == nil then
        if when ~= 0 then return false, "attempt to add or replace nil values", false end
        given.kind = 3
    else
        return nil, "bad value type"
    end
    given.ttl, given.flags, given.when, given.evict = ttl, flags or 0, when, evict
    local outcome = C.dict_set(place, key, #key, bytes, #bytes, given, out)
    if outcome == 1 then return true, nil, out.flag ~= 0 end
    return false, reasons[outcome], out.flag ~= 0
end
function methods.set(zone, key, value, ttl, flags)
    -- What is there already, and for ever, is only used.
    local entries = not ttl and not flags and type(zone) == "table" and known[zone[0]]
    local entry = entries and entries[key]
    if entry and entry[3] == value and entry[5] == FOREVER and not entry[4] then
        local mark = entry[1]
        if mark.version == entry[2] then
            touch(mark)
            return true, nil, false
        end
    end
    return store(zone, 0, 1, key, value, ttl, flags)
end
function methods.safe_set(zone, key, value, ttl, flags) return store(zone, 0, 0, key, value, ttl, flags) end
function methods.add(zone, key, value, ttl, flags) return store(zone, 1, 1, key, value, ttl, flags) end
function methods.safe_add(zone, key, value, ttl, flags) return store(zone, 1, 0, key, value, ttl, flags) end
function methods.replace(zone, key, value, ttl, flags) return store(zone, 2, 1, key, value, ttl, flags) end
function methods.delete(zone, key) return store(zone, 0, 1, key, nil) end

local function wanted(name, value)
    local number = tonumber(value)
    if not number then error("bad " .. name .. " arg: number expected, got " .. type(value), 3) end
    return number
end
function methods.incr(zone, key, by, init, ttl)
    local place, wrong = place_of(zone)
    key, wrong = key_of(key)
    if not key then return nil, wrong end
    if type(by) ~= "number" then by = tonumber(by) end
    given.number, given.when, given.ttl = by, 0, 0
    if init ~= nil then
        given.init, given.when = wanted("init", init), 1
    end
    if ttl ~= nil then
        local seconds = wanted("init_ttl", ttl)
        if seconds < 0 then error('bad "init_ttl" argument', 2) end
        if init == nil then error('must provide "init" when providing "init_ttl"', 2) end
        given.ttl = seconds
    end
    local outcome = C.dict_incr(place, key, #key, given, out)
    if outcome ~= 1 then
        if outcome == 7 then return nil, "no memory", out.flag ~= 0 end
        return nil, reasons[outcome]
    end
    if init == nil then return out.number end
    return out.number, nil, out.flag ~= 0
end
function methods.flush_all(zone)
    C.dict_whole(place_of(zone), 0, out)
end
function methods.capacity(zone)
    C.dict_whole(place_of(zone), 1, out)
    return out.number
end
function methods.free_space(zone)
    C.dict_whole(place_of(zone), 2, out)
    return out.number
end

local other_ttl, other_expire = methods.ttl, methods.expire
function methods.ttl(zone, key)
    if type(key) ~= "string" or #key == 0 or #key > 65535 then return other_ttl(zone, key) end
    local outcome = C.dict_key(place_of(zone), 0, key, #key, 0, out)
    if outcome == 2 then return out.number end
    if outcome == 6 then return nil, "not found" end
    return other_ttl(zone, key)
end
-- Negative times count as none.
function methods.expire(zone, key, exptime)
    if type(key) ~= "string" or #key == 0 or #key > 65535 then return other_expire(zone, key, exptime) end
    if exptime == nil then error('bad "exptime" argument', 2) end
    local place, seconds = place_of(zone), exptime * 1
    if not (seconds > 0) then seconds = 0 end
    local outcome = C.dict_key(place, 1, key, #key, seconds, out)
    if outcome == 1 or outcome == 3 then return true end
    if outcome == 6 then return nil, "not found" end
    return other_expire(zone, key, seconds)
end

-- Where scripts find it that replace a method of all.
methods.__index = methods
ngx.shared, ngx._zones = {}, {}
local tonumber, cast = tonumber, require "ffi".cast
for number, name in ipairs(dict.names()) do
    places[number], known[number], counts[number] = C.dict(number), {}, 0
    ngx.shared[name] = setmetatable({ [0] = number, places[number] }, methods)
    ngx._zones[tonumber(cast("uintptr_t", places[number]))] = places[number]
end
