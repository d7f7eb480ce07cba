-- `ngx.var`: a table whose keys are asked of the request. Metamethods that end with a tail call are not compiled when an interpreted function calls them: none does where it is
-- fast.
local ngx = ngx
local var_get, var_set = ngx._var_get, ngx._var_set
ngx._var_get, ngx._var_set = nil, nil
local type, tostring, setmetatable = type, tostring, setmetatable
local C, out, glance = ngx._fast.C, ngx._fast.out, ngx._fast.glance
local memory, remember, taken = ngx._fast.memory, ngx._fast.remember, ngx._fast.taken

-- Numbers of variables, which hold as long as the VM; from here on their values change only with something else.
local indexes, settable, STEADY, UNKNOWN = {}, {}, 0x1000000, -3
local known = memory()
-- Names that are numbered: a script may make them of what clients send. Others are looked up each time.
local numbered, MOST = 0, 4096
ngx.var = setmetatable({}, {
    __index = function(_, name)
        if known.states[name] == glance.change then return known.values[name] end
        local index = indexes[name]
        if not index then
            if type(name) == "number" then
                local found = C.capture(name, out)
                if found < 0 then return var_get(name) end
                local value = taken(found)
                return value
            end
            if type(name) ~= "string" then return var_get(name) end
            index = C.variable_index(name, #name)
            if index == UNKNOWN then return nil end
            if index < 0 then return var_get(name) end
            if numbered < MOST then
                numbered = numbered + 1
                indexes[name] = index
            end
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
                if index >= 0 and numbered < MOST then
                    numbered = numbered + 1
                    settable[name] = index
                end
            end
            if value ~= nil and type(value) ~= "string" then value = tostring(value) end
            local given = value
            if index >= 0 then
                if type(given) == "string" then
                    if C.set_variable(index, given, #given) == 1 then return end
                elseif given == nil and C.set_variable(index, nil, 0) == 1 then
                    return
                end
            elseif type(given) == "string" and C.set_module_variable(name, #name, given, #given) == 1 then
                return
            end
        end
        var_set(name, value)
    end,
})
