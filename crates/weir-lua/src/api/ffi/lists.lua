-- Lists of fields and arguments as tables: what `ngx.req.get_headers`, `ngx.resp.get_headers`, `ngx.req.get_uri_args` and
-- `ngx.decode_args` share.
local ngx = ngx
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type, tonumber, rawget, setmetatable = type, tonumber, rawget, setmetatable
local lower, find, new_table, clear = string.lower, string.find, require "table.new", require "table.clear"
local refused = ngx.req._refused
ngx.req._refused = nil

-- Fields by their name in lower case, hyphens for underscores where the name as it is finds none.
local meta = {
    __index = function(self, key)
        if type(key) ~= "string" and type(key) ~= "number" then return nil end
        key = lower(key)
        local value = rawget(self, key)
        if value ~= nil or not find(key, "_", 1, true) then return value end
        C.text(11, key, #key, 0, out)
        return rawget(self, text(out.at, out.len))
    end,
}

-- Adds a pair to a table: the second value of a name makes a list.
local function add(into, name, value)
    local known = into[name]
    if known == nil then
        into[name] = value
    elseif type(known) == "table" then
        known[#known + 1] = value
    else
        into[name] = { known, value }
    end
end

-- Adds the pairs of the last list to a table.
local function gather(into, count)
    local pairs = out.pairs
    for at = 0, count - 1 do
        local pair = pairs[at]
        local name, value = text(pair.name, pair.name_len), true
        if pair.value_len >= 0 then value = text(pair.value, pair.value_len) end
        add(into, name, value)
    end
    return into
end

-- As `gather`, of the request's fields: most have the names and values that those of the last request had.
local names, values = {}, {}
local function gather_fields(into, count)
    local pairs = out.pairs
    out.strings = 0
    for at = 0, count - 1 do
        local pair = pairs[at]
        if pair.name ~= nil then
            names[at], values[at] = text(pair.name, pair.name_len), text(pair.value, pair.value_len)
        end
        add(into, names[at], values[at])
    end
    out.strings = out.list
    return into
end

-- At most this many, 0 for all; 100 if the caller gives none or a negative number.
local function limit(most)
    most = tonumber(most)
    if not most or most < 0 then return 100 end
    return most
end

local function list(what, most, raw, into)
    local count = C.list(what, limit(most), raw and 1 or 0, nil, 0, out)
    if count < 0 then return refused() end
    local cut = out.flag == 1
    if into then clear(into) else into = new_table(0, count) end
    if what == 0 then gather_fields(into, count) else gather(into, count) end
    if cut then return into, "truncated" end
    return into
end

-- Two functions of one body: their number stays a constant of each when compiled.
local function fields_of(what)
    return function(most, raw)
        local fields, cut = list(what, most, raw)
        if not raw then setmetatable(fields, meta) end
        if cut then return fields, cut end
        return fields
    end
end

ngx._lists = { list = list, fields_of = fields_of, gather = gather, limit = limit }
