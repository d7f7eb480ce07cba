//! A response on its way into a file: written aside while it comes, put in its place when it is whole.
//!
//! Pieces go to the file first and to the client afterwards: the last one leaves when the file is in its place, so a
//! client that has the whole response finds it cached. One write at a time runs, on a thread of the pool or, for a small
//! response, on the loop ([`FileWrite`]); what comes meanwhile waits, at most [`WAITING`] bytes. A short response is
//! written whole where it comes quickly: to make, name and measure its file costs more than its bytes. When the disk fails, the response goes on without it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::cache::head::{CacheHead, CacheTimes};
use crate::cache::write::{CacheFileDraft, FileAside, PRIVATE};
use crate::cache::{CacheKey, CacheTicket};
use crate::response::read_ahead::ReadAhead;
use weir_engine::file::OpenFile;
use weir_engine::phase::LocalFuture;
use weir_engine::temp::TempFileFailure;
use weir_rt::Timer;
use weir_rt::small_write::{FileWrite, SmallWrites};

/// What is to be written, and where to.
pub(crate) struct ResponseFile {
    pub(crate) goal: WriterGoal,
    pub(crate) aside: FileAside,
    /// The length that the head announced.
    pub(crate) expected: Option<u64>,
}

/// What becomes of the file.
pub(crate) enum WriterGoal {
    /// A response of the cache.
    Cache {
        ticket: CacheTicket,
        /// The cache's directory.
        root: Arc<PathBuf>,
        times: CacheTimes,
        status: u16,
        key: Vec<u8>,
        vary: Vec<u8>,
        variant: CacheKey,
        /// The lines of the response's head.
        text: Vec<u8>,
    },
    /// A file of its own (`*_store`).
    Store {
        path: PathBuf,
        mode: u32,
        /// Seconds since 1970.
        modified: Option<i64>,
    },
}

/// A response that is being written.
pub(crate) struct ResponseFileWriter {
    /// Not with a write that runs.
    work: Option<WriterWork>,
    /// Bytes that wait for the disk.
    waiting: Vec<Vec<u8>>,
    waits: u64,
    /// What was written, for the next receives.
    spent: Vec<Vec<u8>>,
    /// Bytes of the body that were written.
    written: u64,
    expected: Option<u64>,
    /// `small_file_writes`.
    policy: SmallWrites,
    /// The file, for what does not fit in memory.
    file: Option<Rc<OpenFile>>,
    /// Until when the rest of a short response is waited for.
    gathering: Option<Timer>,
    job: Option<LocalFuture<'static, WriterDone>>,
}

/// What goes to the thread and comes back.
struct WriterWork {
    goal: WriterGoal,
    aside: FileAside,
    draft: Option<CacheFileDraft>,
    /// The checksum of the body so far.
    sum: crc32fast::Hasher,
}

/// What a write came to.
struct WriterDone {
    pieces: Vec<Vec<u8>>,
    result: Result<Option<WriterWork>, TempFileFailure>,
}

/// How far a file has come.
pub(crate) enum WriteProgress {
    /// Something was handed to the client's side.
    More,
    /// It is in its place, or was given up, since the response is not whole.
    Over,
    /// It was given up.
    Failed(TempFileFailure),
}

impl ResponseFileWriter {
    pub(crate) fn new(keep: ResponseFile, policy: SmallWrites) -> ResponseFileWriter {
        let ResponseFile { goal, aside, expected } = keep;
        ResponseFileWriter {
            work: Some(WriterWork { goal, aside, draft: None, sum: crc32fast::Hasher::new() }),
            waiting: Vec::new(),
            waits: 0,
            spent: Vec::new(),
            written: 0,
            expected,
            policy,
            file: None,
            gathering: None,
            job: None,
        }
    }

    /// Takes a piece of the body.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.waits += bytes.len() as u64;
            self.waiting.push(bytes);
        }
    }

    /// Whether more may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many bytes more may wait.
    pub(crate) fn room(&self) -> u64 {
        WAITING.saturating_sub(self.waits)
    }

    /// Vectors whose bytes are in the file, and go to the client from there; they are not empty.
    pub(crate) fn take_spent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.spent)
    }

    /// Goes on writing; what was written is the client's. `whole`: nothing more comes.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        whole: bool,
        ahead: &mut ReadAhead,
    ) -> Poll<WriteProgress> {
        if self.job.is_none() {
            if !whole && (self.waiting.is_empty() || self.gathers(cx)) {
                return Poll::Pending;
            }
            self.gathering = None;
            self.begin(whole);
        }
        let Some(job) = &mut self.job else { return Poll::Ready(WriteProgress::Over) };
        let WriterDone { pieces, result } = ready!(job.as_mut().poll(cx));
        self.job = None;
        let saved = match result {
            Ok(None) => WriteProgress::Over,
            Ok(Some(work)) => {
                self.work = Some(work);
                WriteProgress::More
            }
            Err(failed) => WriteProgress::Failed(failed),
        };
        for piece in pieces {
            self.hand_on(piece, ahead);
        }
        if !matches!(saved, WriteProgress::More) {
            self.release(ahead);
        }
        Poll::Ready(saved)
    }

    /// Whether what waits is the beginning of a short response whose rest may come soon.
    fn gathers(&mut self, cx: &Context<'_>) -> bool {
        let short = self.expected.is_some_and(|length| length <= WAITING);
        if !short || self.written > 0 {
            return false;
        }
        let timer = self.gathering.get_or_insert_with(|| {
            let timer = Timer::new();
            timer.arm(GATHER_MS);
            timer
        });
        timer.poll_expired(cx).is_pending()
    }

    /// A piece that is in the file, too, goes to the client; from there, where memory is full.
    fn hand_on(&mut self, piece: Vec<u8>, ahead: &mut ReadAhead) {
        let (at, len) = (self.written, piece.len() as u64);
        self.written += len;
        if ahead.room() >= len {
            return ahead.push(piece);
        }
        match self.file() {
            Some((file, start)) => {
                ahead.push_file(&file, start + at, len);
                self.spent.push(piece);
            }
            None => ahead.push(piece),
        }
    }

    /// The file, and where the body begins in it.
    fn file(&mut self) -> Option<(Rc<OpenFile>, u64)> {
        let work = self.work.as_ref()?;
        let start = work.goal.start();
        if self.file.is_none() {
            let handle = work.draft.as_ref()?.handle().ok()?;
            let meta = handle.meta().ok()?;
            self.file = Some(Rc::new(OpenFile::new(Rc::new(handle), meta)));
        }
        Some((self.file.clone()?, start))
    }

    /// Gives up; what is there goes to the client.
    pub(crate) fn poll_abandon(&mut self, cx: &mut Context<'_>, ahead: &mut ReadAhead) -> Poll<()> {
        if let Some(job) = &mut self.job {
            let WriterDone { pieces, .. } = ready!(job.as_mut().poll(cx));
            self.job = None;
            for piece in pieces {
                ahead.push(piece);
            }
        }
        self.release(ahead);
        Poll::Ready(())
    }

    /// What waits goes to the client without being written.
    fn release(&mut self, ahead: &mut ReadAhead) {
        self.waits = 0;
        for piece in self.waiting.drain(..) {
            ahead.push(piece);
        }
    }

    /// Begins the next write, the last one when the response is whole.
    fn begin(&mut self, whole: bool) {
        let Some(work) = self.work.take() else { return };
        let pieces = std::mem::take(&mut self.waiting);
        let (at, expected) = (self.written, self.expected);
        let way = work.way(self.policy, at + std::mem::take(&mut self.waits));
        self.job = Some(Box::pin(way.run(move || {
            let mut work = work;
            let result = match whole {
                false => work.write(&pieces, at).map(|()| Some(work)),
                true => work.end(&pieces, at, expected).map(|()| None),
            };
            WriterDone { pieces, result }
        })));
    }
}

impl WriterWork {
    /// Which thread is to write, to a file that has `bytes` then.
    fn way(&self, policy: SmallWrites, bytes: u64) -> FileWrite {
        match (&self.goal, &self.aside) {
            (WriterGoal::Cache { ticket, root, .. }, aside) => {
                let kind = if ticket.exists() { FileWrite::replacing } else { FileWrite::new };
                match aside {
                    FileAside::Folder(temp, _) => kind(policy, &[root, temp], bytes),
                    FileAside::Beside(_) => kind(policy, &[root], bytes),
                }
            }
            (WriterGoal::Store { path, .. }, FileAside::Folder(temp, _)) => {
                FileWrite::toward(policy, temp, path, bytes)
            }
            (WriterGoal::Store { .. }, FileAside::Beside(_)) => FileWrite::by_thread(),
        }
    }

    /// Writes `pieces` after `at` bytes of the body.
    fn write(&mut self, pieces: &[Vec<u8>], at: u64) -> Result<(), TempFileFailure> {
        let start = self.goal.start();
        self.open()?.write(pieces, start + at)?;
        pieces.iter().for_each(|piece| self.sum.update(piece));
        Ok(())
    }

    fn open(&mut self) -> Result<&CacheFileDraft, TempFileFailure> {
        let draft = match self.draft.take() {
            Some(draft) => draft,
            None => CacheFileDraft::make(&self.aside)?,
        };
        Ok(self.draft.insert(draft))
    }

    /// Writes the last `pieces` after `at` bytes, and puts the file in its place, if it has the length that the head
    /// announced.
    fn end(mut self, pieces: &[Vec<u8>], at: u64, expected: Option<u64>) -> Result<(), TempFileFailure> {
        // A body that comes at once is written with its head.
        let alone = at > 0 || matches!(self.goal, WriterGoal::Store { .. });
        match alone {
            true => self.write(pieces, at)?,
            false => pieces.iter().for_each(|piece| self.sum.update(piece)),
        }
        self.open()?;
        let Some(draft) = self.draft else { return Ok(()) };
        let length = at + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        match self.goal {
            WriterGoal::Cache { ticket, root, times, status, key, vary, variant, text } => {
                let body_sum = self.sum.finalize();
                let (key, vary, head) = (&*key, &*vary, &*text);
                let head = CacheHead { times, status, body: length, body_sum, key, vary, variant, head };
                let composed = head.compose();
                let with: &[Vec<u8>] = if alone { &[] } else { pieces };
                let all: Vec<&[u8]> =
                    [&*composed].into_iter().chain(with.iter().map(Vec::as_slice)).collect();
                draft.write(&all, 0)?;
                let meta = draft.meta()?;
                draft.place(&ticket.file(), &root, PRIVATE)?;
                ticket.written(head.len() as u64 + length, &meta);
                Ok(())
            }
            WriterGoal::Store { path, mode, modified } => {
                if expected.is_some_and(|expected| expected != length) {
                    return Ok(());
                }
                draft.set_mode(mode)?;
                if let Some(modified) = modified {
                    draft.set_time(modified)?;
                }
                let root = path.ancestors().last().map(PathBuf::from).unwrap_or_default();
                // A user who may read a file may look into its directory.
                draft.place(&path, &root, mode | (mode & 0o444) >> 2)
            }
        }
    }
}

impl WriterGoal {
    /// Where the body begins in the file.
    fn start(&self) -> u64 {
        match self {
            WriterGoal::Cache { times, status, key, vary, variant, text, .. } => {
                let (times, status, variant) = (*times, *status, *variant);
                CacheHead { times, status, body: 0, body_sum: 0, key, vary, variant, head: text }.len() as u64
            }
            WriterGoal::Store { .. } => 0,
        }
    }
}

/// Bytes that may wait for the disk before no more are read from the server.
const WAITING: u64 = 256 * 1024;
/// How long the rest of a short response is waited for, in milliseconds: the client gets its beginning so much later
/// where the server stops within it.
const GATHER_MS: u64 = 4;
