//! A worker's side of its logs: lines gather in its own buffers and are handed over once a turn of the loop, those of logs
//! that have buffers a few milliseconds later.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_rt::notify::{Notify, either};
use weir_rt::{HeldMemory, RingPosition, SharedRingWriter};

use super::LogLevel;
use super::file::LogFile;
use super::kept_lines;
use super::writer::{self, LineBatch};
use crate::counters::WorkerCounters;

/// The log lines of a worker that are not handed over yet. Composing a line takes no lock and no atomic operation;
/// handing over takes one lock for all lines of a turn.
#[derive(Default)]
pub struct WorkerLogs(Rc<WorkerLogsInner>);

#[derive(Default)]
struct WorkerLogsInner {
    /// One entry for each log that has lines.
    pending: RefCell<Vec<LineBatch>>,
    spare: RefCell<Vec<Vec<u8>>>,
    counters: OnceCell<Arc<WorkerCounters>>,
    /// Lines wait: wakes the task that hands them over.
    dirty: Notify,
    /// Where lines are kept until they are written.
    ring: RefCell<Option<SharedRingWriter>>,
    state: Cell<WorkerLogsState>,
    /// Lines of error logs without buffers are among those that are not handed over.
    errors: Cell<bool>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum WorkerLogsState {
    /// No line was logged yet.
    #[default]
    Fresh,
    /// The task runs.
    Runs,
    /// The loop has ended: lines are handed over at once.
    Ended,
}

impl WorkerLogs {
    /// Logs one line (or more) to `file`: `write` appends it, with its newline, to the vector it is given. `level`
    /// is syslog's severity, `None` for that of the log itself; `time` its time. Lines that are lost are counted in the
    /// worker's `counters`.
    ///
    /// # Panics
    /// When a worker's first line is logged outside of its runtime.
    pub fn write(
        &self,
        file: &LogFile,
        level: Option<LogLevel>,
        counters: &Arc<WorkerCounters>,
        time: impl FnOnce() -> [u8; 15],
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let inner = &self.0;
        // The vector is taken out, since what composes the line may log something itself.
        let mut out = inner.take(file);
        let start = file.begin(&mut out, level, time);
        write(&mut out);
        file.end(&mut out, start);
        let len = out.len();
        if inner.state.get() == WorkerLogsState::Fresh {
            *inner.ring.borrow_mut() = kept_lines::writer();
        }
        let kept = inner
            .ring
            .borrow_mut()
            .as_mut()
            .and_then(|ring| kept_lines::keep(ring, &file.0.kept, &out[start..]));
        inner.put(file, out, kept);
        if level.is_some() && file.0.buffering.is_none() {
            inner.errors.set(true);
        }
        match inner.state.get() {
            WorkerLogsState::Runs if len < HANDED_OVER => inner.dirty.notify(),
            WorkerLogsState::Fresh => {
                inner.counters.get_or_init(|| counters.clone());
                inner.state.set(WorkerLogsState::Runs);
                weir_rt::spawn(inner.clone().run());
                inner.dirty.notify();
            }
            WorkerLogsState::Runs | WorkerLogsState::Ended => inner.hand_over(),
        }
    }

    /// The buffers with lines, and the emptied ones.
    pub(crate) fn held(&self) -> HeldMemory {
        let (pending, spare) = (self.0.pending.borrow(), self.0.spare.borrow());
        let bytes = pending.iter().map(|batch| &batch.bytes).chain(&*spare).map(Vec::capacity);
        let lists = pending.capacity() * size_of::<LineBatch>() + spare.capacity() * size_of::<Vec<u8>>();
        HeldMemory::new(pending.len() + spare.len(), bytes.sum::<usize>() + lists)
    }

    /// Waits until the lines of unbuffered logs so far are in their files, [`PATIENCE`] at most: a client that reads
    /// the log when its connection has ended finds its request there, as with nginx, which writes first.
    pub async fn written(&self) {
        if self.0.pending.borrow().iter().any(|batch| batch.file.buffering.is_none()) {
            self.0.hand_over();
        }
        if !writer::is_written() {
            either(writer::written(), weir_rt::sleep(PATIENCE)).await;
        }
    }

    /// Whether lines of error logs that this worker has logged are not in their files yet. The response waits for them
    /// ([`WorkerLogs::errors_written`]): who reads the log after a response finds what was logged before it, as with nginx, which
    /// writes first.
    #[inline]
    pub(crate) fn has_errors_unwritten(&self) -> bool {
        self.0.errors.get() || writer::is_awaited()
    }

    /// Waits until the lines of error logs so far are in their files, [`PATIENCE`] at most. Where that was in vain, nothing waits
    /// again before the log thread has written something.
    pub(crate) async fn errors_written(&self) {
        if self.0.errors.get() {
            self.0.hand_over();
        }
        if writer::is_awaited() && either(writer::written(), weir_rt::sleep(PATIENCE)).await.is_none() {
            writer::give_up();
        }
    }

    /// Hands everything over and waits until it is written. Further lines are handed over one by one.
    pub fn flush_all(&self) {
        self.0.state.set(WorkerLogsState::Ended);
        self.0.hand_over();
        writer::flush();
        // What the last write lost is claimed by this worker too.
        self.0.hand_over();
    }
}

impl WorkerLogsInner {
    async fn run(self: Rc<Self>) {
        loop {
            self.dirty.notified().await;
            let until = weir_rt::now_ms() + GATHERED_MS;
            while self.is_patient() && weir_rt::now_ms() < until {
                let left = Duration::from_millis(until.saturating_sub(weir_rt::now_ms()));
                either(self.dirty.notified(), weir_rt::sleep(left)).await;
            }
            self.hand_over();
        }
    }

    /// Whether all that waits is of logs with buffers, whose lines are not due in their files yet.
    fn is_patient(&self) -> bool {
        self.pending.borrow().iter().all(|batch| batch.file.buffering.is_some())
    }

    fn take(&self, file: &LogFile) -> Vec<u8> {
        let mut pending = self.pending.borrow_mut();
        match pending.iter_mut().find(|batch| Arc::ptr_eq(&batch.file, &file.0)) {
            Some(batch) => std::mem::take(&mut batch.bytes),
            None => {
                pending.push(LineBatch { file: file.0.clone(), bytes: Vec::new(), kept: None });
                self.spare.borrow_mut().pop().unwrap_or_default()
            }
        }
    }

    fn put(&self, file: &LogFile, mut bytes: Vec<u8>, kept: Option<RingPosition>) {
        let mut pending = self.pending.borrow_mut();
        match pending.iter_mut().find(|batch| Arc::ptr_eq(&batch.file, &file.0)) {
            Some(batch) => {
                // Lines that were logged meanwhile.
                bytes.extend_from_slice(&batch.bytes);
                batch.bytes = bytes;
                batch.kept = kept.or(batch.kept);
            }
            None => pending.push(LineBatch { file: file.0.clone(), bytes, kept }),
        }
    }

    fn hand_over(&self) {
        let mut pending = self.pending.borrow_mut();
        if let Some(counters) = self.counters.get() {
            let spare = writer::push_all(&mut pending, counters);
            self.spare.borrow_mut().extend(spare);
            if self.errors.take() {
                writer::mark_awaited();
            }
        }
    }
}

/// Milliseconds for which lines of logs with buffers gather at their worker: handing over takes cache lines that all workers
/// write, which is then done 100 times a second and not with each turn of the loop.
const GATHERED_MS: u64 = 10;
/// With this many bytes of one log the turn's end is not waited for.
const HANDED_OVER: usize = 128 << 10;
/// How long a connection that ends waits for its line. A write takes microseconds and its thread's turn on a busy
/// machine milliseconds; a disk that hangs holds up this connection for so long, where nginx holds up all of them.
const PATIENCE: Duration = Duration::from_millis(100);
