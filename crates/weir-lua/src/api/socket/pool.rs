//! Connections kept alive: `setkeepalive`, `getreusedtimes`, and the queue of connects that wait for a place.
//!
//! A pool of a VM has a name, usually `host:port`, a size, and counts its connections, used and idle: each has a
//! [`PoolSeat`]. With a backlog a connect beyond the size waits until a connection is closed or given back; each waits
//! in a seat of its own. A pool without connections goes.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use weir_engine::log::LogLevel;
use weir_engine::worker::UpstreamCloseReason;
use weir_rt::{RecvOutcome, Timer};

use crate::api::socket::conn::{LossReason, SocketConnection};
use crate::api::socket::tcp::{OPEN, TcpSocket, bad_argument, not_busy, place, settings, socket};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::vm::key_hash::FoldedState;
use crate::vm::lua_vm::VmPart;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_socket.setkeepalive", 0, set_keepalive),
    function("_socket.getreusedtimes", 0, reused_times),
];

/// The pools of a VM, by name.
#[derive(Default)]
pub(crate) struct SocketPools {
    known: RefCell<HashMap<Box<[u8]>, Rc<SocketPool>, FoldedState>>,
    /// Those that are called by a peer and were asked for last, each in the one place that the peer leads to.
    recent: RefCell<[Option<RecentPeer>; RECENT]>,
    option_names: OnceCell<OptionNames>,
}

/// A peer and the pool that is called by it.
struct RecentPeer {
    host: Box<[u8]>,
    port: Option<u16>,
    pool: Weak<SocketPool>,
}

/// Peers whose pools are found without making their names.
const RECENT: usize = 16;

/// Anchors of the names of what `connect` can be told of pools, as long as the VM is there: they are not made into
/// strings each time.
#[derive(Clone, Copy)]
pub(super) struct OptionNames {
    pub(super) pool: c_int,
    pub(super) pool_size: c_int,
    pub(super) backlog: c_int,
}

/// Connections under one name.
pub(super) struct SocketPool {
    name: Box<[u8]>,
    size: usize,
    /// How many connects may wait for a place; `None`: they don't, there may be more connections than `size`.
    backlog: Option<usize>,
    /// Seats that are taken.
    connections: Cell<usize>,
    /// Idle connections, the one that was used last in front.
    idle: RefCell<VecDeque<Rc<SocketConnection>>>,
    waiting: RefCell<VecDeque<Rc<PoolWaiter>>>,
    home: Weak<SocketPools>,
}

/// A connection's place in its pool, or that of one that is to be.
pub(super) struct PoolSeat {
    pool: Rc<SocketPool>,
    /// When it is given up, the next may have it.
    passed_on: bool,
}

/// A connect that waits for a place.
#[derive(Default)]
struct PoolWaiter {
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl VmPart for Rc<SocketPools> {
    const PLACE: usize = 3;
}

impl SocketPools {
    pub(super) fn option_names(&self, l: LuaState) -> OptionNames {
        let anchored = |name: &[u8]| {
            l.push_bytes(name);
            l.anchor()
        };
        *self.option_names.get_or_init(|| OptionNames {
            pool: anchored(b"pool"),
            pool_size: anchored(b"pool_size"),
            backlog: anchored(b"backlog"),
        })
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Rc<SocketPool>> {
        self.known.borrow().get(name).cloned()
    }

    /// The pool of `host` and `port`, if it is among those that were [remembered](SocketPools::remember) last.
    pub(super) fn recall(&self, host: &[u8], port: Option<u16>) -> Option<Rc<SocketPool>> {
        let recent = self.recent.borrow();
        let peer = recent[recent_place(host, port)].as_ref()?;
        if peer.port != port || *peer.host != *host {
            return None;
        }
        // One without connections is known by its name no more.
        peer.pool.upgrade().filter(|pool| pool.connections.get() > 0)
    }

    /// Remembers that `pool` is that of `host` and `port`.
    pub(super) fn remember(&self, host: &[u8], port: Option<u16>, pool: &Rc<SocketPool>) {
        let peer = RecentPeer { host: host.into(), port, pool: Rc::downgrade(pool) };
        self.recent.borrow_mut()[recent_place(host, port)] = Some(peer);
    }

    pub(super) fn make(self: &Rc<Self>, name: &[u8], size: usize, backlog: Option<usize>) -> Rc<SocketPool> {
        let (shown, queue) = (String::from_utf8_lossy(name), backlog.map_or(-1, |backlog| backlog as i64));
        let message = format_args!("lua tcp socket connection pool size: {size}, backlog: {queue}");
        lend::log_plain(LogLevel::Debug, &message);
        let message = format_args!("lua tcp socket keepalive create connection pool for key \"{shown}\"");
        lend::log_plain(LogLevel::Debug, &message);
        let pool = Rc::new(SocketPool {
            name: name.into(),
            size,
            backlog,
            connections: Cell::new(0),
            idle: RefCell::default(),
            waiting: RefCell::default(),
            home: Rc::downgrade(self),
        });
        self.known.borrow_mut().insert(name.into(), pool.clone());
        pool
    }
}

/// Where [`SocketPools::recall`] looks.
fn recent_place(host: &[u8], port: Option<u16>) -> usize {
    host.last().map_or(0, |last| usize::from(*last)).wrapping_add(usize::from(port.unwrap_or(0))) % RECENT
}

impl Drop for SocketPools {
    /// Idle connections hold their pool, and the other way round.
    fn drop(&mut self) {
        for (_, pool) in self.known.get_mut().drain() {
            let kept = pool.idle.take();
            kept.iter().for_each(|conn| conn.ends(UpstreamCloseReason::Reload));
            drop(kept);
        }
    }
}

impl SocketPool {
    /// The number of connections, used and idle, and of connects that wait.
    pub(super) fn connections(&self) -> usize {
        self.connections.get()
    }

    /// The idle connection that was used last, if it is still good.
    pub(super) fn take(&self) -> Option<Rc<SocketConnection>> {
        lend::log_plain(LogLevel::Debug, &"lua tcp socket pool get keepalive peer");
        loop {
            let Some(conn) = self.idle.borrow_mut().pop_front() else {
                let message = "lua tcp socket keepalive: connection pool empty";
                lend::log_plain(LogLevel::Debug, &message);
                return None;
            };
            conn.kept_by.take();
            conn.idle.disarm();
            if is_good(&conn) {
                let (at, fd) = (Rc::as_ptr(&conn), conn.stream().fd());
                let message =
                    format_args!("lua tcp socket get keepalive peer: using connection {at:p}, fd:{fd}");
                lend::log_plain(LogLevel::Debug, &message);
                conn.reused.set(conn.reused.get() + 1);
                return Some(conn);
            }
        }
    }

    /// A place for one more connection; `None` where another has to wait and no more may.
    pub(super) fn seat(self: &Rc<Self>) -> Option<PoolSeat> {
        let most = self.backlog.map_or(usize::MAX, |backlog| self.size.saturating_add(backlog));
        if self.connections.get() >= most {
            return None;
        }
        Some(self.seat_anyway())
    }

    /// A place for a connection that is there already.
    fn seat_anyway(self: &Rc<Self>) -> PoolSeat {
        self.connections.set(self.connections.get() + 1);
        PoolSeat { pool: self.clone(), passed_on: true }
    }

    /// Keeps a connection, in place of the one that was used least recently when there are as many as may be.
    pub(super) fn keep(self: &Rc<Self>, conn: &Rc<SocketConnection>, timeout: u64) {
        conn.stream().settle_kernel();
        *conn.kept_by.borrow_mut() = Rc::downgrade(self);
        if timeout > 0 {
            conn.idle.touch(timeout);
        }
        let oldest = {
            let mut idle = self.idle.borrow_mut();
            idle.push_front(conn.clone());
            if idle.len() > self.size { idle.pop_back() } else { None }
        };
        if let Some(oldest) = &oldest {
            oldest.ends(UpstreamCloseReason::KeepaliveFull);
        }
        // Its place is that of the new one.
        if let Some(seat) = oldest.and_then(|oldest| oldest.seat.take()) {
            seat.leave();
        }
        conn.watch();
        self.grant();
    }

    /// A connection of the pool is of no use any more.
    pub(super) fn lose(&self, conn: &Rc<SocketConnection>, reason: LossReason) {
        let (what, reason) = match reason {
            LossReason::IdleTooLong => {
                ("lua tcp socket keepalive max idle timeout", UpstreamCloseReason::KeepaliveTimeout)
            }
            LossReason::ClosedByPeer => {
                ("lua tcp socket keepalive close handler check stale events", UpstreamCloseReason::Idle)
            }
        };
        conn.ends(reason);
        lend::log_plain(LogLevel::Debug, &what);
        let fd = conn.stream().fd();
        lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket keepalive close handler: fd:{fd}"));
        self.idle.borrow_mut().retain(|kept| !Rc::ptr_eq(kept, conn));
        // The last one drops the pool with it.
        let seat = conn.seat.take();
        drop(seat);
    }

    fn forget(&self, waiter: &Rc<PoolWaiter>) {
        self.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
    }

    /// Lets the next that waits go on.
    fn grant(&self) {
        let next = self.waiting.borrow_mut().pop_front();
        if let Some(waiter) = next {
            waiter.granted.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl PoolSeat {
    /// Whether it is one of those beyond the pool's size, in which one waits.
    pub(super) fn must_wait(&self) -> bool {
        self.pool.backlog.is_some() && self.pool.connections.get() > self.pool.size
    }

    pub(super) fn pool(&self) -> &Rc<SocketPool> {
        &self.pool
    }

    /// Joins the queue.
    pub(super) fn queue(self) -> QueuedConnect {
        let waiter = Rc::<PoolWaiter>::default();
        self.pool.waiting.borrow_mut().push_back(waiter.clone());
        QueuedConnect { seat: Some(self), waiter }
    }

    /// Gives it up without a place becoming free: an idle connection is used in place of a new one.
    pub(super) fn leave(mut self) {
        self.passed_on = false;
    }
}

impl Drop for PoolSeat {
    fn drop(&mut self) {
        let pool = &self.pool;
        pool.connections.set(pool.connections.get().saturating_sub(1));
        if pool.connections.get() == 0 {
            let shown = String::from_utf8_lossy(&pool.name);
            let message = format_args!("lua tcp socket keepalive: free connection pool for \"{shown}\"");
            lend::log_plain(LogLevel::Debug, &message);
            if let Some(home) = pool.home.upgrade() {
                home.known.borrow_mut().remove(&pool.name);
            }
        } else if self.passed_on {
            pool.grant();
        }
    }
}

/// A place in the queue, held by the connect that waits in it.
pub(super) struct QueuedConnect {
    seat: Option<PoolSeat>,
    waiter: Rc<PoolWaiter>,
}

impl QueuedConnect {
    /// Waits for its turn, for this many milliseconds at most; `None`: it did not come.
    pub(super) async fn wait(mut self, ms: u64) -> Option<PoolSeat> {
        let timer = Timer::new();
        timer.arm(ms);
        let granted = poll_fn(|cx| {
            if self.waiter.granted.get() {
                return Poll::Ready(true);
            }
            *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
            timer.poll_expired(cx).map(|()| false)
        });
        let granted = granted.await;
        let seat = self.seat.take()?;
        if granted {
            return Some(seat);
        }
        seat.pool.forget(&self.waiter);
        seat.leave();
        None
    }
}

impl Drop for QueuedConnect {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        lend::log_plain(LogLevel::Debug, &"lua tcp socket abort queueing");
        if !self.waiter.granted.get() {
            seat.pool.forget(&self.waiter);
            seat.leave();
        }
    }
}

/// The peer has not closed it, and has sent nothing unexpected.
fn is_good(conn: &SocketConnection) -> bool {
    let lost = |errno| UpstreamCloseReason::of_errno(errno, UpstreamCloseReason::ResetIdle);
    let reason = match (conn.stream().error(), conn.stream().is_eof()) {
        (Some(errno), _) => lost(errno),
        (None, true) => UpstreamCloseReason::Idle,
        (None, false) => match conn.stream().try_recv() {
            None => return true,
            Some(RecvOutcome::Data(_)) => UpstreamCloseReason::Spoke,
            Some(RecvOutcome::Err(errno)) => lost(errno),
            Some(RecvOutcome::Eof | RecvOutcome::TimedOut) => UpstreamCloseReason::Idle,
        },
    };
    conn.ends(reason);
    false
}

fn set_keepalive(l: LuaState) -> CallOutcome {
    let top = l.top();
    if !(1..=3).contains(&top) {
        return Err(LuaRaise::text(format!(
            "expecting 1 to 3 arguments (including the object), but got {top}"
        )));
    }
    let socket = socket(l)?;
    let timeout = match integer(l, 2)? {
        Some(ms) => u64::try_from(ms).unwrap_or(0),
        None => settings()?.keepalive_timeout,
    };
    let size = match integer(l, 3)? {
        Some(size) => size,
        None => settings()?.pool_size,
    };
    let Some(socket) = socket else { return fail(l, "closed") };
    not_busy!(l, socket, OPEN);
    let conn = socket.open(&socket.read_closed).filter(|_| !socket.write_closed.get());
    let Some(conn) = conn else { return fail(l, "closed") };
    if conn.stream().is_eof() {
        return fail(l, "closed");
    }
    socket.check_owner()?;
    if !conn.input.borrow().rest().is_empty() {
        return fail(l, "unread data in buffer");
    }
    if conn.stream().error().is_some() {
        return fail(l, "invalid connection");
    }
    let at = Rc::as_ptr(&conn);
    if lend::any_exchange(|x| x.worker.is_stopping())? {
        let message =
            format_args!("lua tcp socket set keepalive while process exiting, closing connection {at:p}");
        lend::log_plain(LogLevel::Debug, &message);
        conn.ends(UpstreamCloseReason::Shutdown);
        return Ok(finished(l, &socket));
    }
    lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket set keepalive: saving connection {at:p}"));
    let seated = conn.seat.borrow().as_ref().map(|seat| seat.pool().clone());
    let pool = match seated {
        Some(pool) => Some(pool),
        None => pool_of(l, top, size)?,
    };
    let Some(pool) = pool else { return fail(l, "key not found") };
    lend::log_plain(LogLevel::Debug, &"lua tcp socket clear current socket connection");
    match timeout {
        0 => lend::log_plain(LogLevel::Debug, &"lua tcp socket keepalive timeout: unlimited"),
        ms => lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket keepalive timeout: {ms} ms")),
    }
    if let Some(reason) = dubious(&conn) {
        socket.finalize(UpstreamCloseReason::Refused);
        return fail(l, reason);
    }
    // One that was made before the pool was has no place yet.
    conn.seat.borrow_mut().get_or_insert_with(|| pool.seat_anyway());
    socket.conn.take();
    let done = finished(l, &socket);
    pool.keep(&conn, timeout);
    Ok(done)
}

/// Why a connection cannot be kept that has none of the marks of that yet: what has just come is taken from it.
pub(super) fn dubious(conn: &SocketConnection) -> Option<&'static str> {
    let stream = conn.stream();
    match stream.try_recv_first() {
        Some(RecvOutcome::Data(_)) => Some(DUBIOUS),
        Some(_) => Some("closed"),
        // What has come since the loop looked last would be taken for the response to the next request. Records of TLS may be
        // tickets, which are no such thing.
        None => (!stream.has_layer() && !stream.is_quiet()).then_some(DUBIOUS),
    }
}

/// The peer has sent what nothing asked for.
pub(super) const DUBIOUS: &str = "connection in dubious state";

/// The socket has no connection any more, as the script wanted it.
fn finished(l: LuaState, socket: &TcpSocket) -> CallDone {
    socket.finalize(UpstreamCloseReason::Script);
    l.push_number(1.0);
    CallDone::Results(1)
}

/// The pool of the object that is the first argument, made if absent: with `size`, the last of `top` arguments.
fn pool_of(l: LuaState, top: i32, size: i64) -> Result<Option<Rc<SocketPool>>, LuaRaise> {
    l.raw_get_index(1, place::KEY);
    let Some(name) = l.bytes(-1).map(<[u8]>::to_vec) else { return Ok(None) };
    l.pop(1);
    let pools = lend::vm(|vm| vm.part::<Rc<SocketPools>>().clone());
    if let Some(pool) = pools.get(&name) {
        return Ok(Some(pool));
    }
    match usize::try_from(size) {
        Ok(size @ 1..) => Ok(Some(pools.make(&name, size, None))),
        _ => Err(bad_argument(l, top, &format!("bad \"pool_size\" option value: {size}"))),
    }
}

/// The integer `at`, if there is one.
fn integer(l: LuaState, at: i32) -> Result<Option<i64>, LuaRaise> {
    if l.is_none_or_nil(at) {
        return Ok(None);
    }
    match l.number(at) {
        Some(number) => Ok(Some(number as i64)),
        None => Err(bad_argument(l, at, &format!("number expected, got {}", l.kind_name(at)))),
    }
}

fn reused_times(l: LuaState) -> CallOutcome {
    if l.top() != 1 {
        let top = l.top();
        return Err(LuaRaise::text(format!("expecting 1 argument (including the object), but got {top}")));
    }
    let Some(socket) = socket(l)? else { return fail(l, "closed") };
    if socket.read_closed.get() && socket.write_closed.get() {
        return fail(l, "closed");
    }
    if socket.dialing.get() {
        l.push_number(0.0);
        return Ok(CallDone::Results(1));
    }
    let reused = socket.conn.borrow().as_ref().map(|conn| conn.reused.get());
    let Some(reused) = reused else { return fail(l, "closed") };
    l.push_number(f64::from(reused));
    Ok(CallDone::Results(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_recalled_while_its_pool_is_known_by_its_name() {
        let pools = Rc::<SocketPools>::default();
        assert!(pools.recall(b"", None).is_none());
        let pool = pools.make(b"a:1", 30, None);
        pools.remember(b"a", Some(1), &pool);
        assert!(pools.recall(b"a", Some(1)).is_none(), "it has no connections yet");
        let seat = pool.seat_anyway();
        let recalled =
            |host: &[u8], port| pools.recall(host, port).is_some_and(|known| Rc::ptr_eq(&known, &pool));
        assert!(recalled(b"a", Some(1)));
        // Others, those of the same place too, are looked up by their names.
        let others: [(&[u8], Option<u16>); 5] =
            [(b"a", None), (b"a", Some(17)), (b"ba", Some(1)), (b"", Some(1)), (b"q", Some(1))];
        for (host, port) in others {
            assert!(!recalled(host, port), "{host:?} {port:?}");
        }
        let other = pools.make(b"a:17", 30, None);
        let _other_seat = other.seat_anyway();
        pools.remember(b"a", Some(17), &other);
        assert!(!recalled(b"a", Some(1)), "its place is that of another peer");
        pools.remember(b"a", Some(1), &pool);
        assert!(recalled(b"a", Some(1)));
        drop(seat);
        assert!(!recalled(b"a", Some(1)), "its last connection is gone");
        assert!(pools.get(b"a:1").is_none());
    }
}
