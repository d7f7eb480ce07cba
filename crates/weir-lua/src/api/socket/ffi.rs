//! `receive` and `send` for compiled code: what has come already is taken from the connection's buffer, and what is a text is
//! sent, without a call of Lua's.
//!
//! Scripts hand in the userdata of a socket, by its place. Of what they hand in nothing is read: a place is looked up among
//! those that are known to be sockets'.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use weir_rt::SendError;

use crate::api::ffi::{FOUND, FfiAnswer, REFUSED, guarded, slice};
use crate::api::socket::conn::SocketConnection;
use crate::api::socket::read::take_buffered;
use crate::api::socket::tcp::{SocketDirection, TcpSocket};
use crate::run::lend;
use crate::vm::phase::YIELDABLE;

/// A socket by the place of its userdata.
#[derive(Clone, Copy)]
struct KnownSocket {
    place: usize,
    /// It is there: one that goes is [forgotten](forget).
    socket: *const TcpSocket,
}

thread_local! {
    /// Those that were made last: one that is not here is asked for by Lua's own call.
    static KNOWN: [Cell<KnownSocket>; COUNT] = const { [const { Cell::new(NO_SOCKET) }; COUNT] };
}

/// Places that are known at a time, and how many bytes they are apart, at least.
const COUNT: usize = 256;
const APART: usize = 16;
const NO_SOCKET: KnownSocket = KnownSocket { place: 0, socket: ptr::null() };

/// The socket's userdata is at `place` from now on.
pub(super) fn know(place: *const c_void, socket: &Rc<TcpSocket>) {
    let place = place.addr();
    socket.place.set(place);
    KNOWN.with(|known| known[place / APART % COUNT].set(KnownSocket { place, socket: Rc::as_ptr(socket) }));
}

/// The socket goes.
pub(super) fn forget(socket: &TcpSocket) {
    let at = socket.place.get() / APART % COUNT;
    // A thread that ends has nothing to forget any more.
    let _ = KNOWN.try_with(|known| {
        if ptr::eq(known[at].get().socket, socket) {
            known[at].set(NO_SOCKET);
        }
    });
}

/// The socket whose userdata is at `place`, if it is known, and the running script's own.
fn own(place: *const c_void) -> Option<&'static TcpSocket> {
    let known = KNOWN.with(|known| known[place.addr() / APART % COUNT].get());
    if known.place != place.addr() || known.socket.is_null() {
        return None;
    }
    // SAFETY: a socket that goes takes itself out of the list, and none goes while a function of this file runs, which
    // drops nothing and keeps no reference.
    let socket = unsafe { &*known.socket };
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

/// 1 where sockets may be made.
pub(crate) extern "C" fn is_place() -> i32 {
    guarded(|| i32::from(lend::phase().is_in(YIELDABLE) && lend::any_exchange(|_| ()).is_ok()))
}
