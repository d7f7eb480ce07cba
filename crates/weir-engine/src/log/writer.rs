//! The thread that writes all logs of the process.
//!
//! It sleeps until something is handed over, writes it at once, and then gathers for [`GATHER`]: while lines come
//! steadily, nothing has to wake it (a futex call each) and each of its writes carries what came in that time. What
//! waits is bounded per log, [`MOST_QUEUED`]; above it lines are lost and counted. A response that waits for its lines ends the
//! gathering, unless such responses come in floods.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_rt::RingPosition;
use weir_rt::clock::monotonic_ms;

use super::buffer::LineBuffer;
use super::file::{self, SharedLogFile};
use super::kept_lines::LinesInHand;
use super::{LogLevel, complain, line};
use crate::counters::WorkerCounters;

/// What the log thread does when everything is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterFlush {
    Nothing,
    /// Opens all logs again.
    Reopen,
}

/// Waits until everything handed over so far is in its file, buffered lines too; five seconds at most, so that a
/// log that is not read can't keep the process from ending.
pub fn flush() {
    WRITER.flush(AfterFlush::Nothing);
    file::drain(PATIENCE);
    super::remote::drain(PATIENCE);
}

/// Opens all logs again by their paths, once what was handed over is written (after they were renamed).
pub fn reopen() {
    if !WRITER.flush(AfterFlush::Reopen) {
        file::reopen_all().iter().for_each(|failed| super::cycle(LogLevel::Emerg, failed));
    }
}

/// Whether a thread writes (the default) or the thread that has lines. Without threads is for a process that forks: a
/// master has few lines to say. Turned on again in its child, where no line waits either.
pub fn threaded(on: bool) {
    THREADED.store(on, Relaxed);
    let mut queue = WRITER.lock();
    match (on, queue.thread) {
        (true, WriterThread::Refused) => queue.thread = WriterThread::None,
        (false, WriterThread::None) => queue.thread = WriterThread::Refused,
        _ => {}
    }
}

/// Whether threads may be started.
pub(super) fn is_threaded() -> bool {
    THREADED.load(Relaxed)
}

/// How many lines of this process could not be written.
pub fn lost() -> u64 {
    LOST.load(Relaxed)
}

/// Bytes of lines that wait to be written, of all logs.
pub fn queued() -> u64 {
    WRITER.lock().batches.iter().map(|batch| batch.bytes.len() as u64).sum()
}

/// Hands `bytes`, whole lines, over.
pub(super) fn push(file: &Arc<SharedLogFile>, bytes: Vec<u8>) {
    WRITER.push(&mut vec![LineBatch { file: file.clone(), bytes, kept: None }], None);
    mark_awaited();
}

/// Hands over all of `batches`, which gets empty vectors back; lines that were lost are counted in `counters`.
pub(super) fn push_all(batches: &mut Vec<LineBatch>, counters: &WorkerCounters) -> Vec<Vec<u8>> {
    WRITER.push(batches, Some(counters))
}

/// Responses of this thread wait from here on until all is written that it has handed over so far.
pub(super) fn mark_awaited() {
    AWAITED.set(LAST.get());
}

/// Whether responses of this thread are to wait: an awaited line is not in its file yet, and the log thread gets on.
#[inline]
pub(super) fn is_awaited() -> bool {
    let awaited = AWAITED.get();
    if awaited == 0 {
        return false;
    }
    let written = WRITTEN.load(Relaxed);
    if awaited <= written {
        AWAITED.set(0);
    }
    awaited > written && GIVEN_UP.get() != Some(written)
}

/// Responses of this thread wait no more until the log thread has got on: a disk that hangs has cost one its time.
pub(super) fn give_up() {
    GIVEN_UP.set(Some(WRITTEN.load(Relaxed)));
}

/// Whether everything unbuffered that this thread handed over is in its file.
pub(super) fn is_written() -> bool {
    LAST.get() <= WRITTEN.load(Relaxed)
}

/// Waits until everything unbuffered that this thread handed over is in its file. The log thread, should it gather, is
/// configured not to.
pub(super) async fn written() {
    let last = LAST.get();
    poll_fn(|cx| WRITER.poll_written(last, cx.waker())).await;
}

/// Counts lines that were lost without trouble to report: their log is closed.
pub(super) fn add_lost(lines: u64) {
    LOST.fetch_add(lines, Relaxed);
    WRITER.lock().unclaimed += lines;
}

/// Notes that `lines` could not be written to `file`.
pub(super) fn report(file: &SharedLogFile, error: &io::Error, lines: u64) {
    WRITER.lock().fail(file, error, lines);
}

/// Whole lines for a log.
pub(super) struct LineBatch {
    pub(super) file: Arc<SharedLogFile>,
    pub(super) bytes: Vec<u8>,
    /// How far its lines reach in the ring that keeps them.
    pub(super) kept: Option<RingPosition>,
}

static WRITER: LogWriter = LogWriter::new();
static LOST: AtomicU64 = AtomicU64::new(0);
/// As `threaded` set it.
static THREADED: AtomicBool = AtomicBool::new(true);
/// As `Queue::written`, readable without the lock.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread's last batch for an unbuffered log.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The number of this thread's last batch with lines of an error log; 0 once it is known to be written.
    static AWAITED: Cell<u64> = const { Cell::new(0) };
    /// How much was written when a response had waited for too long.
    static GIVEN_UP: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What the log thread and all other threads share.
pub(super) struct LogWriter {
    queue: Mutex<WriterQueue>,
    /// The thread waits here.
    work: Condvar,
    /// The caller that asked for a flush waits here.
    done: Condvar,
}

/// What is to be done.
pub(super) struct WriterQueue {
    batches: Vec<LineBatch>,
    /// Emptied vectors, for the thread that hands over next.
    spare: Vec<Vec<u8>>,
    thread: WriterThread,
    asleep: bool,
    /// How often a caller that waits may still end the gathering.
    interruptions: u32,
    /// Flushes asked for, and the last that is done.
    asked: u64,
    done: u64,
    reopen: bool,
    /// Batches handed over so far, and how many of them the thread is through with.
    pushed: u64,
    written: u64,
    /// The callers that wait for each batch.
    waiters: Vec<(u64, Waker)>,
    /// Lines lost that no worker has counted yet.
    unclaimed: u64,
    /// What is yet to be said, of each log.
    troubles: Vec<LogTrouble>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterThread {
    None,
    Runs,
    /// The system gave no thread: the thread that has lines writes them.
    Refused,
}

/// What went wrong and was not yet said.
pub(super) struct LogTrouble {
    pub(super) message: String,
    pub(super) level: LogLevel,
    pub(super) lines: u64,
    /// The log that lines were lost of.
    pub(super) target: super::LogTarget,
    /// It could not be said yet, and those who look into the server know it.
    pub(super) is_remembered: bool,
}

/// What the thread takes at a time.
struct WriterWork {
    batches: Vec<LineBatch>,
    /// The number of the last batch.
    pushed: u64,
    asked: u64,
    /// Buffers are written too.
    force: bool,
    reopen: bool,
}

impl LogWriter {
    pub(super) const fn new() -> LogWriter {
        let queue = WriterQueue {
            batches: Vec::new(),
            spare: Vec::new(),
            thread: WriterThread::None,
            asleep: false,
            interruptions: INTERRUPTIONS,
            asked: 0,
            done: 0,
            reopen: false,
            pushed: 0,
            written: 0,
            waiters: Vec::new(),
            unclaimed: 0,
            troubles: Vec::new(),
        };
        LogWriter { queue: Mutex::new(queue), work: Condvar::new(), done: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, WriterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&'static self, batches: &mut Vec<LineBatch>, counters: Option<&WorkerCounters>) -> Vec<Vec<u8>> {
        let mut queue = self.lock();
        self.start(&mut queue);
        if queue.thread == WriterThread::Refused {
            batches.drain(..).for_each(|batch| queue.write(&batch.file, &batch.bytes));
            return Vec::new();
        }
        let spare = queue.spare.len().saturating_sub(batches.len());
        let spare = queue.spare.split_off(spare);
        batches.drain(..).for_each(|batch| queue.push(batch));
        if let Some(counters) = counters {
            counters.log_lost.add(std::mem::take(&mut queue.unclaimed));
        }
        let wake = !queue.batches.is_empty() && std::mem::take(&mut queue.asleep);
        drop(queue);
        if wake {
            self.work.notify_one();
        }
        spare
    }

    /// `false` when there is no thread, and so nothing to wait for.
    fn flush(&self, after: AfterFlush) -> bool {
        let mut queue = self.lock();
        if queue.thread != WriterThread::Runs {
            return false;
        }
        queue.asked += 1;
        queue.reopen |= after == AfterFlush::Reopen;
        let mine = queue.asked;
        self.work.notify_one();
        let waited = self.done.wait_timeout_while(queue, PATIENCE, |queue| queue.done < mine);
        drop(waited);
        true
    }

    fn poll_written(&self, number: u64, waker: &Waker) -> Poll<()> {
        let mut queue = self.lock();
        if queue.written >= number || queue.waiters.len() >= WAITERS {
            return Poll::Ready(());
        }
        queue.waiters.push((number, waker.clone()));
        drop(queue);
        self.work.notify_one();
        Poll::Pending
    }

    fn start(&'static self, queue: &mut WriterQueue) {
        if queue.thread == WriterThread::None {
            let spawned = std::thread::Builder::new().name("weir log".to_owned()).spawn(|| self.run());
            queue.thread = if spawned.is_ok() { WriterThread::Runs } else { WriterThread::Refused };
        }
    }

    /// The thread.
    fn run(&self) {
        weir_rt::process::unbind();
        let mut held = HeldBuffers::default();
        let mut spoken = 0;
        loop {
            let wait = held.wait().min(self.lock().troubles.first().map_or(FOREVER, |_| EVERY));
            let work = self.take(wait);
            let busy = !work.batches.is_empty();
            let mut spare = Vec::new();
            let in_hand =
                LinesInHand::note(work.batches.iter().filter_map(|batch| {
                    Some((batch.kept?, batch.file.kept.number(), || batch.file.length()))
                }));
            self.write(work.batches, &mut held, &mut spare);
            in_hand.settle();
            held.flush(work.force, |file, bytes| self.write_out(file, bytes));
            if work.reopen {
                file::reopen_all().iter().for_each(|failed| super::cycle(LogLevel::Emerg, failed));
            }
            self.speak(&mut spoken, work.force, complain);
            self.finish(work.asked, work.pushed, spare);
            if busy {
                self.gather();
            }
        }
    }

    /// Waits for work, `ms` milliseconds at most.
    fn take(&self, ms: u64) -> WriterWork {
        let mut queue = self.lock();
        if queue.is_idle() {
            // Set at each look: the thread that woke it for nothing has taken the flag.
            let idle = |queue: &mut WriterQueue| {
                queue.asleep = queue.is_idle();
                queue.asleep
            };
            let waited = self.work.wait_timeout_while(queue, Duration::from_millis(ms), idle);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.asleep = false;
            queue.interruptions = INTERRUPTIONS;
        }
        let force = queue.asked > queue.done;
        let reopen = std::mem::take(&mut queue.reopen);
        let (pushed, asked) = (queue.pushed, queue.asked);
        WriterWork { batches: std::mem::take(&mut queue.batches), pushed, asked, force, reopen }
    }

    /// Writes batches, those of a log together; emptied vectors go to `spare`.
    fn write(&self, mut batches: Vec<LineBatch>, held: &mut HeldBuffers, spare: &mut Vec<Vec<u8>>) {
        // Stable: a log's batches stay in the order in which they were handed over.
        batches.sort_by_key(|batch| Arc::as_ptr(&batch.file) as usize);
        let mut batches = batches.into_iter().peekable();
        while let Some(LineBatch { file, mut bytes, .. }) = batches.next() {
            while let Some(next) = batches.next_if(|next| Arc::ptr_eq(&next.file, &file)) {
                bytes.extend_from_slice(&next.bytes);
            }
            match file.buffering {
                Some(how) => held.add(&file, &how, &bytes, |file, bytes| self.write_out(file, bytes)),
                None => self.write_out(&file, &bytes),
            }
            file.queued.fetch_sub(bytes.len(), Relaxed);
            bytes.clear();
            spare.push(bytes);
        }
    }

    /// Writes what is not held back any longer.
    fn write_out(&self, file: &SharedLogFile, bytes: &[u8]) {
        if let Err((error, lines)) = write(file, bytes) {
            self.lock().fail(file, &error, lines);
        }
    }

    /// Says what went wrong, once a second at most, or now. What `say` could not say is said later.
    pub(super) fn speak(&self, spoken: &mut u64, is_due: bool, say: impl Fn(&mut LogTrouble) -> bool) {
        let now = monotonic_ms();
        if !is_due && *spoken > 0 && now < *spoken + EVERY {
            return;
        }
        let troubles = std::mem::take(&mut self.lock().troubles);
        for mut trouble in troubles {
            *spoken = now;
            if !say(&mut trouble) {
                self.lock().add_trouble(trouble);
            }
        }
    }

    fn finish(&self, asked: u64, pushed: u64, spare: Vec<Vec<u8>>) {
        let mut queue = self.lock();
        let room = SPARE.saturating_sub(queue.spare.len());
        queue.spare.extend(spare.into_iter().filter(|bytes| bytes.capacity() <= SPARE_SIZE).take(room));
        queue.done = asked;
        queue.written = pushed;
        WRITTEN.store(pushed, Relaxed);
        queue.waiters.extract_if(.., |(number, _)| *number <= pushed).for_each(|(_, waker)| waker.wake());
        drop(queue);
        self.done.notify_all();
    }

    /// Lets lines come together; a flush ends it, and a caller that waits for a line.
    pub(super) fn gather(&self) {
        let queue = self.lock();
        let alone = |queue: &mut WriterQueue| queue.asked == queue.done && !queue.ends_gathering();
        let waited = self.work.wait_timeout_while(queue, GATHER, alone);
        let (mut queue, time) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.interruptions =
            if time.timed_out() { INTERRUPTIONS } else { queue.interruptions.saturating_sub(1) };
    }
}

impl WriterQueue {
    /// Whether a caller waits for its lines, and may end the gathering.
    fn ends_gathering(&self) -> bool {
        !self.waiters.is_empty() && self.interruptions > 0
    }

    fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.asked == self.done
    }

    /// Adds a batch, or loses it when its log lags too far.
    pub(super) fn push(&mut self, batch: LineBatch) {
        let queued = batch.file.queued.load(Relaxed);
        if queued > 0 && queued + batch.bytes.len() > MOST_QUEUED {
            let lines = batch.file.lines(&batch.bytes);
            let message = format!("log \"{}\" can't be written as fast as lines come", batch.file.target);
            return self.lose(&batch.file, LogLevel::Warn, message, lines);
        }
        batch.file.queued.fetch_add(batch.bytes.len(), Relaxed);
        self.pushed += 1;
        if batch.file.buffering.is_none() {
            LAST.set(self.pushed);
        }
        self.batches.push(batch);
    }

    /// Lines lost that no worker has counted.
    #[cfg(test)]
    pub(super) fn unclaimed(&self) -> u64 {
        self.unclaimed
    }

    /// How often a caller that waits may end the gathering yet.
    #[cfg(test)]
    pub(super) fn interruptions(&mut self) -> u32 {
        self.interruptions
    }

    /// A caller waits for lines.
    #[cfg(test)]
    pub(super) fn set_waiter(&mut self) {
        self.waiters.push((u64::MAX, Waker::noop().clone()));
    }

    /// For tests: a queue without a thread.
    #[cfg(test)]
    pub(super) fn with<R>(writer: &LogWriter, f: impl FnOnce(&mut WriterQueue) -> R) -> R {
        f(&mut writer.lock())
    }

    fn write(&mut self, file: &SharedLogFile, bytes: &[u8]) {
        if let Err((error, lines)) = write(file, bytes) {
            self.fail(file, &error, lines);
        }
    }

    pub(super) fn fail(&mut self, file: &SharedLogFile, error: &io::Error, lines: u64) {
        let sent = matches!(file.target, super::LogTarget::Syslog(_) | super::LogTarget::Remote(_));
        let call = if sent { "send()" } else { "write()" };
        let message = format!("{call} to \"{}\" failed ({})", file.target, line::io(error));
        self.lose(file, LogLevel::Alert, message, lines);
    }

    fn lose(&mut self, file: &SharedLogFile, level: LogLevel, message: String, lines: u64) {
        self.unclaimed += lines;
        LOST.fetch_add(lines, Relaxed);
        let target = file.target.clone();
        self.add_trouble(LogTrouble { message, level, lines, target, is_remembered: false });
    }

    /// Adds lines lost to those of the same log that were not reported yet.
    fn add_trouble(&mut self, mut trouble: LogTrouble) {
        if let Some(at) = self.troubles.iter().position(|one| one.target == trouble.target) {
            trouble.lines += self.troubles.swap_remove(at).lines;
        }
        self.troubles.push(trouble);
    }
}

/// Writes `bytes` as the log wants them; on failure the number of lines lost.
fn write(file: &SharedLogFile, bytes: &[u8]) -> Result<(), (io::Error, u64)> {
    let packed = match file.buffering.and_then(|how| how.gzip) {
        Some(level) => super::gzip::member(bytes, level),
        None => None,
    };
    match &packed {
        // A member that is not whole is lost as a whole.
        Some(packed) => file.write(packed).map_err(|failure| (failure.error, file.lines(bytes))),
        None => file.write(bytes).map_err(|failure| {
            let rest = bytes.get(failure.written..).unwrap_or_default();
            (failure.error, file.lines(rest))
        }),
    }
}

/// The buffers of logs that have `buffer=`.
#[derive(Default)]
struct HeldBuffers(Vec<(Arc<SharedLogFile>, LineBuffer)>);

impl HeldBuffers {
    fn add(
        &mut self,
        file: &Arc<SharedLogFile>,
        how: &super::LogBuffering,
        bytes: &[u8],
        write: impl Fn(&SharedLogFile, &[u8]),
    ) {
        let at = match self.0.iter().position(|(held, _)| Arc::ptr_eq(held, file)) {
            Some(at) => at,
            None => {
                self.0.push((file.clone(), LineBuffer::default()));
                self.0.len() - 1
            }
        };
        self.0[at].1.add(bytes, how, monotonic_ms(), |bytes| write(file, bytes));
    }

    /// Writes what is due, or everything, and what belongs to logs that nothing else refers to any more.
    fn flush(&mut self, all: bool, write: impl Fn(&SharedLogFile, &[u8])) {
        let now = monotonic_ms();
        self.0.retain_mut(|(file, buffer)| {
            if all || buffer.is_due(now) || Arc::strong_count(file) == 1 {
                buffer.flush(|bytes| write(file, bytes));
            }
            !buffer.is_empty()
        });
    }

    /// Milliseconds until something may be due; logs that are let go of are looked for once a second.
    fn wait(&self) -> u64 {
        let now = monotonic_ms();
        let due = self.0.iter().filter_map(|(_, buffer)| buffer.due()).min();
        let due = due.map_or(FOREVER, |due| due.saturating_sub(now));
        if self.0.is_empty() { FOREVER } else { due.min(EVERY) }
    }
}

/// How long the thread gathers after it has written. A line is in its file within this, and the time of a write,
/// after it was handed over.
const GATHER: Duration = Duration::from_millis(1);
/// How often callers that wait end the gathering before it takes its time: what comes in floods waits up to [`GATHER`].
pub(super) const INTERRUPTIONS: u32 = 8;
/// Bytes that may wait for one log.
pub(super) const MOST_QUEUED: usize = 8 << 20;
/// How long an end or a reopening waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// This many wait for lines at most: a disk that hangs does not gather them.
const WAITERS: usize = 1024;
/// Milliseconds between two complaints.
const EVERY: u64 = 1000;
/// Milliseconds to sleep when nothing is due.
const FOREVER: u64 = 3_600_000;
/// How many emptied vectors are kept for reuse, and up to which size in bytes.
const SPARE: usize = 32;
const SPARE_SIZE: usize = 256 << 10;
