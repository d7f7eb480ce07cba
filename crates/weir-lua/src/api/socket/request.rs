//! `ngx.req.socket`: the request's body as it comes, or the client's connection itself.

use std::cell::RefCell;
use std::rc::Rc;

use weir_engine::Exchange;

use crate::api::socket::conn::{SocketConnection, SocketInput, SocketPeer, SocketStream};
use crate::api::socket::tcp::{NAME, TcpSocket, place, settings};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::vm::phase::OUTPUT;

pub(super) const TABLE: &[ApiFunction] = &[function("req.socket", OUTPUT, request_socket)];

/// The body of a request is, or was, received by a script.
#[derive(Default)]
struct TakenBody {
    body: bool,
    raw: bool,
}

/// Whether a script has the request's body as a socket.
pub(crate) fn receives_body(x: &mut Exchange) -> bool {
    x.state::<TakenBody>().body
}

fn request_socket(l: LuaState) -> CallOutcome {
    if l.top() > 1 {
        return Err(LuaRaise::text(format!("expecting 0 or 1 argument, but got {}", l.top())));
    }
    let raw = l.boolean(1);
    if lend::exchange(|x| x.is_subrequest())? {
        return Err(LuaRaise::text("attempt to read the request body in a subrequest"));
    }
    if raw { raw_socket(l) } else { body_socket(l) }
}

fn body_socket(l: LuaState) -> CallOutcome {
    let refused = lend::exchange(|x| {
        if x.body.is_read() || x.state::<TakenBody>().body || x.state::<TakenBody>().raw {
            return Some("request body already exists");
        }
        let http1 = x.transport.h1().is_some();
        if http1 && x.request.head.chunked {
            return Some("chunked request bodies not supported yet");
        }
        // A body over HTTP/2 may have no length.
        if !x.body.is_pending() || (http1 && x.request.head.content_length.is_none_or(|length| length == 0)) {
            return Some("no body");
        }
        x.state::<TakenBody>().body = true;
        None
    })?;
    if let Some(refused) = refused {
        return fail(l, refused);
    }
    let socket = Rc::<TcpSocket>::default();
    *socket.body.borrow_mut() = Some(Rc::new(RefCell::new(SocketInput::default())));
    push(l, &socket, c"__tcp_req_cosocket_mt")
}

fn raw_socket(l: LuaState) -> CallOutcome {
    let client = lend::exchange(|x| x.transport.client().filter(|client| client.stream().is_some()))?;
    let Some(client) = client else { return Err(LuaRaise::text("http v2 not supported yet")) };
    let (duplicate, pending) =
        lend::exchange(|x| (x.state::<TakenBody>().raw, x.state::<TakenBody>().body && x.body.is_pending()))?;
    if pending {
        return fail(l, "pending request body reading in some other thread");
    }
    if lend::run(|run| !run.said.is_empty())? {
        return fail(l, "pending data to write");
    }
    if duplicate {
        return fail(l, "duplicate call");
    }
    lend::exchange(|x| {
        x.state::<TakenBody>().raw = true;
        x.response.header_sent = true;
        x.keep_alive = false;
        x.discard_body();
    })?;
    lend::run(|run| (run.raw, run.began) = (true, true))?;
    client.flush();
    let mut input = SocketInput::default();
    input.add(&client.early());
    let peer = SocketPeer { host: String::new(), port: 0, address: String::new() };
    let conn = SocketConnection::new(SocketStream::Client(client), Rc::new(peer));
    *conn.input.borrow_mut() = input;
    let socket = Rc::<TcpSocket>::default();
    *socket.conn.borrow_mut() = Some(Rc::new(conn));
    push(l, &socket, c"__tcp_raw_req_cosocket_mt")
}

/// Pushes the object of a socket with the methods that the registry has under `methods`.
pub(super) fn push(l: LuaState, socket: &Rc<TcpSocket>, methods: &std::ffi::CStr) -> CallOutcome {
    let block = settings()?;
    socket.begin(&block, block.timeouts)?;
    l.new_table(place::COUNT, 0);
    l.push_owned(socket.clone(), NAME);
    l.raw_set_index(-2, place::SOCKET);
    l.push_registered(methods);
    l.set_metatable(-2);
    Ok(CallDone::Results(1))
}
