//! Records of sessions here and of peers that are rustls' own, which make and open theirs in another way.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{
    ClientConnection, Connection, RootCertStore, ServerConnection, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{
    Certificate, ClientConfig, ClientHandshake, ClientSettings, HandshakeProgress, HelloAcceptor,
    ServerConfig, ServerHandshake, ServerSettings, SessionStep, SignatureLimits, TicketKeys, TlsSession,
    certificate, key,
};

/// A certificate of `a.example.com`, with its key.
struct Identity {
    der: CertificateDer<'static>,
    key: Vec<u8>,
    own: Certificate,
}

fn identity(rsa: bool) -> Identity {
    let key = match rsa {
        true => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        false => KeyPair::generate(),
    };
    let key = key.expect("a key");
    let names = CertificateParams::new(vec!["a.example.com".to_owned()]).expect("a name");
    let signed = names.self_signed(&key).expect("signed");
    let chain = certificate::chain(signed.pem().as_bytes()).expect("a certificate");
    let own = key::read(key.serialize_pem().as_bytes(), &[]).expect("a key");
    let own = Certificate::new(chain, own, None).expect("they fit");
    Identity { der: signed.der().clone(), key: key.serialize_der(), own }
}

fn versions(suite: SupportedCipherSuite) -> (ProtocolVersions, [&'static SupportedProtocolVersion; 1]) {
    match suite.tls13() {
        Some(_) => (ProtocolVersions { tls12: false, tls13: true }, [&rustls::version::TLS13]),
        None => (ProtocolVersions { tls12: true, tls13: false }, [&rustls::version::TLS12]),
    }
}

/// A server of ours that has `suite` alone, and a client of rustls.
fn our_server(suite: SupportedCipherSuite, identity: &Identity) -> (TlsSession, Connection) {
    let settings = ServerSettings {
        protocols: versions(suite).0,
        suites: vec![suite],
        groups: suites::default_groups(),
        compress: false,
        prefer_own_order: false,
        prioritize_chacha: false,
        alpn: Vec::new(),
        cache: None,
        tickets: Some(TicketKeys::random(300).expect("random bytes").tickets(b"", 300)),
        early_data: 0,
        client_subjects: None,
        signatures: SignatureLimits::default(),
        tickets_sent: None,
    };
    let config = ServerConfig::new(&settings, vec![identity.own.clone()]).expect("a server");
    let mut roots = RootCertStore::empty();
    roots.add(identity.der.clone()).expect("a root");
    let plain = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&versions(suite).1)
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "a.example.com".try_into().expect("a name");
    let mut peer = Connection::Client(ClientConnection::new(Arc::new(plain), name).expect("a client"));
    let mut out = Vec::new();
    let hello =
        HelloAcceptor::default().handle(&records_of(&mut peer), &mut out).expect("good").expect("a hello");
    let mut handshake = ServerHandshake::new(hello, &config).expect("a configuration");
    let mut progress = handshake.handle(&[], &mut out).expect("a good client");
    while progress == HandshakeProgress::NeedsInput || !out.is_empty() {
        assert!(read_all(&mut peer, &std::mem::take(&mut out)).is_empty());
        let records = records_of(&mut peer);
        if !records.is_empty() {
            progress = handshake.handle(&records, &mut out).expect("a good client");
        }
    }
    (handshake.into_session().0, peer)
}

/// A client of ours that has `suite` alone, and a server of rustls.
fn our_client(suite: SupportedCipherSuite, identity: &Identity) -> (TlsSession, Connection) {
    let settings = ClientSettings {
        protocols: versions(suite).0,
        suites: vec![suite],
        groups: suites::default_groups(),
        certificate: None,
        alpn: Vec::new(),
        tell_name: true,
        sessions: 0,
        key_log: None,
        signatures: SignatureLimits::default(),
        session_tickets: true,
    };
    let config = ClientConfig::new(&settings).expect("a client");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.clone()));
    let plain = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&versions(suite).1)
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![identity.der.clone()], key)
        .expect("they fit");
    let mut peer = Connection::Server(ServerConnection::new(Arc::new(plain)).expect("a server"));
    let (mut handshake, mut out) =
        (ClientHandshake::new(&config, "a.example.com").expect("a client"), Vec::new());
    let mut progress = handshake.handle(&[], &mut out).expect("a hello");
    while progress == HandshakeProgress::NeedsInput || !out.is_empty() {
        assert!(read_all(&mut peer, &std::mem::take(&mut out)).is_empty());
        progress = handshake.handle(&records_of(&mut peer), &mut out).expect("a good server");
    }
    (handshake.into_session().0, peer)
}

/// What `peer` has to send.
fn records_of(peer: &mut Connection) -> Vec<u8> {
    let mut records = Vec::new();
    while peer.wants_write() {
        peer.write_tls(&mut records).expect("memory");
    }
    records
}

/// What the records say.
fn read_all(peer: &mut Connection, mut records: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !records.is_empty() {
        peer.read_tls(&mut records).expect("memory");
        peer.process_new_packets().expect("good records");
        match peer.reader().read_to_end(&mut plain) {
            Ok(_) => assert!(records.is_empty(), "records follow the end"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    plain
}

/// What `session` reads of the peer's records, cut into pieces of `size`; what it has to send goes to `out`.
fn open_all(session: &mut TlsSession, records: &[u8], size: usize, out: &mut Vec<u8>) -> Vec<u8> {
    let mut plain = Vec::new();
    for piece in records.chunks(size) {
        assert_eq!(session.open(piece, &mut plain, out).expect("good records"), SessionStep::More);
    }
    plain
}

fn text(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n % 251) as u8).collect()
}

/// Number and lengths of the records of `bytes`; nothing is left over.
fn lengths(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<5>() {
        assert_eq!((header[1], header[2]), (3, 3));
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        lengths.push(length);
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty());
    lengths
}

/// Bytes both ways in runs of all lengths, and the end.
fn talk(mut session: TlsSession, mut peer: Connection, overhead: usize) {
    peer.set_buffer_limit(None);
    for length in [0, 1, 15, 16, 17, 16_383, 16_384, 16_385, 32_768, 200_000, 7] {
        let text = text(length);
        let mut out = b"before".to_vec();
        session.seal(&text, &mut out);
        let records = out.strip_prefix(b"before").expect("records follow what is there");
        let expected: Vec<usize> = text.chunks(16_384).map(|chunk| chunk.len() + overhead).collect();
        assert_eq!(lengths(records), expected);
        assert!(read_all(&mut peer, records) == text, "{length}");
        peer.writer().write_all(&text).expect("memory");
        let mut out = Vec::new();
        let size = if length < 20 { 1 } else { 9_999 };
        assert!(open_all(&mut session, &records_of(&mut peer), size, &mut out) == text, "{length}");
        assert!(out.is_empty());
    }
    let mut out = Vec::new();
    session.seal(b"last", &mut out);
    session.close(&mut out);
    let closed = out.len();
    session.close(&mut out);
    session.seal(b"", &mut out);
    assert_eq!(out.len(), closed, "the end is said once");
    assert_eq!(read_all(&mut peer, &out), b"last");
    assert_eq!(peer.reader().read(&mut [0]).expect("the end was said"), 0);
}

#[test]
fn every_suite_is_read_by_other_code_from_either_side() {
    let identities = [identity(false), identity(true)];
    let mut seen = Vec::new();
    for suite in suites::default_suites() {
        let rsa = format!("{suite:?}").contains("RSA_WITH") && !format!("{suite:?}").contains("ECDSA");
        let identity = &identities[usize::from(rsa)];
        let overhead = match (suite.tls13(), format!("{suite:?}").contains("GCM")) {
            (Some(_), _) => 17,
            (None, true) => 24,
            (None, false) => 16,
        };
        for (session, peer) in [our_server(suite, identity), our_client(suite, identity)] {
            assert_eq!(peer.negotiated_cipher_suite(), Some(suite));
            talk(session, peer, overhead);
        }
        seen.push(suite);
    }
    assert_eq!(seen, ALL_CIPHER_SUITES, "rustls' order, and all of them");
    for (own, plain) in seen.iter().zip(ALL_CIPHER_SUITES) {
        assert_eq!(format!("{own:?}"), format!("{plain:?}"));
        assert_eq!(own.fips(), plain.fips());
    }
}

/// What one connection of a thread seals is not in another's records.
#[test]
fn connections_take_turns_on_a_thread() {
    let identity = identity(false);
    let mut pairs: Vec<_> = suites::default_suites()
        .into_iter()
        .filter(|suite| suite.tls13().is_some())
        .flat_map(|suite| [our_server(suite, &identity), our_client(suite, &identity)])
        .collect();
    for round in 0..50 {
        let mut sent = Vec::new();
        for (n, (session, _)) in pairs.iter_mut().enumerate() {
            let mut out = Vec::new();
            session.seal(&vec![n as u8; round * 701 + 1], &mut out);
            sent.push(out);
        }
        for (n, ((_, peer), records)) in pairs.iter_mut().zip(&sent).enumerate() {
            assert!(read_all(peer, records) == vec![n as u8; round * 701 + 1]);
        }
    }
}

/// The peer renews its keys and wants ours renewed: our message comes between the bytes before and after.
#[test]
fn a_peer_that_renews_its_keys_reads_on() {
    let identity = identity(false);
    for suite in suites::default_suites().into_iter().filter(|suite| suite.tls13().is_some()) {
        for (mut session, mut peer) in [our_server(suite, &identity), our_client(suite, &identity)] {
            let mut out = Vec::new();
            for round in 0..6_usize {
                let text = vec![b'a' + round as u8; 50_000 * (round % 3) + 3];
                peer.refresh_traffic_keys().expect("TLS 1.3");
                peer.writer().write_all(b"new").expect("memory");
                let renewal = records_of(&mut peer);
                session.seal(b"before ", &mut out);
                assert_eq!(open_all(&mut session, &renewal, round + 1, &mut out), b"new");
                session.seal(&text, &mut out);
                assert!(read_all(&mut peer, &std::mem::take(&mut out)) == [b"before ", &*text].concat());
                assert!(records_of(&mut peer).is_empty());
            }
            peer.refresh_traffic_keys().expect("TLS 1.3");
            open_all(&mut session, &records_of(&mut peer), 3, &mut out);
            session.close(&mut out);
            assert!(read_all(&mut peer, &out).is_empty());
            assert_eq!(peer.reader().read(&mut [0]).expect("the end was said"), 0);
        }
    }
}

/// `suite` with keys that may seal `limit` records.
fn limited(suite: SupportedCipherSuite, limit: u64) -> SupportedCipherSuite {
    let common = |common: &rustls::CipherSuiteCommon| rustls::CipherSuiteCommon {
        suite: common.suite,
        hash_provider: common.hash_provider,
        confidentiality_limit: limit,
    };
    match suite {
        SupportedCipherSuite::Tls13(it) => {
            SupportedCipherSuite::Tls13(Box::leak(Box::new(rustls::Tls13CipherSuite {
                common: common(&it.common),
                ..*it
            })))
        }
        SupportedCipherSuite::Tls12(it) => {
            SupportedCipherSuite::Tls12(Box::leak(Box::new(rustls::Tls12CipherSuite {
                common: common(&it.common),
                ..*it
            })))
        }
    }
}

/// TLS 1.3: our own renewal goes before the records that need it, in runs of one record and of many.
#[test]
fn keys_that_have_sealed_enough_are_renewed() {
    let identity = identity(false);
    for suite in suites::default_suites().into_iter().filter(|suite| suite.tls13().is_some()) {
        let suite = limited(suite, 9);
        for (mut session, mut peer) in [our_server(suite, &identity), our_client(suite, &identity)] {
            let mut renewals = 0;
            for round in 0..60_usize {
                let text = text([1, 16_384 * 7, 40_000, 300][round % 4]);
                let mut out = b"before".to_vec();
                session.seal(&text, &mut out);
                renewals += lengths(&out[6..]).len() - text.len().div_ceil(16_384);
                assert!(read_all(&mut peer, &out[6..]) == text, "{round}");
                open_all(&mut session, &records_of(&mut peer), 99, &mut Vec::new());
            }
            // 12 records in four rounds, nine or fewer with each key.
            assert!((18..=60).contains(&renewals), "{renewals}");
        }
    }
}

/// TLS 1.2 can't renew keys: nothing more is sealed with them than they may.
#[test]
fn keys_that_cannot_be_renewed_end_the_connection() {
    let identity = identity(false);
    for suite in suites::default_suites().into_iter().filter(|it| format!("{it:?}").contains("ECDSA")) {
        for many in [false, true] {
            let (mut session, mut peer) = our_server(limited(suite, 9), &identity);
            let mut out = Vec::new();
            session.seal(b"text", &mut out);
            for _ in 0..30 {
                // Of more records than may be sealed, none is.
                let text = if many { text(200_000) } else { b"more".to_vec() };
                session.seal(&text, &mut out);
            }
            session.close(&mut out);
            let records = lengths(&out).len();
            assert!(if many { records == 2 } else { (5..=10).contains(&records) }, "{records}");
            assert_eq!(read_all(&mut peer, &out).len() / 4, records - 1, "all but the end are text");
        }
    }
}
