//! The bare proxy loop: each client has a connection to the server behind, and bytes are moved both ways unread. What a
//! proxy costs at least that copies and knows nothing of HTTP.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};

use crate::epoll::{add, edge_triggered};

/// One end; what could not be sent to it yet.
struct End {
    other: i32,
    unsent: Vec<u8>,
}

/// Passes connections on to 127.0.0.1:`behind` until the process is killed.
pub fn run(listener: &TcpListener, after: u16) -> io::Result<()> {
    // SAFETY: takes flags, gives a descriptor that lives as long as the process.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    add(epoll, listener.as_raw_fd(), libc::EPOLLIN)?;
    let mut ends: Vec<Option<End>> = Vec::new();
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 512];
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // SAFETY: `events` has room for as many events as announced.
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1) };
        for event in &events[..ready.max(0) as usize] {
            let fd = event.u64 as i32;
            if fd == listener.as_raw_fd() {
                accept(epoll, listener, after, &mut ends)?;
            } else if !turn(fd, &mut ends, &mut buffer) {
                close(fd, &mut ends);
            }
        }
    }
}

fn accept(epoll: i32, listener: &TcpListener, after: u16, ends: &mut Vec<Option<End>>) -> io::Result<()> {
    while let Ok((client, _)) = listener.accept() {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, after))?;
        for stream in [&client, &server] {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
        }
        let (client, server) = (client.into_raw_fd(), server.into_raw_fd());
        for (fd, other) in [(client, server), (server, client)] {
            if ends.len() <= fd as usize {
                ends.resize_with(fd as usize + 1, || None);
            }
            ends[fd as usize] = Some(End { other, unsent: Vec::new() });
            add(epoll, fd, edge_triggered())?;
        }
    }
    Ok(())
}

/// Sends what waits for `fd`, then moves what it has to the other end, as long as that takes it. False: one of both
/// has left.
fn turn(fd: i32, ends: &mut [Option<End>], buffer: &mut [u8]) -> bool {
    let Some(end) = ends[fd as usize].as_mut() else { return true };
    let (other, unsent) = (end.other, std::mem::take(&mut end.unsent));
    if !unsent.is_empty() {
        let Some(rest) = send(fd, &unsent) else { return false };
        let blocked = rest.to_vec();
        let flows = blocked.is_empty();
        ends[fd as usize].as_mut().expect("it was there above").unsent = blocked;
        // What the other end holds back was waiting for this.
        if flows && !pass(other, fd, ends, buffer) {
            return false;
        }
    }
    pass(fd, other, ends, buffer)
}

fn pass(from: i32, to: i32, ends: &mut [Option<End>], buffer: &mut [u8]) -> bool {
    while ends[to as usize].as_ref().is_some_and(|end| end.unsent.is_empty()) {
        // SAFETY: `buffer` has room for the bytes announced.
        let got = unsafe { libc::recv(from, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if got <= 0 {
            return got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        }
        let bytes = &buffer[..got as usize];
        let Some(rest) = send(to, bytes) else { return false };
        if !rest.is_empty() {
            ends[to as usize].as_mut().expect("asked above").unsent = rest.to_vec();
        }
        if bytes.len() < buffer.len() {
            // A short recv means that the socket is drained.
            return true;
        }
    }
    true
}

/// What the socket does not take at the moment; `None` when it is gone.
fn send(fd: i32, bytes: &[u8]) -> Option<&[u8]> {
    // SAFETY: `bytes` is one live slice.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) => Some(&bytes[sent..]),
        Err(_) => (io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock).then_some(bytes),
    }
}

fn close(fd: i32, ends: &mut [Option<End>]) {
    let Some(end) = ends[fd as usize].take() else { return };
    ends[end.other as usize] = None;
    for fd in [fd, end.other] {
        // SAFETY: the descriptor is this loop's own and was forgotten above.
        unsafe { libc::close(fd) };
    }
}
