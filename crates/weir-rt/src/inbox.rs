//! How other threads reach a worker: a list of messages and an eventfd that ends its wait.
//!
//! A producer writes the eventfd only if the worker has said that it is about to sleep, so a burst costs one
//! write and a busy worker costs none. The worker's side of that bargain, once per turn:
//!
//! ```text
//! if inbox.prepare_sleep() { wait (the eventfd among what is waited for) }   // else: messages, do not wait
//! inbox.awake();
//! for message in inbox.drain() { … }
//! ```
//!
//! The list is in a mutex held for one push or one swap (9 ns uncontended): foreign wakes are rare by design,
//! and unlike a lock-free list it allocates nothing per message.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// What another thread may ask of a worker.
pub(crate) enum InboxMessage {
    /// Run this on the worker's thread.
    Run(Box<dyn FnOnce() + Send>),
    /// Put this task on the run queue.
    Wake(u32),
    /// A piece of a file is in the page cache, or can't be.
    FileRead(FileRead),
}

/// What a pool thread has read ahead for a socket that sends a file.
pub(crate) struct FileRead {
    /// The socket's index, and which of those that have had it.
    pub(crate) socket: u32,
    pub(crate) generation: u32,
    /// Up to which byte of the file.
    pub(crate) resident_to: u64,
    /// Why it could not be read.
    pub(crate) errno: Option<i32>,
}

/// The mailbox of one worker: any thread pushes, its own thread drains.
pub(crate) struct Inbox {
    lists: Mutex<MessageLists>,
    /// Whether `lists.queue` may hold something, readable without the lock.
    pending: AtomicBool,
    /// The consumer is waiting, or about to: the next producer must write the eventfd.
    asleep: AtomicBool,
    event: OwnedFd,
}

#[derive(Default)]
struct MessageLists {
    queue: Vec<InboxMessage>,
    /// The emptied list of the batch before, kept for its capacity.
    spare: Vec<InboxMessage>,
    /// The worker has ended: nothing is taken any more.
    closed: bool,
}

/// Messages kept room for between bursts.
const SPARE: usize = 1024;

impl Inbox {
    /// # Errors
    /// The errno of eventfd(2): out of descriptors or memory.
    pub(crate) fn new() -> io::Result<Inbox> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Inbox {
            lists: Mutex::default(),
            pending: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            event,
        })
    }

    /// Has `run` called on the worker's thread, in order with the other messages of this producer.
    pub(crate) fn push(&self, run: Box<dyn FnOnce() + Send>) {
        self.send(InboxMessage::Run(run));
    }

    /// Wakes a task of the worker. Waking one that has ended, or whose index is used by another, is harmless.
    pub(crate) fn wake(&self, task: u32) {
        self.send(InboxMessage::Wake(task));
    }

    /// Has the worker send what was read for it.
    pub(crate) fn file_was_read(&self, read: FileRead) {
        self.send(InboxMessage::FileRead(read));
    }

    /// What has arrived. Does not touch the lock when nothing has.
    pub(crate) fn drain(&self) -> MessageBatch<'_> {
        let mut messages = Vec::new();
        if self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::AcqRel) {
            {
                let mut lists = self.lock();
                messages = std::mem::take(&mut lists.spare);
                std::mem::swap(&mut lists.queue, &mut messages);
            }
            messages.reverse();
        }
        MessageBatch { inbox: self, messages }
    }

    /// Announces that the consumer is going to wait. `false`: something has arrived, do not wait (and nothing is
    /// announced). After `true` the caller must wait with [`Inbox::fd`] among what ends the wait.
    pub(crate) fn prepare_sleep(&self) -> bool {
        // The producer stores `pending` and then looks at `asleep`; we store and look the other way round. In the
        // single order of SeqCst one of the two sees the other.
        self.asleep.store(true, Ordering::SeqCst);
        let arrived = self.pending.load(Ordering::SeqCst);
        if arrived {
            self.asleep.store(false, Ordering::SeqCst);
        }
        !arrived
    }

    /// The wait is over: producers need not write any more.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// The eventfd, written when a message came after [`Inbox::prepare_sleep`]; at times also without one. It is never
    /// read: both drivers wait for writes, not for its being readable (EPOLLET, a multishot poll).
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Takes nothing from now on: what is sent is dropped by the thread that sends it, which may expect that, and not
    /// by a thread that happens to be the last to know this inbox. What was sent before is to be drained after this.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    fn send(&self, message: InboxMessage) {
        let mut lists = self.lock();
        if lists.closed {
            // Not under the lock: dropping a closure may run anything, even a push to this inbox.
            drop(lists);
            return drop(message);
        }
        lists.queue.push(message);
        self.pending.store(true, Ordering::SeqCst);
        drop(lists);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.signal();
        }
    }

    fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, an eventfd owned by self. It fails only when the counter is full: after 2^64
        // writes.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    fn lock(&self) -> MutexGuard<'_, MessageLists> {
        // Nothing can panic half-way through a push or a swap, so a poisoned list is intact.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One drained burst, oldest first; gives its memory back to the inbox when dropped.
pub(crate) struct MessageBatch<'a> {
    inbox: &'a Inbox,
    /// The newest first.
    messages: Vec<InboxMessage>,
}

impl Iterator for MessageBatch<'_> {
    type Item = InboxMessage;

    fn next(&mut self) -> Option<InboxMessage> {
        self.messages.pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.messages.len(), Some(self.messages.len()))
    }
}

impl Drop for MessageBatch<'_> {
    fn drop(&mut self) {
        if self.messages.capacity() == 0 {
            return;
        }
        // Not under the lock: dropping a closure may run anything, even a push to this inbox.
        if !self.messages.is_empty() {
            self.messages.clear();
        }
        if self.messages.capacity() <= SPARE {
            self.inbox.lock().spare = std::mem::take(&mut self.messages);
        }
    }
}

/// Inboxes by worker slot, for wakers that carry nothing but the slot and the task.
static REGISTRY: RwLock<Vec<Option<Arc<Inbox>>>> = RwLock::new(Vec::new());

/// A place in the registry, free again when dropped. The slot is not the worker's number: two runtimes of one
/// process may both call themselves worker 0.
pub(crate) struct InboxRegistration {
    slot: u16,
}

impl InboxRegistration {
    /// The number [`wake_remote`] wants.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }
}

impl Drop for InboxRegistration {
    fn drop(&mut self) {
        let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
        let inbox = registry[usize::from(self.slot)].take();
        drop(registry);
        // The last reference may drop closures that wake another task: not under the lock.
        drop(inbox);
    }
}

/// Makes `inbox` reachable by [`wake_remote`].
///
/// # Errors
/// `EUSERS` if 65,536 runtimes are registered.
pub(crate) fn register(inbox: Arc<Inbox>) -> io::Result<InboxRegistration> {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let free = registry.iter().position(Option::is_none).unwrap_or(registry.len());
    let slot = u16::try_from(free).map_err(|_| io::Error::from_raw_os_error(libc::EUSERS))?;
    if free == registry.len() {
        registry.push(None);
    }
    registry[free] = Some(inbox);
    Ok(InboxRegistration { slot })
}

/// Wakes `task` of the worker in `slot` from any thread; nothing if that runtime is gone.
pub(crate) fn wake_remote(slot: u16, task: u32) {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some(inbox)) = registry.get(usize::from(slot)) {
        inbox.wake(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Whether the eventfd is written within `ms`, or has been since the last time.
    fn written(inbox: &Inbox, ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: inbox.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        let written = unsafe { libc::poll(&mut poll, 1, ms) == 1 };
        read_count(inbox);
        written
    }

    /// How often it was written since the last time.
    fn read_count(inbox: &Inbox) -> u64 {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes.
        unsafe { libc::read(inbox.fd(), count.as_mut_ptr().cast(), 8) };
        u64::from_ne_bytes(count)
    }

    fn wakes(inbox: &Inbox) -> Vec<u32> {
        let task = |m| match m {
            InboxMessage::Wake(task) => task,
            InboxMessage::Run(_) | InboxMessage::FileRead(_) => panic!("a wake was sent"),
        };
        inbox.drain().map(task).collect()
    }

    #[test]
    fn a_busy_consumer_costs_no_write_a_sleeping_one_a_single() {
        let inbox = Inbox::new().expect("eventfd");
        inbox.wake(1);
        assert!(!written(&inbox, 0));
        assert!(!inbox.prepare_sleep(), "something is there");
        assert_eq!(wakes(&inbox), [1]);
        assert!(inbox.prepare_sleep());
        assert!(!written(&inbox, 0));
        inbox.wake(2);
        inbox.wake(3);
        assert_eq!(read_count(&inbox), 1);
        inbox.awake();
        assert_eq!(wakes(&inbox), [2, 3]);
    }

    #[test]
    fn closures_run_on_the_consumers_thread_and_may_push() {
        let inbox = Arc::new(Inbox::new().expect("eventfd"));
        let (sender, receiver) = mpsc::channel();
        let (inner, from) = (inbox.clone(), inbox.clone());
        std::thread::spawn(move || {
            from.push(Box::new(move || {
                inner.wake(9);
                sender.send(std::thread::current().id()).expect("receiver lives");
            }));
        })
        .join()
        .expect("no panic");
        for message in inbox.drain() {
            if let InboxMessage::Run(run) = message {
                run();
            }
        }
        assert_eq!(receiver.recv(), Ok(std::thread::current().id()));
        assert_eq!(wakes(&inbox), [9]);
    }

    #[test]
    fn what_a_batch_leaves_is_dropped_outside_the_lock() {
        struct PushOnDrop(Arc<Inbox>);
        impl Drop for PushOnDrop {
            fn drop(&mut self) {
                self.0.wake(5);
            }
        }
        let inbox = Arc::new(Inbox::new().expect("eventfd"));
        let guard = PushOnDrop(inbox.clone());
        inbox.push(Box::new(move || drop(guard)));
        drop(inbox.drain());
        assert_eq!(wakes(&inbox), [5]);
    }

    #[test]
    fn nothing_is_lost_between_many_producers_and_a_sleeping_consumer() {
        const EACH: u32 = 20_000;
        let inbox = Arc::new(Inbox::new().expect("eventfd"));
        let producers: Vec<_> = (0..4u32)
            .map(|p| {
                let inbox = inbox.clone();
                std::thread::spawn(move || (0..EACH).for_each(|n| inbox.wake(p * EACH + n)))
            })
            .collect();
        let mut next: Vec<u32> = (0..4).map(|p| p * EACH).collect();
        let mut left = 4 * EACH;
        while left > 0 {
            if inbox.prepare_sleep() {
                assert!(written(&inbox, 20_000), "slept through a message, {left} missing");
            }
            inbox.awake();
            for task in wakes(&inbox) {
                let expected = &mut next[(task / EACH) as usize];
                assert_eq!(task, *expected, "order of one producer");
                *expected += 1;
                left -= 1;
            }
        }
        producers.into_iter().for_each(|p| p.join().expect("no panic"));
    }

    /// Whoever sends to a worker that has ended gets the closure back, dropped, at once and in its own thread.
    #[test]
    fn a_closed_inbox_drops_what_is_sent_in_the_senders_hands() {
        let inbox = Inbox::new().expect("eventfd");
        let held = Arc::new(());
        let (early, late) = (held.clone(), held.clone());
        inbox.push(Box::new(move || drop(early)));
        inbox.close();
        assert_eq!(Arc::strong_count(&held), 3, "what came before is to be drained");
        inbox.push(Box::new(move || drop(late)));
        assert_eq!(Arc::strong_count(&held), 2);
        assert_eq!(inbox.drain().count(), 1);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_slot_reaches_its_inbox_until_it_is_given_up() {
        let inbox = Arc::new(Inbox::new().expect("eventfd"));
        let other = Arc::new(Inbox::new().expect("eventfd"));
        let mine = register(inbox.clone()).expect("room");
        let theirs = register(other.clone()).expect("room");
        assert_ne!(mine.slot(), theirs.slot());
        let slot = mine.slot();
        std::thread::spawn(move || wake_remote(slot, 4)).join().expect("no panic");
        assert_eq!(wakes(&inbox), [4]);
        drop(mine);
        assert_eq!(Arc::strong_count(&inbox), 1);
        wake_remote(theirs.slot(), 6);
        wake_remote(u16::MAX, 1);
        assert_eq!((wakes(&inbox), wakes(&other)), (vec![], vec![6]));
    }
}
