-- Sockets: the methods of their objects, where libraries look for them.
local native, tcp = ngx._socket, ngx.socket.tcp
local registry = debug.getregistry()
local error, type, select, rawget = error, type, select, rawget
local C, out, text = ngx._fast.C, ngx._fast.out, ngx._fast.string
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
-- A session's client. How a look at its first bytes ends the session is the third result.
registry.__tcp_session_cosocket_mt = class {
    "receive", "receiveany", "receiveuntil", "send", "shutdown", "settimeout", "settimeouts", "getoption", "setoption",
    "getfd",
}
local peek, exit = native.peek, ngx._session.exit
function registry.__tcp_session_cosocket_mt.peek(...)
    local seen, err, status = peek(...)
    if status then exit(status) end
    return seen, err
end
local of_stream = ngx._session.is()
if of_stream then registry.__tcp_cosocket_mt.shutdown = native.shutdown end

-- What has come already is taken by compiled code, in a function of its own, as with `ngx.say`. All else is done by the
-- function in C, which is called as if the script had: its errors name what it was called.
local function buffered(given, sock, what)
    if type(sock) ~= "table" then return nil end
    local place = rawget(sock, 1)
    if type(place) ~= "userdata" then return nil end
    if given == 1 or what == "*l" then
        if given > 2 then return nil end
        what = 0
    elseif given > 2 or type(what) ~= "number" or not (what >= 1) then
        return nil
    end
    if C.receive(place, what, out) ~= 1 then return nil end
    return text(out.at, out.len)
end
local receive = native.receive
local tcp_methods = registry.__tcp_cosocket_mt
function tcp_methods.receive(...)
    local found = buffered(select("#", ...), ...)
    if found then return found end
    return receive(...)
end

local send, finish_send = native.send, native.sent
local function sent(given, sock, said)
    if given ~= 2 or type(sock) ~= "table" or type(said) ~= "string" then return nil end
    local place = rawget(sock, 1)
    if type(place) ~= "userdata" then return nil end
    local done = C.send(place, said, #said)
    if done == 1 then return #said end
    -- It is to be waited for.
    if done == -3 then return false end
    return nil
end
function tcp_methods.send(...)
    local count = sent(select("#", ...), ...)
    if count then return count end
    if count == false then return finish_send(...) end
    return send(...)
end

-- Certificates are pointers, which are looked up.
local set_client, require = native.setclientcert, require
local function pair_of(certificate, key)
    local objects = require "weir.ssl_objects"
    return objects.chain(certificate), objects.key(key)
end
function tcp_methods.setclientcert(...)
    local sock, certificate, key = ...
    if type(certificate) ~= "cdata" and type(key) ~= "cdata" then return set_client(...) end
    -- Null pointers are none.
    if certificate == nil then certificate = nil end
    if key == nil then key = nil end
    local chain, own = pair_of(certificate, key)
    if certificate and key and not (chain and own) then return nil, "bad cert or pkey arg: those of ngx.ssl expected" end
    return set_client(sock, chain or certificate, own or key)
end

local set_trusted = native.settrustedstore
function tcp_methods.settrustedstore(...)
    local sock, store = ...
    if type(store) ~= "cdata" then return set_trusted(...) end
    if store == nil then return set_trusted(sock, nil) end
    local trust = require "weir.ssl_objects".trust(store)
    if not trust then return nil, "bad store arg: X509_STORE of OpenSSL's expected" end
    return set_trusted(sock, trust)
end

-- Until it is connected, a socket's timeouts are in its table alone.
local rawset = rawset
local set_timeout, set_timeouts = native.settimeout, native.settimeouts
local function is_time(ms) return type(ms) == "number" and ms > -1 and ms < 2147483648 end
local function timed(sock, connecting, sending, reading)
    if type(sock) ~= "table" or rawget(sock, 1) then return false end
    if not (is_time(connecting) and is_time(sending) and is_time(reading)) then return false end
    rawset(sock, 2, connecting)
    rawset(sock, 4, sending)
    rawset(sock, 5, reading)
    return true
end
function tcp_methods.settimeout(...)
    local sock, ms = ...
    if select("#", ...) == 2 and timed(sock, ms, ms, ms) then return end
    return set_timeout(...)
end
function tcp_methods.settimeouts(...)
    if select("#", ...) == 4 and timed(...) then return end
    return set_timeouts(...)
end

-- So is a socket made, which is a table until it is connected.
local new, setmetatable = require "table.new", setmetatable
local function fresh()
    if C.takes_sockets() ~= 1 then return nil end
    return setmetatable(new(8, 0), tcp_methods)
end
local o_tcp = tcp
function tcp(...)
    if select("#", ...) == 0 then
        local sock = fresh()
        if sock then return sock end
    end
    return o_tcp(...)
end
ngx.socket.tcp = tcp

-- What a C function has said of a socket's next handshake, by what the socket has in its first place.
local trusted = setmetatable({}, { __mode = "k" })
ngx._trusted = trusted

-- An idle connection is taken and given back by compiled code, too. With its connection a socket's userdata leaves its table, which is
-- a closed socket's then (`false`), and goes into the next that is connected: nothing is made for a connection that is there.
local connect, set_keepalive = native.connect, native.setkeepalive
local spares, spare_count = new(64, 0), 0
local function time_of(ms) if type(ms) == "number" then return ms end return 0 end
local function equipped(given, sock, host, port)
    if spare_count == 0 or type(sock) ~= "table" or rawget(sock, 1) then return nil end
    -- What the function in C refuses leaves a socket as it is.
    if given < 3 or given > 4 or type(host) ~= "string" or type(port) ~= "number" then return nil end
    if not (port >= 0 and port <= 65535) then return nil end
    local place = spares[spare_count]
    spares[spare_count] = nil
    spare_count = spare_count - 1
    rawset(sock, 1, place)
    return place
end
-- The name that options give to a pool, where the rest of them is of use for a new one only.
local function named(opts)
    if type(opts) ~= "table" then return nil end
    local name, size, backlog = rawget(opts, "pool"), rawget(opts, "pool_size"), rawget(opts, "backlog")
    if type(name) ~= "string" then return nil end
    if size ~= nil and not (type(size) == "number" and size >= 1) then return nil end
    if backlog ~= nil and not (type(backlog) == "number" and backlog >= 0) then return nil end
    return name
end
local function connected(given, sock, host, port, opts)
    local place = equipped(given, sock, host, port)
    if not place then return false end
    if given == 4 then
        host, port = named(opts), -1
        if not host then return false end
    end
    local connecting, sending, reading = time_of(rawget(sock, 2)), time_of(rawget(sock, 4)), time_of(rawget(sock, 5))
    return C.connect(place, host, #host, port, connecting, sending, reading) == 1
end
function tcp_methods.connect(...)
    if connected(select("#", ...), ...) then return 1 end
    return connect(...)
end
local refusals = { [2] = "connection in dubious state", [3] = "closed" }
local function kept(given, sock, ms, size)
    if type(sock) ~= "table" then return 0 end
    local place = rawget(sock, 1)
    if type(place) ~= "userdata" then return 0 end
    if given == 1 then
        ms = -1
    elseif given ~= 3 or type(ms) ~= "number" or type(size) ~= "number" or not (ms >= 0) then
        return 0
    end
    local done = C.keep(place, ms)
    if done == 1 then
        rawset(sock, 1, false)
        trusted[place] = nil
        if spare_count < 64 then
            spare_count = spare_count + 1
            spares[spare_count] = place
        end
    end
    return done
end
function tcp_methods.setkeepalive(...)
    local done = kept(select("#", ...), ...)
    if done == 1 then return 1 end
    if done > 1 then return nil, refusals[done] end
    return set_keepalive(...)
end

-- Sessions of TLS are `void *`, as scripts expect that print them. A session stays as long as one of those does; after
-- `ffi.gc` since what a weak table's key leads to would outlive it by a collection.
local ffi = require "ffi"
local cast, gc, istype, pointer, tonumber = ffi.cast, ffi.gc, ffi.istype, ffi.typeof "void *", tonumber
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
local plain_handshake, session_of = native.sslhandshake, native.getsslsession
local function handshake(sock, ...)
    local place = type(sock) == "table" and rawget(sock, 1)
    if place and trusted[place] then
        set_trusted(sock, trusted[place])
        trusted[place] = nil
    end
    return plain_handshake(sock, ...)
end
function tcp_methods.sslhandshake(sock, session, ...)
    if not sock then
        error("ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen 0", 2)
    end
    return shown(handshake(sock, kept(session), ...))
end
function tcp_methods.getsslsession(sock) return shown(session_of(sock)) end
-- In `stream` they are userdata, as in OpenResty.
if of_stream then tcp_methods.sslhandshake, tcp_methods.getsslsession = handshake, session_of end

ngx.socket.stream = tcp
function ngx.socket.connect(...)
    local sock = tcp()
    local ok, err = sock:connect(...)
    if ok then return sock end
    return nil, err
end
