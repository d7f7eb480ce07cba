-- `ngx.process`, where workers are threads of one process and the privileged agent is another one.
local _, native = ...
local process, type, error = native.process, type, error
local single, agent, master = process.single(), process.agent(), process.master()
local get_phase = ngx.get_phase
-- A VM begins in `init_by_lua`, and then stays a worker's.
local kind = single and "single" or "master"

return {
    version = "0.1.33",
    type = function()
        if kind == "master" and get_phase() ~= "init" then kind = agent and "privileged agent" or "worker" end
        return kind
    end,
    get_master_pid = function() return master end,
    -- How many connections it may have is bounded by `worker_connections`, as a worker's are.
    enable_privileged_agent = function(connections)
        if get_phase() ~= "init" then return nil, "API disabled in the current context" end
        if connections ~= nil and (type(connections) ~= "number" or connections < 0) then
            return nil, "bad 'connections' argument: number expected and greater than 0"
        end
        -- Without a master it does not exist in OpenResty, either.
        if not single then process.enable() end
        return true
    end,
    signal_graceful_exit = function()
        if get_phase() == "init" then error("API disabled in the current context", 2) end
        if not single and not agent then error("not supported: a worker is a thread, which can't exit alone", 2) end
        if not process.quit() then error("this process can't be signalled", 2) end
    end,
}
