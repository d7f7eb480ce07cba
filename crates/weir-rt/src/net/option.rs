//! Options of connected sockets that scripts read and set.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;

use super::{SockAddr, read_raw, set};

/// An option whose value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// SO_KEEPALIVE: 0 or 1.
    KeepAlive,
    /// SO_REUSEADDR: 0 or 1.
    ReuseAddress,
    /// TCP_NODELAY: 0 or 1.
    NoDelay,
    /// SO_SNDBUF in bytes; the kernel doubles what is set.
    SendBuffer,
    /// SO_RCVBUF in bytes; the kernel doubles what is set.
    ReceiveBuffer,
    /// TCP_KEEPINTVL in seconds.
    ProbeInterval,
    /// TCP_KEEPCNT, a number of probes.
    Probes,
}

impl SocketOption {
    fn name(self) -> (c_int, c_int) {
        match self {
            SocketOption::KeepAlive => (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            SocketOption::ReuseAddress => (libc::SOL_SOCKET, libc::SO_REUSEADDR),
            SocketOption::NoDelay => (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            SocketOption::SendBuffer => (libc::SOL_SOCKET, libc::SO_SNDBUF),
            SocketOption::ReceiveBuffer => (libc::SOL_SOCKET, libc::SO_RCVBUF),
            SocketOption::ProbeInterval => (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
            SocketOption::Probes => (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
        }
    }
}

/// The value of a socket option, as getsockopt(2) gives it.
///
/// # Errors
/// The errno of getsockopt(2).
pub fn option(fd: RawFd, option: SocketOption) -> io::Result<i32> {
    let ((level, name), mut value) = (option.name(), 0 as c_int);
    // SAFETY: every option of the kind is an int.
    unsafe { read_raw(fd, level, name, &mut value)? };
    Ok(value)
}

/// Sets a socket option to `value`, as setsockopt(2) takes it.
///
/// # Errors
/// The errno of setsockopt(2).
pub fn set_option(fd: RawFd, option: SocketOption, value: i32) -> io::Result<()> {
    let (level, name) = option.name();
    set(fd, level, name, value)
}

/// Lets a socket be bound to an address of others, `address`'s kind of it (IP_TRANSPARENT).
///
/// # Errors
/// The errno of setsockopt(2): `EPERM` without CAP_NET_ADMIN.
pub fn transparent(fd: RawFd, address: &SockAddr) -> io::Result<()> {
    match address {
        SockAddr::V6(_) => set(fd, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1),
        _ => set(fd, libc::SOL_IP, libc::IP_TRANSPARENT, 1),
    }
}
