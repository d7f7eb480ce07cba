//! What of a response is read ahead of the client: in memory as far as the buffers go, and then in a file, so that the
//! server is free long before a slow client has it all.
//!
//! The file is written on a thread of the pool, or by the loop where it is small ([`FileWrite`]), one write at a time; nothing is read from the server meanwhile, so what
//! a response has in memory is its buffers, once in the queue and once on its way to the disk.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use weir_rt::file::FileHandle;
use weir_rt::small_write::{FileWrite, SmallWrites};

use crate::config::directives::UpstreamSettings;
use weir_engine::body::BodyBuf;
use weir_engine::file::OpenFile;
use weir_engine::phase::LocalFuture;
use weir_engine::{pieces, temp};

/// The pieces of a response that the client has yet to get.
pub(crate) struct ReadAhead {
    queue: VecDeque<BodyBuf>,
    /// Bytes of the queue that lie in memory.
    memory: u64,
    settings: Arc<UpstreamSettings>,
    /// `small_file_writes`.
    policy: SmallWrites,
    file: Option<Rc<OpenFile>>,
    /// Bytes written to the file.
    written: u64,
    writing: Option<FileWriting>,
    /// The file could not be made or written: the rest of the response comes at the client's pace.
    failed: bool,
}

/// Bytes on their way to the file, and the pieces after them.
struct FileWriting {
    len: u64,
    behind: VecDeque<BodyBuf>,
    job: LocalFuture<'static, Result<Option<RoomMade>, FailedWriting>>,
}

/// A file that could not be made or written, and the bytes, which are still in memory; `None`: no thread had them.
type FailedWriting = (temp::TempFileFailure, Option<Vec<Vec<u8>>>);

/// A file that was made for the first bytes, and the name that it had.
type RoomMade = (FileHandle, PathBuf);

/// What came of making room.
#[derive(Debug)]
pub(crate) enum ReadAheadRoom {
    /// There is some.
    Made,
    /// A file of this name was made for it.
    NewFile(PathBuf),
    /// As much is in memory and in the file as may be.
    None,
    /// The file can't be made or written, so that nothing more goes there. What was read is in memory as before.
    Failed(temp::TempFileFailure),
}

impl ReadAhead {
    pub(crate) fn new(settings: &Arc<UpstreamSettings>, policy: SmallWrites) -> ReadAhead {
        ReadAhead {
            queue: VecDeque::new(),
            memory: 0,
            settings: settings.clone(),
            policy,
            file: None,
            written: 0,
            writing: None,
            failed: false,
        }
    }

    /// Adds a piece at the end.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.memory += bytes.len() as u64;
            let queue = self.writing.as_mut().map_or(&mut self.queue, |writing| &mut writing.behind);
            let last = queue
                .back_mut()
                .and_then(|last| if let BodyBuf::Bytes(last) = last { Some(last) } else { None });
            let piece = pieces::join(last, bytes);
            queue.extend(piece.map(BodyBuf::Bytes));
        }
    }

    /// Adds a part of a file at the end.
    pub(crate) fn push_file(&mut self, file: &Rc<OpenFile>, offset: u64, len: u64) {
        if let Some(BodyBuf::File { file: last, offset: begins, len: before }) = self.queue.back_mut()
            && Rc::ptr_eq(last, file)
            && *begins + *before == offset
        {
            *before += len;
            return;
        }
        self.queue.push_back(BodyBuf::File { file: file.clone(), offset, len });
    }

    /// The piece whose turn it is. `None`: none is there, or it is on its way to the file.
    pub(crate) fn pop(&mut self) -> Option<BodyBuf> {
        let buf = self.queue.pop_front()?;
        if let BodyBuf::Bytes(bytes) = &buf {
            self.memory -= bytes.len() as u64;
        }
        Some(buf)
    }

    /// The only piece there is.
    pub(crate) fn pop_only(&mut self) -> Option<BodyBuf> {
        if self.queue.len() == 1 && self.writing.is_none() { self.pop() } else { None }
    }

    /// Whether more may be read into memory.
    pub(crate) fn has_room(&self) -> bool {
        self.writing.is_none() && self.room() > 0
    }

    /// How many bytes more may be read into memory.
    pub(crate) fn room(&self) -> u64 {
        let buffers = &self.settings.buffers;
        (buffers.number * buffers.size).saturating_sub(self.memory)
    }

    /// Whether something is on its way to the file.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Moves what lies in memory to the file.
    ///
    /// # Errors
    /// What was to be written is lost.
    pub(crate) fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReadAheadRoom, temp::TempFileFailure>> {
        if self.writing.is_none() && !self.begin() {
            return Poll::Ready(Ok(ReadAheadRoom::None));
        }
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(ReadAheadRoom::Made)) };
        let made = ready!(writing.job.as_mut().poll(cx));
        let Some(FileWriting { len, behind, .. }) = self.writing.take() else {
            return Poll::Ready(Ok(ReadAheadRoom::Made));
        };
        let made = match made {
            Ok(made) => made,
            Err((failure, None)) => return Poll::Ready(Err(failure)),
            Err((failure, Some(pieces))) => {
                self.failed = true;
                self.memory += len;
                self.queue.extend(pieces.into_iter().map(BodyBuf::Bytes));
                self.queue.extend(behind);
                return Poll::Ready(Ok(ReadAheadRoom::Failed(failure)));
            }
        };
        let room = match made {
            None => ReadAheadRoom::Made,
            Some((handle, path)) => match handle.meta() {
                Ok(meta) => {
                    self.file = Some(Rc::new(OpenFile::new(Rc::new(handle), meta)));
                    ReadAheadRoom::NewFile(path)
                }
                Err(error) => {
                    return Poll::Ready(Err(temp::TempFileFailure { call: "fstat()", path, error }));
                }
            },
        };
        self.add_written(len);
        self.queue.extend(behind);
        Poll::Ready(Ok(room))
    }

    /// Bytes that were written follow those before them in the queue.
    fn add_written(&mut self, len: u64) {
        let Some(written) = &self.file else { return };
        let offset = self.written;
        self.written += len;
        written.handle().close_on_thread(self.written);
        if let Some(BodyBuf::File { file, len: before, .. }) = self.queue.back_mut()
            && Rc::ptr_eq(file, written)
        {
            *before += len;
            return;
        }
        self.queue.push_back(BodyBuf::File { file: written.clone(), offset, len });
    }

    /// Begins to write what lies in memory after the file's part of the queue, as far as the file may hold it.
    fn begin(&mut self) -> bool {
        if self.failed {
            return false;
        }
        let in_memory = |buf: &BodyBuf| matches!(buf, BodyBuf::Bytes(_));
        let tail = self.queue.iter().rposition(|buf| !in_memory(buf)).map_or(0, |at| at + 1);
        let mut behind = self.queue.split_off(tail);
        let mut pieces = Vec::new();
        let mut len = 0;
        let limit = self.settings.max_temp_file_size.saturating_sub(self.written);
        while behind.front().is_some_and(|buf| len + buf.len() <= limit) {
            if let Some(BodyBuf::Bytes(bytes)) = behind.pop_front() {
                len += bytes.len() as u64;
                pieces.push(bytes);
            }
        }
        if len == 0 {
            self.queue.append(&mut behind);
            return false;
        }
        self.memory -= len;
        let way = FileWrite::new(self.policy, &[&self.settings.temp_path.path], self.written + len);
        let file = self.file.as_ref().map(|file| file.handle());
        let job = write(way, self.settings.clone(), file, pieces, self.written);
        self.writing = Some(FileWriting { len, behind, job });
        true
    }
}

/// Writes `pieces` one after the other from `offset` on, to a new file if it does not exist; not more than
/// `*_temp_file_write_size` at a time.
fn write(
    way: FileWrite,
    settings: Arc<UpstreamSettings>,
    file: Option<Rc<FileHandle>>,
    pieces: Vec<Vec<u8>>,
    offset: u64,
) -> LocalFuture<'static, Result<Option<RoomMade>, FailedWriting>> {
    let at_a_time = settings.temp_file_write_size as usize;
    let failed = |path: PathBuf| move |error| temp::TempFileFailure { call: "pwrite()", path, error };
    if let Some(file) = file {
        let job = move |file: &FileHandle| Ok((write_all(file, &pieces, offset, at_a_time), pieces));
        let written = way.on(&file, job);
        let failed = failed(settings.temp_path.path.to_path_buf());
        return Box::pin(async move {
            match written.await {
                Ok((Ok(()), _)) => Ok(None),
                Ok((Err(error), pieces)) => Err((failed(error), Some(pieces))),
                Err(error) => Err((failed(error), None)),
            }
        });
    }
    Box::pin(way.run(move || {
        let directory = &settings.temp_path;
        let made = temp::make(&directory.path, directory.levels, temp::TempFileName::Removed);
        let written = made.and_then(|(handle, path)| {
            let written = write_all(&handle, &pieces, offset, at_a_time);
            written.map_err(failed(path.clone())).map(|()| (handle, path))
        });
        written.map(Some).map_err(|failure| (failure, Some(pieces)))
    }))
}

fn write_all(file: &FileHandle, pieces: &[Vec<u8>], offset: u64, at_a_time: usize) -> io::Result<()> {
    let mut offset = offset;
    for part in pieces.iter().flat_map(|piece| piece.chunks(at_a_time.max(1))) {
        file.pwrite_all(&[part], offset)?;
        offset += part.len() as u64;
    }
    Ok(())
}
