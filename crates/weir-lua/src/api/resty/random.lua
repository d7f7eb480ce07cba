-- `resty.random`: all that it gives is strong.
local _, native = ...
local random = native.digest.random
return { _VERSION = "0.17", bytes = function(count) return random(count) end }
