//! TLS of `stream`: ended here, begun towards servers, or only looked at.

use crate::support::tls as support;

use support::{TlsClient, authority, client, client_of, own};
use weir_test::{Backend, Client, Server, both_drivers};

const LAST: &str = "log_format t '$server_port $status $ssl_server_name $ssl_preread_server_name'; access_log %%DIR%%/access.log t;";

both_drivers! {
    fn a_session_s_tls_ends_here_and_its_name_chooses_the_server(driver) {
        let (a, b) = (own("a.example.com"), own("b.example.com"));
        let server = Server::builder(&format!("stream {{ {LAST}
            server {{ listen 127.0.0.1:%%PORT%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                return '$server_name $ssl_protocol $ssl_session_reused'; }}
            server {{ listen 127.0.0.1:%%PORT%% ssl; server_name b.example.com; ssl_certificate b.crt; ssl_certificate_key b.key;
                return 'second $server_name $ssl_server_name'; }}
            server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; ssl_alpn one two;
                return $ssl_alpn_protocol; }}
            server {{ listen 127.0.0.1:%%PORT%% ssl; server_name ~^(?<tenant>[a-z]+)\\.tenants\\.example$; return $tenant; }}
        }}")).file("a.crt", &a.certificate).file("a.key", &a.key).file("b.crt", &b.certificate).file("b.key", &b.key)
            .driver(driver).start();
        for (tls13, version) in [(true, "TLSv1.3"), (false, "TLSv1.2")] {
            let mut tls = TlsClient::connect(server.addr(0), "other.example.com", &client(tls13, None));
            assert_eq!(tls.bytes(), format!(" {version} .").as_bytes());
        }
        let mut tls = TlsClient::connect(server.addr(0), "b.example.com", &client(true, None));
        assert_eq!(tls.bytes(), b"second b.example.com b.example.com");
        let mut tls = TlsClient::connect(server.addr(0), "some.tenants.example", &client(true, None));
        assert_eq!(tls.bytes(), b"some");
        let mut tls = TlsClient::connect(server.addr(1), "a", &client_of(true, None, "two", true));
        assert_eq!(tls.bytes(), b"two");
        assert!(TlsClient::cut(server.addr(1), "a", &client_of(true, None, "three", true), 1 << 20).is_err());
        // What is no TLS is no session.
        let mut plain = server.client();
        plain.send("GET / HTTP/1.0\r\n\r\n");
        plain.rest();
        let lines = server.access_log_lines(7);
        assert_eq!(lines[5], format!("{} 500 a -", server.port(1)));
        assert_eq!(lines[6], format!("{} 500 - -", server.port(0)));
    }

    /// Nothing is passed on of a client that is not trusted.
    fn a_client_without_a_good_certificate_gets_nothing(driver) {
        let (ca, stranger) = (authority("ca"), own("stranger"));
        let known = ca.issue("known");
        let server = Server::builder("stream { log_format t '$status $ssl_client_verify'; access_log %%DIR%%/access.log t;
            ssl_certificate s.crt; ssl_certificate_key s.key; ssl_client_certificate ca.crt;
            server { listen 127.0.0.1:%%PORT%% ssl; ssl_verify_client on; return $ssl_client_s_dn; }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_verify_client optional; return $ssl_client_verify; } }")
            .file("s.crt", &stranger.certificate).file("s.key", &stranger.key).file("ca.crt", &ca.certificate)
            .driver(driver).start();
        let shows = |port: usize, certificate| {
            let mut tls = TlsClient::connect(server.addr(port), "s", &client(true, certificate));
            if tls.ends() { Vec::new() } else { tls.bytes() }
        };
        assert_eq!(shows(0, Some(known.shown())), b"CN=known");
        assert_eq!(shows(0, None), b"");
        assert_eq!(shows(0, Some(stranger.shown())), b"");
        assert_eq!(shows(1, None), b"NONE");
        assert_eq!(shows(1, Some(stranger.shown())), b"");
        let statuses: Vec<String> = server.access_log_lines(5).iter().map(|line| line[..3].to_owned()).collect();
        assert_eq!(statuses, ["200", "500", "500", "200", "500"]);
    }

    fn servers_are_spoken_to_over_tls(driver) {
        let ca = authority("ca");
        let (a, shown) = (ca.issue("a.example.com"), ca.issue("shown"));
        let server = Server::builder("stream {
            server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:%%PORT_4%%; proxy_ssl on; proxy_ssl_server_name on; proxy_ssl_name a.example.com;
                proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.crt; proxy_ssl_certificate shown.crt; proxy_ssl_certificate_key shown.key; }
            server { listen 127.0.0.1:%%PORT_1%%; proxy_pass 127.0.0.1:%%PORT_4%%; proxy_ssl on; proxy_ssl_name b.example.com;
                proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.crt; }
            server { listen 127.0.0.1:%%PORT_4%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client optional;
                ssl_client_certificate ca.crt; return '$ssl_server_name $ssl_client_s_dn'; } }")
            .file("a.crt", &a.certificate).file("a.key", &a.key).file("ca.crt", &ca.certificate)
            .file("shown.crt", &shown.certificate).file("shown.key", &shown.key).driver(driver).start();
        let said = |port: usize| String::from_utf8_lossy(&Client::connect(server.addr(port)).rest().0).into_owned();
        assert_eq!(said(0), "a.example.com CN=shown");
        assert_eq!(said(1), "");
        assert!(server.error_log_line("upstream SSL certificate does not match \"b.example.com\" while SSL handshaking to upstream").contains("[error]"));
    }

    fn a_hello_is_looked_at_and_passed_on_whole(driver) {
        let (a, b) = (own("a.example.com"), own("b.example.com"));
        let echo = Backend::start(|visit| {
            let said = visit.bytes(5).unwrap_or_default();
            visit.send(said);
        });
        let server = Server::builder(&format!("stream {{ {LAST}
            map $ssl_preread_server_name $to {{ a.example.com 127.0.0.1:%%PORT_1%%; b.example.com 127.0.0.1:%%PORT_2%%; default 127.0.0.1:{}; }}
            server {{ listen 127.0.0.1:%%PORT%%; ssl_preread on; proxy_pass $to; }}
            server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; return first; access_log off; }}
            server {{ listen 127.0.0.1:%%PORT_2%% ssl; ssl_certificate b.crt; ssl_certificate_key b.key; return second; access_log off; }}
            server {{ listen 127.0.0.1:%%PORT_3%%; ssl_preread on; return '$ssl_preread_protocol $ssl_preread_alpn_protocols'; }}
            server {{ listen 127.0.0.1:%%PORT_4%%; ssl_preread on; preread_buffer_size 20; return never; }}
        }}", echo.port())).file("a.crt", &a.certificate).file("a.key", &a.key).file("b.crt", &b.certificate).file("b.key", &b.key)
            .driver(driver).start();
        for size in [1 << 20, 1] {
            for (name, expected) in [("a.example.com", &b"first"[..]), ("b.example.com", b"second")] {
                let mut tls = TlsClient::cut(server.addr(0), name, &client(true, None), size).expect("a handshake");
                assert_eq!(tls.bytes(), expected);
            }
        }
        // What does not begin TLS goes on as it is.
        let mut plain = server.client();
        plain.send("plain");
        assert_eq!(plain.rest().0, b"plain");
        assert!(TlsClient::cut(server.addr(4), "a", &client(true, None), 1 << 20).is_err());
        assert!(server.error_log_line("preread buffer full while prereading client data").contains("[error]"));
        let lines = server.access_log_lines(6);
        assert_eq!(lines[0], format!("{} 200 - a.example.com", server.port(0)));
        assert_eq!(lines[5], format!("{} 400 - -", server.port(4)));
    }
}
