-- `ngx.shared`: a table for each dictionary, whose number stands at 0.
local dict = ngx._dict
ngx._dict = nil
local methods = {}
for name, method in pairs(dict) do
    if name ~= "names" then methods[name] = method end
end
local meta = { __index = methods }
ngx.shared = {}
for number, name in ipairs(dict.names()) do
    ngx.shared[name] = setmetatable({ [0] = number }, meta)
end
