//! The handshake of an accepted connection.
//!
//! The ClientHello is read here, so that the server can be chosen by the name in it before rustls sees a byte; a client
//! that speaks HTTP without TLS is let through, to get a 400 that says so. While a handshake uses a key that takes long,
//! it is moved to a pool thread and back with every step.

use std::cell::Cell;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use weir_rt::{OutputChunk, RecvOutcome, clock};
use weir_tls::{
    Certificate, Error, ExternalSessions, HandshakeProgress, HandshakeWishes, HelloAcceptor, HelloFields,
    ReceivedHello, ServerConfig, ServerHandshake, TlsSession, fatal_alert,
};
use weir_trace::ConnectionStep;

use super::counted;
use super::hook::{
    self, ClientGreeting, HandshakeChoice, HandshakeRefusal, HelloHandler, HelloVerdict, TrustedClients,
};
use super::ocsp::ResponderNames;
use super::server::{HANDSHAKE_TIMEOUT, HandshakeConfigs, ServerTls};
use super::server_part::{client_policy, server_tls};
use super::state;
use super::state::ClientJudgement;
use weir_engine::log::LogLevel;
use weir_engine::plan::server::VirtualServer;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::closing;
use weir_engine::transport::tls::{AgreedProtocol, ConnectionTls};
use weir_engine::transport::wire::ClientWire;
use weir_engine::worker::{CloseProtocol, CloseReason, HandshakeFault, ShownCertificate, Worker};
use weir_upstream::tls_client::cache::CertificateFiles;
use weir_upstream::tls_client::layer::TlsLayer;
use weir_upstream::tls_client::{effort, files};

/// Completes the handshake of a client within `client_header_timeout`, of a session within `ssl_handshake_timeout`; bytes after
/// it are read through the layer. `Some`: what to speak. `None`: it failed, the reason is logged, the connection is to be closed. How long it held the loop, and how
/// long it was away, is counted (`weir sites`: tls).
pub(crate) async fn run(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    wire: &Rc<ClientWire>,
    of: HandshakeOwner,
) -> Option<AgreedProtocol> {
    let mut handshake = pin!(agree(worker, connection, wire, of));
    let (begin, mut held) = (clock::ticks(), HeldTime::new(worker.recorder.borrow().cpu()));
    let alpn = poll_fn(|cx| held.during(|| handshake.as_mut().poll(cx))).await;
    let wait = clock::ticks().saturating_sub(begin + held.ticks);
    let recorder = worker.recorder.borrow();
    recorder.connection_step(ConnectionStep::Tls, held.ticks, wait);
    if let Some(cpu) = held.cpu_ns {
        recorder.connection_step(ConnectionStep::TlsCpu, clock::scale().ns_to_ticks(cpu), 0);
    }
    alpn
}

/// What comes after a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeOwner {
    /// Requests.
    Http,
    /// A session of `stream`.
    Session,
}

/// How long a handshake held the loop.
struct HeldTime {
    ticks: u64,
    /// CPU time of the thread: without the turns of other threads and programs.
    cpu_ns: Option<u64>,
}

impl HeldTime {
    fn new(cpu: bool) -> HeldTime {
        HeldTime { ticks: 0, cpu_ns: cpu.then_some(0) }
    }

    fn during<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let cpu = self.cpu_ns.map(|_| clock::thread_cpu_ns());
        let from = clock::ticks();
        let result = step();
        self.ticks += clock::ticks().saturating_sub(from);
        if let (Some(sum), Some(from)) = (&mut self.cpu_ns, cpu) {
            *sum += clock::thread_cpu_ns().saturating_sub(from);
        }
        result
    }
}

async fn agree(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    wire: &Rc<ClientWire>,
    of: HandshakeOwner,
) -> Option<AgreedProtocol> {
    connection.speaks(CloseProtocol::Tls);
    wire.timer.arm(match of {
        HandshakeOwner::Http => connection.server().settings.client_header_timeout,
        HandshakeOwner::Session => {
            server_tls(&connection.server()).map_or(HANDSHAKE_TIMEOUT, |tls| tls.handshake_timeout())
        }
    });
    let mut received = wire.input.borrow_mut().take();
    if received.is_empty() {
        received = receive(connection, wire, "waiting for request").await?;
    }
    let begun = clock::ticks();
    // As nginx has it: a handshake record, or a hello of version 2.
    if of == HandshakeOwner::Http && !received.first().is_some_and(|b| b & 0x80 != 0 || *b == 0x16) {
        wire.input.borrow_mut().give(received);
        connection.speaks(CloseProtocol::Http1);
        return Some(AgreedProtocol::Http1);
    }
    let mut hello = hello(connection, wire, received).await?;
    let said = std::mem::take(&mut hello.fields);
    let server = match named(connection, said.server_name.as_deref()) {
        Ok(server) => server,
        Err(refusal) => return reject(connection, wire, refusal),
    };
    let chosen = match choose(worker, connection, &server, said).await {
        Ok(chosen) => chosen,
        Err(refusal) => return reject(connection, wire, refusal),
    };
    let ChosenHandshake { greeting, tls, config, choice, sessions, handler } = chosen;
    let setup = HandshakeSetup { config: &config, random: choice.random };
    let made = complete(connection, wire, hello, &tls, setup).await?;
    let (alpn, shown) = establish(connection, wire, &tls, made, choice.clients).await;
    if let Some(known) = connection.tls.get() {
        counted::agreed(worker, &known.facts, shown, clock::ticks().saturating_sub(begun));
    }
    if let (Some(sessions), Some(handler)) = (sessions, handler) {
        hand_over_sessions(&greeting, &sessions, handler);
    }
    Some(alpn)
}

/// The server that the name in a ClientHello chooses, or the default one.
pub(super) fn named(
    connection: &ClientConnection,
    name: Option<&str>,
) -> Result<Rc<VirtualServer>, HandshakeRefusal> {
    if let Err(reason) = connection.choose_by_name(name) {
        // nginx's callback fails with an internal error, too: whose certificate is meant is not known.
        connection.log(LogLevel::Alert, &reason);
        return Err(HandshakeRefusal::Hello);
    }
    Ok(connection.server())
}

/// What a handshake is made with, as its server and handlers want it.
pub(super) struct ChosenHandshake<'s> {
    greeting: ClientGreeting,
    pub(super) tls: Arc<ServerTls>,
    pub(super) config: ServerConfig,
    pub(super) choice: HandshakeChoice,
    sessions: Option<Arc<ExternalSessions>>,
    handler: Option<&'s dyn HelloHandler>,
}

/// Chooses what the handshake of a client that has said `said` to `server` is made with.
pub(super) async fn choose<'s>(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    server: &'s Rc<VirtualServer>,
    said: HelloFields,
) -> Result<ChosenHandshake<'s>, HandshakeRefusal> {
    let said = remember(connection, said, hook::is_asked(&server.plan));
    let tls = tls_of(connection, server);
    let Some((tls, current)) = tls.and_then(|tls| tls.configs().map(|configs| (tls, configs))) else {
        return Err(HandshakeRefusal::Name);
    };
    let greeting = ClientGreeting {
        worker: worker.clone(),
        connection: connection.clone(),
        hello: said,
        protocols: tls.plain().protocols(),
    };
    let (verdict, handler) = hook::ask(&server.plan, &greeting).await;
    let mut choice = match verdict {
        HelloVerdict::Choose(choice) => *choice,
        HelloVerdict::Declined => HandshakeChoice::default(),
        HelloVerdict::Reject(refusal) => return Err(refusal),
    };
    let config = configured(&greeting, server, &tls, current, &choice).await?;
    let (config, sessions) = otherwise(config, &mut choice, &greeting)?;
    Ok(ChosenHandshake { greeting, tls, config, choice, sessions, handler })
}

/// Gives the handler the sessions that the handshake has made; those of TLS 1.3 are tickets.
fn hand_over_sessions(greeting: &ClientGreeting, sessions: &ExternalSessions, handler: &dyn HelloHandler) {
    if greeting.connection.tls.get().is_some_and(|tls| tls.facts.version == "TLSv1.2") {
        for (id, made) in sessions.take_made() {
            handler.made(greeting, &id, &made);
        }
    }
}

/// Keeps what the client said with the connection, since variables may ask for it, without extensions; `whole`: handlers
/// see these.
fn remember(connection: &ClientConnection, said: HelloFields, whole: bool) -> Rc<HelloFields> {
    let extensions = whole.then(|| Rc::new(said.clone()));
    let kept = Rc::new(said.without_extensions());
    let _first = connection.hello.set(kept.clone());
    extensions.unwrap_or(kept)
}

/// What the handshake uses: what the server has, or what handlers have chosen.
async fn configured(
    greeting: &ClientGreeting,
    server: &Rc<VirtualServer>,
    tls: &Arc<ServerTls>,
    current: HandshakeConfigs,
    choice: &HandshakeChoice,
) -> Result<ServerConfig, HandshakeRefusal> {
    let HandshakeConfigs { configs, stapling } = current;
    let ClientGreeting { worker, connection, .. } = greeting;
    let http2 = connection.takes_http2();
    let config = &configs[usize::from(http2)];
    if choice.cleared || !choice.certificates.is_empty() || choice.status.is_some() {
        return Ok(hook::chosen(config, choice, tls.fixed()));
    }
    if !tls.computed.is_empty() {
        return compute(worker, connection, server, tls, config).await;
    }
    Ok(match &stapling {
        Some(stapling) => stapling.config(&configs, http2, &ResponderNames { system: true, ..names(server) }),
        None => config.clone(),
    })
}

/// What else is otherwise in this handshake; what is notified of its sessions.
fn otherwise(
    config: ServerConfig,
    choice: &mut HandshakeChoice,
    greeting: &ClientGreeting,
) -> Result<(ServerConfig, Option<Arc<ExternalSessions>>), HandshakeRefusal> {
    if choice.cleared && choice.certificates.is_empty() {
        return Err(HandshakeRefusal::NoCertificate);
    }
    let subjects = choice.clients.as_ref().map(|clients| clients.subjects.clone());
    let found = choice.session.take().map(|session| (greeting.hello.session_id.clone(), session));
    let sessions =
        (found.is_some() || choice.keeps).then(|| Arc::new(config.external_sessions(found, choice.keeps)));
    if choice.protocols.is_none() && subjects.is_none() && sessions.is_none() && !choice.unresumable {
        return Ok((config, None));
    }
    let wishes = HandshakeWishes {
        protocols: choice.protocols,
        client_subjects: subjects,
        sessions: sessions.clone(),
        unresumable: choice.unresumable,
    };
    // Nothing but the versions can leave nothing to offer.
    let config = config.otherwise(wishes).map_err(|_| HandshakeRefusal::NoVersion)?;
    Ok((config, sessions))
}

/// How responders' names are found by this server: by its `resolver`.
fn names(server: &VirtualServer) -> ResponderNames {
    ResponderNames { resolver: server.plan.core.resolver.clone(), system: false }
}

/// What the server has; one without any uses the default server's, as in nginx.
fn tls_of(connection: &ClientConnection, server: &VirtualServer) -> Option<Arc<ServerTls>> {
    match server_tls(server) {
        Some(tls) if tls.rejects() => None,
        Some(tls) => Some(tls.clone()),
        None => server_tls(connection.hosts.borrow().default()).filter(|tls| !tls.rejects()).cloned(),
    }
}

async fn receive(connection: &ClientConnection, wire: &ClientWire, action: &str) -> Option<Vec<u8>> {
    match wire.stream.recv(Some(&wire.timer)).await {
        RecvOutcome::Data(bytes) => Some(bytes.to_vec()),
        gone => {
            lost(connection, &gone, action);
            None
        }
    }
}

async fn hello(connection: &ClientConnection, wire: &ClientWire, received: Vec<u8>) -> Option<ReceivedHello> {
    let (mut acceptor, mut received) = (HelloAcceptor::default(), received);
    loop {
        let mut out = Vec::new();
        match acceptor.handle(&received, &mut out) {
            Ok(Some(hello)) => return Some(hello),
            Ok(None) => received = receive(connection, wire, HANDSHAKING).await?,
            Err(error) => {
                wire.stream.send(out);
                failed(connection, &error);
                return None;
            }
        }
    }
}

/// Sends the fatal alert, and logs why: no protocol is agreed on.
fn reject<T>(connection: &ClientConnection, wire: &ClientWire, refusal: HandshakeRefusal) -> Option<T> {
    connection.ends(CloseReason::HandshakeFailed);
    counted::failed(connection, refusal.fault());
    wire.stream.send(fatal_alert(refusal.alert()).to_vec());
    let message = format_args!("SSL_do_handshake() failed (SSL: {}) while {HANDSHAKING}", refusal.text());
    connection.log(LogLevel::Info, &message);
    None
}

/// What a handshake is made with.
struct HandshakeSetup<'c> {
    config: &'c ServerConfig,
    /// The server's random bytes, where a handler has chosen them.
    random: Option<[u8; 32]>,
}

/// The session of a handshake that is complete.
struct NewSession {
    session: TlsSession,
    /// What the client has sent after it, decrypted.
    plain: Vec<u8>,
}

async fn complete(
    connection: &Rc<ClientConnection>,
    wire: &Rc<ClientWire>,
    hello: ReceivedHello,
    tls: &ServerTls,
    setup: HandshakeSetup<'_>,
) -> Option<NewSession> {
    let HandshakeSetup { config, random } = setup;
    let begun = ServerHandshake::new(hello, config).map_err(|error| {
        wire.stream.send(fatal_alert(INTERNAL_ERROR).to_vec());
        failed(connection, &error);
    });
    let begun = begun.ok()?;
    let (mut handshake, mut received) = (begun.with_random(random), Vec::new());
    let effort = tls.effort(config);
    loop {
        let step = effort::at(effort, move || step(handshake, &received)).await;
        handshake = step.handshake;
        if !step.out.is_empty() {
            // Tickets leave with the response where the request came with the client's last message, else when this task waits.
            wire.stream.queue(OutputChunk::Bytes(step.out));
        }
        match step.result {
            Ok(HandshakeProgress::Complete) => break,
            Ok(HandshakeProgress::NeedsInput) => received = receive(connection, wire, HANDSHAKING).await?,
            Err(error) => {
                failed(connection, &error);
                return None;
            }
        }
    }
    let (session, plain) = handshake.into_session();
    Some(NewSession { session, plain })
}

/// From here on the connection's bytes go through its session. Also what came of asking for the client's certificate, if
/// it was asked for.
async fn establish(
    connection: &Rc<ClientConnection>,
    wire: &Rc<ClientWire>,
    tls: &ServerTls,
    new: NewSession,
    asked: Option<TrustedClients>,
) -> (AgreedProtocol, Option<ShownCertificate>) {
    let NewSession { mut session, plain } = new;
    let early = Rc::new(Cell::new(false));
    let known = ConnectionTls::new(
        session.facts(),
        session.take_secrets(),
        early.clone(),
        ClientJudgement::new(tls.trust().clone()),
    );
    let alpn = known.alpn();
    wire.stream.set_layer(Box::new(TlsLayer::new(session, early).with_records(tls.record())), plain);
    let shown = judged(connection, tls, known, asked).await;
    connection.speaks(CloseProtocol::Http1);
    (alpn, shown)
}

/// `known` is the TLS of `connection` from here on. What came of asking for the client's certificate, if it was asked for.
pub(super) async fn judged(
    connection: &Rc<ClientConnection>,
    tls: &ServerTls,
    known: ConnectionTls,
    asked: Option<TrustedClients>,
) -> Option<ShownCertificate> {
    connection.log(LogLevel::Debug, &known.facts.agreed());
    let asks = asked.is_some() || tls.asks_clients();
    if let Some(asked) = asked {
        state::set_clients(&known, asked);
    }
    let server = connection.server();
    let policy = client_policy(&server);
    let trust = if policy.asks() { &policy.trust } else { tls.trust() };
    if let Some(issuers) = &trust.issuers
        && let Ok(path) = state::path(&known, trust)
    {
        let names = names(&server);
        state::set_status(&known, trust.clone(), issuers.check(connection, &path, &names).await);
    }
    // A verdict is given once: requests find this one.
    let shown = asks.then(|| match known.certificate() {
        None => ShownCertificate::Absent,
        Some(_) if state::verdict_of_handshake(&known, trust).is_err() => ShownCertificate::Refused,
        Some(_) if matches!(state::status(&known, trust), Some(Err(_))) => ShownCertificate::Refused,
        Some(_) => ShownCertificate::Verified,
    });
    let _first = connection.tls.set(Rc::new(known));
    shown
}

/// A step of a handshake, wherever it was made.
struct HandshakeStep {
    handshake: ServerHandshake,
    out: Vec<u8>,
    result: Result<HandshakeProgress, Error>,
}

fn step(mut handshake: ServerHandshake, received: &[u8]) -> HandshakeStep {
    let mut out = Vec::new();
    let result = handshake.handle(received, &mut out);
    HandshakeStep { handshake, out, result }
}

/// The certificates whose names have variables in them, of this connection.
async fn compute(
    worker: &Rc<Worker>,
    connection: &Rc<ClientConnection>,
    server: &Rc<VirtualServer>,
    tls: &Arc<ServerTls>,
    config: &ServerConfig,
) -> Result<ServerConfig, HandshakeRefusal> {
    let mut x = worker.take_exchange(connection, server);
    let mut names = Vec::new();
    for (certificate, key) in &tls.computed {
        let mut name = |script: &weir_engine::variable::ValueScript| {
            let value = script.value(&mut x);
            String::from_utf8_lossy(x.text(&value)).into_owned()
        };
        let prefix = &tls.common().conf_prefix;
        let (certificate, key) = (name(certificate), name(key));
        names.push(CertificateFiles {
            certificate: absolute(prefix, certificate),
            key: absolute(prefix, key),
        });
    }
    worker.give_exchange(x);
    let known: Option<Vec<Certificate>> = names.iter().map(|names| tls.common().kept.known(names)).collect();
    let loaded: Result<Vec<Certificate>, String> = match known {
        Some(known) => Ok(known),
        None => {
            let reader = tls.clone();
            let load = move |names| reader.common().kept.certificate(names, &reader.common().passwords);
            weir_rt::blocking(move || names.into_iter().map(load).collect()).await
        }
    };
    loaded.map(|loaded| tls.with_computed(config, loaded)).map_err(|message| {
        connection.log(LogLevel::Error, &format_args!("{message} while SSL handshaking"));
        HandshakeRefusal::Certificate
    })
}

fn absolute(prefix: &Path, name: String) -> String {
    if files::is_no_path(&name) {
        return name;
    }
    prefix.join(name).to_string_lossy().into_owned()
}

fn lost(connection: &ClientConnection, gone: &RecvOutcome, action: &str) {
    let (closed, timeout) = match action {
        HANDSHAKING => (CloseReason::HandshakeClosed, CloseReason::HandshakeTimeout),
        _ => (CloseReason::Unused, CloseReason::HeaderTimeout),
    };
    connection.ends(closing::in_the_middle(gone, closed, timeout));
    if action == HANDSHAKING {
        counted::failed(
            connection,
            match gone {
                RecvOutcome::TimedOut => HandshakeFault::Timeout,
                RecvOutcome::Err(_) => HandshakeFault::Reset,
                RecvOutcome::Eof | RecvOutcome::Data(_) => HandshakeFault::Closed,
            },
        );
    }
    let how = match gone {
        RecvOutcome::TimedOut => "client timed out (110: Connection timed out)".to_owned(),
        RecvOutcome::Err(errno) => {
            format!("SSL_do_handshake() failed ({errno}: {})", weir_rt::file::errno_text(*errno))
        }
        RecvOutcome::Eof | RecvOutcome::Data(_) if action == HANDSHAKING => {
            "peer closed connection in SSL handshake".to_owned()
        }
        RecvOutcome::Eof | RecvOutcome::Data(_) => "client closed connection".to_owned(),
    };
    connection.log(LogLevel::Info, &format_args!("{how} while {action}"));
}

/// The description of an alert.
const INTERNAL_ERROR: u8 = 80;

/// OpenSSL's numbers of reasons from here on are alerts that came.
const OF_ALERTS: u32 = 1000;

const HANDSHAKING: &str = "SSL handshaking";

fn failed(connection: &ClientConnection, error: &Error) {
    connection.ends(match error.reason() {
        Some(reason) if reason >= OF_ALERTS => CloseReason::HandshakeAlert,
        _ => CloseReason::HandshakeFailed,
    });
    counted::failed(connection, HandshakeFault::of(error.failure()));
    let message = format_args!("SSL_do_handshake() failed {} while {HANDSHAKING}", files::ssl(error));
    // What a client does is its own affair, a key that fails is not.
    let level = if error.is_own() { LogLevel::Crit } else { LogLevel::Info };
    connection.log(level, &message);
}
