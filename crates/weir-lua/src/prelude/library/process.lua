-- `ngx.process`, as far as it holds where workers are threads of one process.
local _, native = ...
local process, pid, type = native.process, ngx.worker.pid(), type
local single, agent = process.single(), process.agent()
local get_phase = ngx.get_phase
-- A VM begins in `init_by_lua`, and then stays a worker's.
local kind = single and "single" or "master"

return {
    version = "0.1.33",
    type = function()
        if kind == "master" and get_phase() ~= "init" then kind = agent and "privileged agent" or "worker" end
        return kind
    end,
    get_master_pid = function() return pid end,
    -- How many connections it may have is bounded by `worker_connections`, as a worker's are.
    enable_privileged_agent = function(connections)
        if get_phase() ~= "init" then return nil, "API disabled in the current context" end
        if connections ~= nil and (type(connections) ~= "number" or connections < 0) then
            return nil, "bad 'connections' argument: number expected and greater than 0"
        end
        -- Without a master there is none in OpenResty, either.
        if not single then process.enable() end
        return true
    end,
    signal_graceful_exit = function()
        error("not supported: a worker is a thread, which can't exit alone", 2)
    end,
}
