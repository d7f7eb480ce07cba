-- `ngx.ssl`
local _, native = ...
local ssl, objects = native.ssl, require "weir.ssl_objects"
local gc = require "ffi".gc
local names = { [0x0300] = "SSLv3", [0x0301] = "TLSv1", [0x0302] = "TLSv1.1", [0x0303] = "TLSv1.2", [0x0304] = "TLSv1.3" }
local module = {
    version = "0.1.33",
    SSL3_VERSION = 0x0300, TLS1_VERSION = 0x0301, TLS1_1_VERSION = 0x0302, TLS1_2_VERSION = 0x0303,
    TLS1_3_VERSION = 0x0304,
    get_tls1_version = ssl.version,
    get_req_shared_ssl_ciphers = ssl.shared_ciphers,
}
for _, name in ipairs {
    "clear_certs", "set_der_cert", "set_der_priv_key", "cert_pem_to_der", "priv_key_pem_to_der",
    "raw_client_addr", "raw_server_addr", "server_port", "server_name",
} do
    module[name] = ssl[name]
end

-- Certificates and keys are pointers, which are freed when they are collected.
for name, free in pairs {
    parse_pem_cert = objects.free_cert, parse_der_cert = objects.free_cert,
    parse_pem_priv_key = objects.free_priv_key, parse_der_priv_key = objects.free_priv_key,
} do
    local parse = objects[name]
    module[name] = function(text)
        local pointer, err = parse(text)
        if not pointer then return nil, err end
        return gc(pointer, free)
    end
end

local chain, key = objects.chain, objects.key
function module.set_cert(cert) return ssl.set_cert(chain(cert)) end
function module.set_priv_key(priv_key) return ssl.set_priv_key(key(priv_key)) end

-- What is no chain is refused: without one, every client would be.
local set_verify = ssl.verify_client
function module.verify_client(client_certs, depth, trusted_certs)
    local shown, known = chain(client_certs), chain(trusted_certs)
    if client_certs ~= nil and not shown or trusted_certs ~= nil and not known then return nil, "invalid certificate chain" end
    return set_verify(shown, depth, known)
end

function module.get_tls1_version_str()
    local version, err = ssl.version()
    if not version then return nil, err end
    return names[version]
end

-- As much as is wanted; of 0 bytes how many there are.
for name, whole in pairs {
    get_client_random = ssl.client_random, get_server_random = ssl.server_random, get_session_master_key = ssl.master_key,
} do
    module[name] = function(most)
        local text, err = whole()
        if not text or not most then return text, err end
        return most == 0 and #text or text:sub(1, most)
    end
end

module.export_keying_material = ssl.export

-- What rustls does not give away, and what is a pointer into OpenSSL elsewhere.
for name, what in pairs {
    export_keying_material_early = "early keying material",
    get_upstream_ssl_pointer = "a pointer to OpenSSL's SSL",
} do
    module[name] = function()
        ssl.check_request()
        return nil, what .. " can't be had: TLS is rustls here"
    end
end

-- What represents the connection's TLS, for functions of this module.
function module.get_req_ssl_pointer()
    local random, err = ssl.client_random()
    if not random then return nil, err end
    return ssl.of_request
end

function module.ssl_session_reused(of)
    if type(of) ~= "cdata" or of ~= ssl.of_request then return nil, "bad ssl" end
    return ssl.is_resumed()
end

return module
