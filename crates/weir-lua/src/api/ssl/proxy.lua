-- `ngx.proxyssl`
local _, native = ...
local ssl = native.ssl
local names = { [0x0303] = "TLSv1.2", [0x0304] = "TLSv1.3" }
return {
    version = "0.1.33",
    get_tls1_version = ssl.proxy_version,
    get_tls1_version_str = function()
        local version, err = ssl.proxy_version()
        if not version then return nil, err end
        return names[version]
    end,
}
