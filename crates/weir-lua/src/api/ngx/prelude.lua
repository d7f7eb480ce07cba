-- The table `ngx` itself: what of it is computed when it is asked for, by functions that the files after this one add; and
-- the globals that scripts start with.
local ngx = ngx
local getters, setters = {}, {}
ngx._getters, ngx._setters = getters, setters
local type = type
local rawset = rawset
setmetatable(ngx, {
    __index = function(_, key)
        local get = getters[key]
        if get then
            -- Not a tail call: such a metamethod is not compiled.
            local value = get()
            return value
        end
    end,
    __newindex = function(self, key, value)
        local set = setters[key]
        if set then
            set(value)
            return
        end
        rawset(self, key, value)
    end,
})

package.loaded.ngx = ngx

-- What is loaded already is a field of a table: no call that ends a trace.
local loaded, load = package.loaded, require
function require(name)
    local module = loaded[name]
    if type(module) == "table" then return module end
    if type(name) ~= "string" and type(name) ~= "number" then
        error("bad argument #1 to 'require' (string expected, got " .. type(name) .. ")", 2)
    end
    return load(name)
end

-- Called once `init_by_lua` is done: a global that a script writes after that is reported, since all requests share it.
local guarded = false
function __weir_guard()
    guarded = true
end
local warn_global = ngx._warn_global
ngx._warn_global = nil
setmetatable(_G, {
    __newindex = function(self, key, value)
        rawset(self, key, value)
        if guarded then warn_global(tostring(key)) end
    end,
})
