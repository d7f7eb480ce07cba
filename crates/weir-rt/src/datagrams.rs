//! Datagrams: several received or sent by one system call, with the addresses that they come from and go to.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::net::{RawAddr, SockAddr};
use crate::sys;

/// Datagrams that one system call may bring.
pub const BATCH: usize = 16;
/// No datagram is longer.
pub const LARGEST: usize = 65_536;

/// Room for [`BATCH`] datagrams: what was received last, until the next receive. A megabyte of addresses, of which what was
/// written to is memory.
pub struct DatagramBatch {
    bytes: Box<[u8]>,
    names: Box<[RawAddr]>,
    control: Box<[ControlRoom]>,
    pieces: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    filled: usize,
}

/// Words, so that it is aligned as headers are.
type ControlRoom = [u64; 8];

/// A datagram of a batch.
pub struct ReceivedDatagram<'a> {
    /// What it says; it may be empty.
    pub bytes: &'a [u8],
    name: &'a RawAddr,
    header: &'a libc::msghdr,
}

impl Default for DatagramBatch {
    fn default() -> DatagramBatch {
        let piece = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let header = libc::mmsghdr { msg_hdr: sys::empty_message(), msg_len: 0 };
        DatagramBatch {
            bytes: vec![0; BATCH * LARGEST].into(),
            names: vec![RawAddr::empty(); BATCH].into(),
            control: vec![ControlRoom::default(); BATCH].into(),
            pieces: vec![piece; BATCH].into(),
            headers: vec![header; BATCH].into(),
            filled: 0,
        }
    }
}

/// Calls `f` with the batch of this thread: each receive is looked at before the next, so one is enough.
pub(crate) fn with_batch<R>(f: impl FnOnce(&mut DatagramBatch) -> R) -> R {
    OF_THREAD.with_borrow_mut(f)
}

thread_local! {
    static OF_THREAD: RefCell<DatagramBatch> = RefCell::default();
}

impl DatagramBatch {
    /// Receives what is there without waiting, `most` datagrams at most; how many.
    pub(crate) fn receive(&mut self, fd: RawFd, most: usize) -> Result<usize, i32> {
        let most = most.clamp(1, BATCH);
        self.filled = 0;
        for at in 0..most {
            let bytes = &mut self.bytes[at * LARGEST..(at + 1) * LARGEST];
            self.pieces[at] = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LARGEST };
            let message = &mut self.headers[at].msg_hdr;
            (message.msg_iov, message.msg_iovlen) = (&raw mut self.pieces[at], 1);
            (message.msg_name, message.msg_namelen) =
                (self.names[at].as_mut_ptrs().0.cast(), size_of::<libc::sockaddr_storage>() as _);
            message.msg_control = self.control[at].as_mut_ptr().cast();
            message.msg_controllen = size_of::<ControlRoom>() as _;
        }
        let (headers, none) = (self.headers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: `most` headers, each with its own piece, name and control room, which are in boxes of ours that nothing else
        // refers to during the call.
        let received =
            unsafe { libc::recvmmsg(fd, headers, most as libc::c_uint, libc::MSG_DONTWAIT as _, none) };
        let filled = sys::check(received as isize)?;
        for at in 0..filled {
            self.names[at].set_len(self.headers[at].msg_hdr.msg_namelen);
        }
        self.filled = filled;
        Ok(filled)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether there is no datagram.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Their bytes together.
    pub fn total(&self) -> usize {
        self.headers[..self.filled].iter().map(|header| header.msg_len as usize).sum()
    }

    /// The datagrams, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        (0..self.filled).map(|at| {
            let header = &self.headers[at];
            let len = (header.msg_len as usize).min(LARGEST);
            ReceivedDatagram {
                bytes: &self.bytes[at * LARGEST..at * LARGEST + len],
                name: &self.names[at],
                header: &header.msg_hdr,
            }
        })
    }
}

impl ReceivedDatagram<'_> {
    /// Who has sent it; `None` for a family that is unknown here.
    pub fn from(&self) -> Option<SockAddr> {
        SockAddr::from_raw(self.name)
    }

    /// The address that it came to, where the socket reports that.
    pub fn to(&self) -> Option<IpAddr> {
        // SAFETY: the header was filled by recvmmsg(2), and its control room is borrowed with the batch.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(self.header) };
        while !header.is_null() {
            // SAFETY: not null, so it is a whole header in the control room.
            let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
            // SAFETY: as above; of these kinds the kernel writes a whole structure after the header, which may not be aligned.
            unsafe {
                let data = libc::CMSG_DATA(header);
                if (level, kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    return Some(IpAddr::V4(u32::from_be(info.ipi_addr.s_addr).into()));
                }
                if (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    return Some(IpAddr::V6(info.ipi6_addr.s6_addr.into()));
                }
                header = libc::CMSG_NXTHDR(self.header, header);
            }
        }
        None
    }
}

/// Where datagrams go that are sent on a socket without a peer, and from which of its addresses.
pub struct DatagramRoute {
    to: RawAddr,
    control: ControlRoom,
    control_len: usize,
}

impl DatagramRoute {
    /// To `to`, from the address `from` or the one that the system chooses.
    pub fn new(to: &SockAddr, from: Option<IpAddr>) -> DatagramRoute {
        let mut route = DatagramRoute { to: to.to_raw(), control: ControlRoom::default(), control_len: 0 };
        match from {
            Some(IpAddr::V4(ip)) => {
                let source = libc::in_addr { s_addr: u32::from(ip).to_be() };
                let none = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: none };
                route.note(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            Some(IpAddr::V6(ip)) => {
                let source = libc::in6_addr { s6_addr: ip.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: 0 };
                route.note(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            None => {}
        }
        route
    }

    /// Writes `info` as the only control message.
    fn note<T>(&mut self, level: libc::c_int, kind: libc::c_int, info: T) {
        let size = size_of::<T>() as libc::c_uint;
        let mut message = sys::empty_message();
        message.msg_control = self.control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<ControlRoom>() as _;
        // SAFETY: the room is longer than a header and either structure, and aligned as headers are.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            ((*header).cmsg_level, (*header).cmsg_type) = (level, kind);
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(info);
            self.control_len = libc::CMSG_SPACE(size) as usize;
        }
    }

    fn address(&self, message: &mut libc::msghdr) {
        (message.msg_name, message.msg_namelen) = (self.to.as_ptr().cast_mut().cast(), self.to.len());
        if self.control_len > 0 {
            message.msg_control = self.control.as_ptr().cast_mut().cast();
            message.msg_controllen = self.control_len as _;
        }
    }
}

/// What became of datagrams that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentDatagrams {
    /// How many the system has taken.
    pub sent: usize,
    /// Their bytes.
    pub bytes: usize,
    /// How many it has not: there was no room, or they can't be sent.
    pub dropped: usize,
    /// Why it has not taken the last of these, an errno; 0: it has taken all.
    pub errno: i32,
}

/// Sends each of `datagrams` without waiting, along `route` or to the peer of the socket, in as few system calls as can be.
pub fn send<'a>(
    fd: RawFd,
    route: Option<&DatagramRoute>,
    datagrams: impl Iterator<Item = &'a [u8]>,
) -> SentDatagrams {
    let mut result = SentDatagrams::default();
    let mut datagrams = datagrams.peekable();
    while datagrams.peek().is_some() {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut count = 0;
        for (piece, bytes) in pieces.iter_mut().zip(datagrams.by_ref()) {
            // The kernel only reads it.
            *piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
            if count == BATCH {
                break;
            }
        }
        send_pieces(fd, route, &mut pieces[..count], &mut result);
    }
    result
}

/// Sends `bytes` along `route`, cut into datagrams of `segment` bytes, of which the last may be shorter: in one system call that the
/// kernel cuts itself (UDP_SEGMENT), and where it does not, as [`send`] does. At most 64 datagrams and 65,507 bytes at a time.
pub fn send_cut(fd: RawFd, route: &DatagramRoute, bytes: &[u8], segment: u16) -> SentDatagrams {
    let count = bytes.len().div_ceil(usize::from(segment.max(1)));
    if count > 1 && CUTS.get() {
        match send_whole(fd, route, bytes, segment) {
            Ok(sent) => return SentDatagrams { sent: count, bytes: sent, dropped: 0, errno: 0 },
            // There is no room: the network loses as much.
            Err(errno @ (libc::EAGAIN | libc::ENOBUFS)) => {
                return SentDatagrams { sent: 0, bytes: 0, dropped: count, errno };
            }
            Err(libc::EINTR) => {}
            // A kernel before 4.18, or a device that can't.
            Err(_) => CUTS.set(false),
        }
    }
    send(fd, Some(route), bytes.chunks(usize::from(segment.max(1))))
}

thread_local! {
    /// The kernel has not refused to cut.
    static CUTS: Cell<bool> = const { Cell::new(true) };
}

fn send_whole(fd: RawFd, route: &DatagramRoute, bytes: &[u8], segment: u16) -> Result<usize, i32> {
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = sys::empty_message();
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    route.address(&mut message);
    let mut control = route.control;
    message.msg_control = control.as_mut_ptr().cast();
    let size = size_of::<u16>() as libc::c_uint;
    // SAFETY: both only compute with the length.
    let (whole, space) = unsafe { (libc::CMSG_LEN(size), libc::CMSG_SPACE(size)) };
    message.msg_controllen = (route.control_len + space as usize) as _;
    // SAFETY: what the route has is at most a header with the structure of IPv6, 40 bytes; a header with a number, 24 bytes, is behind
    // that in a room of 64, where it is aligned as headers are, since each takes whole words.
    unsafe {
        let header = control.as_mut_ptr().cast::<u8>().add(route.control_len).cast::<libc::cmsghdr>();
        ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
        (*header).cmsg_len = whole as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment);
    }
    // SAFETY: the message's piece, address and control room are borrowed by this function.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    sys::check(sent)
}

fn send_pieces(
    fd: RawFd,
    route: Option<&DatagramRoute>,
    pieces: &mut [libc::iovec],
    result: &mut SentDatagrams,
) {
    let mut headers = [libc::mmsghdr { msg_hdr: sys::empty_message(), msg_len: 0 }; BATCH];
    let count = pieces.len();
    for (header, piece) in headers.iter_mut().zip(pieces) {
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (piece, 1);
        if let Some(route) = route {
            route.address(&mut header.msg_hdr);
        }
    }
    let mut at = 0;
    while at < count {
        let rest = &mut headers[at..count];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: so many headers, whose pieces, addresses and control rooms are borrowed by this function.
        let sent = unsafe { libc::sendmmsg(fd, rest.as_mut_ptr(), rest.len() as libc::c_uint, flags as _) };
        match sys::check(sent as isize) {
            Ok(sent) => {
                let bytes = rest[..sent].iter().map(|header| header.msg_len as usize).sum::<usize>();
                (result.sent, result.bytes) = (result.sent + sent, result.bytes + bytes);
                at += sent;
            }
            Err(libc::EINTR) => {}
            Err(errno) => {
                (result.dropped, result.errno) = (result.dropped + 1, errno);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::net::{self, ListenOptions};

    fn wildcard(addr: &str) -> std::os::fd::OwnedFd {
        let options = ListenOptions { udp: true, ..ListenOptions::default() };
        net::listen(&addr.parse::<std::net::SocketAddr>().expect("an address").into(), &options)
            .expect("binds")
    }

    #[test]
    fn datagrams_come_one_by_one_with_their_addresses_and_go_back_from_there() {
        for (any, home) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
            let listening = wildcard(any);
            let fd = listening.as_raw_fd();
            let port = net::local_addr(fd).expect("bound").port().expect("a port");
            let client =
                UdpSocket::bind((any.rsplit_once(':').expect("a port").0.trim_matches(['[', ']']), 0))
                    .expect("binds");
            client.connect((home, port)).expect("loopback");
            let long = vec![7; if home == "::1" { 65_507 } else { 65_500 }];
            for text in [&b"one"[..], b"", &long] {
                client.send(text).expect("loopback takes it");
            }
            let mut batch = DatagramBatch::default();
            assert_eq!(batch.receive(fd, BATCH), Ok(3));
            let all: Vec<_> = batch.iter().map(|datagram| datagram.bytes.len()).collect();
            assert_eq!((all, batch.total()), (vec![3, 0, long.len()], 3 + long.len()));
            let first = batch.iter().next().expect("three");
            let (from, to) = (first.from().expect("an address"), first.to());
            assert_eq!(to, Some(home.parse().expect("an address")));
            assert_eq!(from, SockAddr::from(client.local_addr().expect("bound")));
            let route = DatagramRoute::new(&from, to);
            let sent = send(fd, Some(&route), batch.iter().map(|datagram| datagram.bytes));
            assert_eq!(sent, SentDatagrams { sent: 3, bytes: 3 + long.len(), ..SentDatagrams::default() });
            // The client's socket is connected: it receives only what comes from where it has sent to.
            let mut room = vec![0; LARGEST];
            for length in [3, 0, long.len()] {
                assert_eq!(client.recv(&mut room).expect("it was sent"), length);
            }
            assert_eq!(batch.receive(fd, BATCH), Err(libc::EAGAIN));
            assert!(batch.is_empty() && batch.iter().next().is_none());
        }
    }

    #[test]
    fn one_call_sends_what_is_cut_into_datagrams() {
        for (any, home) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
            let listening = wildcard(any);
            let home: IpAddr = home.parse().expect("an address");
            let receiver = UdpSocket::bind((home, 0)).expect("binds");
            let to = SockAddr::from(receiver.local_addr().expect("bound"));
            let route = DatagramRoute::new(&to, Some(home));
            let bytes: Vec<u8> = (0..3500_u32).map(|at| at as u8).collect();
            let sent = send_cut(listening.as_raw_fd(), &route, &bytes, 1200);
            assert_eq!(sent, SentDatagrams { sent: 3, bytes: 3500, ..SentDatagrams::default() });
            let mut room = vec![0; LARGEST];
            for part in bytes.chunks(1200) {
                let (length, from) = receiver.recv_from(&mut room).expect("it was sent");
                assert_eq!((&room[..length], from.ip()), (part, home));
            }
        }
    }

    #[test]
    fn what_can_t_be_sent_is_counted_and_the_rest_is_sent() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("binds");
        sender.connect(receiver.local_addr().expect("bound")).expect("loopback");
        let too_long = vec![0; 70_000];
        let mut all: Vec<&[u8]> = vec![b"x"; 40];
        all[20] = &too_long;
        let sent = send(sender.as_raw_fd(), None, all.into_iter());
        assert_eq!(sent, SentDatagrams { sent: 39, bytes: 39, dropped: 1, errno: libc::EMSGSIZE });
    }
}
