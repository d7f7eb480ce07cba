-- `ngx.ssl.session`
local _, native = ...
local ssl = native.ssl
return {
    version = "0.1.33",
    get_session_id = ssl.session_id,
    get_serialized_session = ssl.serialized_session,
    set_serialized_session = ssl.set_serialized_session,
}
