//! The socket table. Operations belong to a socket's slot, not to the futures that wait for them: dropping a future
//! cancels nothing and loses nothing, and only dropping the [`crate::Stream`] ends the operations.
//!
//! A slot is reused only after the kernel's last word on every operation, so a completion always meets its socket.

use std::os::fd::RawFd;
use std::task::Waker;

use crate::held::HeldMemory;
use crate::kernel_work::KernelDebt;
use crate::layer::SocketLayer;
use crate::net::RawAddr;
use crate::output::SendError;
use crate::output::{OutputQueue, SpareVectors};
use crate::pool::{BufferPool, BufferQueue};

/// Buffers a socket may have queued while its task does not read; more, and its receive is cancelled.
pub(crate) const QUEUED_MAX: usize = 4;

/// Kernel operations in flight (io_uring), by bit.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SocketOps(u8);

impl SocketOps {
    pub(crate) const RECV: u8 = 1;
    pub(crate) const SEND: u8 = 2;
    pub(crate) const CONNECT: u8 = 4;
    /// Poll for writability.
    pub(crate) const WRITABLE: u8 = 8;
    /// Poll for the peer's departure.
    pub(crate) const HANGUP: u8 = 16;

    pub(crate) fn start(&mut self, op: u8) {
        debug_assert!(self.0 & op == 0, "one operation of a kind per socket");
        self.0 |= op;
    }

    pub(crate) fn end(&mut self, op: u8) {
        self.0 &= !op;
    }

    pub(crate) fn has(self, op: u8) -> bool {
        self.0 & op != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The multishot receive of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiveState {
    /// Not armed: the next `recv` that finds nothing arms it.
    Off,
    Armed,
    /// Being cancelled, because the task does not keep up, or wants more at a time.
    Pausing,
    /// None: a poll reports when there is something (see `driver/long.rs`).
    Polled,
    /// Ended for want of buffers; on the starved list.
    Starved,
}

/// Which side has the output queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendState {
    /// None: what is queued may be sent.
    Idle,
    /// The kernel reads the front of it.
    InFlight,
    /// Waits until the socket takes more.
    Blocked,
    /// A pool thread reads the file range at the front into the page cache.
    Faulting,
    /// Has had its share of this turn; on the list of those that continue.
    Yielded,
}

/// Where it is written what the kernel did for a socket: at a socket that is there, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccount {
    index: u32,
    generation: u32,
}

/// One connected (or connecting) socket.
pub(crate) struct SocketSlot {
    /// -1: the slot is free.
    pub(crate) fd: RawFd,
    /// Part of user_data, so that what comes late is distinguished.
    pub(crate) generation: u32,
    pub(crate) received: BufferQueue,
    pub(crate) ops: SocketOps,
    pub(crate) receiving: ReceiveState,
    pub(crate) sending: SendState,
    /// The peer's end of stream has been read.
    pub(crate) eof: bool,
    /// The peer's end of stream (or worse) has been seen, bytes before it may be unread.
    pub(crate) hangup: bool,
    /// With epoll, or [`ReceiveState::Polled`]: a receive may find something.
    pub(crate) readable: bool,
    /// It is received from by recv(2), long pieces at a time, and only polled for readiness.
    pub(crate) long: bool,
    /// Others may have descriptors of the same socket: epoll knows it by this one until that is taken away.
    pub(crate) shared: bool,
    /// On the list of those with more than [`QUEUED_MAX`] buffers.
    pub(crate) lagging: bool,
    /// On the list of those with unsent output.
    pub(crate) dirty: bool,
    /// The sending direction is to be shut down when everything is sent.
    pub(crate) shut: bool,
    /// To be taken away with its descriptor open; waits for the last completion.
    pub(crate) detaching: bool,
    /// Its `Stream` is gone; waits for the last completion.
    pub(crate) closing: bool,
    /// An errno that ends receiving, 0 for none.
    pub(crate) recv_error: i32,
    /// An errno seen beside the stream of bytes (SO_ERROR), 0 for none.
    pub(crate) reset: i32,
    pub(crate) send_error: Option<SendError>,
    /// The writer is woken when no more than this is unsent.
    pub(crate) wake_below: u64,
    /// Bytes handed to the kernel; of a socket with a layer, the user's bytes that were sealed.
    pub(crate) sent: u64,
    /// When the kernel last took some, in the loop's milliseconds.
    pub(crate) progress_ms: u64,
    /// Bytes of a silent send on its way: those before `output`.
    pub(crate) flying: u32,
    pub(crate) output: Option<Box<OutputQueue>>,
    /// What its bytes go through on their way to the user and from there (TLS).
    pub(crate) layer: Option<Box<SocketLayer>>,
    /// What the kernel has done for it and no request has paid.
    pub(crate) debt: KernelDebt,
    /// The socket that pays: the client's for one to an upstream server, else itself.
    pub(crate) payer: SocketAccount,
    /// Boxed: the kernel reads it when the operation is submitted.
    pub(crate) connecting: Option<Box<RawAddr>>,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) watcher: Option<Waker>,
}

impl SocketSlot {
    fn new(fd: RawFd, index: u32, generation: u32) -> SocketSlot {
        SocketSlot {
            fd,
            generation,
            received: BufferQueue::new(),
            ops: SocketOps::default(),
            receiving: ReceiveState::Off,
            sending: SendState::Idle,
            eof: false,
            hangup: false,
            readable: true,
            long: false,
            shared: false,
            lagging: false,
            dirty: false,
            shut: false,
            detaching: false,
            closing: false,
            recv_error: 0,
            reset: 0,
            send_error: None,
            wake_below: 0,
            sent: 0,
            progress_ms: 0,
            flying: 0,
            output: None,
            layer: None,
            debt: KernelDebt::default(),
            payer: SocketAccount { index, generation },
            connecting: None,
            reader: None,
            writer: None,
            watcher: None,
        }
    }

    /// Bytes of memory that the socket takes, this slot among them. Received buffers are the pool's.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<SocketSlot>()
            + self.output.as_ref().map_or(0, |output| output.held_bytes())
            + self.layer.as_ref().map_or(0, |layer| layer.held_bytes())
            + self.connecting.as_ref().map_or(0, |address| size_of_val(&**address))
    }

    /// Bytes that are queued, and `composed` more: what no send has begun with.
    #[inline]
    pub(crate) fn ahead(&self, composed: u64) -> u64 {
        composed + if self.sending == SendState::InFlight { 0 } else { self.unsent() }
    }

    #[inline]
    pub(crate) fn unsent(&self) -> u64 {
        let unsealed = self.layer.as_ref().map_or(0, |layered| layered.unsealed);
        u64::from(self.flying) + self.output.as_ref().map_or(0, |o| o.unsent()) + unsealed
    }
}

// An idle keep-alive connection costs a slot, a timer (24 bytes and a waker) and its task.
const _: () = assert!(size_of::<SocketSlot>() <= 192);

/// Generations live in 28 bits of user_data.
const GENERATION_MASK: u32 = (1 << 28) - 1;

/// All sockets of a worker, with what they share.
pub(crate) struct SocketTable {
    slots: Vec<SocketSlot>,
    free: Vec<u32>,
    pub(crate) pool: BufferPool,
    pub(crate) spares: SpareVectors,
    /// Sockets with queued output that is not being sent yet.
    pub(crate) dirty: Vec<u32>,
    /// Sockets whose receive ended for want of buffers.
    pub(crate) starved: Vec<u32>,
    /// Sockets whose queue is full.
    pub(crate) lagging: Vec<u32>,
    /// Sockets that continue to send in the next turn.
    pub(crate) yielded: Vec<u32>,
    /// A descriptor was closed since listeners out of descriptors last looked.
    pub(crate) closed_one: bool,
}

impl SocketTable {
    pub(crate) fn new(pool: BufferPool) -> SocketTable {
        SocketTable {
            slots: Vec::new(),
            free: Vec::new(),
            pool,
            spares: SpareVectors::default(),
            dirty: Vec::new(),
            starved: Vec::new(),
            lagging: Vec::new(),
            yielded: Vec::new(),
            closed_one: false,
        }
    }

    /// The slots that no socket has now.
    pub(crate) fn unused(&self) -> HeldMemory {
        let used = self.slots.len() - self.free.len();
        let bytes = (self.slots.capacity() - used) * size_of::<SocketSlot>();
        HeldMemory::new(self.slots.capacity() - used, bytes + self.free.capacity() * size_of::<u32>())
    }

    /// Puts a descriptor into a slot, which owns it from now on.
    pub(crate) fn add(&mut self, fd: RawFd) -> u32 {
        match self.free.pop() {
            Some(i) => {
                let slot = &mut self.slots[i as usize];
                *slot = SocketSlot::new(fd, i, slot.generation.wrapping_add(1) & GENERATION_MASK);
                i
            }
            None => {
                let i = self.slots.len() as u32;
                self.slots.push(SocketSlot::new(fd, i, 0));
                i
            }
        }
    }

    /// Takes the descriptor out of a slot and frees it.
    pub(crate) fn remove(&mut self, i: u32) -> RawFd {
        let slot = &mut self.slots[i as usize];
        let fd = std::mem::replace(&mut slot.fd, -1);
        self.pool.clear(&mut slot.received);
        slot.connecting = None;
        slot.layer = None;
        // For a stream that outlives its runtime; any other is gone by now.
        (slot.eof, slot.recv_error) = (false, libc::EBADF);
        slot.send_error = Some(SendError::Closed(libc::EBADF));
        if let Some(mut output) = slot.output.take() {
            output.clear(&mut self.spares);
            self.spares.give_output(output);
        }
        self.free.push(i);
        fd
    }

    #[inline]
    pub(crate) fn slot(&mut self, i: u32) -> &mut SocketSlot {
        &mut self.slots[i as usize]
    }

    /// The slot with the buffers and spares, for callers that need both.
    #[inline]
    pub(crate) fn parts(&mut self, i: u32) -> (&mut SocketSlot, &mut BufferPool, &mut SpareVectors) {
        (&mut self.slots[i as usize], &mut self.pool, &mut self.spares)
    }

    /// From here on socket `i` is paid for by `payer`; what it owes is the former one's, or this one's if it was its own.
    pub(crate) fn set_payer(&mut self, i: u32, payer: Option<SocketAccount>) {
        let slot = &mut self.slots[i as usize];
        let own = SocketAccount { index: i, generation: slot.generation };
        let former = std::mem::replace(&mut slot.payer, payer.unwrap_or(own));
        let debtor = if former == own { slot.payer } else { former };
        if debtor != own {
            let owed = std::mem::take(&mut slot.debt);
            self.pay(debtor, owed);
        }
    }

    /// No request uses socket `i` any more: what it owes goes to who pays for it.
    #[inline]
    pub(crate) fn settle(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        if slot.payer.index != i {
            let owed = std::mem::take(&mut slot.debt);
            let payer = slot.payer;
            self.pay(payer, owed);
        }
    }

    /// A client that is gone pays nothing.
    fn pay(&mut self, payer: SocketAccount, owed: KernelDebt) {
        if let Some(slot) = self.slots.get_mut(payer.index as usize)
            && slot.generation == payer.generation
        {
            slot.debt.merge(owed);
        }
    }

    /// The slot of an event, unless it is of an earlier owner.
    #[inline]
    pub(crate) fn current(&mut self, i: u32, generation: u32) -> Option<&mut SocketSlot> {
        self.slots.get_mut(i as usize).filter(|s| s.fd >= 0 && s.generation == generation)
    }

    /// Indices of the slots in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        let used: Vec<u32> =
            (0..self.slots.len() as u32).filter(|&i| self.slots[i as usize].fd >= 0).collect();
        used.into_iter()
    }
}
