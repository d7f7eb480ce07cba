//! The loop that sends what waits for servers of logs: one thread, one task a log.
//!
//! After a failure a task tries again, first soon and then ever more rarely; a line that was sent in part is sent again
//! whole. It has a loop of its own, since a log outlives workers, and serves processes that have none.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use weir_rt::net::{SockAddr, has_ended};
use weir_rt::notify::{Notify, either};
use weir_rt::{DriverChoice, Runtime, RuntimeOptions, SendError, Stream};

use super::super::{LogLevel, cycle, line, writer};
use super::{BATCH, LogSender, PATIENCE, RetryPauses, datagram, lines, whole_lines};

/// Starts the task of a log, and the thread if it is the first.
///
/// # Errors
/// Out of threads, memory or descriptors.
pub(super) fn start(sender: &Arc<LogSender>) -> io::Result<()> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let remote = match &*thread {
        Some(remote) => remote.clone(),
        None => thread.insert(start_thread()?).clone(),
    };
    let sender = sender.clone();
    remote.run(Box::new(move || {
        let wake = Rc::<Notify>::default();
        WAKES.with_borrow_mut(|wakes| wakes.insert(id(&sender), wake.clone()));
        weir_rt::spawn(async move {
            run(&sender, &wake).await;
            WAKES.with_borrow_mut(|wakes| wakes.remove(&id(&sender)));
        });
    }));
    Ok(())
}

/// Has the task of a log look what there is to do.
pub(super) fn wake(sender: &Arc<LogSender>) {
    let id = id(sender);
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(remote) = &*thread {
        remote.run(Box::new(move || {
            if let Some(wake) = WAKES.with_borrow(|wakes| wakes.get(&id).cloned()) {
                wake.notify();
            }
        }));
    }
}

/// A task holds its sender, so that no other gets its address while it runs.
fn id(sender: &Arc<LogSender>) -> usize {
    Arc::as_ptr(sender) as usize
}

fn start_thread() -> io::Result<weir_rt::RuntimeHandle> {
    let (reported, hear) = mpsc::channel();
    let name = "weir log sockets".to_owned();
    let options =
        RuntimeOptions { driver: DriverChoice::Epoll, buffers: BUFFERS, name, ..RuntimeOptions::default() };
    let run = move || {
        weir_rt::process::unbind();
        match Runtime::new(&options) {
            Err(error) => drop(reported.send(Err(error))),
            Ok(runtime) => {
                // The caller that started it waits.
                drop(reported.send(Ok(runtime.remote())));
                runtime.block_on(std::future::pending::<()>());
            }
        }
    };
    std::thread::Builder::new().name("weir log sockets".to_owned()).spawn(run)?;
    hear.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// The task of a log.
async fn run(sender: &LogSender, wake: &Notify) {
    let RetryPauses { shortest, longest } = sender.pauses;
    let (mut link, mut pause) = (None, shortest);
    while let Some(batch) = next(sender, wake, &mut link).await {
        let mut rest = &batch[..];
        while !rest.is_empty() {
            match attempt(sender, &mut link, rest).await {
                Ok(()) => {
                    sender.reached();
                    pause = shortest;
                    rest = &[];
                }
                Err((error, sent)) => {
                    rest = &rest[whole_lines(rest, sent)..];
                    link = None;
                    sender.failed(&error);
                    if paused(sender, wake, pause).await.is_none() {
                        return writer::add_lost(lines(rest) + sender.give_up());
                    }
                    pause = (pause * 2).min(longest);
                }
            }
        }
        sender.lock().bytes -= batch.len();
        sender.changed.notify_all();
    }
}

/// Lines to send at once; `None`: the log is closed. A server that closes its connection meanwhile is let go.
async fn next(sender: &LogSender, wake: &Notify, link: &mut Option<SenderLink>) -> Option<Vec<u8>> {
    loop {
        match sender.take() {
            TakenLines::Lines(batch) => return Some(batch),
            TakenLines::Closed => return None,
            TakenLines::Nothing => {}
        }
        let closed = match link {
            Some(SenderLink::Stream(stream)) => {
                let ended = async {
                    stream.closed().await;
                };
                either(wake.notified(), ended).await
            }
            _ => {
                wake.notified().await;
                continue;
            }
        };
        if closed.is_none() {
            *link = None;
        }
    }
}

/// Waits before the next attempt; `None`: the log is closed.
async fn paused(sender: &LogSender, wake: &Notify, pause: Duration) -> Option<()> {
    let closed = async {
        while !sender.lock().closed {
            wake.notified().await;
        }
    };
    either(weir_rt::sleep(pause), closed).await
}

/// A connection to a server.
enum SenderLink {
    Stream(Stream),
    Datagrams(UdpSocket),
}

/// Sends all of `bytes`; else how many were sent.
async fn attempt(
    sender: &LogSender,
    link: &mut Option<SenderLink>,
    bytes: &[u8],
) -> Result<(), (io::Error, usize)> {
    // The loop may not have heard of it yet, and the kernel takes a first write without complaint.
    if let Some(SenderLink::Stream(stream)) = link
        && (stream.is_eof() || stream.error().is_some() || has_ended(stream.fd()))
    {
        *link = None;
    }
    let link = match link {
        Some(link) => link,
        None => link.insert(connect(sender).await.map_err(|error| (error, 0))?),
    };
    match link {
        SenderLink::Stream(stream) => stream_all(stream, bytes).await,
        SenderLink::Datagrams(socket) => datagrams(socket, bytes).await,
    }
}

async fn connect(sender: &LogSender) -> io::Result<SenderLink> {
    let server = &sender.remote.server;
    if sender.remote.udp {
        let server: SocketAddr = match server {
            SockAddr::V4(server) => (*server).into(),
            SockAddr::V6(server) => (*server).into(),
            SockAddr::Unix(_) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let socket = UdpSocket::bind((if server.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        return Ok(SenderLink::Datagrams(socket));
    }
    match either(Stream::connect(server), weir_rt::sleep(PATIENCE)).await {
        Some(connected) => connected.map(SenderLink::Stream),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn stream_all(stream: &Stream, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let before = stream.sent();
    stream.send(bytes.to_vec());
    let mut sent = before;
    loop {
        let error = match either(stream.drained(0, None), weir_rt::sleep(PATIENCE)).await {
            Some(Ok(())) => return Ok(()),
            Some(Err(SendError::Closed(errno) | SendError::File(errno))) => {
                io::Error::from_raw_os_error(errno)
            }
            Some(Err(SendError::Truncated | SendError::TimedOut)) => io::ErrorKind::WriteZero.into(),
            // Slow is not gone.
            None if stream.sent() > sent => {
                sent = stream.sent();
                continue;
            }
            None => io::ErrorKind::TimedOut.into(),
        };
        return Err((error, (stream.sent() - before) as usize));
    }
}

async fn datagrams(socket: &UdpSocket, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut sent = 0;
    while sent < bytes.len() {
        let datagram = datagram(&bytes[sent..]);
        match socket.send(datagram) {
            Ok(_) => sent += datagram.len(),
            // The interface's queue is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => weir_rt::sleep(BREATH).await,
            Err(error) => return Err((error, sent)),
        }
    }
    Ok(())
}

/// What there is to do for a log.
enum TakenLines {
    Lines(Vec<u8>),
    Nothing,
    /// Nothing, and there will be nothing.
    Closed,
}

impl LogSender {
    fn take(&self) -> TakenLines {
        let mut state = self.lock();
        let Some(mut batch) = state.queue.pop_front() else {
            state.reported = false;
            return if state.closed { TakenLines::Closed } else { TakenLines::Nothing };
        };
        while let Some(next) = state.queue.pop_front_if(|next| batch.len() + next.len() <= BATCH) {
            batch.extend_from_slice(&next);
        }
        TakenLines::Lines(batch)
    }

    /// Says that the server is there again, if it was not.
    fn reached(&self) {
        let mut state = self.lock();
        state.failures = 0;
        if std::mem::take(&mut state.down) {
            let lost = std::mem::take(&mut state.lost);
            drop(state);
            let message = format_args!("log \"{}\" can be sent again, {lost} lines were lost", self.remote);
            cycle(if lost > 0 { LogLevel::Error } else { LogLevel::Notice }, &message);
        }
    }

    /// Says once that the server can't be reached.
    fn failed(&self, error: &io::Error) {
        let mut state = self.lock();
        state.failures += 1;
        let first = !std::mem::replace(&mut state.down, true);
        drop(state);
        self.changed.notify_all();
        if first {
            let error = line::io(error);
            cycle(
                LogLevel::Error,
                &format_args!("sending to log \"{}\" failed ({error}), lines wait", self.remote),
            );
        }
    }

    /// The log is closed and its server can't be reached: how many lines that costs.
    fn give_up(&self) -> u64 {
        let queue = std::mem::take(&mut self.lock().queue);
        queue.iter().map(|bytes| lines(bytes)).sum()
    }
}

thread_local! {
    /// The tasks of this thread's logs.
    static WAKES: RefCell<HashMap<usize, Rc<Notify>>> = RefCell::default();
}

/// The thread, once there is a log that needs it; it stays.
static THREAD: Mutex<Option<weir_rt::RuntimeHandle>> = Mutex::new(None);
/// Receive buffers of the thread, which nothing is sent to.
const BUFFERS: u16 = 8;
/// How long a full queue of datagrams is left alone.
const BREATH: Duration = Duration::from_millis(1);
