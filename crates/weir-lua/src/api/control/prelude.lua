-- `ngx.status`, `headers_sent`, `is_subrequest` and `get_phase`, compiled.
local ngx = ngx
local C = ngx._fast.C
local getters, setters = ngx._getters, ngx._setters
local other_status, other_sent, other_subrequest = ngx._status, ngx._headers_sent, ngx._is_subrequest
local set_status = ngx._set_status
ngx._status, ngx._headers_sent, ngx._is_subrequest, ngx._set_status = nil, nil, nil, nil
local type, error = type, error
function getters.status()
    local status = C.status()
    if status >= 0 then return status end
    return other_status()
end
function getters.headers_sent()
    local sent = C.headers_sent()
    if sent >= 0 then return sent == 1 end
    return other_sent()
end
function getters.is_subrequest()
    local is = C.is_subrequest()
    if is >= 0 then return is == 1 end
    return other_subrequest()
end
function setters.status(status)
    if type(status) == "number" and C.set_status(status) == 1 then return end
    set_status(status)
end
function setters.headers_sent() error("attempt to write a readonly ngx value: headers_sent", 2) end
function setters.is_subrequest() error("attempt to write a readonly ngx value: is_subrequest", 2) end
local phases = {}
for number, name in pairs {
    [0] = "init", "init_worker", "exit_worker", "set", "server_rewrite", "rewrite", "access", "precontent", "content",
    "header_filter", "body_filter", "log", "timer", "balancer",
    [14] = "ssl_client_hello", [15] = "ssl_cert", [16] = "ssl_session_fetch", [17] = "ssl_session_store",
    [18] = "proxy_ssl_cert", [19] = "proxy_ssl_verify", [20] = "init_worker",
    [21] = "preread",
} do
    phases[2 ^ number] = name
end
function ngx.get_phase() return phases[C.phase()] end

-- As ngx_lua numbers phases; `init_by_lua` has none.
local raw_phases = {}
for number, raw in pairs(ngx.config.subsystem == "stream" and {
    [1] = 8, [8] = 1, [11] = 2, [12] = 4, [13] = 0x10, [14] = 0x80, [15] = 0x40, [18] = 0x200, [19] = 0x100, [20] = 8, [21] = 0x20,
} or {
    0x100, 0x2000, 1, 0x8000, 2, 4, 0x20000, 8, 0x20, 0x40, 0x10, 0x80, 0x200,
    [14] = 0x4000, [15] = 0x400, [16] = 0x1000, [17] = 0x800, [18] = 0x40000, [19] = 0x10000, [20] = 0x100,
}) do
    raw_phases[2 ^ number] = raw
end
function ngx.get_raw_phase()
    local raw = raw_phases[C.phase()]
    if not raw then error("no request context", 2) end
    return raw
end
