//! Receiving what is long: as much as there is by one recv(2), into a vector that its reader owns and may send on
//! uncopied.
//!
//! A multishot receive brings the same bytes in pool buffers of 4 KB, each with a completion, and so many at once that it
//! has to be cancelled ([`QUEUED_MAX`](crate::socket::QUEUED_MAX)). So a socket that is read in this way is only polled
//! for readiness from then on, with io_uring too; 64 KB then take two receives instead of seventeen.

use crate::datagrams::DatagramBatch;
use crate::loop_state::LoopState;
use crate::output::LONG_RECEIVE;
use crate::pool::BUFFER_SIZE;
use crate::socket::{ReceiveState, SocketOps};
use crate::sys;

use super::{DriverBackend, ReceivedInput, WorkerIo, take_error};

/// A receive up to this size is copied out of its long vector, which is then free for others: what waits for a slow
/// reader takes no more than five times its bytes.
const COPIED: usize = LONG_RECEIVE / 4;

impl WorkerIo {
    /// As [`WorkerIo::recv`], of up to `most` bytes at once.
    pub(crate) fn recv_long(&mut self, state: &LoopState, i: u32, most: usize) -> Option<ReceivedInput> {
        if self.sockets.slot(i).layer.is_some() {
            return self.recv_opened(state, i, Some(most));
        }
        self.recv_long_raw(state, i, most)
    }

    /// As [`WorkerIo::recv_long`], of what the socket itself brings.
    pub(super) fn recv_long_raw(&mut self, state: &LoopState, i: u32, most: usize) -> Option<ReceivedInput> {
        let slot = self.sockets.slot(i);
        if slot.received.len() == 1 {
            return self.recv_raw(state, i);
        }
        if !slot.received.is_empty() {
            return Some(ReceivedInput::Opened(self.gather_received(i)));
        }
        let slot = self.sockets.slot(i);
        if slot.recv_error != 0 || slot.eof || matches!(self.backend, DriverBackend::Shut) {
            return self.recv_raw(state, i);
        }
        slot.long = true;
        if let DriverBackend::Uring(uring) = &mut self.backend {
            match slot.receiving {
                // Its last completion, before which bytes may come, lets the reader go on.
                ReceiveState::Armed => uring.pause(slot, i),
                ReceiveState::Pausing => (),
                ReceiveState::Off | ReceiveState::Starved => uring.arm(slot, i),
                ReceiveState::Polled => return self.recv_polled(state, i, most),
            }
            return None;
        }
        self.recv_polled(state, i, most)
    }

    /// What follows is short again: received by the driver's usual way, once the poll has ended.
    pub(crate) fn end_long(&mut self, i: u32) {
        let slot = self.sockets.slot(i);
        slot.long = false;
        if let DriverBackend::Uring(uring) = &mut self.backend
            && slot.receiving == ReceiveState::Polled
        {
            uring.end_poll(slot, i);
        }
    }

    /// recv(2) of up to `most` bytes, if a poll has said that there is something.
    pub(super) fn recv_polled(&mut self, state: &LoopState, i: u32, most: usize) -> Option<ReceivedInput> {
        let (slot, _, spares) = self.sockets.parts(i);
        if !slot.readable {
            return None;
        }
        let most = most.clamp(BUFFER_SIZE, LONG_RECEIVE);
        let mut bytes = if most > COPIED { spares.take_long() } else { spares.take() };
        let stretch = state.kernel.begin();
        let result = sys::append_received(slot.fd, &mut bytes, most);
        state.kernel.end(stretch);
        state.kernel.receive(&mut slot.debt, result.unwrap_or(0));
        let input = match result {
            Ok(0) if slot.reset != 0 => Some(ReceivedInput::Error(slot.reset)),
            Ok(0) => Some(ReceivedInput::Eof),
            Ok(n) => {
                // As in `recv_now`: a short read has drained the socket.
                slot.readable = slot.hangup || n == most;
                state.received();
                let bytes = if bytes.capacity() >= LONG_RECEIVE && n <= COPIED {
                    let copy = bytes.clone();
                    spares.give(bytes);
                    copy
                } else {
                    bytes
                };
                return Some(ReceivedInput::Opened(bytes));
            }
            Err(libc::EAGAIN | libc::EINTR) => None,
            Err(e) => Some(ReceivedInput::Error(e)),
        };
        spares.give(bytes);
        match &input {
            Some(ReceivedInput::Error(e)) => slot.recv_error = *e,
            Some(_) => (slot.eof, slot.hangup) = (true, true),
            None => slot.readable = false,
        }
        input
    }

    /// From here on the socket is one of datagrams: it is polled for readiness alone, and nothing is there yet of which no
    /// poll has said so.
    pub(crate) fn expect_datagrams(&mut self, i: u32) {
        let slot = self.sockets.slot(i);
        (slot.long, slot.readable) = (true, false);
    }

    /// Receives `most` datagrams at most into `batch`. `None`: nothing has come.
    pub(crate) fn receive_datagrams(
        &mut self,
        state: &LoopState,
        i: u32,
        batch: &mut DatagramBatch,
        most: usize,
    ) -> Option<Result<usize, i32>> {
        let slot = self.sockets.slot(i);
        match &mut self.backend {
            DriverBackend::Shut => return Some(Err(libc::EBADF)),
            DriverBackend::Uring(uring) if slot.receiving != ReceiveState::Polled => {
                uring.arm(slot, i);
                return None;
            }
            _ => {}
        }
        let reported = std::mem::take(&mut slot.reset);
        if reported != 0 {
            return Some(Err(reported));
        }
        if !slot.readable {
            return None;
        }
        let stretch = state.kernel.begin();
        let result = batch.receive(slot.fd, most);
        state.kernel.end(stretch);
        state.kernel.receive(&mut slot.debt, batch.total());
        // Fewer than asked for have drained the socket: what comes after that is reported again.
        slot.readable = result == Ok(most);
        match result {
            Err(libc::EAGAIN) => None,
            Err(libc::EINTR) => {
                slot.readable = true;
                Some(Ok(0))
            }
            Ok(count) => {
                state.received();
                Some(Ok(count))
            }
            // There may be datagrams after the error, which no poll reports.
            Err(errno) => {
                slot.readable = true;
                Some(Err(errno))
            }
        }
    }

    /// What pool buffers have brought, in one vector.
    fn gather_received(&mut self, i: u32) -> Vec<u8> {
        let (slot, pool, spares) = self.sockets.parts(i);
        let mut bytes = spares.take_long();
        while bytes.len() + BUFFER_SIZE <= LONG_RECEIVE
            && let Some(received) = pool.pop(&mut slot.received)
        {
            pool.copy_to(received, &mut bytes);
            pool.give(received.id);
        }
        bytes
    }

    /// A poll for readiness has reported something (io_uring).
    pub(super) fn on_readable(&mut self, state: &LoopState, i: u32, result: i32, more: bool) {
        let slot = self.sockets.slot(i);
        if !more {
            slot.ops.end(SocketOps::RECV);
            slot.receiving = ReceiveState::Off;
        }
        if slot.closing {
            return self.release(state, i);
        }
        // Ended by `end_long`: what waits for the peer's departure waits for another operation.
        if !more && slot.watcher.is_some() {
            self.watch(i);
        }
        let slot = self.sockets.slot(i);
        if result > 0 {
            slot.readable = true;
            if result & i32::from(libc::POLLERR) != 0 && slot.reset == 0 {
                slot.reset = take_error(slot.fd);
            }
            if result & i32::from(libc::POLLERR | libc::POLLHUP | libc::POLLRDHUP) != 0 {
                slot.hangup = true;
                state.sched.notify(&mut slot.watcher);
            }
        }
        state.sched.notify(&mut slot.reader);
    }
}
