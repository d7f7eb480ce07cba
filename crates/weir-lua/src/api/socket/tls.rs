//! `sslhandshake` and what belongs to it.

use std::rc::Rc;
use std::sync::Arc;

use weir_engine::log::LogLevel;
use weir_engine::worker::UpstreamCloseReason;
use weir_tls::chain::{self, CertificatePurpose};
use weir_tls::{KeptSession, SessionFacts, TrustStore};
use weir_upstream::tls_client::client::ClientTls;
use weir_upstream::tls_client::connect::{NoTls, connect};

use crate::api::socket::conn::SocketConnection;
use crate::api::socket::tcp::{
    SocketBusy, SocketDirection, TcpSocket, had_socket, not_busy, place, socket, wait,
};
use crate::api::ssl;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::PushResults;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_socket.sslhandshake", 0, handshake),
    function("_socket.setclientcert", 0, set_client_certificate),
    function("_socket.getsslsession", 0, |l| {
        let Some(conn) = open(l)? else { return fail(l, "closed") };
        match conn.session.borrow().as_ref() {
            Some(session) => {
                lend::log_plain(LogLevel::Debug, &saved(session));
                l.push_owned(session.clone(), SESSION);
                Ok(CallDone::Results(1))
            }
            None => fail(l, "no session"),
        }
    }),
    function("_socket.session_number", 0, |l| {
        match l.owned::<SocketTlsSession>(1) {
            Some(session) => l.push_number(session.0.number() as f64),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_socket.session_freed", 0, |l| {
        if let Some(session) = l.owned::<SocketTlsSession>(1) {
            lend::log_plain(LogLevel::Debug, &format_args!("lua ssl free session: {:X}", session.0.number()));
        }
        Ok(CallDone::Results(0))
    }),
    function("_socket.settrustedstore", 0, set_trusted_store),
    function("_socket.getsslpointer", 0, |l| fail(l, NO_OPENSSL)),
    function("_socket.getsslctx", 0, |l| fail(l, NO_OPENSSL)),
];

const NO_OPENSSL: &str = "not there: TLS is not OpenSSL's here";

/// `settrustedstore(store)`: nothing, which is what there is without one, or what an `X509_STORE` of OpenSSL's holds.
fn set_trusted_store(l: LuaState) -> CallOutcome {
    let is_store = l.owned::<ssl::ScriptTrust>(2).is_some();
    if !is_store && !l.is_none_or_nil(2) {
        return fail(l, &format!("bad store arg: cdata expected, got {}", l.kind_name(2)));
    }
    if socket(l)?.is_none() && !had_socket(l) {
        return Err(LuaRaise::text("socket is never created nor connected"));
    }
    l.set_top(2);
    l.raw_set_index(1, place::TRUSTED);
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

/// What scripts have of a session.
pub(super) struct SocketTlsSession(KeptSession);

/// What the arguments of `sslhandshake` say.
struct HandshakeWish {
    tls: Arc<ClientTls>,
    name: Option<String>,
    verify: bool,
    /// The script wants the session, not `true`.
    session: bool,
    given: Option<Rc<SocketTlsSession>>,
    certificate: Option<ssl::ClientPair>,
    /// Instead of those that the configuration trusts.
    trusted: Option<Rc<ssl::ScriptTrust>>,
}

fn open(l: LuaState) -> Result<Option<Rc<SocketConnection>>, LuaRaise> {
    match socket(l)? {
        Some(socket) => Ok(socket.open(&socket.read_closed).filter(|_| !socket.write_closed.get())),
        None if had_socket(l) => Ok(None),
        None => Err(LuaRaise::text("socket is never created nor connected")),
    }
}

fn handshake(l: LuaState) -> CallOutcome {
    let top = l.top();
    if top == 0 || top > 5 {
        let message = "ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen";
        return Err(LuaRaise::text(format!("{message} {top}")));
    }
    if !matches!(l.kind(3), kind::NONE | kind::NIL | kind::STRING)
        && (l.kind(3) != kind::BOOLEAN || l.boolean(3))
    {
        let given = l.kind_name(3);
        return Err(LuaRaise::text(format!("cannot convert '{given}' to 'const unsigned char *'")));
    }
    let conn = open(l)?;
    lend::log_plain(LogLevel::Debug, &"lua tcp socket ssl handshake");
    let Some(socket) = socket(l)? else { return fail(l, "closed") };
    not_busy!(l, socket, crate::api::socket::tcp::OPEN);
    let Some(conn) = conn else { return fail(l, "closed") };
    if socket.check_owner().is_err() {
        return fail(l, "bad request");
    }
    if conn.is_client() {
        return fail(l, "not supported for downstream sockets");
    }
    let refused = l.kind(2) == kind::BOOLEAN && !l.boolean(2);
    let given = l.owned::<SocketTlsSession>(2);
    if conn.stream().has_layer() {
        if refused {
            l.push_boolean(true);
            return Ok(CallDone::Results(1));
        }
        return again(l, &conn, given);
    }
    let Some(tls) = socket.settings.borrow().as_ref().map(|settings| settings.tls.clone()) else {
        return fail(l, "closed");
    };
    let name = l.bytes(3).map(|name| String::from_utf8_lossy(name).into_owned());
    if let Some(session) = &given {
        lend::log_plain(LogLevel::Debug, &format_args!("lua ssl set session: {:X}", session.0.number()));
    }
    if let Some(name) = &name {
        lend::log_plain(LogLevel::Debug, &format_args!("lua ssl server name: \"{name}\""));
    }
    l.raw_get_index(1, place::CERTIFICATE);
    l.raw_get_index(1, place::KEY_OF_CERTIFICATE);
    let certificate = ssl::client_pair(l, -2, -1);
    l.raw_get_index(1, place::TRUSTED);
    let trusted = l.owned(-1);
    l.pop(3);
    let wanted =
        HandshakeWish { tls, name, verify: l.boolean(4), session: !refused, given, certificate, trusted };
    let busy = SocketBusy::new(&socket, SocketDirection::Connect);
    socket.dialing.set(true);
    wait(|notes| Box::pin(shaking(busy, conn, wanted, notes)))
}

/// The line about a session that a script gets.
fn saved(session: &SocketTlsSession) -> String {
    format!("lua ssl save session: {:X}", session.0.number())
}

/// What a second handshake gives to a script that wants the session.
fn again(l: LuaState, conn: &SocketConnection, given: Option<Rc<SocketTlsSession>>) -> CallOutcome {
    match given.or_else(|| conn.session.borrow().clone()) {
        Some(session) => {
            lend::log_plain(LogLevel::Debug, &saved(&session));
            l.push_owned(session, SESSION);
        }
        None => l.push_nil(),
    }
    Ok(CallDone::Results(1))
}

async fn shaking(
    busy: SocketBusy,
    conn: Rc<SocketConnection>,
    wanted: HandshakeWish,
    notes: LogNotes,
) -> PushResults {
    let socket = busy.socket.clone();
    let made = run(&socket, &conn, &wanted, &notes).await;
    busy.over();
    match made {
        Ok(session) => {
            *conn.session.borrow_mut() = Some(session.clone());
            let gives = wanted.session;
            Box::new(move |l| {
                match gives {
                    true => l.push_owned(session, SESSION),
                    false => l.push_boolean(true),
                }
                1
            })
        }
        Err(reason) => {
            socket.finalize(UpstreamCloseReason::HandshakeFailed);
            Box::new(move |l| {
                l.push_nil();
                l.push_bytes(reason.as_bytes());
                2
            })
        }
    }
}

/// Shakes hands, and determines whether the server is the one that is meant.
async fn run(
    socket: &TcpSocket,
    conn: &SocketConnection,
    wanted: &HandshakeWish,
    notes: &LogNotes,
) -> Result<Rc<SocketTlsSession>, String> {
    let tls = &wanted.tls;
    let config = match &wanted.certificate {
        None => tls.config().clone(),
        Some(pair) => tls.config_with(pair.certificate().await?)?,
    };
    let session = wanted.given.clone().unwrap_or_else(|| Rc::new(SocketTlsSession(KeptSession::default())));
    let config = config.with_session(&session.0, wanted.name.is_some());
    conn.read_timer.touch(socket.timeouts.get().connect);
    let name = wanted.name.as_deref().unwrap_or_default();
    let facts = connect(conn.stream(), &conn.read_timer, &config, name).await;
    conn.read_timer.disarm();
    if let Some(why) = tls.take_key_log_error() {
        notes.push(LogLevel::Error, why);
    }
    let facts = facts.map_err(|failed| match failed {
        NoTls::TimedOut => "timeout".to_owned(),
        NoTls::Failed(message) => {
            notes.push(LogLevel::Error, format!("{message}{}", conn.peer));
            "handshake failed".to_owned()
        }
    })?;
    notes.push(LogLevel::Debug, facts.agreed().to_string());
    if facts.resumed {
        notes.push(LogLevel::Debug, "SSL reused session".to_owned());
    }
    if wanted.verify {
        check(socket, conn, wanted, &facts, notes)?;
    }
    if wanted.session {
        notes.push(LogLevel::Debug, saved(&session));
    }
    Ok(session)
}

fn check(
    socket: &TcpSocket,
    conn: &SocketConnection,
    wanted: &HandshakeWish,
    facts: &SessionFacts,
    notes: &LogNotes,
) -> Result<(), String> {
    let nobody = TrustStore { certificates: Vec::new(), crls: Vec::new() };
    let (trust, depth) = wanted.tls.trust().unwrap_or((&nobody, 1));
    let trust = wanted.trusted.as_ref().map_or(trust, |own| &*own.0);
    let now = weir_rt::unix_time().0;
    if let Err(problem) = chain::check(&facts.peer, trust, depth, CertificatePurpose::Server, now) {
        let (code, text) = (problem.code, problem.text);
        if socket.logs_errors() {
            notes.push(
                LogLevel::Error,
                format!("lua ssl certificate verify error: ({code}: {text}){}", conn.peer),
            );
        }
        return Err(format!("{code}: {text}"));
    }
    let Some(name) = &wanted.name else { return Ok(()) };
    if facts.peer.first().is_some_and(|own| weir_tls::matches_host(own, name)) {
        return Ok(());
    }
    if socket.logs_errors() {
        notes.push(
            LogLevel::Error,
            format!("lua ssl certificate does not match host \"{name}\"{}", conn.peer),
        );
    }
    Err("certificate host mismatch".to_owned())
}

fn set_client_certificate(l: LuaState) -> CallOutcome {
    socket(l)?;
    let none = |at| l.is_none_or_nil(at) || (l.kind(at) == kind::BOOLEAN && !l.boolean(at));
    match (none(2), none(3)) {
        (true, true) => {}
        (false, false) => {
            for (at, what) in [(2, "cert"), (3, "pkey")] {
                if l.kind(at) != kind::USERDATA {
                    return fail(l, &format!("bad {what} arg: cdata expected, got {}", l.kind_name(at)));
                }
            }
            if ssl::client_pair(l, 2, 3).is_none() {
                return fail(l, "bad cert or pkey arg: those of ngx.ssl expected");
            }
        }
        _ => return fail(l, "client certificate must be supplied with corresponding private key"),
    }
    l.set_top(3);
    l.raw_set_index(1, place::KEY_OF_CERTIFICATE);
    l.raw_set_index(1, place::CERTIFICATE);
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

/// The registry's name for the metatable of [`SocketTlsSession`].
const SESSION: &std::ffi::CStr = c"weir.tls_session";
