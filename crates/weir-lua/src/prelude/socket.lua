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
registry.__tcp_req_cosocket_mt = class {
    "receive", "receiveany", "receiveuntil", "settimeout", "settimeouts", "getfd",
}
registry.__tcp_raw_req_cosocket_mt = class {
    "receive", "receiveany", "receiveuntil", "send", "settimeout", "settimeouts", "getoption", "setoption", "getfd",
}

-- Sessions of TLS are cdata, as scripts expect that print their type.
local ffi = require "ffi"
ffi.cdef "typedef struct { char unused; } weir_tls_session;"
local new, type = ffi.typeof "weir_tls_session", type
local sessions = setmetatable({}, { __mode = "k" })
local function shown(session, err)
    if type(session) ~= "userdata" then return session, err end
    local cdata = new()
    sessions[cdata] = session
    return cdata
end
local tcp_methods = registry.__tcp_cosocket_mt
local handshake, session_of = native.sslhandshake, native.getsslsession
function tcp_methods.sslhandshake(sock, session, ...)
    if not sock then
        error("ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen 0", 2)
    end
    return shown(handshake(sock, session and sessions[session] or session, ...))
end
function tcp_methods.getsslsession(sock) return shown(session_of(sock)) end

ngx.socket.stream = tcp
function ngx.socket.connect(...)
    local sock = tcp()
    local ok, err = sock:connect(...)
    if ok then return sock end
    return nil, err
end
