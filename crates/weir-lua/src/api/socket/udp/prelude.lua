-- `ngx.socket.udp`
local udp = ngx._udp
ngx._udp = nil
local select, setmetatable, type, error = select, setmetatable, type, error
local new, scheduled = udp.new, ngx._udp_here
ngx._udp_here = nil

-- Calls are in tail position, so that errors name the script's line.
local function of(self, name)
    if type(self) ~= "table" or not self.udp then
        error("bad argument #1 to '" .. name .. "' (table expected, got " .. type(self) .. ")", 3)
    end
    return self.udp
end

-- What every socket of datagrams has.
local function conversation(send, receive, settimeout)
    local methods = {}

    function methods.send(self, ...)
        local n = select("#", ...) + 1
        if n ~= 2 then error("expecting 2 arguments (including the object), but got " .. n, 2) end
        return send(of(self, "send"), ...)
    end

    function methods.receive(self, ...)
        local n = select("#", ...) + 1
        if n > 2 then error("expecting 1 or 2 arguments (including the object), but got " .. n, 2) end
        return receive(of(self, "receive"), ...)
    end

    function methods.settimeout(self, ...)
        local n = select("#", ...) + 1
        if n ~= 2 then
            error("ngx.socket settimeout: expecting at least 2 arguments (including the object) but seen " .. n, 2)
        end
        return settimeout(of(self, "settimeout"), ...)
    end

    return methods
end

local methods = conversation(udp.send, udp.receive, udp.settimeout)
local meta = { __index = methods }

function methods.setpeername(self, ...)
    local n = select("#", ...) + 1
    if n ~= 2 and n ~= 3 then
        error("ngx.socket.udp setpeername: expecting 2 or 3 arguments (including the object), but seen " .. n, 2)
    end
    return udp.setpeername(of(self, "setpeername"), ...)
end

function methods.bind(self, ...)
    local n = select("#", ...) + 1
    if n ~= 2 and not (n == 3 and ngx.config.subsystem == "stream") then
        error("expecting 2 arguments, but got " .. n, 2)
    end
    return udp.bind(of(self, "bind"), ...)
end

function methods.close(self, ...)
    local n = select("#", ...) + 1
    if n ~= 1 then error("expecting 1 argument (including the object) but seen " .. n, 2) end
    return udp.close(of(self, "close"))
end

-- The client of a session of `stream`: nothing of it waits.
debug.getregistry().__udp_session_cosocket_mt = { __index = conversation(udp.flow_send, udp.flow_receive, function() end) }

ngx.socket = ngx.socket or {}
function ngx.socket.udp(...)
    if select("#", ...) > 0 or not scheduled() then return new(...) end
    return setmetatable({ udp = new() }, meta)
end
