-- `ngx.req.*` and `ngx.resp.*`, compiled: lists of fields and arguments, the method, single fields. What is out of the
-- ordinary goes to the functions that raise the right errors.
local ngx = ngx
local req, resp = ngx.req, ngx.resp
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type, tostring, tonumber, rawget, setmetatable = type, tostring, tonumber, rawget, setmetatable
local lower, find, new_table, clear = string.lower, string.find, require "table.new", require "table.clear"
local refused = req._refused
req._refused = nil

-- Fields by their name in lower case, hyphens for underscores where the name as it is finds none.
local meta = {
    __index = function(self, key)
        if type(key) ~= "string" then return nil end
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

-- So many at most, 0 for all; 100 unless the caller says a number that is none below zero.
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
req.get_headers, resp.get_headers = fields_of(0), fields_of(1)
function req.get_uri_args(most, into)
    return list(2, most, true, into)
end
req.get_query_args = req.get_uri_args

local decode_args = ngx.decode_args
function ngx.decode_args(...)
    local args, most = ...
    if type(args) ~= "string" or (most ~= nil and type(most) ~= "number") or select("#", ...) > 2 then
        return decode_args(...)
    end
    local count = C.list(3, limit(most), 1, args, #args, out)
    if count < 0 then return decode_args(...) end
    local cut = out.flag == 1
    local into = gather(new_table(0, count), count)
    if cut then return into, "truncated" end
    return into
end

local get_method, start_time, http_version, is_internal =
    req.get_method, req.start_time, req.http_version, req.is_internal
-- Not by tail calls: an error has the place of who called these.
function req.get_method()
    if C.request(0, out) == 1 then return text(out.at, out.len) end
    return (get_method())
end
function req.start_time()
    if C.request(1, out) == 1 then return out.number end
    return (start_time())
end
function req.http_version()
    if C.request(2, out) == 1 then return out.number end
    return (http_version())
end
function req.is_internal()
    if C.request(3, out) == 1 then return out.number == 1 end
    return (is_internal())
end

local set_method = req._set_method
req._set_method = nil
function req.set_method(method)
    if type(method) ~= "number" then error("bad method number", 2) end
    if C.set_method(method) ~= 1 then return set_method(method) end
end

local set_header, clear_header = req.set_header, req.clear_header
local texts = ngx._texts
ngx._texts = nil
function req.set_header(name, value)
    if name == nil then error("bad 'name' argument: string expected, got nil", 2) end
    if type(name) ~= "string" then name = tostring(name) end
    if value == nil then
        if C.set_request_header(name, #name, nil, 0) == 1 then return end
    else
        value = texts(value)
        if type(value) == "string" and C.set_request_header(name, #name, value, #value) == 1 then return end
    end
    return set_header(name, value)
end
local add_header, add_response_header = req._add_header, resp._add_header
function req._add_header(name, value)
    if name == nil then error("bad 'name' argument: string expected, got nil", 2) end
    if value == nil then error("bad 'value' argument: string or table expected, got nil", 2) end
    if type(value) == "table" and #value == 0 then error("bad 'value' argument: non-empty table expected", 2) end
    return add_header(tostring(name), texts(value))
end
function resp._add_header(name, value)
    if value == nil then error("invalid header value", 2) end
    return add_response_header(tostring(name), texts(value))
end
function req.clear_header(name)
    if type(name) ~= "string" then name = tostring(name) end
    if C.set_request_header(name, #name, nil, 0) == 1 then return end
    return clear_header(name)
end
