-- `resty.hmac` as lua-resty-hmac has it, by RFC 2104 over the digests from here; that one wants OpenSSL 1.0.
local to_hex = require("resty.string").to_hex
local bxor, char = bit.bxor, string.char

local algos = {
    MD5 = { module = "resty.md5", block = 64 },
    SHA1 = { module = "resty.sha1", block = 64 },
    SHA256 = { module = "resty.sha256", block = 64 },
    SHA512 = { module = "resty.sha512", block = 128 },
}
local inner, outer = {}, {}
for value = 0, 255 do
    inner[char(value)], outer[char(value)] = char(bxor(value, 0x36)), char(bxor(value, 0x5c))
end

local methods = { _VERSION = "0.06", ALGOS = algos }
local meta = { __index = methods }

function methods:new(key, algo)
    algo = algo or algos.MD5
    local new = require(algo.module).new
    if #key > algo.block then
        local digest = new()
        digest:update(key)
        key = digest:final()
    end
    key = key .. ("\0"):rep(algo.block - #key)
    local made = setmetatable({ _inner = new(), _outer = new() }, meta)
    made._first, made._last = (key:gsub(".", inner)), (key:gsub(".", outer))
    made:reset()
    return made
end

function methods:update(text)
    return self._inner:update(text)
end

function methods:final(text, hex)
    if text then self._inner:update(text) end
    self._outer:update(self._inner:final())
    local code = self._outer:final()
    return hex and to_hex(code) or code
end

function methods:reset()
    self._inner:reset()
    self._inner:update(self._first)
    self._outer:reset()
    self._outer:update(self._last)
    return true
end

return methods
