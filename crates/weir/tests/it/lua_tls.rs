//! Scripts in handshakes: `ssl_client_hello_by_lua`, `ssl_certificate_by_lua`, `ssl_session_fetch_by_lua`,
//! `ssl_session_store_by_lua`, and what `ngx.ssl` has for them.

use crate::support::tls as support;

use support::{Pair, TlsClient, authority, client, own};
use weir_test::{Driver, Server, both_drivers};

/// A server whose own certificate is `default.example.com`'s, with `http` before it and `server` in it.
fn serve(driver: Driver, http: &str, server: &str) -> Server {
    let pair = own("default.example.com");
    let conf = format!(
        "events {{}} http {{ {http}
           server {{ listen 127.0.0.1:%%PORT%% ssl; server_name default.example.com; default_type text/plain;
             ssl_certificate a.crt; ssl_certificate_key a.key;
             {server} }} }}"
    );
    let builder = Server::builder(&conf).file("a.crt", &pair.certificate).file("a.key", &pair.key);
    builder.driver(driver).start()
}

/// Lua that gives globals the certificate and the key of `pair`.
fn globals(name: &str, pair: &Pair) -> String {
    format!("{name}_crt = [[{}]] {name}_key = [[{}]] ", pair.certificate, pair.key)
}

fn connect(server: &Server, name: &str, tls13: bool) -> Result<TlsClient, String> {
    TlsClient::cut(server.addr(0), name, &client(tls13, None), 1 << 20)
}

/// The common name of the certificate that a client gets that asks for `name`.
#[track_caller]
fn shown(server: &Server, name: &str, tls13: bool) -> String {
    let client = connect(server, name, tls13).unwrap_or_else(|error| panic!("{name}: {error}"));
    weir_tls::facts::subject(&client.facts().peer[0]).expect("a subject")
}

/// Why a client that asks for `name` does not get a connection.
#[track_caller]
fn refused(server: &Server, name: &str) -> String {
    match connect(server, name, true) {
        Ok(_) => panic!("{name}: there is a connection"),
        Err(why) => why,
    }
}

both_drivers! {
    fn certificates_are_chosen_by_a_script_that_waits(driver) {
        let (pair, other) = (own("a.example.com"), own("b.example.com"));
        let init = [globals("a", &pair), globals("b", &other)].concat();
        let server = serve(driver, &format!("init_by_lua_block {{ {init} }}"), r#"
            ssl_certificate_by_lua_block {
                local ssl = require "ngx.ssl"
                local name = ssl.server_name()
                ngx.sleep(0.001)
                local function pem(crt, key)
                    assert(ssl.clear_certs())
                    assert(ssl.set_cert(assert(ssl.parse_pem_cert(crt))))
                    ngx.sleep(0.001)
                    assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(key))))
                end
                if name == "pem.example.com" then
                    pem(a_crt, a_key)
                elseif name == "der.example.com" then
                    assert(ssl.clear_certs())
                    assert(ssl.set_der_cert(assert(ssl.cert_pem_to_der(b_crt))))
                    assert(ssl.set_der_priv_key(assert(ssl.priv_key_pem_to_der(b_key))))
                elseif name == "parsed.example.com" then
                    assert(ssl.set_cert(assert(ssl.parse_der_cert(ssl.cert_pem_to_der(b_crt)))))
                    assert(ssl.set_priv_key(assert(ssl.parse_der_priv_key(ssl.priv_key_pem_to_der(b_key)))))
                elseif name == "thread.example.com" then
                    ngx.thread.wait(ngx.thread.spawn(pem, a_crt, a_key))
                elseif name == "none.example.com" then
                    ssl.clear_certs()
                elseif name == "half.example.com" then
                    ssl.set_cert(ssl.parse_pem_cert(a_crt))
                elseif name == "mismatch.example.com" then
                    ssl.set_cert(ssl.parse_pem_cert(a_crt))
                    ngx.log(ngx.ERR, "mismatch: ", select(2, ssl.set_priv_key(ssl.parse_pem_priv_key(b_key))))
                    ngx.exit(ngx.ERROR)
                elseif name == "exit.example.com" then
                    ngx.exit(ngx.OK)
                    pem(a_crt, a_key)
                elseif name == "stop.example.com" then
                    ngx.exit(ngx.ERROR)
                elseif name == "error.example.com" then
                    error("no luck")
                end
            }
            location / { return 200 $ssl_server_name; }"#);
        for _ in 0..2 {
            for tls13 in [false, true] {
                for (name, subject) in [
                    ("pem", "CN=a.example.com"), ("der", "CN=b.example.com"), ("parsed", "CN=b.example.com"),
                    ("thread", "CN=a.example.com"), ("exit", "CN=default.example.com"),
                    ("default", "CN=default.example.com"),
                ] {
                    assert_eq!(shown(&server, &format!("{name}.example.com"), tls13), subject);
                }
            }
        }
        assert!(refused(&server, "none.example.com").contains("alert number 40"));
        assert!(refused(&server, "half.example.com").contains("alert number 40"));
        let _ = server.error_log_line("no suitable signature algorithm) while SSL handshaking");
        for name in ["mismatch", "stop", "error"] {
            assert!(refused(&server, &format!("{name}.example.com")).contains("alert number 80"), "{name}");
        }
        let _ = server.error_log_line("cert cb error) while SSL handshaking");
        let line = server.error_log_line("mismatch: SSL_use_PrivateKey() failed");
        assert!(line.contains(", context: ssl_certificate_by_lua*, client: 127.0.0.1, server: 127.0.0.1:"), "{line}");
        let line = server.error_log_line("lua entry thread aborted: runtime error: ssl_certificate_by_lua(nginx.conf:");
        assert!(line.contains("no luck"), "{line}");
        let mut client = connect(&server, "pem.example.com", true).expect("a handshake");
        assert_eq!(client.get("/", "pem.example.com").text(), "pem.example.com");
    }

    fn requests_inherit_what_the_handshake_s_scripts_have_said(driver) {
        let server = serve(driver, "", r#"
            ssl_client_hello_by_lua_block { ngx.ctx.first = ngx.get_phase() }
            ssl_certificate_by_lua_block {
                ngx.ctx.second = ngx.ctx.first .. " " .. ngx.get_phase()
                ngx.ctx.list = { 1 }
            }
            location / { content_by_lua_block {
                local ctx = ngx.ctx
                ctx.own = (ctx.own or 0) + 1
                ctx.list[#ctx.list + 1] = 0
                ngx.say(ctx.second, " ", ctx.own, " ", #ctx.list)
            } }"#);
        let mut client = connect(&server, "a.example.com", true).expect("a handshake");
        assert_eq!(client.get("/", "a.example.com").text(), "ssl_client_hello ssl_cert 1 2\n");
        // A request's own fields are its own; the connection's table is all requests'.
        assert_eq!(client.get("/", "a.example.com").text(), "ssl_client_hello ssl_cert 1 3\n");
    }

    fn what_a_script_of_a_handshake_may_not_do_is_told(driver) {
        let server = serve(driver, "", r#"
            ssl_certificate_by_lua_block {
                local function told(what, ...) ngx.log(ngx.ERR, what, ": ", select(2, pcall(...))) end
                told("say", ngx.say, "x")
                told("capture", ngx.location.capture, "/")
                told("var", function() return ngx.var.uri end)
                told("status", function() return ngx.status end)
                told("hello", require("ngx.ssl.clienthello").get_client_hello_ext, 0)
                local ssl = require "ngx.ssl"
                for what, result in pairs {
                    pem = { ssl.parse_pem_cert("x") }, der = { ssl.parse_der_cert("x") },
                    pem_key = { ssl.parse_pem_priv_key("x") }, der_key = { ssl.parse_der_priv_key("x") },
                    set = { ssl.set_der_cert("x") }, set_key = { ssl.set_der_priv_key("x") },
                    master = { ssl.get_session_master_key() },
                } do
                    ngx.log(ngx.ERR, what, ": ", tostring(result[1]), " ", result[2])
                end
            }
            location / { content_by_lua_block {
                local ssl = require "ngx.ssl"
                ngx.say(tostring(ssl.clear_certs()), " ", ssl.server_name(), " ", ssl.get_tls1_version_str(), " ",
                    #ssl.get_client_random(), " ", ssl.server_port() == tonumber(ngx.var.server_port), " ",
                    #ssl.get_req_shared_ssl_ciphers() > 0, " ", select(2, ssl.raw_client_addr()))
            } }"#);
        let mut client = connect(&server, "a.example.com", false).expect("a handshake");
        assert_eq!(client.get("/", "a.example.com").text(), "nil a.example.com TLSv1.2 32 true true inet\n");
        for line in [
            "say: API disabled in the context of ssl_certificate_by_lua*",
            "capture: API disabled in the context of ssl_certificate_by_lua*",
            "var: ssl_certificate_by_lua(nginx.conf:",
            "API disabled in the current context, context: ssl_certificate_by_lua*, client: 127.0.0.1",
            "hello: API disabled in the current context",
            "pem: nil PEM_read_bio_X509_AUX() failed", "der: nil d2i_X509_bio() failed",
            "pem_key: nil PEM_read_bio_PrivateKey() failed", "der_key: nil d2i_PrivateKey_bio() failed",
            "set: nil d2i_X509_bio() failed", "set_key: nil d2i_PrivateKey_bio() failed",
            "master:  nil",
        ] {
            let _ = server.error_log_line(line);
        }
    }

    fn a_client_s_hello_is_read_and_restricted(driver) {
        let server = serve(driver, "", r#"
            ssl_client_hello_by_lua_block {
                local hello = require "ngx.ssl.clienthello"
                local name = hello.get_client_hello_server_name()
                if name == "old.example.com" then assert(hello.set_protocols { "TLSv1.1", "TLSv1.2" }) end
                if name == "never.example.com" then assert(hello.set_protocols { "TLSv1.1" }) end
                if name == "stop.example.com" then return ngx.exit(ngx.ERROR) end
                ngx.sleep(0)
                local seen = {}
                for _, kind in ipairs(hello.get_client_hello_ext_present()) do seen[kind] = true end
                ngx.ctx.said = table.concat({
                    tostring(seen[0]), tostring(seen[10]), tostring(seen[9999]), #hello.get_client_hello_ext(16),
                    tostring(hello.get_client_hello_ext(9999)), #hello.get_client_hello_ciphers(),
                    table.concat(hello.get_supported_versions(), ","),
                    select(2, hello.set_protocols { "TLSv7" }) }, " ")
            }
            location / { content_by_lua_block { ngx.say(ngx.var.ssl_protocol, " ", ngx.ctx.said) } }"#);
        let both = weir_tls::ClientSettings {
            protocols: Default::default(),
            suites: weir_tls::suites::default_suites(),
            groups: weir_tls::suites::default_groups(),
            certificate: None,
            alpn: vec![b"http/1.1".to_vec()],
            tell_name: true,
            sessions: 0,
            key_log: None,
            signatures: weir_tls::SignatureLimits::default(),
            session_tickets: true,
        };
        let both = weir_tls::ClientConfig::new(&both).expect("a client");
        for (name, version) in [("any.example.com", "TLSv1.3"), ("old.example.com", "TLSv1.2")] {
            let mut client = TlsClient::connect(server.addr(0), name, &both);
            let said = client.get("/", name).text();
            let rest = "true true nil 11 nil 10 TLSv1.2,TLSv1.3 invalid protocols failed\n";
            assert_eq!(said, format!("{version} {rest}"));
        }
        for (name, alert) in [("never.example.com", "alert number 70"), ("stop.example.com", "alert number 80")] {
            let why = TlsClient::cut(server.addr(0), name, &both, 7).err().expect("no connection");
            assert!(why.contains(alert), "{name}: {why}");
        }
        let _ = server.error_log_line("routines::callback failed) while SSL handshaking");
        let _ = server.error_log_line("routines::unsupported protocol) while SSL handshaking");
    }

    fn sessions_are_kept_and_found_by_scripts(driver) {
        let scripts = |fetch: &str| format!(r#"lua_shared_dict sessions 1m; ssl_session_tickets off; ssl_session_cache off;
            ssl_session_store_by_lua_block {{
                local session = require "ngx.ssl.session"
                local id = session.get_session_id()
                assert(ngx.shared.sessions:set(id, session.get_serialized_session()))
                ngx.log(ngx.ERR, "kept ", #id)
            }}
            ssl_session_fetch_by_lua_block {{
                local session = require "ngx.ssl.session"
                ngx.sleep(0.001)
                local known = ngx.shared.sessions:get(session.get_session_id())
                {fetch}
            }}"#);
        let location = "location / { return 200 $ssl_session_reused; }";
        for (fetch, expected) in [
            ("if known then session.set_serialized_session(known) end", "r"),
            ("", "."),
            ("session.set_serialized_session('no session')", "."),
            ("error('no')", "."),
        ] {
            let server = serve(driver, &scripts(fetch), location);
            let config = client(false, None);
            for expected in [".", expected] {
                let mut client = TlsClient::connect(server.addr(0), "a.example.com", &config);
                assert_eq!(client.get("/", "a.example.com").text(), expected, "{fetch}");
            }
            let line = server.error_log_line("kept 64");
            assert!(line.contains("context: ssl_session_store_by_lua*, client: 127.0.0.1"), "{line}");
        }
    }

    fn clients_are_asked_for_certificates_by_a_script(driver) {
        let (ca, stranger) = (authority("ca"), own("stranger"));
        let known = ca.issue("friend");
        let init = format!("init_by_lua_block {{ {} }}", globals("ca", &ca));
        let server = serve(driver, &init, r#"
            ssl_certificate_by_lua_block {
                local ssl = require "ngx.ssl"
                if ssl.server_name() == "ask.example.com" then
                    assert(ssl.verify_client(assert(ssl.parse_pem_cert(ca_crt)), 1))
                end
            }
            location / { return 200 "$ssl_client_verify $ssl_client_s_dn"; }"#);
        let verdict = |name: &str, pair: Option<&Pair>| {
            let config = client(true, pair.map(Pair::shown));
            TlsClient::connect(server.addr(0), name, &config).get("/", name).text()
        };
        assert_eq!(verdict("ask.example.com", Some(&known)), "SUCCESS CN=friend");
        assert_eq!(verdict("ask.example.com", Some(&stranger)), "FAILED:self-signed certificate CN=stranger");
        assert_eq!(verdict("ask.example.com", None), "NONE ");
        assert_eq!(verdict("b.example.com", Some(&known)), "NONE ");
    }

    fn scripts_choose_what_servers_are_shown_and_judge_them(driver) {
        let (pair, ca, other) = (own("a.example.com"), authority("ca"), own("script.example.com"));
        let init = globals("a", &other);
        let ways = |script: &str| format!("proxy_http_version 1.0; proxy_ssl_name a.example.com; proxy_ssl_session_reuse off;
            proxy_pass https://127.0.0.1:%%PORT_1%%/; {script}");
        let verifies = "proxy_ssl_verify on; proxy_ssl_conf_command VerifyMode Peer; proxy_ssl_trusted_certificate ca.crt;";
        let locations: String = [
            ("none", String::new()),
            ("shown", "proxy_ssl_protocols TLSv1.2; proxy_ssl_certificate_by_lua_block {
                local cert, ssl = require 'ngx.ssl.proxysslcert', require 'ngx.ssl'
                assert(require('ngx.proxyssl').get_tls1_version_str() == 'TLSv1.2')
                ngx.sleep(0.001)
                assert(cert.clear_certs())
                assert(cert.set_cert(assert(ssl.parse_pem_cert(a_crt))))
                assert(cert.set_priv_key(assert(ssl.parse_pem_priv_key(a_key)))) }".to_owned()),
            ("der", "proxy_ssl_certificate_by_lua_block {
                local cert, ssl = require 'ngx.ssl.proxysslcert', require 'ngx.ssl'
                assert(ngx.get_phase() == 'proxy_ssl_cert' and ngx.var.uri == '/der')
                assert(not require('ngx.proxyssl').get_tls1_version())
                assert(cert.set_der_cert(ssl.cert_pem_to_der(a_crt)))
                assert(cert.set_der_priv_key(ssl.priv_key_pem_to_der(a_key))) }".to_owned()),
            ("cleared", "proxy_ssl_certificate a.crt; proxy_ssl_certificate_key a.key;
              proxy_ssl_certificate_by_lua_block { assert(require('ngx.ssl.proxysslcert').clear_certs()) }".to_owned()),
            ("kept", "proxy_ssl_certificate a.crt; proxy_ssl_certificate_key a.key;
              proxy_ssl_certificate_by_lua_block { ngx.exit(ngx.OK) error('never') }".to_owned()),
            ("stop", "proxy_ssl_certificate_by_lua_block { ngx.sleep(0) ngx.exit(ngx.ERROR) }".to_owned()),
            ("error", "proxy_ssl_certificate_by_lua_block { ngx.location.capture('/') }".to_owned()),
            ("untrusted", verifies.to_owned()),
            ("judged", format!("{verifies} proxy_ssl_verify_by_lua_block {{
                local verify = require 'ngx.ssl.proxysslverify'
                ngx.sleep(0.001)
                assert(verify.get_verify_result() == 18, verify.get_verify_result())
                assert(verify.get_verify_cert())
                assert(require('ngx.proxyssl').get_tls1_version_str() == 'TLSv1.3')
                assert(verify.set_verify_result(0)) }}")),
            ("alone", format!("{verifies} lua_upstream_skip_openssl_default_verify on; proxy_ssl_verify_by_lua_block {{
                assert(require('ngx.ssl.proxysslverify').get_verify_result() == 0) }}")),
            ("refused", format!("{verifies} proxy_ssl_verify_by_lua_block {{
                assert(require('ngx.ssl.proxysslverify').set_verify_result(23)) }}")),
            ("failed", "proxy_ssl_verify_by_lua_block { ngx.exit(ngx.ERROR) }".to_owned()),
        ].iter().map(|(name, script)| format!("location /{name} {{ {} }}\n", ways(script))).collect();
        let server = Server::builder(&format!(
            "events {{}} http {{ init_by_lua_block {{ {init} }} proxy_next_upstream off;
               server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }}
               server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                 ssl_verify_client optional_no_ca; return 200 '$ssl_client_s_dn.'; }} }}"
        ))
        .file("a.crt", &pair.certificate).file("a.key", &pair.key).file("ca.crt", &ca.certificate)
        .driver(driver).start();
        for (name, expected) in [
            ("none", "."), ("shown", "CN=script.example.com."), ("der", "CN=script.example.com."), ("cleared", "."),
            ("kept", "CN=a.example.com."), ("judged", "."), ("alone", "."),
        ] {
            let answer = server.client().get(&format!("/{name}"));
            assert_eq!((answer.status, answer.text()), (200, expected.to_owned()), "{name}");
        }
        for (name, line) in [
            ("stop", "callback failed) while SSL handshaking to upstream"),
            ("error", "API disabled in the context of proxy_ssl_certificate_by_lua*"),
            ("untrusted", "verify error: (18:self-signed certificate) while SSL handshaking to upstream"),
            ("refused", "verify error: (23:certificate revoked) while SSL handshaking to upstream"),
            ("failed", "certificate verify failed) while SSL handshaking to upstream"),
        ] {
            assert_eq!(server.client().get(&format!("/{name}")).status, 502, "{name}");
            let _ = server.error_log_line(line);
        }
    }
}
