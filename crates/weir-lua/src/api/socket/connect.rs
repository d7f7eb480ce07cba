//! `connect` and `bind`.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use weir_engine::descriptors::socket_when_free;
use weir_engine::log::LogLevel;
use weir_engine::resolver;
use weir_engine::worker::UpstreamCloseReason;
use weir_rt::net::{self, SockAddr};
use weir_rt::{Stream, Timer};

use crate::api::socket::conf::SocketSettings;
use crate::api::socket::conn::{SocketConnection, SocketPeer, SocketStream};
use crate::api::socket::host::{self, PeerHost, is_unix};
use crate::api::socket::known;
use crate::api::socket::pool::SocketPools;
use crate::api::socket::pool::{PoolSeat, QueuedConnect};
use crate::api::socket::tcp::{
    NAME, SocketBusy, SocketDirection, TcpSocket, bad_argument, connect_level, errno_words, not_busy, place,
    settings, socket, timeouts, wait,
};
use crate::luajit::state::{LuaState, append_whole};
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::PushResults;
use crate::vm::phase::YIELDABLE;

pub(super) const TABLE: &[ApiFunction] =
    &[function("_socket.connect", YIELDABLE, connect), function("_socket.bind", YIELDABLE, bind)];

/// What the arguments of `connect` say.
struct ConnectWish {
    /// 0 for a unix socket.
    port: u16,
    /// Of the pool: its name, and how large to make it if that was said.
    pool: PoolName,
    size: i64,
    backlog: Option<usize>,
}

/// What a pool is called.
enum PoolName {
    /// As the script has said, which is on top of the stack.
    Given(Vec<u8>),
    /// By the host and this port.
    Peer(Option<u16>),
}

/// A connection that is to be made.
struct DialTarget {
    host: String,
    port: u16,
    bind: Option<SockAddr>,
    transparent: bool,
    settings: Rc<SocketSettings>,
    seat: Option<PoolSeat>,
    queued: Option<QueuedConnect>,
    notes: LogNotes,
}

/// Why there is no connection: the error that the script gets.
type ConnectRefusal = String;

fn bind(l: LuaState) -> CallOutcome {
    let top = l.top();
    if !(2..=3).contains(&top) {
        return Err(LuaRaise::text(format!("expecting 2 or 3 arguments, but got {top}")));
    }
    socket(l)?;
    let mut port = 0.0;
    if top == 3 {
        let Some(number) = l.number(3) else {
            return fail(l, &format!("expecting port to be anumber but got type: {}", l.kind_name(3)));
        };
        port = number.trunc();
    }
    let Some(port) = port_of(port) else { return fail(l, &format!("bad port number: {port}")) };
    let Some(text) = l.bytes(2) else {
        return Err(bad_argument(l, 2, &format!("string expected, got {}", l.kind_name(2))));
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let Ok(ip) = text.parse() else { return fail(l, "bad address") };
    let address = SocketAddr::new(ip, port);
    l.push_bytes(address.to_string().as_bytes());
    l.raw_set_index(1, place::BIND);
    lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket bind ip: {text}"));
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

pub(super) fn port_of(number: f64) -> Option<u16> {
    (0.0..=65535.0).contains(&number).then_some(number as u16)
}

fn connect(l: LuaState) -> CallOutcome {
    let top = l.top();
    if !(2..=4).contains(&top) {
        let message = "ngx.socket connect: expecting 2, 3, or 4 arguments (including the object), but seen";
        return Err(LuaRaise::text(format!("{message} {top}")));
    }
    lend::any_exchange(|_| ())?;
    let before = socket(l)?;
    let block = settings()?;
    let wanted = match wanted(l, &block)? {
        Ok(wanted) => wanted,
        Err(reason) => return fail(l, &reason),
    };
    if let PoolName::Given(_) = wanted.pool {
        l.raw_set_index(1, place::KEY);
    }
    let socket = match before {
        // Whose it was does not matter: it is as one that was never connected.
        Some(socket) if socket.is_spare.replace(false) => {
            l.raw_get_index(1, place::SOCKET);
            known::know(l.pointer(-1), &socket);
            l.pop(1);
            socket
        }
        Some(socket) => {
            socket.check_owner()?;
            not_busy!(l, socket, &[SocketDirection::Connect, SocketDirection::Read, SocketDirection::Write]);
            if socket.conn.borrow().is_some() {
                lend::log_plain(LogLevel::Debug, &"lua tcp socket reconnect without shutting down");
                socket.finalize(UpstreamCloseReason::Script);
            }
            lend::log_plain(LogLevel::Debug, &"lua reuse socket upstream ctx");
            socket
        }
        None => {
            let socket = Rc::<TcpSocket>::default();
            l.push_owned(socket.clone(), NAME);
            known::know(l.pointer(-1), &socket);
            l.raw_set_index(1, place::SOCKET);
            socket
        }
    };
    socket.begin(&block, timeouts(l, block.timeouts))?;
    begin(l, socket, wanted, block)
}

/// Takes an idle connection, or has the coroutine wait for a new one.
fn begin(
    l: LuaState,
    socket: Rc<TcpSocket>,
    wanted: ConnectWish,
    settings: Rc<SocketSettings>,
) -> CallOutcome {
    let pools = lend::vm(|vm| vm.part::<Rc<SocketPools>>().clone());
    let recalled = match (&wanted.pool, l.bytes(2)) {
        (PoolName::Peer(port), Some(host)) => pools.recall(host, *port),
        _ => None,
    };
    // What is idle has its place in the pool already: neither it nor its socket needs the name.
    if let Some(conn) = recalled.as_ref().and_then(|pool| pool.take()) {
        return Ok(connected(l, &socket, conn));
    }
    let name = name_pool(l, &wanted.pool);
    let is_recalled = recalled.is_some();
    let pool = match (recalled.or_else(|| pools.get(&name)), usize::try_from(wanted.size)) {
        (Some(pool), _) => Some(pool),
        (None, Ok(size @ 1..)) => Some(pools.make(&name, size, wanted.backlog)),
        _ => None,
    };
    let (mut seat, mut queued) = (None, None);
    if let Some(pool) = pool {
        if !is_recalled {
            if let (PoolName::Peer(port), Some(host)) = (&wanted.pool, l.bytes(2)) {
                pools.remember(host, *port, &pool);
            }
            if let Some(conn) = pool.take() {
                return Ok(connected(l, &socket, conn));
            }
        }
        let Some(own) = pool.seat() else { return fail(l, "too many waiting connect operations") };
        if own.must_wait() {
            let (name, count) = (String::from_utf8_lossy(&name), pool.connections());
            lend::log_plain(
                LogLevel::Debug,
                &format_args!(
                    "lua tcp socket queue connect operation for connection pool \"{name}\", connections: {count}"
                ),
            );
            queued = Some(own.queue());
        } else {
            seat = Some(own);
        }
    }
    let timeout = socket.timeouts.get().connect;
    lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket connect timeout: {timeout}"));
    let bind = text_at(l, place::BIND).and_then(|text| text.parse().ok());
    let transparent = flag_at(l, place::TRANSPARENT);
    let busy = SocketBusy::new(&socket, SocketDirection::Connect);
    let (host, port) = (l.lossy(2), wanted.port);
    // Without a name to look up the connection is on its way as soon as the script waits.
    socket.dialing.set(queued.is_none() && !matches!(host::parse(&host), Ok(PeerHost::Name(..)) | Err(_)));
    wait(|notes| {
        Box::pin(connecting(
            busy,
            DialTarget { host, port, bind, transparent, settings, seat, queued, notes },
        ))
    })
}

/// The socket has an idle connection.
fn connected(l: LuaState, socket: &TcpSocket, conn: Rc<SocketConnection>) -> CallDone {
    socket.connected(conn);
    l.push_number(1.0);
    CallDone::Results(1)
}

/// The pool's name, which the object has from now on: `setkeepalive` finds the pool by it.
fn name_pool(l: LuaState, pool: &PoolName) -> Vec<u8> {
    let port = match pool {
        PoolName::Given(name) => return name.clone(),
        PoolName::Peer(port) => port,
    };
    let host = l.bytes(2).unwrap_or_default();
    let mut name = Vec::with_capacity(host.len() + ":65535".len());
    name.extend_from_slice(host);
    if let Some(port) = port {
        name.push(b':');
        append_whole(&mut name, f64::from(*port));
    }
    l.push_bytes(&name);
    l.raw_set_index(1, place::KEY);
    name
}

fn text_at(l: LuaState, place: usize) -> Option<String> {
    l.raw_get_index(1, place);
    let text = l.bytes(-1).map(|text| String::from_utf8_lossy(text).into_owned());
    l.pop(1);
    text
}

fn flag_at(l: LuaState, place: usize) -> bool {
    l.raw_get_index(1, place);
    let flag = l.boolean(-1);
    l.pop(1);
    flag
}

async fn connecting(busy: SocketBusy, dial: DialTarget) -> PushResults {
    let socket = busy.socket.clone();
    let timeout = socket.timeouts.get().connect;
    let connected = dial.run(&socket, timeout).await;
    busy.over();
    match connected {
        Ok(conn) => {
            socket.connected(conn);
            Box::new(|l| {
                l.push_number(1.0);
                1
            })
        }
        Err(reason) => {
            socket.read_closed.set(true);
            socket.write_closed.set(true);
            Box::new(move |l| {
                l.push_nil();
                l.push_bytes(reason.as_bytes());
                2
            })
        }
    }
}

impl DialTarget {
    async fn run(mut self, socket: &TcpSocket, timeout: u64) -> Result<Rc<SocketConnection>, ConnectRefusal> {
        if let Some(queued) = self.queued.take() {
            let Some(seat) = queued.wait(timeout).await else {
                let message = format_args!(
                    "lua tcp socket queued connect timed out, when trying to connect to {}:{}",
                    self.host, self.port
                );
                self.error(&message);
                return Err("timeout".to_owned());
            };
            // In the place that has become free another idle connection may be kept.
            if let Some(conn) = seat.pool().take() {
                seat.leave();
                return Ok(conn);
            }
            self.seat = Some(seat);
        }
        let mut refused = String::new();
        for address in self.addresses().await? {
            socket.dialing.set(true);
            match self.open(&address, timeout).await {
                Ok(conn) => return Ok(conn),
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// The addresses of the host, one at least.
    async fn addresses(&self) -> Result<Vec<SockAddr>, ConnectRefusal> {
        let unread = |reason: &str| format!("failed to parse host name \"{}\": {reason}", self.host);
        let (name, port) = match host::parse(&self.host).map_err(unread)? {
            PeerHost::Unix(path) => {
                let address = format!("unix:{path}").parse();
                return Ok(vec![address.map_err(|_| unread("invalid unix socket"))?]);
            }
            PeerHost::Address(ip, port) => return Ok(vec![(ip, port.unwrap_or(self.port)).into()]),
            PeerHost::Name(name, port) => (name, port.unwrap_or(self.port)),
        };
        let Some((resolver, timeout)) = &self.settings.resolver else {
            return Err(format!("no resolver defined to resolve \"{name}\""));
        };
        let not_found = || format!("{name} could not be resolved (3: Host not found)");
        let question = resolver::question(name).map_err(|_| not_found())?;
        let answer = resolver
            .resolve(&question, *timeout)
            .await
            .map_err(|failure| format!("{name} could not be resolved ({}: {failure})", failure.number()))?;
        let mut addresses: Vec<SockAddr> = answer.addresses.iter().map(|ip| (*ip, port).into()).collect();
        if addresses.is_empty() {
            return Err(not_found());
        }
        // Begins with a random one, so that frequent callers do not all use the same address.
        let first = weir_rt::clock::monotonic_ns() as usize / 1000 % addresses.len();
        addresses.rotate_left(first);
        Ok(addresses)
    }

    async fn open(
        &mut self,
        address: &SockAddr,
        timeout: u64,
    ) -> Result<Rc<SocketConnection>, ConnectRefusal> {
        let text = match address {
            SockAddr::Unix(_) => address.to_string(),
            _ => address.host().to_string(),
        };
        let peer = Rc::new(SocketPeer { host: self.host.clone(), port: self.port, address: text });
        let failed = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
        let timer = Timer::new();
        timer.arm(timeout);
        let socket = match either(socket_when_free(address), timer.wait()).await {
            Some(socket) => socket.map_err(|error| errno_words(failed(error)))?,
            None => return Err(self.timed_out(&peer)),
        };
        if let Some(local) = &self.bind
            && let Err(error) = self.bind_to(socket.as_raw_fd(), local)
        {
            let (errno, host) = (failed(error), local.host());
            let text = weir_rt::file::errno_text(errno);
            self.notes.push(LogLevel::Crit, format!("bind({host}) failed ({errno}: {text}){peer}"));
            return Err(errno_words(errno));
        }
        match either(Stream::connect_with(socket, address), timer.wait()).await {
            Some(Ok(stream)) => {
                let conn = Rc::new(SocketConnection::new(SocketStream::Own(stream), peer));
                conn.nodelay.set(!self.settings.nodelay);
                *conn.seat.borrow_mut() = self.seat.take();
                Ok(conn)
            }
            Some(Err(error)) => {
                let errno = failed(error);
                let text = weir_rt::file::errno_text(errno);
                match address {
                    // The kernel refuses those at once, where the address is still at hand.
                    SockAddr::Unix(_) => self.log(
                        connect_level(errno),
                        &format_args!("connect() to {} failed ({errno}: {text}){peer}", self.host),
                    ),
                    _ => self.log(connect_level(errno), &format_args!("connect() failed ({errno}: {text})")),
                }
                Err(errno_words(errno))
            }
            None => Err(self.timed_out(&peer)),
        }
    }

    fn timed_out(&self, peer: &SocketPeer) -> ConnectRefusal {
        self.error(&format_args!("lua tcp socket connect timed out{peer}"));
        "timeout".to_owned()
    }

    fn bind_to(&self, fd: i32, local: &SockAddr) -> std::io::Result<()> {
        if self.transparent {
            net::transparent(fd, local)?;
        }
        if local.port() == Some(0) {
            // Older kernels choose the port at once, and then there are fewer of them: no reason not to go on.
            let _ = net::bind_address_no_port(fd);
        }
        net::bind_to(fd, local)
    }

    fn error(&self, message: &dyn std::fmt::Display) {
        self.log(LogLevel::Error, message);
    }

    /// Logs an error of a socket, unless those are not wanted.
    fn log(&self, level: LogLevel, message: &dyn std::fmt::Display) {
        if self.settings.log_errors {
            self.notes.push(level, message.to_string());
        }
    }
}

/// What `future` comes to, unless `other` is there first.
async fn either<T>(future: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut future, mut other) = (std::pin::pin!(future), std::pin::pin!(other));
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => other.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Reads the arguments of `connect`; the inner error goes to the script.
fn wanted(l: LuaState, block: &SocketSettings) -> Result<Result<ConnectWish, ConnectRefusal>, LuaRaise> {
    let mut top = l.top();
    let Some(host) = l.bytes(2) else {
        return Err(bad_argument(l, 2, &format!("string expected, got {}", l.kind_name(2))));
    };
    let (mut pool, mut size, mut backlog) = (None, 0, None);
    if l.kind(top) == kind::TABLE {
        (pool, size, backlog) = options(l, top, block)?;
        top -= 1;
    }
    let port = if top >= 3 { l.number(3) } else { None };
    let port = match port {
        Some(number) => match port_of(number.trunc()) {
            Some(port) => Some(port),
            None => return Ok(Err(format!("bad port number: {}", number.trunc()))),
        },
        None => None,
    };
    let is_unix = is_unix(host);
    if port.is_none() && !is_unix {
        return Ok(Err("missing the port number".to_owned()));
    }
    let pool = pool.map_or(PoolName::Peer(port), PoolName::Given);
    let port = if is_unix { 0 } else { port.unwrap_or(0) };
    Ok(Ok(ConnectWish { port, pool, size, backlog }))
}

type ConnectOptions = (Option<Vec<u8>>, i64, Option<usize>);

/// Reads the table of options `at`: `pool`, which is on top afterwards if it is there, `pool_size`, `backlog`.
fn options(l: LuaState, at: i32, block: &SocketSettings) -> Result<ConnectOptions, LuaRaise> {
    let bad = |what: &str| Err(bad_argument(l, at, what));
    let (mut size, mut backlog) = (0, None);
    let names = lend::vm(|vm| vm.part::<Rc<SocketPools>>().option_names(l));
    l.push_anchored(names.pool_size);
    l.raw_get(at);
    match l.number(-1) {
        Some(number) if number as i64 <= 0 => {
            return bad(&format!("bad \"pool_size\" option value: {}", number as i64));
        }
        Some(number) => size = number as i64,
        None if l.is_none_or_nil(-1) => {}
        None => return bad(&format!("bad \"pool_size\" option type: {}", l.kind_name(-1))),
    }
    l.pop(1);
    l.push_anchored(names.backlog);
    l.raw_get(at);
    if let Some(number) = l.number(-1) {
        let Ok(number) = usize::try_from(number as i64) else {
            return bad(&format!("bad \"backlog\" option value: {}", number as i64));
        };
        backlog = Some(number);
        if size == 0 {
            size = block.pool_size;
        }
    }
    l.pop(1);
    l.push_anchored(names.pool);
    l.raw_get(at);
    let pool = match l.bytes(-1) {
        Some(name) => Some(name.to_vec()),
        None if l.is_none_or_nil(-1) => None,
        None => return bad(&format!("bad \"pool\" option type: {}", l.kind_name(-1))),
    };
    if pool.is_none() {
        l.pop(1);
    }
    Ok((pool, size, backlog))
}
