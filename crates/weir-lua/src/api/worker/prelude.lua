-- `ngx.worker`
local ngx = ngx
-- What a VM's worker is does not change: no call that ends a trace.
for _, name in ipairs { "pid", "id", "count" } do
    local value = ngx.worker[name]()
    ngx.worker[name] = function() return value end
end
