//! What `ngx.ssl` shows of a handshake's random bytes and secrets, as OpenSSL's client sees them.

use crate::support::tls as support;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use support::own;
use weir_test::{Driver, Server, both_drivers, require_program};

const SCRIPTS: &str = r#"
    ssl_client_hello_by_lua_block {
        local ssl = require "ngx.ssl"
        local random, err = ssl.get_server_random()
        assert(not random and err == "no ServerHello has been made yet")
    }
    ssl_certificate_by_lua_block {
        local ssl = require "ngx.ssl"
        ngx.ctx.random = ssl.get_server_random()
        assert(#ngx.ctx.random == 32 and ssl.get_server_random() == ngx.ctx.random)
        assert(ssl.get_server_random(0) == 32 and ssl.get_server_random(5) == ngx.ctx.random:sub(1, 5))
        assert(ssl.get_session_master_key() == "" and ssl.get_session_master_key(0) == 0)
        assert(select(2, ssl.export_keying_material(20, "a")) == "SSL_export_keying_material() failed")
        assert(select(2, ssl.set_cert()) == "invalid certificate chain")
        assert(select(2, ssl.set_priv_key()) == "invalid private key")
        assert(select(2, ssl.parse_der_cert "") == "invalid argument")
        assert(select(2, ssl.parse_der_priv_key "") == "invalid argument")
        for at, wrong in ipairs { { "verify_client", "x" }, { "verify_client", nil, nil, "x" }, { "set_cert", {} }, { "set_priv_key", 1 } } do
            assert(not pcall(ssl[wrong[1]], unpack(wrong, 2, 4)), at)
        end
        assert(ssl.ssl_session_reused(assert(ssl.get_req_ssl_pointer())) == false)
    }
    location / { content_by_lua_block {
        local ssl = require "ngx.ssl"
        local ffi = require "ffi"
        local hex = function(text)
            return text and (text:gsub(".", function(c) return ("%02X"):format(c:byte()) end)) or "none"
        end
        local export = ssl.export_keying_material
        assert(ngx.ctx.random == ssl.get_server_random())
        local pointer = assert(ssl.get_req_ssl_pointer())
        assert(type(pointer) == "cdata" and ssl.ssl_session_reused(pointer) == (ngx.var.ssl_session_reused == "r"))
        assert(select(2, ssl.ssl_session_reused()) == "bad ssl")
        assert(select(2, ssl.ssl_session_reused(ffi.cast("void *", 2))) == "bad ssl")
        pcall(ffi.cdef, "const char *SSL_get_servername(const void *, const int);")
        assert(ffi.string(ffi.C.SSL_get_servername(pointer, 0)) == "a.example.com")
        local tls13 = ssl.get_tls1_version_str() == "TLSv1.3"
        assert((export(20, "label", "") == export(20, "label")) == tls13)
        assert(export(20, "label", "a") ~= export(20, "label", "b") and #export(100, "label", "c") == 100)
        assert(export(0, "label") == (tls13 and "" or nil))
        for _, wrong in ipairs { -1, 1e9 } do
            assert(select(2, export(wrong, "label")) == "SSL_export_keying_material() failed")
        end
        assert((export(20, ("x"):rep(250)) == nil) == tls13)
        assert(not ssl.export_keying_material_early(20, "label"))
        local key, err = ssl.get_session_master_key()
        assert(key and #key == 48 or err == "TLS 1.3 has no master key")
        ngx.say("random=", hex(ssl.get_server_random()))
        ngx.say("master=", hex(key))
        ngx.say("export=", hex(export(20, "EXPERIMENTAL weir")))
    } }"#;

/// For the block `http`.
const STORE: &str = r#"ssl_session_store_by_lua_block {
        local ssl = require "ngx.ssl"
        assert(ssl.get_server_random() == ngx.ctx.random and ssl.get_session_master_key(0) == 48)
    }"#;

/// Without TLS.
const PLAIN: &str = r#"location / { content_by_lua_block {
    local ssl = require "ngx.ssl"
    for _, name in ipairs { "get_server_random", "get_session_master_key", "get_req_ssl_pointer" } do
        local value, err = ssl[name]()
        assert(value == nil and err == "bad request", name)
    end
    assert(select(2, ssl.clear_certs()) == "bad request")
    assert(select(2, ssl.verify_client()) == "API disabled in the current context")
    ngx.say(select(2, ssl.export_keying_material(20, "label")))
} }"#;

fn serve(driver: Driver) -> Server {
    let pair = own("a.example.com");
    let conf = format!(
        "events {{}} http {{ {STORE} server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
           ssl_certificate a.crt; ssl_certificate_key a.key; ssl_ecdh_curve prime256v1; ssl_session_tickets off;
           {SCRIPTS} }} server {{ listen 127.0.0.1:%%PORT_1%%; {PLAIN} }} }}"
    );
    Server::builder(&conf).driver(driver).file("a.crt", &pair.certificate).file("a.key", &pair.key).start()
}

/// What OpenSSL's client, and the server's response to it, say of a handshake.
struct Seen {
    client: HashMap<&'static str, String>,
    server: HashMap<String, String>,
}

fn ask(openssl: &Path, server: &Server, options: &[&str]) -> Seen {
    let mut child = Command::new(openssl)
        .args([
            "s_client",
            "-connect",
            &server.addr(0).to_string(),
            "-servername",
            "a.example.com",
            "-ign_eof",
        ])
        .args(["-keymatexport", "EXPERIMENTAL weir", "-keymatexportlen", "20", "-msg"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"GET / HTTP/1.0\r\nHost: a.example.com\r\n\r\n").expect("the client reads");
    let output = child.wait_with_output().expect("openssl ends");
    drop(stdin);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let behind = |mark: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(mark));
        line.map(|value| value.trim().to_owned()).unwrap_or_default()
    };
    // The last ServerHello: the one before it asks for another hello.
    let hello = text.rsplit_once(", ServerHello\n").expect("a ServerHello").1;
    let bytes: String =
        hello.lines().take_while(|line| line.starts_with("    ")).flat_map(str::split_whitespace).collect();
    let client = [
        ("random", bytes[12..76].to_uppercase()),
        ("master", behind("Master-Key:")),
        ("export", behind("Keying material:")),
    ];
    let server = text.lines().filter_map(|line| line.split_once('='));
    let server = server.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    Seen { client: client.into(), server }
}

both_drivers! {
    fn random_bytes_and_secrets_are_those_that_the_client_has(driver) {
        let Some(openssl) = require_program("openssl") else { return };
        let server = serve(driver);
        for (options, has_master) in [
            (&["-tls1_2"][..], true),
            (&["-tls1_3", "-groups", "P-256"], false),
            (&["-tls1_3", "-groups", "X25519:P-256"], false),
            (&["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"], false),
            (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"], true),
        ] {
            let seen = ask(&openssl, &server, options);
            let same = |name: &str| {
                let log = || server.error_log();
                assert_eq!(seen.server.get(name), seen.client.get(name), "{options:?} {name} {}", log());
            };
            same("random");
            same("export");
            match has_master {
                true => same("master"),
                false => assert_eq!(seen.server["master"], "none"),
            }
            let random = &seen.client["random"];
            assert_eq!(random.ends_with("444F574E47524401"), has_master, "RFC 8446, section 4.1.3: {random}");
        }
        let mut plain = weir_test::Client::connect(server.addr(1));
        assert_eq!(plain.get("/").text(), "bad request\n");
        assert!(!server.error_log().contains("[error]"), "{}", server.error_log());
    }
}
