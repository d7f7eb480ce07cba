-- `ngx.worker`
local ngx = ngx
-- What a VM's worker is does not change: no call that ends a trace.
for _, name in ipairs { "pid", "id", "count" } do
    local value = ngx.worker[name]()
    ngx.worker[name] = function() return value end
end
local C, INIT, count = ngx._fast.C, 1, ngx.worker.count()
local error, new_table = error, require "table.new"
function ngx.worker.exiting() return C.exiting() == 1 end
-- Of those that have started.
function ngx.worker.pids()
    if C.phase() == INIT then error("API disabled in the current context", 2) end
    local pids, known = new_table(count, 0), 0
    for worker = 0, count - 1 do
        local number = C.worker_number(worker)
        if number ~= 0 then
            known = known + 1
            pids[known] = number
        end
    end
    return pids
end

-- Scripts of `init_by_lua` see the environment that the server was started with, later ones what `env` has left of it.
local getenv, started_with = os.getenv, ngx._environment
ngx._environment = nil
os.getenv = function(name)
    local value = getenv(name)
    if value == nil then return started_with(name) end
    return value
end

-- So do programs that they start.
local open_file, close_file = ngx._environment_file, ngx._environment_close
ngx._environment_file, ngx._environment_close = nil, nil
-- What an error says of the command is without what is put before it.
local function close(before, first, why, ...)
    close_file()
    if first == nil and type(why) == "string" and why:sub(1, #before) == before then why = why:sub(#before + 1) end
    return first, why, ...
end
for library, name in pairs { [os] = "execute", [io] = "popen" } do
    local call = library[name]
    library[name] = function(command, ...)
        local file = type(command) == "string" and open_file()
        if not file then return call(command, ...) end
        local path = "/dev/fd/" .. file
        local before = "[ -r " .. path .. " ] && . " .. path .. "\n"
        return close(before, call(before .. command, ...))
    end
end
