//! TLS of sockets and of servers beyond what `lua_sockets.rs` and `lua_tls.rs` have: versions, clients' certificates, the
//! file of secrets, functions that scripts declare to the FFI themselves, scripts that are no longer waited for.

use crate::support::tls as support;

use support::{Pair, TlsClient, authority, client, own};
use weir_test::{Driver, Server, both_drivers};

/// Two servers, of which the second speaks TLS as `a.example.com`.
fn serve(driver: Driver, http: &str, plain: &str, secure: &str) -> Server {
    let ca = authority("ca");
    let (own, client) = (ca.issue("a.example.com"), ca.issue("client"));
    let conf = format!(
        "events {{}} http {{ {http} server {{ listen 127.0.0.1:%%PORT_0%%; default_type text/plain; {plain} }}
           server {{ listen 127.0.0.1:%%PORT_1%% ssl; server_name a.example.com; default_type text/plain;
             ssl_certificate a.crt; ssl_certificate_key a.key;
             ssl_client_certificate ca.crt; ssl_verify_client optional; {secure} }} }}"
    );
    let file = |builder: weir_test::TestServerBuilder, name: &str, pair: &Pair| {
        builder.file(&format!("{name}.crt"), &pair.certificate).file(&format!("{name}.key"), &pair.key)
    };
    let builder = Server::builder(&conf).driver(driver);
    file(file(file(builder, "ca", &ca), "a", &own), "client", &client).start()
}

/// A location whose script shakes hands with the second server, with `before` that, and says how that responds.
fn asks(path: &str, directives: &str, before: &str) -> String {
    format!(
        "location {path} {{ {directives} content_by_lua_block {{
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', %%PORT_1%%))
            {before}
            local session, err = sock:sslhandshake(nil, 'a.example.com')
            if not session then ngx.say(err) return end
            sock:send('GET / HTTP/1.0\\r\\n\\r\\n')
            ngx.say((sock:receive('*a'):match('\\r\\n\\r\\n(.*)')))
        }} }}\n"
    )
}

both_drivers! {
    fn versions_and_certificates_are_chosen(driver) {
        let shows = "local ssl = require 'ngx.ssl'
            local read = function(name) return assert(io.open(ngx.config.prefix() .. name)):read('*a') end
            assert(not sock:setclientcert(assert(ssl.parse_pem_cert(read 'client.crt'))))
            assert(sock:setclientcert(assert(ssl.parse_pem_cert(read 'client.crt')), assert(ssl.parse_pem_priv_key(read 'client.key'))))";
        let plain = [
            asks("/12", "lua_ssl_protocols TLSv1.2; lua_ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384;", ""),
            asks("/13", "lua_ssl_protocols TLSv1.3;", ""),
            asks("/shown", "", shows),
            asks("/taken", "", &format!("{shows} assert(sock:setclientcert(nil, nil))")),
            asks("/pointer", "", "assert(not sock:getsslpointer() and not sock:getsslctx() and sock:settrustedstore())"),
        ].concat();
        let said = "location / { return 200 '$ssl_protocol $ssl_cipher $ssl_client_s_dn.'; }";
        let server = serve(driver, "", &plain, said);
        let get = |path: &str| server.get(path).text();
        assert_eq!(get("/12"), "TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384 .\n");
        assert!(get("/13").starts_with("TLSv1.3 TLS_AES_"));
        assert!(get("/shown").ends_with(" CN=client.\n"));
        for path in ["/taken", "/pointer"] {
            assert!(get(path).ends_with(" .\n"), "{path}");
        }
    }

    fn secrets_are_written_to_a_file(driver) {
        let plain = [
            asks("/", "lua_ssl_key_log keys.log; lua_ssl_protocols TLSv1.3;", ""),
            asks("/12", "lua_ssl_key_log keys.log; lua_ssl_protocols TLSv1.2;", ""),
            asks("/nowhere", "lua_ssl_key_log no/such/keys.log;", ""),
        ].concat();
        let server = serve(driver, "", &plain, "location / { return 200 ok; }");
        for path in ["/", "/12", "/nowhere", "/nowhere"] {
            assert_eq!(server.get(path).text(), "ok\n", "{path}");
        }
        let text = std::fs::read_to_string(server.dir().path().join("keys.log")).expect("there are secrets");
        for label in ["CLIENT_TRAFFIC_SECRET_0 ", "SERVER_HANDSHAKE_TRAFFIC_SECRET ", "EXPORTER_SECRET ", "CLIENT_RANDOM "] {
            assert!(text.lines().any(|line| line.starts_with(label)), "{label} in {text}");
        }
        let line = server.error_log_line("keys.log\" failed (2: No such file or directory)");
        assert!(line.contains("[error]"), "{line}");
        assert_eq!(server.error_log().matches("keys.log\" failed").count(), 1, "told once");
    }

    fn functions_that_scripts_declare_themselves(driver) {
        let pair = own("ffi.example.com");
        let init = format!("init_by_lua_block {{ crt, key = [[{}]], [[{}]] }}", pair.certificate, pair.key);
        let script = r#"ssl_certificate_by_lua_block {
            local ffi = require "ffi"
            local C, err, r = ffi.C, ffi.new("char *[1]"), require "resty.core.base".get_request()
            pcall(ffi.cdef, [[
                int ngx_http_lua_ffi_ssl_clear_certs(ngx_http_request_t *r, char **err);
                void *ngx_http_lua_ffi_parse_pem_cert(const unsigned char *pem, size_t len, char **err);
                int getpid(void);
                extern const char *weir_nowhere;]])
            assert(C.ngx_http_lua_ffi_ssl_clear_certs(r, err) == 0)
            local out = ffi.new("char[?]", #crt)
            local len = C.ngx_http_lua_ffi_cert_pem_to_der(crt, #crt, out, err)
            assert(C.ngx_http_lua_ffi_ssl_set_der_certificate(r, ffi.string(out, len), len, err) == 0)
            local parsed = C.ngx_http_lua_ffi_parse_pem_priv_key(key, #key, err)
            assert(parsed ~= nil and C.ngx_http_lua_ffi_set_priv_key(r, parsed, err) == 0)
            C.ngx_http_lua_ffi_free_priv_key(parsed)
            assert(C.ngx_http_lua_ffi_parse_pem_cert("x", 1, err) == nil)
            assert(ffi.string(err[0]) == "PEM_read_bio_X509_AUX() failed")
            local random, size = ffi.new("unsigned char[32]"), ffi.new("size_t[1]", 32)
            assert(C.ngx_http_lua_ffi_ssl_client_random(r, random, size, err) == 0 and size[0] == 32)
            assert(ffi.string(random, 32) == require "ngx.ssl".get_client_random())
            local ciphers, count = ffi.new("uint16_t[1]"), ffi.new("uint16_t[1]", 1)
            assert(C.ngx_http_lua_ffi_req_shared_ssl_ciphers(r, ciphers, count, 1, err) == 0)
            assert(count[0] == 1 and ciphers[0] == require "ngx.ssl".get_req_shared_ssl_ciphers()[1])
            assert(io.open("/proc/" .. C.getpid() .. "/task/" .. ngx.worker.pid() .. "/stat"))
            assert(not pcall(function() return C.weir_nowhere end))
            assert(not pcall(function() return C.not_even_declared end))
        }"#;
        let server = serve(driver, &init, "", &format!("{script} location / {{ return 200 ok; }}"));
        for _ in 0..3 {
            let mut client = TlsClient::connect(server.addr(1), "a.example.com", &client(true, None));
            let shown = weir_tls::facts::subject(&client.facts().peer[0]);
            assert_eq!(shown.as_deref(), Some("CN=ffi.example.com"), "{}", server.error_log());
            assert_eq!(client.get("/", "a.example.com").text(), "ok");
        }
    }

    fn a_script_that_takes_longer_than_a_connection_may_is_given_up(driver) {
        let plain = "proxy_next_upstream off; error_log error.log debug;
            location / { proxy_connect_timeout 20ms; proxy_pass https://127.0.0.1:%%PORT_1%%;
                proxy_ssl_certificate_by_lua_block {
                    if ngx.var.arg_wait then ngx.sleep(3600) end } }";
        let server = serve(driver, "", plain, "location / { return 200 ok; }");
        assert_eq!(server.get("/?wait=1").status, 504);
        let _ = server.error_log_line("upstream timed out (110: Connection timed out) while loading proxy ssl certificate by lua");
        let _ = server.error_log_line("proxy_ssl_certificate_by_lua: cert cb aborted");
    }
}
