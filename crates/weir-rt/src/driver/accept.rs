//! Listening sockets. Multishot accept on io_uring; level-triggered readiness with at most 64 accepts per turn on
//! epoll. Out of descriptors or memory, a listener pauses until one of ours is closed or 50 ms have passed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::task::Waker;

use crate::loop_state::LoopState;
use crate::sys;

use super::{DriverBackend, OperationKind, WorkerIo, tag};

/// Connections accepted ahead of the task that takes them; more wait in the kernel's queue.
const AHEAD_MAX: usize = 64;
/// How long a listener without descriptors waits at most.
const RETRY_MS: u64 = 50;

/// What a listener is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcceptState {
    /// Nothing: paused by its owner, or enough accepted ahead.
    Off,
    Armed,
    /// Being cancelled (io_uring).
    Stopping,
    /// Out of descriptors until this time in the loop's milliseconds.
    Starved(u64),
}

/// Whom a connection wakes where several workers or processes wait for a socket (epoll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerWakeups {
    All,
    One,
}

pub(crate) struct ListenerSlot {
    /// `None`: the slot is free.
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) generation: u32,
    pub(crate) accepting: AcceptState,
    /// Stopped by its owner.
    pub(crate) paused: bool,
    pub(crate) wakeups: ListenerWakeups,
    /// This many are accepted before the task takes them: [`AHEAD_MAX`] or one.
    pub(crate) ahead: usize,
    pub(crate) closing: bool,
    pub(crate) accepted: VecDeque<OwnedFd>,
    /// An errno that ends accepting, 0 for none.
    pub(crate) error: i32,
    pub(crate) waiter: Option<Waker>,
}

/// All listeners of a worker.
#[derive(Default)]
pub(crate) struct ListenerTable {
    slots: Vec<ListenerSlot>,
    starved: u32,
}

impl ListenerTable {
    pub(crate) fn slot(&mut self, i: u32) -> &mut ListenerSlot {
        &mut self.slots[i as usize]
    }

    pub(crate) fn current(&mut self, i: u32, generation: u32) -> Option<&mut ListenerSlot> {
        self.slots.get_mut(i as usize).filter(|l| l.fd.is_some() && l.generation == generation)
    }

    /// When a starved listener wants to try again.
    pub(crate) fn retry_ms(&self) -> Option<u64> {
        if self.starved == 0 {
            return None;
        }
        self.slots
            .iter()
            .filter_map(|l| if let AcceptState::Starved(at) = l.accepting { Some(at) } else { None })
            .min()
    }

    fn add(&mut self, fd: OwnedFd, wakeups: ListenerWakeups) -> u32 {
        let free = self.slots.iter().position(|l| l.fd.is_none()).unwrap_or(self.slots.len());
        let generation = self.slots.get(free).map_or(0, |l| (l.generation + 1) & 0x0fff_ffff);
        let slot = ListenerSlot {
            fd: Some(fd),
            generation,
            accepting: AcceptState::Off,
            paused: false,
            wakeups,
            ahead: AHEAD_MAX,
            closing: false,
            accepted: VecDeque::new(),
            error: 0,
            waiter: None,
        };
        match self.slots.get_mut(free) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        free as u32
    }
}

impl WorkerIo {
    pub(crate) fn open_listener(&mut self, fd: OwnedFd, wakeups: ListenerWakeups) -> io::Result<u32> {
        let raw = fd.as_raw_fd();
        let i = self.listeners.add(fd, wakeups);
        let slot = self.listeners.slot(i);
        if let DriverBackend::Epoll(epoll) = &mut self.backend
            && let Err(e) = epoll.add_listener(raw, tag(OperationKind::Accept, slot.generation, i))
        {
            slot.fd = None;
            return Err(e);
        }
        Ok(i)
    }

    /// The next accepted connection, an error that ends accepting, or nothing yet.
    pub(crate) fn accept(&mut self, i: u32) -> Option<Result<OwnedFd, i32>> {
        let slot = self.listeners.slot(i);
        if let Some(fd) = slot.accepted.pop_front() {
            return Some(Ok(fd));
        }
        if slot.error != 0 {
            return Some(Err(std::mem::take(&mut slot.error)));
        }
        self.arm_accept(i);
        None
    }

    /// Stops accepting; what is accepted already can still be taken.
    pub(crate) fn pause_accept(&mut self, i: u32) {
        self.listeners.slot(i).paused = true;
        self.disarm_accept(i);
    }

    pub(crate) fn resume_accept(&mut self, i: u32) {
        self.listeners.slot(i).paused = false;
        self.arm_accept(i);
    }

    /// Accepts ahead or not, from the next accept on.
    pub(crate) fn accept_ahead(&mut self, i: u32, on: bool) {
        let ahead = if on { AHEAD_MAX } else { 1 };
        let slot = self.listeners.slot(i);
        if std::mem::replace(&mut slot.ahead, ahead) != ahead && slot.accepting == AcceptState::Armed {
            self.disarm_accept(i);
        }
    }

    /// Whether the kernel no longer accepts for this listener.
    pub(crate) fn accept_stopped(&mut self, i: u32) -> bool {
        matches!(self.listeners.slot(i).accepting, AcceptState::Off | AcceptState::Starved(_))
    }

    pub(crate) fn arm_accept(&mut self, i: u32) {
        let slot = self.listeners.slot(i);
        let Some(fd) = slot.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
        if slot.accepting != AcceptState::Off
            || slot.paused
            || slot.closing
            || slot.accepted.len() >= slot.ahead
        {
            return;
        }
        let data = tag(OperationKind::Accept, slot.generation, i);
        let armed = match &mut self.backend {
            DriverBackend::Uring(uring) => {
                uring.arm_accept(fd, data, slot.ahead > 1);
                Ok(())
            }
            DriverBackend::Epoll(epoll) => epoll.listen_on(fd, data, slot.wakeups),
            DriverBackend::Shut => Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
        match armed {
            Ok(()) => slot.accepting = AcceptState::Armed,
            Err(e) => slot.error = e.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn disarm_accept(&mut self, i: u32) {
        let slot = self.listeners.slot(i);
        let Some(fd) = slot.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
        match (slot.accepting, &mut self.backend) {
            (AcceptState::Armed, DriverBackend::Uring(uring)) => {
                uring.cancel(tag(OperationKind::Accept, slot.generation, i));
                slot.accepting = AcceptState::Stopping;
            }
            (AcceptState::Armed, DriverBackend::Epoll(epoll)) => {
                epoll.listen_off(fd, tag(OperationKind::Accept, slot.generation, i));
                slot.accepting = AcceptState::Off;
            }
            (AcceptState::Starved(_), _) => {
                slot.accepting = AcceptState::Off;
                self.listeners.starved -= 1;
            }
            _ => (),
        }
    }

    /// The `Listener` is gone: closes the socket, at once or when the kernel is done with it.
    pub(crate) fn close_listener(&mut self, state: &LoopState, i: u32) {
        self.disarm_accept(i);
        let slot = self.listeners.slot(i);
        slot.closing = true;
        state.sched.notify(&mut slot.waiter);
        self.release_listener(i);
    }

    pub(crate) fn close_listeners(&mut self) {
        for i in 0..self.listeners.slots.len() as u32 {
            self.disarm_accept(i);
            self.listeners.slot(i).closing = true;
            self.release_listener(i);
        }
    }

    /// Takes the descriptor out of a stopped listener, with what it has accepted.
    pub(crate) fn take_listener(&mut self, i: u32) -> Option<(OwnedFd, VecDeque<OwnedFd>)> {
        let slot = self.listeners.slot(i);
        let fd = slot.fd.take()?;
        if let DriverBackend::Epoll(epoll) = &mut self.backend {
            epoll.remove(fd.as_raw_fd());
        }
        Some((fd, std::mem::take(&mut slot.accepted)))
    }

    fn release_listener(&mut self, i: u32) {
        let slot = self.listeners.slot(i);
        if slot.closing && slot.accepting == AcceptState::Off {
            slot.fd = None;
            slot.accepted.clear();
        }
    }

    /// One accept has ended (`more`: the multishot accept goes on).
    pub(crate) fn on_accept(
        &mut self,
        state: &LoopState,
        i: u32,
        generation: u32,
        result: Result<OwnedFd, i32>,
        more: bool,
    ) {
        let Some(slot) = self.listeners.current(i, generation) else { return };
        if !more {
            slot.accepting = AcceptState::Off;
        }
        match result {
            Ok(_) if slot.closing => (), // closed by dropping it
            Ok(fd) => {
                state.stats.accepted.add(1);
                slot.accepted.push_back(fd);
                state.sched.notify(&mut slot.waiter);
                if slot.accepted.len() >= slot.ahead {
                    self.disarm_accept(i);
                }
            }
            Err(errno) => self.accept_failed(state, i, errno),
        }
        let slot = self.listeners.slot(i);
        if slot.closing {
            self.release_listener(i);
        } else if slot.paused && slot.accepting == AcceptState::Off {
            state.sched.notify(&mut slot.waiter); // `into_fd` may wait for this
        } else if slot.waiter.is_some() || slot.accepted.is_empty() {
            self.arm_accept(i);
        }
    }

    fn accept_failed(&mut self, state: &LoopState, i: u32, errno: i32) {
        let slot = self.listeners.slot(i);
        match errno {
            libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                state.stats.emfile.add(1);
                slot.error = errno;
                state.sched.notify(&mut slot.waiter);
                self.disarm_accept(i);
                let slot = self.listeners.slot(i);
                if slot.accepting == AcceptState::Off && !slot.closing {
                    slot.accepting = AcceptState::Starved(state.now_ms() + RETRY_MS);
                    self.listeners.starved += 1;
                }
            }
            libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP => {
                slot.error = errno;
                state.sched.notify(&mut slot.waiter);
            }
            // Cancelled, or the trouble of one connection that is gone already.
            _ => (),
        }
    }

    /// Lets starved listeners try again, when it is time or a descriptor was closed.
    pub(crate) fn resume_accepting(&mut self, state: &LoopState) {
        let closed_one = std::mem::take(&mut self.sockets.closed_one);
        if self.listeners.starved == 0 {
            return;
        }
        for i in 0..self.listeners.slots.len() as u32 {
            let slot = self.listeners.slot(i);
            if let AcceptState::Starved(at) = slot.accepting
                && (closed_one || state.now_ms() >= at)
            {
                slot.accepting = AcceptState::Off;
                self.listeners.starved -= 1;
                self.arm_accept(i);
            }
        }
    }

    /// Accepts what is waiting (epoll), at most [`AHEAD_MAX`] so that a burst does not starve the connected.
    pub(crate) fn accept_ready(&mut self, state: &LoopState, i: u32, generation: u32) {
        for _ in 0..AHEAD_MAX {
            let Some(slot) = self.listeners.current(i, generation) else { return };
            let Some(fd) = slot.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
            if slot.accepting != AcceptState::Armed {
                return;
            }
            match sys::accept(fd) {
                Err(libc::EAGAIN) => return,
                result => self.on_accept(state, i, generation, result, true),
            }
        }
    }

    /// The descriptor of a listener, for its addresses and options.
    pub(crate) fn listener_fd(&mut self, i: u32) -> RawFd {
        self.listeners.slot(i).fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}
