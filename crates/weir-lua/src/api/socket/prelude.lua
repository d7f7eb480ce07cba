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

-- Sessions of TLS are `void *`, as scripts expect that print them. A session stays as long as one of those does; after
-- `ffi.gc` since what a weak table's key leads to would outlive it by a collection.
local ffi = require "ffi"
local cast, gc, istype, pointer, tonumber, type = ffi.cast, ffi.gc, ffi.istype, ffi.typeof "void *", tonumber, type
local session_number, session_freed = native.session_number, native.session_freed
local sessions, shown_times = {}, {}
local function number_of(pointer) return tonumber(cast("uintptr_t", pointer)) end
local function freed(pointer)
    local number = number_of(pointer)
    session_freed(sessions[number])
    local left = shown_times[number] - 1
    if left == 0 then sessions[number], shown_times[number] = nil, nil else shown_times[number] = left end
end
local function shown(session, err)
    if type(session) ~= "userdata" then return session, err end
    local number = session_number(session)
    sessions[number], shown_times[number] = session, (shown_times[number] or 0) + 1
    return gc(cast("void *", number), freed)
end
local function kept(session)
    if not istype(pointer, session) then return session end
    return sessions[number_of(session)]
end
local tcp_methods = registry.__tcp_cosocket_mt
local handshake, session_of = native.sslhandshake, native.getsslsession
function tcp_methods.sslhandshake(sock, session, ...)
    if not sock then
        error("ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen 0", 2)
    end
    return shown(handshake(sock, kept(session), ...))
end
function tcp_methods.getsslsession(sock) return shown(session_of(sock)) end

ngx.socket.stream = tcp
function ngx.socket.connect(...)
    local sock = tcp()
    local ok, err = sock:connect(...)
    if ok then return sock end
    return nil, err
end
