//! Reading a file of the cache: its beginning, and its body where that is small.

use std::io;
use std::path::Path;

use weir_http::h1::{HeadLimits, HeadParse, ResponseHead};
use weir_http::{Field, Span};
use weir_rt::file::{FileHandle, FileKind, FileMeta};

use super::head::{self, BadCacheHead, CacheTimes};
use super::key::CacheKey;
use weir_engine::file::SMALL;

/// A file as it was read; can be sent from the thread that read it.
pub(super) struct RawCacheFile {
    pub(super) handle: FileHandle,
    pub(super) meta: FileMeta,
    /// All of it, or as much as its head needs.
    pub(super) bytes: Vec<u8>,
}

/// What a file says.
pub(super) struct ParsedCacheFile {
    pub(super) times: CacheTimes,
    pub(super) status: u16,
    pub(super) key: Vec<u8>,
    pub(super) vary: Vec<u8>,
    pub(super) variant: CacheKey,
    /// The lines of the response's head.
    pub(super) text: Vec<u8>,
    /// Status and reason in it.
    pub(super) reason: Span,
    /// The fields; spans of the text.
    pub(super) fields: Vec<Field>,
    pub(super) content_length: Option<u64>,
    /// Where the body begins, and how long it is.
    pub(super) start: u64,
    pub(super) length: u64,
    /// The body, where it was read, and checked.
    pub(super) body: Option<Vec<u8>>,
    /// What the body's checksum must be.
    pub(super) sum: u32,
}

/// Whether the disk may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskWait {
    /// On a thread for that.
    Allowed,
    /// On a worker: only what is in memory is read.
    Refused,
}

/// Opens `path` and reads its beginning. `None`: the disk would have to be waited for.
///
/// # Errors
/// Those of open(2) and pread(2).
pub(super) fn open(path: &Path, wait: DiskWait) -> io::Result<Option<RawCacheFile>> {
    let handle = weir_rt::file::open(path)?;
    let meta = handle.meta()?;
    if meta.kind != FileKind::File {
        return Err(io::ErrorKind::NotFound.into());
    }
    read(handle, meta, wait)
}

/// The beginning of an open file, as [`open`] reads it.
///
/// # Errors
/// That of pread(2).
pub(super) fn read(handle: FileHandle, meta: FileMeta, wait: DiskWait) -> io::Result<Option<RawCacheFile>> {
    let small = SMALL + HEAD;
    let first = if meta.size <= small { meta.size } else { HEAD };
    let mut bytes = Vec::new();
    if !fill(&handle, &mut bytes, first as usize, wait)? {
        return Ok(None);
    }
    if let Ok(length) = head::length(&bytes)
        && length > bytes.len()
        && length as u64 <= meta.size
        && !fill(&handle, &mut bytes, length, wait)?
    {
        return Ok(None);
    }
    Ok(Some(RawCacheFile { handle, meta, bytes }))
}

/// Reads on until there are `length` bytes, or the file ends; `false`: the disk would have to be waited for.
fn fill(handle: &FileHandle, bytes: &mut Vec<u8>, length: usize, wait: DiskWait) -> io::Result<bool> {
    let mut done = bytes.len();
    bytes.resize(length, 0);
    while done < length {
        let n = match wait {
            DiskWait::Allowed => handle.pread(&mut bytes[done..], done as u64)?,
            DiskWait::Refused => match handle.pread_cached(&mut bytes[done..], done as u64)? {
                None => return Ok(false),
                Some(n) => n,
            },
        };
        if n == 0 {
            break;
        }
        done += n;
    }
    bytes.truncate(done);
    Ok(true)
}

/// What the file says.
///
/// # Errors
/// It is not a response.
pub(super) fn parse(raw: &RawCacheFile) -> Result<ParsedCacheFile, BadCacheHead> {
    let head = head::parse(&raw.bytes)?;
    let start = head.len();
    if raw.meta.size != (start as u64).saturating_add(head.body) {
        return Err(BadCacheHead::Damaged);
    }
    let line = memchr::memmem::find(head.head, b"\r\n").ok_or(BadCacheHead::Damaged)?;
    let limits = HeadLimits::new(head::MOST, head::MOST, FIELDS);
    let mut fields = ResponseHead::default();
    let rest = &head.head[line + 2..];
    if fields.parse_fields(rest, &limits) != Ok(HeadParse::Complete) || fields.len != rest.len() {
        return Err(BadCacheHead::Damaged);
    }
    // A response to HEAD has a length and no body. Any other whose body is not of the length that it announces would leave
    // its client waiting, or send what no head announces.
    if head.body > 0 && fields.content_length.is_some_and(|announced| announced != head.body) {
        return Err(BadCacheHead::Damaged);
    }
    let moved = |span: Span| Span { start: span.start + line as u32 + 2, end: span.end + line as u32 + 2 };
    let moved = |field: &Field| Field { name: moved(field.name), value: moved(field.value), ..*field };
    let length = usize::try_from(head.body).unwrap_or(usize::MAX);
    let body = raw.bytes.get(start..).filter(|body| body.len() == length && length as u64 <= SMALL);
    if body.is_some_and(|body| crc32fast::hash(body) != head.body_sum) {
        return Err(BadCacheHead::Body);
    }
    Ok(ParsedCacheFile {
        times: head.times,
        status: head.status,
        key: head.key.to_vec(),
        vary: head.vary.to_vec(),
        variant: head.variant,
        text: head.head.to_vec(),
        reason: Span { start: 0, end: line as u32 },
        fields: fields.fields.iter().map(moved).collect(),
        content_length: fields.content_length,
        start: start as u64,
        length: head.body,
        body: body.map(<[u8]>::to_vec),
        sum: head.body_sum,
    })
}

/// What is read at first of a file that is too long to be read whole: heads are hardly ever longer.
const HEAD: u64 = 16 * 1024;
/// Fields of a response that was taken from a server, whose number was bounded there.
const FIELDS: usize = 10_000;
