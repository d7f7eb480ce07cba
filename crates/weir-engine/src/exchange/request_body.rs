//! The body of a request: how it is framed, how far it came, and where it is.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_http::h1::{BadChunk, ChunkedDecoder};
use weir_rt::LONG_RECEIVE;
use weir_rt::file::FileHandle;

use super::body_file::BodyFileWriter;

/// The state of a request's body.
#[derive(Default)]
pub struct RequestBody {
    pub(crate) framing: BodyFraming,
    pub(crate) received: u64,
    pub(crate) framed: u64,
    pub(crate) continued: bool,
    pub(crate) read: bool,
    /// It is not needed: it is read to find the next request, at any size.
    pub(crate) discarded: bool,
    /// Its framing was wrong.
    pub(crate) broken: bool,
    /// The client left before its end.
    pub(crate) gone: bool,
    /// It is wanted in a file that keeps its name.
    pub(crate) named: bool,
    /// If it goes to a file, that keeps its name until the request ends.
    pub(crate) keeps_name: bool,
    pub(crate) memory: Vec<u8>,
    pub(crate) file: Option<TempFile>,
    /// What is on its way into the file.
    pub(crate) writer: Option<Box<BodyFileWriter>>,
}

/// How the end of the body is known.
#[derive(Default)]
pub(crate) enum BodyFraming {
    /// There is no body, or all of it was read.
    #[default]
    Done,
    /// This many bytes are to come.
    Length(u64),
    /// Chunks are to come.
    Chunked(Box<ChunkedDecoder>),
    /// Frames are to come, on a stream of HTTP/2.
    Frames,
    /// It is read elsewhere, beside the response.
    Beside(Rc<BodyProgress>),
}

/// What the framing says of the bytes at the start of what was received.
pub(crate) struct FramedBytes {
    /// How many it took.
    pub(crate) used: usize,
    /// Where the content lies in them.
    pub(crate) content: Range<usize>,
    /// Nothing follows.
    pub(crate) last: bool,
}

/// A body of which more than this many bytes are to come, or have come in chunks, is received long pieces at a time.
const LONG_BODY: u64 = 32 * 1024;

impl BodyFraming {
    /// How many bytes to receive at once where many are expected, of a body of which `received` have come; `None`: few.
    pub(crate) fn long_receive(&self, received: u64) -> Option<usize> {
        match self {
            // No more than the body has: what follows it is another request.
            BodyFraming::Length(left) if *left > LONG_BODY => {
                Some(LONG_RECEIVE.min(usize::try_from(*left).unwrap_or(LONG_RECEIVE)))
            }
            BodyFraming::Chunked(_) if received > LONG_BODY => Some(LONG_RECEIVE),
            _ => None,
        }
    }

    /// Takes what it can of `bytes`, which are not empty; `None`: they are not of this body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<Result<FramedBytes, BadChunk>> {
        match self {
            BodyFraming::Done | BodyFraming::Frames | BodyFraming::Beside(_) => None,
            BodyFraming::Length(left) => {
                let used = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= used as u64;
                Some(Ok(FramedBytes { used, content: 0..used, last: *left == 0 }))
            }
            BodyFraming::Chunked(decoder) => Some(decoder.decode(bytes).map(|step| FramedBytes {
                used: step.consumed,
                content: step.data,
                last: step.done,
            })),
        }
    }
}

/// A body that did not fit in memory.
pub struct TempFile {
    /// The file. Its name is gone already unless `client_body_in_file_only` keeps it, or a script has read the body.
    pub handle: Rc<FileHandle>,
    /// Its name (`$request_body_file`); `None` for a file without a name.
    pub path: Option<std::path::PathBuf>,
    /// Bytes that are in it, once the body was read.
    pub len: u64,
    pub(crate) remove: bool,
    /// Its name is still there.
    pub(crate) named: bool,
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let (true, Some(path)) = (self.remove, &self.path) {
            // Removing it is a favour to the disk; that it is gone already is no news.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl RequestBody {
    /// Forgets the body, and gives its memory back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.is_touched() {
            *self = RequestBody::default();
        }
    }

    fn is_touched(&self) -> bool {
        self.is_pending()
            || self.framed > 0
            || self.received > 0
            || self.read
            || self.continued
            || self.discarded
            || self.broken
            || self.gone
            || self.named
            || self.keeps_name
            || self.memory.capacity() > 0
            || self.file.is_some()
    }

    /// Bytes of the body received, as framed content.
    pub fn received(&self) -> u64 {
        self.beside().map_or(self.received, |rest| rest.received.get())
    }

    /// Bytes that were read for a handler that wants the body, its chunk framing included.
    pub fn framed(&self) -> u64 {
        self.beside().map_or(self.framed, |rest| rest.framed.get())
    }

    /// How far another task has read it.
    pub(crate) fn beside(&self) -> Option<&BodyProgress> {
        if let BodyFraming::Beside(progress) = &self.framing { Some(progress) } else { None }
    }

    /// Something of the body is still on its way.
    pub fn is_pending(&self) -> bool {
        match &self.framing {
            BodyFraming::Done => false,
            BodyFraming::Beside(progress) => !progress.done.get(),
            _ => true,
        }
    }

    /// True when its framing was wrong: what follows it on the connection can't be found.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The client is not asked for it: `Expect: 100-continue` is met by the final status alone.
    pub(crate) fn never_continue(&mut self) {
        self.continued = true;
    }

    /// It will not be needed.
    pub(crate) fn discard(&mut self) {
        self.discarded = true;
    }

    /// It counts as read and empty; what is still to come of it is dropped.
    pub(crate) fn leave_out(&mut self) {
        (self.memory, self.file, self.writer) = (Vec::new(), None, None);
        (self.read, self.discarded) = (true, true);
    }

    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// The client left before its end: no client is left to respond to (nginx, too, only logs the status).
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether the body was read by [`Exchange::read_body`](crate::exchange::Exchange::read_body).
    pub fn is_read(&self) -> bool {
        self.read
    }

    /// The part in memory: all of it, unless [`RequestBody::file`] has it.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// The file that holds the body, if it does not lie in memory.
    pub fn file(&self) -> Option<&TempFile> {
        self.file.as_ref()
    }

    /// The same body for another request, if it was read; a file is shared, and removed by the first holder only.
    pub(crate) fn copy(&self) -> RequestBody {
        let file = self.file.as_ref().map(|file| TempFile {
            handle: file.handle.clone(),
            path: file.path.clone(),
            len: file.len,
            remove: false,
            named: false,
        });
        RequestBody { read: self.read, memory: self.memory.clone(), file, ..RequestBody::default() }
    }

    /// Keeps a piece that is passed on, as long as the whole fits in `limit` bytes: what was passed on can still be
    /// shown (`$request_body`).
    pub fn remember(&mut self, piece: &[u8], limit: u64) {
        if self.received > limit {
            self.memory = Vec::new();
        } else {
            self.memory.extend_from_slice(piece);
        }
    }

    /// All was passed on. It counts as read if it was remembered.
    pub fn passed(&mut self) {
        self.read = self.memory.len() as u64 == self.received;
    }

    /// Replaces the body by a file's content, as `ngx.req.set_body_file` does; `remove`: the file goes with the request.
    pub fn replace_by_file(&mut self, handle: FileHandle, path: std::path::PathBuf, len: u64, remove: bool) {
        self.memory = Vec::new();
        self.file = Some(TempFile { handle: Rc::new(handle), path: Some(path), len, remove, named: true });
        self.read = true;
    }

    /// Replaces the body, as `ngx.req.set_body_data` does.
    pub fn replace(&mut self, bytes: Vec<u8>) {
        self.memory = bytes;
        self.file = None;
        self.read = true;
    }
}

/// How far it came, for its exchange to look at.
#[derive(Default)]
pub(crate) struct BodyProgress {
    /// The next request follows.
    pub(crate) done: Cell<bool>,
    pub(crate) received: Cell<u64>,
    pub(crate) framed: Cell<u64>,
}
