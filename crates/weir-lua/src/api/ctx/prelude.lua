-- `ngx.ctx`, compiled.
local ngx = ngx
local C = ngx._fast.C
local getters, setters = ngx._getters, ngx._setters
local registry = debug.getregistry()
-- Where libraries look for the table that `ngx_http_lua_ffi_get_ctx_ref` gives the number of.
registry.ngx_lua_ctx_tables = registry
-- Free places from the start: a table that has to grow when there is no memory may lose entries of its.
local PLACES, used = 256, #registry
for place = used + 1, used + PLACES do registry[place] = place + 1 end
registry[used + PLACES], registry[0] = registry[0] or 0, used + 1
local other_ctx, set_ctx = ngx._ctx, ngx._set_ctx
ngx._ctx, ngx._set_ctx = nil, nil
local type = type
local new_table = require "table.new"
-- By phase, what a worker's own scripts have as their context, which is no request's: `init_worker_by_lua`, the same where it may
-- wait, `exit_worker_by_lua`.
local of_worker = { [2 ^ 1] = {}, [2 ^ 20] = {}, [2 ^ 2] = {} }
ngx._fast.of_worker = of_worker
function getters.ctx()
    local anchor = C.ctx()
    if anchor >= 0 then return registry[anchor] end
    if anchor == -1 then return of_worker[C.phase()] or other_ctx() end
    -- The first time. Anchored as luaL_ref does: free places are a list that begins at 0.
    local table, place = new_table(0, -2 - anchor), registry[0]
    if place and place ~= 0 then
        registry[0] = registry[place]
    else
        place = #registry + 1
    end
    registry[place] = table
    C.give_ctx(place)
    return table
end
function setters.ctx(table)
    if type(table) == "table" then
        local anchor = C.ctx()
        -- The table goes, its place stays: nothing else knows that one.
        if anchor >= 0 then
            registry[anchor] = table
            return
        end
        local phase = C.phase()
        if of_worker[phase] then
            of_worker[phase] = table
            return
        end
    end
    set_ctx(table)
end
