//! io_uring's completions, dispatched to the sockets they belong to.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use io_uring::cqueue;

use crate::loop_state::LoopState;
use crate::output::SendError;
use crate::socket::{QUEUED_MAX, ReceiveState, SendState, SocketOps};

use crate::pool::ReceivedBuffer;
use crate::sys;

use super::uring::UringCompletion;
use super::{DriverBackend, OperationKind, WaitLimit, WorkerIo, take_error, untag};

/// How long a runtime that ends waits for the kernel's last completions.
const DRAIN: Duration = Duration::from_secs(2);

impl WorkerIo {
    pub(super) fn turn_uring(&mut self, state: &LoopState, wait: WaitLimit) -> bool {
        let wait = if wait != Some(0) && self.silent_is_awaited() { Some(0) } else { wait };
        let DriverBackend::Uring(uring) = &mut self.backend else { return false };
        uring.submit_and_wait(wait);
        state.woke();
        let DriverBackend::Uring(uring) = &self.backend else { return false };
        state.kernel.waited(uring.completions.len());
        self.settle_silent(state);
        self.handle_completions(state)
    }

    /// True if the inbox has mail.
    fn handle_completions(&mut self, state: &LoopState) -> bool {
        let DriverBackend::Uring(uring) = &mut self.backend else { return false };
        let mut completions = std::mem::take(&mut uring.completions);
        let mut mail = false;
        for completion in completions.drain(..) {
            mail |= self.complete(state, completion);
        }
        if let DriverBackend::Uring(uring) = &mut self.backend {
            // Handling may have filled the submission queue, whose emptying may have taken more completions.
            completions.append(&mut uring.completions);
            uring.completions = completions;
        }
        mail
    }

    fn complete(&mut self, state: &LoopState, completion: UringCompletion) -> bool {
        let UringCompletion { data, result, flags } = completion;
        let (kind, generation, i) = untag(data);
        let more = cqueue::more(flags);
        if !matches!(kind, OperationKind::Nothing | OperationKind::Inbox | OperationKind::Accept) {
            state.kernel.event(&mut self.sockets.slot(i).debt);
        }
        match kind {
            OperationKind::Nothing | OperationKind::Fallen => (),
            OperationKind::Inbox => {
                if !more && let DriverBackend::Uring(uring) = &mut self.backend {
                    uring.watch_inbox();
                }
                return true;
            }
            OperationKind::Accept => {
                let accepted: Result<OwnedFd, i32> =
                    if result >= 0 { Ok(sys::adopt(result)) } else { Err(-result) };
                self.on_accept(state, i, generation, accepted, more);
            }
            OperationKind::Recv => self.on_recv(state, i, result, flags),
            OperationKind::Readable => self.on_readable(state, i, result, more),
            OperationKind::Send => self.on_send(state, i, result),
            OperationKind::Connect => self.on_connect(state, i, result),
            OperationKind::Writable => self.on_writable(state, i),
            OperationKind::Hangup => self.on_hangup(state, i, result),
        }
        if !matches!(kind, OperationKind::Nothing | OperationKind::Accept) {
            self.reported(state, i);
        }
        false
    }

    fn on_recv(&mut self, state: &LoopState, i: u32, result: i32, flags: u32) {
        let (slot, pool, _) = self.sockets.parts(i);
        state.kernel.receive(&mut slot.debt, result.max(0) as usize);
        // Also an end of stream may have taken a buffer.
        let buffer = cqueue::buffer_select(flags).map(|bid| pool.taken(bid));
        if !cqueue::more(flags) {
            slot.ops.end(SocketOps::RECV);
            slot.receiving = ReceiveState::Off;
        }
        let received = match buffer {
            Some(id) if result > 0 && !slot.closing => Some(ReceivedBuffer { id, len: result as u32 }),
            Some(id) => {
                pool.give(id);
                None
            }
            None => None,
        };
        if slot.closing {
            return self.release(state, i);
        }
        match (result, received) {
            (_, Some(received)) => self.received(i, received),
            (0, _) if slot.reset == 0 => (slot.eof, slot.hangup) = (true, true),
            (0, _) => slot.recv_error = slot.reset,
            (e, _) if e == -libc::ENOBUFS => {
                state.stats.enobufs.add(1);
                slot.receiving = ReceiveState::Starved;
                self.sockets.starved.push(i);
            }
            (e, _) if e == -libc::ECANCELED || e == -libc::EAGAIN || e == -libc::EINTR => (),
            (e, _) => slot.recv_error = -e,
        }
        self.tell_reader(state, i);
    }

    fn received(&mut self, i: u32, mut received: ReceivedBuffer) {
        let (slot, pool, _) = self.sockets.parts(i);
        if slot.received.len() >= QUEUED_MAX && pool.is_low() {
            received = pool.spill(received);
        }
        pool.push(&mut slot.received, received);
        if slot.received.len() >= QUEUED_MAX && !slot.lagging {
            slot.lagging = true;
            self.sockets.lagging.push(i);
        }
    }

    fn tell_reader(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        let ended = slot.eof || slot.recv_error != 0;
        if ended || !slot.received.is_empty() {
            state.sched.notify(&mut slot.reader);
        } else if slot.reader.is_some()
            && slot.receiving == ReceiveState::Off
            && !slot.detaching
            && let DriverBackend::Uring(uring) = &mut self.backend
        {
            uring.arm(slot, i); // its pause has ended after the task had caught up
        }
        if ended {
            state.sched.notify(&mut self.sockets.slot(i).watcher);
        } else if self.sockets.slot(i).watcher.is_some() {
            self.watch(i);
        }
    }

    fn on_send(&mut self, state: &LoopState, i: u32, result: i32) {
        let slot = self.sockets.slot(i);
        slot.ops.end(SocketOps::SEND);
        slot.sending = SendState::Idle;
        if let Some(output) = &mut slot.output {
            output.landed();
        }
        if slot.closing {
            return self.release(state, i);
        }
        match result {
            n if n >= 0 => {
                self.progress(state, i, n as u64);
                self.start_send(state, i);
            }
            e if e == -libc::EAGAIN || e == -libc::EINTR => {
                slot.sending = SendState::Blocked;
                if let DriverBackend::Uring(uring) = &mut self.backend {
                    uring.poll_writable(slot, i);
                }
            }
            e => self.fail_send(state, i, SendError::Closed(-e)),
        }
    }

    fn on_connect(&mut self, state: &LoopState, i: u32, result: i32) {
        let slot = self.sockets.slot(i);
        slot.ops.end(SocketOps::CONNECT);
        slot.connecting = None;
        if slot.closing {
            return self.release(state, i);
        }
        slot.recv_error = -result;
        state.sched.notify(&mut slot.writer);
    }

    fn on_writable(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        slot.ops.end(SocketOps::WRITABLE);
        if slot.closing {
            return self.release(state, i);
        }
        if slot.sending == SendState::Blocked {
            slot.sending = SendState::Idle;
            self.start_send(state, i);
        }
    }

    fn on_hangup(&mut self, state: &LoopState, i: u32, result: i32) {
        let slot = self.sockets.slot(i);
        slot.ops.end(SocketOps::HANGUP);
        if slot.closing {
            return self.release(state, i);
        }
        if result <= 0 {
            return;
        }
        slot.hangup = true;
        if result & i32::from(libc::POLLERR) != 0 && slot.reset == 0 {
            slot.reset = take_error(slot.fd);
        }
        state.sched.notify(&mut slot.watcher);
    }

    /// Cancels all and waits for the last completions. False: some have not come in time.
    pub(super) fn drain_uring(&mut self, state: &LoopState) -> bool {
        let end = Instant::now() + DRAIN;
        loop {
            let DriverBackend::Uring(uring) = &mut self.backend else { return true };
            if uring.is_quiet() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            uring.cancel_any();
            uring.submit_and_wait(Some(10));
            self.settle_silent(state);
            let DriverBackend::Uring(uring) = &mut self.backend else { return true };
            let completions = std::mem::take(&mut uring.completions);
            for completion in completions {
                if untag(completion.data).0 != OperationKind::Inbox {
                    self.complete(state, completion);
                }
            }
        }
    }
}
