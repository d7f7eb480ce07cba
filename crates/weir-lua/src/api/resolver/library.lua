-- `weir.resolver`: the server's own resolver, which `resolver` configures.
local _, native = ...
local cached, resolve = native.resolver.cached, native.resolver.resolve
local type, error = type, error

local function checked(name, at)
    if type(name) ~= "string" then error("bad argument #1 to '" .. at .. "' (string expected, got " .. type(name) .. ")", 3) end
    return name
end

-- A list and the answer it is part of, or `nil`, the reason and its number.
local function listed(key, answer, why, number)
    if not answer then
        if number then return nil, why, number end
        return nil, why
    end
    return answer[key] or {}, answer
end

local function milliseconds(seconds)
    return seconds and seconds * 1000
end

return {
    addresses = function(name, seconds)
        return listed("addresses", resolve("addresses", checked(name, "addresses"), milliseconds(seconds)))
    end,
    -- `_http._tcp.example.org`
    services = function(name, seconds)
        return listed("services", resolve("service", checked(name, "services"), milliseconds(seconds)))
    end,
    names = function(address, seconds)
        return listed("names", resolve("names", checked(address, "names"), milliseconds(seconds)))
    end,
    cached = function(name) return listed("addresses", cached("addresses", checked(name, "cached"))) end,
}
