//! Sockets by the places of their userdata, for compiled code, which has nothing else of them.
//!
//! Of what scripts hand in nothing is read: a place is looked up among those that are known to be sockets'.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use crate::api::socket::tcp::TcpSocket;

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

/// The socket whose userdata is at `place`, if it is known.
pub(super) fn at(place: *const c_void) -> Option<Rc<TcpSocket>> {
    let socket = place_of(place)?;
    // SAFETY: a socket that goes takes itself out of the list. The address is that of an `Rc`'s value, to which its userdata has
    // a reference until then.
    unsafe {
        Rc::increment_strong_count(socket);
        Some(Rc::from_raw(socket))
    }
}

/// As [`at`], where no socket goes while the result is used.
///
/// # Safety
/// Until the caller is done with it nothing is dropped that may hold a socket, and Lua does not run.
pub(super) unsafe fn look_at<'s>(place: *const c_void) -> Option<&'s TcpSocket> {
    // SAFETY: a socket that goes takes itself out of the list, and none does meanwhile.
    place_of(place).map(|socket| unsafe { &*socket })
}

fn place_of(place: *const c_void) -> Option<*const TcpSocket> {
    let known = KNOWN.with(|known| known[place.addr() / APART % COUNT].get());
    (known.place == place.addr() && !known.socket.is_null()).then_some(known.socket)
}
