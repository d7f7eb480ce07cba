//! Sockets: those of IPv4 and TCP are the simulation's, all others the kernel's.

use std::net::Ipv4Addr;

use crate::addresses::{SocketAddresses, SocketName};
use crate::kernel::{self, KernelResult, returned, unix};
use crate::threads::{self, is_simulated};

use super::waits::waiting;
use super::{datagrams, files};

/// Whether a descriptor is a simulated socket.
fn is_ours(fd: i32) -> bool {
    is_simulated() && threads::with(|simulation| simulation.addresses.is_simulated(fd))
}

fn direct(number: libc::c_long, a: [usize; 6]) -> isize {
    // SAFETY: the callers pass on arguments of the C function of that name, which its caller has answered for.
    returned(unsafe { kernel::call(number, a) })
}

fn outcome(result: Result<(), i32>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            kernel::set_errno(error);
            -1
        }
    }
}

/// The IPv4 address at a place; `None`: it is another one.
///
/// # Safety
/// `address` is null or valid for reads of `length` bytes.
pub(super) unsafe fn ipv4(address: *const libc::sockaddr, length: libc::socklen_t) -> Option<SocketName> {
    if address.is_null() || (length as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: by the caller's word, and long enough.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    let host = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).octets();
    (i32::from(address.sin_family) == libc::AF_INET).then_some((host, u16::from_be(address.sin_port)))
}

/// Writes an address as getsockname(2) does.
///
/// # Safety
/// `length` is valid for reads and writes, `address` for writes of as many bytes as it says; or both are null.
pub(super) unsafe fn give(name: SocketName, address: *mut libc::sockaddr, length: *mut libc::socklen_t) {
    if address.is_null() || length.is_null() {
        return;
    }
    let (host, port) = name;
    let whole = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(host) },
        sin_zero: [0; 8],
    };
    // SAFETY: by the caller's word; no more bytes than there is room for.
    unsafe {
        let room = (length.read() as usize).min(size_of_val(&whole));
        std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), address.cast::<u8>(), room);
        length.write(size_of_val(&whole) as libc::socklen_t);
    }
}

/// socket(2).
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: i32, kind: i32, protocol: i32) -> i32 {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    if is_simulated() && domain == libc::AF_INET && kind & !flags == libc::SOCK_DGRAM {
        return match datagrams::line(kind & flags) {
            Ok((own, far)) => {
                threads::with(|simulation| simulation.addresses.add_datagrams(own, far));
                own
            }
            Err(error) => outcome(Err(error)),
        };
    }
    if !is_simulated() || domain != libc::AF_INET || kind & !flags != libc::SOCK_STREAM {
        return direct(libc::SYS_socket, [domain as usize, kind as usize, protocol as usize, 0, 0, 0]) as i32;
    }
    let fd = returned(unix::socket(kind & flags)) as i32;
    if fd >= 0 {
        threads::with(|simulation| simulation.addresses.add(fd));
    }
    fd
}

/// bind(2).
///
/// # Safety
/// `address` is valid for reads of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: i32, address: *const libc::sockaddr, length: libc::socklen_t) -> i32 {
    // SAFETY: by the caller's word.
    match unsafe { ipv4(address, length) } {
        Some(name) if is_ours(fd) => outcome(threads::with(|simulation| simulation.addresses.bind(fd, name))),
        _ => direct(libc::SYS_bind, [fd as usize, address as usize, length as usize, 0, 0, 0]) as i32,
    }
}

/// listen(2).
#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: i32, backlog: i32) -> i32 {
    let result = returned(unix::listen(fd, backlog)) as i32;
    if result == 0 && is_ours(fd) {
        threads::with(|simulation| simulation.addresses.listen(fd));
    }
    result
}

/// connect(2).
///
/// # Safety
/// `address` is valid for reads of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: i32, address: *const libc::sockaddr, length: libc::socklen_t) -> i32 {
    // SAFETY: by the caller's word.
    match unsafe { ipv4(address, length) } {
        Some(name) if is_ours(fd) && threads::with(|simulation| simulation.addresses.is_of_datagrams(fd)) => {
            threads::with(|simulation| simulation.addresses.connect_datagrams(fd, name));
            0
        }
        Some(name) if is_ours(fd) => {
            let connected = threads::with(|simulation| simulation.addresses.connect(fd, name, false));
            if connected.is_ok() && threads::with(|simulation| simulation.world.is_narrow(name.1)) {
                unix::narrow(fd, 4096);
            }
            if connected.is_ok() {
                threads::with(|simulation| simulation.world.is_connected_to(simulation.now, name.1));
            }
            // As with TCP it is known later, where one may wait for that.
            let later = threads::with(|simulation| simulation.pauses());
            match connected {
                Ok(()) if later && kernel::is_nonblocking(fd) => outcome(Err(libc::EINPROGRESS)),
                Err(error) if later && kernel::is_nonblocking(fd) => {
                    threads::with(|simulation| simulation.addresses.fail_later(fd, error));
                    outcome(Err(libc::EINPROGRESS))
                }
                result => outcome(result),
            }
        }
        _ => direct(libc::SYS_connect, [fd as usize, address as usize, length as usize, 0, 0, 0]) as i32,
    }
}

/// accept4(2).
///
/// # Safety
/// `length` is valid for reads and writes, `address` for writes of as many bytes as it says; or both are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: i32,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    flags: i32,
) -> i32 {
    if !is_ours(fd) {
        let a = [fd as usize, address as usize, length as usize, flags as usize, 0, 0];
        // SAFETY: by the caller's word.
        let call = || unsafe { kernel::call(libc::SYS_accept4, a) };
        return returned(waiting(fd, libc::POLLIN, true, call)) as i32;
    }
    let fault = threads::with(|simulation| simulation.accept_fault());
    if fault != 0 {
        return outcome(Err(fault));
    }
    let accepted = returned(waiting(fd, libc::POLLIN, true, || unix::accept(fd, flags))) as i32;
    if accepted < 0 {
        return accepted;
    }
    if let Some(caller) = threads::with(|simulation| simulation.addresses.accepted(fd, accepted)) {
        if caller.is_narrow {
            unix::narrow(accepted, 4096);
        }
        // SAFETY: by the caller's word.
        unsafe { give(caller.from, address, length) };
    }
    accepted
}

/// The address of one end of a socket, as `find` has it of ours and `number` of the kernel's.
///
/// # Safety
/// `length` is valid for reads and writes, `address` for writes of as many bytes as it says.
unsafe fn named(
    number: libc::c_long,
    fd: i32,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    find: impl FnOnce(&SocketAddresses) -> Option<SocketName>,
) -> i32 {
    if !is_ours(fd) {
        return direct(number, [fd as usize, address as usize, length as usize, 0, 0, 0]) as i32;
    }
    let Some(name) = threads::with(|simulation| find(&simulation.addresses)) else {
        return outcome(Err(libc::ENOTCONN));
    };
    // SAFETY: by the caller's word.
    unsafe { give(name, address, length) };
    0
}

/// getsockname(2).
///
/// # Safety
/// `length` is valid for reads and writes, `address` for writes of as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: i32,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> i32 {
    let local = |addresses: &SocketAddresses| Some(addresses.local(fd).unwrap_or(([0; 4], 0)));
    // SAFETY: by the caller's word.
    unsafe { named(libc::SYS_getsockname, fd, address, length, local) }
}

/// getpeername(2).
///
/// # Safety
/// `length` is valid for reads and writes, `address` for writes of as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: i32,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { named(libc::SYS_getpeername, fd, address, length, |addresses| addresses.peer(fd)) }
}

/// setsockopt(2): options of TCP and IP are taken, and have no effect.
///
/// # Safety
/// `value` is valid for reads of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: i32,
    level: i32,
    name: i32,
    value: *const libc::c_void,
    length: libc::socklen_t,
) -> i32 {
    let is_buffer = matches!(name, libc::SO_SNDBUF | libc::SO_RCVBUF);
    if is_ours(fd) && (level, name) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
        threads::with(|simulation| simulation.addresses.report_destinations(fd));
    }
    if is_ours(fd) && !(level == libc::SOL_SOCKET && is_buffer) {
        return 0;
    }
    let a = [fd as usize, level as usize, name as usize, value as usize, length as usize, 0];
    direct(libc::SYS_setsockopt, a) as i32
}

/// getsockopt(2): options of TCP and IP are zero.
///
/// # Safety
/// `length` is valid for reads and writes, `value` for writes of as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: i32,
    level: i32,
    name: i32,
    value: *mut libc::c_void,
    length: *mut libc::socklen_t,
) -> i32 {
    let a = [fd as usize, level as usize, name as usize, value as usize, length as usize, 0];
    if !is_ours(fd) {
        return direct(libc::SYS_getsockopt, a) as i32;
    }
    if level == libc::SOL_SOCKET && name == libc::SO_ERROR {
        let error = threads::with(|simulation| simulation.addresses.take_error(fd));
        if error != 0 {
            // SAFETY: by the caller's word; SO_ERROR is an int.
            unsafe { value.cast::<i32>().write_unaligned(error) };
            return 0;
        }
    }
    let is_tcp = matches!(level, libc::IPPROTO_TCP | libc::IPPROTO_IP);
    if !is_tcp {
        return direct(libc::SYS_getsockopt, a) as i32;
    }
    // SAFETY: by the caller's word.
    unsafe { value.cast::<u8>().write_bytes(0, length.read() as usize) };
    0
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: i32) -> i32 {
    if is_simulated() {
        threads::with(|simulation| simulation.addresses.remove(fd));
        files::forget(fd);
    }
    returned(kernel::close(fd)) as i32
}

/// fcntl(2).
///
/// # Safety
/// That of the command.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: i32, command: i32, argument: usize) -> i32 {
    let result = direct(libc::SYS_fcntl, [fd as usize, command as usize, argument, 0, 0, 0]) as i32;
    if result >= 0 && is_simulated() && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        threads::with(|simulation| simulation.addresses.copy(fd, result));
        files::copy(fd, result);
    }
    result
}

/// recv(2).
///
/// # Safety
/// `bytes` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: i32, bytes: *mut libc::c_void, length: usize, flags: i32) -> isize {
    let a = [fd as usize, bytes as usize, length, flags as usize, 0, 0];
    // SAFETY: by the caller's word; no address.
    let call = || -> KernelResult { unsafe { kernel::call(libc::SYS_recvfrom, a) } };
    returned(waiting(fd, libc::POLLIN, flags & libc::MSG_DONTWAIT == 0, call))
}

/// recvmsg(2).
///
/// # Safety
/// `message` is valid, with all that it leads to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: i32, message: *mut libc::msghdr, flags: i32) -> isize {
    // SAFETY: by the caller's word.
    let call = || unsafe {
        kernel::call(libc::SYS_recvmsg, [fd as usize, message as usize, flags as usize, 0, 0, 0])
    };
    returned(waiting(fd, libc::POLLIN, flags & libc::MSG_DONTWAIT == 0, call))
}
