-- `weir.upstream`: upstreams in the same shape as the admin listener's `/upstreams`.
local _, native = ...
local upstream = native.upstream
local cjson = require("cjson").new()
local encode, decode = cjson.encode, cjson.decode
local ngx, null, type, error, pcall, ipairs, pairs = ngx, ngx.null, type, error, pcall, ipairs, pairs
local describe, change, wait, turn = upstream.describe, upstream.change, upstream.wait, upstream.turn

-- What is not known is not there, instead of a null that is true.
local function bare(value)
    for key, inner in pairs(value) do
        if inner == null then
            value[key] = nil
        elseif type(inner) == "table" then
            bare(inner)
        end
    end
    return value
end

local module = { names = upstream.names, changes = upstream.changes, current = upstream.current }

function module.get(name)
    local text, why = describe(name)
    if not text then return nil, why end
    local group = bare(decode(text))
    group.changes = upstream.changes(name)
    return group
end

-- A server or settings as JSON; what is no JSON is the caller's error.
local function json(value, at, name)
    local ok, text = pcall(encode, value)
    if not ok or value == nil then error("bad argument #" .. at .. " to '" .. name .. "' (a server's settings expected)", 3) end
    return text
end

function module.add(name, server)
    return change(name, "add", json(server, 2, "add"))
end

function module.remove(name, server)
    return change(name, "remove", "null", server)
end

function module.set(name, server, settings)
    if type(settings) ~= "table" then error("bad argument #3 to 'set' (table expected, got " .. type(settings) .. ")", 2) end
    return change(name, "edit", json(settings, 3, "set"), server)
end

function module.replace(name, servers)
    if type(servers) ~= "table" then error("bad argument #2 to 'replace' (table expected, got " .. type(servers) .. ")", 2) end
    return change(name, "replace", #servers == 0 and "[]" or json(servers, 2, "replace"))
end

-- By its address as `get` has it.
function module.turn(name, address, up)
    for _, backup in ipairs { false, true } do
        local peers, why = upstream.peers(name, backup)
        if not peers then return nil, why end
        for _, peer in ipairs(peers) do
            if peer.name == address then return turn(name, backup, peer.id, not up) end
        end
    end
    return nil, "there is no such server in this upstream"
end

function module.wait(name, seen, seconds)
    return wait(name, seen or upstream.changes(name), seconds or 60)
end

-- Calls `changed(group)` in a timer of this worker whenever something has changed, until it returns false or the worker
-- takes another configuration.
function module.subscribe(name, changed)
    local seen, why = upstream.changes(name)
    if not seen then return nil, why end
    if type(changed) ~= "function" then error("bad argument #2 to 'subscribe' (function expected, got " .. type(changed) .. ")", 2) end
    return ngx.timer.at(0, function()
        local exiting = ngx.worker.exiting
        while not exiting() do
            local now = wait(name, seen, 3600)
            if now and not exiting() then
                seen = now
                local ok, more = pcall(changed, module.get(name))
                if not ok then
                    ngx.log(ngx.ERR, "weir.upstream: subscriber of \"", name, "\": ", more)
                elseif more == false then
                    return
                end
            end
        end
    end)
end

return module
