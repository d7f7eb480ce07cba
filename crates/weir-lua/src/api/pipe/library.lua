-- `ngx.pipe`
local _, native = ...
local pipe = native.pipe
local type, error, ipairs, tostring, tonumber, select = type, error, ipairs, tostring, tonumber, select
local setmetatable = setmetatable
local concat, find, get_phase = table.concat, string.find, ngx.get_phase
local read, write, wait, kill, shutdown = pipe.read, pipe.write, pipe.wait, pipe.kill, pipe.shutdown
local limits = { "write_timeout", "stdout_read_timeout", "stderr_read_timeout", "wait_timeout" }

local function of(proc)
    if type(proc) ~= "table" or not proc.proc then error("not a process instance", 3) end
    return proc.proc
end

local function set_timeouts(proc, level, ...)
    for at = 1, 4 do
        local limit = (select(at, ...))
        if limit then
            if limit < 0 or limit > 0xffffffff then error("bad " .. limits[at] .. " option", level + 1) end
            proc[limits[at]] = limit
        end
    end
end

local methods = { pid = function(proc) return pipe.pid(of(proc)) end }
local meta = { __index = methods }

function methods.set_timeouts(proc, ...) set_timeouts(proc, 2, ...) end

-- Not in tail position: an error has the place of this line at least, whatever the caller.
local function waited(...) return ... end
for at, name in ipairs { "stdout", "stderr" } do
    local errors, limit = at == 2, name .. "_read_timeout"
    methods[name .. "_read_all"] = function(proc)
        return waited(read(of(proc), errors, 0, 0, proc[limit]))
    end
    methods[name .. "_read_bytes"] = function(proc, len)
        if len <= 0 then
            if len < 0 then error("bad len argument", 2) end
            return ""
        end
        return waited(read(of(proc), errors, 1, len, proc[limit]))
    end
    methods[name .. "_read_line"] = function(proc)
        return waited(read(of(proc), errors, 2, 0, proc[limit]))
    end
    methods[name .. "_read_any"] = function(proc, max)
        max = tonumber(max)
        if not max or max <= 0 then error("bad max argument", 2) end
        return waited(read(of(proc), errors, 3, max, proc[limit]))
    end
end

function methods.write(proc, data)
    local process, kind = of(proc), type(data)
    if kind == "table" then
        data = concat(data, "")
    elseif kind == "number" then
        data = tostring(data)
    elseif kind ~= "string" then
        error("bad data arg: string, number, or table expected, got " .. kind, 2)
    end
    return waited(write(process, data, proc.write_timeout))
end

function methods.shutdown(proc, direction)
    local process = of(proc)
    if direction ~= "stdin" and direction ~= "stdout" and direction ~= "stderr" then
        error("bad shutdown arg: " .. tostring(direction), 2)
    end
    return shutdown(process, direction)
end

function methods.wait(proc) return waited(wait(of(proc), proc.wait_timeout)) end

function methods.kill(proc, signal)
    local process = of(proc)
    if type(signal) ~= "number" then error("bad signal arg: number expected, got " .. tostring(signal), 2) end
    return kill(process, signal)
end

local function arguments(args)
    local kind = type(args)
    if kind == "string" then return { "/bin/sh", "-c", args } end
    if kind ~= "table" then error("bad args arg: table expected, got " .. kind, 3) end
    local list = {}
    for at, arg in ipairs(args) do list[at] = tostring(arg) end
    if #list == 0 then error("bad args arg: non-empty table expected", 3) end
    return list
end

local function check_environ(environ)
    if type(environ) ~= "table" then
        error("bad environ option: table expected, got " .. type(environ), 3)
    end
    for at, entry in ipairs(environ) do
        local place = "bad value at index " .. at .. " of environ option: "
        if type(entry) ~= "string" then error(place .. "string expected, got " .. type(entry), 3) end
        if not find(entry, "=", 2, true) then
            error(place .. "'name=[value]' format expected, got '" .. entry .. "'", 3)
        end
    end
end

return {
    version = "0.1.33",
    spawn = function(args, opts)
        if get_phase() == "init" then error("API disabled in the current context", 2) end
        local list = arguments(args)
        local proc = setmetatable({}, meta)
        set_timeouts(proc, 2, 10000, 10000, 10000, 10000)
        local size, environ = 4096, nil
        if opts then
            if opts.buffer_size then
                size = tonumber(opts.buffer_size)
                if not size or size < 1 then error("bad buffer_size option", 2) end
            end
            environ = opts.environ
            if environ then check_environ(environ) end
            set_timeouts(proc, 2, opts.write_timeout, opts.stdout_read_timeout, opts.stderr_read_timeout, opts.wait_timeout)
        end
        local started, wrong = pipe.spawn(list, opts and opts.merge_stderr, size, environ)
        if not started then return nil, wrong end
        proc.proc = started
        return proc
    end,
}
