-- `weir.events_names`: the C function of lua-resty-events' module for nginx.
local _, native = ...
local listening, text_of, tonumber = native.listening, require "ffi".string, tonumber
local OK, ERROR = 0, -1

-- The worker takes no more connections of the socket.
return {
    ngx_lua_ffi_disable_listening_unix_socket = function(name)
        return listening.stop(text_of(name[0].data, tonumber(name[0].len))) and OK or ERROR
    end,
}
