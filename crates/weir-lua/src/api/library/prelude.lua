-- `require` of the modules that are part of the program, and the table `weir`.
local preload = package.preload
local rawget, setmetatable = rawget, setmetatable

-- Modules that are built into the program. A library that the path has goes before ours where it can run.
local loadstring, assert, loaders = loadstring, assert, package.loaders
local source = ngx._library.source
local native = {
    digest = ngx._digest, cipher = ngx._cipher, errlog = ngx._errlog, process = ngx._process, request = ngx._request,
    balancer = ngx._balancer, pipe = ngx._pipe, fast = ngx._fast,
    ssl = ngx._ssl,
    cli = ngx._cli, events = ngx._events, upstream = ngx._upstream,
    resolver = ngx._resolver, log = ngx._log,
}
local behind = {}
for _, name in ipairs(ngx._library.names()) do
    local function loader(...)
        return assert(loadstring(source(name), "=" .. name))(name, native)
    end
    local first = name:find("^resty%.lrucache") or name:find("^resty%.events") or name == "resty.worker.events"
    if first or name == "resty.lock" then behind[name] = loader else preload[name] = loader end
end
loaders[#loaders + 1] = function(name) return behind[name] end
for _, name in ipairs { "_library", "_digest", "_cipher", "_errlog", "_process", "_balancer", "_pipe", "_ssl", "_cli", "_events", "_upstream", "_resolver", "_log", "_openssl" } do
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

ngx._fast, ngx._lists, ngx._texts, ngx._getters, ngx._setters, ngx._request = nil, nil, nil, nil, nil, nil
rawget(_G, "jit").opt.start("maxtrace=8000", "maxrecord=16000", "minstitch=3", "maxmcode=40960")
