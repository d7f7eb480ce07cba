//! Whole handshakes.

use std::io::{Read, Write};
use std::sync::Arc;

use quinn_proto::{ConnectionError, TransportErrorCode};
use weir_tls::quic::QuicServerConfig;
use weir_tls::suites::ProtocolVersions;
use weir_tls::{
    HandshakeFailure, HandshakeProgress, HelloAcceptor, HelloFields, ResumedFrom, ServerConfig,
    ServerHandshake, ServerSettings, SessionCache, suites,
};

use crate::pair::{H3, Identity, NAME, Pair, Reception, client, server, settings};

fn quic(settings: &ServerSettings, identity: &Identity) -> Arc<QuicServerConfig> {
    QuicServerConfig::new(&server(settings, identity), H3).expect("TLS 1.3")
}

/// A pair that has done its handshake.
fn connected(client: &rustls::ClientConfig, server: &Arc<QuicServerConfig>) -> Pair {
    let mut pair = Pair::new(client, server.clone(), Reception::Accept);
    pair.run();
    assert!(pair.client.is_connected() && pair.server.is_connected(), "{:?}", pair.client.lost());
    pair
}

#[test]
fn facts_are_those_of_tcp() {
    let identity = Identity::new();
    for reception in [Reception::Accept, Reception::Retry] {
        let mut pair = Pair::new(&client(&identity, None, H3), quic(&settings(), &identity), reception);
        pair.run();
        pair.send(b"hello");
        pair.run();
        assert_eq!(pair.received().as_deref(), Some(&b"hello"[..]));
        let facts = pair.server.facts();
        assert_eq!(facts.server_name.as_deref(), Some(NAME));
        assert!(!facts.takes_early_data && facts.failure.is_none());
        let session = &facts.session;
        assert_eq!((session.version, session.cipher), ("TLSv1.3", "TLS_AES_256_GCM_SHA384"));
        assert_eq!((session.curve, session.signature), ("X25519MLKEM768", "ecdsa_secp256r1_sha256"));
        assert_eq!((session.resumed, session.resumed_from), (false, None));
        assert_eq!(session.alpn.as_deref(), Some(&b"h3"[..]));
        assert!(session.peer.is_empty() && session.peer_signature.is_empty());
    }
}

/// What scripts derive is what the other side and rustls' own exporter derive.
#[test]
fn secrets_are_exported() {
    let identity = Identity::new();
    let mut pair = connected(&client(&identity, None, H3), &quic(&settings(), &identity));
    let secrets = pair.server.facts().secrets;
    let (mut ours, mut own, mut theirs) = ([0; 40], [0; 40], [0; 40]);
    secrets.export(b"EXPORTER-test", Some(b"context"), &mut ours).expect("not too long");
    let server = pair.server.connection().crypto_session();
    server.export_keying_material(&mut own, b"EXPORTER-test", b"context").expect("not too long");
    let client = pair.client.connection().crypto_session();
    client.export_keying_material(&mut theirs, b"EXPORTER-test", b"context").expect("not too long");
    assert_eq!((ours, own), (theirs, theirs));
    assert_ne!(ours, [0; 40]);
    assert!(secrets.master().is_none());
    assert!(!secrets.server_random().starts_with(&[0xcf, 0x21, 0xad, 0x74]), "it is no HelloRetryRequest's");
}

#[test]
fn keys_are_updated() {
    let identity = Identity::new();
    let mut pair = connected(&client(&identity, None, H3), &quic(&settings(), &identity));
    for text in [&b"one"[..], b"two", b"three"] {
        pair.client.connection().force_key_update();
        pair.send(text);
        pair.run();
        assert_eq!(pair.received().as_deref(), Some(text));
    }
}

#[test]
fn client_certificates_are_asked_for_and_known() {
    let (identity, own) = (Identity::new(), Identity::new());
    let asking = ServerSettings { client_subjects: Some(Vec::new()), ..settings() };
    let mut pair = connected(&client(&identity, Some(&own), H3), &quic(&asking, &identity));
    let facts = pair.server.facts();
    assert_eq!(facts.session.peer, std::slice::from_ref(&own.der));
    assert_eq!(facts.session.peer_signature, "ecdsa_secp256r1_sha256");
    let shown = pair.server.connection().crypto_session().peer_identity().expect("it has shown one");
    let shown = shown.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().expect("certificates");
    assert_eq!(*shown, [own.der]);
    let mut pair = connected(&client(&identity, None, H3), &quic(&asking, &identity));
    assert!(pair.server.facts().session.peer.is_empty(), "it has none to show");
    assert!(pair.server.connection().crypto_session().peer_identity().is_none());
}

#[test]
fn sessions_are_resumed_by_tickets_and_by_a_cache() {
    let identity = Identity::new();
    let cache = Some(Arc::new(SessionCache::new(100_000, 300)));
    let cached = ServerSettings { tickets: None, cache, ..settings() };
    for (settings, from) in [(settings(), ResumedFrom::Ticket), (cached, ResumedFrom::Cache)] {
        let (client, server) = (client(&identity, None, H3), quic(&settings, &identity));
        assert!(!connected(&client, &server).server.facts().session.resumed);
        let facts = connected(&client, &server).server.facts();
        assert_eq!((facts.session.resumed, facts.session.resumed_from), (true, Some(from)));
        assert_eq!(facts.session.curve, "X25519MLKEM768");
    }
}

/// A handshake over TCP, with the ticket that follows it.
fn over_tcp(client: &rustls::ClientConfig, server: &ServerConfig) {
    let name = NAME.try_into().expect("a name");
    let mut theirs = rustls::ClientConnection::new(Arc::new(client.clone()), name).expect("a client");
    let (mut sent, mut out) = (Vec::new(), Vec::new());
    theirs.write_tls(&mut sent).expect("into memory");
    let hello = HelloAcceptor::default().handle(&sent, &mut out).expect("a hello").expect("whole");
    let mut ours = ServerHandshake::new(hello, server).expect("a configuration");
    let mut received = Vec::new();
    while ours.handle(&received, &mut out).expect("a good client") == HandshakeProgress::NeedsInput {
        theirs.read_tls(&mut &out[..]).expect("from memory");
        theirs.process_new_packets().expect("a good server");
        (out, received) = (Vec::new(), Vec::new());
        theirs.write_tls(&mut received).expect("into memory");
    }
    let (mut session, _) = ours.into_session();
    session.seal(b"hello", &mut out);
    theirs.read_tls(&mut &out[..]).expect("from memory");
    theirs.process_new_packets().expect("a good server");
    let mut text = [0; 5];
    theirs.reader().read_exact(&mut text).expect("it was sent");
    theirs.writer().flush().expect("nothing is left");
    assert_eq!(&text, b"hello");
}

/// `h2` over TCP and `h3` over QUIC have the same keys of tickets.
#[test]
fn a_ticket_of_tcp_is_good_for_quic() {
    let identity = Identity::new();
    let server = server(&settings(), &identity);
    let mut client = client(&identity, None, &[b"http/1.1"]);
    over_tcp(&client, &server);
    client.alpn_protocols = vec![b"h3".to_vec()];
    let quic = QuicServerConfig::new(&server, H3).expect("TLS 1.3");
    let facts = connected(&client, &quic).server.facts();
    assert_eq!(facts.session.resumed_from, Some(ResumedFrom::Ticket));
}

/// Whether early data of a second connection was taken, and what came first.
fn early_data(client: &rustls::ClientConfig, server: &Arc<QuicServerConfig>) -> (bool, Pair) {
    connected(client, server);
    let mut pair = Pair::new(client, server.clone(), Reception::Accept);
    assert!(pair.client.connection().has_0rtt(), "the session allows it");
    pair.send(b"early");
    for datagram in pair.first_datagrams() {
        pair.receive_at_server(&datagram);
    }
    let taken = pair.server.facts().takes_early_data;
    if taken {
        assert!(pair.server.connection().is_handshaking());
        assert_eq!(pair.received().as_deref(), Some(&b"early"[..]));
    }
    pair.run();
    assert!(pair.server.is_connected() && pair.server.facts().session.resumed);
    assert_eq!(pair.client.connection().accepted_0rtt(), taken);
    (taken, pair)
}

#[test]
fn early_data_is_taken_and_refused() {
    let identity = Identity::new();
    let cache = Some(Arc::new(SessionCache::new(100_000, 300)));
    let taking = ServerSettings { tickets: None, cache, early_data: 16384, ..settings() };
    let client_config = client(&identity, None, H3);
    let server = quic(&taking, &identity);
    assert!(early_data(&client_config, &server).0);
    // Since the last session it was switched off.
    let refusing = quic(&ServerSettings { early_data: 0, ..taking }, &identity);
    connected(&client_config, &server);
    let mut pair = Pair::new(&client_config, refusing.clone(), Reception::Accept);
    assert!(pair.client.connection().has_0rtt());
    pair.send(b"early");
    pair.run();
    assert!(pair.server.is_connected() && !pair.client.connection().accepted_0rtt());
    assert!(!pair.server.facts().takes_early_data && pair.received().is_none());
    let fresh = client(&identity, None, H3);
    connected(&fresh, &refusing);
    let mut pair = Pair::new(&fresh, refusing, Reception::Accept);
    assert!(!pair.client.connection().has_0rtt(), "it was never offered");
}

/// The code of an alert in a connection's error (RFC 9001, section 4.8).
fn refused(pair: &Pair) -> Option<TransportErrorCode> {
    match pair.client.lost() {
        Some(ConnectionError::ConnectionClosed(close)) => Some(close.error_code),
        _ => None,
    }
}

#[test]
fn other_protocols_are_refused() {
    let identity = Identity::new();
    for alpn in [&[][..], &[&b"h2"[..]], &[b"hq-interop"]] {
        let server = quic(&settings(), &identity);
        let mut pair = Pair::new(&client(&identity, None, alpn), server, Reception::Accept);
        pair.run();
        assert!(!pair.client.is_connected() && !pair.server.is_connected());
        assert_eq!(refused(&pair), Some(TransportErrorCode::crypto(120)), "no_application_protocol");
        if pair.server.connection.is_some() {
            let failure = pair.server.facts().failure.expect("it has failed");
            assert_eq!(failure.failure(), HandshakeFailure::NoProtocol);
        }
    }
    let both =
        QuicServerConfig::new(&server(&settings(), &identity), &[b"hq-interop", b"h3"]).expect("TLS 1.3");
    for (alpn, agreed) in [(&[&b"h3"[..], b"hq-interop"][..], &b"hq-interop"[..]), (H3, b"h3")] {
        let mut pair = connected(&client(&identity, None, alpn), &both);
        assert_eq!(pair.server.facts().session.alpn.as_deref(), Some(agreed));
    }
}

#[test]
fn a_client_without_a_common_group_is_refused() {
    let identity = Identity::new();
    let only = ServerSettings { groups: suites::select_groups("secp521r1").expect("a group"), ..settings() };
    let mut pair = Pair::new(&client(&identity, None, H3), quic(&only, &identity), Reception::Accept);
    pair.run();
    assert_eq!(refused(&pair), Some(TransportErrorCode::crypto(40)), "handshake_failure");
}

#[test]
fn the_group_of_a_second_hello_counts() {
    let identity = Identity::new();
    let only = ServerSettings { groups: suites::select_groups("secp384r1").expect("a group"), ..settings() };
    let mut pair = connected(&client(&identity, None, H3), &quic(&only, &identity));
    let facts = pair.server.facts();
    assert_eq!(facts.session.curve, "secp384r1");
    assert!(
        !facts.secrets.server_random().starts_with(&[0xcf, 0x21, 0xad, 0x74]),
        "that of the second ServerHello"
    );
}

#[test]
fn configurations_without_tls_1_3_are_refused() {
    let identity = Identity::new();
    let old = ServerSettings { protocols: ProtocolVersions { tls12: true, tls13: false }, ..settings() };
    let text = |config: &ServerConfig, alpn| {
        QuicServerConfig::new(config, alpn).map(|_| ()).expect_err("it can't be").to_string()
    };
    assert_eq!(text(&server(&old, &identity), H3), "QUIC requires TLSv1.3");
    assert_eq!(text(&server(&settings(), &identity), &[]), "QUIC requires an application protocol");
    let late = ServerSettings { protocols: ProtocolVersions { tls12: false, tls13: true }, ..settings() };
    assert!(QuicServerConfig::new(&server(&late, &identity), H3).is_ok());
}

/// `ssl_conf_command Ciphersuites` without AES-128, which Initial packets use nevertheless, and a client that begins with ChaCha20.
#[test]
fn ciphers_are_the_servers_or_the_clients() {
    use rustls::crypto::aws_lc_rs::cipher_suite::{TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let identity = Identity::new();
    let two = suites::select_tls13("TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256").expect("suites");
    let own = ServerSettings { suites: two, prefer_own_order: true, prioritize_chacha: true, ..settings() };
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = vec![TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_256_GCM_SHA384];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.der.clone()).expect("a certificate");
    let with = |provider| {
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).expect("a version");
        let mut config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![b"h3".to_vec()];
        config
    };
    // quinn-proto's client has no Initial keys without AES-128 unless they are given.
    let server = quic(&own, &identity);
    let mut hello = HelloFields::default();
    hello.cipher_suites = vec![0x0a0a, 0x1303, 0x1302];
    let chacha_first = server.for_client(&hello);
    assert!(!Arc::ptr_eq(&chacha_first, &server));
    hello.cipher_suites = vec![0x1302, 0x1303];
    assert!(Arc::ptr_eq(&server.for_client(&hello), &server));
    provider.cipher_suites.push(rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256);
    let client = with(provider);
    assert_eq!(connected(&client, &server).server.facts().session.cipher, "TLS_AES_256_GCM_SHA384");
    assert_eq!(
        connected(&client, &chacha_first).server.facts().session.cipher,
        "TLS_CHACHA20_POLY1305_SHA256"
    );
}
