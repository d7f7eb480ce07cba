//! A request's body on its way into its file: pieces are gathered, and written by a thread of the pool while the next ones
//! come, or a small body by the loop ([`FileWrite`]). One write at a time; a client that sends faster than the disk takes waits for it. The first write makes the
//! file, and a caller may have the last one do more ([`BodyFileWriter::poll_last`]): a small body goes to the pool once.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use weir_rt::file::FileHandle;
use weir_rt::small_write::{FileWrite, SmallWrites};

use crate::exchange::TempFile;
use crate::exchange::temp_file::{self, TempFileFailure, TempFileName};
use crate::pieces;
use crate::plan::phase::LocalFuture;

/// Bytes that are gathered before a write, where `client_body_buffer_size` is not larger.
const GATHERED: usize = 64 * 1024;
/// Bytes that are gathered of a quick client: a thread's being woken for each 64 KB costs more than their write.
const GATHERED_QUICKLY: usize = 256 * 1024;
/// A client is quick that sends [`GATHERED`] in less than this many milliseconds: 10,000 slow ones must not hold 256 KB
/// each.
const QUICK_MS: u64 = 10;

/// The file of a request's body while it is written: made with the first bytes, on the thread that writes them.
/// Dropping it removes the file's name if the file was to go with its request.
#[derive(Debug)]
pub struct BodyFile {
    /// Where it is to be made: the directory of temporary files and its levels.
    place: (PathBuf, [u8; 3]),
    /// Not before it is made.
    handle: Option<FileHandle>,
    path: PathBuf,
    /// It has a name.
    named: bool,
    /// Its name goes with it.
    remove: bool,
}

impl BodyFile {
    /// A file yet to be made in `directory` with `levels`; `remove`: its name goes with it.
    pub(crate) fn new(directory: PathBuf, levels: [u8; 3], name: TempFileName, remove: bool) -> BodyFile {
        let named = name == TempFileName::Kept;
        BodyFile { place: (directory, levels), handle: None, path: PathBuf::new(), named, remove }
    }

    /// One that a request has already.
    ///
    /// # Errors
    /// The process has no descriptor left for a file that others share.
    pub(crate) fn of(mut file: TempFile) -> Result<BodyFile, TempFileFailure> {
        let path = file.path.clone().unwrap_or_default();
        let handle = match file.handle.try_clone() {
            Ok(handle) => handle,
            Err(error) => return Err(TempFileFailure { call: "dup()", path, error }),
        };
        let remove = std::mem::take(&mut file.remove);
        Ok(BodyFile { place: Default::default(), handle: Some(handle), path, named: file.named, remove })
    }

    /// Its name, which leads nowhere if the file has lost it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It was moved to its place: its name is not removed.
    pub fn keep(&mut self) {
        self.remove = false;
    }

    /// Where it is, or is to be made.
    fn directory(&self) -> &Path {
        let made = self.path.parent().filter(|_| self.place.0.as_os_str().is_empty());
        made.unwrap_or(&self.place.0)
    }

    /// As a request holds it, with `len` bytes; `None` for a file that was never made.
    fn into_temp_file(mut self, len: u64) -> Option<TempFile> {
        let handle = Rc::new(self.handle.take()?);
        handle.close_on_thread(len);
        let (remove, path) = (std::mem::take(&mut self.remove), std::mem::take(&mut self.path));
        Some(TempFile { handle, path: Some(path), len, remove, named: self.named })
    }

    /// Writes `pieces` at `at`, into a new file at first. Waits for the disk.
    fn write(&mut self, pieces: &[Vec<u8>], at: u64) -> Result<(), TempFileFailure> {
        if self.handle.is_none() {
            let name = if self.named { TempFileName::Kept } else { TempFileName::Removed };
            let (handle, path) = temp_file::make(&self.place.0, self.place.1, name)?;
            (self.handle, self.path) = (Some(handle), path);
        }
        let Some(handle) = &self.handle else { return Ok(()) };
        handle.pwrite_all(pieces, at).map_err(|error| TempFileFailure {
            call: "pwrite()",
            path: self.path.clone(),
            error,
        })
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        if self.remove && self.named && self.handle.is_some() {
            // Removing it is a favour to the disk; that it is gone already is no news.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The pieces of a body that are not in its file yet, and the write that runs.
pub(crate) struct BodyFileWriter {
    /// Not with a write that runs, which has it, and not after one that failed.
    file: Option<BodyFile>,
    waiting: Vec<Vec<u8>>,
    waits: usize,
    /// When the first of them came: milliseconds of the worker's clock.
    since_ms: u64,
    /// `client_body_buffer_size`, or [`GATHERED`] if that is more.
    gathered: usize,
    /// `small_file_writes`.
    policy: SmallWrites,
    /// Where the next write begins.
    at: u64,
    write: Option<LocalFuture<'static, WriteDone>>,
    /// What was written, for the next receives.
    spent: Vec<Vec<u8>>,
    /// A write has made the file, which was not reported yet.
    news: bool,
}

/// A write that may wait for the disk.
pub(crate) struct BodyWrite {
    file: BodyFile,
    pieces: Vec<Vec<u8>>,
    at: u64,
    policy: SmallWrites,
}

/// What a write gives back.
struct WriteDone {
    pieces: Vec<Vec<u8>>,
    made: bool,
    result: Result<BodyFile, TempFileFailure>,
}

impl BodyWrite {
    /// Which thread is to make it.
    fn way(&self) -> FileWrite {
        FileWrite::new(self.policy, &[self.file.directory()], self.end())
    }

    /// Which thread is to make it, and to put the file at `place`.
    pub(crate) fn way_to(&self, place: &Path) -> FileWrite {
        FileWrite::toward(self.policy, self.file.directory(), place, self.end())
    }

    /// Bytes that the file has then.
    fn end(&self) -> u64 {
        self.at + self.pieces.iter().map(|piece| piece.len() as u64).sum::<u64>()
    }

    /// Waits for the disk.
    fn run(mut self) -> WriteDone {
        let fresh = self.file.handle.is_none();
        let result = self.file.write(&self.pieces, self.at);
        let made = fresh && self.file.handle.is_some();
        WriteDone { pieces: self.pieces, made, result: result.map(|()| self.file) }
    }

    /// Writes, and does `then` with the file. Waits for the disk.
    ///
    /// # Errors
    /// That of the write: `then` is not called.
    pub(crate) fn run_and<T>(self, then: impl FnOnce(BodyFile) -> T) -> Result<T, TempFileFailure> {
        self.run().result.map(then)
    }
}

impl BodyFileWriter {
    /// Goes on after `at` bytes of `file`; `buffer_size`: `client_body_buffer_size`.
    pub(crate) fn new(file: BodyFile, buffer_size: u64, at: u64, policy: SmallWrites) -> BodyFileWriter {
        let buffer_size = usize::try_from(buffer_size).unwrap_or(usize::MAX);
        BodyFileWriter {
            file: Some(file),
            waiting: Vec::new(),
            waits: 0,
            since_ms: 0,
            gathered: buffer_size.clamp(GATHERED, GATHERED_QUICKLY),
            policy,
            at,
            write: None,
            spent: Vec::new(),
            news: false,
        }
    }

    /// Takes a piece, which may be empty.
    pub(crate) fn push(&mut self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        if self.waiting.is_empty() {
            self.since_ms = weir_rt::now_ms();
        }
        self.waits += piece.len();
        // Not `join`: a large vector is for the next receives.
        if !pieces::append(self.waiting.last_mut(), &piece) {
            self.waiting.push(piece);
        }
    }

    /// Whether so much waits that it is to be written before more is taken.
    pub(crate) fn is_due(&self) -> bool {
        let slow = || weir_rt::now_ms().saturating_sub(self.since_ms) >= QUICK_MS;
        self.waits >= GATHERED_QUICKLY || (self.waits >= self.gathered && slow())
    }

    /// Begins to write what waits, once the write before it has ended.
    ///
    /// # Errors
    /// That of a write before.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TempFileFailure>> {
        ready!(self.poll_written(cx))?;
        let Some(next) = self.next() else { return Poll::Ready(Ok(())) };
        let mut write: LocalFuture<'static, WriteDone> = Box::pin(next.way().run(move || next.run()));
        // The first poll makes it, or hands it to the pool, whose end wakes the body's reader once more than needed.
        match write.as_mut().poll(cx) {
            Poll::Ready(done) => return Poll::Ready(self.settle(done)),
            Poll::Pending => self.write = Some(write),
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all that waits, to the end of the last write; a body without bytes gets its file, too.
    ///
    /// # Errors
    /// That of a write.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TempFileFailure>> {
        let unmade = self.file.as_ref().is_some_and(|file| file.handle.is_none());
        if self.waits > 0 || unmade {
            ready!(self.poll_begin(cx))?;
        }
        self.poll_written(cx)
    }

    /// All that waits, as one write, once the write before it has ended: for a caller that has more to do after it.
    ///
    /// # Errors
    /// That of a write before.
    pub(crate) fn poll_last(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<BodyWrite>, TempFileFailure>> {
        ready!(self.poll_written(cx))?;
        Poll::Ready(Ok(self.next()))
    }

    /// The file, when all writes have ended.
    pub(crate) fn into_file(self) -> Option<TempFile> {
        let len = self.at;
        self.file?.into_temp_file(len)
    }

    /// Vectors whose bytes are in the file; they are not empty.
    pub(crate) fn take_spent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.spent)
    }

    /// The path of the file, once after it was made.
    pub(crate) fn take_news(&mut self) -> Option<PathBuf> {
        std::mem::take(&mut self.news).then(|| self.file.as_ref().map(|file| file.path.clone()))?
    }

    fn next(&mut self) -> Option<BodyWrite> {
        let file = self.file.take()?;
        let pieces = std::mem::take(&mut self.waiting);
        let (at, length) = (self.at, std::mem::take(&mut self.waits) as u64);
        self.at += length;
        Some(BodyWrite { file, pieces, at, policy: self.policy })
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TempFileFailure>> {
        let Some(write) = &mut self.write else { return Poll::Ready(Ok(())) };
        let done = ready!(write.as_mut().poll(cx));
        self.write = None;
        Poll::Ready(self.settle(done))
    }

    fn settle(&mut self, done: WriteDone) -> Result<(), TempFileFailure> {
        self.spent = done.pieces;
        self.news |= done.made;
        self.file = Some(done.result?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use weir_rt::{DriverChoice, Runtime, RuntimeOptions};
    use weir_test::TempDir;

    use super::*;

    /// Runs `test` as the one task of a loop.
    fn alone(test: impl Future<Output = ()>) {
        let options = RuntimeOptions { driver: DriverChoice::Epoll, buffers: 8, ..RuntimeOptions::default() };
        Runtime::new(&options).expect("epoll is everywhere").block_on(test);
    }

    fn write(pieces: Vec<Vec<u8>>, buffer_size: u64) -> Vec<u8> {
        let directory = TempDir::new();
        let file = BodyFile::new(directory.path().to_path_buf(), [0; 3], TempFileName::Kept, true);
        let written = Rc::new(RefCell::new(Vec::new()));
        let result = written.clone();
        alone(async move {
            let mut writer = BodyFileWriter::new(file, buffer_size, 0, SmallWrites::Auto);
            for piece in pieces {
                writer.push(piece);
                if writer.is_due() {
                    poll_fn(|cx| writer.poll_begin(cx)).await.expect("written");
                }
            }
            poll_fn(|cx| writer.poll_finish(cx)).await.expect("written");
            let path = writer.take_news().expect("a file was made");
            *result.borrow_mut() = fs::read(&path).expect("its name is there");
            assert_eq!(writer.into_file().expect("made").len, result.borrow().len() as u64);
            assert!(!path.exists(), "its name goes with it");
        });
        written.take()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn all_pieces_are_in_the_file_in_order(
            pieces in prop::collection::vec((any::<u8>(), 0usize..200_000), 0..30),
            buffer_size in prop_oneof![Just(1u64), Just(16_384), Just(1 << 30)],
        ) {
            let pieces: Vec<Vec<u8>> = pieces.into_iter().map(|(byte, len)| vec![byte; len]).collect();
            let expected = pieces.concat();
            prop_assert!(write(pieces, buffer_size) == expected);
        }
    }

    #[test]
    fn many_tiny_pieces_are_one() {
        let pieces = (0..100_000u32).map(|n| vec![n as u8]).collect::<Vec<_>>();
        assert_eq!(write(pieces.clone(), 1), pieces.concat());
    }

    #[test]
    fn a_full_disk_is_an_error_of_the_next_write() {
        alone(async {
            let mut writer = BodyFileWriter::new(full(), 1, 0, SmallWrites::Auto);
            writer.push(vec![1; 10]);
            let failed = poll_fn(|cx| writer.poll_finish(cx)).await.expect_err("no space");
            assert_eq!((failed.call, failed.error.raw_os_error()), ("pwrite()", Some(28)));
        });
    }

    fn full() -> BodyFile {
        let path = PathBuf::from("/dev/full");
        let handle = weir_rt::file::open_append(&path).expect("on every Linux");
        let mut file = BodyFile::new(PathBuf::new(), [0; 3], TempFileName::Removed, false);
        (file.handle, file.path) = (Some(handle), path);
        file
    }

    #[test]
    fn the_last_write_does_more_on_its_thread_unless_it_fails() {
        let directory = TempDir::new();
        let place = directory.path().to_path_buf();
        alone(async move {
            let file = BodyFile::new(place.clone(), [0; 3], TempFileName::Kept, true);
            let mut writer = BodyFileWriter::new(file, 1, 0, SmallWrites::Auto);
            writer.push(vec![b'a'; 3]);
            let last = poll_fn(|cx| writer.poll_last(cx)).await.expect("no write before").expect("a file");
            let to = place.join("moved");
            let moved = last.run_and(|mut file| {
                fs::rename(file.path(), &to).expect("one file system");
                file.keep();
            });
            moved.expect("written");
            assert_eq!(fs::read(&to).expect("there"), b"aaa");
            assert_eq!(fs::read_dir(&place).expect("there").count(), 1);
            let mut writer = BodyFileWriter::new(full(), 1, 0, SmallWrites::Auto);
            writer.push(vec![1; 10]);
            let last = poll_fn(|cx| writer.poll_last(cx)).await.expect("no write before").expect("a file");
            last.run_and(|_| panic!("there is no whole file")).expect_err("no space");
        });
    }

    #[test]
    fn a_file_whose_body_is_given_up_goes_wherever_it_was() {
        let directory = TempDir::new();
        let place = directory.path().to_path_buf();
        alone(async move {
            let count = || fs::read_dir(&place).expect("there").count();
            let new = || {
                BodyFileWriter::new(
                    BodyFile::new(place.clone(), [0; 3], TempFileName::Kept, true),
                    1,
                    0,
                    SmallWrites::Auto,
                )
            };
            let mut writer = new();
            writer.push(vec![1; 10]);
            drop(writer);
            assert_eq!(count(), 0, "never made");
            let mut writer = new();
            writer.push(vec![1; 10]);
            poll_fn(|cx| writer.poll_finish(cx)).await.expect("written");
            assert_eq!(count(), 1);
            drop(writer);
            assert_eq!(count(), 0);
            let mut writer = new();
            writer.push(vec![1; 10]);
            poll_fn(|cx| writer.poll_begin(cx)).await.expect("begun");
            drop(writer);
            // A thread of the pool has it, and drops what nobody waits for.
            let end = Instant::now() + Duration::from_secs(90);
            while Instant::now() < end {
                weir_rt::blocking(|| std::thread::sleep(Duration::from_millis(10))).await;
                let busy = weir_rt::blocking(weir_rt::blocking::pool_stats).await.busy;
                if busy <= 1 && count() == 0 {
                    return;
                }
            }
            panic!("the file is there");
        });
    }
}
