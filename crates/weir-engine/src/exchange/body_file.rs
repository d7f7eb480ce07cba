//! A request's body on its way into its file: pieces are gathered, and written by a thread of the pool while the next ones
//! come. One write at a time; a client that sends faster than the disk takes waits for it.

use std::io;
use std::task::{Context, Poll, ready};

use weir_rt::file::FileHandle;

use crate::pieces;
use crate::plan::phase::LocalFuture;

/// Bytes that are gathered before a write, where `client_body_buffer_size` is not larger.
const GATHERED: usize = 64 * 1024;
/// Bytes that are gathered of a quick client: a thread's being woken for each 64 KB costs more than their write.
const GATHERED_QUICKLY: usize = 256 * 1024;
/// A client is quick that sends [`GATHERED`] in less than this many milliseconds: 10,000 slow ones must not hold 256 KB
/// each.
const QUICK_MS: u64 = 10;

/// The pieces of a body that are not in its file yet, and the write that runs.
pub(crate) struct BodyFileWriter {
    /// Not with a write that runs, which has it.
    handle: Option<FileHandle>,
    waiting: Vec<Vec<u8>>,
    waits: usize,
    /// When the first of them came: milliseconds of the worker's clock.
    since_ms: u64,
    /// `client_body_buffer_size`, or [`GATHERED`] if that is more.
    gathered: usize,
    /// Where the next write begins.
    at: u64,
    write: Option<LocalFuture<'static, WriteDone>>,
    /// What was written, for the next receives.
    spent: Vec<Vec<u8>>,
}

/// What a thread of the pool gives back.
struct WriteDone {
    handle: FileHandle,
    pieces: Vec<Vec<u8>>,
    result: io::Result<()>,
}

impl BodyFileWriter {
    /// Goes on after `at` bytes of the file that `handle` is a second handle of; `buffer_size`:
    /// `client_body_buffer_size`.
    pub(crate) fn new(handle: FileHandle, buffer_size: u64, at: u64) -> BodyFileWriter {
        let buffer_size = usize::try_from(buffer_size).unwrap_or(usize::MAX);
        BodyFileWriter {
            handle: Some(handle),
            waiting: Vec::new(),
            waits: 0,
            since_ms: 0,
            gathered: buffer_size.clamp(GATHERED, GATHERED_QUICKLY),
            at,
            write: None,
            spent: Vec::new(),
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
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        let pieces = std::mem::take(&mut self.waiting);
        let (at, length) = (self.at, std::mem::take(&mut self.waits) as u64);
        let Some(handle) = self.handle.take() else { return Poll::Ready(Ok(())) };
        self.at += length;
        let mut write: LocalFuture<'static, WriteDone> = Box::pin(weir_rt::blocking(move || {
            let result = handle.pwrite_all(&pieces, at);
            WriteDone { handle, pieces, result }
        }));
        // The first poll hands it to the pool; its end wakes the body's reader once more than needed.
        match write.as_mut().poll(cx) {
            Poll::Ready(done) => return Poll::Ready(self.settle(done)),
            Poll::Pending => self.write = Some(write),
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all that waits, to the end of the last write.
    ///
    /// # Errors
    /// That of a write.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waits > 0 {
            ready!(self.poll_begin(cx))?;
        }
        self.poll_written(cx)
    }

    /// Vectors whose bytes are in the file; they are not empty.
    pub(crate) fn take_spent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.spent)
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(write) = &mut self.write else { return Poll::Ready(Ok(())) };
        let done = ready!(write.as_mut().poll(cx));
        self.write = None;
        Poll::Ready(self.settle(done))
    }

    fn settle(&mut self, done: WriteDone) -> io::Result<()> {
        self.handle = Some(done.handle);
        self.spent = done.pieces;
        done.result
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

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
        let path = directory.path().join("body");
        let file = weir_rt::file::create_temp(&path, 0o600).expect("a fresh directory");
        alone(async move {
            let mut writer = BodyFileWriter::new(file, buffer_size, 0);
            for piece in pieces {
                writer.push(piece);
                if writer.is_due() {
                    poll_fn(|cx| writer.poll_begin(cx)).await.expect("written");
                }
            }
            poll_fn(|cx| writer.poll_finish(cx)).await.expect("written");
        });
        std::fs::read(&path).expect("its name is there")
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
        let full = weir_rt::file::open_append(std::path::Path::new("/dev/full")).expect("on every Linux");
        alone(async move {
            let mut writer = BodyFileWriter::new(full, 1, 0);
            writer.push(vec![1; 10]);
            let error = poll_fn(|cx| writer.poll_finish(cx)).await.expect_err("no space");
            assert_eq!(error.raw_os_error(), Some(28));
        });
    }
}
