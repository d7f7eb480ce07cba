//! Readiness of descriptors that are no sockets: pipes to other processes, and those processes themselves (pidfds).
//!
//! The drivers speak of sockets only, and such waits are few and long. One thread waits for all of them with epoll,
//! whatever the drivers of the workers are, and wakes the tasks; bytes are read and written by the tasks themselves.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use super::ChildProcess;
use crate::signal;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchInterest {
    /// Bytes, or the end.
    Read,
    /// Room for bytes, or no reader any more.
    Write,
}

/// A descriptor that does not block, and can be waited for. Its waits are woken by another thread.
#[derive(Debug)]
pub struct WatchedDescriptor {
    fd: OwnedFd,
    token: u64,
    slot: Arc<WatchSlot>,
}

#[derive(Debug, Default)]
struct WatchSlot(Mutex<WatchWakers>);

#[derive(Debug, Default)]
struct WatchWakers {
    ready: bool,
    armed: bool,
    waker: Option<Waker>,
}

impl WatchSlot {
    fn lock(&self) -> MutexGuard<'_, WatchWakers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedDescriptor {
    /// Takes the descriptor over, and makes it one that does not block.
    ///
    /// # Errors
    /// `EPERM` for a plain file; the errno of what the first one needs: epoll_create(2), a thread.
    pub fn new(fd: OwnedFd) -> io::Result<WatchedDescriptor> {
        set_nonblocking(fd.as_raw_fd())?;
        let slot = Arc::<WatchSlot>::default();
        let token = hub()?.add(fd.as_raw_fd(), WatchEntry::Wake(slot.clone()), 0)?;
        Ok(WatchedDescriptor { fd, token, slot })
    }

    /// Ready when the last look has found nothing and it may be worth another. One task waits at a time.
    pub fn poll_ready(&self, cx: &mut Context<'_>, interest: WatchInterest) -> Poll<io::Result<()>> {
        let mut wait = self.slot.lock();
        if std::mem::take(&mut wait.ready) {
            wait.waker = None;
            return Poll::Ready(Ok(()));
        }
        wait.waker = Some(cx.waker().clone());
        if !std::mem::replace(&mut wait.armed, true) {
            drop(wait);
            hub()?.arm(self.fd.as_raw_fd(), self.token, interest)?;
        }
        Poll::Pending
    }

    /// Reads what is there, `most` bytes of it, after `into`; 0: the end.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing; else the errno of read(2).
    pub fn read(&self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        into.reserve(most);
        let room = into.spare_capacity_mut();
        // SAFETY: as many bytes may be written there as the room has, and `most` are not more.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), room.as_mut_ptr().cast(), most) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has filled so many.
        unsafe { into.set_len(into.len() + n) };
        Ok(n)
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` without room, `BrokenPipe` without a reader; else the errno of write(2).
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the bytes are readable for the call.
        let n = unsafe { libc::write(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

impl AsFd for WatchedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for WatchedDescriptor {
    fn drop(&mut self) {
        if let Ok(hub) = hub() {
            hub.entries().remove(&self.token);
            // Closing it would do where no other process has it open. It can only fail if it is not listed.
            let _ = hub.control(libc::EPOLL_CTL_DEL, self.fd.as_raw_fd(), self.token, 0);
        }
    }
}

/// Reaps `child`, which is not waited for, when it has ended.
pub(crate) fn reap_later(child: ChildProcess) -> io::Result<()> {
    let fd = child.raw();
    // Armed from the beginning: when it ends at once, the thread closes the descriptor at once.
    hub()?.add(fd, WatchEntry::Reap(child), libc::EPOLLIN).map(drop)
}

enum WatchEntry {
    Wake(Arc<WatchSlot>),
    Reap(ChildProcess),
}

/// The thread's side.
struct WatchHub {
    epoll: OwnedFd,
    entries: Mutex<HashMap<u64, WatchEntry>>,
    next: AtomicU64,
}

/// The hub; started by the first caller.
fn hub() -> io::Result<&'static WatchHub> {
    static HUB: OnceLock<Result<WatchHub, i32>> = OnceLock::new();
    let hub = HUB.get_or_init(|| WatchHub::new().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)));
    let hub = hub.as_ref().map_err(|errno| io::Error::from_raw_os_error(*errno))?;
    static STARTED: OnceLock<Result<(), i32>> = OnceLock::new();
    let start = || {
        // A new thread starts with its creator's mask, so there is no moment in which a signal could hit it.
        let before = signal::block_all()?;
        let started = std::thread::Builder::new().name("weir pipes".into()).spawn(|| hub.run());
        before.restore();
        started.map(drop)
    };
    let started =
        STARTED.get_or_init(|| start().map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN)));
    started.map_err(io::Error::from_raw_os_error)?;
    Ok(hub)
}

impl WatchHub {
    fn new() -> io::Result<WatchHub> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(WatchHub { epoll, entries: Mutex::default(), next: AtomicU64::new(0) })
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, WatchEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a descriptor; of its `events` the first one is reported, further ones when it is armed.
    fn add(&self, fd: RawFd, entry: WatchEntry, events: i32) -> io::Result<u64> {
        let token = self.next.fetch_add(1, Relaxed);
        self.entries().insert(token, entry);
        let added = self.control(libc::EPOLL_CTL_ADD, fd, token, events);
        if added.is_err() {
            let entry = self.entries().remove(&token);
            drop(entry);
        }
        added.map(|()| token)
    }

    /// The next event of the descriptor is reported, once.
    fn arm(&self, fd: RawFd, token: u64, interest: WatchInterest) -> io::Result<()> {
        let events = match interest {
            WatchInterest::Read => libc::EPOLLIN,
            WatchInterest::Write => libc::EPOLLOUT,
        };
        self.control(libc::EPOLL_CTL_MOD, fd, token, events)
    }

    fn control(&self, operation: i32, fd: RawFd, token: u64, events: i32) -> io::Result<()> {
        // Without events of its own a descriptor would still report its end, again and again: one-shot keeps it silent.
        let events = (events | libc::EPOLLONESHOT) as u32;
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` is valid for the call.
        let done = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The life of the thread.
    fn run(&self) {
        super::unbind();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        loop {
            let fd = self.epoll.as_raw_fd();
            // SAFETY: room for as many events as are reported.
            let n = unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), events.len() as i32, -1) };
            for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
                self.happened(event.u64);
            }
        }
    }

    fn happened(&self, token: u64) {
        let ended = {
            let mut entries = self.entries();
            match entries.get(&token) {
                Some(WatchEntry::Wake(slot)) => {
                    let mut wait = slot.lock();
                    (wait.ready, wait.armed) = (true, false);
                    if let Some(waker) = wait.waker.take() {
                        waker.wake();
                    }
                    None
                }
                Some(WatchEntry::Reap(_)) => entries.remove(&token),
                None => None,
            }
        };
        if let Some(WatchEntry::Reap(child)) = ended {
            // It has ended, so this collects it.
            child.ended();
        }
    }
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    let set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 { -1 } else { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;

    use super::*;
    use crate::{DriverChoice, Runtime, RuntimeOptions};

    fn each_driver(test: impl Fn(&Runtime)) {
        for choice in [DriverChoice::Epoll, DriverChoice::Auto] {
            let options = RuntimeOptions { driver: choice, ..RuntimeOptions::default() };
            test(&Runtime::new(&options).expect("a runtime"));
        }
    }

    #[test]
    fn a_task_is_woken_by_bytes_and_by_the_end() {
        each_driver(|runtime| {
            let (reader, mut writer) = io::pipe().expect("descriptors");
            let reader = WatchedDescriptor::new(reader.into()).expect("a thread");
            let mut bytes = Vec::new();
            let nothing = reader.read(&mut bytes, 10).expect_err("nothing is there");
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            let writing = std::thread::spawn(move || {
                writer.write_all(b"hello").expect("a reader");
            });
            let mut read = || loop {
                match reader.read(&mut bytes, 10) {
                    Ok(n) => return n,
                    Err(_) => {
                        let ready =
                            runtime.block_on(poll_fn(|cx| reader.poll_ready(cx, WatchInterest::Read)));
                        ready.expect("armed");
                    }
                }
            };
            assert_eq!((read(), read()), (5, 0));
            assert_eq!(bytes, b"hello");
            writing.join().expect("it wrote");
        });
    }

    #[test]
    fn a_writer_without_a_reader_is_told() {
        each_driver(|runtime| {
            let (reader, writer) = io::pipe().expect("descriptors");
            let writer = WatchedDescriptor::new(writer.into()).expect("a thread");
            let full = loop {
                if let Err(error) = writer.write(&[0; 4096]) {
                    break error;
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            drop(reader);
            runtime.block_on(poll_fn(|cx| writer.poll_ready(cx, WatchInterest::Write))).expect("armed");
            assert_eq!(writer.write(b"x").expect_err("nobody reads").kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
