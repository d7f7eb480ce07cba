-- `weir.ssl_objects`: certificates and keys as scripts of OpenResty have them: pointers to OpenSSL's own objects, made by the system's
-- library, so that its functions take them. Where it is absent, pointers stand for what this server has parsed and lead nowhere.
--
-- What a `void *` means is looked up, never read: it is known, or it is refused. Pointers to types of OpenSSL's are the library's.
local _, native = ...
local ffi = require "ffi"
local ssl, usable, ffi_C = native.ssl, native.openssl.usable, native.c_names.C
local cast, new, typeof, text_of, gc = ffi.cast, ffi.new, ffi.typeof, ffi.string, ffi.gc
local tonumber, tostring, type, concat, remove = tonumber, tostring, type, table.concat, table.remove

-- OpenSSL's functions, if it is there.
local declared
local function openssl()
    if declared then return ffi_C end
    if not usable() then return nil end
    ffi.cdef [[
        void *weir_ssl_certificate(void *, const unsigned char **, long) __asm__("d2i_X509");
        int weir_ssl_certificate_der(const void *, unsigned char **) __asm__("i2d_X509");
        void weir_ssl_free_certificate(void *) __asm__("X509_free");
        void *weir_ssl_key(void *, const unsigned char **, long) __asm__("d2i_AutoPrivateKey");
        int weir_ssl_key_der(const void *, unsigned char **) __asm__("i2d_PrivateKey");
        int weir_ssl_hold_key(void *) __asm__("EVP_PKEY_up_ref");
        void weir_ssl_free_key(void *) __asm__("EVP_PKEY_free");
        void *weir_ssl_stack(void) __asm__("OPENSSL_sk_new_null");
        int weir_ssl_push(void *, const void *) __asm__("OPENSSL_sk_push");
        int weir_ssl_count(const void *) __asm__("OPENSSL_sk_num");
        void *weir_ssl_at(const void *, int) __asm__("OPENSSL_sk_value");
        void weir_ssl_free_stack(void *, void (*)(void *)) __asm__("OPENSSL_sk_pop_free");
        void *weir_ssl_hold_chain(void *) __asm__("X509_chain_up_ref");
        const char *weir_ssl_directory(void) __asm__("X509_get_default_cert_dir");
        int weir_ssl_mark(void) __asm__("ERR_set_mark");
        int weir_ssl_forget(void) __asm__("ERR_pop_to_mark");
        void *weir_ssl_store_objects(void *) __asm__("X509_STORE_get0_objects");
        int weir_ssl_hold_store(void *) __asm__("X509_STORE_up_ref");
        void weir_ssl_free_store(void *) __asm__("X509_STORE_free");
        int weir_ssl_kind(const void *) __asm__("X509_OBJECT_get_type");
        void *weir_ssl_certificate_of(const void *) __asm__("X509_OBJECT_get0_X509");
        void *weir_ssl_crl_of(const void *) __asm__("X509_OBJECT_get0_X509_CRL");
        int weir_ssl_crl_der(const void *, unsigned char **) __asm__("i2d_X509_CRL");
    ]]
    declared = true
    return ffi_C
end

local place, from = typeof "unsigned char *[1]", typeof "const unsigned char *[1]"
local function der_of(object, encode)
    if object == nil then return nil end
    local length = encode(object, nil)
    if length <= 0 then return nil end
    local room = new("unsigned char[?]", length)
    encode(object, place(room))
    return text_of(room, length)
end

-- An object of OpenSSL's, or nil; what it has to complain of is forgotten.
local function read(decode, der)
    ffi_C.weir_ssl_mark()
    local object = decode(nil, from(cast("const unsigned char *", der)), #der)
    ffi_C.weir_ssl_forget()
    if object == nil then return nil end
    return object
end

local function free_stack(stack) ffi_C.weir_ssl_free_stack(stack, ffi_C.weir_ssl_free_certificate) end

local function stack_of(ders)
    local C = ffi_C
    local stack = C.weir_ssl_stack()
    if stack == nil then return nil end
    for at = 1, #ders do
        local certificate = read(C.weir_ssl_certificate, ders[at])
        if not certificate or C.weir_ssl_push(stack, certificate) < 1 then
            free_stack(stack)
            return nil
        end
    end
    return stack
end

-- What pointers that were given out stand for, by their addresses, and how many there are of each.
local chains, keys, counts, fakes = {}, {}, {}, {}
local function address_of(pointer) return tonumber(cast("uintptr_t", pointer)) end

local function given(pointer, known, object)
    local address = address_of(pointer)
    if known[address] ~= object then counts[address] = 0 end
    known[address] = object
    counts[address] = counts[address] + 1
    return pointer
end

-- Numbers that are no addresses: the first pages of a process are empty, and these pointers are not for reading.
local last = 0
local function fake(known, object)
    last = last + 16
    fakes[last] = true
    return given(cast("void *", last), known, object)
end

-- Whether `pointer` was given out, which it is no more.
local function taken_back(pointer, known)
    local address = address_of(pointer)
    if not known[address] then return false end
    counts[address] = counts[address] - 1
    if counts[address] == 0 then known[address], counts[address] = nil, nil end
    local was_real = not fakes[address]
    fakes[address] = nil
    return was_real
end
local function free_cert(pointer)
    if pointer ~= nil and taken_back(pointer, chains) then free_stack(pointer) end
end
local function free_priv_key(pointer)
    if pointer ~= nil and taken_back(pointer, keys) then ffi_C.weir_ssl_free_key(pointer) end
end

-- What was parsed, with OpenSSL's object of it: of each kind two generations, so that a script that parses in each handshake does not
-- have it made again.
local MOST = 512
local memory = {}
local function remembered(kind, text)
    local own = memory[kind]
    if not own then
        own = { young = {}, old = {}, count = 0 }
        memory[kind] = own
    end
    local entry = own.young[text]
    if entry then return entry end
    entry = own.old[text]
    return entry, own
end
local function remember(own, text, entry)
    if own.count >= MOST then
        own.young, own.old, own.count = {}, own.young, 0
    end
    own.young[text] = entry
    own.count = own.count + 1
end

-- OpenSSL's object of what was parsed of `text`: how, by the function that parsed it.
local make = {}
function make.parse_pem_cert(object) return stack_of(ssl.chain_ders(object)), free_stack end
make.parse_der_cert = make.parse_pem_cert
function make.parse_der_priv_key(_, der) return read(ffi_C.weir_ssl_key, der), ffi_C.weir_ssl_free_key end
function make.parse_pem_priv_key(object, pem)
    local der = ssl.priv_key_pem_to_der(pem)
    if not der then return nil end
    return make.parse_der_priv_key(object, der)
end

local function parsed(kind, text)
    local entry, own = remembered(kind, text)
    if not own then return entry end
    if not entry then
        local object, why = ssl[kind](text)
        if not object then return nil, why end
        entry = { object = object }
        if openssl() then
            local pointer, free = make[kind](object, text)
            entry.pointer = pointer and gc(pointer, free)
        end
    end
    remember(own, text, entry)
    return entry
end

local objects = { free_cert = free_cert, free_priv_key = free_priv_key }

-- A chain or a key as a pointer, which is to be freed; nil and why not.
for kind in pairs(make) do
    local is_key = kind:find("key", 1, true)
    local known = is_key and keys or chains
    objects[kind] = function(text)
        -- What is not a text is refused by the function itself.
        if type(text) ~= "string" then return ssl[kind](text) end
        local entry, why = parsed(kind, text)
        if not entry then return nil, why end
        local pointer = entry.pointer
        if pointer and is_key and ffi_C.weir_ssl_hold_key(pointer) == 1 then
            return given(cast("void *", pointer), known, entry.object)
        elseif pointer and not is_key then
            local chain = ffi_C.weir_ssl_hold_chain(pointer)
            if chain ~= nil then return given(chain, known, entry.object) end
        end
        return fake(known, entry.object)
    end
end

-- The first certificate of a chain, as a pointer that is freed by itself.
function objects.certificate(chain)
    local C = openssl()
    local certificate = C and read(C.weir_ssl_certificate, ssl.chain_ders(chain)[1])
    if certificate then return gc(certificate, C.weir_ssl_free_certificate) end
    return gc(fake(chains, chain), free_cert)
end

-- Whether it is a pointer to one of these types of OpenSSL's, whose objects are read.
local function is_of_openssl(pointer, struct)
    return tostring(typeof(pointer)):match "^ctype<c?o?n?s?t? ?struct ([%w_]+) %*>$" == struct
        and not fakes[address_of(pointer)] and openssl()
end

local function chain_of_stack(stack)
    local C, ders = ffi_C, {}
    for at = 0, C.weir_ssl_count(stack) - 1 do
        ders[#ders + 1] = der_of(C.weir_ssl_at(stack, at), C.weir_ssl_certificate_der)
    end
    return ders[1] and ssl.parse_der_cert(concat(ders))
end

-- What functions of this server take for what a script has: nil for a pointer that is not known, and for a null pointer.
local plain, istype = typeof "void *", ffi.istype
function objects.chain(value)
    if type(value) ~= "cdata" then return value end
    if value == nil then return nil end
    if istype(plain, value) then return chains[address_of(value)] end
    if is_of_openssl(value, "stack_st") or is_of_openssl(value, "stack_st_X509") then return chain_of_stack(value) or nil end
    return chains[address_of(value)]
end
function objects.key(value)
    if type(value) ~= "cdata" then return value end
    if value == nil then return nil end
    if istype(plain, value) then return keys[address_of(value)] end
    if is_of_openssl(value, "evp_pkey_st") then
        local der = der_of(value, ffi_C.weir_ssl_key_der)
        return der and ssl.parse_der_priv_key(der) or nil
    end
    return keys[address_of(value)]
end

-- Directories that stores look into, by the stores' addresses.
local directories, none = {}, {}
function objects.began(store) directories[address_of(store)] = nil end
function objects.looks_into(store, directory)
    local address = address_of(store)
    local list = directories[address] or {}
    directories[address] = list
    list[#list + 1] = directory
end

function objects.default_directory()
    local C = openssl()
    return C and text_of(C.weir_ssl_directory())
end

local function store_of(objects_of_store, count, searched)
    local C, certificates, lists = ffi_C, {}, {}
    for at = 0, count - 1 do
        local object = C.weir_ssl_at(objects_of_store, at)
        local kind = C.weir_ssl_kind(object)
        if kind == 1 then
            certificates[#certificates + 1] = der_of(C.weir_ssl_certificate_of(object), C.weir_ssl_certificate_der)
        elseif kind == 2 then
            lists[#lists + 1] = der_of(C.weir_ssl_crl_of(object), C.weir_ssl_crl_der)
        end
    end
    return ssl.trust_store(certificates, lists, searched)
end

-- Stores that were seen last, by their addresses; each is held, so that its address is not another's.
local MOST_STORES, SECONDS, now = 64, 60, ngx.now
local stores, order = {}, {}
local function hold(pointer, address)
    if ffi_C.weir_ssl_hold_store(pointer) ~= 1 then return nil end
    if #order >= MOST_STORES then
        local oldest = remove(order, 1)
        ffi_C.weir_ssl_free_store(stores[oldest].pointer)
        stores[oldest] = nil
    end
    order[#order + 1] = address
    stores[address] = { pointer = pointer }
    return stores[address]
end

-- The certificates and lists of an `X509_STORE`; nil for what is none.
function objects.trust(store)
    if type(store) ~= "cdata" or store == nil or not is_of_openssl(store, "x509_store_st") then return nil end
    local all, address = ffi_C.weir_ssl_store_objects(store), address_of(store)
    local count, searched = ffi_C.weir_ssl_count(all), directories[address] or none
    local known = stores[address]
    -- Things are added to stores, and never taken away; what is in directories may change.
    if known and known.count == count and known.searched == #searched
        and (searched == none or now() - known.at < SECONDS) then return known.trust end
    local trust = store_of(all, count, searched)
    known = known or hold(store, address)
    if known then known.count, known.searched, known.trust, known.at = count, #searched, trust, now() end
    return trust
end

return objects
