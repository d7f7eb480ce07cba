-- `table.clone`, `table.isempty` and others of OpenResty's LuaJIT.
local preload = package.preload
local type, next, pairs = type, next, pairs

local new, clear = require "table.new", require "table.clear"
preload["table.isempty"] = function() return function(t) return next(t) == nil end end
preload["table.nkeys"] = function()
    return function(t)
        local count = 0
        for _ in pairs(t) do count = count + 1 end
        return count
    end
end
preload["table.isarray"] = function()
    return function(t)
        for key in pairs(t) do
            if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then return false end
        end
        return true
    end
end
local clone = ngx._clone()
ngx._clone = nil
preload["table.clone"] = function() return clone end
table.new, table.clear = new, clear
table.isempty, table.nkeys = require "table.isempty", require "table.nkeys"
table.isarray, table.clone = require "table.isarray", require "table.clone"
