-- `ndk.set_var.*`: what the directives of set-misc make of a value.
local ngx = ngx
local gsub, format, byte, char = string.gsub, string.format, string.byte, string.char
local tostring, tonumber, error = tostring, tonumber, error

local json = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f" }
local function hex(text)
    return (gsub(text, ".", function(one) return format("%02x", byte(one)) end))
end

local directives = {
    set_escape_uri = function(text) return ngx.escape_uri(text) end,
    set_unescape_uri = function(text) return ngx.unescape_uri(text) end,
    set_quote_sql_str = function(text) return ngx.quote_sql_str(text) end,
    set_quote_json_str = function(text)
        return '"' .. gsub(text, '[%c"\\]', function(one) return json[one] or format("\\u%04x", byte(one)) end) .. '"'
    end,
    set_md5 = function(text) return ngx.md5(text) end,
    set_sha1 = function(text) return hex(ngx.sha1_bin(text)) end,
    set_encode_base64 = function(text) return ngx.encode_base64(text) end,
    set_decode_base64 = function(text) return ngx.decode_base64(text) or "" end,
    set_encode_hex = hex,
    set_decode_hex = function(text)
        return (gsub(text, "%x%x", function(two) return char(tonumber(two, 16)) end))
    end,
}

ndk = {
    set_var = setmetatable({}, {
        __index = function(_, name)
            local directive = directives[name]
            if not directive then
                error('ndk.set_var: directive "' .. tostring(name) .. '" not found or does not use ndk_set_var_value', 2)
            end
            return function(value) return directive(tostring(value)) end
        end,
        __newindex = function() error("attempt to write to ndk.set_var", 2) end,
    }),
}
package.loaded.ndk = ndk
