-- Tables whose keys are asked of the request: `ngx.var`, `ngx.header`, `ngx.arg`. Metamethods that end with a tail call
-- are not compiled when an interpreted function calls them: none does where it is fast.
local ngx = ngx
local var_get, var_set = ngx._var_get, ngx._var_set
local header_get, header_set = ngx._header_get, ngx._header_set
ngx._var_get, ngx._var_set, ngx._header_get, ngx._header_set = nil, nil, nil, nil
local type, find, gsub, lower, setmetatable = type, string.find, string.gsub, string.lower, setmetatable

local C, out, text, glance = ngx._fast.C, ngx._fast.out, ngx._fast.string, ngx._fast.glance
local tostring = tostring

-- Strings that were made of values, by name, and the state of things that they hold for, or 0. A value that is the same the next
-- time is not made into a string again; in the same state it is not even asked for.
local MOST, LONGEST = 500, 256
local function memory()
    return { count = 0, values = {}, states = {} }
end
local function remember(known, name, value, state)
    if value and #value > LONGEST then
        value, state = nil, 0
    end
    if not known.states[name] then
        if known.count >= MOST then
            known.count, known.values, known.states = 0, {}, {}
        end
        known.count = known.count + 1
    end
    known.values[name], known.states[name] = value, state
end

-- What was found: a text that C told, what it was `last`, or nothing.
local function taken(found, last)
    if found == 1 then
        local value = text(out.at, out.len)
        return value
    end
    if found == 2 then return last end
    return nil
end

-- Numbers of variables, which hold as long as the VM; from here on their values change only with something else.
local indexes, settable, STEADY = {}, {}, 0x1000000
local known = memory()
ngx.var = setmetatable({}, {
    __index = function(_, name)
        if known.states[name] == glance.change then return known.values[name] end
        local index = indexes[name]
        if not index then
            if type(name) ~= "string" then return var_get(name) end
            index = C.variable_index(name, #name)
            if index < 0 then return var_get(name) end
            indexes[name] = index
        end
        local last = known.values[name]
        local found = C.variable(index, last, last and #last or 0, out)
        if found < 0 then return var_get(name) end
        local value = taken(found, last)
        if index >= STEADY then
            remember(known, name, value, glance.change)
        elseif value ~= last then
            remember(known, name, value, 0)
        end
        return value
    end,
    __newindex = function(_, name, value)
        if type(name) == "string" then
            local index = settable[name]
            if not index then
                index = C.settable(name, #name)
                if index >= 0 then settable[name] = index end
            end
            if value ~= nil and type(value) ~= "string" then value = tostring(value) end
            local given = value
            if index >= 0 then
                if type(given) == "string" then
                    if C.set_variable(index, given, #given) == 1 then return end
                elseif given == nil and C.set_variable(index, nil, 0) == 1 then
                    return
                end
            end
        end
        var_set(name, value)
    end,
})

-- Names that were taken as they are, which need no second look; with `_` that depends on the location.
local plain, plain_count = {}, 0
local function remember_plain(name)
    if find(name, "_", 1, true) then return end
    if plain_count >= MOST then plain, plain_count = {}, 0 end
    plain[name], plain_count = 1, plain_count + 1
end

-- A field's values as texts. What is none of Lua's strings is shown as Lua shows it.
local function texts(value)
    if type(value) ~= "table" then return tostring(value) end
    local list = {}
    for at = 1, #value do
        list[at] = tostring(value[at])
    end
    return list
end
ngx._texts = texts

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
        end
        return header_get(name)
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
        elseif name ~= nil then
            name = tostring(name)
        end
        if value ~= nil then value = texts(value) end
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

local arg_get, arg_set = ngx._arg_get, ngx._arg_set
ngx._arg_get, ngx._arg_set = nil, nil
ngx.arg = setmetatable({}, {
    __index = function(_, key)
        if type(key) == "number" then
            local found = C.arg(key, out)
            if found == 1 then
                local value = text(out.at, out.len)
                return value
            end
            if found == 2 then return out.flag == 1 end
        end
        return arg_get(key)
    end,
    __newindex = function(_, key, value) arg_set(key, value) end,
})
