//! `send`.

use std::rc::Rc;

use weir_engine::log::LogLevel;
use weir_rt::SendError;

use crate::api::socket::conn::SocketConnection;
use crate::api::socket::tcp::{
    SocketBusy, SocketDirection, TcpSocket, bad_argument, closed, errno_words, not_busy, socket, wait,
};
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::PushResults;

pub(super) const TABLE: &[ApiFunction] =
    &[function("_socket.send", 0, send), function("_socket.sent", 0, sent)];

fn send(l: LuaState) -> CallOutcome {
    if l.top() != 2 {
        let top = l.top();
        return Err(LuaRaise::text(format!("expecting 2 arguments (including the object), but got {top}")));
    }
    let socket = socket(l)?;
    if let Some(busy) = socket.as_ref().and_then(|socket| socket.busy(&[SocketDirection::Dial])) {
        return fail(l, busy);
    }
    if socket.as_ref().is_some_and(|socket| socket.body.borrow().is_some()) {
        return Err(LuaRaise::text("attempt to write to request sockets"));
    }
    let conn = socket.as_ref().and_then(|socket| socket.open(&socket.write_closed));
    let (Some(socket), Some(conn)) = (socket.clone(), conn) else {
        return closed(l, "send", socket.as_ref());
    };
    socket.check_owner()?;
    not_busy!(l, socket, &[SocketDirection::Write]);
    let timeout = socket.timeouts.get().send;
    lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket send timeout: {timeout}"));
    let mut bytes = conn.stream().spare();
    text(l, &mut bytes, &|reason| bad_argument(l, 2, reason))?;
    let count = bytes.len();
    if count == 0 {
        l.push_number(0.0);
        return Ok(CallDone::Results(1));
    }
    conn.set_nodelay();
    conn.send(bytes);
    finish(l, socket, conn, count)
}

/// The second argument was taken to be sent by compiled code: what comes of it.
fn sent(l: LuaState) -> CallOutcome {
    let socket = socket(l)?;
    let conn = socket.as_ref().and_then(|socket| socket.conn.borrow().clone());
    let (Some(socket), Some(conn)) = (socket, conn) else { return fail(l, "closed") };
    let count = l.bytes(2).map_or(0, <[u8]>::len);
    finish(l, socket, conn, count)
}

/// What a send of `count` bytes returns, at once or after a wait.
fn finish(l: LuaState, socket: Rc<TcpSocket>, conn: Rc<SocketConnection>, count: usize) -> CallOutcome {
    match conn.stream().handed_over() {
        Some(Ok(())) => {
            l.push_number(count as f64);
            Ok(CallDone::Results(1))
        }
        Some(Err(error)) => {
            if let Some(message) = line(&socket, &conn, error) {
                lend::log_plain(LogLevel::Error, &message);
            }
            Ok(CallDone::Results(push_failed(l, &socket, error)))
        }
        None => {
            let busy = SocketBusy::new(&socket, SocketDirection::Write);
            wait(|notes| Box::pin(sending(busy, conn, count, notes)))
        }
    }
}

async fn sending(busy: SocketBusy, conn: Rc<SocketConnection>, count: usize, notes: LogNotes) -> PushResults {
    let socket = busy.socket.clone();
    conn.write_timer.touch(socket.timeouts.get().send);
    let sent = conn.stream().drained(0, Some(&conn.write_timer)).await;
    conn.write_timer.disarm();
    busy.over();
    match sent {
        Ok(()) => Box::new(move |l| {
            l.push_number(count as f64);
            1
        }),
        Err(error) => {
            if let Some(message) = line(&socket, &conn, error) {
                notes.push(LogLevel::Error, message);
            }
            Box::new(move |l| push_failed(l, &socket, error))
        }
    }
}

/// The log line of a failed send.
fn line(socket: &TcpSocket, conn: &SocketConnection, error: SendError) -> Option<String> {
    match error {
        SendError::TimedOut => {
            socket.logs_errors().then(|| format!("lua tcp socket write timed out{}", conn.peer))
        }
        SendError::Closed(errno) | SendError::File(errno) => {
            Some(format!("send() failed ({errno}: {}){}", weir_rt::file::errno_text(errno), conn.peer))
        }
        SendError::Truncated => None,
    }
}

fn push_failed(l: LuaState, socket: &TcpSocket, error: SendError) -> i32 {
    socket.write_closed.set(true);
    l.push_nil();
    match error {
        SendError::TimedOut => l.push_bytes(b"timeout"),
        SendError::Closed(errno) | SendError::File(errno) => l.push_bytes(errno_words(errno).as_bytes()),
        SendError::Truncated => l.push_bytes(b"error"),
    }
    2
}

/// Appends the second argument as it is sent; `bad` makes the error of one that can't be.
pub(super) fn text(l: LuaState, out: &mut Vec<u8>, bad: &dyn Fn(&str) -> LuaRaise) -> Result<(), LuaRaise> {
    match l.kind(2) {
        kind::STRING | kind::NUMBER => out.extend_from_slice(l.bytes(2).unwrap_or_default()),
        kind::NIL => out.extend_from_slice(b"nil"),
        kind::BOOLEAN => out.extend_from_slice(if l.boolean(2) { b"true" } else { b"false" }),
        kind::TABLE if l.gather(2, out) => {}
        kind::TABLE => table(l, 2, out, bad)?,
        _ => {
            let kind = l.kind_name(2);
            return Err(bad(&format!("string, number, boolean, nil, or array table expected, got {kind}")));
        }
    }
    Ok(())
}

/// Appends the strings and numbers of the table `at`, and of those in it.
fn table(l: LuaState, at: i32, out: &mut Vec<u8>, bad: &dyn Fn(&str) -> LuaRaise) -> Result<(), LuaRaise> {
    let Some(count) = l.sequence(at) else { return Err(bad("non-array table found")) };
    if !l.reserve(4) {
        return Err(bad("the table is nested too deep"));
    }
    for index in 1..=count {
        if l.append_element(at, index, out) {
            continue;
        }
        match l.kind(-1) {
            kind::STRING | kind::NUMBER => out.extend_from_slice(l.bytes(-1).unwrap_or_default()),
            kind::TABLE => table(l, l.top(), out, bad)?,
            _ => return Err(bad(&format!("bad data type {} found", l.kind_name(-1)))),
        }
        l.pop(1);
    }
    Ok(())
}
