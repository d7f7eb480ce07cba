-- `ngx.errlog`: lines of the error log that `lua_capture_error_log` has captured.
local _, native = ...
local errlog, C = native.errlog, native.fast.C
local type, error = type, error

return {
    version = "0.1.33",
    set_filter_level = function(level)
        if not level then return nil, 'missing "level" argument' end
        return errlog.set_level(level)
    end,
    get_logs = function(most, logs)
        logs = logs or {}
        local count, wrong = errlog.take(most or 10, logs)
        if not count then return nil, wrong end
        return logs
    end,
    get_sys_filter_level = function()
        local level = C.log_limit()
        return level
    end,
    raw_log = function(level, message)
        if type(level) ~= "number" then error("bad argument #1 to 'raw_log' (must be a number)", 2) end
        if type(message) ~= "string" then error("bad argument #2 to 'raw_log' (must be a string)", 2) end
        if C.raw_log(level, message, #message) ~= 1 then error("bad log level", 2) end
    end,
}
