-- `require` of the modules that are part of the program, and the table `weir`.
local preload = package.preload
local rawget, setmetatable = rawget, setmetatable

-- Modules that are built into the program.
local loadstring, assert, loaders = loadstring, assert, package.loaders
local source = ngx._library.source
local native = {
    digest = ngx._digest, cipher = ngx._cipher, errlog = ngx._errlog, process = ngx._process,
    balancer = ngx._balancer, pipe = ngx._pipe, fast = ngx._fast,
    ssl = ngx._ssl,
    cli = ngx._cli, events = ngx._events, upstream = ngx._upstream,
    resolver = ngx._resolver, log = ngx._log, re = ngx._re, c_names = ngx._c_names, zones = ngx._zones,
    openssl = ngx._openssl, kong = ngx._kong, lmdb = ngx._lmdb, listening = ngx._listening,
}
local behind = {}
for _, name in ipairs(ngx._library.names()) do
    local function loader(...)
        return assert(loadstring(source(name), "=" .. name))(name, native)
    end
    -- What is in `lua_package_path` goes first, but for what is made of the server's own functions.
    local own = name:find("^resty%.core") or not (name:find("^resty%.") or name == "tablepool")
    if own then preload[name] = loader else behind[name] = loader end
end
loaders[#loaders + 1] = function(name) return behind[name] end
-- Others' libraries of these names need OpenSSL: without one, those that are here.
local digests, searchpath, package, usable = {}, package.searchpath, package, ngx._openssl.usable
for name in ("aes hmac md5 random sha1 sha224 sha256 sha384 sha512"):gmatch "%w+" do digests["resty." .. name] = true end
table.insert(loaders, 2, function(name)
    if digests[name] and searchpath(name, package.path) and not usable() then return behind[name] end
    return nil
end)
for _, name in ipairs { "_library", "_digest", "_cipher", "_errlog", "_process", "_balancer", "_pipe", "_ssl", "_cli", "_events", "_upstream", "_resolver", "_log", "_openssl", "_re", "_c_names", "_zones", "_kong", "_lmdb", "_listening", "_ndk", "_jit" } do
    ngx[name] = nil
end

-- What Weir has that OpenResty has no name for.
local weir = rawget(_G, "weir") or {}
rawset(_G, "weir", weir)
weir.ssl = { key = native.ssl.device_key }
-- Made when they are asked for.
local lazily = { events = true, upstream = true, resolver = true, log = true }
setmetatable(weir, {
    __index = function(_, name)
        if not lazily[name] then return nil end
        local module = require("weir." .. name)
        rawset(weir, name, module)
        return module
    end,
})

ngx._write_field = nil
ngx._fast, ngx._lists, ngx._texts, ngx._getters, ngx._setters, ngx._request = nil, nil, nil, nil, nil, nil
rawget(_G, "jit").opt.start("maxtrace=8000", "maxrecord=16000", "minstitch=3", "maxmcode=40960")
