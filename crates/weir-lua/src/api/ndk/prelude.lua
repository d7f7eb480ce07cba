-- `ndk.set_var.*`: what the directives of set-misc make of a value.
local ngx, code = ngx, ngx._ndk.code
local tostring, error, select, sub = tostring, error, select, string.sub

local function called(name, value)
    if name == "set_md5" then return ngx.md5(value) end
    if name == "set_sha1" then return code("encode_hex", ngx.sha1_bin(value)) end
    local text = code(sub(name, 5), value)
    if text == nil then error("calling directive " .. name .. " failed with code -1", 2) end
    return text
end

local function is_directive(name)
    if name == "set_md5" or name == "set_sha1" then return true end
    return sub(name, 1, 4) == "set_" and select("#", code(sub(name, 5), "")) > 0
end

ndk = {
    set_var = setmetatable({}, {
        __index = function(_, name)
            name = tostring(name)
            if not is_directive(name) then
                error('ndk.set_var: directive "' .. name .. '" not found or does not use ndk_set_var_value', 2)
            end
            return function(value) return called(name, tostring(value)) end
        end,
        __newindex = function() error("attempt to write to ndk.set_var", 2) end,
    }),
}
package.loaded.ndk = ndk
