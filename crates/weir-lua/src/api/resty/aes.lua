-- `resty.aes`
local _, native = ...
local known, derive, crypt = native.cipher.known, native.cipher.derive, native.cipher.crypt
local type, error, setmetatable, rep, sub = type, error, setmetatable, string.rep, string.sub

local hashes = { md5 = "md5", sha1 = "sha1", sha224 = "sha224", sha256 = "sha256", sha384 = "sha384", sha512 = "sha512" }
local methods = { _VERSION = "0.17", hash = hashes }
local meta = { __index = methods }

function methods.cipher(size, mode)
    size, mode = size or 128, mode or "cbc"
    if not known(size, mode) then return nil end
    return { size = size, cipher = mode }
end

-- Key and IV as they are given: `hash.method`, if there is one, makes the key of the right length.
local function given(key, hash, length)
    local iv = hash.iv
    if not iv then return nil, "iv is needed" end
    if #iv > length then return nil, "bad iv length" end
    if hash.method then key = hash.method(key) end
    if #key ~= length then return nil, "bad key length" end
    return key, iv
end

function methods.new(_, key, salt, cipher, hash, rounds, iv_length, padding)
    cipher, hash = cipher or methods.cipher(), hash or hashes.md5
    local length, iv = cipher.size / 8, nil
    if type(hash) == "table" then
        key, iv = given(key, hash, length)
        if not key then return nil, iv end
    else
        key, iv = derive(cipher.size, cipher.cipher, hash, salt, key, rounds or 1)
        if not key then return nil, iv end
        if iv_length then iv = sub(iv .. rep("\0", iv_length), 1, iv_length) end
    end
    return setmetatable({
        _size = cipher.size, _cipher = cipher.cipher, _key = key, _iv = iv,
        _padded = padding == nil or not not padding,
    }, meta)
end

local function of(self)
    if type(self) ~= "table" then
        error("bad argument #1 self: table expected, got " .. type(self), 3)
    end
    return self
end

function methods:encrypt(text, more)
    self = of(self)
    local made, tag = crypt(self._size, self._cipher, true, self._key, self._iv, self._padded, text, nil, more)
    if not made then return nil, tag end
    if self._cipher == "gcm" then return { made, tag } end
    return made
end

function methods:decrypt(text, tag, more)
    self = of(self)
    local made, wrong = crypt(self._size, self._cipher, false, self._key, self._iv, self._padded, text, tag, more)
    if not made then return nil, wrong end
    return made
end

return methods
