//! Open files, and which of them a worker caches: those of one loop turn, and those of `open_file_cache`.

mod cache;
pub mod hash;
mod store;
mod turn;

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use weir_rt::file::errno::EIO;
use weir_rt::file::{FileHandle, FileKind, FileMeta, SymlinkPolicy};

pub use cache::FileCache;
pub use hash::hash;
pub use store::FileStore;

/// An open regular file, with what is derived from it once: its entity tag and, when it is small, its bytes.
pub struct OpenFile {
    pub(crate) handle: Rc<FileHandle>,
    meta: FileMeta,
    etag: OnceCell<Rc<[u8]>>,
    body: OnceCell<Rc<[u8]>>,
}

impl OpenFile {
    /// `meta` are what fstat(2) says of `handle`.
    pub fn new(handle: Rc<FileHandle>, meta: FileMeta) -> OpenFile {
        OpenFile { handle, meta, etag: OnceCell::new(), body: OnceCell::new() }
    }

    /// The open file, for reads and `sendfile`; the clone shares its descriptor.
    pub fn handle(&self) -> Rc<FileHandle> {
        self.handle.clone()
    }

    /// What fstat(2) said when the file was opened.
    pub fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// Bytes when the file was opened.
    pub fn size(&self) -> u64 {
        self.meta.size
    }

    /// Last modification, seconds since 1970.
    pub fn mtime(&self) -> i64 {
        self.meta.mtime_s
    }

    /// nginx's `ETag`: modification time and size in hexadecimal.
    pub fn etag(&self) -> Rc<[u8]> {
        let make = || {
            let mut tag = Vec::with_capacity(32);
            weir_http::etag::file(&mut tag, self.meta.mtime_s, self.meta.size);
            Rc::from(tag)
        };
        self.etag.get_or_init(make).clone()
    }

    /// All of the file, when it has at most [`SMALL`] bytes and they can be read without waiting for the disk.
    /// `None` also for a file that was cut short since: the caller that sends it as a file finds that out.
    pub fn body(&self) -> Option<Rc<[u8]>> {
        if let Some(body) = self.body.get() {
            return Some(body.clone());
        }
        if self.meta.size > SMALL {
            return None;
        }
        match self.handle.bytes_cached(0, self.meta.size as usize) {
            Ok(Some(body)) => Some(self.body.get_or_init(|| body).clone()),
            _ => None,
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("fd", &self.handle.fd()).field("size", &self.meta.size).finish()
    }
}

/// What a path leads to: a file, a directory, or something else.
#[derive(Clone, Debug)]
pub enum FoundPath {
    /// A regular file, opened for reading.
    File(Rc<OpenFile>),
    /// A directory.
    Dir {
        /// What fstat(2) said.
        meta: FileMeta,
    },
    /// A device, FIFO or socket.
    Other,
}

/// Opens `path` for itself, without caches.
pub(crate) fn open(path: &[u8], links: SymlinkPolicy) -> Result<FoundPath, i32> {
    let path = os_path(path);
    let opened = match links {
        SymlinkPolicy::Follow => weir_rt::file::open(path),
        links => weir_rt::file::open_links(path, links),
    };
    let handle = opened.map_err(errno)?;
    let meta = handle.meta().map_err(errno)?;
    Ok(match meta.kind {
        FileKind::File => FoundPath::File(Rc::new(OpenFile::new(Rc::new(handle), meta))),
        FileKind::Dir => FoundPath::Dir { meta },
        FileKind::Other => FoundPath::Other,
    })
}

pub(crate) fn os_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

pub(crate) fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(EIO)
}

/// Files up to this many bytes are served from memory. Above it sendfile(2) is as fast, and a file need not be read
/// for a client that hangs up.
pub const SMALL: u64 = 64 * 1024;
