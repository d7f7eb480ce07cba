-- The system's OpenSSL, loaded when `ffi.C` is asked for a name of its. What is loaded is seen by all of the process.
local ffi = require "ffi"
local openssl = ngx._openssl
local has, place, pcall, load, cdef, C = openssl.has, openssl.place, pcall, ffi.load, ffi.cdef, ffi.C

local PACKAGES = "Debian, Ubuntu: libssl3; Fedora, RHEL: openssl-libs; Alpine: libcrypto3 and libssl3"
-- Names of files, a libcrypto and its libssl in turn; the first pair is what `ffi.load("crypto")` finds.
local NAMES = openssl.libraries()

-- Libraries stay loaded as long as the VM.
local libraries, reason

local function load_pair(crypto, ssl)
    local found, library = pcall(load, crypto, true)
    if not found then return false, library end
    local second
    found, second = pcall(load, ssl, true)
    if not found then return false, second end
    libraries = { library, second }
    return true
end

local function load_any()
    local path = place()
    if type(path) == "string" then
        local beside, count = path:gsub("libcrypto([^/]*)$", "libssl%1")
        if count == 0 then return false, "weir_openssl " .. path .. " is not the path of a libcrypto" end
        return load_pair(path, beside)
    end
    for at = 1, #NAMES, 2 do
        if load_pair(NAMES[at], NAMES[at + 1]) then return true end
    end
    return false, "OpenSSL's libcrypto and libssl are not installed (" .. PACKAGES .. ")"
end

-- As nginx begins: with the system's openssl.cnf, and with the default provider, which a script that loads another one first
-- would not get any more. The library is not cleaned up when the process ends: other threads may use it then.
local function begin()
    cdef [[
        int weir_openssl_begin(uint64_t, const void *) __asm__("OPENSSL_init_ssl");
        void *weir_openssl_fetch(void *, const char *, const char *) __asm__("EVP_MD_fetch");
        void weir_openssl_drop(void *) __asm__("EVP_MD_free");
    ]]
    local NO_ATEXIT = 0x80000
    if C.weir_openssl_begin(NO_ATEXIT, nil) ~= 1 then return false, "OPENSSL_init_ssl failed" end
    -- OpenSSL 1.1 has no providers.
    local found, fetch = pcall(function() return C.weir_openssl_fetch end)
    if found then C.weir_openssl_drop(fetch(nil, "SHA2-256", nil)) end
    return true
end

-- Whether the library is there, which is loaded for it.
function openssl.usable()
    return libraries ~= nil or (openssl.load "OPENSSL_init_ssl")
end

-- Whether the library is there for `name`, which is unknown so far; else why not. `false` alone: it is not OpenSSL's.
function openssl.load(name)
    if libraries then return false end
    if not has(name) or place() == false then return false end
    if reason then return false, reason end
    local ok, why = load_any()
    if ok then ok, why = begin() end
    if not ok then
        libraries, reason = nil, tostring(why):gsub("^[^:]+:%d+: ", "")
        return false, reason
    end
    return true
end
