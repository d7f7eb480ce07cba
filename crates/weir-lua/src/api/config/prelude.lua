-- `ngx.config`
local ngx = ngx
ngx.config.subsystem = "http"
-- Libraries that have much to say to the debug log ask whether it is there.
ngx.config.debug = ngx.config._debug()
ngx.config._debug = nil
ngx.config.nginx_version = 1031005
ngx.config.ngx_lua_version = 10032
