-- Sockets: the methods of their objects, where libraries look for them.
local native, tcp = ngx._socket, ngx.socket.tcp
local registry = debug.getregistry()
local error = error
ngx._socket = nil

local methods = {}
for _, name in ipairs {
    "bind", "connect", "receive", "receiveany", "receiveuntil", "send", "close", "settimeout", "settimeouts",
    "setkeepalive", "getreusedtimes", "getoption", "setoption", "getfd",
} do
    methods[name] = native[name]
end
methods.__index = methods
registry.__tcp_cosocket_mt = methods

ngx.socket.stream = tcp
function ngx.socket.connect(...)
    local sock = tcp()
    local ok, err = sock:connect(...)
    if ok then return sock end
    return nil, err
end
