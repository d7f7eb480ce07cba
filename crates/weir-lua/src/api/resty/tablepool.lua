-- `tablepool`: tables that are used again, by name. A pool holds at most `LIMIT` of them.
local new, clear = require "table.new", require "table.clear"
local error, setmetatable = error, setmetatable

local LIMIT = 200
-- By name: the free tables from 1 on, and in `free` how many they are.
local pools = {}

local function fetch(name, list, fields)
    local pool = pools[name]
    local at = pool and pool.free or 0
    if at == 0 then return new(list, fields) end
    local one = pool[at]
    pool[at], pool.free = nil, at - 1
    return one
end

local function release(name, one, as_it_is)
    if not one then error("object empty", 2) end
    local pool = pools[name]
    if not pool then
        pool = { free = 0 }
        pools[name] = pool
    end
    local at = pool.free + 1
    if at > LIMIT then return end
    if not as_it_is then clear(setmetatable(one, nil)) end
    pool[at], pool.free = one, at
end

return { fetch = fetch, release = release }
