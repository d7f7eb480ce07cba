//! Datagrams of IPv4: received from the simulation's network, and sent into it.

use crate::addresses::{DatagramHead, FRAME};
use crate::kernel;
use crate::threads::{self, is_simulated};

use super::sockets::{give, ipv4};

/// Whether a descriptor is a simulated socket of datagrams.
fn is_ours(fd: i32) -> bool {
    is_simulated() && threads::with(|simulation| simulation.addresses.is_of_datagrams(fd))
}

fn fails(error: i32) -> i32 {
    kernel::set_errno(error);
    -1
}

/// The head of the next datagram, or of a report that nothing is at a port.
fn next_head(fd: i32, flags: i32) -> Option<DatagramHead> {
    let mut bytes = [0; FRAME];
    let flags = flags | libc::MSG_DONTWAIT;
    let a = [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), flags as usize, 0, 0];
    // SAFETY: an array that is ours to write.
    let got = unsafe { kernel::call(libc::SYS_recvfrom, a) };
    (got == FRAME as isize).then(|| DatagramHead::read(&bytes))
}

/// recvmmsg(2).
///
/// # Safety
/// `messages` has `count` places, each valid with all that it leads to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: i32,
    messages: *mut libc::mmsghdr,
    count: u32,
    flags: i32,
    timeout: *mut libc::timespec,
) -> i32 {
    if !is_ours(fd) {
        let a = [fd as usize, messages as usize, count as usize, flags as usize, timeout as usize, 0];
        // SAFETY: by the caller's word.
        return kernel::returned(unsafe { kernel::call(libc::SYS_recvmmsg, a) }) as i32;
    }
    let reports = threads::with(|simulation| simulation.addresses.reports_destinations(fd));
    for at in 0..count as usize {
        let Some(head) = next_head(fd, libc::MSG_PEEK) else {
            return if at == 0 { fails(libc::EAGAIN) } else { at as i32 };
        };
        if head.error != 0 && at > 0 {
            return at as i32;
        }
        next_head(fd, 0);
        if head.error != 0 {
            return fails(head.error);
        }
        // SAFETY: by the caller's word, there are so many places.
        unsafe { receive(fd, &mut *messages.add(at), &head, reports) };
    }
    count as i32
}

/// Receives the datagram after `head`.
///
/// # Safety
/// The message is valid with all that it leads to.
unsafe fn receive(fd: i32, message: &mut libc::mmsghdr, head: &DatagramHead, reports: bool) {
    let header = &mut message.msg_hdr;
    // SAFETY: by the caller's word; whoever receives here has one piece for each, longer than any datagram.
    let piece = unsafe { &*header.msg_iov };
    let length = (head.length as usize).min(piece.iov_len);
    if length > 0 {
        let a = [fd as usize, piece.iov_base as usize, length, libc::MSG_DONTWAIT as usize, 0, 0];
        // SAFETY: by the caller's word.
        unsafe { kernel::call(libc::SYS_recvfrom, a) };
    }
    message.msg_len = length as u32;
    // SAFETY: by the caller's word.
    unsafe { give(head.from, header.msg_name.cast(), &raw mut header.msg_namelen) };
    let size = size_of::<libc::in_pktinfo>() as u32;
    // SAFETY: no pointers.
    let space = unsafe { libc::CMSG_SPACE(size) } as usize;
    if !reports || header.msg_control.is_null() || header.msg_controllen < space {
        header.msg_controllen = 0;
        return;
    }
    let address = libc::in_addr { s_addr: u32::from_ne_bytes(head.to.0) };
    let info = libc::in_pktinfo { ipi_ifindex: 1, ipi_spec_dst: address, ipi_addr: address };
    // SAFETY: there is room for a header and the structure.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        ((*control).cmsg_level, (*control).cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
        (*control).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(control).cast::<libc::in_pktinfo>().write_unaligned(info);
    }
    header.msg_controllen = space as _;
}

/// sendmmsg(2).
///
/// # Safety
/// `messages` has `count` places, each valid with all that it leads to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(fd: i32, messages: *mut libc::mmsghdr, count: u32, flags: i32) -> i32 {
    if !is_ours(fd) {
        let a = [fd as usize, messages as usize, count as usize, flags as usize, 0, 0];
        // SAFETY: by the caller's word.
        return kernel::returned(unsafe { kernel::call(libc::SYS_sendmmsg, a) }) as i32;
    }
    for at in 0..count as usize {
        // SAFETY: by the caller's word, there are so many places.
        let message = unsafe { &mut *messages.add(at) };
        // SAFETY: the same.
        if let Err(error) = unsafe { send(fd, message) } {
            return if at == 0 { fails(error) } else { at as i32 };
        }
    }
    count as i32
}

/// Sends a datagram, unless the system does not take it: what was known before is reported first.
///
/// # Safety
/// The message is valid with all that it leads to.
unsafe fn send(fd: i32, message: &mut libc::mmsghdr) -> Result<(), i32> {
    let header = &message.msg_hdr;
    // SAFETY: by the caller's word: null, or an address.
    let named = unsafe { ipv4(header.msg_name.cast(), header.msg_namelen) };
    if named.is_none()
        && let Some(head) = next_head(fd, libc::MSG_PEEK).filter(|head| head.error != 0)
    {
        next_head(fd, 0);
        return Err(head.error);
    }
    let mut bytes = Vec::new();
    for at in 0..header.msg_iovlen {
        // SAFETY: by the caller's word.
        let piece = unsafe { &*header.msg_iov.add(at) };
        if piece.iov_len > 0 {
            // SAFETY: the same.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
            });
        }
    }
    // SAFETY: by the caller's word.
    let source = unsafe { source(header) };
    threads::with(|simulation| simulation.send_datagram(fd, source, named, &bytes))?;
    message.msg_len = bytes.len() as u32;
    Ok(())
}

/// The address that a datagram is to leave from, where that is said.
///
/// # Safety
/// The message is valid with all that it leads to.
unsafe fn source(header: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: by the caller's word.
    let control = unsafe { libc::CMSG_FIRSTHDR(header).as_ref()? };
    if (control.cmsg_level, control.cmsg_type) != (libc::IPPROTO_IP, libc::IP_PKTINFO) {
        return None;
    }
    // SAFETY: of this kind a whole structure follows.
    let info = unsafe { libc::CMSG_DATA(control).cast::<libc::in_pktinfo>().read_unaligned() };
    Some(info.ipi_spec_dst.s_addr.to_ne_bytes())
}

/// Two ends of a line over which datagrams come to a socket: the program's, and the world's.
pub(super) fn line(flags: i32) -> Result<(i32, i32), i32> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC | flags;
    let a = [libc::AF_UNIX as usize, kind as usize, 0, ends.as_mut_ptr() as usize, 0, 0];
    // SAFETY: room for two descriptors.
    let made = unsafe { kernel::call(libc::SYS_socketpair, a) };
    if made < 0 { Err(-made as i32) } else { Ok((ends[0], ends[1])) }
}
