-- Sockets: the methods of their objects, where libraries look for them.
local native, tcp = ngx._socket, ngx.socket.tcp
local registry = debug.getregistry()
local error = error
ngx._socket = nil

local function class(names)
    local methods = {}
    for _, name in ipairs(names) do
        methods[name] = native[name]
    end
    methods.__index = methods
    return methods
end
registry.__tcp_cosocket_mt = class {
    "bind", "connect", "receive", "receiveany", "receiveuntil", "send", "close", "settimeout", "settimeouts",
    "setkeepalive", "getreusedtimes", "getoption", "setoption", "getfd",
    "sslhandshake", "setclientcert", "getsslsession", "settrustedstore", "getsslpointer", "getsslctx",
}
registry.__tcp_req_cosocket_mt = class { "receive", "receiveany", "receiveuntil", "settimeout", "settimeouts" }
registry.__tcp_raw_req_cosocket_mt = class {
    "receive", "receiveany", "receiveuntil", "send", "settimeout", "settimeouts", "getoption", "setoption", "getfd",
}

ngx.socket.stream = tcp
function ngx.socket.connect(...)
    local sock = tcp()
    local ok, err = sock:connect(...)
    if ok then return sock end
    return nil, err
end
