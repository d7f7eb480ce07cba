//! Keys in devices, with SoftHSM as the device.

use crate::support::tls as support;

use crate::support::softhsm;

use softhsm::Token;
use support::{Pair, TlsClient, client, own};
use weir_sys::process::ServerSignal;
use weir_test::{Server, both_drivers};

fn conf(name: &str) -> String {
    // In quotes: the name has semicolons. A library that is set up again looks for its settings in the environment
    // again.
    let name = format!("\"{}\"", name.replace(" inline", "\" \"inline"));
    format!(
        "env SOFTHSM2_CONF; http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
            ssl_certificate a.crt; ssl_certificate_key {name}; return 200 '$ssl_sigalg'; }} }}"
    )
}

fn rsa(name: &str) -> Pair {
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
    support::with_key(name, key.expect("a key"))
}

both_drivers! {
    fn keys_in_a_device_sign_for_their_certificates(driver) {
        for (pair, sigalgs) in [
            (own("a.example.com"), ["ecdsa_secp256r1_sha256"; 2]),
            (rsa("a.example.com"), ["rsa_pss_rsae_sha256"; 2]),
        ] {
            let place = Server::builder("");
            let Some(token) = Token::new(place.dir(), &pair.key) else { return };
            let by_file = token.name("object=k;id=%07", &format!("pin-source={}/pin", place.dir().display()));
            for name in [token.name("object=k", "pin-value=1234"), by_file] {
                std::fs::write(place.dir().join("pin"), "1234\n").expect("written");
                let server = Server::builder(&conf(&name)).env("SOFTHSM2_CONF", token.conf())
                    .file("a.crt", &pair.certificate).driver(driver).start();
                for (tls13, sigalg) in [false, true].into_iter().zip(sigalgs) {
                    // Several at a time: each takes a session of its own.
                    let threads: Vec<_> = (0..4).map(|_| {
                        let addr = server.addr(0);
                        std::thread::spawn(move || {
                            let config = client(tls13, None);
                            TlsClient::connect(addr, "a.example.com", &config).get("/", "a.example.com").text()
                        })
                    }).collect();
                    for thread in threads {
                        assert_eq!(thread.join().expect("a handshake"), sigalg);
                    }
                }
            }
        }
    }
}

#[test]
fn servers_are_shown_certificates_with_keys_in_a_device() {
    let (pair, key) = (own("a.example.com"), own("client"));
    let place = Server::builder("");
    let Some(token) = Token::new(place.dir(), &key.key) else { return };
    let server = Server::builder(&format!(
        "env SOFTHSM2_CONF; http {{
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass https://127.0.0.1:%%PORT_1%%/;
                proxy_ssl_certificate client.crt; proxy_ssl_certificate_key \"{}\"; }} }}
            server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                ssl_verify_client optional_no_ca; return 200 '$ssl_client_s_dn $ssl_client_sigalg'; }} }}",
        token.name("object=k", "pin-value=1234")
    ))
    .env("SOFTHSM2_CONF", token.conf())
    .file("a.crt", &pair.certificate)
    .file("a.key", &pair.key)
    .file("client.crt", &key.certificate)
    .start();
    assert_eq!(server.get("/").text(), "CN=client ecdsa_secp256r1_sha256");
}

#[test]
fn what_is_wrong_with_a_device_is_said_without_the_pin() {
    let (pair, other) = (own("a.example.com"), own("b.example.com"));
    let place = Server::builder("");
    let Some(token) = Token::new(place.dir(), &pair.key) else { return };
    for (name, certificate, words) in [
        (token.name("object=none", "pin-value=1234"), &pair, "PKCS#11: the token has no such private key"),
        (token.name("object=k", "pin-value=9876"), &pair, "PinIncorrect"),
        (
            token.name("object=k", "pin-source=/nowhere/9876"),
            &pair,
            "open() \"/nowhere/9876\" failed (2: No such",
        ),
        (token.name("object=k", "pin-value=1234"), &other, "key values mismatch"),
        (token.name("object=k;token=x", "pin-value=9876"), &pair, "PKCS#11: there is no such token"),
        ("pkcs11:object=k?module-path=/no.so&pin-value=9876".to_owned(), &pair, "\"/no.so\" can't be loaded"),
        ("pkcs11:object=k?pin-value=9876".to_owned(), &pair, "no module-path"),
        ("engine:pkcs11:object=k".to_owned(), &pair, "are named pkcs11:token="),
        (
            token.name("object=k", "pin-value=9876") + " inline",
            &pair,
            "\"inline\" can't be had for keys in devices",
        ),
    ] {
        let exit = Server::builder(&conf(&name))
            .env("SOFTHSM2_CONF", token.conf())
            .file("a.crt", &certificate.certificate)
            .run(&["-t"]);
        assert!(!exit.status.success(), "{name}: {}", exit.stderr);
        assert!(exit.stderr.contains(words), "{name}: {}", exit.stderr);
        let headline = exit.stderr.lines().next().unwrap_or_default();
        assert!(!headline.contains("pin-value"), "{name}: {headline}");
    }
}

#[test]
fn a_device_that_is_lost_is_told_of_and_used_again_when_it_is_back() {
    let pair = own("a.example.com");
    let place = Server::builder("");
    let Some(token) = Token::new(place.dir(), &pair.key) else { return };
    let server = Server::builder(&conf(&token.name("object=k", "pin-value=1234")))
        .env("SOFTHSM2_CONF", token.conf())
        .file("a.crt", &pair.certificate)
        .allow("PKCS#11")
        .start();
    let connect = || TlsClient::cut(server.addr(0), "a.example.com", &client(true, None), 1 << 20);
    assert!(connect().is_ok());
    let (here, away) = (place.dir().join("tokens"), place.dir().join("away"));
    std::fs::rename(&here, &away).expect("moved");
    assert!(connect().is_err(), "the device is gone");
    let line = server.error_log_line("PKCS#11");
    assert!(line.contains("SSL_do_handshake() failed (SSL: unexpected error: PKCS#11:"), "{line}");
    std::fs::rename(&away, &here).expect("moved");
    let mut it = weir_test::wait_for("a device that is back", || connect().ok());
    assert_eq!(it.get("/", "a.example.com").text(), "ecdsa_secp256r1_sha256");
}

/// The token is open: it looks at no PIN that comes later.
#[test]
fn a_wrong_pin_is_noticed_at_a_reload() {
    let pair = own("a.example.com");
    let place = Server::builder("");
    let Some(token) = Token::new(place.dir(), &pair.key) else { return };
    let pin = place.dir().join("pin");
    std::fs::write(&pin, "1234").expect("ours");
    let conf = conf(&token.name("object=k", &format!("pin-source={}", pin.display())));
    let mut server = Server::builder(&conf)
        .env("SOFTHSM2_CONF", token.conf())
        .file("a.crt", &pair.certificate)
        .allow("PinIncorrect")
        .start();
    let text = |server: &Server| {
        let connected = TlsClient::cut(server.addr(0), "a.example.com", &client(true, None), 1 << 20);
        connected.expect("served").get("/", "a.example.com").text()
    };
    assert_eq!(text(&server), "ecdsa_secp256r1_sha256");
    std::fs::write(&pin, "9876").expect("ours");
    server.signal(ServerSignal::Hup);
    let line = server.error_log_line("PinIncorrect");
    assert!(line.contains("[emerg]"), "{line}");
    assert_eq!(text(&server), "ecdsa_secp256r1_sha256", "the old configuration serves");
    std::fs::write(&pin, "1234").expect("ours");
    server.reload(&conf);
    assert_eq!(text(&server), "ecdsa_secp256r1_sha256");
}
