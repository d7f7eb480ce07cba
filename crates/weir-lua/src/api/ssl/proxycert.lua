-- `ngx.ssl.proxysslcert`
local _, native = ...
local ssl = native.ssl
return {
    version = "0.1.33",
    clear_certs = ssl.proxy_clear_certs,
    set_der_cert = ssl.proxy_set_der_cert,
    set_der_priv_key = ssl.proxy_set_der_priv_key,
    set_cert = ssl.proxy_set_cert,
    set_priv_key = ssl.proxy_set_priv_key,
}
