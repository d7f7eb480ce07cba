-- `ngx.*` of scripts of `stream`: sessions have no head, no body and no response, and what is about those is not there.
local ngx = ngx
local session = ngx._session
ngx._session = nil
if not session.is() then
    ngx.req._session_socket = nil
    return
end
for _, name in ipairs { "say", "print", "flush", "eof", "exit" } do
    ngx[name] = session[name]
end
ngx.req = { socket = ngx.req._session_socket, start_time = ngx.req.start_time }
for _, name in ipairs { "header", "resp", "location", "redirect", "exec", "send_headers", "arg" } do
    ngx[name] = nil
end
ngx._getters.headers_sent, ngx._getters.is_subrequest = nil, nil
rawset(_G, "exdata", require "thread.exdata")
local error = error
for _, name in ipairs { "ngx.req", "ngx.resp" } do
    package.preload[name] = function() error("unsupported subsystem: stream", 2) end
end
