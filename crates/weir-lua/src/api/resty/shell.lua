-- `resty.shell`: a command to its end, with all that it has written.
local spawn, kill = require "ngx.pipe".spawn, require "resty.signal".kill
local tostring, concat = tostring, table.concat
local thread, sleep = ngx.thread, ngx.sleep

local BUFFER, MAX_SIZE = 32 * 1024, 128 * 1024
-- Seconds from SIGTERM to SIGKILL.
local GRACE = 0.001

-- Ends the process; the reason, with why it could not where it could not.
local function ended(proc, reason)
    local pid = proc:pid()
    if not pid then return reason end
    local ok, why = kill(pid, "TERM")
    if not ok then return reason .. "; failed to kill process " .. pid .. ": " .. tostring(why) end
    sleep(GRACE)
    kill(pid, "KILL")
    return reason
end

-- Reads a stream into `pieces` to its end; else why not.
local function gather(proc, read, pieces, max)
    local size = 0
    while size <= max do
        local data, why, partial = read(proc, max - size + 1)
        local piece = data or partial
        if piece then
            pieces[#pieces + 1] = piece
            size = size + #piece
        end
        if not data then return why ~= "closed" and why or nil end
    end
    return "too much data"
end

-- What a reader came to; else why it did not end well.
local function outcome(reader, name)
    local ok, why = thread.wait(reader)
    if not ok then return "failed to wait " .. name .. " thread: " .. tostring(why) end
    return why and "failed to read " .. name .. ": " .. tostring(why)
end

local function feed(proc, stdin)
    if stdin and stdin ~= "" then
        local ok, why = proc:write(stdin)
        if not ok then return "failed to write to stdin: " .. tostring(why) end
    end
    local ok, why = proc:shutdown "stdin"
    return not ok and "failed to shutdown stdin: " .. tostring(why) or nil
end

local function run(cmd, stdin, timeout, max)
    max = max or MAX_SIZE
    local proc, why = spawn(cmd, { buffer_size = BUFFER })
    if not proc then return nil, nil, nil, "failed to spawn: " .. tostring(why) end
    proc:set_timeouts(timeout, timeout, timeout, timeout)
    why = feed(proc, stdin)
    if why then return nil, nil, nil, ended(proc, why) end

    local out, err = {}, {}
    local reading_out = thread.spawn(gather, proc, proc.stdout_read_any, out, max)
    local reading_err = thread.spawn(gather, proc, proc.stderr_read_any, err, max)
    local ok, reason, status = proc:wait()
    if ok == nil and reason ~= "exited" then
        why = ended(proc, "failed to wait for process: " .. tostring(reason))
    else
        why = outcome(reading_out, "stdout") or outcome(reading_err, "stderr")
    end
    if why then return nil, concat(out), concat(err), why end
    return ok, concat(out), concat(err), reason, status
end

return { version = 0.03, run = run }
