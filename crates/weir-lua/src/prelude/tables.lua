-- Tables whose keys are asked of the request: `ngx.var`, `ngx.header`, `ngx.arg`, and those of `get_headers`.
local ngx = ngx
local var_get, var_set = ngx._var_get, ngx._var_set
local header_get, header_set = ngx._header_get, ngx._header_set
ngx._var_get, ngx._var_set, ngx._header_get, ngx._header_set = nil, nil, nil, nil
local type, gsub, lower, setmetatable, rawget = type, string.gsub, string.lower, setmetatable, rawget

local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local tostring = tostring
-- Numbers of variables, which hold as long as the VM.
local indexes = {}
ngx.var = setmetatable({}, {
    __index = function(_, name)
        local index = indexes[name]
        if not index then
            if type(name) ~= "string" then return var_get(name) end
            index = C.variable_index(name, #name)
            if index < 0 then return var_get(name) end
            indexes[name] = index
        end
        local found = C.variable(index, out)
        if found == 1 then return text(out.at, out.len) end
        if found == 0 then return nil end
        return var_get(name)
    end,
    __newindex = function(_, name, value) var_set(name, value) end,
})

ngx.header = setmetatable({}, {
    __index = function(_, name)
        if type(name) == "string" then
            local found = C.header(name, #name, out)
            if found == 1 then return text(out.at, out.len) end
            if found == 0 then return nil end
        end
        return header_get(name)
    end,
    __newindex = function(_, name, value)
        if type(name) == "string" then
            local given = value
            if type(given) == "number" then given = tostring(given) end
            if type(given) == "string" and C.set_header(name, #name, given, #given) == 1 then return end
        end
        header_set(name, value)
    end,
})

local meta = {
    __index = function(self, key)
        if type(key) ~= "string" then return nil end
        return rawget(self, (gsub(lower(key), "_", "-")))
    end,
}
debug.getregistry()["weir.header_meta"] = {
    __index = function(self, key)
        if type(key) ~= "string" then return nil end
        key = gsub(lower(key), "_", "-")
        for name, value in pairs(self) do
            if lower(name) == key then return value end
        end
    end,
}

local req_headers, resp_headers = ngx.req._headers, ngx.resp._headers
ngx.req._headers, ngx.resp._headers = nil, nil
function ngx.req.get_headers(most, raw)
    local headers, cut = req_headers(most, raw)
    if not raw then setmetatable(headers, meta) end
    return headers, cut
end
function ngx.resp.get_headers(most, raw)
    local headers, cut = resp_headers(most, raw)
    if not raw then setmetatable(headers, meta) end
    return headers, cut
end
ngx.req.get_query_args = ngx.req.get_uri_args
local set_method = ngx.req._set_method
ngx.req._set_method = nil
function ngx.req.set_method(method)
    if type(method) ~= "number" then error("bad argument #1 to 'set_method' (number expected, got " .. type(method) .. ")", 2) end
    return set_method(method)
end

local arg_get, arg_set = ngx._arg_get, ngx._arg_set
ngx._arg_get, ngx._arg_set = nil, nil
ngx.arg = setmetatable({}, {
    __index = function(_, key) return arg_get(key) end,
    __newindex = function(_, key, value) arg_set(key, value) end,
})
