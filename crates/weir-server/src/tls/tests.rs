//! A handler between the ClientHello and the choice of certificates.

use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_conf::Directive;
use weir_rt::{DriverChoice, RecvOutcome, Runtime, RuntimeOptions, Stream};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{
    Certificate, ClientConfig, ClientHandshake, ClientSettings, HandshakeProgress, certificate, key,
};
use weir_trace::{Recorder, RecorderSettings};

use super::{
    ClientGreeting, HandshakeChoice, HandshakeRefusal, HelloHandler, HelloVerdict, Ssl, accept,
    handle_client_hello,
};
use weir_engine::conf::{self, CORE_MODULES, with_core};
use weir_engine::module::{Module, ModuleDef};
use weir_engine::phase::LocalFuture;
use weir_engine::plan::PlanBuilder;
use weir_engine::transport::wire::ClientWire;
use weir_engine::worker::Worker;
use weir_engine::worker::generation::WorkerGeneration;

/// A module whose handler waits, and then does what the name in the hello says.
struct Chooser;

impl Module for Chooser {
    const NAME: &'static str = "chooser";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] = &[];

    fn install(_: &(), plan: &mut PlanBuilder<'_>) {
        handle_client_hello(plan, Waits);
    }
}

struct Waits;

impl HelloHandler for Waits {
    fn handle<'h>(&'h self, greeting: &'h ClientGreeting) -> LocalFuture<'h, HelloVerdict> {
        Box::pin(async move {
            let hello = &greeting.hello;
            weir_rt::sleep(Duration::from_millis(5)).await;
            assert!(hello.extensions().next().is_some());
            match hello.server_name.as_deref() {
                Some("own.example.com") => choose(HandshakeChoice {
                    certificates: vec![pair("own").0],
                    ..HandshakeChoice::default()
                }),
                Some("none.example.com") => {
                    choose(HandshakeChoice { cleared: true, ..HandshakeChoice::default() })
                }
                Some("never.example.com") => {
                    let protocols = Some(ProtocolVersions { tls12: false, tls13: false });
                    choose(HandshakeChoice { protocols, ..HandshakeChoice::default() })
                }
                Some("old.example.com") => {
                    let protocols = Some(ProtocolVersions { tls12: true, tls13: false });
                    choose(HandshakeChoice { protocols, ..HandshakeChoice::default() })
                }
                Some("no.example.com") => HelloVerdict::Reject(HandshakeRefusal::Name),
                _ => HelloVerdict::Declined,
            }
        })
    }
}

fn choose(choice: HandshakeChoice) -> HelloVerdict {
    HelloVerdict::Choose(Box::new(choice))
}

static MODULES: [ModuleDef; CORE_MODULES.len() + 2] =
    with_core(&[ModuleDef::of::<Ssl>(), ModuleDef::of::<Chooser>()]);

/// A certificate, and its text and its key's.
fn pair(name: &str) -> (Certificate, String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let text = params.self_signed(&key).expect("signed").pem();
    let chain = certificate::chain(text.as_bytes()).expect("a certificate");
    let own = key::read(key.serialize_pem().as_bytes(), &[]).expect("a key");
    (Certificate::new(chain, own, None).expect("they fit"), text, key.serialize_pem())
}

/// The subject of the certificate that a client gets that asks for `name`; `None`: the handshake is refused.
fn served(name: &str) -> Option<String> {
    let options =
        RuntimeOptions { driver: DriverChoice::Epoll, worker: 0, buffers: 8, name: "test".to_owned() };
    Runtime::new(&options).expect("epoll is everywhere").block_on(async {
        let (_, text, key) = pair("configured");
        let text = format!(
            "error_log stderr emerg; events {{ }} http {{ server {{ listen 127.0.0.1:1 ssl;
             ssl_certificate \"data:{text}\"; ssl_certificate_key \"data:{key}\"; }} }}"
        );
        let configuration = conf::test::load(&text, &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let worker = Worker::new(0, Arc::default(), Recorder::new(0, RecorderSettings::default()));
        let generation = WorkerGeneration::install(&Arc::new(configuration), &worker).expect("all installs");
        let hosts = generation.hosts().first().expect("the test has a server").clone();
        worker.switch(Rc::new(generation));
        let connection = weir_engine::testing::connection(&hosts, &worker);
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let wire = Rc::new(ClientWire::new(Stream::from_fd(ours.into()).expect("a socket")));
        weir_rt::spawn(async move {
            accept::run(&worker, &connection, &wire, accept::HandshakeOwner::Http).await;
        });
        connect(Stream::from_fd(theirs.into()).expect("a socket"), name).await
    })
}

async fn connect(stream: Stream, name: &str) -> Option<String> {
    let settings = ClientSettings {
        protocols: ProtocolVersions::default(),
        suites: suites::default_suites(),
        groups: suites::default_groups(),
        certificate: None,
        alpn: Vec::new(),
        tell_name: true,
        sessions: 0,
        key_log: None,
        signatures: weir_tls::SignatureLimits::default(),
        session_tickets: true,
    };
    let config = ClientConfig::new(&settings).expect("a client");
    let mut connect = ClientHandshake::new(&config, name).expect("a client");
    let (mut received, mut out) = (Vec::new(), Vec::new());
    while connect.handle(&received, &mut out).ok()? == HandshakeProgress::NeedsInput {
        stream.send(std::mem::take(&mut out));
        received = match stream.recv(None).await {
            RecvOutcome::Data(bytes) => bytes.to_vec(),
            _ => return None,
        };
    }
    let (session, _) = connect.into_session();
    let facts = session.facts();
    let subject = weir_tls::facts::subject(facts.peer.first()?)?;
    Some(format!("{subject} {}", facts.version))
}

#[test]
fn a_handler_may_wait_and_choose_or_refuse() {
    assert_eq!(served("own.example.com").as_deref(), Some("CN=own TLSv1.3"));
    assert_eq!(served("a.example.com").as_deref(), Some("CN=configured TLSv1.3"));
    assert_eq!(served("old.example.com").as_deref(), Some("CN=configured TLSv1.2"));
    assert_eq!(served("none.example.com"), None);
    assert_eq!(served("never.example.com"), None);
    assert_eq!(served("no.example.com"), None);
}
