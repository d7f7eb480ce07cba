-- `resty.md5`, `resty.sha1`, `sha224`, `sha256`, `sha384`, `sha512`: which one the name says.
local name, native = ...
local digest = native.digest
local kind = name:match("%.(%w+)$")
local new, update, final, reset = digest.new, digest.update, digest.final, digest.reset

local methods = { _VERSION = "0.17" }
local meta = { __index = methods }

function methods.new()
    return setmetatable({ _ctx = new(kind) }, meta)
end
function methods:update(text, len)
    update(self._ctx, text, len)
    return true
end
function methods:final()
    return final(self._ctx)
end
function methods:reset()
    reset(self._ctx)
    return true
end
return methods
