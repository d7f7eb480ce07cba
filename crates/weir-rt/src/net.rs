//! Sockets as the configuration describes them: listening, options, addresses, what TCP knows of a connection.
//!
//! Functions take raw descriptors, since the crates above may hold no unsafe code and their sockets are slots of
//! the runtime: a wrong number is an error (`EBADF`), never a memory fault.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use crate::calls::check;

mod addr;
mod option;

pub use addr::{InvalidAddr, LoggedHost, RawAddr, SockAddr, UnixAddr};
pub use option::{SocketOption, option, set_option, transparent};

/// nginx's `listen` parameters. The default is nginx's: no parameter written, on Linux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// `backlog=`: connections the kernel completes before they are accepted; it caps it at net.core.somaxconn.
    pub backlog: u32,
    /// `reuseport`: several sockets may share the address, each with a queue of its own. Nothing for unix sockets.
    pub reuseport: bool,
    /// `ipv6only=`: whether `[::]` leaves IPv4 alone; `None` is nginx's default, on.
    pub ipv6only: Option<bool>,
    /// `rcvbuf=` in bytes (SO_RCVBUF), inherited by accepted sockets; `None`: the system's default.
    pub rcvbuf: Option<u32>,
    /// `sndbuf=` in bytes (SO_SNDBUF), inherited by accepted sockets; `None`: the system's default.
    pub sndbuf: Option<u32>,
    /// `fastopen=`: the limit on connections that sent data with their SYN (RFC 7413); `None`: off.
    pub fastopen: Option<u32>,
    /// `deferred`: accept only once data has come (TCP_DEFER_ACCEPT).
    pub deferred: bool,
    /// `so_keepalive=`; `None` leaves the system's default.
    pub keepalive: Option<TcpKeepalive>,
    /// True sets TCP_NODELAY, inherited by accepted sockets, which saves one system call each.
    pub nodelay: bool,
    /// `udp`: the socket is of datagrams, and takes none of the options of TCP.
    pub udp: bool,
    /// `mode=`: permissions of a unix socket; everybody may connect by default.
    pub mode: u32,
    /// `owner=`, `group=`: ids of those of a unix socket; `None`: who starts the server.
    pub owner: (Option<u32>, Option<u32>),
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: 511,
            reuseport: false,
            ipv6only: None,
            rcvbuf: None,
            sndbuf: None,
            fastopen: None,
            deferred: false,
            keepalive: None,
            nodelay: true,
            udp: false,
            mode: 0o666,
            owner: (None, None),
        }
    }
}

/// `so_keepalive=on|off|[idle]:[interval]:[count]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// True sets SO_KEEPALIVE.
    pub on: bool,
    /// Seconds of silence before the first probe (TCP_KEEPIDLE); `None`: the system's default.
    pub idle: Option<u32>,
    /// Seconds between probes (TCP_KEEPINTVL); `None`: the system's default.
    pub interval: Option<u32>,
    /// Number of probes without a reply after which the connection is dead (TCP_KEEPCNT).
    pub count: Option<u32>,
}

/// [`bind`] and [`start_listening`] in one.
///
/// # Errors
/// Theirs; to name the call that failed, as nginx's messages do, make the two calls.
pub fn listen(addr: &SockAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = bind(addr, options)?;
    start_listening(fd.as_raw_fd(), options).inspect_err(|_| withdraw(addr))?;
    Ok(fd)
}

/// A non-blocking, close-on-exec socket bound to `addr`, with the options that have to be set early, and SO_REUSEADDR where
/// it is one of streams: with it another program could bind the port of a socket of datagrams, and take them. A unix socket's file becomes mode 0666, and as in nginx one that exists already is an error, even if
/// nothing listens: its creator removes it, by [`unlink`].
///
/// # Errors
/// The errno of the call that failed: of bind(2) `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`; of socket(2)
/// `EAFNOSUPPORT`, `EMFILE`.
pub fn bind(addr: &SockAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let socket = if options.udp { datagram_socket(addr)? } else { stream_socket(addr)? };
    let fd = socket.as_raw_fd();
    let inet = addr.ip().is_some();
    if !options.udp {
        set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    }
    if options.reuseport && inet {
        set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if let SockAddr::V6(_) = addr {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, options.ipv6only.unwrap_or(true).into())?;
    }
    // Before the handshake: the window scale is fixed by then.
    set_buffers(fd, options)?;
    bind_to(fd, addr)?;
    if let SockAddr::Unix(unix) = addr
        && let Some(path) = unix.path()
    {
        let permit = || {
            if options.owner != (None, None) {
                std::os::unix::fs::chown(path, options.owner.0, options.owner.1)?;
            }
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(options.mode))
        };
        permit().inspect_err(|_| withdraw(addr))?;
    }
    Ok(socket)
}

/// Sets the TCP options of `options` and begins to listen. May be called again on a listening socket, to change
/// the backlog after a reload.
///
/// # Errors
/// The errno of setsockopt(2) or listen(2): `EADDRINUSE` if a socket of another SO_REUSEPORT group has come first.
pub(crate) fn start_listening(fd: RawFd, options: &ListenOptions) -> io::Result<()> {
    let addr = local_addr(fd)?;
    if options.udp {
        return if addr.is_wildcard() { report_destinations(fd, &addr) } else { Ok(()) };
    }
    if addr.ip().is_some() {
        set_tcp_options(fd, options)?;
    }
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd, clamp(options.backlog)) })
}

/// Applies `options` to a listening socket as far as that is possible after bind(2): after a reload.
///
/// # Errors
/// As [`start_listening`].
pub fn adjust(fd: RawFd, options: &ListenOptions) -> io::Result<()> {
    set_buffers(fd, options)?;
    start_listening(fd, options)
}

/// Lets sockets of the same user bind to the address of `fd` too, which is bound already, if they have SO_REUSEPORT as
/// well: the first of a SO_REUSEPORT group.
///
/// # Errors
/// The errno of setsockopt(2).
pub fn share_port(fd: RawFd) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// A number that distinguishes the socket from all others of the system, through whatever descriptor it is reached
/// (SO_COOKIE). Where the option is unknown (qemu-user), from all that are open.
///
/// # Errors
/// The errno of getsockopt(2), or of stat(2).
pub fn cookie(fd: RawFd) -> io::Result<u64> {
    let mut cookie: u64 = 0;
    // SAFETY: the option gives one u64.
    match unsafe { read_raw(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie) } {
        Ok(()) => Ok(cookie),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOPROTOOPT)) => inode(fd),
        Err(error) => Err(error),
    }
}

/// The number of what is open, in its file system: sockets have one of their own.
fn inode(fd: RawFd) -> io::Result<u64> {
    Ok(std::fs::metadata(format!("/proc/self/fd/{fd}"))?.ino())
}

fn set_buffers(fd: RawFd, options: &ListenOptions) -> io::Result<()> {
    if let Some(n) = options.rcvbuf {
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, clamp(n))?;
    }
    if let Some(n) = options.sndbuf {
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, clamp(n))?;
    }
    Ok(())
}

fn set_tcp_options(fd: RawFd, options: &ListenOptions) -> io::Result<()> {
    nodelay(fd, options.nodelay)?;
    if let Some(k) = &options.keepalive {
        keepalive(fd, k)?;
    }
    if let Some(n) = options.fastopen {
        set(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, clamp(n))?;
    }
    // Seconds; the kernel turns them into retransmissions of its SYN-ACK, at least one.
    set(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, options.deferred.into())
}

/// Removes the file of a unix socket, and does nothing for other addresses. For the process that bound it, when it
/// ends and has not handed the socket on.
///
/// # Errors
/// The errno of unlink(2).
pub fn unlink(addr: &SockAddr) -> io::Result<()> {
    match addr {
        SockAddr::Unix(unix) => unix.path().map_or(Ok(()), std::fs::remove_file),
        _ => Ok(()),
    }
}

/// Removes the file of a unix socket that a killed process has left: one that refuses connections since nothing
/// listens. Whether there was such a file. Anything else by that name stays: a file that is no socket, a link, and a
/// socket that is listened on, even if its queue is full.
///
/// # Errors
/// The errno of unlink(2).
pub fn remove_stale(addr: &SockAddr) -> io::Result<bool> {
    let SockAddr::Unix(unix) = addr else { return Ok(false) };
    let Some(path) = unix.path() else { return Ok(false) };
    if !std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        return Ok(false);
    }
    // Non-blocking: a full queue is EAGAIN instead of a wait.
    let probe = stream_socket(addr)?;
    let raw = addr.to_raw();
    // SAFETY: `raw` holds `len` initialised bytes at the pointer for the time of the call.
    let connected = check(unsafe { libc::connect(probe.as_raw_fd(), raw.as_ptr(), raw.len()) });
    match connected {
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {
            std::fs::remove_file(path).map(|()| true)
        }
        _ => Ok(false),
    }
}

/// Removes a file just created whose socket came to nothing, so that it is not in the next one's way. The caller
/// has the error that matters; a second one here is only its echo.
fn withdraw(addr: &SockAddr) {
    drop(unlink(addr));
}

/// Has each datagram say to which of the machine's addresses it came (IP_PKTINFO, IPV6_RECVPKTINFO).
fn report_destinations(fd: RawFd, addr: &SockAddr) -> io::Result<()> {
    match addr {
        SockAddr::V4(_) => set(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        SockAddr::V6(_) => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        SockAddr::Unix(_) => Ok(()),
    }
}

/// Whether the socket is one of datagrams.
///
/// # Errors
/// The errno of getsockopt(2).
pub fn is_of_datagrams(fd: RawFd) -> io::Result<bool> {
    let mut kind: c_int = 0;
    // SAFETY: the option gives one int.
    unsafe { read_raw(fd, libc::SOL_SOCKET, libc::SO_TYPE, &mut kind) }?;
    Ok(kind == libc::SOCK_DGRAM)
}

/// An unbound stream socket for `addr`'s family, non-blocking and close-on-exec.
///
/// # Errors
/// The errno of socket(2).
pub fn stream_socket(addr: &SockAddr) -> io::Result<OwnedFd> {
    socket(addr, libc::SOCK_STREAM)
}

/// As [`stream_socket`], of datagrams.
///
/// # Errors
/// The errno of socket(2).
pub fn datagram_socket(addr: &SockAddr) -> io::Result<OwnedFd> {
    socket(addr, libc::SOCK_DGRAM)
}

fn socket(addr: &SockAddr, kind: c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(addr.family(), kind, 0) };
    check(fd)?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bind(2), for `proxy_bind` too. A port of 0 there should be combined with [`bind_address_no_port`].
///
/// # Errors
/// The errno of bind(2).
pub fn bind_to(fd: RawFd, addr: &SockAddr) -> io::Result<()> {
    let raw = addr.to_raw();
    // SAFETY: `raw` holds `len` initialised bytes at the pointer for the time of the call.
    check(unsafe { libc::bind(fd, raw.as_ptr(), raw.len()) })
}

/// connect(2), which for a unix socket waits for nothing where the socket is non-blocking.
///
/// # Errors
/// The errno of connect(2).
pub(crate) fn connect_to(fd: RawFd, addr: &SockAddr) -> io::Result<()> {
    let raw = addr.to_raw();
    // SAFETY: `raw` holds `len` initialised bytes at the pointer for the time of the call.
    check(unsafe { libc::connect(fd, raw.as_ptr(), raw.len()) })
}

/// Leaves the choice of the local port to connect(2), which can share one between different peers
/// (IP_BIND_ADDRESS_NO_PORT).
///
/// # Errors
/// The errno of setsockopt(2).
pub fn bind_address_no_port(fd: RawFd) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// The address the socket is bound to.
///
/// # Errors
/// The errno of getsockname(2); `EAFNOSUPPORT` for a family unknown here.
pub fn local_addr(fd: RawFd) -> io::Result<SockAddr> {
    addr_by(fd, libc::getsockname)
}

/// The address of the other end.
///
/// # Errors
/// `ENOTCONN`; otherwise as [`local_addr`].
pub fn peer_addr(fd: RawFd) -> io::Result<SockAddr> {
    addr_by(fd, libc::getpeername)
}

type AddrCall = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

fn addr_by(fd: RawFd, call: AddrCall) -> io::Result<SockAddr> {
    let mut raw = RawAddr::empty();
    let (addr, len) = raw.as_mut_ptrs();
    // SAFETY: both callers pass a function of this contract: it writes at most `*len` bytes, all of them ours.
    check(unsafe { call(fd, addr, len) })?;
    SockAddr::from_raw(&raw).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

/// Sets TCP_NODELAY to `on`.
///
/// # Errors
/// The errno of setsockopt(2): `EOPNOTSUPP` on a unix socket.
pub fn nodelay(fd: RawFd, on: bool) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, on.into())
}

/// How many bytes a socket takes beyond those that the network lets go (TCP_NOTSENT_LOWAT); it is writable again with half of
/// them.
///
/// # Errors
/// The errno of setsockopt(2): `EOPNOTSUPP` on a unix socket.
pub fn unsent_most(fd: RawFd, bytes: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, clamp(bytes))
}

/// `so_keepalive`, `proxy_socket_keepalive`.
///
/// # Errors
/// The errno of setsockopt(2): `EINVAL` for times outside 1..32767 s or counts outside 1..127.
pub fn keepalive(fd: RawFd, k: &TcpKeepalive) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, k.on.into())?;
    let numbers =
        [(libc::TCP_KEEPIDLE, k.idle), (libc::TCP_KEEPINTVL, k.interval), (libc::TCP_KEEPCNT, k.count)];
    for (name, value) in numbers {
        if let Some(n) = value {
            set(fd, libc::IPPROTO_TCP, name, clamp(n))?;
        }
    }
    Ok(())
}

/// SO_LINGER of zero seconds: closing resets the connection and drops what is unsent
/// (`reset_timedout_connection`).
///
/// # Errors
/// The errno of setsockopt(2).
pub fn linger_reset(fd: RawFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a plain C struct of the kind this option takes.
    unsafe { set_raw(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger) }
}

/// Ends a connection in both directions: a task that waits to read gets its end, one that writes an error.
///
/// # Errors
/// The errno of shutdown(2): `ENOTCONN` if the connection is gone.
pub fn shutdown(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::shutdown(fd, libc::SHUT_RDWR) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the pending error of a socket (SO_ERROR): an errno, 0 for none.
///
/// # Errors
/// The errno of getsockopt(2).
pub(crate) fn socket_error(fd: RawFd) -> io::Result<i32> {
    let mut errno: c_int = 0;
    // SAFETY: the option gives one int.
    unsafe { read_raw(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut errno) }?;
    Ok(errno)
}

/// Whether a connection that is not read has nothing to be read: no byte, no end, no error. It is not disturbed.
pub fn is_silent(fd: RawFd) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes one byte at most, into a byte of ours that outlives the call.
    let read = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, flags) };
    read < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

/// What the kernel knows of a connection: nginx's `$tcpinfo_*`, and what the profiler asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// `$tcpinfo_rtt`: smoothed round trip, microseconds.
    pub rtt_us: u32,
    /// `$tcpinfo_rttvar`: its mean deviation, microseconds.
    pub rttvar_us: u32,
    /// `$tcpinfo_snd_cwnd`: congestion window, in segments.
    pub snd_cwnd: u32,
    /// Bytes of a segment that is sent.
    pub snd_mss: u32,
    /// `$tcpinfo_rcv_space`: receive window in use, bytes.
    pub rcv_space: u32,
    /// Milliseconds since the last ACK came in; right after accept, the time spent in the accept queue.
    pub last_ack_recv_ms: u32,
    /// Milliseconds since the last data came in; before it is read, the time spent in the receive queue.
    pub last_data_recv_ms: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Number of segments retransmitted so far.
    pub total_retrans: u32,
}

/// Asks TCP about a connection; one system call.
///
/// # Errors
/// The errno of getsockopt(2): `EOPNOTSUPP` on a unix socket.
pub fn tcp_info(fd: RawFd) -> io::Result<TcpInfo> {
    let info = kernel_tcp_info(fd)?;
    Ok(TcpInfo {
        rtt_us: info.tcpi_rtt,
        rttvar_us: info.tcpi_rttvar,
        snd_cwnd: info.tcpi_snd_cwnd,
        snd_mss: info.tcpi_snd_mss,
        rcv_space: info.tcpi_rcv_space,
        last_ack_recv_ms: info.tcpi_last_ack_recv,
        last_data_recv_ms: info.tcpi_last_data_recv,
        unacked: info.tcpi_unacked,
        total_retrans: info.tcpi_total_retrans,
    })
}

/// Whether the peer has ended its direction, or the connection is broken, as the kernel knows it by now: a loop hears
/// of it with its next turn only. One system call; what is there to read stays. A wrong descriptor has ended.
pub fn has_ended(fd: RawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: writable for the one byte asked for; a wrong descriptor is EBADF.
    let n = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    let waits = |error: io::Error| matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
    n == 0 || (n < 0 && !waits(io::Error::last_os_error()))
}

/// Bytes that a socket holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketBytes {
    /// Bytes received and not read (SIOCINQ).
    pub unread: u64,
    /// Bytes written and not acknowledged by the peer (SIOCOUTQ).
    pub unacknowledged: u64,
    /// Bytes of those not even sent (SIOCOUTQNSD): the peer's or the network's window is full.
    pub unsent: u64,
}

/// What a connected TCP socket holds; three system calls.
///
/// # Errors
/// The errno of ioctl(2).
pub fn held(fd: RawFd) -> io::Result<SocketBytes> {
    let ask = |request| {
        let mut bytes: c_int = 0;
        // SAFETY: these requests write one int, which outlives the call.
        match unsafe { libc::ioctl(fd, request, &raw mut bytes) } {
            0 => Ok(u64::try_from(bytes).unwrap_or(0)),
            _ => Err(io::Error::last_os_error()),
        }
    };
    Ok(SocketBytes {
        unread: ask(libc::FIONREAD)?,
        unacknowledged: ask(libc::TIOCOUTQ)?,
        unsent: ask(SIOCOUTQNSD)?,
    })
}

/// Has the kernel stamp what comes on a socket (SO_TIMESTAMPNS), for [`packets`](crate::packets), or not any more.
///
/// # Errors
/// The errno of setsockopt(2).
pub fn stamp_packets(fd: RawFd, on: bool) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, on.into())
}

/// Connections waiting to be accepted on a TCP listener, and how many may.
///
/// # Errors
/// As [`tcp_info`].
pub fn accept_queue(fd: RawFd) -> io::Result<(u32, u32)> {
    // For a listener the kernel reports the queue in these two fields.
    kernel_tcp_info(fd).map(|info| (info.tcpi_unacked, info.tcpi_sacked))
}

fn kernel_tcp_info(fd: RawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: integers only, for which zero is a value; an older kernel fills fewer.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    // SAFETY: the option gives a prefix of this struct.
    unsafe { read_raw(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info) }?;
    Ok(info)
}

// asm-generic/socket.h; the libc crate has these two for Android only, and the ports of Linux that number options
// differently (mips, sparc, parisc) are not supported.
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

fn set(fd: RawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: every option passed here takes an int.
    unsafe { set_raw(fd, level, name, &value) }
}

/// # Safety
/// `T` must be the C type the option takes.
unsafe fn set_raw<T>(fd: RawFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`; the type is the caller's promise.
    check(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), len) })
}

/// # Safety
/// `T` must be the C type the option gives, and any bytes must be a value of it.
unsafe fn read_raw<T>(fd: RawFd, level: c_int, name: c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `value`; the type is the caller's promise.
    check(unsafe { libc::getsockopt(fd, level, name, std::ptr::from_mut(value).cast(), &mut len) })
}

fn clamp(n: u32) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests;
