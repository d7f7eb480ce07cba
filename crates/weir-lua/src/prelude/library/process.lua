-- `ngx.process`, as far as it holds where workers are threads of one process.
local _, native = ...
local single, pid = native.process.single(), ngx.worker.pid()
local get_phase = ngx.get_phase
-- A VM begins in `init_by_lua`, and then stays a worker's.
local kind = single and "single" or "master"

return {
    version = "0.1.33",
    type = function()
        if kind == "master" and get_phase() ~= "init" then kind = "worker" end
        return kind
    end,
    get_master_pid = function() return pid end,
    enable_privileged_agent = function()
        if get_phase() ~= "init" then return nil, "API disabled in the current context" end
        return nil, "not supported: workers are threads of one process, whose user they have"
    end,
    signal_graceful_exit = function()
        error("not supported: a worker is a thread, which can't exit alone", 2)
    end,
}
