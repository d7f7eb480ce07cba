//! HTTP over TLS, end to end.

use crate::support::tls as support;

use std::path::Path;
use std::process::Command;

use support::{TlsClient, authority, client, large, own};
use weir_test::{Server, both_drivers, require_program, wait_for};

/// A server for `a.example.com` with `more` in it, and what is after it in `http`.
fn conf(more: &str, behind: &str) -> String {
    format!(
        "http {{ root %%DIR%%; server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
            ssl_certificate a.crt; ssl_certificate_key a.key; {more} }} {behind} }}"
    )
}

both_drivers! {
    fn files_bodies_and_pipelined_requests_are_as_without_tls(driver) {
        let pair = own("a.example.com");
        let big: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7 + n / 1001) as u8).collect();
        let server = Server::builder(&conf(
            "location /up { client_max_body_size 10m; echo_read_request_body; echo -n $request_length; }
             location /v { return 200 '$ssl_protocol $scheme $https $ssl_server_name $ssl_session_reused $ssl_alpn_protocol'; }",
            "",
        ))
        .file("a.crt", &pair.certificate).file("a.key", &pair.key).file("big", &big).file("small", "hello")
        .driver(driver).start();
        for tls13 in [false, true] {
            let config = client(tls13, None);
            let mut it = TlsClient::connect(server.addr(0), "a.example.com", &config);
            assert_eq!(it.get("/small", "a.example.com").text(), "hello");
            assert!(it.get("/big", "a.example.com").body == big);
            let version = if tls13 { "TLSv1.3" } else { "TLSv1.2" };
            assert_eq!(it.get("/v", "a").text(), format!("{version} https on a.example.com . http/1.1"));
            let get = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
            it.send(get.repeat(50).as_bytes());
            assert!((0..50).all(|_| it.response().text() == "hello"));
            let head = format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", big.len());
            it.send(head.as_bytes());
            it.send(&big);
            assert_eq!(it.response().text(), (head.len() + big.len()).to_string());
            it.send(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert_eq!(it.response().text(), "hello");
            assert!(it.ends(), "the end is told by an alert");
        }
    }

    fn a_handshake_in_pieces_is_completed_also_with_a_large_key(driver) {
        for (pair, policy) in [
            (own("a.example.com"), ""), (large("a.example.com"), ""),
            (own("a.example.com"), "pool"), (large("a.example.com"), "inline"),
        ] {
            // On a busy machine threads of nice 19 have a turn every few seconds.
            let text = format!("ssl_key_pool nice=0; {}", conf("location / { return 200 $ssl_cipher; }", ""));
            let server = Server::builder(&text.replace("a.key;", &format!("a.key {policy};")))
                .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
            for (tls13, size) in [(false, 1), (true, 3), (true, 100)] {
                let mut it = TlsClient::cut(server.addr(0), "a.example.com", &client(tls13, None), size)
                    .expect("a handshake");
                let cipher = it.facts().cipher;
                assert_eq!(it.get("/", "a.example.com").text(), cipher);
            }
        }
    }

    fn the_name_chooses_the_server(driver) {
        let (a, b) = (own("a.example.com"), own("*.b.example.com"));
        let server = Server::builder(&conf(
            "location / { return 200 a; }",
            "server { listen 127.0.0.1:%%PORT%% ssl; server_name *.b.example.com ~^c\\d; ssl_certificate b.crt;
                ssl_certificate_key b.key; location / { return 200 b; } }
             server { listen 127.0.0.1:%%PORT%% ssl; server_name no.example.com; ssl_reject_handshake on; }",
        ))
        .file("a.crt", &a.certificate).file("a.key", &a.key)
        .file("b.crt", &b.certificate).file("b.key", &b.key)
        .driver(driver).start();
        let config = client(true, None);
        for (name, host, expected) in [
            ("a.example.com", "a.example.com", "a"),
            ("x.b.example.com", "x.b.example.com", "b"),
            ("c1", "c1", "b"),
            ("x.b.example.com", "a.example.com", "a"),
            ("unknown.example.com", "unknown.example.com", "a"),
        ] {
            let mut it = TlsClient::connect(server.addr(0), name, &config);
            let expected_chain = if matches!(name, "c1" | "x.b.example.com") { &b } else { &a };
            assert_eq!(it.facts().peer, expected_chain.shown().chain(), "{name}");
            assert_eq!(it.get("/", host).text(), expected, "{name} {host}");
        }
        let refused = TlsClient::cut(server.addr(0), "no.example.com", &config, 1000).err().expect("refused");
        assert!(refused.contains("unrecognized name"), "{refused}");
        let _ = server.error_log_line("SSL_do_handshake() failed");
    }

    fn clients_certificates_are_verified(driver) {
        let (own, ca) = (own("a.example.com"), authority("ca"));
        let (known, stranger) = (ca.issue("known"), support::own("stranger"));
        let say = "return 200 '$ssl_client_verify|$ssl_client_s_dn|$ssl_client_i_dn';";
        let server = Server::builder(&conf(
            &format!("ssl_verify_client on; ssl_client_certificate ca.crt; {say}"),
            &format!("server {{ listen 127.0.0.1:%%PORT%% ssl; server_name opt; ssl_certificate a.crt;
                ssl_certificate_key a.key; ssl_verify_client optional_no_ca; ssl_trusted_certificate ca.crt; {say} }}"),
        ))
        .file("a.crt", &own.certificate).file("a.key", &own.key).file("ca.crt", &ca.certificate)
        .driver(driver).start();
        for tls13 in [false, true] {
            let ask = |name: &str, shown: Option<&support::Pair>| {
                let config = client(tls13, shown.map(|pair| pair.shown()));
                TlsClient::connect(server.addr(0), name, &config).get("/", name)
            };
            assert_eq!(ask("a.example.com", Some(&known)).text(), "SUCCESS|CN=known|CN=ca");
            let none = ask("a.example.com", None);
            assert!(none.status == 400 && none.text().contains("No required SSL certificate was sent"));
            let bad = ask("a.example.com", Some(&stranger));
            assert!(bad.status == 400 && bad.text().contains("The SSL certificate error"));
            assert_eq!(
                ask("opt", Some(&stranger)).text(),
                "FAILED:self-signed certificate|CN=stranger|CN=stranger"
            );
            assert_eq!(ask("opt", None).text(), "NONE||");
        }
        let _ = server.error_log_line("client SSL certificate verify error: (18:self-signed certificate)");
        let _ = server.error_log_line("client sent no required SSL certificate");
        let config = client(true, Some(known.shown()));
        let other = TlsClient::connect(server.addr(0), "opt", &config).get("/", "a.example.com");
        assert_eq!(other.status, 421, "a name that asks for certificates was not negotiated");
    }

    fn plain_requests_are_told_so(driver) {
        let pair = own("a.example.com");
        let server = Server::builder(&conf("return 200;", ""))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        let reported = server.get("/");
        assert_eq!(reported.status, 400);
        assert!(reported.text().contains("The plain HTTP request was sent to HTTPS port"));
        let _ = server.error_log_line("client sent plain HTTP request to HTTPS port");
        // What is neither gets an alert.
        let alert = server.raw([22, 3, 1, 0, 0]);
        assert_eq!(alert[..5], [21, 3, 1, 0, 2]);
    }

    fn sessions_are_resumed_also_after_a_reload(driver) {
        let pair = own("a.example.com");
        let text = conf("return 200 $ssl_session_reused;", "");
        let mut server = Server::builder(&text)
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        for tls13 in [false, true] {
            let config = client(tls13, None);
            let again = |server: &Server| {
                TlsClient::connect(server.addr(0), "a.example.com", &config).get("/", "a.example.com").text()
            };
            assert_eq!((again(&server), again(&server)), (".".to_owned(), "r".to_owned()));
            server.reload(&text);
            assert_eq!(again(&server), "r");
        }
    }

    fn records_are_as_large_as_they_are_to_be(driver) {
        let pair = own("a.example.com");
        let big = vec![b'x'; 200_000];
        for (more, most) in [("ssl_buffer_size 1k;", 1024), ("", 16 * 1024)] {
            let server = Server::builder(&conf(more, ""))
                .file("a.crt", &pair.certificate).file("a.key", &pair.key).file("big", &big).driver(driver).start();
            // Of TLS 1.2, where nothing follows the handshake by itself: a record of AES-GCM has 24 bytes more.
            let mut it = TlsClient::connect(server.addr(0), "a.example.com", &client(false, None));
            assert!(it.get("/big", "a.example.com").body == big);
            let records = it.records();
            assert!(records.iter().all(|length| *length <= most + 24), "{more}: {records:?}");
            assert!(records.iter().any(|length| *length >= most), "{more}: {records:?}");
        }
    }

    fn signature_schemes_are_told(driver) {
        let (pair, ca) = (own("a.example.com"), authority("ca"));
        let known = ca.issue("known");
        let server = Server::builder(&conf(
            "ssl_verify_client optional; ssl_client_certificate ca.crt;
             return 200 '$ssl_sigalg|$ssl_client_sigalg|$ssl_sigalgs|$ssl_ech_status';", ""))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).file("ca.crt", &ca.certificate)
            .driver(driver).start();
        for tls13 in [false, true] {
            let ask = |config: &weir_tls::ClientConfig| {
                TlsClient::connect(server.addr(0), "a.example.com", config).get("/", "a.example.com").text()
            };
            let without = client(tls13, None);
            let (first, resumed) = (ask(&without), ask(&without));
            assert!(first.starts_with("ecdsa_secp256r1_sha256||"), "{first}");
            assert!(first.contains("ed25519") && first.contains(":rsa_pss_rsae_sha256"), "{first}");
            assert!(resumed.starts_with("||"), "{resumed}");
            let with = ask(&client(tls13, Some(known.shown())));
            assert!(with.starts_with("ecdsa_secp256r1_sha256|ecdsa_secp256r1_sha256|"), "{with}");
        }
    }

    fn names_of_certificates_may_be_computed(driver) {
        let (a, b) = (own("a.example.com"), own("b.example.com"));
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%% ssl; ssl_certificate $ssl_server_name.crt;
                ssl_certificate_key $ssl_server_name.key; return 200 ok; } }",
        )
        .file("a.example.com.crt", &a.certificate).file("a.example.com.key", &a.key)
        .file("b.example.com.crt", &b.certificate).file("b.example.com.key", &b.key)
        .driver(driver).start();
        for (name, pair) in [("a.example.com", &a), ("b.example.com", &b)] {
            let mut it = TlsClient::connect(server.addr(0), name, &client(true, None));
            assert_eq!(it.facts().peer, pair.shown().chain());
            assert_eq!(it.get("/", name).text(), "ok");
        }
        let lacking = TlsClient::cut(server.addr(0), "c.example.com", &client(true, None), 1000);
        let reported = lacking.err().expect("there is no such certificate");
        assert!(reported.contains("alert internal error"), "{reported}");
        let _ = server.error_log_line("cannot load certificate");
        let _ = server.error_log_line("SSL_do_handshake() failed (SSL: error:0A000179:SSL routines::cert cb error)");
    }

    /// RFC 8446, section 6.2 and 9.2; OpenSSL's for each.
    fn a_hello_that_nothing_comes_of_gets_the_alert_that_says_why(driver) {
        let pair = own("a.example.com");
        let server = Server::builder(&conf("return 200;", ""))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        let (groups, signatures) = (extension(10, &[0, 2, 0, 0x1d]), extension(13, &[0, 2, 4, 3]));
        let versions = extension(43, &[2, 3, 4]);
        let share = extension(51, &[&[0, 36, 0, 0x1d, 0, 32][..], &[9; 32]].concat());
        for (why, version, suite, extensions, alert) in [
            ("TLS 1.1", 2, 0xc02b, &[][..], 70),
            ("an old cipher", 3, 0x002f, &[&groups, &signatures][..], 40),
            ("an old signature", 3, 0xc02b, &[&groups, &extension(13, &[0, 2, 1, 1])], 40),
            ("an old group", 3, 0xc02b, &[&extension(10, &[0, 2, 0, 1]), &signatures], 40),
            ("a cipher of 1.3", 3, 0x1304, &[&groups, &signatures, &versions, &share], 40),
            ("no key share", 3, 0x1301, &[&groups, &signatures, &versions], 109),
            ("no signatures", 3, 0x1301, &[&groups, &versions, &share], 109),
            ("no groups", 3, 0x1301, &[&signatures, &versions, &share], 109),
        ] {
            let answer = server.raw(hello(version, suite, &extensions.iter().flat_map(|it| it.iter().copied()).collect::<Vec<_>>()));
            assert_eq!((answer.first(), answer.get(5..)), (Some(&21), Some(&[2, alert][..])), "{why}: {answer:?}");
        }
    }

    fn a_group_that_is_named_is_offered(driver) {
        let pair = own("a.example.com");
        let only = |tls13: bool| {
            let settings = weir_tls::ClientSettings {
                protocols: weir_tls::suites::ProtocolVersions { tls12: !tls13, tls13 },
                suites: weir_tls::suites::default_suites(),
                groups: weir_tls::suites::select_groups("P-521").expect("it is there"),
                certificate: None,
                alpn: Vec::new(),
                tell_name: true,
                sessions: 0,
                key_log: None,
                signatures: weir_tls::SignatureLimits::default(),
                session_tickets: true,
            };
            weir_tls::ClientConfig::new(&settings).expect("a client")
        };
        for (directive, there) in [("", false), ("ssl_ecdh_curve X448:X25519:secp521r1:brainpoolP256r1;", true)] {
            let server = Server::builder(&conf(&format!("{directive} return 200 $ssl_curve;"), ""))
                .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
            for tls13 in [false, true] {
                let made = TlsClient::cut(server.addr(0), "a.example.com", &only(tls13), 1000);
                let said = made.map(|mut it| it.get("/", "a.example.com").text());
                match said {
                    Ok(curve) => assert!(there && curve == "secp521r1", "{curve}"),
                    Err(why) => assert!(!there && why.contains("handshake failure"), "{why}"),
                }
            }
        }
    }

    /// In TLS 1.2 a resumed session has no key exchange; its group is the earlier one's, as in OpenSSL.
    fn a_resumed_session_names_its_group(driver) {
        let pair = own("a.example.com");
        for kept in ["", "ssl_session_tickets off; ssl_session_cache shared:all:1m;"] {
            let server = Server::builder(&conf(
                &format!("{kept} ssl_ecdh_curve secp384r1; return 200 '$ssl_session_reused $ssl_curve $ssl_sigalg.';"), "",
            )).file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
            for tls13 in [false, true] {
                let config = client(tls13, None);
                let ask = || TlsClient::connect(server.addr(0), "a.example.com", &config).get("/", "a.example.com").text();
                assert_eq!(ask(), ". secp384r1 ecdsa_secp256r1_sha256.", "TLS 1.3: {tls13}");
                // With a ticket that the resumed session has given, too.
                for _ in 0..2 {
                    assert_eq!(ask(), "r secp384r1 .", "TLS 1.3: {tls13}, {kept}");
                }
            }
        }
    }

    fn sessions_are_all_workers_and_outlive_reloads(driver) {
        let pair = own("a.example.com");
        let cached = "ssl_session_tickets off; ssl_session_cache shared:all:1m;";
        for (before, after, resumed) in [
            ("", "", "r"),
            ("", "ssl_session_timeout 10m; ssl_session_tickets off;", "."),
            (cached, cached, "r"),
            (cached, "ssl_session_tickets off; ssl_session_cache shared:all:2m;", "."),
            (cached, "ssl_session_tickets off; ssl_session_cache none;", "."),
            ("ssl_session_ticket_key one;", "ssl_session_ticket_key two; ssl_session_ticket_key one;", "r"),
            ("ssl_session_ticket_key one;", "ssl_session_ticket_key two;", "."),
        ] {
            let text = |lines: &str, said: &str| {
                format!("worker_processes 4; {}", conf(&format!("{lines} return 200 '$ssl_session_reused{said}';"), ""))
            };
            let mut server = Server::builder(&text(before, "")).file("a.crt", &pair.certificate).file("a.key", &pair.key)
                .file("one", [1; 80]).file("two", [2; 48]).driver(driver).start();
            let configs = [false, true].map(|tls13| client(tls13, None));
            let ask = |server: &Server, config: &weir_tls::ClientConfig| {
                TlsClient::connect(server.addr(0), "a.example.com", config).get("/", "a.example.com").text()
            };
            for config in &configs {
                assert_eq!(ask(&server, config), ".", "{before}");
                for _ in 0..8 {
                    assert_eq!(ask(&server, config), "r", "{before}");
                }
            }
            server.reload(&text(after, " new"));
            wait_for("the new configuration", || {
                (0..8).all(|_| ask(&server, &client(true, None)).ends_with("new")).then_some(())
            });
            for config in &configs {
                assert_eq!(ask(&server, config), format!("{resumed} new"), "{before} {after}");
            }
        }
    }

    /// nginx has one in each worker; here they are threads of one process.
    fn a_builtin_session_cache_is_all_workers_but_not_all_servers(driver) {
        let pair = own("a.example.com");
        let conf = conf(
            "ssl_session_tickets off; ssl_session_cache builtin:100; return 200 $ssl_session_reused;",
            "server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                ssl_session_tickets off; ssl_session_cache builtin:100; return 200 $ssl_session_reused; }",
        );
        let server = Server::builder(&format!("worker_processes 4; {conf}"))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        let config = client(false, None);
        let ask = |at| TlsClient::connect(server.addr(at), "a.example.com", &config).get("/", "a.example.com").text();
        assert_eq!(ask(0), ".");
        for _ in 0..8 {
            assert_eq!(ask(0), "r");
        }
        assert_eq!(ask(1), ".");
    }

    fn a_line_that_is_too_long_is_logged_as_without_tls(driver) {
        let pair = own("a.example.com");
        let server = Server::builder(&conf("return 200;", ""))
            .file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start();
        let mut it = TlsClient::connect(server.addr(0), "a.example.com", &client(true, None));
        assert_eq!(it.get(&format!("/{}", "a".repeat(9000)), "a").status, 414);
        let logged = server.access_log_lines(1).concat();
        assert!(logged.contains("\"GET /aaaa") && logged.contains("aaa\" 414 "), "{logged}");
    }
}

/// A ClientHello of version 3.`version` with one cipher suite.
fn hello(version: u8, suite: u16, extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, version];
    body.extend([7; 32]);
    body.extend([0, 0, 2]);
    body.extend(suite.to_be_bytes());
    body.extend([1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend((message.len() as u16).to_be_bytes());
    record.extend(message);
    record
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat()
}

#[test]
fn words_of_tls_are_taken_in_any_case_and_what_cannot_be_had_is_left_out() {
    let pair = own("a.example.com");
    for (directive, words) in [
        ("ssl_protocols tlsv1.1 TLSV1.2;", Some("\"tlsv1.1\" can't be had")),
        ("ssl_ecdh_curve X25519:X448;", Some("the group \"X448\" can't be had")),
        ("ssl_ecdh_curve x25519:p-521;", None),
        ("ssl_conf_command Groups X448:P-256;", Some("the group \"X448\" can't be had")),
        ("ssl_conf_command Options PrioritizeChaCha; ssl_prefer_server_ciphers on;", None),
        ("ssl_conf_command Options serverpreference,PrioritizeChaCha,-SessionTicket,NoRenegotiation;", None),
        ("ssl_conf_command Options KTLS;", Some("\"KTLS\" has no effect")),
        ("set $ssl_client_s_dn $http_x; set $proxy_host a; set $ssl_client_verify NONE; set $msie 1;", None),
        ("ssl_verify_client OFF; ssl_ocsp Off; ssl_session_tickets ON;", None),
    ] {
        let exit = Server::builder(&conf(directive, ""))
            .file("a.crt", &pair.certificate)
            .file("a.key", &pair.key)
            .run(&["-t"]);
        assert!(exit.status.success(), "{directive}: {}", exit.stderr);
        assert_eq!(words.is_some(), exit.stderr.contains("[warn]"), "{directive}: {}", exit.stderr);
        assert!(exit.stderr.contains(words.unwrap_or_default()), "{directive}: {}", exit.stderr);
    }
}

/// The words of `-t` about `more` in a server.
fn refused(more: &str, files: &[(&str, &str)]) -> String {
    let text = format!("http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; {more} }} }}");
    let builder = files.iter().fold(Server::builder(&text), |it, (name, content)| it.file(name, content));
    let exit = builder.run(&["-t"]);
    assert!(!exit.status.success(), "{more}: {}", exit.stderr);
    exit.stderr
}

#[test]
fn what_is_wrong_is_said_in_nginxs_words() {
    let (a, b) = (own("a"), own("b"));
    let files = [("a.crt", a.certificate.as_str()), ("a.key", a.key.as_str()), ("b.key", &b.key), ("x", "x")];
    for (more, words) in [
        ("", "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in "),
        ("ssl_certificate a.crt;", "no \"ssl_certificate_key\" is defined for certificate \""),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_protocols TLSv1.2; listen 127.0.0.1:%%PORT%% quic;",
            "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive in ",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_conf_command MaxProtocol TLSv1.2; \
             listen 127.0.0.1:%%PORT%% quic;",
            "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive in ",
        ),
        (
            "ssl_certificate no.crt; ssl_certificate_key a.key;",
            "BIO_new_file() failed (SSL: error:80000002:system library::No such file or directory:calling fopen(",
        ),
        (
            "ssl_certificate x; ssl_certificate_key a.key;",
            "PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::no start line:Expecting: TRUSTED CERTIFICATE)",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key b.key;",
            "failed (SSL: error:05800074:x509 certificate routines::key values mismatch)",
        ),
        ("ssl_certificate a.crt; ssl_certificate_key engine:x:y;", "there are no engines"),
        (
            "ssl_ciphers AES128-SHA;",
            "SSL_CTX_set_cipher_list(\"AES128-SHA\") failed (SSL: error:0A0000B9:SSL routines::no cipher match",
        ),
        ("ssl_ecdh_curve X448;", "none of these groups can be had"),
        ("ssl_protocols TLSv1;", "none of these protocols can be had"),
        ("ssl_protocols TLSv2;", "invalid value \"TLSv2\""),
        ("ssl_session_cache shared:x:1k;", "session cache \"shared:x:1k\" is too small"),
        ("ssl_session_cache both;", "invalid session cache \"both\""),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client on;",
            "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_session_ticket_key x;",
            "must be 48 or 80 bytes",
        ),
        ("ssl_certificate a.crt; ssl_certificate_key a.key elsewhere;", "invalid parameter \"elsewhere\""),
        ("ssl_ocsp maybe;", "invalid value \"maybe\""),
        (
            "ssl_ocsp_responder https://a/;",
            "invalid URL prefix in OCSP responder \"https://a/\" in \"ssl_ocsp_responder\"",
        ),
        ("ssl_ocsp_cache shared:a:1k;", "OCSP cache \"shared:a:1k\" is too small"),
        ("ssl_ocsp_cache shared:1m;", "invalid OCSP cache \"shared:1m\""),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client optional_no_ca; ssl_ocsp leaf;",
            "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"",
        ),
        ("ssl_dhparam nowhere;", "BIO_new_file(\""),
        ("ssl on;", "unknown directive \"ssl\": each address has its own, \"listen ... ssl\""),
        ("ssl_ecdh_curve X448:nothing;", "none of these groups can be had"),
        ("ssl_ech_file x;", "\"ssl_ech_file\" can't be had"),
    ] {
        let stderr = refused(more, &files);
        assert!(stderr.contains(words), "{more}: {stderr}");
    }
}

#[test]
fn parameters_of_dhe_are_told_to_have_no_effect() {
    let pair = own("a.example.com");
    let exit = Server::builder(&conf("ssl_dhparam dh.pem;", ""))
        .file("a.crt", &pair.certificate)
        .file("a.key", &pair.key)
        .file("dh.pem", "")
        .run(&["-t"]);
    assert!(exit.status.success(), "{}", exit.stderr);
    assert!(
        exit.stderr.contains("[notice] \"ssl_dhparam\" has no effect: there are no ciphers with DHE"),
        "{}",
        exit.stderr
    );
}

#[test]
fn keys_encrypted_with_what_cannot_be_had_are_refused_by_its_name() {
    let Some(openssl) = require_program("openssl") else { return };
    let pair = own("a.example.com");
    for (arguments, words) in [
        (&["pkcs8", "-topk8", "-v2", "des3"][..], "keys encrypted with DES-EDE3-CBC can't be read"),
        (&["pkcs8", "-topk8", "-scrypt"], "keys encrypted with scrypt can't be read"),
        (&["ec", "-des3"], "keys encrypted with DES-EDE3-CBC can't be read"),
    ] {
        let builder = Server::builder(&conf("ssl_password_file passwords; return 200 ok;", ""))
            .file("a.crt", &pair.certificate)
            .file("plain.key", &pair.key)
            .file("passwords", "secret\n");
        encrypt(&openssl, builder.dir(), arguments);
        let exit = builder.run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(words), "{}", exit.stderr);
    }
}

/// Encrypts `plain.key` with the password `secret` into `a.key`.
fn encrypt(openssl: &Path, dir: &Path, arguments: &[&str]) {
    let made = Command::new(openssl)
        .args(arguments)
        .args(["-passout", "pass:secret", "-in"])
        .arg(dir.join("plain.key"))
        .arg("-out")
        .arg(dir.join("a.key"))
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn encrypted_keys_are_opened_by_one_of_the_passwords() {
    let Some(openssl) = require_program("openssl") else { return };
    let pair = own("a.example.com");
    for (name, arguments) in [
        ("pkcs8", &["pkcs8", "-topk8", "-v2", "aes256"][..]),
        ("sha1", &["pkcs8", "-topk8", "-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA1"]),
        ("traditional", &["ec", "-aes128"]),
    ] {
        let builder = Server::builder(&conf("ssl_password_file passwords; return 200 ok;", ""))
            .file("a.crt", &pair.certificate)
            .file("plain.key", &pair.key)
            .file("passwords", "wrong\nsecret\n");
        encrypt(&openssl, builder.dir(), arguments);
        let server = builder.start();
        let mut it = TlsClient::connect(server.addr(0), "a.example.com", &client(true, None));
        assert_eq!(it.get("/", "a.example.com").text(), "ok", "{name}");
    }
}
