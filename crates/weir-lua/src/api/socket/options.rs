//! `getoption`, `setoption`, `getfd`.

use std::rc::Rc;

use weir_rt::net::{self, SocketOption};

use crate::api::socket::conn::SocketConnection;
use crate::api::socket::tcp::{bad_argument, had_socket, place, socket};
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_socket.getoption", 0, get),
    function("_socket.setoption", 0, set),
    function("_socket.getfd", 0, |l| {
        let fd = match conn(l)? {
            Some(conn) => Some(conn.stream().fd()),
            None => body_fd(l)?,
        };
        let Some(fd) = fd else { return fail(l, "closed") };
        l.push_number(f64::from(fd));
        Ok(CallDone::Results(1))
    }),
];

/// The descriptor of the client's connection, for a socket that receives the request's body.
fn body_fd(l: LuaState) -> Result<Option<i32>, LuaRaise> {
    if !socket(l)?.is_some_and(|socket| socket.body.borrow().is_some()) {
        return Ok(None);
    }
    lend::exchange(|x| x.transport.client().and_then(|client| client.stream().map(|stream| stream.fd())))
}

/// The connection; `None`: it is closed.
fn conn(l: LuaState) -> Result<Option<Rc<SocketConnection>>, LuaRaise> {
    match socket(l)? {
        Some(socket) => Ok(socket.conn.borrow().clone()),
        None if had_socket(l) => Ok(None),
        None => Err(LuaRaise::text("socket is never created nor connected")),
    }
}

fn option_of(name: &[u8]) -> Option<SocketOption> {
    Some(match name {
        b"keepalive" => SocketOption::KeepAlive,
        b"reuseaddr" => SocketOption::ReuseAddress,
        b"tcp-nodelay" => SocketOption::NoDelay,
        b"sndbuf" => SocketOption::SendBuffer,
        b"rcvbuf" => SocketOption::ReceiveBuffer,
        b"keepintvl" => SocketOption::ProbeInterval,
        b"keepcnt" => SocketOption::Probes,
        _ => return None,
    })
}

fn get(l: LuaState) -> CallOutcome {
    let conn = conn(l)?;
    if l.is_none_or_nil(2) {
        return fail(l, "missing the \"option\" argument");
    }
    let name = l.lossy(2);
    let Some(option) = option_of(name.as_bytes()) else {
        return fail(l, &format!("unsupported option {name}"));
    };
    let Some(conn) = conn else { return fail(l, "closed") };
    match net::option(conn.stream().fd(), option) {
        Ok(value) => {
            l.push_number(f64::from(value));
            Ok(CallDone::Results(1))
        }
        Err(error) => failed(l, &error),
    }
}

fn set(l: LuaState) -> CallOutcome {
    if l.is_none_or_nil(2) {
        return fail(l, "missing the \"option\" argument");
    }
    if l.is_none_or_nil(3) {
        return fail(l, "missing the \"value\" argument");
    }
    let name = l.lossy(2);
    if name == "ip-transparent" {
        socket(l)?;
        l.push_value(3);
        l.raw_set_index(1, place::TRANSPARENT);
        l.push_boolean(true);
        return Ok(CallDone::Results(1));
    }
    let conn = conn(l)?;
    let Some(option) = option_of(name.as_bytes()) else {
        return fail(l, &format!("unsupported option {name}"));
    };
    let Some(conn) = conn else { return fail(l, "closed") };
    let value = match l.kind(3) {
        kind::NUMBER => l.number(3).unwrap_or_default() as i32,
        kind::BOOLEAN => i32::from(l.boolean(3)),
        _ => {
            let reason = format!("cannot convert '{}' to 'int'", l.kind_name(3));
            return Err(bad_argument(l, 3, &reason));
        }
    };
    match net::set_option(conn.stream().fd(), option, value) {
        Ok(()) => {
            if option == SocketOption::NoDelay {
                conn.nodelay.set(true);
            }
            l.push_boolean(true);
            Ok(CallDone::Results(1))
        }
        Err(error) => failed(l, &error),
    }
}

fn failed(l: LuaState, error: &std::io::Error) -> CallOutcome {
    fail(l, weir_rt::file::errno_text(error.raw_os_error().unwrap_or(0)))
}
