//! From a ClientHello by way of the scripts to the handshake's settings.

use std::cell::RefCell;
use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::exchange::RunOrigin;
use weir_engine::log::LogLevel;
use weir_engine::phase::LocalFuture;
use weir_server::tls::{ClientGreeting, HandshakeChoice, HandshakeRefusal, HelloHandler, HelloVerdict};
use weir_tls::suites::ProtocolVersions;

use crate::api::ssl::{ClientHandshake, CurrentHandshake, HandshakeWishes, ctx, parsed};
use crate::hooks::phases::ScriptHome;
use crate::run::drive::drive;
use crate::run::op::ScriptEnd;
use crate::run::owned_run::OwnedRun;
use crate::run::script_run::ScriptRun;
use crate::run::settings::ScriptSettings;
use crate::vm::chunk::{ScriptChunk, ScriptSource};
use crate::vm::phase::ScriptPhase;

/// The scripts of a server's handshakes, as written.
#[derive(Clone, Default)]
pub(crate) struct HandshakeSources {
    pub(crate) client_hello: Option<ScriptSource>,
    pub(crate) certificate: Option<ScriptSource>,
    pub(crate) session_fetch: Option<ScriptSource>,
    pub(crate) session_store: Option<ScriptSource>,
    /// `proxy_ssl_certificate_by_lua`
    pub(crate) shown: Option<ScriptSource>,
    /// `proxy_ssl_verify_by_lua`
    pub(crate) verify: Option<ScriptSource>,
    /// `lua_upstream_skip_openssl_default_verify`
    pub(crate) judges_alone: Option<bool>,
}

impl HandshakeSources {
    /// Whether clients' handshakes have any.
    pub(crate) fn are_for_clients(&self) -> bool {
        let all = [&self.client_hello, &self.certificate, &self.session_fetch, &self.session_store];
        all.iter().any(|source| source.is_some())
    }

    /// Whether handshakes with servers have any.
    pub(crate) fn are_for_servers(&self) -> bool {
        self.shown.is_some() || self.verify.is_some()
    }
}

/// The scripts of a server's handshakes.
pub(crate) struct ClientScripts {
    home: ScriptHome,
    settings: ScriptSettings,
    client_hello: Option<ScriptChunk>,
    certificate: Option<ScriptChunk>,
    session_fetch: Option<ScriptChunk>,
    session_store: Option<ScriptChunk>,
}

impl ClientScripts {
    pub(crate) fn new(
        home: &ScriptHome,
        settings: ScriptSettings,
        sources: &HandshakeSources,
    ) -> ClientScripts {
        let chunk = |source: &Option<ScriptSource>| source.clone().map(ScriptChunk::new);
        ClientScripts {
            home: home.clone(),
            settings,
            client_hello: chunk(&sources.client_hello),
            certificate: chunk(&sources.certificate),
            session_fetch: chunk(&sources.session_fetch),
            session_store: chunk(&sources.session_store),
        }
    }

    async fn decide(&self, greeting: &ClientGreeting) -> HelloVerdict {
        let handshake = Rc::new(ClientHandshake { greeting: greeting.clone(), wishes: RefCell::default() });
        debug(greeting, &"reusable connection: 0");
        if let Some(chunk) = &self.client_hello
            && !self.run(ScriptPhase::SslClientHello, chunk, &handshake).await
        {
            return HelloVerdict::Reject(HandshakeRefusal::Hello);
        }
        if let Some(chunk) = &self.session_fetch
            && handshake.names_a_session()
        {
            // A script that fails has found none: the handshake is a whole one.
            let _ = self.run(ScriptPhase::SslSessionFetch, chunk, &handshake).await;
        }
        if let Some(chunk) = &self.certificate
            && !self.run(ScriptPhase::SslCertificate, chunk, &handshake).await
        {
            return HelloVerdict::Reject(HandshakeRefusal::Certificate);
        }
        self.tell_skipped(&handshake);
        let wishes = handshake.wishes.take();
        // Sessions need identifiers also where a script only fetches them.
        let keeps = self.session_store.is_some() || self.session_fetch.is_some();
        match choice(wishes, keeps).await {
            Ok(choice) => HelloVerdict::Choose(Box::new(choice)),
            Err(message) => {
                let message = format_args!("{message} while SSL handshaking");
                greeting.connection.log(LogLevel::Error, &message);
                HelloVerdict::Reject(HandshakeRefusal::Certificate)
            }
        }
    }

    /// OpenResty's debug lines for scripts of sessions that TLS 1.3 has no use for.
    fn tell_skipped(&self, handshake: &ClientHandshake) {
        let version = handshake.version();
        let scripts = [
            (ScriptPhase::SslSessionFetch, &self.session_fetch),
            (ScriptPhase::SslSessionStore, &self.session_store),
        ];
        for (phase, _) in scripts.iter().filter(|(_, chunk)| version >= 0x0304 && chunk.is_some()) {
            let line = format_args!("{}*: skipped since TLS version >= 1.3 ({version})", phase.label());
            debug(&handshake.greeting, &line);
        }
    }

    /// Runs a script to its end; whether the handshake goes on.
    async fn run(&self, phase: ScriptPhase, chunk: &ScriptChunk, handshake: &Rc<ClientHandshake>) -> bool {
        let mut x = begin(phase, handshake);
        let step = match phase {
            ScriptPhase::SslClientHello => "client hello",
            ScriptPhase::SslSessionFetch => "session fetch",
            _ => "cert",
        };
        x.log(LogLevel::Debug, &format_args!("ssl {step}: connection reusable: 0"));
        let end = match self.begin_run(phase, chunk, &mut x) {
            Ok(mut run) => {
                let end = drive(&mut run, &mut x, &self.settings).await;
                ctx::keep(&mut x, run.vm());
                end
            }
            Err(message) => {
                x.log(LogLevel::Error, &message);
                Some(ScriptEnd::Error)
            }
        };
        let good = goes_on(&mut x, phase, end.as_ref());
        x.end_alone(matches!(end, Some(ScriptEnd::Error)));
        good
    }

    fn begin_run(
        &self,
        phase: ScriptPhase,
        chunk: &ScriptChunk,
        x: &mut Exchange,
    ) -> Result<OwnedRun, String> {
        let vm = self.home.vm(x)?;
        ctx::adopt(x, &vm);
        chunk.push(&vm, Some(x)).map_err(|unloaded| unloaded.message)?;
        Ok(ScriptRun::begin(&vm, phase))
    }

    fn store(&self, chunk: &ScriptChunk, handshake: &Rc<ClientHandshake>) {
        let phase = ScriptPhase::SslSessionStore;
        let mut x = begin(phase, handshake);
        x.log(LogLevel::Debug, &"ssl session store: connection reusable: 0");
        let stored = self.home.vm(&mut x).and_then(|vm| {
            ctx::adopt(&mut x, &vm);
            let ran = vm.run_for(chunk, phase, &mut x);
            ctx::keep(&mut x, &vm);
            ran
        });
        if let Err(message) = &stored {
            // OpenResty has another name for it here.
            x.log(LogLevel::Error, &message.replacen("run ssl_session_store", "run session_store", 1));
        }
        let label = phase.label();
        x.log(LogLevel::Debug, &format_args!("{label}*: handler return value: 0, sess new cb exit code: 0"));
        x.end_alone(stored.is_err());
    }
}

/// Whether the handshake goes on after a script that ended like this; OpenResty's debug lines about it are logged.
pub(crate) fn goes_on(x: &mut Exchange, phase: ScriptPhase, end: Option<&ScriptEnd>) -> bool {
    let (good, code) = match end {
        None => (true, 0),
        Some(ScriptEnd::Exit(code)) => (*code <= 0 && *code != -1, *code),
        Some(_) => (false, 500),
    };
    if let Some(ScriptEnd::Exit(code)) = end {
        x.log(LogLevel::Debug, &format_args!("lua exit with code {code}"));
    }
    let label = phase.label();
    let callback = if phase == ScriptPhase::SslClientHello { "client hello cb" } else { "cert cb" };
    let exit = u8::from(good);
    x.log(
        LogLevel::Debug,
        &format_args!("{label}: handler return value: {code}, {callback} exit code: {exit}"),
    );
    x.log(LogLevel::Debug, &format_args!("{label}: {callback} exit code: {exit}"));
    good
}

/// Logs at `debug`.
fn debug(greeting: &ClientGreeting, message: &dyn std::fmt::Display) {
    greeting.connection.log(LogLevel::Debug, message);
}

/// An exchange of no request for a script of the handshake.
fn begin(phase: ScriptPhase, handshake: &Rc<ClientHandshake>) -> Box<Exchange> {
    let ClientGreeting { worker, connection, hello, .. } = &handshake.greeting;
    let name = hello.server_name.as_deref().unwrap_or_default();
    let mut x = Exchange::alone(worker, &RunOrigin::of(connection), phase.context(), name);
    x.state::<CurrentHandshake>().0 = Some(handshake.clone());
    x
}

impl HelloHandler for ClientScripts {
    fn handle<'h>(&'h self, greeting: &'h ClientGreeting) -> LocalFuture<'h, HelloVerdict> {
        Box::pin(self.decide(greeting))
    }

    fn made(&self, greeting: &ClientGreeting, id: &[u8], session: &[u8]) {
        let Some(chunk) = &self.session_store else { return };
        let made = Some((id.to_vec(), session.to_vec()));
        let wishes = RefCell::new(HandshakeWishes { made, ..HandshakeWishes::default() });
        self.store(chunk, &Rc::new(ClientHandshake { greeting: greeting.clone(), wishes }));
    }
}

/// What the handshake does otherwise.
///
/// # Errors
/// A device does not have a key.
async fn choice(wishes: HandshakeWishes, keeps: bool) -> Result<HandshakeChoice, String> {
    let certificates = parsed::certificates(&wishes.chains, &wishes.keys).await?;
    Ok(HandshakeChoice {
        // A certificate whose key is missing is not used with the server's key.
        cleared: wishes.cleared || certificates.is_none(),
        certificates: certificates.unwrap_or_default(),
        status: wishes.status,
        protocols: wishes.protocols,
        random: wishes.random,
        clients: wishes.clients,
        session: wishes.found,
        keeps,
        unresumable: wishes.unresumable,
    })
}

impl ClientHandshake {
    /// The client asks for a session of TLS 1.2 by its identifier, and has no ticket.
    fn names_a_session(&self) -> bool {
        let hello = &self.greeting.hello;
        let ticket = hello.extension_of(SESSION_TICKET).is_some_and(|ticket| !ticket.is_empty());
        self.version() == 0x0303 && !hello.session_id.is_empty() && !ticket
    }

    /// The random bytes of the ServerHello, chosen now if they were not yet. `None`: the handshake has none.
    pub(crate) fn random(&self) -> Option<[u8; 32]> {
        let (known, offered) = (self.wishes.borrow().random, self.offered());
        let mut random = known.unwrap_or_default();
        if known.is_none() {
            aws_lc_rs::rand::fill(&mut random).ok()?;
            if offered.tls13 && self.version() == 0x0303 {
                random[24..].copy_from_slice(DOWNGRADE);
            }
            self.wishes.borrow_mut().random = Some(random);
        }
        Some(random)
    }

    fn offered(&self) -> ProtocolVersions {
        self.wishes.borrow().protocols.unwrap_or(self.greeting.protocols)
    }

    /// The version that is agreed upon, by its number.
    pub(crate) fn version(&self) -> u16 {
        let offered = self.offered();
        match offered.tls13 && self.greeting.hello.versions.contains(&0x0304) {
            true => 0x0304,
            false => 0x0303,
        }
    }
}

/// The end of random bytes that mark a version lower than could be had (RFC 8446, section 4.1.3).
const DOWNGRADE: &[u8; 8] = b"DOWNGRD\x01";
/// RFC 5077, section 3.2.
const SESSION_TICKET: u16 = 35;
