//! A connection to a server of `stream`, or a flow of datagrams: one session from its first byte to its end.

use std::rc::Rc;

use weir_engine::Verdict;
use weir_engine::engine::session;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::request_head::ClientJudge;
use weir_engine::settings::session::SessionSettings;
use weir_engine::transport::flow::{ClientFlow, FlowEntry};
use weir_engine::transport::passed::SessionPass;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientConnection, ConnectionEntry, Transport};
use weir_engine::worker::{CloseProtocol, CloseReason, Worker};
use weir_trace::WaitKind;

use super::flows::TableEntry;
use super::{accept, proxy};
use crate::tls;
use crate::tls::accept::HandshakeOwner;
use crate::tls::accepted::TlsJudge;

/// Starts the task of a session.
pub(crate) fn start(
    worker: Rc<Worker>,
    connection: Rc<ClientConnection>,
    wire: Rc<ClientWire>,
    open: ConnectionEntry,
    proxy_protocol: bool,
) {
    connection.speaks(CloseProtocol::Session);
    wire.idle.set(false);
    let owner = connection.clone();
    let task = async move {
        let mut session = OpenSession::new(&worker, &connection);
        match run(session.exchange(), &wire, proxy_protocol).await {
            Some(pass) => go_on(&worker, session, wire, open, &pass),
            None => {
                drop(session);
                drop(open);
            }
        }
    };
    super::spawn(&owner, task);
}

/// As [`start`], of a session over UDP. `entries`: of the worker and of its socket's table.
pub(super) fn start_flow(
    worker: Rc<Worker>,
    connection: Rc<ClientConnection>,
    flow: Rc<ClientFlow>,
    entries: (FlowEntry, TableEntry),
) {
    connection.speaks(CloseProtocol::Session);
    let owner = connection.clone();
    let task = async move {
        let (open, listed) = entries;
        let mut session = OpenSession::new(&worker, &connection);
        run_flow(session.exchange(), flow, listed).await;
        drop(session);
        drop(open);
    };
    super::spawn(&owner, task);
}

async fn run_flow(x: &mut Exchange, flow: Rc<ClientFlow>, listed: TableEntry) {
    session::begin(x, Transport::Flow(flow.clone()));
    x.worker.counters.writing.add(1);
    log_begin(x, "udp ");
    let verdict = match session::admit(x).await {
        Ok(()) => listed.until_end(session::serve(x)).await,
        Err(verdict) => verdict,
    };
    // What comes from here on begins another session.
    drop(listed);
    x.connection.ends(flow.ended().unwrap_or_else(|| reason(x, &verdict)));
    session::end(x, verdict).await;
    x.worker.counters.writing.sub(1);
}

fn log_begin(x: &Exchange, kind: &str) {
    if x.hears(LogLevel::Info) {
        let (peer, address) = (&x.connection.peer, x.connection.hosts.borrow().addr.clone());
        x.connection.log_idle(LogLevel::Info, &format_args!("{kind}client {peer} connected to {address}"));
    }
}

/// The session up to its end; where its connection goes on, if it does.
async fn run(x: &mut Exchange, wire: &Rc<ClientWire>, proxy_protocol: bool) -> Option<SessionPass> {
    session::begin(x, Transport::Session(wire.clone()));
    x.worker.counters.writing.add(1);
    log_begin(x, "");
    let verdict = content(x, wire, proxy_protocol).await;
    let pass = x.session().and_then(|session| session.goes_on.take());
    if pass.is_some() {
        session::pass_on(x);
    } else {
        x.connection.ends(reason(x, &verdict));
        wire.flush();
        if !is_unserved(x, wire, &verdict) {
            drain(x, wire).await;
        }
        session::end(x, verdict).await;
    }
    x.worker.counters.writing.sub(1);
    pass
}

/// The connection is one to another address from here on, with what was read of it and not used.
fn go_on(
    worker: &Rc<Worker>,
    mut session: OpenSession,
    wire: Rc<ClientWire>,
    open: ConnectionEntry,
    pass: &SessionPass,
) {
    let Some(x) = session.x.take() else { return };
    let before = x.connection.clone();
    let connection = match before.passed_on(worker, pass) {
        Ok(connection) => Rc::new(connection),
        Err(reason) => {
            before.log(LogLevel::Alert, &reason);
            before.ends(CloseReason::ErrorStatus);
            return worker.give_exchange(x);
        }
    };
    wire.idle.set(true);
    wire.idle_since.set(weir_rt::now_ms());
    let open = open.passed_on(x, &wire, &connection);
    accept::serve(worker, connection, wire, open, pass.address());
}

/// Whether the session has failed before the client was sent anything. Its connection is closed as it is then, as by nginx: where bytes
/// of the client are unread, the system resets it, and the client sees that it was not served, and not an end like others.
fn is_unserved(x: &Exchange, wire: &ClientWire, verdict: &Verdict) -> bool {
    let failed = matches!(verdict, Verdict::Status(400..));
    failed && !x.connection.expects_tls && wire.written() == 0 && wire.pending() == 0
}

/// Says that nothing follows, and waits until that and what was sent before have left: a socket that is closed before discards
/// them. A client that takes nothing ends this by the timer.
async fn drain(x: &Exchange, wire: &ClientWire) {
    // One that is gone needs neither.
    let _gone = wire.stream.shutdown_write();
    if wire.stream.unsent() > 0 && !wire.broken.get() {
        wire.timer.arm(x.plan.core.send_timeout);
        let _gone = wire.stream.drained(0, Some(&wire.timer)).await;
    }
}

/// The session up to its end, which is given.
async fn content(x: &mut Exchange, wire: &Rc<ClientWire>, proxy_protocol: bool) -> Verdict {
    let settings = x.plan.kept::<SessionSettings>().copied().unwrap_or_default();
    let connection = x.connection.clone();
    if proxy_protocol && !proxy::read(&connection, wire, settings.proxy_protocol_timeout).await {
        return Verdict::Status(400);
    }
    if let Err(verdict) = session::admit(x).await {
        return verdict;
    }
    if connection.expects_tls && !agree(x, wire).await {
        return Verdict::Status(500);
    }
    session::serve(x).await
}

/// Completes the TLS handshake; from there on the server is the one that its name has chosen. `false`: it has failed, or the client
/// has no certificate that the server takes.
async fn agree(x: &mut Exchange, wire: &Rc<ClientWire>) -> bool {
    let (worker, connection) = (x.worker.clone(), x.connection.clone());
    let handshake = tls::accept::run(&worker, &connection, wire, HandshakeOwner::Session);
    let shared = x.shared.clone();
    let agreed = shared.waiting_for(WaitKind::ClientRead, Box::pin(handshake)).await;
    if agreed.is_none() {
        return false;
    }
    connection.speaks(CloseProtocol::Session);
    choose_server(x) && TlsJudge::check(x).is_ok()
}

/// The server is the one that the name in the handshake has chosen, and captures of its pattern are the session's. `false`: which one it
/// is is not known.
fn choose_server(x: &mut Exchange) -> bool {
    let connection = x.connection.clone();
    x.server = connection.server();
    x.plan = x.server.plan.clone();
    let Some(name) = connection.hello.get().and_then(|hello| hello.server_name.clone()) else { return true };
    x.request.host = x.arena.push(name.as_bytes());
    let hosts = connection.hosts.borrow().clone();
    hosts.is_single() || hosts.choose(x).is_ok()
}

/// Why the connection ends with a session that ended so, unless what ended it has said so.
fn reason(x: &Exchange, verdict: &Verdict) -> CloseReason {
    match verdict {
        Verdict::Status(_) | Verdict::Close(_) => CloseReason::ErrorStatus,
        _ if x.connection.is_retired() => CloseReason::Shutdown,
        _ => CloseReason::Tunnel,
    }
}

/// The exchange of a session. Dropping it gives the exchange back to the worker.
struct OpenSession {
    worker: Rc<Worker>,
    x: Option<Box<Exchange>>,
}

impl OpenSession {
    fn new(worker: &Rc<Worker>, connection: &Rc<ClientConnection>) -> OpenSession {
        let x = worker.take_exchange(connection, &connection.server());
        OpenSession { worker: worker.clone(), x: Some(x) }
    }

    fn exchange(&mut self) -> &mut Exchange {
        self.x.as_mut().expect("taken only when dropped")
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        if let Some(x) = self.x.take() {
            self.worker.give_exchange(x);
        }
    }
}
