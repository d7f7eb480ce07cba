//! epoll(7): connections edge-triggered and registered once for their life, listeners level-triggered.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::loop_state::LoopState;
use crate::socket::SendState;

use super::accept::ListenerWakeups;
use super::{DriverBackend, OperationKind, WaitLimit, WorkerIo, tag, take_error, untag};

/// Events taken in one turn.
const EVENTS: usize = 512;

pub(crate) struct EpollBackend {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl EpollBackend {
    /// # Errors
    /// The errno of epoll_create1(2) or epoll_ctl(2).
    pub(crate) fn new(inbox: RawFd) -> io::Result<EpollBackend> {
        // SAFETY: no pointers; a fresh descriptor that nothing else owns.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let epoll = EpollBackend { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS] };
        // Edge-triggered: a write that comes after its message was taken leaves the eventfd readable, once.
        let events = libc::EPOLLIN | libc::EPOLLET;
        epoll.control(libc::EPOLL_CTL_ADD, inbox, events, tag(OperationKind::Inbox, 0, 0))?;
        Ok(epoll)
    }

    pub(crate) fn add_socket(&self, fd: RawFd, data: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    /// Says early whether the descriptor can be waited for; no events yet.
    pub(crate) fn add_listener(&self, fd: RawFd, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, 0, data)?;
        self.control(libc::EPOLL_CTL_DEL, fd, 0, data)
    }

    /// Added rather than modified, since EPOLLEXCLUSIVE is only possible so.
    pub(crate) fn listen_on(&self, fd: RawFd, data: u64, wakeups: ListenerWakeups) -> io::Result<()> {
        let events = match wakeups {
            ListenerWakeups::All => libc::EPOLLIN,
            ListenerWakeups::One => libc::EPOLLIN | libc::EPOLLEXCLUSIVE,
        };
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    pub(crate) fn listen_off(&self, fd: RawFd, data: u64) {
        // Fails only if it is not there, which is what is wanted.
        let _absent = self.control(libc::EPOLL_CTL_DEL, fd, 0, data);
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        self.listen_off(fd, 0);
    }

    fn control(&self, op: i32, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: one event, copied by the kernel during the call.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits; the number of events at the beginning of `self.events`.
    fn wait(&mut self, wait: WaitLimit) -> usize {
        let ms = wait.map_or(-1, |ms| ms.min(i32::MAX as u64) as i32);
        let (events, max) = (self.events.as_mut_ptr(), self.events.len() as i32);
        let (fd, no_mask) = (self.fd.as_raw_fd(), std::ptr::null::<libc::sigset_t>());
        // The call that all architectures have; see `sys` for why not by libc's function.
        // SAFETY: room for `max` events. EINTR, the only error that can be met, counts as no events.
        let n = unsafe { libc::syscall(libc::SYS_epoll_pwait, fd, events, max, ms, no_mask, 8usize) };
        usize::try_from(n).unwrap_or(0)
    }
}

impl WorkerIo {
    pub(super) fn turn_epoll(&mut self, state: &LoopState, wait: WaitLimit) -> bool {
        let DriverBackend::Epoll(epoll) = &mut self.backend else { return false };
        let count = epoll.wait(wait);
        state.woke();
        state.kernel.waited(count);
        let mut mail = false;
        for n in 0..count {
            let DriverBackend::Epoll(epoll) = &self.backend else { return mail };
            let event = epoll.events[n];
            let (kind, generation, i) = untag(event.u64);
            match kind {
                OperationKind::Inbox => mail = true,
                OperationKind::Accept => self.accept_ready(state, i, generation),
                _ => self.on_ready(state, i, generation, event.events as i32),
            }
        }
        mail
    }

    fn on_ready(&mut self, state: &LoopState, i: u32, generation: u32, events: i32) {
        // None: closed earlier in this batch.
        let Some(slot) = self.sockets.current(i, generation) else { return };
        state.kernel.event(&mut slot.debt);
        let failed = events & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        if slot.connecting.is_some() {
            if !failed && events & libc::EPOLLOUT == 0 {
                return;
            }
            slot.recv_error = take_error(slot.fd);
            slot.connecting = None;
            state.sched.notify(&mut slot.writer);
            if slot.recv_error != 0 {
                return;
            }
            // The same edge may report that the peer has spoken, and left, already.
        }
        if events & libc::EPOLLERR != 0 && slot.reset == 0 {
            slot.reset = take_error(slot.fd);
        }
        if failed || events & libc::EPOLLRDHUP != 0 {
            slot.hangup = true;
            state.sched.notify(&mut slot.watcher);
        }
        if slot.hangup || events & libc::EPOLLIN != 0 {
            slot.readable = true;
            self.receive_ahead(state, i);
        }
        let slot = self.sockets.slot(i);
        if (failed || events & libc::EPOLLOUT != 0) && slot.sending == SendState::Blocked {
            slot.sending = SendState::Idle;
            self.start_send(state, i);
        }
    }
}
