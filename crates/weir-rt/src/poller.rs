//! Readiness of sockets for a thread without a runtime: one that accepts for others, and keeps what is idle.
//!
//! Nothing here belongs to a thread: any may add sockets or end the wait of the one that waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::net::SockAddr;
use crate::sys;

/// An epoll set, and an eventfd that ends its wait.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    event: OwnedFd,
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// The errno of epoll_create1(2), eventfd(2) or epoll_ctl(2).
    pub fn new() -> io::Result<Poller> {
        // SAFETY: no pointers; the result is checked.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the same.
        let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let poller = Poller { epoll, event };
        // Edge-triggered: each write is reported once and none has to be read back.
        poller.control(libc::EPOLL_CTL_ADD, &poller.event, libc::EPOLLIN | libc::EPOLLET, WAKE)?;
        Ok(poller)
    }

    /// Reports `token` as long as `fd` has something to read or accept. Not `u64::MAX`, which is the poller's own.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn watch(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, token)
    }

    /// Reports `token` once, when `fd` has something to read or its peer has left.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn watch_once(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLONESHOT;
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    /// Reports nothing of `fd` any more.
    pub fn forget(&self, fd: &impl AsFd) {
        // Fails only if it is not there, which is what is wanted.
        let _absent = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Ends the wait of the thread that waits, or the next wait.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, an eventfd of ours. It fails only when the counter is full: after 2^64 wakes.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waits until something is ready, [`Poller::wake`] is called or `ms` milliseconds have passed, and puts the
    /// tokens of what is ready into `ready`.
    pub fn wait(&self, ms: Option<u64>, ready: &mut Vec<u64>) {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let ms = ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
        // SAFETY: room for as many events as are asked for. EINTR, the only error that can be met, counts as no events.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, ms) };
        let count = usize::try_from(count).unwrap_or(0);
        ready.extend(events[..count].iter().map(|event| event.u64).filter(|&token| token != WAKE));
    }

    fn control(&self, op: i32, fd: &impl AsFd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: one event, copied by the kernel during the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The next connection of a listening socket that does not block, as accept4(2) gives it: not blocking, closed on exec;
/// with its client's address, unspecified if it is of no family that is known. `None`: none waits. Connections that have
/// left while they waited are no results.
///
/// # Errors
/// The errno of accept4(2).
pub fn accept(listener: &impl AsFd) -> io::Result<Option<(OwnedFd, SockAddr)>> {
    loop {
        match sys::accept_from(listener.as_fd().as_raw_fd()) {
            Ok((fd, raw)) => {
                return Ok(Some((fd, SockAddr::from_raw(&raw).unwrap_or(SockAddr::UNSPECIFIED))));
            }
            Err(libc::EAGAIN) => return Ok(None),
            Err(libc::ECONNABORTED | libc::EINTR | libc::EPERM) => {}
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The poller's own token.
const WAKE: u64 = u64::MAX;
/// Events taken by one wait.
const EVENTS: usize = 128;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn ready(poller: &Poller, ms: u64) -> Vec<u64> {
        let mut ready = vec![9];
        poller.wait(Some(ms), &mut ready);
        ready
    }

    #[test]
    fn a_listener_is_told_until_all_is_accepted() {
        let poller = Poller::new().expect("descriptors are left");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        listener.set_nonblocking(true).expect("a socket");
        poller.watch(&listener, 3).expect("a socket");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
        assert_eq!((ready(&poller, 10_000), ready(&poller, 10_000)), (vec![3], vec![3]));
        assert!(accept(&listener).expect("it listens").is_some());
        assert!(accept(&listener).expect("it listens").is_none());
        assert_eq!(ready(&poller, 0), []);
    }

    #[test]
    fn what_is_watched_once_is_told_once() {
        let poller = Poller::new().expect("descriptors are left");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        poller.watch_once(&ours, 5).expect("a socket");
        assert_eq!(ready(&poller, 0), []);
        theirs.write_all(b"a").expect("room");
        assert_eq!((ready(&poller, 10_000), ready(&poller, 0)), (vec![5], vec![]));
        poller.forget(&ours);
        poller.watch_once(&ours, 6).expect("it was forgotten");
        drop(theirs);
        assert_eq!(ready(&poller, 10_000), [6]);
    }

    #[test]
    fn a_wake_ends_one_wait() {
        let poller = Poller::new().expect("descriptors are left");
        poller.wake();
        let mut tokens = vec![1];
        poller.wait(None, &mut tokens);
        assert_eq!(tokens, []);
        assert_eq!(ready(&poller, 0), []);
    }
}
