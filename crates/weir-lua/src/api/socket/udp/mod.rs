//! `ngx.socket.udp`: datagrams to one peer and back, over IP and over unix sockets.
//!
//! What is there is taken at once; else the coroutine waits, woken by the thread that watches such descriptors
//! ([`weir_rt::process::watch`]): one receive is one datagram, whatever its length, and an error (nothing listens
//! there) is reported and forgotten.

pub(crate) mod flow;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, ready};
use std::time::Duration;

use weir_engine::log::LogLevel;
use weir_engine::resolver;
use weir_rt::file::errno_text;
use weir_rt::process::watch::{WatchInterest, WatchedDescriptor};
use weir_trace::WaitKind;

use crate::api::socket::conn::SocketPeer;
use crate::api::socket::host::{self, PeerHost};
use crate::api::socket::send::text;
use crate::api::socket::tcp::{SocketOwner, connect_level, errno_words, owner, settings};
use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::run::script_run::ScriptRun;
use crate::vm::phase::YIELDABLE;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_udp.new", YIELDABLE, |l| {
        if l.top() > 0 {
            return Err(LuaRaise::text(format!("expecting zero arguments, but got {}", l.top())));
        }
        lend::any_exchange(|_| ())?;
        l.push_owned(Rc::<ScriptUdpSocket>::default(), c"weir.udp");
        Ok(CallDone::Results(1))
    }),
    function("_udp_here", 0, |l| {
        l.push_boolean(lend::phase().is_in(YIELDABLE));
        Ok(CallDone::Results(1))
    }),
    function("_udp.settimeout", 0, |l| {
        let udp = of(l, 1)?;
        let ms = l.number(2).unwrap_or_default();
        udp.limit.set((ms > 0.0).then_some(ms as u64));
        Ok(CallDone::Results(0))
    }),
    function("_udp.setpeername", YIELDABLE, set_peer_name),
    function("_udp.bind", 0, bind),
    function("_udp.send", YIELDABLE, send),
    function("_udp.receive", YIELDABLE, receive),
    function("_udp.close", 0, close),
    function("_udp.flow_send", 0, flow::send),
    function("_udp.flow_receive", 0, flow::receive),
];

/// The longest datagram.
const LARGEST: usize = 65_536;

/// A socket as scripts have it.
#[derive(Default)]
struct ScriptUdpSocket {
    /// Whose it is, once it has a peer.
    owner: RefCell<Weak<SocketOwner>>,
    /// Milliseconds that a datagram is waited for, where `lua_socket_read_timeout` does not say.
    limit: Cell<Option<u64>>,
    link: RefCell<Option<Rc<UdpLink>>>,
    /// The address it is bound to; port 0 for any.
    local: Cell<Option<SocketAddr>>,
    /// A coroutine waits for it.
    busy: Rc<Cell<bool>>,
}

/// A socket with its peer.
struct UdpLink {
    socket: DatagramSocket,
    watched: WatchedDescriptor,
    peer: SocketPeer,
}

enum DatagramSocket {
    Ip(UdpSocket),
    Unix(UnixDatagram),
}

impl UdpLink {
    fn new(socket: DatagramSocket, peer: SocketPeer) -> io::Result<UdpLink> {
        let fd: OwnedFd = match &socket {
            DatagramSocket::Ip(socket) => socket.try_clone()?.into(),
            DatagramSocket::Unix(socket) => socket.try_clone()?.into(),
        };
        // The clone is the same socket: both do not block.
        Ok(UdpLink { watched: WatchedDescriptor::new(fd)?, socket, peer })
    }

    /// By `socket` to `address`, that of `peer`.
    fn ip(socket: UdpSocket, address: SocketAddr, peer: SocketPeer) -> io::Result<UdpLink> {
        socket.connect(address)?;
        UdpLink::new(DatagramSocket::Ip(socket), peer)
    }

    /// To the unix socket `path`. It has a name of its own, so that a reply can be sent to it.
    fn unix(path: &str, peer: SocketPeer) -> io::Result<UdpLink> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("weir-udp-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let socket = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(name)?)?;
        socket.connect(path)?;
        UdpLink::new(DatagramSocket::Unix(socket), peer)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.socket {
            DatagramSocket::Ip(socket) => socket.send(bytes),
            DatagramSocket::Unix(socket) => socket.send(bytes),
        }
    }

    /// The next datagram, or as much of it as there is room for.
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        match &self.socket {
            DatagramSocket::Ip(socket) => socket.recv(into),
            DatagramSocket::Unix(socket) => socket.recv(into),
        }
    }
}

/// A socket for datagrams to `peer`, from the address `local` or any.
fn bound(local: Option<SocketAddr>, peer: IpAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(local.unwrap_or(match peer {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }))
}

/// The socket in the first argument.
fn of(l: LuaState, at: i32) -> Result<Rc<ScriptUdpSocket>, LuaRaise> {
    l.owned(at).ok_or_else(|| LuaRaise::text("bad udp socket object"))
}

/// The socket that is the first argument, which must be of the running request.
fn own(l: LuaState) -> Result<Rc<ScriptUdpSocket>, LuaRaise> {
    let udp = of(l, 1)?;
    let other = !std::ptr::eq(udp.owner.borrow().as_ptr(), Rc::as_ptr(&owner()?));
    match other && udp.link.borrow().is_some() {
        true => Err(LuaRaise::text("bad request")),
        false => Ok(udp),
    }
}

/// Errors as scripts have them.
fn reason(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| "error".to_owned(), errno_words)
}

fn done(l: LuaState) -> CallOutcome {
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}

/// `setpeername(socket, host, port)`; without a port: `unix:path`.
fn set_peer_name(l: LuaState) -> CallOutcome {
    let udp = own(l)?;
    let host = String::from_utf8_lossy(&expect_string(&l, 2, "setpeername")?).into_owned();
    let port = if l.is_none_or_nil(3) { 0.0 } else { expect_number(l, 3, "setpeername")? };
    if !(0.0..65536.0).contains(&port) {
        return fail(l, &format!("bad port number: {port}"));
    }
    if udp.busy.get() {
        return fail(l, "socket busy");
    }
    *udp.owner.borrow_mut() = Rc::downgrade(&owner()?);
    if let Some(before) = udp.link.take() {
        lend::log_plain(LogLevel::Debug, &"lua reuse socket upstream ctx");
        lend::log_plain(LogLevel::Debug, &"lua udp socket reconnect without shutting down");
        drop(before);
    }
    let port = port as u16;
    let (address, linked) = match host::parse(&host) {
        Err(why) => return fail(l, &format!("failed to parse host name \"{host}\": {why}")),
        Ok(PeerHost::Name(name, own)) => {
            let (name, peer) =
                (name.to_owned(), SocketPeer { host: host.clone(), port, address: String::new() });
            return look_up(l, udp, name, own.unwrap_or(port), peer);
        }
        Ok(PeerHost::Unix(path)) => {
            let address = format!("unix:{path}");
            (address.clone(), UdpLink::unix(path, SocketPeer { host: host.clone(), port, address }))
        }
        Ok(PeerHost::Address(ip, own)) => {
            let peer = SocketPeer { host: host.clone(), port, address: ip.to_string() };
            let local = udp.local.get();
            let socket = match bound(local, ip) {
                Ok(socket) => socket,
                Err(error) => return not_bound(l, local, &error, &peer),
            };
            (ip.to_string(), UdpLink::ip(socket, (ip, own.unwrap_or(port)).into(), peer))
        }
    };
    match linked {
        Ok(link) => {
            *udp.link.borrow_mut() = Some(Rc::new(link));
            done(l)
        }
        Err(error) => {
            if logs_errors() {
                let errno = error.raw_os_error().unwrap_or_default();
                let peer = SocketPeer { host, port, address };
                let message = format_args!("connect() failed ({errno}: {}){peer}", errno_text(errno));
                lend::log_plain(connect_level(errno), &message);
            }
            fail(l, &reason(&error))
        }
    }
}

fn look_up(l: LuaState, udp: Rc<ScriptUdpSocket>, name: String, port: u16, peer: SocketPeer) -> CallOutcome {
    let Some((resolver, timeout)) = settings()?.resolver.clone() else {
        return fail(l, &format!("no resolver defined to resolve \"{name}\""));
    };
    let Ok(question) = resolver::question(&name) else {
        return fail(l, &format!("{name} could not be resolved (3: Host not found)"));
    };
    let busy = UdpBusy::begin(&udp.busy);
    waits(WaitKind::Resolver, async move {
        let found = resolver.resolve(&question, timeout).await;
        drop(busy);
        let linked = match found {
            Ok(answer) => match answer.addresses.first() {
                Some(ip) => {
                    let peer = SocketPeer { address: ip.to_string(), ..peer };
                    let linked = bound(udp.local.get(), *ip)
                        .and_then(|socket| UdpLink::ip(socket, (*ip, port).into(), peer));
                    linked.map_err(|error| reason(&error))
                }
                None => Err(format!("{name} could not be resolved (3: Host not found)")),
            },
            Err(failure) => Err(format!("{name} could not be resolved ({}: {failure})", failure.number())),
        };
        Box::new(move |l: LuaState| match linked {
            Ok(link) => {
                *udp.link.borrow_mut() = Some(Rc::new(link));
                l.push_number(1.0);
                1
            }
            Err(why) => refuse(l, &why),
        }) as PushResults
    })
}

/// `nil, message`
fn refuse(l: LuaState, why: &str) -> i32 {
    l.push_nil();
    l.push_bytes(why.as_bytes());
    2
}

/// Lets the coroutine wait.
fn waits(kind: WaitKind, wait: impl Future<Output = PushResults> + 'static) -> CallOutcome {
    lend::run(|run| {
        run.wait = kind;
        run.op = Some(ThreadOp::Wait(Box::pin(wait)));
    })?;
    Ok(CallDone::Yield(0))
}

/// An address that is not this machine's, or in use.
fn not_bound(l: LuaState, local: Option<SocketAddr>, error: &io::Error, peer: &SocketPeer) -> CallOutcome {
    if let (true, Some(local)) = (logs_errors(), local) {
        let errno = error.raw_os_error().unwrap_or_default();
        let message = format_args!("bind({}) failed ({errno}: {}){peer}", local.ip(), errno_text(errno));
        lend::log_plain(LogLevel::Crit, &message);
    }
    fail(l, &reason(error))
}

/// `bind(socket, address, port)`: where its datagrams come from; the port is for sessions of `stream`, as in OpenResty.
fn bind(l: LuaState) -> CallOutcome {
    let udp = of(l, 1)?;
    let port = if l.is_none_or_nil(3) { None } else { Some(expect_number(l, 3, "bind")?) };
    if let Some(port) = port.filter(|port| !(1.0..65536.0).contains(port)) {
        return Err(LuaRaise::text(format!("bad port number: {port}")));
    }
    match resolver::literal(&l.lossy(2)) {
        Some(ip) => {
            lend::log_plain(LogLevel::Debug, &format_args!("lua udp socket bind ip: {ip}"));
            udp.local.set(Some((ip, port.unwrap_or_default() as u16).into()));
            done(l)
        }
        None => fail(l, "bad address"),
    }
}

/// The peer; `None` if the socket is not connected.
fn linked(udp: &ScriptUdpSocket, doing: &str) -> Option<Rc<UdpLink>> {
    let link = udp.link.borrow().clone();
    if link.is_none() && logs_errors() {
        let message = format!(
            "attempt to {doing} data on a closed socket: u:{udp:p}, c:{:p}",
            std::ptr::null::<UdpLink>()
        );
        lend::log(LogLevel::Error, &message);
    }
    link
}

/// `lua_socket_log_errors`
fn logs_errors() -> bool {
    settings().is_ok_and(|settings| settings.log_errors)
}

/// `send(socket, data)`
fn send(l: LuaState) -> CallOutcome {
    let udp = own(l)?;
    let Some(link) = linked(&udp, "send") else { return fail(l, "closed") };
    if udp.busy.get() {
        return fail(l, "socket busy");
    }
    let mut data = Vec::new();
    text(l, &mut data, &|reason| LuaRaise::argument(1, "send", reason))?;
    match link.send(&data) {
        Ok(sent) if sent == data.len() => done(l),
        Ok(_) => fail(l, "partial write"),
        Err(error) => {
            if logs_errors() {
                let errno = error.raw_os_error().unwrap_or_default();
                let message = format_args!("send() failed ({errno}: {}){}", errno_text(errno), link.peer);
                lend::log_plain(io_level(errno), &message);
            }
            fail(l, &reason(&error))
        }
    }
}

/// The log level of a failed send or receive.
fn io_level(errno: i32) -> LogLevel {
    match errno {
        libc::EPIPE | libc::ENOTCONN | libc::ETIMEDOUT => LogLevel::Error,
        _ if connect_level(errno) == LogLevel::Error => LogLevel::Error,
        _ => LogLevel::Alert,
    }
}

/// `receive(socket, size)`
fn receive(l: LuaState) -> CallOutcome {
    let udp = own(l)?;
    let Some(link) = linked(&udp, "receive") else { return fail(l, "closed") };
    let size = if l.is_none_or_nil(2) { LARGEST } else { expect_number(l, 2, "receive")? as usize };
    let size = size.clamp(1, LARGEST);
    if udp.busy.get() {
        return fail(l, "socket busy");
    }
    lend::log_plain(LogLevel::Debug, &format_args!("lua udp socket receive buffer size: {size}"));
    let mut buffer = vec![0; size];
    match link.receive(&mut buffer) {
        Ok(count) => {
            l.push_bytes(&buffer[..count]);
            return Ok(CallDone::Results(1));
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => {
            if logs_errors() {
                lend::log_plain(LogLevel::Error, &failed(&error, &link.peer));
            }
            return Ok(CallDone::Results(refuse(l, &reason(&error))));
        }
    }
    let busy = UdpBusy::begin(&udp.busy);
    let notes = if logs_errors() { Some(lend::run(ScriptRun::notes)?) } else { None };
    let limit = Duration::from_millis(match udp.limit.get() {
        Some(ms) => ms,
        None => settings()?.timeouts.read,
    });
    waits(WaitKind::Cosocket, async move {
        let received = arrives(&link, &mut buffer, limit).await;
        drop(busy);
        let said = match &received {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some(failed(error, &link.peer)),
            None => Some(format!("lua udp socket read timed out{}", link.peer)),
        };
        if let (Some(said), Some(notes)) = (said, notes) {
            notes.push(LogLevel::Error, said);
        }
        Box::new(move |l: LuaState| match received {
            Some(Ok(count)) => {
                l.push_bytes(&buffer[..count]);
                1
            }
            Some(Err(error)) => refuse(l, &reason(&error)),
            None => refuse(l, "timeout"),
        }) as PushResults
    })
}

/// The size of the next datagram, which is in `buffer`; `None` when `limit` is over.
async fn arrives(link: &UdpLink, buffer: &mut [u8], limit: Duration) -> Option<io::Result<usize>> {
    let mut late = std::pin::pin!(weir_rt::sleep(limit));
    poll_fn(|cx| {
        loop {
            match link.receive(buffer) {
                Ok(count) => return Poll::Ready(Some(Ok(count))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            if late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            if let Err(error) = ready!(link.watched.poll_ready(cx, WatchInterest::Read)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    })
    .await
}

/// What is logged of an error.
fn failed(error: &io::Error, peer: &SocketPeer) -> String {
    let errno = error.raw_os_error().unwrap_or_default();
    format!("recv() failed ({errno}: {}){peer}", errno_text(errno))
}

/// `close(socket)`
fn close(l: LuaState) -> CallOutcome {
    let udp = own(l)?;
    if udp.link.borrow().is_none() {
        return fail(l, "closed");
    }
    if udp.busy.get() {
        return fail(l, "socket busy");
    }
    let link = udp.link.take();
    drop(link);
    done(l)
}

/// A coroutine waits for the socket.
struct UdpBusy(Rc<Cell<bool>>);

impl UdpBusy {
    fn begin(flag: &Rc<Cell<bool>>) -> UdpBusy {
        flag.set(true);
        UdpBusy(flag.clone())
    }
}

impl Drop for UdpBusy {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
