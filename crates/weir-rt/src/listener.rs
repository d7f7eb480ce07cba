//! A listening socket.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::driver::accept::ListenerWakeups;
use crate::runtime::{RuntimeCore, current};
use crate::stream::Stream;
use crate::sys;

/// Connections one listener hands out per turn, so that a burst of new ones does not starve the old.
const PER_TURN: u32 = 64;
/// Connections [`Listener::drain`] takes at most: more than come while it runs is not what waited before.
const DRAIN_MOST: usize = 4096;

/// A listening socket of this worker. One task accepts from it.
///
/// When descriptors or memory run out, [`Listener::accept`] reports it by an error, [`crate::LoopStats`] counts it, and
/// accepting pauses until a connection of this worker is closed or 50 ms have passed: calling it again simply waits.
pub struct Listener {
    core: Rc<RuntimeCore>,
    index: u32,
    /// The turn of the last accept, and how many there were in it.
    taken: Cell<(u64, u32)>,
}

impl Listener {
    /// Takes a listening socket. It must be non-blocking.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn new(fd: OwnedFd) -> io::Result<Listener> {
        Listener::with(fd, ListenerWakeups::All)
    }

    /// As [`Listener::new`], for a socket that several workers listen to: each connection wakes one of them.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn exclusive(fd: OwnedFd) -> io::Result<Listener> {
        Listener::with(fd, ListenerWakeups::One)
    }

    fn with(fd: OwnedFd, wakeups: ListenerWakeups) -> io::Result<Listener> {
        let core = current();
        let index = core.io.with(|io| io.open_listener(fd, wakeups))?;
        Ok(Listener { core, index, taken: Cell::new((0, 0)) })
    }

    /// The next connection. Dropping the future loses none.
    ///
    /// # Errors
    /// The errno of accept(2) if this socket can't accept at all (`EBADF`, `EINVAL`, `ENOTSOCK`) or for the moment
    /// (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`), or of epoll_ctl(2) for the new one. Errors of single connections are
    /// no results.
    pub async fn accept(&self) -> io::Result<Stream> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// [`Listener::accept`] for hand-written futures.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let turn = self.core.state.turn();
        let (last, count) = self.taken.get();
        if last == turn && count >= PER_TURN {
            cx.waker().wake_by_ref(); // the next round
            return Poll::Pending;
        }
        match self.core.io.with(|io| io.accept(self.index)) {
            Some(Ok(fd)) => {
                self.taken.set((turn, if last == turn { count + 1 } else { 1 }));
                Poll::Ready(Stream::adopt(Rc::clone(&self.core), fd))
            }
            Some(Err(errno)) => Poll::Ready(Err(io::Error::from_raw_os_error(errno))),
            None => {
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Stops accepting: new connections stay in the kernel's queue. What was accepted before can still be taken.
    pub fn pause(&self) {
        self.core.io.with(|io| io.pause_accept(self.index));
    }

    /// Accepts again after [`Listener::pause`].
    pub fn resume(&self) {
        self.core.io.with(|io| io.resume_accept(self.index));
    }

    /// Whether connections may be accepted that no task waits for yet, which spares system calls. Each takes a
    /// descriptor. A listener does so by default; then it accepts one when [`Listener::accept`] waits.
    pub fn accept_ahead(&self, on: bool) {
        self.core.io.with(|io| io.accept_ahead(self.index, on));
    }

    /// The descriptor, for addresses and options.
    pub fn fd(&self) -> RawFd {
        self.core.io.with(|io| io.listener_fd(self.index))
    }

    /// Gives the socket back when the kernel has stopped accepting for us, with the connections accepted and not
    /// yet taken.
    ///
    /// # Errors
    /// `EBADF` after the end of the runtime; the errno of epoll_ctl(2).
    pub async fn into_fd(self) -> io::Result<(OwnedFd, Vec<Stream>)> {
        self.pause();
        poll_fn(|cx| {
            if self.core.io.with(|io| io.accept_stopped(self.index)) {
                return Poll::Ready(());
            }
            self.wait(cx);
            Poll::Pending
        })
        .await;
        let taken = self.core.io.with(|io| io.take_listener(self.index));
        let (fd, accepted) = taken.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let streams = accepted.into_iter().map(|fd| Stream::adopt(Rc::clone(&self.core), fd));
        Ok((fd, streams.collect::<io::Result<_>>()?))
    }

    /// Accepts what waits in the kernel's queue, as far as that goes without waiting, and closes this descriptor: of the
    /// last one of a socket, whose closing resets what is in the queue, and of one that others accept from too, where
    /// connections may have woken this worker and no other. An error, if any, is what ended it early.
    pub async fn drain(self) -> (Vec<Stream>, Option<io::Error>) {
        let core = Rc::clone(&self.core);
        let (fd, mut streams) = match self.into_fd().await {
            Ok(stopped) => stopped,
            Err(error) => return (Vec::new(), Some(error)),
        };
        loop {
            match sys::accept(fd.as_raw_fd()) {
                Ok(fd) => match Stream::adopt(Rc::clone(&core), fd) {
                    Ok(stream) => streams.push(stream),
                    Err(error) => return (streams, Some(error)),
                },
                Err(libc::EAGAIN) => return (streams, None),
                // Gone while it waited.
                Err(libc::ECONNABORTED | libc::EINTR | libc::EPERM) => {}
                Err(errno) => return (streams, Some(io::Error::from_raw_os_error(errno))),
            }
            if streams.len() >= DRAIN_MOST {
                return (streams, None);
            }
        }
    }

    fn wait(&self, cx: &Context<'_>) {
        let index = self.index;
        self.core.register(cx, |io| &mut io.listeners.slot(index).waiter);
    }
}

impl Drop for Listener {
    /// Closes the socket. Connections accepted and not yet taken are closed: use [`Listener::into_fd`] to keep them.
    fn drop(&mut self) {
        self.core.io.with(|io| io.close_listener(&self.core.state, self.index));
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener(fd {})", self.fd())
    }
}
