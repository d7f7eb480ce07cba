//! `ngx.req.socket` of sessions over UDP: the datagram that the session began with, and the way back to its client.
//!
//! As in OpenResty scripts read that one datagram, in pieces if they want, and never wait; what the client sends after it begins
//! a session of its own when this one ends. What they leave of it is the next phase's.

use std::rc::{Rc, Weak};
use std::task::{Context, Waker};

use weir_engine::Exchange;

use super::{LARGEST, done};
use crate::api::socket::send::text;
use crate::api::socket::tcp::{SocketOwner, errno_words, owner};
use crate::luajit::state::LuaState;
use crate::run::function::{CallDone, CallOutcome, LuaRaise, expect_number, fail};
use crate::run::lend;

/// The socket as scripts have it.
struct FlowSocket {
    owner: Weak<SocketOwner>,
}

/// The datagram of a session as its scripts have it.
#[derive(Default)]
struct SessionDatagram {
    taken: bool,
    bytes: Vec<u8>,
    used: usize,
}

/// Pushes the socket of the running session.
pub(crate) fn push(l: LuaState) -> CallOutcome {
    let socket = Rc::new(FlowSocket { owner: Rc::downgrade(&owner()?) });
    l.new_table(0, 1);
    l.push_owned(socket, c"weir.udp_flow");
    l.set_field(-2, c"udp");
    l.push_registered(c"__udp_session_cosocket_mt");
    l.set_metatable(-2);
    Ok(CallDone::Results(1))
}

/// A script of `x` has ended: what it has left of the datagram is there for what follows.
pub(crate) fn take_back(x: &mut Exchange) {
    let (Some(flow), Some(_)) = (x.transport.flow().cloned(), x.state_if::<SessionDatagram>()) else {
        return;
    };
    let datagram = x.state::<SessionDatagram>();
    let used = std::mem::take(&mut datagram.used);
    let mut left = std::mem::take(&mut datagram.bytes);
    left.drain(..used);
    if !left.is_empty() {
        datagram.taken = false;
        flow.put_back(vec![left]);
    }
    if let Some(bytes) = x.session() {
        bytes.from_client.set(bytes.from_client.get() + used as u64);
    }
}

/// The socket that is the first argument, which must be of the running session.
fn check(l: LuaState) -> Result<(), LuaRaise> {
    let socket: Rc<FlowSocket> = l.owned(1).ok_or_else(|| LuaRaise::text("bad udp socket object"))?;
    match std::ptr::eq(socket.owner.as_ptr(), Rc::as_ptr(&owner()?)) {
        true => Ok(()),
        false => Err(LuaRaise::text("bad request")),
    }
}

/// `receive(socket, size)`
pub(super) fn receive(l: LuaState) -> CallOutcome {
    check(l)?;
    let size = if l.is_none_or_nil(2) { LARGEST } else { expect_number(l, 2, "receive")? as usize };
    let size = size.clamp(1, LARGEST);
    let found = lend::exchange(|x| {
        let flow = x.transport.flow().cloned();
        let datagram = x.state::<SessionDatagram>();
        if let (Some(flow), false) = (flow, datagram.taken)
            && !flow.is_empty()
        {
            let mut taken = Vec::with_capacity(1);
            // One is there: this is ready.
            let _ = flow.poll_datagrams(&mut Context::from_waker(Waker::noop()), 1, &mut taken);
            (datagram.taken, datagram.bytes) = (true, taken.pop().unwrap_or_default());
        }
        let left = &datagram.bytes[datagram.used..];
        let piece = &left[..size.min(left.len())];
        if !piece.is_empty() {
            l.push_bytes(piece);
        }
        datagram.used += piece.len();
        !piece.is_empty()
    })?;
    if found { Ok(CallDone::Results(1)) } else { fail(l, "no more data") }
}

/// `send(socket, data)`
pub(super) fn send(l: LuaState) -> CallOutcome {
    check(l)?;
    let mut data = Vec::new();
    text(l, &mut data, &|reason| LuaRaise::argument(1, "send", reason))?;
    let sent = lend::exchange(|x| x.transport.flow().map(|flow| flow.send(std::iter::once(&data[..]))))?;
    match sent {
        Some(sent) if sent.errno == 0 => done(l),
        Some(sent) => fail(l, &errno_words(sent.errno)),
        None => fail(l, "closed"),
    }
}
