-- Encoders, digests and times, compiled. What is out of the ordinary goes to the functions that raise the right errors.
local ngx = ngx
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type, tostring, error = type, tostring, error

-- `what` as the function table numbers it; nil counts as nothing, numbers and booleans as their text.
local function of_text(what, name)
    local other = ngx[name]
    return function(...)
        local value = ...
        if type(value) ~= "string" then
            if value == nil or what == 8 and type(value) == "table" then return other(...) end
            value = value and tostring(value) or what == 8 and "false" or ""
        end
        if C.text(what, value, #value, 0, out) == 1 then return text(out.at, out.len) end
        return other(...)
    end
end
for name, what in pairs { md5 = 0, md5_bin = 1, sha1_bin = 2, unescape_uri = 4, quote_sql_str = 8 } do
    ngx[name] = of_text(what, name)
end
local function nothing_is_empty(name)
    local known = ngx[name]
    ngx[name] = function(...)
        local value = ...
        if value == nil then return known("") end
        return known(...)
    end
end
nothing_is_empty("md5")
nothing_is_empty("md5_bin")
nothing_is_empty("sha1_bin")

local escape_uri, encode_base64 = ngx.escape_uri, ngx.encode_base64
function ngx.escape_uri(...)
    local value, kind = ...
    if type(value) ~= "string" then value = value and tostring(value) or "" end
    if kind == nil then
        kind = 2
    elseif type(kind) ~= "number" then
        error("\"type\" is not a number", 3)
    elseif kind < 0 or kind > 6 then
        error("\"type\" " .. kind .. " out of range", 3)
    end
    if C.text(3, value, #value, kind, out) == 1 then return text(out.at, out.len) end
    return escape_uri(value, kind)
end
function ngx.encode_base64(...)
    local value, bare = ...
    if value == nil then value = "" elseif type(value) ~= "string" then value = tostring(value) end
    if type(value) == "string" and (bare == nil or type(bare) == "boolean") then
        if C.text(5, value, #value, bare and 1 or 0, out) == 1 then return text(out.at, out.len) end
    end
    return encode_base64(...)
end
local function decoder(what, name, reason)
    local other = ngx[name]
    ngx[name] = function(value)
        if type(value) ~= "string" then return other(value) end
        if C.text(what, value, #value, 0, out) == 1 then return text(out.at, out.len) end
        if reason then return nil, reason end
        return nil
    end
end
decoder(6, "decode_base64")
decoder(7, "decode_base64mime", "invalid input")

local function sum(name)
    local other = ngx[name]
    ngx[name] = function(value)
        if type(value) ~= "string" then return other(value) end
        C.text(9, value, #value, 0, out)
        return out.number
    end
end
sum("crc32_short")
sum("crc32_long")

local parse_http_time = ngx.parse_http_time
function ngx.parse_http_time(value)
    if type(value) ~= "string" then return parse_http_time(value) end
    if C.text(10, value, #value, 0, out) == 1 then return out.number end
    return nil
end
-- Read once while a script runs without waiting, unless it wants it anew.
local glance, floor = ngx._fast.glance, math.floor
function ngx.now()
    local wall = glance.wall
    if wall ~= 0 then return wall end
    return C.now()
end
function ngx.time()
    local wall = glance.wall
    if wall ~= 0 then return floor(wall) end
    return C.seconds()
end
function ngx.update_time() C.update_time() end
for name, what in pairs { http_time = 0, cookie_time = 1 } do
    local other = ngx[name]
    ngx[name] = function(time)
        if type(time) ~= "number" then return other(time) end
        C.date(what, time, out)
        return text(out.at, out.len)
    end
end
for name, what in pairs { today = 2, localtime = 3, utctime = 4 } do
    ngx[name] = function()
        C.date(what, 0, out)
        return text(out.at, out.len)
    end
end
