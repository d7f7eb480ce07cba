//! `ngx.socket.tcp`: socket objects, their owners, and the operations in progress.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_engine::log::LogLevel;
use weir_engine::resolver::Resolver;
use weir_engine::worker::UpstreamCloseReason;
use weir_rt::SocketAccount;
use weir_trace::WaitKind;

use crate::api::socket::SocketSettings;
use crate::api::socket::conn;
use crate::api::socket::known;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::{OpWait, ThreadOp};
use crate::vm::phase::YIELDABLE;

use conn::SocketConnection;

pub(super) const TABLE: &[ApiFunction] = &[
    function("socket.tcp", YIELDABLE, tcp),
    function("_socket.close", 0, close),
    function("_socket.settimeout", 0, set_timeout),
    function("_socket.settimeouts", 0, set_timeouts),
];

/// What a socket object has in its first place.
#[derive(Default)]
pub(super) struct TcpSocket {
    /// Whose it is.
    owner: RefCell<Weak<SocketOwner>>,
    pub(super) conn: RefCell<Option<Rc<SocketConnection>>>,
    /// It receives the request's body, of which this has come and was not taken.
    pub(super) body: RefCell<Option<Rc<RefCell<conn::SocketInput>>>>,
    pub(super) settings: RefCell<Option<Rc<SocketSettings>>>,
    pub(super) timeouts: Cell<SocketTimeouts>,
    connecting: Cell<bool>,
    /// The address is known by now, the connection is on its way.
    pub(super) dialing: Cell<bool>,
    reading: Cell<bool>,
    writing: Cell<bool>,
    /// Nothing more can be received.
    pub(super) read_closed: Cell<bool>,
    /// Nothing more can be sent.
    pub(super) write_closed: Cell<bool>,
    /// Where scripts have it, for [`known`].
    pub(super) place: Cell<usize>,
    /// Its connection has gone to its pool, and its userdata was taken out of its object, for the next that is connected.
    pub(super) is_spare: Cell<bool>,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketTimeouts {
    pub(super) connect: u64,
    pub(super) send: u64,
    pub(super) read: u64,
}

/// The sockets of a request, which are closed when it ends.
pub(super) struct SocketOwner {
    /// The only one of most.
    first: RefCell<Weak<TcpSocket>>,
    others: RefCell<Vec<Weak<TcpSocket>>>,
    /// Who pays for what the kernel does for them.
    client: Option<SocketAccount>,
}

impl SocketOwner {
    fn of(client: Option<SocketAccount>) -> SocketOwner {
        SocketOwner { first: RefCell::default(), others: RefCell::default(), client }
    }

    fn add(&self, socket: &Rc<TcpSocket>) {
        let mut first = self.first.borrow_mut();
        if first.strong_count() == 0 {
            *first = Rc::downgrade(socket);
            return;
        }
        let mut others = self.others.borrow_mut();
        // A request that makes many leaves many to be collected.
        if others.len() == others.capacity() {
            others.retain(|socket| socket.strong_count() > 0);
        }
        others.push(Rc::downgrade(socket));
    }
}

impl Drop for SocketOwner {
    fn drop(&mut self) {
        let owner = std::ptr::from_ref(self).cast();
        for socket in std::iter::once(self.first.take()).chain(self.others.take()) {
            // One that was spare meanwhile may be another request's.
            if let Some(socket) = socket.upgrade().filter(|socket| socket.is_of_place(owner)) {
                socket.finalize(UpstreamCloseReason::ScriptEnd);
            }
        }
    }
}

impl TcpSocket {
    /// Begins again, as the request's.
    pub(super) fn begin(
        self: &Rc<Self>,
        settings: &Rc<SocketSettings>,
        timeouts: SocketTimeouts,
    ) -> Result<(), LuaRaise> {
        let owner = owner()?;
        // Compiled code asks the run alone; a script that can't wait has none.
        let _none = lend::run(|run| run.owner = Rc::as_ptr(&owner).cast());
        if !self.is_of(&owner) {
            *self.owner.borrow_mut() = Rc::downgrade(&owner);
            owner.add(self);
        }
        *self.settings.borrow_mut() = Some(settings.clone());
        self.timeouts.set(timeouts);
        self.read_closed.set(false);
        self.write_closed.set(false);
        Ok(())
    }

    /// Has a connection to a server from here on.
    pub(super) fn connected(&self, conn: Rc<SocketConnection>) {
        let owner = self.owner.borrow().upgrade();
        conn.stream().charge_to(owner.and_then(|owner| owner.client));
        *self.conn.borrow_mut() = Some(conn);
    }

    pub(super) fn is_of(&self, owner: &Rc<SocketOwner>) -> bool {
        self.is_of_place(Rc::as_ptr(owner).cast())
    }

    /// As [`TcpSocket::is_of`], by the owner's [place](owner_place).
    pub(super) fn is_of_place(&self, owner: *const ()) -> bool {
        std::ptr::eq(self.owner.borrow().as_ptr().cast(), owner)
    }

    /// The connection, unless it is closed in the direction `closed`.
    pub(super) fn open(&self, closed: &Cell<bool>) -> Option<Rc<SocketConnection>> {
        if closed.get() { None } else { self.conn.borrow().clone() }
    }

    /// Closes the connection, for `reason` if nothing has happened to it before.
    pub(super) fn finalize(&self, reason: UpstreamCloseReason) {
        if let Some(conn) = &*self.conn.borrow() {
            conn.ends(reason);
        }
        self.release();
    }

    /// Lets go of the connection, which is closed unless another has it.
    pub(super) fn release(&self) {
        lend::log_plain(LogLevel::Debug, &"lua finalize socket");
        self.read_closed.set(true);
        self.write_closed.set(true);
        self.body.take();
        if self.conn.take().is_some() {
            lend::log_plain(LogLevel::Debug, &"lua close socket connection");
        }
    }

    /// Fails when it belongs to another request.
    pub(super) fn check_owner(&self) -> Result<(), LuaRaise> {
        match self.is_of_place(owner_place()?) {
            true => Ok(()),
            false => Err(LuaRaise::text("bad request")),
        }
    }

    /// What a coroutine is doing with it, of `busy`.
    pub(super) fn busy(&self, busy: &[SocketDirection]) -> Option<&'static str> {
        busy.iter().find(|direction| self.flag(**direction).get()).map(|direction| match direction {
            SocketDirection::Connect | SocketDirection::Dial => "socket busy connecting",
            SocketDirection::Read => "socket busy reading",
            SocketDirection::Write => "socket busy writing",
        })
    }

    pub(super) fn flag(&self, direction: SocketDirection) -> &Cell<bool> {
        match direction {
            SocketDirection::Connect => &self.connecting,
            SocketDirection::Dial => &self.dialing,
            SocketDirection::Read => &self.reading,
            SocketDirection::Write => &self.writing,
        }
    }

    pub(super) fn logs_errors(&self) -> bool {
        self.settings.borrow().as_ref().is_none_or(|settings| settings.log_errors)
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        known::forget(self);
        if self.conn.get_mut().is_some() || self.body.get_mut().is_some() {
            self.finalize(UpstreamCloseReason::ScriptEnd);
        }
    }
}

/// What one coroutine at a time does with a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketDirection {
    /// Any part of `connect`.
    Connect,
    /// That after the name was looked up.
    Dial,
    Read,
    Write,
}

/// What closing and keeping are in the way of.
pub(super) const OPEN: &[SocketDirection] =
    &[SocketDirection::Dial, SocketDirection::Read, SocketDirection::Write];

/// A coroutine waits in one direction. Dropped before [`SocketBusy::over`] the wait was called off, and the socket is
/// closed.
pub(super) struct SocketBusy {
    pub(super) socket: Rc<TcpSocket>,
    direction: SocketDirection,
    over: bool,
}

impl SocketBusy {
    pub(super) fn new(socket: &Rc<TcpSocket>, direction: SocketDirection) -> SocketBusy {
        socket.flag(direction).set(true);
        SocketBusy { socket: socket.clone(), direction, over: false }
    }

    pub(super) fn over(mut self) {
        self.over = true;
    }
}

impl Drop for SocketBusy {
    fn drop(&mut self) {
        self.socket.flag(self.direction).set(false);
        self.socket.dialing.set(false);
        if !self.over {
            self.socket.finalize(UpstreamCloseReason::ScriptEnd);
        }
    }
}

/// The sockets of the running script's request.
pub(super) fn owner() -> Result<Rc<SocketOwner>, LuaRaise> {
    lend::any_exchange(|x| {
        let client = x.connection.account;
        let own = x.own_lasting::<Option<Rc<SocketOwner>>>();
        if let Some(owner) = own {
            return owner.clone();
        }
        let owner = own.insert(Rc::new(SocketOwner::of(client))).clone();
        // Sockets of a subrequest stay as long as the request that it is part of, which keeps its own by itself.
        if x.is_subrequest() {
            x.common::<SocketOwners>().0.borrow_mut().push(owner.clone());
        }
        owner
    })
}

/// Where [`owner`] is: as long as its request does, so a run remembers the place.
pub(super) fn owner_place() -> Result<*const (), LuaRaise> {
    let known = lend::run(|run| run.owner).unwrap_or(std::ptr::null());
    if !known.is_null() {
        return Ok(known);
    }
    let place = Rc::as_ptr(&owner()?).cast();
    // A script that can't wait has no run, and asks once more.
    let _none = lend::run(|run| run.owner = place);
    Ok(place)
}

/// Those of a request and of its subrequests.
#[derive(Default)]
pub(super) struct SocketOwners(RefCell<Vec<Rc<SocketOwner>>>);

/// What the running script's block says of sockets.
pub(crate) fn settings() -> Result<Rc<SocketSettings>, LuaRaise> {
    let settings = lend::any_exchange(|x| x.plan.kept::<Rc<SocketSettings>>().cloned())?;
    settings.ok_or_else(|| LuaRaise::text("no ctx found"))
}

/// Whom names are asked of in the running script's block, and for how many milliseconds.
pub(crate) fn resolver() -> Result<Option<(Arc<Resolver>, u64)>, LuaRaise> {
    Ok(settings()?.resolver.clone())
}

/// `bad argument`, as Lua's own functions have it: of a method the object is not counted.
pub(super) fn bad_argument(l: LuaState, at: i32, reason: &str) -> LuaRaise {
    let (name, method) = l.called();
    match at - i32::from(method) {
        0 => LuaRaise::text(format!("calling '{name}' on bad self ({reason})")),
        at => LuaRaise::argument(at, &name, reason),
    }
}

/// The socket of the object that is the first argument, if it was ever connected.
pub(super) fn socket(l: LuaState) -> Result<Option<Rc<TcpSocket>>, LuaRaise> {
    if l.kind(1) != kind::TABLE {
        return Err(bad_argument(l, 1, &format!("table expected, got {}", l.kind_name(1))));
    }
    Ok(l.owned_in(1, place::SOCKET))
}

/// Whether the object that is the first argument, which has no socket, had one: it has gone with its connection.
pub(super) fn had_socket(l: LuaState) -> bool {
    l.raw_get_index(1, place::SOCKET);
    let had = l.kind(-1) == kind::BOOLEAN;
    l.pop(1);
    had
}

/// Logs that a socket is used in a direction that is closed, and fails.
pub(super) fn closed(l: LuaState, what: &str, socket: Option<&Rc<TcpSocket>>) -> CallOutcome {
    let logs = match socket {
        Some(socket) => socket.logs_errors(),
        None => settings()?.log_errors,
    };
    if logs {
        let at = socket.map_or(std::ptr::null(), Rc::as_ptr);
        let conn = socket.and_then(|socket| socket.conn.borrow().clone());
        let (peer, eof) = match &conn {
            Some(conn) => (conn.peer.to_string(), conn.stream().is_eof()),
            None => (String::new(), false),
        };
        let message = format_args!(
            "attempt to {what} data on a closed socket: u:{at:p}, c:{:p}, ft:0 eof:{}{peer}",
            conn.as_ref().map_or(std::ptr::null(), Rc::as_ptr),
            u8::from(eof)
        );
        lend::any_exchange(|x| x.log(LogLevel::Error, &message))?;
    }
    fail(l, "closed")
}

/// Fails as a method does that another coroutine is in the way of.
macro_rules! not_busy {
    ($l:expr, $socket:expr, $busy:expr) => {
        if let Some(busy) = $socket.busy($busy) {
            return fail($l, busy);
        }
    };
}
pub(super) use not_busy;

pub(super) fn tcp(l: LuaState) -> CallOutcome {
    if l.top() != 0 {
        return Err(LuaRaise::text(format!("expecting zero arguments, but got {}", l.top())));
    }
    lend::any_exchange(|_| ())?;
    l.new_table(place::COUNT, 0);
    l.push_registered(METHODS);
    l.set_metatable(-2);
    Ok(CallDone::Results(1))
}

pub(super) fn close(l: LuaState) -> CallOutcome {
    if l.top() != 1 {
        let message = format!("expecting 1 argument (including the object) but seen {}", l.top());
        return Err(LuaRaise::text(message));
    }
    let Some(socket) = socket(l)? else { return fail(l, "closed") };
    not_busy!(l, socket, &[SocketDirection::Dial]);
    if socket.conn.borrow().is_none() || (socket.read_closed.get() && socket.write_closed.get()) {
        return fail(l, "closed");
    }
    socket.check_owner()?;
    not_busy!(l, socket, OPEN);
    if socket.conn.borrow().as_ref().is_some_and(|conn| conn.is_client()) {
        return fail(l, "attempt to close a request socket");
    }
    socket.finalize(UpstreamCloseReason::Script);
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}

pub(super) fn set_timeout(l: LuaState) -> CallOutcome {
    if l.top() != 2 {
        let top = l.top();
        return Err(LuaRaise::text(format!(
            "ngx.socket settimeout: expecting 2 arguments (including the object) but seen {top}"
        )));
    }
    l.push_value(2);
    l.push_value(2);
    put_timeouts(l)
}

pub(super) fn set_timeouts(l: LuaState) -> CallOutcome {
    if l.top() != 4 {
        let top = l.top();
        return Err(LuaRaise::text(format!(
            "ngx.socket settimeouts: expecting 4 arguments (including the object) but seen {top}"
        )));
    }
    put_timeouts(l)
}

/// Sets the timeouts for connecting, sending and reading: the second, third and fourth argument.
pub(super) fn put_timeouts(l: LuaState) -> CallOutcome {
    for at in 2..=4 {
        let number = l.number(at).unwrap_or_default();
        if number.is_nan() || number <= -1.0 || number >= f64::from(1u32 << 31) {
            return Err(LuaRaise::text("bad timeout value"));
        }
    }
    let socket = socket(l)?;
    for (at, place) in [(2, place::CONNECT_TIMEOUT), (3, place::SEND_TIMEOUT), (4, place::READ_TIMEOUT)] {
        l.push_value(at);
        l.raw_set_index(1, place);
    }
    if let Some(socket) = socket
        && let Some(settings) = socket.settings.borrow().as_ref()
    {
        socket.timeouts.set(timeouts(l, settings.timeouts));
    }
    Ok(CallDone::Results(0))
}

/// The timeouts that were set on the object that is the first argument; what was not is the block's.
pub(super) fn timeouts(l: LuaState, block: SocketTimeouts) -> SocketTimeouts {
    let time = |place, otherwise| {
        let number = l.numeral(1, place).unwrap_or_else(|| {
            l.raw_get_index(1, place);
            let number = l.number(-1).unwrap_or_default();
            l.pop(1);
            number
        });
        if number >= 1.0 { number as u64 } else { otherwise }
    };
    SocketTimeouts {
        connect: time(place::CONNECT_TIMEOUT, block.connect),
        send: time(place::SEND_TIMEOUT, block.send),
        read: time(place::READ_TIMEOUT, block.read),
    }
}

/// Has the coroutine wait for what `future` makes, which leaves its log lines with the run.
pub(super) fn wait(future: impl FnOnce(LogNotes) -> OpWait) -> CallOutcome {
    lend::run(|run| {
        run.wait = WaitKind::Cosocket;
        run.op = Some(ThreadOp::Wait(future(run.notes())));
    })?;
    Ok(CallDone::Yield(0))
}

/// The text of an errno as LuaSocket has it.
pub(super) fn errno_words(errno: i32) -> String {
    weir_rt::file::errno_text(errno).to_ascii_lowercase()
}

/// The log level of a failed `connect`: a server that is not there is not an alarm.
pub(super) fn connect_level(errno: i32) -> LogLevel {
    match errno {
        libc::EAGAIN
        | libc::ECONNRESET
        | libc::ENETDOWN
        | libc::ENETUNREACH
        | libc::ECONNREFUSED
        | libc::EHOSTDOWN
        | libc::EHOSTUNREACH => LogLevel::Error,
        _ => LogLevel::Crit,
    }
}

/// What is where in a socket object.
pub(super) mod place {
    pub(crate) const SOCKET: usize = 1;
    pub(super) const CONNECT_TIMEOUT: usize = 2;
    pub(crate) const KEY: usize = 3;
    pub(super) const SEND_TIMEOUT: usize = 4;
    pub(super) const READ_TIMEOUT: usize = 5;
    pub(crate) const CERTIFICATE: usize = 6;
    pub(crate) const KEY_OF_CERTIFICATE: usize = 7;
    pub(crate) const BIND: usize = 8;
    pub(crate) const TRANSPARENT: usize = 9;
    pub(crate) const TRUSTED: usize = 10;
    pub(crate) const COUNT: usize = 8;
}

/// The registry's name for the methods of sockets; others know it from OpenResty.
pub(super) const METHODS: &std::ffi::CStr = c"__tcp_cosocket_mt";

/// The registry's name for the metatable of [`TcpSocket`].
pub(super) const NAME: &std::ffi::CStr = c"weir.socket";
