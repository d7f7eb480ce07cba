-- `ngx.balancer`
local _, native = ...
local balancer, fast = native.balancer, native.fast
local C, out, string = fast.C, fast.out, fast.string
local type, tonumber, error = type, tonumber, error
local set_more_tries, set_lane, refused = balancer.set_more_tries, balancer.set_lane, balancer.refused
local set_timeouts, enable_keepalive = balancer.set_timeouts, balancer.enable_keepalive

local function milliseconds(limit, what)
    if not limit then return end
    if type(limit) ~= "number" or limit <= 0 then error("bad " .. what .. " timeout", 3) end
    return limit * 1000
end

local function number(value, at, otherwise)
    if not value then return otherwise end
    if type(value) ~= "number" then
        error("bad argument #" .. at .. " to 'enable_keepalive' (number expected, got " .. type(value) .. ")", 3)
    end
    if value < 0 then error("bad argument #" .. at .. " to 'enable_keepalive' (expected >= 0)", 3) end
    return value
end

return {
    version = "0.1.33",
    set_current_peer = function(addr, port, host)
        if not port then
            port = 0
        elseif type(port) ~= "number" then
            port = tonumber(port)
        end
        -- As the runtime of Apache APISIX has it: where the connection is cached.
        local lane
        if type(host) == "table" then lane, host = host, host.host end
        if host ~= nil and type(host) ~= "string" then
            error("bad argument #3 to 'set_current_peer' (string expected, got " .. type(host) .. ")")
        end
        local set = C.set_peer(addr, #addr, port, host, host and #host or 0, out)
        if set > 0 then
            if lane and lane.pool then return set_lane(lane.pool, lane.pool_size) end
            return true
        end
        if set == 0 then return nil, string(out.at, out.len) end
        return refused()
    end,
    set_more_tries = function(count) return set_more_tries(count) end,
    get_last_failure = balancer.get_last_failure,
    set_timeouts = function(connect, send, read)
        local ok, wrong = set_timeouts(
            milliseconds(connect, "connect"), milliseconds(send, "send"), milliseconds(read, "read"))
        if ok then return true end
        return false, wrong
    end,
    enable_keepalive = function(idle, requests)
        return enable_keepalive(number(idle, 1, 60) * 1000, number(requests, 2, 100))
    end,
    recreate_request = balancer.recreate_request,
    set_upstream_tls = function(on) return balancer.set_upstream_tls(on ~= 0 and on ~= false) end,
    bind_to_local_addr = function(addr)
        if type(addr) ~= "string" then
            error("bad argument #1 to 'bind_to_local_addr' (string expected, got " .. type(addr) .. ")")
        end
        return balancer.bind_to_local_addr(addr)
    end,
}
