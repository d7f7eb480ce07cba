//! `ssl_conf_command` and `proxy_ssl_conf_command`: what OpenSSL's commands change in handshakes, and which are errors.

use crate::support::tls as support;

use std::sync::Arc;

use support::{Pair, TlsClient, authority, client, own};
use weir_test::{Server, TestServerBuilder, both_drivers};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{ClientConfig, ClientSettings, SignatureLimits};

/// A server for `a.example.com`, with several workers.
fn server(more: &str) -> TestServerBuilder {
    pairs(Server::builder(&format!(
        "worker_processes 2; http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
            ssl_certificate a.crt; ssl_certificate_key a.key; {more} }} }}"
    )))
}

/// Two certificates whose keys are of one kind.
fn pairs(builder: TestServerBuilder) -> TestServerBuilder {
    let [a, b]: [Pair; 2] = ["a.example.com", "b.example.com"].map(own);
    builder
        .file("a.crt", &a.certificate)
        .file("a.key", &a.key)
        .file("b.crt", &b.certificate)
        .file("b.key", &b.key)
}

fn limited(tls13: bool, signatures: SignatureLimits) -> ClientConfig {
    let settings = ClientSettings {
        protocols: ProtocolVersions { tls12: !tls13, tls13 },
        suites: suites::default_suites(),
        groups: suites::default_groups(),
        certificate: None,
        alpn: Vec::new(),
        tell_name: true,
        sessions: 0,
        key_log: None,
        signatures,
        session_tickets: true,
    };
    ClientConfig::new(&settings).expect("a client")
}

/// What the server says, or why there is no connection.
fn said(server: &Server, config: &ClientConfig) -> Result<String, String> {
    let made = TlsClient::cut(server.addr(0), "a.example.com", config, 1000);
    made.map(|mut connection| connection.get("/", "a.example.com").text())
}

/// What clients of TLS 1.2 and of TLS 1.3 are told.
fn versions(server: &Server) -> [Option<String>; 2] {
    [false, true].map(|tls13| said(server, &client(tls13, None)).ok())
}

/// `ecdsa_secp256r1_sha256`: what the keys of these tests sign with.
const ECDSA: u16 = 0x0403;
const ED25519: u16 = 0x0807;

both_drivers! {
    fn versions_are_bounded(driver) {
        for (lines, expected) in [
            ("ssl_conf_command MinProtocol TLSv1.3;", [None, Some("TLSv1.3")]),
            // In any letter case, and wherever it is written.
            ("ssl_conf_command maxprotocol TLSv1.2; ssl_protocols TLSv1.2 TLSv1.3;", [Some("TLSv1.2"), None]),
            ("ssl_conf_command MinProtocol TLSv1; ssl_conf_command MaxProtocol None;", [Some("TLSv1.2"), Some("TLSv1.3")]),
            // Versions are added to those of the directive and taken away from them.
            ("ssl_protocols TLSv1.2; ssl_conf_command Protocol TLSv1.3;", [Some("TLSv1.2"), Some("TLSv1.3")]),
            ("ssl_conf_command Protocol TLSv1,-TLSv1.2;", [None, Some("TLSv1.3")]),
            ("ssl_conf_command Protocol 'ALL,-TLSv1.3';", [Some("TLSv1.2"), None]),
            // The last of several counts.
            ("ssl_conf_command MinProtocol TLSv1.3; ssl_conf_command MinProtocol TLSv1.2;", [Some("TLSv1.2"), Some("TLSv1.3")]),
        ] {
            let server = server(&format!("{lines} return 200 $ssl_protocol;")).start();
            let told = versions(&server);
            assert_eq!(told.each_ref().map(Option::as_deref), expected, "{lines}");
        }
    }

    /// What commands say overrides directives, also those that are written after them.
    fn commands_come_after_directives(driver) {
        let server = server(
            "ssl_conf_command CipherString ECDHE-ECDSA-AES256-GCM-SHA384; ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;
             ssl_conf_command ciphersuites TLS_CHACHA20_POLY1305_SHA256; ssl_conf_command groups P-256; ssl_ecdh_curve X25519;
             ssl_conf_command Options SessionTicket; ssl_session_tickets off;
             return 200 '$ssl_cipher $ssl_curve $ssl_session_reused';").start();
        for (tls13, cipher) in [(false, "ECDHE-ECDSA-AES256-GCM-SHA384"), (true, "TLS_CHACHA20_POLY1305_SHA256")] {
            let config = client(tls13, None);
            assert_eq!(said(&server, &config), Ok(format!("{cipher} prime256v1 .")));
            assert_eq!(said(&server, &config), Ok(format!("{cipher} prime256v1 r")), "tickets are given out");
        }
    }

    /// A block with commands of its own has none of those around it, as in nginx.
    fn blocks_take_all_commands_or_none(driver) {
        let server = pairs(Server::builder(
            "http { ssl_certificate a.crt; ssl_certificate_key a.key; ssl_conf_command MinProtocol TLSv1.3;
                server { listen 127.0.0.1:%%PORT%% ssl; return 200 outer; }
                server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_conf_command Groups P-256; return 200 $ssl_curve; } }")).start();
        assert_eq!(versions(&server), [None, Some("outer".to_owned())]);
        let told = TlsClient::cut(server.addr(1), "a.example.com", &client(false, None), 1000)
            .map(|mut connection| connection.get("/", "a.example.com").text());
        assert_eq!(told.as_deref(), Ok("prime256v1"));
    }

    /// The server signs with the schemes of the list only, and takes no others of clients.
    fn signatures_are_limited(driver) {
        let list = |schemes: &[u16]| Some(Arc::from(schemes));
        let server_of = |lines: &str| server(&format!("{lines} return 200 $ssl_sigalg;")).start();
        let one = server_of("ssl_conf_command SignatureAlgorithms ECDSA+SHA256:RSA+SHA256;");
        for tls13 in [false, true] {
            let told = said(&one, &limited(tls13, SignatureLimits::default()));
            assert_eq!(told.as_deref(), Ok("ecdsa_secp256r1_sha256"));
        }
        // None is left that the key can make.
        let none = server_of("ssl_conf_command SignatureAlgorithms RSA-PSS+SHA256;");
        for tls13 in [false, true] {
            let why = said(&none, &limited(tls13, SignatureLimits::default())).expect_err("the key is of ECDSA");
            assert!(why.contains("handshake failure"), "{why}");
        }
        // The same from the other side.
        let usual = server_of("");
        assert_eq!(said(&usual, &limited(true, SignatureLimits { peer: list(&[ECDSA]), own: None })).as_deref(), Ok("ecdsa_secp256r1_sha256"));
        assert!(said(&usual, &limited(true, SignatureLimits { peer: list(&[ED25519]), own: None })).is_err());
    }

    fn clients_certificates_sign_with_what_the_server_takes(driver) {
        let ca = authority("ca");
        let shown = || Some(ca.issue("client").shown());
        let server_of = |lines: &str| {
            server(&format!("{lines} ssl_verify_client on; ssl_client_certificate ca.crt; return 200 $ssl_client_s_dn;"))
                .file("ca.crt", &ca.certificate).start()
        };
        let taken = server_of("ssl_conf_command ClientSignatureAlgorithms ecdsa_secp256r1_sha256;");
        let refused = server_of("ssl_conf_command ClientSignatureAlgorithms ed25519;");
        for tls13 in [false, true] {
            assert_eq!(said(&taken, &client(tls13, shown())).as_deref(), Ok("CN=client"));
            // The client has no signature that would do, and shows no certificate.
            let told = said(&refused, &client(tls13, shown()));
            assert!(!told.as_ref().is_ok_and(|text| text.contains("CN=client")), "{told:?}");
        }
    }

    fn a_certificate_may_be_overridden(driver) {
        let server = server("ssl_conf_command Certificate b.crt; ssl_conf_command PrivateKey b.key; return 200 ok;").start();
        for tls13 in [false, true] {
            let mut connection = TlsClient::connect(server.addr(0), "a.example.com", &client(tls13, None));
            assert_eq!(connection.get("/", "a.example.com").text(), "ok");
            let shown = connection.facts().peer.first().map(|der| der.to_vec()).unwrap_or_default();
            assert!(shown.windows(13).any(|part| part == b"b.example.com"));
        }
    }

    /// What is asked of connections to other servers.
    fn connections_to_servers_have_commands(driver) {
        let server = pairs(Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; proxy_ssl_conf_command MinProtocol TLSv1.3;
                location /least { proxy_pass https://127.0.0.1:%%PORT_1%%/; }
                location /most { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_conf_command MaxProtocol TLSv1.2; }
                location /suite { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256; }
                location /shown { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_conf_command Certificate b.crt;
                    proxy_ssl_conf_command PrivateKey b.key; }
                location /none { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_conf_command SignatureAlgorithms ed25519; } }
              server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client optional_no_ca;
                return 200 '$ssl_protocol $ssl_cipher $ssl_client_s_dn'; } }"))
            .allow("SSL_do_handshake() failed").start();
        let told = |path: &str| server.get(path).text();
        assert!(told("/least").starts_with("TLSv1.3 "), "{}", told("/least"));
        assert!(told("/most").starts_with("TLSv1.2 "), "{}", told("/most"));
        assert!(told("/suite").starts_with("TLSv1.3 TLS_CHACHA20_POLY1305_SHA256"), "{}", told("/suite"));
        assert!(told("/shown").ends_with("CN=b.example.com"), "{}", told("/shown"));
        assert_eq!(server.get("/none").status, 502);
    }
}

/// Whether a server of TLS 1.2 was asked for a ticket is seen by whether it gave one, which can be resumed.
#[test]
fn servers_are_not_asked_for_tickets() {
    let server = pairs(Server::builder(
        "http { server { listen 127.0.0.1:%%PORT%%;
            location /asked { proxy_pass https://127.0.0.1:%%PORT_1%%/; }
            location /not { proxy_pass https://127.0.0.1:%%PORT_1%%/; proxy_ssl_conf_command Options -SessionTicket; }
            location /cached { proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_conf_command Options -SessionTicket; }
            location /tls13 { proxy_pass https://127.0.0.1:%%PORT_3%%/; proxy_ssl_conf_command Options -SessionTicket; } }
          server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_protocols TLSv1.2; return 200 $ssl_session_reused; }
          server { listen 127.0.0.1:%%PORT_2%% ssl; ssl_protocols TLSv1.2; ssl_session_cache shared:a:1m; return 200 $ssl_session_reused; }
          server { listen 127.0.0.1:%%PORT_3%% ssl; ssl_protocols TLSv1.3; return 200 $ssl_session_reused; }
          ssl_certificate a.crt; ssl_certificate_key a.key; proxy_set_header Connection close; keepalive_timeout 0; }",
    ))
    .start();
    for (path, resumed) in [("/asked", "r"), ("/not", "."), ("/cached", "r"), ("/tls13", "r")] {
        assert_eq!(server.get(path).text(), ".", "{path}");
        assert_eq!(server.get(path).text(), resumed, "{path}");
    }
}

#[test]
fn commands_that_cannot_be_followed_are_named() {
    for (command, why) in [
        ("MinProtocol tlsv1.3", Some("this is no version of TLS")),
        ("MinProtocol TLSv1.4", Some("this is no version of TLS")),
        ("MaxProtocol TLSv1.1", Some("leave neither TLSv1.2 nor TLSv1.3")),
        ("Protocol x", Some("this is no list of versions of TLS")),
        ("SignatureAlgorithms x", Some("unknown signature algorithm \"x\"")),
        ("SignatureAlgorithms ed448", Some("none of these signature algorithms can be had")),
        ("SignatureAlgorithms ed448:ed25519", None),
        ("NumTickets x", Some("this is no number of tickets")),
        ("NumTickets 4", None),
        ("ECDHParameters Automatic", None),
        ("ECDHParameters +automatic", None),
        ("Protocol -ALL", Some("leave neither")),
        ("Ciphersuites ''", Some("no cipher match")),
        ("Ciphersuites TLS_AES_128_CCM_SHA256", Some("no cipher match")),
        ("Ciphersuites TLS_AES_128_CCM_SHA256:TLS_AES_128_GCM_SHA256", None),
        ("CipherString DEFAULT@SECLEVEL=2", None),
        ("CipherString DEFAULT@SECLEVEL=3", Some("security levels end with 2 here")),
        ("CipherString ALL:@SECLEVEL=9", Some("invalid command")),
        ("Options EncryptThenMac,-AllowNoDHEKEX,+Bugs,AntiReplay,MiddleboxCompat", None),
        ("Options -AntiReplay", Some("there is no option \"-AntiReplay\" here")),
        ("Options AllowNoDHEKEX", Some("there is no option \"AllowNoDHEKEX\" here")),
        ("Certificate b.crt", Some("needs \"PrivateKey\" beside it")),
        ("PrivateKey b.key", Some("needs \"Certificate\" beside it")),
        ("RecordPadding 512", Some("there is no such command here")),
        ("VerifyMode Require", Some("there is no such command here")),
        ("VerifyCAFile b.crt", Some("there is no such command here")),
    ] {
        let exit = server(&format!("ssl_conf_command {command};")).run(&["-t"]);
        match why {
            Some(why) => {
                let name = command.split(' ').next().unwrap_or(command);
                assert!(!exit.status.success() && exit.stderr.contains(why), "{command}: {}", exit.stderr);
                assert!(exit.stderr.contains(name) || why.contains("leave neither"), "{}", exit.stderr);
            }
            None => assert!(exit.status.success(), "{command}: {}", exit.stderr),
        }
    }
}
