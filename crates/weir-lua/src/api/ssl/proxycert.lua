-- `ngx.ssl.proxysslcert`
local _, native = ...
local ssl, objects = native.ssl, require "weir.ssl_objects"
local chain, key, set_cert, set_priv_key = objects.chain, objects.key, ssl.proxy_set_cert, ssl.proxy_set_priv_key
return {
    version = "0.1.33",
    clear_certs = ssl.proxy_clear_certs,
    set_der_cert = ssl.proxy_set_der_cert,
    set_der_priv_key = ssl.proxy_set_der_priv_key,
    set_cert = function(cert) return set_cert(chain(cert)) end,
    set_priv_key = function(priv_key) return set_priv_key(key(priv_key)) end,
}
