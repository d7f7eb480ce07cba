-- `table.clone`, `table.isempty` and others of OpenResty's LuaJIT.
local preload = package.preload
local next = next

local new, clear = require "table.new", require "table.clear"
preload["table.isempty"] = function() return function(t) return next(t) == nil end end
local clone, nkeys, isarray = ngx._tables()
ngx._tables = nil
preload["table.nkeys"] = function() return nkeys end
preload["table.isarray"] = function() return isarray end
preload["table.clone"] = function() return clone end
table.new, table.clear = new, clear
table.isempty, table.nkeys = require "table.isempty", require "table.nkeys"
table.isarray, table.clone = require "table.isarray", require "table.clone"
