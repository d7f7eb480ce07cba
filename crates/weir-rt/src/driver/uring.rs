//! io_uring: one ring per worker, one issuer, completions run only when we wait. What is put into the submission
//! queue goes out with the turn's one system call.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::net::RawAddr;
use crate::output::GatheredOutput;
use crate::socket::{ReceiveState, SocketOps, SocketSlot};

use super::{OperationKind, WaitLimit, tag, untag};
use crate::pool::bufring::{BufRing, GROUP};

/// Submissions that fit before a system call is needed in the middle of a turn.
const ENTRIES: u32 = 1024;
/// Completions the kernel can leave in one turn before it has to keep them aside.
const COMPLETIONS: u32 = 8 * ENTRIES;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// struct io_uring_getevents_arg.
#[repr(C)]
struct WaitArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

/// struct io_uring_rsrc_update.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// A completion, copied out of the queue.
#[derive(Clone, Copy)]
pub(crate) struct UringCompletion {
    pub(crate) data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

pub(crate) struct UringBackend {
    ring: IoUring,
    /// Index of the ring among this thread's registered rings: saves the kernel a lookup per call. The crate's own
    /// registration lives in a temporary and is silently not used by its later calls.
    registered: Option<u32>,
    inbox: RawFd,
    /// Completions taken and not yet handled.
    pub(crate) completions: Vec<UringCompletion>,
    /// Operations whose last completion has not come, silent sends apart.
    pub(crate) in_flight: u32,
    /// Silent sends in the submission queue, and those the kernel has just done.
    flying: Vec<SilentSend>,
    /// Slots of those that failed or were short, with the result.
    fallen: Vec<(u32, i32)>,
}

/// A send that says nothing when it succeeds; see [`UringBackend::send_silently`].
pub(crate) struct SilentSend {
    pub(crate) index: u32,
    pub(crate) bytes: Vec<u8>,
}

impl UringBackend {
    /// # Errors
    /// The errno of the kernel's refusal: `ENOSYS`, `EPERM` (a container forbids it), `EINVAL` (too old), `ENOMEM`.
    pub(crate) fn new(buffers: u16, inbox: RawFd) -> io::Result<(UringBackend, BufRing)> {
        let ring = build(ENTRIES, COMPLETIONS)?;
        let buffers = BufRing::register(&ring, buffers)?;
        let registered = register_ring(ring.as_raw_fd());
        let completions = Vec::with_capacity(ENTRIES as usize);
        let (flying, fallen) = (Vec::new(), Vec::new());
        let mut uring = UringBackend { ring, registered, inbox, completions, in_flight: 0, flying, fallen };
        uring.watch_inbox();
        Ok((uring, buffers))
    }

    pub(crate) fn watch_inbox(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.inbox), libc::POLLIN as u32).multi(true).build();
        self.start(poll.user_data(tag(OperationKind::Inbox, 0, 0)));
    }

    /// Has the kernel receive for the socket, or only look whether there is something, where that is the socket's way.
    pub(crate) fn arm(&mut self, slot: &mut SocketSlot, i: u32) {
        if slot.long { self.poll_readable(slot, i) } else { self.arm_recv(slot, i) }
    }

    fn arm_recv(&mut self, slot: &mut SocketSlot, i: u32) {
        let recv = opcode::RecvMulti::new(Fd(slot.fd), GROUP).build();
        slot.receiving = ReceiveState::Armed;
        self.start_on(slot, SocketOps::RECV, recv.user_data(tag(OperationKind::Recv, slot.generation, i)));
    }

    /// Multishot: each arrival is reported once.
    fn poll_readable(&mut self, slot: &mut SocketSlot, i: u32) {
        let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
        let poll = opcode::PollAdd::new(Fd(slot.fd), events).multi(true).build();
        (slot.receiving, slot.readable) = (ReceiveState::Polled, false);
        self.start_on(
            slot,
            SocketOps::RECV,
            poll.user_data(tag(OperationKind::Readable, slot.generation, i)),
        );
    }

    /// Ends a multishot receive; its completion still comes.
    pub(crate) fn pause(&mut self, slot: &mut SocketSlot, i: u32) {
        self.cancel(tag(OperationKind::Recv, slot.generation, i));
        slot.receiving = ReceiveState::Pausing;
    }

    /// Ends the poll of a socket that is received from by recv(2); its completion still comes.
    pub(crate) fn end_poll(&mut self, slot: &mut SocketSlot, i: u32) {
        self.cancel(tag(OperationKind::Readable, slot.generation, i));
        slot.receiving = ReceiveState::Pausing;
    }

    /// Sends the gathered front of the slot's output, which has departed: it stays where it is until the completion.
    pub(crate) fn send(&mut self, slot: &mut SocketSlot, i: u32, gathered: GatheredOutput) {
        let (fd, data) = (Fd(slot.fd), tag(OperationKind::Send, slot.generation, i));
        let Some(output) = &mut slot.output else { return };
        // Without MSG_WAITALL: a short send completes, which is the progress that send_timeout asks for.
        let entry = match output.single(gathered) {
            Some((start, len)) => opcode::Send::new(fd, start, len as u32).flags(libc::MSG_NOSIGNAL).build(),
            None => {
                let message = std::ptr::from_ref(output.message(gathered));
                opcode::SendMsg::new(fd, message).flags(libc::MSG_NOSIGNAL as u32).build()
            }
        };
        self.start_on(slot, SocketOps::SEND, entry.user_data(data));
    }

    /// Sends `bytes` when the queue is submitted, as far as the socket takes them then. The kernel does so within that
    /// call, so that afterwards the bytes are ours again: the send has succeeded and says nothing, which spares a
    /// completion and the turn that it would begin, or has left a result ([`UringBackend::landed`]).
    pub(crate) fn send_silently(&mut self, slot: &mut SocketSlot, index: u32, bytes: Vec<u8>) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
        let send = opcode::Send::new(Fd(slot.fd), bytes.as_ptr(), bytes.len() as u32).flags(flags).build();
        let data = tag(OperationKind::Fallen, slot.generation, index);
        slot.ops.start(SocketOps::SEND);
        slot.flying = bytes.len() as u32;
        // Before the push, which may submit: what the kernel reads is in the list from the beginning.
        self.flying.push(SilentSend { index, bytes });
        self.push(send.user_data(data).flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Slots with a silent send on its way.
    pub(crate) fn flying(&self) -> impl Iterator<Item = u32> {
        self.flying.iter().map(|flying| flying.index)
    }

    /// The silent sends that are done, and results of those among them that did not wholly succeed. Nothing while the
    /// kernel has not taken everything submitted, or holds completions back: then next time.
    pub(crate) fn landed(&mut self) -> (Vec<SilentSend>, Vec<(u32, i32)>) {
        let queue = self.ring.submission();
        if self.flying.is_empty() || !queue.is_empty() || queue.cq_overflow() {
            return Default::default();
        }
        (std::mem::take(&mut self.flying), std::mem::take(&mut self.fallen))
    }

    /// Gives the emptied list back, for its memory.
    pub(crate) fn keep(&mut self, list: Vec<SilentSend>) {
        if self.flying.is_empty() {
            self.flying = list;
        }
    }

    /// Nothing is left that the kernel may still work on.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.flying.is_empty()
    }

    /// The kernel has not completed in time: it keeps the memory it may still read.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.flying));
    }

    /// `addr` must stay where it is until the completion.
    pub(crate) fn connect(&mut self, slot: &mut SocketSlot, i: u32, addr: &RawAddr) {
        let connect = opcode::Connect::new(Fd(slot.fd), addr.as_ptr(), addr.len()).build();
        self.start_on(
            slot,
            SocketOps::CONNECT,
            connect.user_data(tag(OperationKind::Connect, slot.generation, i)),
        );
    }

    pub(crate) fn poll_writable(&mut self, slot: &mut SocketSlot, i: u32) {
        let poll = opcode::PollAdd::new(Fd(slot.fd), libc::POLLOUT as u32).build();
        self.start_on(
            slot,
            SocketOps::WRITABLE,
            poll.user_data(tag(OperationKind::Writable, slot.generation, i)),
        );
    }

    pub(crate) fn poll_hangup(&mut self, slot: &mut SocketSlot, i: u32) {
        let poll = opcode::PollAdd::new(Fd(slot.fd), libc::POLLRDHUP as u32).build();
        self.start_on(
            slot,
            SocketOps::HANGUP,
            poll.user_data(tag(OperationKind::Hangup, slot.generation, i)),
        );
    }

    /// Accepts one connection, or (`multi`) all that come.
    pub(crate) fn arm_accept(&mut self, fd: RawFd, data: u64, multi: bool) {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let entry = match multi {
            true => opcode::AcceptMulti::new(Fd(fd)).flags(flags).build(),
            false => {
                let (no_address, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
                opcode::Accept::new(Fd(fd), no_address, no_length).flags(flags).build()
            }
        };
        self.start(entry.user_data(data));
    }

    /// Ends one operation; its completion still comes.
    pub(crate) fn cancel(&mut self, data: u64) {
        self.push(opcode::AsyncCancel::new(data).build().flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Ends all operations on a descriptor.
    pub(crate) fn cancel_all(&mut self, fd: RawFd) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::fd(Fd(fd)).all()).build();
        self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Ends everything there is.
    pub(crate) fn cancel_any(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS));
    }

    fn start_on(&mut self, slot: &mut SocketSlot, op: u8, entry: squeue::Entry) {
        slot.ops.start(op);
        self.start(entry);
    }

    fn start(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        self.push(entry);
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: what the entry points to (sockets' boxed output and addresses) is owned by its slot until the
        // completion has come, descriptors are closed only after it.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // Full: out with it. Where the kernel wants its completions taken first, that is done too.
            if self.enter(0, 0, None).is_err() {
                self.reap();
            }
        }
    }

    /// Submits everything and waits for a completion, at most `wait`. Interruptions and time-outs are normal.
    pub(crate) fn submit_and_wait(&mut self, wait: WaitLimit) {
        // Taken in the middle of the turn, to make room: they must not wait for others.
        let wait = if self.completions.is_empty() { wait } else { Some(0) };
        // Nothing to do and nothing to wait for: no call.
        let idle = {
            let queue = self.ring.submission();
            wait == Some(0) && queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
        };
        if !idle {
            let result = match wait {
                Some(0) => self.enter(0, ENTER_GETEVENTS, None),
                None => self.enter(1, ENTER_GETEVENTS, None),
                Some(ms) => self.enter(1, ENTER_GETEVENTS, Some(ms)),
            };
            if let Err(e) = result {
                assert!(
                    matches!(e, libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM),
                    "io_uring_enter: {e}"
                );
            }
        }
        self.reap();
    }

    /// Takes all completions there are.
    fn reap(&mut self) {
        for c in self.ring.completion() {
            let (kind, _, index) = untag(c.user_data());
            if kind == OperationKind::Fallen {
                self.fallen.push((index, c.result()));
                continue;
            }
            if !cqueue::more(c.flags()) && c.user_data() != 0 {
                self.in_flight -= 1;
            }
            self.completions.push(UringCompletion {
                data: c.user_data(),
                result: c.result(),
                flags: c.flags(),
            });
        }
    }

    /// io_uring_enter(2) with these flags, and with those that the ring and the waiting need.
    fn enter(&mut self, want: u32, mut flags: u32, wait_ms: Option<u64>) -> Result<(), i32> {
        let submit = self.ring.submission().len() as u32;
        let fd = match self.registered {
            Some(index) => {
                flags |= ENTER_REGISTERED_RING;
                index as RawFd
            }
            None => self.ring.as_raw_fd(),
        };
        let time = wait_ms.map(|ms| [(ms / 1000) as i64, (ms % 1000 * 1_000_000) as i64]);
        let arg = time.as_ref().map(|t| WaitArg {
            sigmask: 0,
            sigmask_size: 8,
            min_wait_us: 0,
            timespec: t.as_ptr() as u64,
        });
        let (pointer, size) = match &arg {
            Some(arg) => {
                flags |= ENTER_EXT_ARG;
                (std::ptr::from_ref(arg), size_of::<WaitArg>())
            }
            None => (std::ptr::null(), 8),
        };
        // SAFETY: a ring of ours; the argument, where there is one, and its timespec live through the call.
        let n = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, submit, want, flags, pointer, size) };
        if n < 0 { Err(crate::sys::errno()) } else { Ok(()) }
    }
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        // A registered ring is kept alive by its thread: without this, its memory stays until the thread ends.
        if let Some(index) = self.registered {
            let mut update = RingUpdate { offset: index, reserved: 0, data: 0 };
            register(self.ring.as_raw_fd(), UNREGISTER_RING_FDS, &mut update);
        }
    }
}

/// A ring with what this driver relies on.
pub(super) fn build(entries: u32, completions: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    builder.setup_cqsize(completions).build(entries)
}

/// Registers the ring with its thread; without a place for it the plain descriptor does as well.
fn register_ring(fd: RawFd) -> Option<u32> {
    let mut update = RingUpdate { offset: u32::MAX, reserved: 0, data: fd as u64 };
    (register(fd, REGISTER_RING_FDS, &mut update) == 1).then_some(update.offset)
}

fn register(fd: RawFd, what: u32, update: &mut RingUpdate) -> i64 {
    // SAFETY: the struct that both operations take, one of it, valid for the call.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, what, std::ptr::from_mut(update), 1) }
}
