//! Upstream servers that speak TLS.

use crate::support::tls as support;

use support::{Pair, authority, own};
use weir_test::{Server, TestServerBuilder, both_drivers};

/// A server whose locations ask another one, of two names, over TLS.
fn conf(locations: &str) -> String {
    format!(
        "http {{
            upstream kept {{ server 127.0.0.1:%%PORT_1%%; keepalive 4; }}
            server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version 1.1; proxy_set_header Connection ''; {locations} }}
            server {{ listen 127.0.0.1:%%PORT_1%% ssl; server_name a.example.com; ssl_certificate a.crt; ssl_certificate_key a.key;
                return 200 '$ssl_server_name|$ssl_session_reused|$connection|$ssl_protocol|$host'; }}
            server {{ listen 127.0.0.1:%%PORT_2%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                ssl_verify_client optional_no_ca; ssl_client_certificate ca.crt; return 200 $ssl_client_s_dn; }}
            server {{ listen 127.0.0.1:%%PORT_1%% ssl; server_name b.example.com; ssl_certificate b.crt; ssl_certificate_key b.key;
                return 200 b; }}
        }}"
    )
}

struct Keys {
    ca: Pair,
    a: Pair,
    b: Pair,
    client: Pair,
}

fn keys() -> Keys {
    let ca = authority("ca");
    let (a, client) = (ca.issue("a.example.com"), ca.issue("client"));
    Keys { a, b: own("b.example.com"), client, ca }
}

fn server(keys: &Keys, locations: &str) -> TestServerBuilder {
    Server::builder(&conf(locations))
        .file("ca.crt", &keys.ca.certificate)
        .file("a.crt", &keys.a.certificate)
        .file("a.key", &keys.a.key)
        .file("b.crt", &keys.b.certificate)
        .file("b.key", &keys.b.key)
        .file("client.crt", &keys.client.certificate)
        .file("client.key", &keys.client.key)
}

both_drivers! {
    fn servers_are_asked_over_tls(driver) {
        let server = server(&keys(), "
            location /plain { proxy_pass https://127.0.0.1:%%PORT_1%%/; }
            location /old { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_protocols TLSv1.2; proxy_ssl_session_reuse off; }
            location /named { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_server_name on; proxy_ssl_name a.example.com; }
            location /other { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_server_name on; proxy_ssl_name $arg_n; proxy_set_header Host $arg_n; }
            location /shown { proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_certificate client.crt; proxy_ssl_certificate_key client.key; }
            location /computed { proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_certificate $arg_c.crt; proxy_ssl_certificate_key $arg_c.key; }
            location /url { proxy_pass $arg_s://127.0.0.1:%%PORT_1%%/; }
        ").driver(driver).start();
        let parts = |path: &str| -> Vec<String> { server.get(path).text().split('|').map(str::to_owned).collect() };
        let first = parts("/plain");
        assert_eq!((first[0].as_str(), first[1].as_str(), first[3].as_str()), ("", ".", "TLSv1.3"));
        assert_eq!(parts("/plain")[1], "r", "the session is resumed");
        assert_eq!((parts("/old")[1].as_str(), parts("/old")[3].as_str()), (".", "TLSv1.2"));
        assert_eq!(parts("/named")[0], "a.example.com");
        assert_eq!(server.get("/other?n=b.example.com").text(), "b");
        assert_eq!(parts("/other?n=a.example.com:443")[0], "a.example.com");
        assert_eq!(server.get("/shown").text(), "CN=client");
        assert_eq!(server.get("/computed?c=client").text(), "CN=client");
        assert_eq!(parts("/url?s=https")[3], "TLSv1.3");
        assert_eq!(server.get("/url?s=http").status, 400, "plain HTTP to a port with TLS");
        assert_eq!(server.get("/computed?c=nobody").status, 502);
        let _ = server.error_log_line("cannot load certificate");
    }

    fn servers_are_verified(driver) {
        let server = server(&keys(), "
            proxy_ssl_trusted_certificate ca.crt; proxy_ssl_verify on; proxy_ssl_server_name on;
            location /good { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_name a.example.com; }
            location /unknown { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_name b.example.com; }
            location /name { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_name c.example.com; }
        ").driver(driver).start();
        for _ in 0..2 {
            // Also where the session is resumed.
            assert_eq!(server.get("/good").status, 200);
            assert_eq!(server.get("/unknown").status, 502);
            assert_eq!(server.get("/name").status, 502);
        }
        let words = "upstream SSL certificate verify error: (18:self-signed certificate) while SSL handshaking to upstream";
        let _ = server.error_log_line(words);
        let _ = server.error_log_line("upstream SSL certificate does not match \"c.example.com\" while SSL handshaking");
    }

    fn kept_connections_are_for_the_same_name_only(driver) {
        let server = server(&keys(), "
            location / { proxy_pass https://kept; proxy_ssl_server_name on; proxy_ssl_name $arg_n; proxy_set_header Host $arg_n; proxy_set_header Connection ''; }
        ").driver(driver).start();
        let connection = |n: &str| server.get(&format!("/?n={n}.example.com")).text().split('|').nth(2).map(str::to_owned);
        let first = connection("a");
        assert!(first.is_some());
        assert_eq!(connection("a"), first, "it is kept");
        assert_eq!(server.get("/?n=b.example.com").text(), "b", "another name, another connection");
        assert_eq!(connection("a"), first, "and is still there");
    }

    fn what_speaks_no_tls_is_a_bad_gateway(driver) {
        let server = server(&keys(), "
            location / { proxy_pass https://127.0.0.1:%%PORT%%/plain; }
            location /plain { return 200; }
        ").driver(driver).start();
        assert_eq!(server.get("/").status, 502);
        let line = server.error_log_line("while SSL handshaking to upstream");
        assert!(line.contains("upstream: \"https://127.0.0.1:"), "{line}");
    }

    /// The server here knows nothing of uwsgi: all it sends is the client's certificate and the name it asked for.
    fn uwsgi_servers_are_asked_over_tls(driver) {
        let keys = keys();
        let server = Server::builder("http {
            uwsgi_ssl_trusted_certificate ca.crt; uwsgi_ssl_verify on; uwsgi_ssl_server_name on;
            uwsgi_ssl_certificate client.crt; uwsgi_ssl_certificate_key client.key; uwsgi_ssl_name a.example.com;
            server { listen 127.0.0.1:%%PORT%%; uwsgi_param A b;
                location /fixed { uwsgi_pass suwsgi://127.0.0.1:%%PORT_1%%; }
                location /computed { uwsgi_pass $arg_s://127.0.0.1:%%PORT_1%%; }
                location /name { uwsgi_pass SUWSGI://127.0.0.1:%%PORT_1%%; uwsgi_ssl_name b.example.com; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                ssl_verify_client optional_no_ca; ssl_client_certificate ca.crt; error_page 400 = /told;
                location /told { return 200 $ssl_client_s_dn,$ssl_server_name; } } }")
            .file("ca.crt", &keys.ca.certificate)
            .file("a.crt", &keys.a.certificate)
            .file("a.key", &keys.a.key)
            .file("client.crt", &keys.client.certificate)
            .file("client.key", &keys.client.key)
            .driver(driver).allow("upstream").start();
        assert_eq!(server.get("/fixed").text(), "CN=client,a.example.com");
        assert_eq!(server.get("/computed?s=suwsgi").text(), "CN=client,a.example.com");
        assert_eq!(server.get("/computed?s=uwsgi").text(), ",", "without TLS");
        assert_eq!(server.get("/computed?s=http").status, 500);
        let _ = server.error_log_line("invalid host in upstream \"http://127.0.0.1:");
        assert_eq!(server.get("/name").status, 502);
        let line = server.error_log_line("upstream SSL certificate does not match \"b.example.com\"");
        assert!(line.contains("upstream: \"suwsgi://127.0.0.1:"), "{line}");
    }
}

#[test]
fn what_is_wrong_is_said_in_nginxs_words() {
    for (more, words) in [
        ("proxy_ssl_verify on;", "no proxy_ssl_trusted_certificate for proxy_ssl_verify"),
        ("proxy_ssl_certificate x;", "no \"proxy_ssl_certificate_key\" is defined for certificate \""),
        ("proxy_ssl_ciphers NULL;", "SSL_CTX_set_cipher_list(\"NULL\") failed"),
        ("proxy_ssl_conf_command Nothing x;", "SSL_CONF_cmd(\"Nothing\", \"x\") failed"),
    ] {
        let text = format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass https://127.0.0.1:1; {more} }} }} }}"
        );
        let exit = Server::builder(&text).run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(words), "{more}: {}", exit.stderr);
    }
}
