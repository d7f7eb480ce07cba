-- `ngx.ssl.proxysslverify`
local _, native = ...
local ssl, objects = native.ssl, require "weir.ssl_objects"
return {
    version = "0.1.33",
    set_verify_result = ssl.proxy_set_verify_result,
    get_verify_result = ssl.proxy_verify_result,
    get_verify_cert = function()
        local chain, err = ssl.proxy_verify_cert()
        if not chain then return nil, err end
        return objects.certificate(chain)
    end,
}
