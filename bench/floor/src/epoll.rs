//! The bare epoll loop: edge-triggered, one recv and one send per turn of a connection.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;

use crate::http::{Answers, Input};

/// What a connection is owed.
#[derive(Default)]
struct Connection {
    input: Input,
    /// Answers not begun yet.
    owed: usize,
    /// Bytes of the current piece already sent, and the answers the piece holds.
    sent: usize,
    piece: usize,
}

/// Serves until the process is killed.
pub fn run(listener: &TcpListener, answers: &Answers) -> io::Result<()> {
    // SAFETY: takes flags, gives a descriptor that lives as long as the process.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    add(epoll, listener.as_raw_fd(), libc::EPOLLIN)?;
    let mut connections: Vec<Connection> = Vec::new();
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 512];
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // SAFETY: `events` has room for as many events as announced.
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1) };
        for event in &events[..ready.max(0) as usize] {
            let fd = event.u64 as i32;
            if fd == listener.as_raw_fd() {
                accept(epoll, fd, &mut connections)?;
                continue;
            }
            let ends = event.events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0;
            if !turn(fd, &mut connections[fd as usize], answers, &mut buffer, ends) {
                // SAFETY: the descriptor is this loop's own and is not used again before accept gives it anew.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// All that can happen to a connection, told once.
pub fn edge_triggered() -> i32 {
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET
}

/// Has the loop told of `fd`.
pub fn add(epoll: i32, fd: i32, interest: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: interest as u32, u64: fd as u64 };
    // SAFETY: both descriptors are open and `event` outlives the call.
    match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn accept(epoll: i32, listener: i32, connections: &mut Vec<Connection>) -> io::Result<()> {
    loop {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: null addresses ask for none.
        let fd = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if fd < 0 {
            return Ok(());
        }
        if connections.len() <= fd as usize {
            connections.resize_with(fd as usize + 1, Connection::default);
        }
        connections[fd as usize] = Connection::default();
        add(epoll, fd, edge_triggered())?;
    }
}

/// One recv and the sends it asks for. A short recv means that the socket is drained (unless the client `ends`): the
/// read that would say so is saved. False when the client has left.
fn turn(fd: i32, connection: &mut Connection, answers: &Answers, buffer: &mut [u8], ends: bool) -> bool {
    loop {
        // SAFETY: `buffer` has room for the bytes announced.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if got == 0 || (got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock) {
            return false;
        }
        let count = got.max(0) as usize;
        connection.owed += connection.input.requests(&buffer[..count]);
        if !send(fd, connection, answers) {
            return false;
        }
        if got < 0 || (count < buffer.len() && !ends) {
            return true;
        }
    }
}

/// Sends what is owed until the socket is full; EPOLLOUT brings us back then.
fn send(fd: i32, connection: &mut Connection, answers: &Answers) -> bool {
    while connection.piece + connection.owed > 0 {
        if connection.piece == 0 {
            connection.piece = answers.take(connection.owed).1;
            connection.owed -= connection.piece;
        }
        let bytes = &answers.take(connection.piece).0[connection.sent..];
        // SAFETY: `bytes` is one live slice.
        let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 {
            return io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        }
        connection.sent += sent as usize;
        if sent as usize == bytes.len() {
            (connection.sent, connection.piece) = (0, 0);
        }
    }
    true
}
