-- `ngx.ssl.proxysslverify`
local _, native = ...
local ssl = native.ssl
return {
    version = "0.1.33",
    set_verify_result = ssl.proxy_set_verify_result,
    get_verify_result = ssl.proxy_verify_result,
    get_verify_cert = ssl.proxy_verify_cert,
}
