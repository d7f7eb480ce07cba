-- Calls that make the worker wait, and all of its requests with it: reported when a script of a request makes them.
local warn = ngx._warn_blocking
ngx._warn_blocking = nil

for name, names in pairs {
    os = { "execute", "remove", "rename", "tmpname" },
    io = { "close", "input", "lines", "open", "output", "popen", "read", "tmpfile", "write" },
} do
    local library = _G[name]
    for _, field in ipairs(names) do
        local call, full = library[field], name .. "." .. field
        if call then
            library[field] = function(...)
                warn(full)
                return call(...)
            end
        end
    end
end
