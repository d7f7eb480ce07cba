//! A connected socket.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::datagrams::{self, DatagramBatch};
use crate::driver::{ReceivedInput, WorkerIo};
use crate::layer::StreamLayer;
use crate::net::{self, SockAddr};
use crate::output::{OutputChunk, SendError};
use crate::recv_buf::RecvBuf;
use crate::runtime::{RuntimeCore, USUAL_RECEIVE, current};
use crate::socket::{SocketAccount, SocketSlot};
use crate::sys;
use crate::timeout::Timer;

/// What a receive came to.
#[derive(Debug)]
pub enum RecvOutcome {
    /// Some bytes, at least one.
    Data(RecvBuf),
    /// The peer has ended its direction. Sending goes on.
    Eof,
    /// The timer expired first; nothing is lost, and a later receive continues.
    TimedOut,
    /// The connection is broken (an errno).
    Err(i32),
}

/// How the peer has ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClosed {
    /// It ended its direction: it may still be reading.
    Eof,
    /// The connection is broken (an errno).
    Reset(i32),
}

/// The index of a stream whose slot has been given up.
const GONE: u32 = u32::MAX;

/// A connected socket of this worker: receiving into pooled buffers, sending from a queue of chunks.
///
/// Operations belong to the socket and not to the futures of these methods, all of which may be dropped at any time
/// without losing or cancelling anything. One task receives, one waits for output, one watches for the peer's
/// departure (they may be the same). Dropping the stream sends at once what can be sent at once, discards the rest
/// and closes.
pub struct Stream {
    core: Rc<RuntimeCore>,
    index: u32,
}

impl Stream {
    /// Connects a new socket. Dropping the future gives it up.
    ///
    /// # Errors
    /// The errno of socket(2) or connect(2).
    pub async fn connect(addr: &SockAddr) -> io::Result<Stream> {
        Stream::connect_with(net::stream_socket(addr)?, addr).await
    }

    /// Connects a socket of the caller's making (bound to a local address, with options set).
    ///
    /// # Errors
    /// The errno of connect(2).
    pub async fn connect_with(fd: OwnedFd, addr: &SockAddr) -> io::Result<Stream> {
        let stream = Stream::from_fd(fd)?;
        stream.work(|io| io.connect(stream.index, addr.to_raw()));
        let errno = poll_fn(|cx| {
            let state = stream.slot(|s| if s.connecting.is_none() { Some(s.recv_error) } else { None });
            state.map_or_else(|| stream.wait(cx, |s| &mut s.writer), Poll::Ready)
        })
        .await;
        if errno == 0 { Ok(stream) } else { Err(io::Error::from_raw_os_error(errno)) }
    }

    /// Takes over a connected socket and makes it non-blocking.
    ///
    /// # Errors
    /// The errno of ioctl(2) or epoll_ctl(2).
    pub fn from_fd(fd: OwnedFd) -> io::Result<Stream> {
        sys::set_nonblocking(fd.as_raw_fd())?;
        Stream::adopt(current(), fd)
    }

    /// As [`Stream::from_fd`], of a socket that another thread has accepted, and made non-blocking by it. It counts as
    /// accepted here.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn from_accepted(fd: OwnedFd) -> io::Result<Stream> {
        let core = current();
        core.state.stats.accepted.add(1);
        Stream::adopt(core, fd)
    }

    /// Takes over a connected, non-blocking socket.
    pub(crate) fn adopt(core: Rc<RuntimeCore>, fd: OwnedFd) -> io::Result<Stream> {
        let kernel = &core.state.kernel;
        let opened = kernel.measure(|| core.io.with(|io| io.open(&core.state.stats, fd)));
        let index = opened?;
        core.io.with(|io| kernel.connection(&mut io.sockets.slot(index).debt));
        Ok(Stream { core, index })
    }

    /// Takes over a non-blocking socket of datagrams, for [`Stream::poll_datagrams`]; others may have duplicates of it.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn of_datagrams(fd: OwnedFd) -> io::Result<Stream> {
        let stream = Stream::adopt(current(), fd)?;
        stream.core.io.with(|io| {
            io.expect_datagrams(stream.index);
            io.sockets.slot(stream.index).shared = true;
        });
        Ok(stream)
    }

    /// As [`Stream::of_datagrams`], of one's own socket that gets `addr` as its peer, which takes no time.
    ///
    /// # Errors
    /// The errno of connect(2) or epoll_ctl(2).
    pub fn connect_datagrams(fd: OwnedFd, addr: &SockAddr) -> io::Result<Stream> {
        net::connect_to(fd.as_raw_fd(), addr)?;
        let stream = Stream::adopt(current(), fd)?;
        stream.core.io.with(|io| io.expect_datagrams(stream.index));
        Ok(stream)
    }

    /// What `take` makes of the next datagrams of a socket of such, `most` of them at most. Registers the polling task when
    /// pending. An error (`ECONNREFUSED`: nothing is at the port that was sent to) is reported once, and does not end the
    /// socket. `take` receives nothing itself.
    pub fn poll_datagrams<R>(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        take: impl FnOnce(&DatagramBatch) -> R,
    ) -> Poll<io::Result<R>> {
        if !self.core.may_receive(USUAL_RECEIVE) {
            return rest(cx);
        }
        let received = datagrams::with_batch(|batch| {
            let received =
                self.core.io.with(|io| io.receive_datagrams(&self.core.state, self.index, batch, most));
            Some(received?.map(|_| take(batch)))
        });
        match received {
            Some(received) => Poll::Ready(received.map_err(io::Error::from_raw_os_error)),
            None => self.wait(cx, |s| &mut s.reader),
        }
    }

    /// The next bytes, the end of the stream, an error, or the expiry of `timer` (if armed), in this order.
    pub fn recv(&self, timer: Option<&Timer>) -> impl Future<Output = RecvOutcome> {
        poll_fn(move |cx| self.poll_recv(cx, timer))
    }

    /// [`Stream::recv`] for hand-written futures: registers the polling task when pending. A task whose peer sends faster than
    /// it reads has others run after some bytes.
    #[inline]
    pub fn poll_recv(&self, cx: &mut Context<'_>, timer: Option<&Timer>) -> Poll<RecvOutcome> {
        if !self.core.may_receive(USUAL_RECEIVE) {
            return rest(cx);
        }
        match self.try_recv() {
            Some(recv) => Poll::Ready(recv),
            None => self.poll_more(cx, timer),
        }
    }

    /// As [`Stream::poll_recv`], of up to `most` bytes at once ([`LONG_RECEIVE`](crate::LONG_RECEIVE) at most, 4 KB at least), for a caller that
    /// expects many and keeps or sends them on ([`RecvBuf::into_vec`]).
    pub fn poll_recv_long(
        &self,
        cx: &mut Context<'_>,
        timer: Option<&Timer>,
        most: usize,
    ) -> Poll<RecvOutcome> {
        if !self.core.may_receive(most) {
            return rest(cx);
        }
        match self.receive(|io| io.recv_long(&self.core.state, self.index, most)) {
            Some(recv) => Poll::Ready(recv),
            None => self.poll_more(cx, timer),
        }
    }

    /// After long receives ([`Stream::poll_recv_long`]): what follows is short, and is received by the driver's usual way.
    pub fn end_long(&self) {
        if self.slot(|s| s.long) {
            self.core.io.with(|io| io.end_long(self.index));
        }
    }

    /// Waits for bytes, if none are there.
    #[inline]
    fn poll_more(&self, cx: &mut Context<'_>, timer: Option<&Timer>) -> Poll<RecvOutcome> {
        if let Some(timer) = timer {
            if timer.expired() {
                return Poll::Ready(RecvOutcome::TimedOut);
            }
            timer.register(cx);
        }
        self.wait(cx, |s| &mut s.reader)
    }

    /// What can be had without waiting.
    #[inline]
    pub fn try_recv(&self) -> Option<RecvOutcome> {
        self.receive(|io| io.recv(&self.core.state, self.index))
    }

    /// As [`Stream::try_recv`], also of a connection that was not received from yet, for which it asks the system.
    /// `None` when it would have to wait.
    pub fn try_recv_first(&self) -> Option<RecvOutcome> {
        self.receive(|io| io.recv_first(&self.core.state, self.index))
    }

    #[inline]
    fn receive(&self, ask: impl FnOnce(&mut WorkerIo) -> Option<ReceivedInput>) -> Option<RecvOutcome> {
        let (input, start) = self.core.io.with(|io| {
            let input = ask(io)?;
            let start = if let ReceivedInput::Data(received) = &input {
                Some(io.sockets.pool.start(received.id))
            } else {
                None
            };
            Some((input, start))
        })?;
        Some(match (input, start) {
            (ReceivedInput::Data(received), Some(start)) => {
                RecvOutcome::Data(RecvBuf::new(Rc::clone(&self.core), received, start))
            }
            (ReceivedInput::Opened(bytes), _) => {
                RecvOutcome::Data(RecvBuf::opened(Rc::clone(&self.core), bytes))
            }
            (ReceivedInput::Error(e), _) => RecvOutcome::Err(e),
            (ReceivedInput::Eof | ReceivedInput::Data(_), _) => RecvOutcome::Eof,
        })
    }

    /// Appends to the output. It is sent at the next [`Stream::flush`] or, at the latest, when this task's poll ends.
    /// After a send error the chunk is dropped.
    #[inline]
    pub fn queue(&self, chunk: OutputChunk) {
        self.core.io.with(|io| io.queue(self.index, chunk));
    }

    /// Appends to the output and starts sending: [`Stream::queue`] and [`Stream::flush`] in one.
    #[inline]
    pub fn send(&self, bytes: Vec<u8>) {
        self.work(|io| io.send(&self.core.state, self.index, bytes));
    }

    /// Starts sending what is queued.
    #[inline]
    pub fn flush(&self) {
        self.work(|io| io.start_send(&self.core.state, self.index));
    }

    /// Bytes queued and not yet handed to the kernel.
    #[inline]
    pub fn unsent(&self) -> u64 {
        self.slot(|s| s.unsent())
    }

    /// Of the unsent bytes those that the peer may have to make room for: not what leaves with this turn's system call.
    #[inline]
    pub fn backlog(&self) -> u64 {
        self.slot(|s| s.unsent() - u64::from(s.flying))
    }

    /// How what was sent so far ended, without waiting: `Some(Ok(()))` when the kernel has it or takes it with this turn's
    /// system call, `None` when the peer may have to make room first ([`Stream::drained`] waits for that).
    pub fn handed_over(&self) -> Option<Result<(), SendError>> {
        self.slot(|s| match s.send_error {
            Some(error) => Some(Err(error)),
            None => (s.unsent() <= u64::from(s.flying)).then_some(Ok(())),
        })
    }

    /// Bytes of memory that the socket takes in this process, its layer and its own output among them; not the kernel's
    /// buffers of it.
    pub fn held_bytes(&self) -> usize {
        self.slot(|s| s.held_bytes())
    }

    /// Bytes handed to the kernel so far (nginx's `$bytes_sent` of the connection).
    pub fn sent(&self) -> u64 {
        self.slot(|s| s.sent)
    }

    /// What the kernel has done for this connection since this was asked last, in ticks, and what it will do to send
    /// what is queued and `composed` bytes more: estimated from what the loop's system calls take at present. What the
    /// kernel did while a request ran ([`sampler`](crate::sampler)) is not in it.
    #[inline]
    pub fn take_kernel(&self, composed: u64) -> u64 {
        let prices = self.core.state.kernel.prices();
        self.slot(|slot| slot.debt.pay(prices.ahead(slot.ahead(composed), slot.layer.is_some())))
    }

    /// What [`Stream::take_kernel`] would take, in ticks.
    pub fn due_kernel(&self, composed: u64) -> u64 {
        let prices = self.core.state.kernel.prices();
        self.slot(|slot| slot.debt.due(prices.ahead(slot.ahead(composed), slot.layer.is_some())))
    }

    /// What pays for this connection, for another one ([`Stream::charge_to`]).
    pub fn account(&self) -> SocketAccount {
        self.slot(|slot| slot.payer)
    }

    /// Has the client pay for what was done for this connection so far, if one is to ([`Stream::charge_to`]).
    #[inline]
    pub fn settle_kernel(&self) {
        self.core.io.with(|io| io.sockets.settle(self.index));
    }

    /// From here on `client` pays for what the kernel does for this connection, a server's that is asked on the client's
    /// behalf, and for what it did for nobody else: when that is told ([`Stream::settle_kernel`]) or the connection ends.
    /// Both are of this loop. `None`: nobody does, it is written here.
    #[inline]
    pub fn charge_to(&self, client: Option<SocketAccount>) {
        self.core.io.with(|io| io.sockets.set_payer(self.index, client));
    }

    /// Waits until at most `below` bytes are unsent, having started to send.
    ///
    /// `timer` (armed by the caller) limits the time between two successes of the kernel's taking bytes, as nginx's
    /// `send_timeout` does: progress pushes it out by the interval it was last armed with.
    ///
    /// # Errors
    /// Any [`SendError`]; the queue is then empty and the connection of no more use for sending, except after
    /// [`SendError::TimedOut`], which leaves all as it is.
    pub async fn drained(&self, below: u64, timer: Option<&Timer>) -> Result<(), SendError> {
        poll_fn(|cx| self.poll_drained(cx, below, timer)).await
    }

    /// [`Stream::drained`] for hand-written futures; `below` in bytes.
    ///
    /// # Errors
    /// As [`Stream::drained`].
    pub fn poll_drained(
        &self,
        cx: &mut Context<'_>,
        below: u64,
        timer: Option<&Timer>,
    ) -> Poll<Result<(), SendError>> {
        let (state, progress_ms) = self.work(|io| {
            io.start_send(&self.core.state, self.index);
            let slot = io.sockets.slot(self.index);
            slot.wake_below = below;
            let state = match slot.send_error {
                Some(error) => Some(Err(error)),
                None if slot.unsent() <= below => Some(Ok(())),
                None => None,
            };
            (state, slot.progress_ms)
        });
        if let Some(state) = state {
            return Poll::Ready(state);
        }
        if let Some(timer) = timer {
            if timer.expired() && !timer.extend(progress_ms) {
                return Poll::Ready(Err(SendError::TimedOut));
            }
            timer.register(cx);
        }
        self.wait(cx, |s| &mut s.writer)
    }

    /// An empty vector with some capacity, from those whose bytes have been sent.
    pub fn spare(&self) -> Vec<u8> {
        self.core.io.with(|io| io.sockets.spares.take())
    }

    /// Keeps the vector for the next caller that needs one ([`Stream::spare`]).
    pub fn give_spare(&self, vector: Vec<u8>) {
        self.core.io.with(|io| io.sockets.spares.give(vector));
    }

    /// Resolves when the peer has ended its direction or the connection is broken, though nothing reads: unread
    /// bytes stay queued, and no more of them than back-pressure allows are fetched.
    pub async fn closed(&self) -> PeerClosed {
        poll_fn(|cx| self.poll_closed(cx)).await
    }

    /// [`Stream::closed`] for hand-written futures.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<PeerClosed> {
        match self.error() {
            Some(errno) => return Poll::Ready(PeerClosed::Reset(errno)),
            None if self.is_eof() => return Poll::Ready(PeerClosed::Eof),
            None => (),
        }
        let pending = self.wait(cx, |s| &mut s.watcher);
        self.core.io.with(|io| io.watch(self.index));
        pending
    }

    /// Whether the peer has ended its direction (bytes before that may be unread).
    pub fn is_eof(&self) -> bool {
        self.slot(|s| s.eof || s.hangup)
    }

    /// Whether nothing has come that was not taken yet, neither here nor in the kernel: no byte, no end, no error. A system
    /// call.
    pub fn is_quiet(&self) -> bool {
        self.slot(|s| s.received.is_empty()) && net::is_silent(self.fd())
    }

    /// The errno that broke the connection, in either direction.
    pub fn error(&self) -> Option<i32> {
        self.slot(|s| match (s.recv_error, s.reset, s.send_error) {
            (0, 0, Some(SendError::Closed(e))) => Some(e),
            (0, 0, _) => None,
            (0, e, _) | (e, _, _) => Some(e),
        })
    }

    /// Why a file that was to be sent could not be, if that is so: it can't be read, or ended early.
    pub fn file_error(&self) -> Option<SendError> {
        self.slot(|s| s.send_error.filter(|error| error.is_of_file()))
    }

    /// Ends our direction once everything queued is sent; nothing may be queued after this.
    ///
    /// # Errors
    /// The errno of shutdown(2): `ENOTCONN` if the connection is gone.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.work(|io| io.shutdown_write(self.index)).map_err(io::Error::from_raw_os_error)
    }

    /// Ends the connection from here, whatever is under way: a reader gets its end, a writer an error.
    pub fn abort(&self) {
        // That it is gone already is what was wanted.
        let _gone = net::shutdown(self.fd());
    }

    /// Makes closing reset the connection and drop what is unsent (`reset_timedout_connection`).
    pub fn set_linger_reset(&self) {
        // Fails only for what is no socket, and then there is nothing to reset.
        let _unsupported = net::linger_reset(self.fd());
    }

    /// From here on bytes go through `layer` both ways. `early`: what it has opened already, which is received first.
    /// What was queued before goes out as it is, before everything else.
    pub fn set_layer(&self, layer: Box<dyn StreamLayer>, early: Vec<u8>) {
        self.core.io.with(|io| io.set_layer(self.index, layer, early));
    }

    /// Whether bytes go through a layer: such a stream can't leave its worker.
    pub fn has_layer(&self) -> bool {
        self.slot(|s| s.layer.is_some())
    }

    /// Takes the socket out of this worker, with the bytes received and not taken: for handing an idle connection
    /// over. Dropping the future closes it.
    ///
    /// # Errors
    /// `EBUSY` if something is unsent or the stream has a layer, `ENOTCONN` if the peer has left: the connection is closed then.
    pub async fn into_fd(mut self) -> io::Result<(OwnedFd, Vec<u8>)> {
        if self.unsent() > 0 || self.slot(|s| s.layer.is_some()) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        if self.is_eof() || self.error().is_some() {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        }
        let taken = poll_fn(|cx| match self.core.io.with(|io| io.detach(&self.core.state, self.index)) {
            Some(taken) => Poll::Ready(taken),
            None => self.wait(cx, |s| &mut s.writer),
        })
        .await;
        self.index = GONE;
        Ok(taken)
    }

    /// The descriptor, for options and addresses. It stays the stream's: not for reading, writing or closing.
    pub fn fd(&self) -> RawFd {
        self.slot(|s| s.fd)
    }

    /// What the driver does with it, which is measured where this turn is.
    #[inline(always)]
    fn work<R>(&self, f: impl FnOnce(&mut WorkerIo) -> R) -> R {
        self.core.state.kernel.measure(|| self.core.io.with(f))
    }

    #[inline]
    fn slot<R>(&self, f: impl FnOnce(&mut SocketSlot) -> R) -> R {
        self.core.io.with(|io| f(io.sockets.slot(self.index)))
    }

    /// Registers the polling task.
    #[inline]
    fn wait<T>(&self, cx: &Context<'_>, place: impl Fn(&mut SocketSlot) -> &mut Option<Waker>) -> Poll<T> {
        let index = self.index;
        self.core.register(cx, |io: &mut WorkerIo| place(io.sockets.slot(index)));
        Poll::Pending
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.index == GONE {
            return;
        }
        self.work(|io| io.close(&self.core.state, self.index));
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream(fd {})", self.fd())
    }
}

/// Has the polling task polled again after the others.
#[cold]
fn rest<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}
