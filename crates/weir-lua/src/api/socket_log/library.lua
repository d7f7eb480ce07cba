-- `weir.log`: lines for a log server; a writer never waits.
local _, native = ...
local log = native.log
local open, write, state = log.open, log.write, log.state
local select, tostring, concat, setmetatable = select, tostring, table.concat, setmetatable

local methods = {}
local meta = { __index = methods }

function methods:write(...)
    local count = select("#", ...)
    if count < 2 then return write(self.log, (...)) end
    local parts = { ... }
    for at = 1, count do parts[at] = tostring(parts[at]) end
    return write(self.log, concat(parts))
end

function methods:figures()
    local written, dropped, waiting, up = state(self.log)
    return { written = written, dropped = dropped, waiting = waiting, up = up }
end

return {
    open = function(server)
        local log, why = open(server)
        if not log then return nil, why end
        return setmetatable({ log = log }, meta)
    end,
}
