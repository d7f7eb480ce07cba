//! `ngx.req.socket` of sessions of `stream`: the client's connection itself, with `peek` and `shutdown`.
//!
//! Bytes that a script has not taken are the next phase's: they go back to the connection when the script ends.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use weir_engine::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::settings::session::SessionSettings;
use weir_rt::RecvOutcome;

use crate::api::socket::conn::{SocketConnection, SocketPeer, SocketStream};
use crate::api::socket::request;
use crate::api::socket::tcp::{
    SocketBusy, SocketDirection, TcpSocket, bad_argument, closed, not_busy, socket, wait,
};
use crate::api::socket::udp::flow;
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::PushResults;
use crate::vm::phase::{OUTPUT, ScriptPhase};

pub(super) const TABLE: &[ApiFunction] = &[
    function("req._session_socket", OUTPUT, session_socket),
    function("_socket.peek", ScriptPhase::Preread as u32, peek),
    function("_socket.shutdown", 0, shutdown),
];

/// The client of a session as its scripts have it, for as long as the session.
#[derive(Default)]
pub(crate) struct SessionClient {
    socket: Option<Rc<TcpSocket>>,
    conn: Option<Rc<SocketConnection>>,
    /// A script has said that nothing more comes.
    pub(crate) ended: bool,
    /// Of the bytes that scripts have taken, those that are counted with the session.
    counted: u64,
    /// Until when bytes to look at are waited for, by the loop's clock.
    peek_until: Option<u64>,
}

/// Gives a script of `x` what has come meanwhile, if one before it has asked for the connection.
pub(crate) fn lend_client(x: &mut Exchange) {
    let Some(conn) = x.state_if::<SessionClient>().and_then(|client| client.conn.clone()) else { return };
    if let Some(client) = x.transport.client() {
        conn.input.borrow_mut().add(&client.early());
    }
}

/// A script of `x` has ended: what it has not taken of what has come goes back to the connection.
pub(crate) fn take_client_back(x: &mut Exchange) {
    flow::take_back(x);
    let Some(conn) = x.state_if::<SessionClient>().and_then(|client| client.conn.clone()) else { return };
    let mut input = conn.input.borrow_mut();
    let used = input.used();
    let more = used - std::mem::replace(&mut x.state::<SessionClient>().counted, used);
    if let Some(bytes) = x.session() {
        bytes.from_client.set(bytes.from_client.get() + more);
    }
    if let (Some(wire), false) = (x.transport.wire(), input.rest().is_empty()) {
        wire.input.borrow_mut().give(input.rest().to_vec());
        input.forget();
    }
}

fn session_socket(l: LuaState) -> CallOutcome {
    if l.top() > 1 {
        return Err(LuaRaise::text(format!("expecting 0 or 1 argument, but got {}", l.top())));
    }
    if lend::exchange(|x| x.transport.flow().is_some())? {
        return flow::push(l);
    }
    let client = lend::exchange(|x| x.transport.client().filter(|client| client.stream().is_some()))?;
    let Some(client) = client else { return fail(l, "no session") };
    let conn = lend::exchange(|x| x.state::<SessionClient>().conn.clone())?.unwrap_or_else(|| {
        let peer = SocketPeer { host: String::new(), port: 0, address: String::new() };
        let conn = SocketConnection::new(SocketStream::Client(client.clone()), Rc::new(peer));
        conn.input.borrow_mut().add(&client.early());
        Rc::new(conn)
    });
    let known = lend::exchange(|x| x.state::<SessionClient>().socket.clone())?;
    // One whose wait was called off has lost the connection.
    let socket = known.filter(|socket| socket.conn.borrow().is_some()).unwrap_or_default();
    *socket.conn.borrow_mut() = Some(conn.clone());
    lend::exchange(|x| {
        let client = x.state::<SessionClient>();
        (client.socket, client.conn) = (Some(socket.clone()), Some(conn));
    })?;
    request::push(l, &socket, c"__tcp_session_cosocket_mt")
}

/// `sock:peek(size)`: the first bytes, which stay where they are; or how the session ends, as the third result.
fn peek(l: LuaState) -> CallOutcome {
    if l.top() != 2 {
        let top = l.top();
        return Err(LuaRaise::text(format!("expecting 2 arguments (including the object), but got {top}")));
    }
    let socket = socket(l)?;
    let conn = socket.as_ref().and_then(|socket| socket.open(&socket.read_closed));
    let (Some(socket), Some(conn)) = (socket.clone(), conn) else {
        return closed(l, "peek", socket.as_ref());
    };
    socket.check_owner()?;
    not_busy!(l, socket, &[SocketDirection::Read]);
    if conn.input.borrow().used() > 0 {
        return Err(LuaRaise::text("attempt to peek on a consumed socket"));
    }
    let size = match l.number(2) {
        Some(number) if number >= 1.0 => number as usize,
        _ => return Err(bad_argument(l, 2, "bad size argument")),
    };
    let settings = lend::exchange(|x| x.plan.kept::<SessionSettings>().copied().unwrap_or_default())?;
    let most = usize::try_from(settings.preread_buffer_size).unwrap_or(usize::MAX);
    let ask = PeekAsked { size, most };
    if let Some(end) = ask.look(&conn) {
        if let PeekEnd::Full = end {
            lend::log_plain(LogLevel::Error, &FULL);
        }
        return Ok(CallDone::Results(end.push(l, &conn, size)));
    }
    let now = weir_rt::now_ms();
    let until = lend::exchange(|x| {
        *x.state::<SessionClient>().peek_until.get_or_insert(now.saturating_add(settings.preread_timeout))
    })?;
    let busy = SocketBusy::new(&socket, SocketDirection::Read);
    wait(|notes| Box::pin(peeking(busy, conn, ask, until.saturating_sub(now).max(1), notes)))
}

/// What a script wants to look at.
#[derive(Clone, Copy)]
struct PeekAsked {
    /// How many bytes.
    size: usize,
    /// `preread_buffer_size`
    most: usize,
}

/// How a look ended.
#[derive(Clone, Copy)]
enum PeekEnd {
    Seen,
    /// More is wanted than may be looked at.
    Full,
    /// Nothing more comes, or not in time: as in nginx the session ends as any other.
    Over,
}

impl PeekAsked {
    fn look(self, conn: &SocketConnection) -> Option<PeekEnd> {
        let there = conn.input.borrow().rest().len();
        match self {
            PeekAsked { size, most } if size <= there && size <= most => Some(PeekEnd::Seen),
            PeekAsked { size, most } if size > most && there >= most => Some(PeekEnd::Full),
            _ => None,
        }
    }
}

impl PeekEnd {
    fn push(self, l: LuaState, conn: &SocketConnection, size: usize) -> i32 {
        let status = match self {
            PeekEnd::Seen => {
                l.push_bytes(&conn.input.borrow().rest()[..size]);
                return 1;
            }
            PeekEnd::Full => 400.0,
            PeekEnd::Over => 200.0,
        };
        l.push_nil();
        l.push_nil();
        l.push_number(status);
        3
    }
}

async fn peeking(
    busy: SocketBusy,
    conn: Rc<SocketConnection>,
    ask: PeekAsked,
    timeout: u64,
    notes: LogNotes,
) -> PushResults {
    conn.read_timer.touch(timeout);
    let end = poll_fn(|cx| {
        loop {
            if let Some(end) = ask.look(&conn) {
                return Poll::Ready(end);
            }
            match conn.stream().poll_recv(cx, Some(&conn.read_timer)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(RecvOutcome::Data(bytes)) => conn.input.borrow_mut().add(&bytes),
                Poll::Ready(_) => return Poll::Ready(PeekEnd::Over),
            }
        }
    })
    .await;
    conn.read_timer.disarm();
    busy.over();
    if let PeekEnd::Full = end {
        notes.push(LogLevel::Error, FULL.to_owned());
    }
    Box::new(move |l| end.push(l, &conn, ask.size))
}

/// nginx's words for a look that has found no end.
const FULL: &str = "preread buffer full while prereading client data";

/// `sock:shutdown("send")`: nothing more is sent, what the other side says can still be received.
fn shutdown(l: LuaState) -> CallOutcome {
    if l.top() != 2 {
        let top = l.top();
        return Err(LuaRaise::text(format!("expecting 2 arguments (including the object), but got {top}")));
    }
    let socket = socket(l)?;
    let Some(socket) = socket.filter(|socket| socket.conn.borrow().is_some()) else {
        return fail(l, "closed");
    };
    socket.check_owner()?;
    if l.bytes(2) != Some(b"send") {
        return Err(bad_argument(l, 2, &format!("bad shutdown argument: {}", l.lossy(2))));
    }
    not_busy!(l, socket, &[SocketDirection::Dial, SocketDirection::Write]);
    let Some(conn) = socket.open(&socket.write_closed) else { return fail(l, "already shutdown") };
    if conn.is_client() {
        if conn.stream().unsent() > 0 {
            return fail(l, "socket busy writing");
        }
        lend::exchange(|x| x.state::<SessionClient>().ended = true)?;
    }
    socket.write_closed.set(true);
    if conn.stream().shutdown_write().is_err() {
        return fail(l, "closed");
    }
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}
