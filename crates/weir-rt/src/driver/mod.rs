//! Two drivers behind one completion-shaped interface: io_uring, and epoll whose readiness is turned into the same
//! things. [`WorkerIo`] has what is common to them; `uring` and `epoll` have what the kernel sees.
//!
//! Everything here runs inside the window `RuntimeCore::io`, so it calls no foreign code: it wakes through
//! [`crate::executor::RunQueue::notify`], and what it drops are bytes and descriptors.

pub(crate) mod accept;
mod complete;
mod epoll;
mod layered;
mod long;
mod probe;
mod send;
mod uring;

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::loop_state::LoopState;
use crate::net::{self, RawAddr};
use crate::packets;
use crate::pool::{BUFFER_SIZE, BufferPool, FreeBuffers, PoolBlocks, ReceivedBuffer};
use crate::socket::{QUEUED_MAX, ReceiveState, SendState, SocketOps, SocketTable};
use crate::stats::LoopStats;
use crate::sys;

pub use probe::probe_io_uring;

/// What the configuration asks for (`use io_uring`, `use epoll`, or neither).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring where [`probe_io_uring`] finds all that is needed, else epoll.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll.
    Epoll,
}

/// The driver a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    IoUring,
    /// epoll(7).
    Epoll,
}

impl std::fmt::Display for DriverKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DriverKind::IoUring => "io_uring",
            DriverKind::Epoll => "epoll",
        })
    }
}

/// How long the driver may wait, in milliseconds; `None` is for ever.
pub(crate) type WaitLimit = Option<u64>;

/// What `user_data` (io_uring) and the event's data (epoll) name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum OperationKind {
    /// It is not waited for: cancels.
    Nothing = 0,
    Recv,
    Send,
    Connect,
    Writable,
    Hangup,
    Accept,
    Inbox,
    /// A silent send that failed or was short.
    Fallen,
    /// Bytes, or an end, of a socket that is received from by recv(2).
    Readable,
}

/// Kind in 4 bits, generation in 28, index in 32.
pub(crate) fn tag(kind: OperationKind, generation: u32, index: u32) -> u64 {
    (kind as u64) << 60 | u64::from(generation) << 32 | u64::from(index)
}

/// The reverse of [`tag`].
pub(crate) fn untag(data: u64) -> (OperationKind, u32, u32) {
    const KINDS: [OperationKind; 10] = [
        OperationKind::Nothing,
        OperationKind::Recv,
        OperationKind::Send,
        OperationKind::Connect,
        OperationKind::Writable,
        OperationKind::Hangup,
        OperationKind::Accept,
        OperationKind::Inbox,
        OperationKind::Fallen,
        OperationKind::Readable,
    ];
    let kind = KINDS.get((data >> 60) as usize).copied().unwrap_or(OperationKind::Nothing);
    (kind, (data >> 32) as u32 & 0x0fff_ffff, data as u32)
}

pub(crate) enum DriverBackend {
    Uring(Box<uring::UringBackend>),
    Epoll(epoll::EpollBackend),
    /// The runtime is gone, a stream outlived it.
    Shut,
}

/// What a receive found.
pub(crate) enum ReceivedInput {
    Data(ReceivedBuffer),
    /// What a layer made of received bytes, at least one.
    Opened(Vec<u8>),
    Eof,
    Error(i32),
}

/// All input and output of a worker. Field order is drop order: the ring is closed before its buffers are freed.
pub(crate) struct WorkerIo {
    pub(crate) backend: DriverBackend,
    pub(crate) sockets: SocketTable,
    pub(crate) listeners: accept::ListenerTable,
    /// When queued buffers were last swept to the heap, in the loop's milliseconds.
    swept_ms: u64,
}

/// Between two sweeps of all sockets for buffers that are not read.
const SWEEP_MS: u64 = 100;

impl WorkerIo {
    /// `inbox`: the eventfd whose readability ends a wait.
    pub(crate) fn new(choice: DriverChoice, buffers: u16, inbox: RawFd) -> io::Result<WorkerIo> {
        let buffers = buffers.clamp(8, 32_768).next_power_of_two();
        let blocks = PoolBlocks::new(buffers)?;
        let (backend, store) = match choose(choice)? {
            DriverKind::IoUring => {
                let (uring, ring) = uring::UringBackend::new(buffers, inbox)?;
                (DriverBackend::Uring(Box::new(uring)), FreeBuffers::Ring(ring))
            }
            DriverKind::Epoll => {
                (DriverBackend::Epoll(epoll::EpollBackend::new(inbox)?), FreeBuffers::List(Vec::new()))
            }
        };
        let sockets = SocketTable::new(BufferPool::new(blocks, store));
        Ok(WorkerIo { backend, sockets, listeners: accept::ListenerTable::default(), swept_ms: 0 })
    }

    pub(crate) fn kind(&self) -> DriverKind {
        match self.backend {
            DriverBackend::Uring(_) => DriverKind::IoUring,
            _ => DriverKind::Epoll,
        }
    }

    /// Takes a connected, non-blocking socket.
    pub(crate) fn open(&mut self, stats: &LoopStats, fd: OwnedFd) -> io::Result<u32> {
        if matches!(self.backend, DriverBackend::Shut) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let i = self.sockets.add(fd.into_raw_fd());
        if let DriverBackend::Epoll(epoll) = &mut self.backend {
            let slot = self.sockets.slot(i);
            if let Err(e) = epoll.add_socket(slot.fd, tag(OperationKind::Recv, slot.generation, i)) {
                sys::close(self.sockets.remove(i));
                return Err(e);
            }
        }
        stats.connections_live.add(1);
        Ok(i)
    }

    /// Starts connecting; the end of it is `connecting == None`.
    pub(crate) fn connect(&mut self, i: u32, addr: RawAddr) {
        let addr = Box::new(addr);
        let slot = self.sockets.slot(i);
        match &mut self.backend {
            DriverBackend::Uring(uring) => {
                uring.connect(slot, i, &addr);
                slot.connecting = Some(addr);
            }
            _ => match sys::connect(slot.fd, &addr) {
                Ok(()) => (),
                Err(libc::EINPROGRESS) => slot.connecting = Some(addr),
                Err(e) => slot.recv_error = e,
            },
        }
    }

    /// The next bytes for the user or the end of the stream. `None`: nothing yet, and a completion will come.
    #[inline]
    pub(crate) fn recv(&mut self, state: &LoopState, i: u32) -> Option<ReceivedInput> {
        if self.sockets.slot(i).layer.is_some() {
            return self.recv_opened(state, i, None);
        }
        self.recv_raw(state, i)
    }

    /// As [`WorkerIo::recv`]; where no receive is under way yet, one is made now.
    pub(crate) fn recv_first(&mut self, state: &LoopState, i: u32) -> Option<ReceivedInput> {
        let slot = self.sockets.slot(i);
        let untouched =
            slot.layer.is_none() && slot.receiving == ReceiveState::Off && !slot.eof && slot.recv_error == 0;
        match self.backend {
            DriverBackend::Uring(_) if untouched => self.recv_heap(state, i),
            _ => self.recv(state, i),
        }
    }

    /// The next received buffer or the end of the stream.
    pub(super) fn recv_raw(&mut self, state: &LoopState, i: u32) -> Option<ReceivedInput> {
        let (slot, pool, _) = self.sockets.parts(i);
        if let Some(received) = pool.pop(&mut slot.received) {
            return Some(ReceivedInput::Data(received));
        }
        if slot.recv_error != 0 {
            return Some(ReceivedInput::Error(slot.recv_error));
        }
        if slot.eof {
            return Some(ReceivedInput::Eof);
        }
        match &mut self.backend {
            DriverBackend::Uring(uring) => match slot.receiving {
                ReceiveState::Off => {
                    uring.arm(slot, i);
                    None
                }
                ReceiveState::Starved => self.recv_heap(state, i),
                ReceiveState::Armed | ReceiveState::Pausing => None,
                ReceiveState::Polled => self.recv_polled(state, i, BUFFER_SIZE),
            },
            DriverBackend::Epoll(_) => self.recv_now(state, i),
            DriverBackend::Shut => Some(ReceivedInput::Error(libc::EBADF)),
        }
    }

    /// recv(2) into a pool buffer, or a heap one without a pool (epoll).
    fn recv_now(&mut self, state: &LoopState, i: u32) -> Option<ReceivedInput> {
        let (slot, pool, _) = self.sockets.parts(i);
        if !slot.readable {
            return None;
        }
        let id = pool.take().unwrap_or_else(|| {
            state.stats.enobufs.add(1);
            pool.take_heap()
        });
        // A short read has drained the socket, which saves the read that would say so, except after a hang-up: that
        // edge was given once and the end of stream is still to be read.
        let input = self.recv_into(state, i, id);
        let slot = self.sockets.slot(i);
        match input {
            Some(ReceivedInput::Data(received)) => {
                slot.readable = slot.hangup || received.len as usize == BUFFER_SIZE;
            }
            Some(_) => (),
            None => slot.readable = false,
        }
        input
    }

    /// A socket whose task waits for bytes gets them before any task of the turn runs, as with io_uring: so what the
    /// tasks ask of the system then has one result for all of them (see [`crate::epoch`]).
    pub(crate) fn receive_ahead(&mut self, state: &LoopState, i: u32) {
        let (slot, pool, _) = self.sockets.parts(i);
        if slot.reader.is_some() && slot.received.is_empty() && !slot.long && !pool.is_low() {
            match self.recv_now(state, i) {
                Some(ReceivedInput::Data(received)) => {
                    let (slot, pool, _) = self.sockets.parts(i);
                    pool.push(&mut slot.received, received);
                }
                Some(ReceivedInput::Eof | ReceivedInput::Error(_) | ReceivedInput::Opened(_)) => (),
                None => return,
            }
        }
        state.sched.notify(&mut self.sockets.slot(i).reader);
    }

    /// recv(2) into a heap buffer, so that a starved socket whose task reads gets on. When there is nothing to
    /// receive, arming the multishot receive again is safe: it fails only when bytes arrive.
    fn recv_heap(&mut self, state: &LoopState, i: u32) -> Option<ReceivedInput> {
        let id = self.sockets.pool.take_heap();
        let input = self.recv_into(state, i, id);
        if input.is_none() {
            let slot = self.sockets.slot(i);
            slot.receiving = ReceiveState::Off;
            if let DriverBackend::Uring(uring) = &mut self.backend {
                uring.arm(slot, i);
            }
        }
        input
    }

    fn recv_into(&mut self, state: &LoopState, i: u32, id: u32) -> Option<ReceivedInput> {
        let stretch = state.kernel.begin();
        let (slot, pool, _) = self.sockets.parts(i);
        let result = match packets::is_watching() {
            // SAFETY: a buffer just taken from the pool, BUFFER_SIZE bytes, which nothing else refers to.
            false => unsafe { sys::recv(slot.fd, pool.start(id).as_ptr(), BUFFER_SIZE) },
            // SAFETY: the same.
            true => unsafe { sys::recv_stamped(slot.fd, pool.start(id).as_ptr(), BUFFER_SIZE) },
        };
        state.kernel.end(stretch);
        state.kernel.receive(&mut slot.debt, result.unwrap_or(0));
        match result {
            Ok(n) if n > 0 => {
                state.received();
                return Some(ReceivedInput::Data(ReceivedBuffer { id, len: n as u32 }));
            }
            Ok(_) if slot.reset == 0 => (slot.eof, slot.hangup) = (true, true),
            Ok(_) => slot.recv_error = slot.reset,
            Err(libc::EAGAIN | libc::EINTR) => (),
            Err(e) => slot.recv_error = e,
        }
        pool.give(id);
        match (slot.eof, slot.recv_error) {
            (true, _) => Some(ReceivedInput::Eof),
            (_, 0) => None,
            (_, e) => Some(ReceivedInput::Error(e)),
        }
    }

    /// Makes sure that the peer's departure will be noticed while nothing reads.
    pub(crate) fn watch(&mut self, i: u32) {
        let DriverBackend::Uring(uring) = &mut self.backend else { return };
        let slot = self.sockets.slot(i);
        let settled = matches!(slot.receiving, ReceiveState::Off | ReceiveState::Starved);
        if !settled || slot.ops.has(SocketOps::HANGUP) || slot.closing || slot.detaching {
            return;
        }
        if slot.receiving == ReceiveState::Off && slot.received.is_empty() {
            uring.arm(slot, i);
        } else {
            uring.poll_hangup(slot, i);
        }
    }

    /// The `Stream` is gone: what could be sent at once has been, the rest is discarded.
    pub(crate) fn close(&mut self, state: &LoopState, i: u32) {
        self.close_layer(i);
        self.start_send(state, i);
        // Now, while the request that ends it may still be there; what the ring has to do after that is nobody's.
        self.sockets.set_payer(i, None);
        let (slot, pool, _) = self.sockets.parts(i);
        slot.closing = true;
        pool.clear(&mut slot.received);
        for waiting in [&mut slot.reader, &mut slot.writer, &mut slot.watcher] {
            state.sched.notify(waiting);
        }
        if let DriverBackend::Uring(uring) = &mut self.backend
            && !slot.ops.is_empty()
        {
            // close(2) alone would leave the ring's reference to the file: no FIN would be sent.
            uring.cancel_all(slot.fd);
        }
        self.release(state, i);
    }

    /// Closes the descriptor and frees the slot, once nothing is in flight.
    pub(super) fn release(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        if !slot.closing || !slot.ops.is_empty() || slot.fd < 0 {
            return;
        }
        if let Some(output) = &mut slot.output {
            output.landed();
        }
        let shared = slot.shared;
        let fd = self.sockets.remove(i);
        if shared && let DriverBackend::Epoll(epoll) = &self.backend {
            epoll.remove(fd);
        }
        sys::close(fd);
        self.sockets.closed_one = true;
        state.stats.connections_live.sub(1);
    }

    /// Takes a socket away from the driver, with the bytes that were received and not taken. `None`: the kernel has
    /// not let go of it yet, and the writer will be woken.
    pub(crate) fn detach(&mut self, state: &LoopState, i: u32) -> Option<(OwnedFd, Vec<u8>)> {
        let slot = self.sockets.slot(i);
        let first = !std::mem::replace(&mut slot.detaching, true);
        if !slot.ops.is_empty() {
            if first && let DriverBackend::Uring(uring) = &mut self.backend {
                uring.cancel_all(slot.fd);
            }
            return None;
        }
        let (slot, pool, spares) = self.sockets.parts(i);
        let mut unread = spares.take();
        while let Some(received) = pool.pop(&mut slot.received) {
            pool.copy_to(received, &mut unread);
            pool.give(received.id);
        }
        let fd = sys::adopt(self.sockets.remove(i));
        if let DriverBackend::Epoll(epoll) = &mut self.backend {
            epoll.remove(fd.as_raw_fd());
        }
        state.stats.connections_live.sub(1);
        Some((fd, unread))
    }

    /// Submits, waits at most `wait`, and handles what has completed. True if the inbox has mail.
    pub(crate) fn turn(&mut self, state: &LoopState, wait: WaitLimit) -> bool {
        self.before_wait(state);
        let wait = self.shorten(state, wait);
        match &mut self.backend {
            DriverBackend::Uring(_) => self.turn_uring(state, wait),
            DriverBackend::Epoll(_) => self.turn_epoll(state, wait),
            DriverBackend::Shut => false,
        }
    }

    fn before_wait(&mut self, state: &LoopState) {
        for i in std::mem::take(&mut self.sockets.yielded) {
            let slot = self.sockets.slot(i);
            if slot.sending == SendState::Yielded {
                slot.sending = SendState::Idle;
                self.start_send(state, i);
            }
        }
        self.flush_dirty(state);
        self.pause_lagging();
        self.feed_starved(state);
        self.resume_accepting(state);
        self.sockets.pool.publish();
    }

    /// No wait if a task has to continue (what comes before the wait may have woken tasks, too), a shorter one if a
    /// listener has to try again.
    fn shorten(&mut self, state: &LoopState, wait: WaitLimit) -> WaitLimit {
        if !self.sockets.yielded.is_empty() || state.sched.is_runnable() {
            return Some(0);
        }
        match (self.listeners.retry_ms(), wait) {
            (Some(at), None) => Some(at.saturating_sub(state.now_ms())),
            (Some(at), Some(wait)) => Some(wait.min(at.saturating_sub(state.now_ms()))),
            (None, wait) => wait,
        }
    }

    /// Cancels the receives of sockets whose tasks have had their turn and still leave their queues full.
    fn pause_lagging(&mut self) {
        let DriverBackend::Uring(uring) = &mut self.backend else { return };
        while let Some(i) = self.sockets.lagging.pop() {
            let (slot, pool, _) = self.sockets.parts(i);
            slot.lagging = false;
            if slot.received.len() < QUEUED_MAX || slot.closing {
                continue;
            }
            if slot.receiving == ReceiveState::Armed {
                uring.pause(slot, i);
            }
            // A burst may bring 32 buffers before it can be stopped; the pool is not theirs to keep.
            let keep = if pool.is_low() { 0 } else { QUEUED_MAX };
            pool.spill_queue(&mut slot.received, keep);
        }
    }

    /// Arms starved sockets as far as there are buffers. Without buffers, tasks that wait get theirs by a plain
    /// receive, and the others wait until buffers come back: nothing spins.
    fn feed_starved(&mut self, state: &LoopState) {
        if self.sockets.starved.is_empty() {
            return;
        }
        self.sweep(state.now_ms());
        let DriverBackend::Uring(uring) = &mut self.backend else { return };
        let mut buffers = self.sockets.pool.free();
        let (starved, mut rest) = (std::mem::take(&mut self.sockets.starved), Vec::new());
        for i in starved {
            let slot = self.sockets.slot(i);
            if slot.receiving != ReceiveState::Starved || slot.closing || slot.detaching {
                continue;
            }
            if buffers > 0 {
                buffers -= 1;
                slot.receiving = ReceiveState::Off;
                uring.arm(slot, i);
            } else {
                state.sched.notify(&mut slot.reader);
                rest.push(i);
            }
        }
        self.sockets.starved = rest;
    }

    /// Moves what unread sockets hold to the heap, when the pool is empty and others starve.
    fn sweep(&mut self, now_ms: u64) {
        if self.sockets.pool.free() > 0 || now_ms < self.swept_ms + SWEEP_MS {
            return;
        }
        self.swept_ms = now_ms;
        for i in self.sockets.indices() {
            let (slot, pool, _) = self.sockets.parts(i);
            pool.spill_queue(&mut slot.received, 0);
        }
    }

    /// Closes everything. Streams that outlive it get errors from now on.
    pub(crate) fn shut(&mut self, state: &LoopState) {
        for i in self.sockets.indices() {
            if !self.sockets.slot(i).closing {
                self.close(state, i);
            }
        }
        self.close_listeners();
        let quiet = match &mut self.backend {
            DriverBackend::Uring(_) => self.drain_uring(state),
            _ => true,
        };
        if !quiet {
            self.leak();
        }
        self.backend = DriverBackend::Shut;
    }

    /// The kernel has not completed in time: it keeps the memory it may still use.
    fn leak(&mut self) {
        self.sockets.pool.leak();
        if let DriverBackend::Uring(uring) = &mut self.backend {
            uring.leak();
        }
        for i in self.sockets.indices() {
            std::mem::forget(self.sockets.slot(i).output.take());
            std::mem::forget(self.sockets.slot(i).connecting.take());
        }
    }
}

fn choose(choice: DriverChoice) -> io::Result<DriverKind> {
    match choice {
        DriverChoice::Epoll => Ok(DriverKind::Epoll),
        DriverChoice::IoUring => probe_io_uring().map(|()| DriverKind::IoUring),
        DriverChoice::Auto => Ok(probe_io_uring().map_or(DriverKind::Epoll, |()| DriverKind::IoUring)),
    }
}

/// SO_ERROR of a socket; a failure to ask counts as one.
fn take_error(fd: RawFd) -> i32 {
    net::socket_error(fd).unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::{OperationKind, tag, untag};

    #[test]
    fn tags_keep_their_three_parts() {
        for kind in [
            OperationKind::Recv,
            OperationKind::Send,
            OperationKind::Accept,
            OperationKind::Inbox,
            OperationKind::Fallen,
            OperationKind::Nothing,
        ] {
            assert_eq!(untag(tag(kind, 0x0abc_def1, 0xfedc_ba98)), (kind, 0x0abc_def1, 0xfedc_ba98));
        }
    }
}
