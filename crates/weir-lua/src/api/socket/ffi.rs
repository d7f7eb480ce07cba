//! Sockets for compiled code, without a call of Lua's: `receive` takes what has come already from the connection's buffer, `send`
//! sends what is a text, `connect` takes an idle connection, and `setkeepalive` gives it back.
//!
//! Scripts hand in the userdata of a socket, by its place ([`known`]).

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use weir_rt::SendError;

use crate::api::ffi::{FOUND, FfiAnswer, REFUSED, guarded, slice};
use weir_engine::worker::UpstreamCloseReason;

use crate::api::socket::conn::SocketConnection;
use crate::api::socket::connect::port_of;
use crate::api::socket::host::is_unix;
use crate::api::socket::known;
use crate::api::socket::pool::{DUBIOUS, SocketPool, SocketPools, dubious};
use crate::api::socket::read::take_buffered;
use crate::api::socket::tcp::{OPEN, SocketDirection, SocketTimeouts, TcpSocket, settings};
use crate::run::lend;
use crate::vm::phase::YIELDABLE;

/// The socket whose userdata is at `place`, if it is known, and the running script's own.
fn own(place: *const c_void) -> Option<&'static TcpSocket> {
    // SAFETY: functions of this file drop no socket, nor what may hold one, run no Lua, and keep no reference.
    let socket = unsafe { known::look_at(place) }?;
    let owner = lend::run(|run| run.owner).unwrap_or(ptr::null());
    (!owner.is_null() && socket.is_of_place(owner)).then_some(socket)
}

/// Takes a line (`count` 0), or so many bytes, of what was received and not taken by the socket whose userdata is at
/// `place`. Refused is all that has to wait, to fail, or to be logged.
pub(crate) unsafe extern "C" fn receive(place: *const c_void, count: f64, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude lends its own result struct.
    let answer = unsafe { &mut *answer };
    guarded(|| match own(place).is_some_and(|socket| take(socket, count, answer)) {
        true => FOUND,
        false => REFUSED,
    })
}

fn take(socket: &TcpSocket, count: f64, answer: &mut FfiAnswer) -> bool {
    let busy = socket.busy(&[SocketDirection::Dial, SocketDirection::Read]).is_some();
    if busy || socket.read_closed.get() || lend::hears_debug() {
        return false;
    }
    let count = match count {
        0.0 => None,
        1.0..=MOST => Some(count as usize),
        _ => return false,
    };
    match (&*socket.conn.borrow(), &*socket.body.borrow()) {
        (Some(conn), None) => take_buffered(conn, count, MOST as usize, |text| answer.keep(text)),
        _ => false,
    }
}

/// Longer texts are not worth a copy (bytes).
const MOST: f64 = 4096.0;

/// Sends a text by the socket whose userdata is at `place`. Refused is what is to fail before, or to be logged; [`QUEUED`]
/// what has to be waited for, or has failed: `_socket.sent` knows.
pub(crate) unsafe extern "C" fn send(place: *const c_void, text: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a Lua string, kept during the call.
    let text = unsafe { slice(text, len) };
    guarded(|| {
        let Some(socket) = own(place) else { return REFUSED };
        let busy = socket.busy(&[SocketDirection::Dial, SocketDirection::Write]).is_some();
        if busy || socket.write_closed.get() || text.is_empty() || lend::hears_debug() {
            return REFUSED;
        }
        match (&*socket.conn.borrow(), &*socket.body.borrow()) {
            (Some(conn), None) => match send_now(conn, text) {
                Some(Ok(())) => FOUND,
                _ => QUEUED,
            },
            _ => REFUSED,
        }
    })
}

fn send_now(conn: &SocketConnection, text: &[u8]) -> Option<Result<(), SendError>> {
    let mut bytes = conn.stream().spare();
    bytes.extend_from_slice(text);
    conn.set_nodelay();
    conn.stream().send(bytes);
    conn.stream().handed_over()
}

/// The text was taken to be sent.
const QUEUED: i32 = -3;

/// Connects the spare socket whose userdata is at `place` with an idle connection to `host` and `port`, or with one of the pool that is
/// called `host` where `port` is negative; the last are its timeouts (milliseconds), 0 for those of the block. Refused is all that has
/// to wait, to fail, or to be logged: it is spare as before then.
pub(crate) unsafe extern "C" fn connect(
    place: *const c_void,
    host: *const u8,
    len: usize,
    port: f64,
    connecting: f64,
    sending: f64,
    reading: f64,
) -> i32 {
    // SAFETY: the prelude passes a Lua string, kept during the call.
    let host = unsafe { slice(host, len) };
    guarded(|| {
        let usual = lend::phase().is_in(YIELDABLE) && !lend::hears_debug();
        let spare = known::at(place).filter(|socket| usual && socket.is_spare.get());
        let (Some(socket), Some(pool)) = (spare, pool(host, port)) else { return REFUSED };
        let Ok(block) = settings() else { return REFUSED };
        let time = |number: f64, otherwise| if number >= 1.0 { number as u64 } else { otherwise };
        let timeouts = SocketTimeouts {
            connect: time(connecting, block.timeouts.connect),
            send: time(sending, block.timeouts.send),
            read: time(reading, block.timeouts.read),
        };
        if socket.begin(&block, timeouts).is_err() {
            return REFUSED;
        }
        let Some(conn) = pool.take() else { return REFUSED };
        socket.connected(conn);
        socket.is_spare.set(false);
        FOUND
    })
}

/// The pool for [`connect`], if it is there.
fn pool(host: &[u8], port: f64) -> Option<Rc<SocketPool>> {
    lend::vm(|vm| {
        let pools = vm.part::<Rc<SocketPools>>();
        match port_of(port.trunc()) {
            _ if port < 0.0 => pools.get(host),
            Some(_) if is_unix(host) => None,
            port => pools.recall(host, Some(port?)),
        }
    })
}

/// Keeps the connection of the socket whose userdata is at `place` alive in its pool for `ms` milliseconds; negative: as long as
/// the block says. The socket is spare then. Refused is what is to fail, or to be logged; [`DUBIOUS_STATE`] and [`CLOSED`] say
/// why the connection was closed instead.
pub(crate) unsafe extern "C" fn keep(place: *const c_void, ms: f64) -> i32 {
    guarded(|| {
        let Some(socket) = own(place) else { return REFUSED };
        let conn = socket.open(&socket.read_closed).filter(|_| !socket.write_closed.get());
        let Some(conn) = conn.filter(|conn| is_usual(socket, conn)) else { return REFUSED };
        let pool = conn.seat.borrow().as_ref().map(|seat| seat.pool().clone());
        let timeout =
            if ms < 0.0 { settings().ok().map(|block| block.keepalive_timeout) } else { Some(ms as u64) };
        let (Some(pool), Some(timeout)) = (pool, timeout) else { return REFUSED };
        let reason = dubious(&conn);
        if reason.is_some() {
            conn.ends(UpstreamCloseReason::Refused);
        }
        socket.release();
        match reason {
            None => {
                socket.is_spare.set(true);
                pool.keep(&conn, timeout);
                FOUND
            }
            Some(DUBIOUS) => DUBIOUS_STATE,
            Some(_) => CLOSED,
        }
    })
}

/// Whether nothing of the socket and its connection is in the way of keeping it alive.
fn is_usual(socket: &TcpSocket, conn: &SocketConnection) -> bool {
    socket.busy(OPEN).is_none()
        && socket.body.borrow().is_none()
        && !conn.stream().is_eof()
        && conn.stream().error().is_none()
        && conn.input.borrow().rest().is_empty()
        && !lend::hears_debug()
        && lend::any_exchange(|x| !x.worker.is_stopping()).unwrap_or(false)
}

/// What [`keep`] says beside [`FOUND`].
const DUBIOUS_STATE: i32 = 2;
const CLOSED: i32 = 3;

/// 1 where sockets may be made.
pub(crate) extern "C" fn is_place() -> i32 {
    guarded(|| i32::from(lend::phase().is_in(YIELDABLE) && lend::any_exchange(|_| ()).is_ok()))
}
