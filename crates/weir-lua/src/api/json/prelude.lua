-- `require "cjson"` and `require "cjson.safe"`, with lua-cjson's settings.
local json = ngx._json
ngx._json = nil
local encode, decode = json.encode, json.decode
local pcall, setmetatable = pcall, setmetatable
local registry = debug.getregistry()
local array_mt, empty_array_mt = {}, {}
registry["weir.json_array_mt"], registry["weir.json_empty_mt"] = array_mt, empty_array_mt
local empty_array = registry["weir.json_empty_array"]

local function make(safe)
    local depth, precision, read_depth = 1000, 14, 1000
    local convert, ratio, sparse_safe = false, 2, 10
    local as_object, keeps_slash, with_mt, invalid = true, false, false, false
    local own = { _NAME = "cjson", _VERSION = "2.1.0.14", null = ngx.null, empty_array = empty_array,
        array_mt = array_mt, empty_array_mt = empty_array_mt }
    local function write(value)
        return encode(value, depth, precision, convert, ratio, sparse_safe, as_object, keeps_slash, invalid)
    end
    local function read(text)
        return decode(text, read_depth, with_mt)
    end
    if safe then
        local function kept(ok, ...)
            if ok then return ... end
            return nil, (...)
        end
        own.encode = function(value) return kept(pcall(write, value)) end
        own.decode = function(text) return kept(pcall(read, text)) end
    else
        own.encode, own.decode = write, read
    end
    local function switch(get, set)
        return function(value)
            if value ~= nil then set(value) end
            return get()
        end
    end
    own.encode_max_depth = switch(function() return depth end, function(v) depth = v end)
    own.decode_max_depth = switch(function() return read_depth end, function(v) read_depth = v end)
    own.encode_number_precision = switch(function() return precision end, function(v) precision = v end)
    own.encode_empty_table_as_object = switch(function() return as_object end, function(v) as_object = v and v ~= "off" end)
    own.encode_escape_forward_slash = switch(function() return not keeps_slash end, function(v) keeps_slash = not v end)
    own.decode_array_with_array_mt = switch(function() return with_mt end, function(v) with_mt = v and v ~= "off" end)
    own.encode_keep_buffer = switch(function() return true end, function() end)
    own.encode_invalid_numbers = switch(function() return invalid and "null" or false end, function(v)
        if v == true or v == "on" then error("numbers that JSON has not can be \"null\" or an error", 3) end
        invalid = v == "null"
    end)
    own.decode_invalid_numbers = switch(function() return true end, function() end)
    own.encode_sparse_array = function(to_object, most, from)
        if to_object ~= nil then convert = to_object end
        if most then ratio = most end
        if from then sparse_safe = from end
        return convert, ratio, sparse_safe
    end
    own.new = function() return make(safe) end
    return own
end

package.preload["cjson"] = function() return make(false) end
package.preload["cjson.safe"] = function() return make(true) end
