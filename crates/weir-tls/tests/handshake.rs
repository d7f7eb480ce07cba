//! Pairs of a server and a client that talk to each other in memory, cut at every point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertDecompressor, DecompressionFailed};
use weir_tls::chain::{self, CertificatePurpose};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{
    Certificate, ClientConfig, ClientHandshake, ClientSettings, HandshakeProgress, HelloAcceptor,
    ReceivedHello, ServerConfig, ServerHandshake, ServerSettings, SessionCache, SessionStep, SignatureLimits,
    TicketKeys, TlsSession, TrustStore, VerifyProblem, certificate, key,
};

/// A certificate with its key, for `name`.
fn certified(name: &str) -> Certificate {
    let key = KeyPair::generate().expect("a key");
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).expect("a name").self_signed(&key).expect("signed");
    let chain = certificate::chain(certificate.pem().as_bytes()).expect("a certificate");
    let key = key::read(key.serialize_pem().as_bytes(), &[]).expect("a key");
    Certificate::new(chain, key, None).expect("they fit")
}

fn settings(protocols: ProtocolVersions) -> ServerSettings {
    ServerSettings {
        protocols,
        suites: suites::default_suites(),
        groups: suites::default_groups(),
        compress: false,
        prefer_own_order: false,
        prioritize_chacha: false,
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        cache: None,
        tickets: Some(TicketKeys::random(300).expect("random bytes").tickets(b"", 300)),
        early_data: 0,
        client_subjects: None,
        signatures: SignatureLimits::default(),
        tickets_sent: None,
    }
}

fn client_settings(protocols: ProtocolVersions) -> ClientSettings {
    ClientSettings {
        protocols,
        suites: suites::default_suites(),
        groups: suites::default_groups(),
        certificate: None,
        alpn: vec![b"http/1.1".to_vec()],
        tell_name: true,
        sessions: 16,
        key_log: None,
        signatures: SignatureLimits::default(),
        session_tickets: true,
    }
}

const TLS12: ProtocolVersions = ProtocolVersions { tls12: true, tls13: false };
const TLS13: ProtocolVersions = ProtocolVersions { tls12: false, tls13: true };

/// A server before and after its choice.
enum Server {
    Hello(HelloAcceptor),
    Going(Box<ServerHandshake>),
}

impl Server {
    /// Takes bytes cut at `cut`.
    fn take(
        &mut self,
        bytes: &[u8],
        cut: usize,
        config: &ServerConfig,
        out: &mut Vec<u8>,
    ) -> HandshakeProgress {
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        self.piece(first, config, out);
        self.piece(second, config, out)
    }

    fn piece(&mut self, bytes: &[u8], config: &ServerConfig, out: &mut Vec<u8>) -> HandshakeProgress {
        match self {
            Server::Hello(acceptor) => match acceptor.handle(bytes, out).expect("a hello") {
                None => HandshakeProgress::NeedsInput,
                Some(hello) => self.choose(hello, config, out),
            },
            Server::Going(handshake) => handshake.handle(bytes, out).expect("a good client"),
        }
    }

    fn choose(
        &mut self,
        hello: ReceivedHello,
        config: &ServerConfig,
        out: &mut Vec<u8>,
    ) -> HandshakeProgress {
        assert_eq!(hello.fields.server_name.as_deref(), Some("a.example.com"));
        let mut handshake = ServerHandshake::new(hello, config).expect("a configuration");
        let progress = handshake.handle(&[], out).expect("a good client");
        *self = Server::Going(Box::new(handshake));
        progress
    }
}

/// Runs a handshake whose flights are cut at `cut`.
fn pair(server: &ServerConfig, client: &ClientConfig, cut: usize) -> (TlsSession, TlsSession) {
    let mut connect = ClientHandshake::new(client, "a.example.com").expect("a client");
    let mut accept = Server::Hello(HelloAcceptor::default());
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut client_done = connect.handle(&[], &mut to_server).expect("a hello");
    let mut server_done = HandshakeProgress::NeedsInput;
    while client_done == HandshakeProgress::NeedsInput
        || server_done == HandshakeProgress::NeedsInput
        || !to_client.is_empty()
    {
        assert!(!to_server.is_empty() || !to_client.is_empty(), "nobody speaks");
        let bytes = std::mem::take(&mut to_server);
        if !bytes.is_empty() {
            server_done = accept.take(&bytes, cut, server, &mut to_client);
        }
        let bytes = std::mem::take(&mut to_client);
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        connect.handle(first, &mut to_server).expect("a good server");
        client_done = connect.handle(second, &mut to_server).expect("a good server");
    }
    let Server::Going(handshake) = accept else { panic!("a hello came") };
    (handshake.into_session().0, connect.into_session().0)
}

/// Passes `text` from one to the other in pieces of `size`.
fn pass(from: &mut TlsSession, to: &mut TlsSession, text: &[u8], size: usize) -> Vec<u8> {
    let (mut records, mut plain, mut back) = (Vec::new(), Vec::new(), Vec::new());
    from.seal(text, &mut records);
    for piece in records.chunks(size) {
        assert_eq!(to.open(piece, &mut plain, &mut back).expect("good records"), SessionStep::More);
    }
    assert_eq!(from.open(&back, &mut Vec::new(), &mut Vec::new()).expect("good records"), SessionStep::More);
    plain
}

#[test]
fn a_handshake_cut_anywhere_is_completed_and_bytes_go_both_ways() {
    let certificate = certified("a.example.com");
    for protocols in [TLS12, TLS13] {
        let server = ServerConfig::new(&settings(protocols), vec![certificate.clone()]).expect("a server");
        // Without sessions: each is a whole handshake.
        let client = ClientConfig::new(&ClientSettings { sessions: 0, ..client_settings(protocols) })
            .expect("a client");
        // The longest flight is some 1,800 bytes.
        for cut in (0..1900).step_by(if protocols == TLS13 { 7 } else { 5 }) {
            let (mut ours, mut theirs) = pair(&server, &client, cut);
            let (text, back) = (vec![b'x'; 40_000], vec![b'y'; 10]);
            assert_eq!(pass(&mut ours, &mut theirs, &text, cut + 1), text);
            assert_eq!(pass(&mut theirs, &mut ours, &back, cut % 20 + 1), back);
            let facts = ours.facts();
            assert_eq!(facts.alpn.as_deref(), Some(&b"http/1.1"[..]));
            assert_eq!(facts.version, if protocols == TLS13 { "TLSv1.3" } else { "TLSv1.2" });
            assert!(!facts.cipher.is_empty() && !facts.resumed && !ours.is_handshaking());
        }
    }
}

/// `ssl_prefer_server_ciphers` with `PrioritizeChaCha`.
#[test]
fn a_client_that_begins_with_chacha_gets_it_where_that_is_prioritized() {
    for protocols in [TLS12, TLS13] {
        let cipher = |prefer_own_order, prioritize_chacha, first_is_chacha: bool| {
            let settings = ServerSettings { prefer_own_order, prioritize_chacha, ..settings(protocols) };
            let server = ServerConfig::new(&settings, vec![certified("a.example.com")]).expect("a server");
            let mut suites = suites::default_suites();
            suites.sort_by_key(|it| format!("{:?}", it.suite()).contains("CHACHA20") != first_is_chacha);
            let client = ClientConfig::new(&ClientSettings { suites, ..client_settings(protocols) });
            pair(&server, &client.expect("a client"), 0).0.facts().cipher.contains("CHACHA20")
        };
        assert!(cipher(false, false, true), "the client's order");
        assert!(!cipher(true, false, true), "the server's order");
        assert!(cipher(true, true, true));
        assert!(!cipher(true, true, false));
    }
}

#[test]
fn the_end_is_told_and_a_wrong_byte_is_noticed() {
    let server = ServerConfig::new(&settings(TLS13), vec![certified("a.example.com")]).expect("a server");
    let client = ClientConfig::new(&client_settings(TLS13)).expect("a client");
    let (mut ours, mut theirs) = pair(&server, &client, 0);
    let mut out = Vec::new();
    ours.close(&mut out);
    let (mut plain, mut back) = (Vec::new(), Vec::new());
    assert_eq!(theirs.open(&out, &mut plain, &mut back).expect("an alert"), SessionStep::End);
    let (mut ours, mut theirs) = pair(&server, &client, 0);
    let mut records = Vec::new();
    ours.seal(b"text", &mut records);
    *records.last_mut().expect("a record") ^= 1;
    let mut alert = Vec::new();
    theirs.open(&records, &mut plain, &mut alert).expect_err("another byte");
    assert!(!alert.is_empty());
    let length = alert.len();
    theirs.seal(b"text", &mut alert);
    theirs.close(&mut alert);
    theirs.open(&records, &mut plain, &mut alert).expect_err("it is over");
    assert_eq!(alert.len(), length, "the alert is the last word");
}

/// A record of TLS, not encrypted.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3, 0, content.len() as u8][..], content].concat()
}

#[test]
fn an_error_after_half_a_message_is_an_error() {
    const HANDSHAKE: u8 = 22;
    let wrong = record(99, b"what is this?");
    // What it says to be long has not come: the beginning of a ServerHello, of a ClientKeyExchange.
    let half = |kind: u8| record(HANDSHAKE, &[&[kind, 0, 0, 200][..], &[3; 20]].concat());
    let client = ClientConfig::new(&client_settings(TLS12)).expect("a client");
    let mut connect = ClientHandshake::new(&client, "a.example.com").expect("a client");
    let (mut hello, mut flight, mut alert) = (Vec::new(), Vec::new(), Vec::new());
    connect.handle(&[], &mut hello).expect("a hello");
    connect.handle(&half(2), &mut alert).expect("more may come");
    assert!(connect.handle(&wrong, &mut alert).is_err() && !alert.is_empty());

    let server = ServerConfig::new(&settings(TLS12), vec![certified("a.example.com")]).expect("a server");
    let mut accept = Server::Hello(HelloAcceptor::default());
    accept.piece(&hello, &server, &mut flight);
    let Server::Going(mut handshake) = accept else { panic!("a hello came") };
    alert.clear();
    handshake.handle(&half(16), &mut alert).expect("more may come");
    assert!(handshake.handle(&wrong, &mut alert).is_err() && !alert.is_empty());
}

/// Whether a second session of `client` is resumed, both having exchanged bytes.
fn resumes(server: &ServerConfig, client: &ClientConfig) -> bool {
    let again = || {
        let (mut ours, mut theirs) = pair(server, client, 0);
        assert_eq!(pass(&mut ours, &mut theirs, b"x", 100), b"x");
        assert_eq!(ours.facts().resumed, theirs.facts().resumed);
        ours.facts().resumed
    };
    assert!(!again());
    again()
}

#[test]
fn sessions_are_resumed_by_tickets_and_by_a_cache() {
    let certificate = certified("a.example.com");
    for protocols in [TLS12, TLS13] {
        let client = || ClientConfig::new(&client_settings(protocols)).expect("a client");
        let server = |settings: &ServerSettings| {
            ServerConfig::new(settings, vec![certificate.clone()]).expect("a server")
        };
        let tickets = settings(protocols);
        assert!(resumes(&server(&tickets), &client()), "tickets");
        let cache = Some(Arc::new(SessionCache::new(100_000, 300)));
        let cached = ServerSettings { tickets: None, cache, ..settings(protocols) };
        assert!(resumes(&server(&cached), &client()), "a cache");
        let neither = ServerSettings { tickets: None, ..settings(protocols) };
        assert!(!resumes(&server(&neither), &client()), "neither");
    }
}

#[test]
fn a_client_gets_the_certificate_that_it_can_verify() {
    let ecdsa = certified("a.example.com");
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let other =
        CertificateParams::new(vec!["b".to_owned()]).expect("a name").self_signed(&key).expect("signed");
    let other = Certificate::new(
        vec![other.der().clone()],
        key::read(key.serialize_pem().as_bytes(), &[]).expect("a key"),
        None,
    );
    let both = vec![other.expect("they fit"), ecdsa.clone()];
    let server = ServerConfig::new(&settings(TLS13), both).expect("a server");
    let (_, theirs) = pair(&server, &ClientConfig::new(&client_settings(TLS13)).expect("a client"), 0);
    assert_eq!(theirs.facts().peer.len(), 1);
    let fixed = server.with_certificates(vec![ecdsa.clone()]);
    let (_, theirs) = pair(&fixed, &ClientConfig::new(&client_settings(TLS13)).expect("a client"), 0);
    assert_eq!(theirs.facts().peer, ecdsa.chain());
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (a, b) = (certified("a"), certified("b"));
    let error = Certificate::new(a.chain().to_vec(), b.key().clone(), None).expect_err("another key");
    assert_eq!(error.to_string(), "key values mismatch");
}

/// An authority called `name`, issued by `by` or by itself.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    certificate: rcgen::Certificate,
}

fn authority(name: &str, by: Option<&Authority>, ca: bool) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(name.len() as u64 + 1000));
    if ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = match by {
        None => params.self_signed(&key),
        Some(by) => params.signed_by(&key, &by.issuer()),
    };
    Authority { params, key, certificate: certificate.expect("signed") }
}

impl Authority {
    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    fn crl(&self, revoked: &[&Authority]) -> Vec<u8> {
        let revoked = revoked.iter().map(|it| RevokedCertParams {
            serial_number: it.params.serial_number.clone().expect("set"),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(2040, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer()).expect("signed").der().to_vec()
    }
}

/// Some time in 2026.
const NOW: u64 = 1_790_000_000;

#[test]
fn verdicts_are_openssls() {
    let root = authority("root", None, true);
    let middle = authority("middle", Some(&root), true);
    let leaf = authority("leaf", Some(&middle), false);
    let lone = authority("alone", None, false);
    let pretender = authority("pretender", Some(&leaf), false);
    let der = |it: &Authority| it.certificate.der().clone();
    let trust = |it: &[&Authority]| TrustStore {
        certificates: it.iter().map(|it| der(it)).collect(),
        crls: Vec::new(),
    };
    let check = |sent: &[&Authority], trust: &TrustStore, depth| {
        let sent: Vec<_> = sent.iter().map(|it| der(it)).collect();
        chain::check(&sent, trust, depth, CertificatePurpose::Client, NOW)
    };
    let (by_root, by_both) = (trust(&[&root]), trust(&[&root, &middle]));
    assert_eq!(check(&[&leaf, &middle], &by_root, 1), Ok(()));
    assert_eq!(check(&[&leaf], &by_both, 1), Ok(()));
    assert_eq!(check(&[&leaf], &by_both, 0), Err(VerifyProblem::NO_ISSUER), "the root is one too far");
    assert_eq!(check(&[&leaf, &middle], &by_root, 0), Err(VerifyProblem::NO_LOCAL_ISSUER));
    assert_eq!(check(&[&leaf], &by_root, 1), Err(VerifyProblem::UNVERIFIED_LEAF));
    assert_eq!(check(&[&leaf, &middle], &trust(&[]), 1), Err(VerifyProblem::NO_LOCAL_ISSUER));
    assert_eq!(check(&[&leaf], &trust(&[&middle]), 1), Err(VerifyProblem::NO_ISSUER));
    assert_eq!(
        check(&[&leaf, &middle, &root], &trust(&[&lone]), 2),
        Err(VerifyProblem::SELF_SIGNED_IN_CHAIN)
    );
    assert_eq!(check(&[&lone], &by_root, 1), Err(VerifyProblem::SELF_SIGNED));
    assert_eq!(check(&[&lone], &trust(&[&lone]), 1), Ok(()));
    assert_eq!(check(&[&pretender, &leaf, &middle], &by_root, 5), Err(VerifyProblem::PURPOSE));
    assert_eq!(
        chain::check(&[der(&root)], &by_root, 1, CertificatePurpose::Client, 100_000_000_000),
        Err(VerifyProblem::EXPIRED)
    );
    assert_eq!(
        chain::check(&[der(&root)], &by_root, 1, CertificatePurpose::Client, 5),
        Err(VerifyProblem::NOT_YET_VALID)
    );
    // Of a stranger's, too: the verdict is the last that is found, on a server the first where nobody is trusted.
    let server = |it: &Authority, trust: &TrustStore| {
        chain::check(&[der(it)], trust, 1, CertificatePurpose::Server, NOW)
    };
    assert_eq!(server(&leaf, &by_root), Err(VerifyProblem::UNVERIFIED_LEAF));
    assert_eq!(server(&leaf, &trust(&[])), Err(VerifyProblem::NO_LOCAL_ISSUER));
    assert_eq!(server(&lone, &by_root), Err(VerifyProblem::SELF_SIGNED));
    let old = |it: &Authority, purpose| chain::check(&[der(it)], &trust(&[]), 1, purpose, 100_000_000_000);
    assert_eq!(old(&leaf, CertificatePurpose::Client), Err(VerifyProblem::EXPIRED));
    assert_eq!(old(&leaf, CertificatePurpose::Server), Err(VerifyProblem::NO_LOCAL_ISSUER));
    assert_eq!(old(&lone, CertificatePurpose::Client), Err(VerifyProblem::EXPIRED));
}

#[test]
fn revoked_certificates_are_known_by_their_issuers_list() {
    let root = authority("root", None, true);
    let leaf = authority("leaf", Some(&root), false);
    let other = authority("other name", Some(&root), false);
    let stranger = authority("root", None, true);
    let check = |crls: Vec<Vec<u8>>| {
        let trust = TrustStore { certificates: vec![root.certificate.der().clone()], crls };
        chain::check(&[leaf.certificate.der().clone()], &trust, 1, CertificatePurpose::Client, NOW)
    };
    assert_eq!(check(vec![root.crl(&[&other])]), Ok(()));
    assert_eq!(check(vec![root.crl(&[&other, &leaf])]), Err(VerifyProblem::REVOKED));
    assert_eq!(check(vec![leaf.crl(&[])]), Err(VerifyProblem::NO_CRL));
    // Where the path breaks off there is no issuer whose list could be looked at, and it is not its own.
    let middle = authority("middle", Some(&root), true);
    let (below, der) =
        (authority("below", Some(&middle), false), |it: &Authority| it.certificate.der().clone());
    let nobody = |crls| TrustStore { certificates: Vec::new(), crls };
    let check_chain =
        |crls| chain::check(&[der(&below), der(&middle)], &nobody(crls), 1, CertificatePurpose::Client, NOW);
    assert_eq!(check_chain(vec![middle.crl(&[])]), Err(VerifyProblem::NO_CRL));
    assert_eq!(check_chain(vec![middle.crl(&[]), root.crl(&[])]), Err(VerifyProblem::NO_CRL_ISSUER));
    assert_eq!(check_chain(vec![middle.crl(&[]), root.crl(&[&middle])]), Err(VerifyProblem::REVOKED));
    // It names another key of the same name: as in OpenSSL it is no list of this authority's.
    assert_eq!(check(vec![stranger.crl(&[])]), Err(VerifyProblem::NO_CRL));
}

/// Unpacks certificates, and notes that it did.
#[derive(Debug)]
struct Unzip;

static UNZIPPED: AtomicUsize = AtomicUsize::new(0);

impl CertDecompressor for Unzip {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        let (plain, code) = zlib_rs::decompress_slice(output, input, zlib_rs::InflateConfig::default());
        UNZIPPED.fetch_add(1, Ordering::SeqCst);
        let whole = plain.len();
        if code == zlib_rs::ReturnCode::Ok && whole == output.len() {
            Ok(())
        } else {
            Err(DecompressionFailed)
        }
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

#[test]
fn certificates_are_compressed_for_who_can_unpack_them() {
    let certificate = certified("a.example.com");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.chain()[0].clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.cert_decompressors = vec![&Unzip];
    let config = Arc::new(config);
    for (compress, expected) in [(false, 0), (true, 1)] {
        let settings = ServerSettings { compress, ..settings(TLS13) };
        let server = ServerConfig::new(&settings, vec![certificate.clone()]).expect("a server");
        let name = "a.example.com".try_into().expect("a name");
        let mut client = rustls::ClientConnection::new(config.clone(), name).expect("a client");
        let (mut accept, mut out) = (Server::Hello(HelloAcceptor::default()), Vec::new());
        while client.is_handshaking() {
            let mut sent = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut sent).expect("memory");
            }
            accept.piece(&sent, &server, &mut out);
            let received = std::mem::take(&mut out);
            let mut rest = &received[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).expect("memory");
                client.process_new_packets().expect("a good server");
            }
        }
        assert_eq!(UNZIPPED.load(Ordering::SeqCst), expected);
    }
}
