//! Certificates and keys as scripts have them: pointers to OpenSSL's objects, which its functions take, and the other way round; and
//! what is none of them.

use crate::support::tls as support;

use support::{TlsClient, authority, client, own};
use weir_test::{Driver, Server, both_drivers};

/// Lua that all of the scripts have: `read`, OpenSSL's functions, the certificate and the key of `script.example.com`.
const BEFORE: &str = "
    ssl, ffi = require 'ngx.ssl', require 'ffi'
    function read(name)
        local file = assert(io.open(ngx.config.prefix() .. name))
        local text = file:read '*a'
        file:close()
        return text
    end
    ffi.cdef [[
        typedef struct evp_pkey_st EVP_PKEY; typedef struct x509_st X509; typedef struct stack_st OPENSSL_STACK;
        typedef struct x509_store_st X509_STORE; typedef struct foreign_st FOREIGN;
        int OPENSSL_sk_num(const void *); void *OPENSSL_sk_value(const void *, int); int EVP_PKEY_get_bits(const void *);
        char *X509_NAME_oneline(const void *, char *, int); void *X509_get_subject_name(const void *);
        X509 *d2i_X509(X509 **, const unsigned char **, long); void X509_free(X509 *);
        EVP_PKEY *d2i_AutoPrivateKey(EVP_PKEY **, const unsigned char **, long); void EVP_PKEY_free(EVP_PKEY *);
        OPENSSL_STACK *OPENSSL_sk_new_null(void); int OPENSSL_sk_push(OPENSSL_STACK *, const void *); void OPENSSL_sk_free(OPENSSL_STACK *);
        void ngx_http_lua_ffi_free_cert(void *cdata); void ngx_http_lua_ffi_free_priv_key(void *cdata);
    ]]
    crt, key = read 'script.crt', read 'script.key'
    function openssls()
        local der, at = ssl.cert_pem_to_der(crt), ffi.new 'const unsigned char *[1]'
        at[0] = ffi.cast('const unsigned char *', der)
        local certificate = ffi.gc(ffi.C.d2i_X509(nil, at, #der), ffi.C.X509_free)
        local stack = ffi.gc(ffi.C.OPENSSL_sk_new_null(), ffi.C.OPENSSL_sk_free)
        ffi.C.OPENSSL_sk_push(stack, certificate)
        der = ssl.priv_key_pem_to_der(key)
        at[0] = ffi.cast('const unsigned char *', der)
        local private = ffi.gc(ffi.C.d2i_AutoPrivateKey(nil, at, #der), ffi.C.EVP_PKEY_free)
        kept = { certificate }
        return stack, private
    end";

/// A server whose handshakes are `script`'s; `http` beside that, and `locations` without TLS.
fn serve(driver: Driver, http: &str, script: &str, locations: &str) -> Server {
    let ca = authority("ca");
    let (script_pair, shown, other) = (own("script.example.com"), ca.issue("client"), own("other"));
    let conf = format!(
        "events {{}} http {{ {http} init_by_lua_file before.lua; lua_ssl_trusted_certificate ca.crt;
           server {{ listen 127.0.0.1:%%PORT_0%% ssl; ssl_certificate other.crt; ssl_certificate_key other.key;
             ssl_certificate_by_lua_block {{ {script} }} return 200 '$ssl_client_s_dn.'; }}
           server {{ listen 127.0.0.1:%%PORT_1%%; default_type text/plain; {locations} }}
           server {{ listen 127.0.0.1:%%PORT_2%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
             ssl_verify_client optional; ssl_client_certificate ca.crt; return 200 '$ssl_client_s_dn.'; }} }}"
    );
    let mut builder = Server::builder(&conf).driver(driver).file("before.lua", BEFORE);
    for (name, pair) in [
        ("ca", &ca),
        ("a", &ca.issue("a.example.com")),
        ("script", &script_pair),
        ("client", &shown),
        ("other", &other),
    ] {
        builder =
            builder.file(&format!("{name}.crt"), &pair.certificate).file(&format!("{name}.key"), &pair.key);
    }
    builder.start()
}

fn shown_by(server: &Server) -> Option<String> {
    let client = TlsClient::connect(server.addr(0), "a.example.com", &client(true, None));
    weir_tls::facts::subject(&client.facts().peer[0])
}

both_drivers! {
    fn they_are_pointers_of_openssls_and_openssls_are_taken(driver) {
        let says = "location / { content_by_lua_block {
            local C = ffi.C
            for _, chain in ipairs { ssl.parse_pem_cert(crt), ssl.parse_der_cert(ssl.cert_pem_to_der(crt)) } do
                assert(type(chain) == 'cdata' and ffi.istype('void *', chain) and C.OPENSSL_sk_num(chain) == 1)
                local name = ffi.new 'char[200]'
                C.X509_NAME_oneline(C.X509_get_subject_name(C.OPENSSL_sk_value(chain, 0)), name, 200)
                ngx.print(ffi.string(name), ' ')
            end
            for _, private in ipairs { ssl.parse_pem_priv_key(key), ssl.parse_der_priv_key(ssl.priv_key_pem_to_der(key)) } do
                assert(type(private) == 'cdata' and ffi.istype('void *', private))
                ngx.print(C.EVP_PKEY_get_bits(private), ' ')
            end
        } }";
        let own = "local chain, private = ssl.parse_pem_cert(crt), ssl.parse_pem_priv_key(key)";
        for (pair, set) in [
            (own, "chain, private"),
            (own, "ffi.cast('OPENSSL_STACK *', chain), ffi.cast('EVP_PKEY *', private)"),
            ("local chain, private = openssls()", "chain, private"),
        ] {
            let script = format!("{pair} local function set(chain, private)
                assert(ssl.clear_certs()) assert(ssl.set_cert(chain)) assert(ssl.set_priv_key(private)) end
                for _ = 1, 300 do set({set}) end collectgarbage() set({set})");
            let server = serve(driver, "", &script, says);
            for _ in 0..3 {
                assert_eq!(shown_by(&server).as_deref(), Some("CN=script.example.com"), "{set}: {}", server.error_log());
            }
            let mut plain = weir_test::Client::connect(server.addr(1));
            assert_eq!(plain.get("/").text(), "/CN=script.example.com /CN=script.example.com 256 256 ");
        }
    }

    fn without_openssl_they_stand_for_what_was_parsed(driver) {
        let script = "local chain, private = ssl.parse_pem_cert(crt), ssl.parse_pem_priv_key(key)
            assert(type(chain) == 'cdata' and type(private) == 'cdata')
            assert(ssl.set_cert(chain)) assert(ssl.set_priv_key(ffi.cast('EVP_PKEY *', private)))";
        let server = serve(driver, "weir_openssl off;", script, "");
        for _ in 0..3 {
            assert_eq!(shown_by(&server).as_deref(), Some("CN=script.example.com"), "{}", server.error_log());
        }
    }

    fn what_is_none_is_refused(driver) {
        let wrong = "
            local chain, private = ssl.parse_pem_cert(crt), ssl.parse_pem_priv_key(key)
            local freed, freed_key = ssl.parse_pem_cert(crt), ssl.parse_pem_priv_key(read 'other.key')
            ffi.C.ngx_http_lua_ffi_free_cert(freed)
            ffi.C.ngx_http_lua_ffi_free_priv_key(freed_key)
            ffi.C.ngx_http_lua_ffi_free_cert(freed)
            ffi.C.ngx_http_lua_ffi_free_cert(ffi.cast('void *', 12345))
            ffi.C.ngx_http_lua_ffi_free_cert(private)
            ffi.C.ngx_http_lua_ffi_free_priv_key(nil)
            local never = { ffi.cast('void *', 0), ffi.cast('void *', 1), ffi.cast('void *', 12345), ffi.cast('void *', -1), ffi.cast('FOREIGN *', 4096),
                ffi.cast('X509 *', 4096), ffi.cast('X509_STORE *', 4096), ffi.new 'char[100]', ffi.new 'int', 12LL, ffi.typeof 'int', ffi.C.EVP_PKEY_free }
            local proxy = require 'ngx.ssl.proxysslcert'
            local function is(want, value, why) assert(not value and why == want, tostring(value) .. ' ' .. tostring(why)) end
            for at = 1, #never + 2 do
                is('invalid certificate chain', ssl.set_cert(never[at] or at == #never + 1 and freed or private))
                is('invalid private key', ssl.set_priv_key(never[at] or at == #never + 1 and freed_key or chain))
                if at > 1 then is('invalid certificate chain', ssl.verify_client(never[at] or freed)) end
                if at > 1 then is('invalid certificate chain', ssl.verify_client(chain, 1, never[at] or freed)) end
                local sock = ngx.socket.tcp()
                if at > 1 then is('bad cert or pkey arg: those of ngx.ssl expected', sock:setclientcert(never[at] or private, private)) end
                if at > 1 then is('bad cert or pkey arg: those of ngx.ssl expected', sock:setclientcert(chain, never[at] or chain)) end
                if at > 1 then is('client certificate must be supplied with corresponding private key', sock:setclientcert(never[at] or freed)) end
            end
            is('invalid certificate chain', ssl.set_cert())
            is('invalid private key', ssl.set_priv_key(nil))
            for _, value in ipairs { 1, 'x', {}, true, print, io.stdout } do
                for _, set in ipairs { ssl.set_cert, ssl.set_priv_key, ssl.verify_client, proxy.set_cert, proxy.set_priv_key } do
                    assert(not pcall(set, value))
                end
                -- A key in a device is userdata.
                local want = value == io.stdout and 'bad cert or pkey arg: those of ngx.ssl expected' or 'bad cert arg: cdata expected, got ' .. type(value)
                is(want, ngx.socket.tcp():setclientcert(value, value))
            end
            is('PEM_read_bio_PrivateKey() failed', ssl.parse_pem_priv_key(crt))
            is('PEM_read_bio_X509_AUX() failed', ssl.parse_pem_cert(key))
            assert(ssl.set_cert(chain)) assert(ssl.set_priv_key(private))";
        for http in ["", "weir_openssl off;"] {
            let wrong = if http.is_empty() { wrong.to_owned() } else { wrong.replace(", ffi.C.EVP_PKEY_free }", " }") };
            let server = serve(driver, http, &wrong, "");
            assert_eq!(shown_by(&server).as_deref(), Some("CN=script.example.com"), "{http} {}", server.error_log());
        }
    }

    fn sockets_show_them_and_they_are_freed_when_nothing_holds_them(driver) {
        let ask = |pair: &str| format!("content_by_lua_block {{
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', %%PORT_2%%))
            crt, key = read 'client.crt', read 'client.key'
            do {pair} assert(sock:setclientcert(chain, private)) end
            collectgarbage() collectgarbage()
            assert(sock:sslhandshake(nil, 'a.example.com', true))
            sock:send 'GET / HTTP/1.0\\r\\n\\r\\n'
            ngx.print((sock:receive '*a':match '\\r\\n\\r\\n(.*)')) }}");
        let locations = format!("location /own {{ {} }} location /openssls {{ {} }}
            location /verified {{ proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_name a.example.com; proxy_ssl_verify on;
                proxy_ssl_trusted_certificate ca.crt; proxy_ssl_session_reuse off; proxy_ssl_verify_by_lua_block {{
                    local certificate = assert(require 'ngx.ssl.proxysslverify'.get_verify_cert())
                    local name = ffi.new 'char[200]'
                    ffi.C.X509_NAME_oneline(ffi.C.X509_get_subject_name(certificate), name, 200)
                    assert(ffi.string(name) == '/CN=a.example.com', ffi.string(name)) }} }}",
            ask("local chain, private = ssl.parse_pem_cert(crt), ssl.parse_pem_priv_key(key)"),
            ask("local chain, private = openssls()"));
        let locations = locations + "location /trusted { content_by_lua_block {
            local C, named = ffi.C, ngx.var.arg_t
            ffi.cdef 'X509_STORE *X509_STORE_new(void); int X509_STORE_add_cert(X509_STORE *, X509 *); void X509_STORE_free(X509_STORE *);'
            local store = ffi.gc(C.X509_STORE_new(), C.X509_STORE_free)
            crt, key = read(named .. '.crt'), read(named .. '.key')
            local stack = openssls()
            assert(C.X509_STORE_add_cert(store, C.OPENSSL_sk_value(stack, 0)) == 1)
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', %%PORT_2%%))
            local ok, why = sock:settrustedstore(ffi.cast('void *', store))
            assert(not ok and why:find 'bad store arg', why)
            assert(not sock:settrustedstore(stack) and not sock:settrustedstore(12) and sock:settrustedstore(ffi.cast('void *', 0)))
            assert(sock:settrustedstore(store))
            ngx.print(tostring(sock:sslhandshake(false, 'a.example.com', true)))
        } }";
        let server = serve(driver, "lua_socket_log_errors off;", "", &locations);
        let mut plain = weir_test::Client::connect(server.addr(1));
        for (path, said) in [("/own", "CN=client."), ("/openssls", "CN=client."), ("/verified", "."), ("/trusted?t=ca", "true"), ("/trusted?t=other", "nil")] {
            for _ in 0..2 {
                assert_eq!(plain.get(path).text(), said, "{path} {}", server.error_log());
            }
        }
    }
}
