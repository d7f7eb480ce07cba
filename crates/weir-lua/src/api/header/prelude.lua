-- `ngx.header`: a table whose keys are asked of the request. Metamethods that end with a tail call are not compiled when an interpreted function calls them: none does where it is
-- fast.
local ngx = ngx
local header_get, header_set = ngx._header_get, ngx._header_set
ngx._header_get, ngx._header_set = nil, nil
local type, tostring, find, gsub, lower, setmetatable = type, tostring, string.find, string.gsub, string.lower, setmetatable
local C, out, glance, text = ngx._fast.C, ngx._fast.out, ngx._fast.glance, ngx._fast.string
local new_table = require "table.new"
local memory, remember, taken = ngx._fast.memory, ngx._fast.remember, ngx._fast.taken

-- How many names are known at most.
local MOST = 500
-- Names that were taken as they are, which need no second look; with `_` that depends on the location.
local plain, plain_count = {}, 0
local function remember_plain(name)
    if find(name, "_", 1, true) then return end
    if plain_count >= MOST then plain, plain_count = {}, 0 end
    plain[name], plain_count = 1, plain_count + 1
end

-- A field's values as texts. A value that is not a string is shown as Lua shows it.
local function texts(value)
    if type(value) ~= "table" then return tostring(value) end
    local list = {}
    for at = 1, #value do
        list[at] = tostring(value[at])
    end
    return list
end
ngx._texts = texts

-- Writes a field with a value, several or none, in compiled code; whether that was done. `what` as the function table numbers it.
local function write(what, name, value)
    local count = 0
    if type(value) == "table" then
        count = #value
        for at = 1, count do
            local text = value[at]
            C.field_value(at, text, #text)
        end
    elseif value ~= nil then
        count = 1
        C.field_value(1, value, #value)
    end
    return C.set_field(what, name, #name, count) == 1
end
ngx._write_field = write

-- What the last list has, one value or a table of them.
local function several(count)
    local pairs = out.pairs
    if count == 1 then
        local value = text(pairs[0].value, pairs[0].value_len)
        return value
    end
    local values = new_table(count, 0)
    for at = 0, count - 1 do values[at + 1] = text(pairs[at].value, pairs[at].value_len) end
    return values
end

local fields = memory()
ngx.header = setmetatable({}, {
    __index = function(_, name)
        if fields.states[name] == glance.change then return fields.values[name] end
        if type(name) == "string" then
            local last = fields.values[name]
            local found = C.header(name, #name, last, last and #last or 0, out)
            if found >= 0 then
                local value = taken(found, last)
                remember(fields, name, value, glance.change)
                return value
            end
            local count = C.header_values(name, #name, out)
            if count == 0 then return nil end
            if count > 0 then
                local values = several(count)
                return values
            end
        end
        return header_get(tostring(name))
    end,
    __newindex = function(_, name, value)
        if type(name) == "string" then
            local given = value
            if type(given) == "number" then given = tostring(given) end
            if type(given) == "string" then
                local known = plain[name]
                if C.set_header(name, #name, given, #given, known or 0) == 1 then
                    if not known then remember_plain(name) end
                    return
                end
            end
        else
            name = tostring(name)
        end
        if value ~= nil then value = texts(value) end
        if write(0, name, value) then return end
        header_set(name, value)
    end,
})

debug.getregistry()["weir.header_meta"] = {
    __index = function(self, key)
        if type(key) ~= "string" then return nil end
        key = gsub(lower(key), "_", "-")
        for name, value in pairs(self) do
            if lower(name) == key then return value end
        end
    end,
}
