//! Sending: memory by one SEND or SENDMSG entry (io_uring) or sendmsg(2) (epoll); file ranges on both by
//! non-blocking sendfile(2) from the loop while they are in the page cache, and through a pool thread that reads the
//! next piece in where they are not. io_uring's own SPLICE always goes to a kernel thread (6 to 16 us each).

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use crate::blocking;
use crate::file::FileHandle;
use crate::inbox::FileRead;
use crate::loop_state::LoopState;
use crate::net;
use crate::output::{GatheredOutput, OutputChunk, OutputQueue, SendError};
use crate::socket::{SendState, SocketOps};
use crate::sys;

use super::uring::SilentSend;
use super::{DriverBackend, WorkerIo};

/// Bytes a socket may send by plain system calls in one turn, so that a fast peer cannot hold the worker: as many as
/// nginx's `sendfile_max_chunk` allows. Half of it cut files of 1 MB in two, which cost another wake-up of the reader
/// and a third of the rate (1,700 against 2,400 requests/s of 1 MB at 16 connections).
const TURN_BYTES: u64 = 2 << 20;
/// What a pool thread reads in before sending goes on.
const FAULT_BYTES: u64 = 2 << 20;

/// Responses up to this size are sent silently: the socket nearly always takes them, and if not, this is what is asked
/// for twice.
const SILENT_BYTES: usize = 16 * 1024;

/// How a round of plain sends ended.
pub(super) enum PumpOutcome {
    /// Everything is out.
    Done,
    /// The socket takes no more.
    Blocked,
    /// The turn's share is used up.
    Yielded,
    /// The file range at the front is not in the page cache.
    Cold,
    Failed(SendError),
}

impl WorkerIo {
    /// Appends to a socket's output; sent at the latest when the task's poll ends.
    pub(crate) fn queue(&mut self, i: u32, chunk: OutputChunk) {
        let (slot, _, spares) = self.sockets.parts(i);
        if slot.send_error.is_some() || slot.fd < 0 {
            return; // the waiting task is woken; nothing else would ever take the bytes
        }
        match &mut slot.layer {
            None => slot.output.get_or_insert_with(|| spares.take_output()).push(chunk, spares),
            Some(layered) => layered.push(chunk),
        }
        if slot.sending == SendState::Idle && !slot.dirty {
            slot.dirty = true;
            self.sockets.dirty.push(i);
        }
    }

    /// Appends bytes and starts sending. What the socket takes at once never enters a queue.
    pub(crate) fn send(&mut self, state: &LoopState, i: u32, bytes: Vec<u8>) {
        let slot = self.sockets.slot(i);
        let fresh = slot.output.is_none() && slot.sending == SendState::Idle;
        if !fresh || slot.send_error.is_some() || slot.fd < 0 || bytes.is_empty() {
            self.queue(i, OutputChunk::Bytes(bytes));
            return self.start_send(state, i);
        }
        let bytes = match &mut slot.layer {
            None => bytes,
            Some(_) => match self.seal_alone(state, i, bytes) {
                Some(sealed) => sealed,
                None => return self.start_send(state, i),
            },
        };
        let (slot, _, spares) = self.sockets.parts(i);
        match &mut self.backend {
            DriverBackend::Uring(uring) if bytes.len() <= SILENT_BYTES => {
                state.kernel.submit(&mut slot.debt, bytes.len());
                slot.sending = SendState::InFlight;
                uring.send_silently(slot, i, bytes);
            }
            DriverBackend::Uring(uring) => {
                state.kernel.submit(&mut slot.debt, bytes.len());
                let output = slot.output.insert(spares.take_output());
                let gathered = output.depart_alone(bytes);
                slot.sending = SendState::InFlight;
                uring.send(slot, i, gathered);
            }
            DriverBackend::Epoll(_) => {
                let sent = sys::send_bytes(slot.fd, &bytes).unwrap_or(0);
                state.kernel.send(&mut slot.debt, sent);
                slot.count(sent as u64);
                slot.progress_ms = state.now_ms();
                if sent == bytes.len() {
                    spares.give(bytes);
                    state.sched.notify(&mut slot.writer);
                    if slot.layer.is_some() {
                        self.start_send(state, i); // there may be more than one piece
                    }
                    return;
                }
                // The rest goes the long way, which also finds errors.
                slot.output.insert(spares.take_output()).push_rest(bytes, sent);
                self.start_send(state, i);
            }
            DriverBackend::Shut => (),
        }
    }

    /// Starts sending for all sockets that have something queued.
    #[inline]
    pub(crate) fn flush_dirty(&mut self, state: &LoopState) {
        while let Some(i) = self.sockets.dirty.pop() {
            self.sockets.slot(i).dirty = false;
            self.start_send(state, i);
        }
    }

    /// Sends what is queued, unless a send is in flight already.
    pub(crate) fn start_send(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        if slot.sending != SendState::Idle || slot.closing || slot.fd < 0 {
            return;
        }
        if slot.layer.is_some()
            && let Some(ended) = self.seal(state, i)
        {
            return self.pumped(state, i, ended);
        }
        let (slot, _, spares) = self.sockets.parts(i);
        let Some(output) = &mut slot.output else { return };
        output.read_small_files(spares);
        let gathered = output.gather();
        if gathered.pieces == 0 && !gathered.file_next {
            return;
        }
        match &mut self.backend {
            // A head before a file is sent here and now, so that both go in one turn and may share a packet; what is long
            // is sent while the processor's cache has it.
            DriverBackend::Uring(uring) if !gathered.file_next && gathered.bytes <= SILENT_BYTES => {
                output.depart(gathered);
                slot.sending = SendState::InFlight;
                state.kernel.submit(&mut slot.debt, gathered.bytes);
                uring.send(slot, i, gathered);
            }
            DriverBackend::Uring(_) | DriverBackend::Epoll(_) => {
                let pumped = self.pump(state, i);
                self.pumped(state, i, pumped);
            }
            DriverBackend::Shut => (),
        }
    }

    fn pump(&mut self, state: &LoopState, i: u32) -> PumpOutcome {
        let mut budget = TURN_BYTES;
        loop {
            if self.sockets.slot(i).layer.is_some()
                && let Some(ended) = self.seal(state, i)
            {
                return ended;
            }
            let (slot, _, spares) = self.sockets.parts(i);
            let Some(output) = &mut slot.output else { return PumpOutcome::Done };
            output.read_small_files(spares);
            let gathered = output.gather();
            let sent = if gathered.pieces > 0 {
                send_gathered(slot.fd, output, gathered)
            } else if let Some((file, offset, len)) = output.front_file() {
                let window =
                    if offset < output.resident_to { output.resident_to - offset } else { FAULT_BYTES };
                let window = window.min(len).min(budget);
                if offset >= output.resident_to && !file.resident(offset, window) {
                    return PumpOutcome::Cold;
                }
                send_file(file, slot.fd, offset, window)
            } else {
                return PumpOutcome::Done;
            };
            state.kernel.send(&mut self.sockets.slot(i).debt, sent.unwrap_or(0));
            match sent {
                // No memory is gathered empty, so this is a file that ends before its range does.
                Ok(0) => return PumpOutcome::Failed(SendError::Truncated),
                Ok(n) => {
                    self.progress(state, i, n as u64);
                    budget = budget.saturating_sub(n as u64);
                }
                Err(libc::EINTR) => continue,
                Err(libc::EAGAIN) => return PumpOutcome::Blocked,
                Err(e) if is_of_file(e) => return PumpOutcome::Failed(SendError::File(e)),
                Err(e) => return PumpOutcome::Failed(SendError::Closed(e)),
            }
            if budget == 0 {
                return PumpOutcome::Yielded;
            }
        }
    }

    fn pumped(&mut self, state: &LoopState, i: u32, pumped: PumpOutcome) {
        let slot = self.sockets.slot(i);
        match pumped {
            PumpOutcome::Done => (),
            PumpOutcome::Blocked => {
                slot.sending = SendState::Blocked;
                if let DriverBackend::Uring(uring) = &mut self.backend {
                    uring.poll_writable(slot, i);
                }
            }
            PumpOutcome::Yielded => {
                slot.sending = SendState::Yielded;
                self.sockets.yielded.push(i);
            }
            PumpOutcome::Cold => self.read_in(state, i),
            PumpOutcome::Failed(error) => self.fail_send(state, i, error),
        }
    }

    /// Has a pool thread read the next piece of the file at the front.
    fn read_in(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        let Some((file, offset, len)) = slot.front_file() else { return };
        let len = len.min(FAULT_BYTES);
        let copy = match sys::duplicate(file) {
            Ok(copy) => copy,
            // Without a descriptor for the thread the loop waits for the disk: better late than with a file that breaks off.
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) => {
                let read = file.readahead_blocking(offset, len);
                return self.read_in_here(state, i, offset + len, read);
            }
            Err(e) => return self.fail_send(state, i, failed(&e)),
        };
        slot.sending = SendState::Faulting;
        let generation = slot.generation;
        let inbox = std::sync::Arc::clone(&state.inbox);
        blocking::submit(Box::new(move || {
            let errno =
                copy.readahead_blocking(offset, len).err().map(|e| e.raw_os_error().unwrap_or(libc::EIO));
            drop(copy);
            let resident_to = offset + len;
            inbox.file_was_read(FileRead { socket: i, generation, resident_to, errno });
        }));
    }

    /// A pool thread has read what [`WorkerIo::read_in`] asked for.
    pub(crate) fn read_in_done(&mut self, state: &LoopState, read: &FileRead) {
        let FileRead { socket: i, generation, resident_to, errno } = *read;
        // The connection may have ended meanwhile.
        let Some(slot) = self.sockets.current(i, generation) else { return };
        if slot.sending != SendState::Faulting {
            return;
        }
        slot.sending = SendState::Idle;
        if let Some(errno) = errno {
            return self.fail_send(state, i, SendError::File(errno));
        }
        slot.set_resident_to(resident_to);
        self.start_send(state, i);
    }

    /// The next piece of the file was read by the loop: it is sent in the next turn.
    #[cold]
    fn read_in_here(&mut self, state: &LoopState, i: u32, resident_to: u64, read: io::Result<()>) {
        if let Err(error) = read {
            return self.fail_send(state, i, failed(&error));
        }
        let slot = self.sockets.slot(i);
        slot.set_resident_to(resident_to);
        slot.sending = SendState::Yielded;
        self.sockets.yielded.push(i);
    }

    /// `n` bytes have gone to the kernel.
    pub(crate) fn progress(&mut self, state: &LoopState, i: u32, n: u64) {
        let (slot, _, spares) = self.sockets.parts(i);
        let Some(output) = &mut slot.output else { return };
        output.advance(n, spares);
        slot.count(n);
        let Some(output) = &mut slot.output else { return };
        slot.progress_ms = state.now_ms();
        if output.unsent() == 0
            && let Some(output) = slot.output.take()
        {
            spares.give_output(output);
        }
        self.sent(state, i);
    }

    /// After some of the output is sent: shuts down, where that was asked for, and wakes the tasks that waited for
    /// this.
    fn sent(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        let unsent = slot.unsent();
        let owes_end = slot.layer.as_ref().is_some_and(|layered| layered.owes_end());
        if unsent == 0 && slot.shut && !owes_end {
            // The connection may be gone already; then its receive says so.
            let _gone = sys::shutdown_write(slot.fd);
        }
        if unsent <= slot.wake_below {
            state.sched.notify(&mut slot.writer);
        }
    }

    /// Settles the silent sends of the turn.
    pub(super) fn settle_silent(&mut self, state: &LoopState) {
        let DriverBackend::Uring(uring) = &mut self.backend else { return };
        let (mut landed, fallen) = uring.landed();
        for SilentSend { index, bytes } in landed.drain(..) {
            let result = fallen.iter().find(|(fallen, _)| *fallen == index).map(|(_, result)| *result);
            self.settle(state, index, bytes, result);
        }
        if let DriverBackend::Uring(uring) = &mut self.backend {
            uring.keep(landed);
        }
    }

    /// `result`: of a send that failed or was short.
    fn settle(&mut self, state: &LoopState, i: u32, bytes: Vec<u8>, result: Option<i32>) {
        let (slot, _, spares) = self.sockets.parts(i);
        slot.ops.end(SocketOps::SEND);
        slot.flying = 0;
        slot.sending = SendState::Idle;
        let sent = match result {
            None => bytes.len(),
            Some(n) if n >= 0 => n as usize,
            Some(e) if e == -libc::EAGAIN || e == -libc::EINTR => 0,
            Some(e) => {
                spares.give(bytes);
                if slot.closing {
                    return self.release(state, i);
                }
                self.fail_send(state, i, SendError::Closed(-e));
                return self.reported(state, i);
            }
        };
        if slot.closing {
            spares.give(bytes);
            return self.release(state, i);
        }
        slot.count(sent as u64);
        slot.progress_ms = state.now_ms();
        if sent < bytes.len() {
            slot.output.get_or_insert_with(|| spares.take_output()).push_rest(bytes, sent);
        } else {
            spares.give(bytes);
        }
        self.sent(state, i);
        if self.sockets.slot(i).unsent() > 0 {
            self.start_send(state, i);
        }
        self.reported(state, i);
    }

    /// A task that waits to take a socket away is woken when the last operation on it has ended.
    pub(super) fn reported(&mut self, state: &LoopState, i: u32) {
        let slot = self.sockets.slot(i);
        if slot.detaching && slot.ops.is_empty() {
            state.sched.notify(&mut slot.writer);
        }
    }

    /// Whether a task waits for the end of a silent send, which will wake no task from a wait.
    pub(super) fn silent_is_awaited(&mut self) -> bool {
        let DriverBackend::Uring(uring) = &self.backend else { return false };
        let sockets = &mut self.sockets;
        uring.flying().any(|i| {
            let slot = sockets.slot(i);
            let waited_for = slot.closing || slot.detaching || slot.shut || slot.writer.is_some();
            waited_for || slot.output.is_some()
        })
    }

    /// The sending direction is broken: the queue is discarded and all waiting tasks are woken.
    pub(crate) fn fail_send(&mut self, state: &LoopState, i: u32, error: SendError) {
        let (slot, _, spares) = self.sockets.parts(i);
        slot.send_error = Some(error);
        if error.is_of_file() {
            // What was promised can't follow: the peer must not wait for it, nor who reads for what the peer has to say.
            // The connection may be gone already; then its receive says so.
            let _gone = net::shutdown(slot.fd);
        }
        slot.sending = SendState::Idle;
        if let Some(layered) = &mut slot.layer {
            layered.clear();
        }
        if let Some(mut output) = slot.output.take() {
            output.clear(spares);
            spares.give_output(output);
        }
        state.sched.notify(&mut slot.writer);
        state.sched.notify(&mut slot.watcher);
    }

    /// Shuts the sending direction down, once everything queued is sent.
    pub(crate) fn shutdown_write(&mut self, i: u32) -> Result<(), i32> {
        let slot = self.sockets.slot(i);
        slot.shut = true;
        if self.close_layer(i) {
            return Ok(());
        }
        let slot = self.sockets.slot(i);
        if slot.fd < 0 || slot.unsent() > 0 {
            return Ok(());
        }
        sys::shutdown_write(slot.fd)
    }
}

/// The file at the front could not be read.
fn failed(error: &io::Error) -> SendError {
    SendError::File(errno_of(error))
}

/// Whether sendfile(2) has failed because of the file: no socket has these errors.
fn is_of_file(errno: i32) -> bool {
    matches!(errno, libc::EIO | libc::ENXIO | libc::ESTALE | libc::EBADMSG | libc::EUCLEAN)
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn send_file(file: &Rc<FileHandle>, fd: i32, offset: u64, len: u64) -> Result<usize, i32> {
    file.sendfile(fd, offset, len as usize).map_err(|error| errno_of(&error))
}

/// Sends the gathered front of `output` without waiting or signal; before a file the kernel may hold a last short
/// packet back for what follows.
fn send_gathered(fd: RawFd, output: &mut OutputQueue, gathered: GatheredOutput) -> Result<usize, i32> {
    let more = if gathered.file_next { libc::MSG_MORE } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    sys::check(match output.single(gathered) {
        // SAFETY: a piece just gathered from a chunk that is alive and unchanged during the call.
        Some((start, len)) => unsafe {
            libc::syscall(libc::SYS_sendto, fd, start, len, flags, sys::NO_ADDRESS, 0usize) as isize
        },
        // SAFETY: the same, of several pieces.
        None => unsafe {
            let message = std::ptr::from_ref(output.message(gathered));
            libc::syscall(libc::SYS_sendmsg, fd, message, flags) as isize
        },
    })
}
