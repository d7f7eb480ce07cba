-- `ngx.upstream`: names and results of lua-upstream-nginx-module.
local _, native = ...
local upstream = native.upstream
local select, error = select, error
local peers, servers = upstream.peers, upstream.servers

local function one(count)
    if count ~= 1 then error("exactly one argument expected", 3) end
end

return {
    _VERSION = "0.07",
    get_upstreams = function(...)
        if select("#", ...) ~= 0 then error("no argument expected", 2) end
        return upstream.names()
    end,
    get_servers = function(...)
        one(select("#", ...))
        return servers((...))
    end,
    get_primary_peers = function(...)
        one(select("#", ...))
        return peers((...), false)
    end,
    get_backup_peers = function(...)
        one(select("#", ...))
        return peers((...), true)
    end,
    set_peer_down = function(...)
        if select("#", ...) ~= 4 then error("exactly 4 arguments expected", 2) end
        return upstream.turn(...)
    end,
    current_upstream_name = upstream.current,
}
