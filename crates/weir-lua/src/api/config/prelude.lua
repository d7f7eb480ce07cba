-- `ngx.config`
local ngx = ngx
local of_stream = ngx._session.is()
ngx.config.subsystem = of_stream and "stream" or "http"
-- Libraries that have much to say to the debug log ask whether it is there.
ngx.config.debug = ngx.config._debug()
ngx.config._debug = nil
ngx.config.nginx_version = 1031005
ngx.config.ngx_lua_version = of_stream and 20 or 10032
