-- `ngx.arg`
local ngx = ngx
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
local type, setmetatable = type, setmetatable
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
