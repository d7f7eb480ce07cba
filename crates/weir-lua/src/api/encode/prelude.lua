-- Encoders and digests, compiled. What is out of the ordinary goes to the functions that raise the right errors.
local ngx = ngx
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type, tostring, error, select = type, tostring, error, select

-- `what` as the function table numbers it; nil counts as nothing, numbers and booleans as their text.
local function of_text(what, name)
    local other = ngx[name]
    return function(...)
        local value = ...
        if type(value) ~= "string" then
            if value == nil and (what == 8 or select("#", ...) == 0) or what == 8 and type(value) == "table" then return other(...) end
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
    ngx[name] = function(...)
        local value = ...
        if type(value) ~= "string" then
            if value == nil and select("#", ...) == 0 then return other() end
            value = value and tostring(value) or ""
        end
        C.text(9, value, #value, 0, out)
        return out.number
    end
end
sum("crc32_short")
sum("crc32_long")

local gather, limit, new_table = ngx._lists.gather, ngx._lists.limit, require "table.new"
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

package.preload["ngx.base64"] = function()
    return {
        version = "0.1.33",
        encode_base64url = function(value)
            if type(value) ~= "string" then return nil, "must provide a string" end
            C.text(12, value, #value, 0, out)
            return text(out.at, out.len)
        end,
        decode_base64url = function(value)
            if type(value) ~= "string" then return nil, "must provide a string" end
            if C.text(13, value, #value, 0, out) ~= 1 then return nil, "invalid input" end
            return text(out.at, out.len)
        end,
    }
end
