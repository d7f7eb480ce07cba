-- Runs busted as it is, inside of `weir lua`: see docs/reference/lua-programs.md. What it wants of modules in C is made of the server's API.
local preload = package.preload

preload.system = function()
    return { gettime = ngx.now, monotime = require("resty.core.time").monotonic_time, sleep = ngx.sleep }
end

preload.term = function()
    return { isatty = function() return false end }
end

preload.lfs = function()
    local function mode(path)
        local file, why = io.open(path)
        if not file then return nil, why end
        local _, _, code = file:read(0)
        file:close()
        return code == 21 and "directory" or "file"
    end
    return {
        attributes = function(path, what)
            local kind, why = mode(path)
            if not kind then return nil, why end
            return what == "mode" and kind or { mode = kind }
        end,
        chdir = function() return true end,
        currentdir = function() return os.getenv("PWD") or "." end,
        dir = function(path)
            return io.popen("ls -a '" .. path:gsub("'", "'\\''") .. "'"):lines()
        end,
    }
end

require "busted.runner" { standalone = false }
