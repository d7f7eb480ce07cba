-- `ngx.ssl.clienthello`
local _, native = ...
local ssl = native.ssl
return {
    version = "0.1.33",
    get_client_hello_server_name = ssl.hello_server_name,
    get_client_hello_ext = ssl.hello_ext,
    get_client_hello_ext_present = ssl.hello_ext_present,
    get_client_hello_ciphers = ssl.hello_ciphers,
    get_supported_versions = ssl.hello_versions,
    set_protocols = function(protocols)
        if type(protocols) ~= "table" then error("bad argument #1 to 'set_protocols' (table expected)", 2) end
        return ssl.set_protocols(protocols)
    end,
}
