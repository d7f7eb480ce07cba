//! Responses in a worker's memory: the heads, and the bodies of small ones.
//!
//! What is here is served without a lock and without reading the file; but once in each turn of the loop the file
//! system is asked whether the file is still the one that was read, as it is for files that are served: who
//! removes or replaces it by hand is heard at once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::{Field, KnownField, Span};
use weir_rt::HeldMemory;
use weir_rt::file::FileMeta;

use super::body;
use super::head::{BadCacheHead, CacheTimes};
use super::index::{CacheEntry, CacheIndex};
use super::key::CacheKey;
use super::read::{self, ParsedCacheFile, RawCacheFile};
use super::ticket::CacheTicket;
use weir_engine::body::BodyBuf;
use weir_engine::exchange::HeadMemo;
use weir_engine::file::OpenFile;

/// The responses of one cache that a worker has in memory.
#[derive(Default)]
pub(crate) struct HotCache {
    /// Those asked for lately, and those asked for before: when the first are many, they become the second.
    young: RefCell<HotTable>,
    old: RefCell<HotTable>,
    bytes: Cell<usize>,
    old_bytes: Cell<usize>,
    /// The large file that was opened last: requests of one turn share it.
    opened: RefCell<Option<OpenedBody>>,
}

/// A large file that was opened.
struct OpenedBody {
    /// In which turn of the loop.
    epoch: u64,
    /// What it is the body of.
    response: Rc<CachedResponse>,
    file: Rc<OpenFile>,
}

type HotTable = HashMap<Box<[u8]>, Rc<CachedResponse>, BuildHasherDefault<KeyFold>>;

/// A cached response.
pub(crate) struct CachedResponse {
    /// When it may be used.
    pub times: CacheTimes,
    /// The status code.
    pub status: u16,
    /// The lines of its head, the first of which is status and reason.
    pub text: Box<[u8]>,
    /// Status and reason in it.
    pub reason: Span,
    /// The fields; spans of the text.
    pub fields: Box<[Field]>,
    /// The length of the body that the server announced, in bytes; `None` if it announced none.
    pub content_length: Option<u64>,
    /// Bytes of the body.
    pub length: u64,
    /// The fields of requests that it depends on; empty for none.
    pub vary: Box<[u8]>,
    /// Which variant it is.
    pub variant: CacheKey,
    /// The body, where it is small.
    body: Option<Rc<[u8]>>,
    start: u64,
    path: Box<Path>,
    entry: Arc<CacheEntry>,
    meta: FileMeta,
    /// The turn in which the file was seen last.
    seen: Cell<u64>,
    modified: OnceCell<Option<i64>>,
    /// It was served so often, as far as that is counted.
    uses: Cell<u8>,
    memo: OnceCell<Rc<HeadMemo>>,
}

/// What came of looking into a file.
pub(crate) enum HotLookup {
    /// It is this response.
    Answer(Rc<CachedResponse>),
    /// It is absent.
    Nothing,
    /// There is something else.
    Bad(BadCacheHead),
    /// It is the response of another key with the same digest.
    Collision,
    /// It can't be read.
    Failed(io::Error),
}

impl HotCache {
    /// The response of the key `text` that is in memory and whose file is still there.
    #[inline]
    pub(crate) fn find(&self, text: &[u8]) -> Option<Rc<CachedResponse>> {
        let young = self.young.borrow().get(text).cloned();
        let response = match young {
            Some(response) => response,
            None => {
                let (text, response) = self.old.borrow_mut().remove_entry(text)?;
                self.put(text, response.clone());
                response
            }
        };
        if response.is_seen(self) {
            response.entry.touch(weir_rt::now_ms());
            return Some(response);
        }
        self.young.borrow_mut().remove(text);
        None
    }

    /// Caches a response in memory.
    fn put(&self, text: Box<[u8]>, response: Rc<CachedResponse>) {
        let weight = text.len() + response.weight();
        let mut young = self.young.borrow_mut();
        if self.bytes.get() + weight > BYTES {
            self.old.replace(std::mem::take(&mut *young));
            self.old_bytes.set(self.bytes.replace(0));
        }
        self.bytes.set(self.bytes.get() + weight);
        young.insert(text, response);
    }

    /// Looks into the file of `ticket`, whose key is `text`; `name` is what it is remembered by.
    pub(crate) async fn read(&self, ticket: &CacheTicket, text: &[u8], name: &[u8]) -> HotLookup {
        let path = ticket.file();
        let (raw, parsed) = match load(&path).await {
            Ok(loaded) => loaded,
            Err(looked) => return looked,
        };
        match parsed {
            Err(bad) => {
                body::remove(&path, &raw.meta, bad).await;
                HotLookup::Bad(bad)
            }
            Ok(parsed) if parsed.key != text => HotLookup::Collision,
            Ok(parsed) => {
                let meta = raw.meta;
                let raw = match body::checked(ticket, raw, &parsed).await {
                    Ok(Some(raw)) => raw,
                    Ok(None) => {
                        body::remove(&path, &meta, BadCacheHead::Body).await;
                        return HotLookup::Bad(BadCacheHead::Body);
                    }
                    Err(error) => return HotLookup::Failed(error),
                };
                let response = Rc::new(CachedResponse::new(parsed, &raw, &path, ticket));
                self.put(name.into(), response.clone());
                if response.body.is_none() {
                    let file = Rc::new(OpenFile::new(Rc::new(raw.handle), raw.meta));
                    self.opened.replace(Some(OpenedBody {
                        epoch: weir_rt::epoch(),
                        response: response.clone(),
                        file,
                    }));
                }
                HotLookup::Answer(response)
            }
        }
    }
}

/// The file at `path` and what it says, or why it can't be used.
async fn load(path: &Path) -> Result<(RawCacheFile, Result<ParsedCacheFile, BadCacheHead>), HotLookup> {
    let again = || {
        let path = path.to_path_buf();
        weir_rt::blocking(move || read::open(&path, read::DiskWait::Allowed))
    };
    let raw = match read::open(path, read::DiskWait::Refused) {
        Ok(None) => again().await,
        result => result,
    };
    let raw = raw.map_err(unread)?.ok_or(HotLookup::Nothing)?;
    match read::parse(&raw) {
        // Its times may have been written while they were read.
        Err(BadCacheHead::Damaged) => {
            let raw = again().await.map_err(unread)?.ok_or(HotLookup::Nothing)?;
            let parsed = read::parse(&raw);
            Ok((raw, parsed))
        }
        parsed => Ok((raw, parsed)),
    }
}

fn unread(error: io::Error) -> HotLookup {
    match error.raw_os_error() {
        Some(ENOENT | ENOTDIR) | None => HotLookup::Nothing,
        _ => HotLookup::Failed(error),
    }
}

impl CachedResponse {
    fn new(parsed: ParsedCacheFile, raw: &RawCacheFile, path: &Path, ticket: &CacheTicket) -> CachedResponse {
        CachedResponse {
            times: parsed.times,
            status: parsed.status,
            text: parsed.text.into(),
            reason: parsed.reason,
            fields: parsed.fields.into(),
            content_length: parsed.content_length,
            length: parsed.length,
            vary: parsed.vary.into(),
            variant: parsed.variant,
            body: parsed.body.map(Rc::from),
            start: parsed.start,
            path: path.into(),
            entry: ticket.entry().clone(),
            meta: raw.meta,
            seen: Cell::new(weir_rt::epoch()),
            modified: OnceCell::new(),
            uses: Cell::new(0),
            memo: OnceCell::new(),
        }
    }

    /// Bytes of the file.
    pub(crate) fn file_size(&self) -> u64 {
        self.meta.size
    }

    /// Bytes of memory, about.
    fn weight(&self) -> usize {
        let body = self.body.as_ref().map_or(0, |body| body.len());
        size_of::<CachedResponse>()
            + MEMO
            + 3 * self.text.len()
            + self.fields.len() * size_of::<Field>()
            + body
    }

    /// The fields, where the text begins at `base` of an arena.
    pub(crate) fn fields_at(&self, base: u32) -> impl Iterator<Item = Field> {
        let moved = move |span: Span| Span { start: span.start + base, end: span.end + base };
        self.fields.iter().map(move |field| Field {
            name: moved(field.name),
            value: moved(field.value),
            ..*field
        })
    }

    /// The value of a field.
    pub(crate) fn field(&self, known: KnownField) -> Option<&[u8]> {
        let field = self.fields.iter().find(|field| field.known == known)?;
        self.text.get(field.value.start as usize..field.value.end as usize)
    }

    /// `Last-Modified`, in seconds since 1970, where the status is one that validators are for.
    pub(crate) fn last_modified(&self) -> Option<i64> {
        let read = || weir_http::date::parse(self.field(KnownField::LastModified)?);
        *self.modified.get_or_init(|| if self.has_validators() { read() } else { None })
    }

    /// Where clients' heads are stored, once it has been served a few times; `None` before.
    #[inline]
    pub(crate) fn memo(&self) -> Option<&Rc<HeadMemo>> {
        if self.uses.get() < SELDOM {
            self.uses.set(self.uses.get() + 1);
            return None;
        }
        Some(self.memo.get_or_init(Rc::default))
    }

    /// `ETag`, likewise.
    pub(crate) fn etag(&self) -> Option<&[u8]> {
        if self.has_validators() { self.field(KnownField::Etag) } else { None }
    }

    fn has_validators(&self) -> bool {
        matches!(self.status, 200 | 206)
    }

    /// Whether the file is there, and is the one that was read; asked once a turn.
    fn is_seen(self: &Rc<Self>, hot: &HotCache) -> bool {
        let epoch = weir_rt::epoch();
        if self.seen.get() == epoch {
            return true;
        }
        if self.body.is_none() {
            return self.open(hot, epoch).is_some();
        }
        let same = weir_rt::file::stat(&self.path).is_ok_and(|meta| self.is_same(&meta));
        if same {
            self.seen.set(epoch);
        }
        same
    }

    fn is_same(&self, meta: &FileMeta) -> bool {
        let of = |meta: &FileMeta| (meta.ino, meta.dev, meta.size, meta.mtime_s, meta.mtime_ns);
        of(meta) == of(&self.meta)
    }

    /// The file, if it is still the one that was read.
    fn open(self: &Rc<Self>, hot: &HotCache, epoch: u64) -> Option<Rc<OpenFile>> {
        if let Some(OpenedBody { epoch: when, response, file }) = &*hot.opened.borrow()
            && *when == epoch
            && Rc::ptr_eq(response, self)
        {
            return Some(file.clone());
        }
        let handle = weir_rt::file::open(&self.path).ok()?;
        let meta = handle.meta().ok()?;
        if !self.is_same(&meta) {
            return None;
        }
        self.seen.set(epoch);
        let file = Rc::new(OpenFile::new(Rc::new(handle), meta));
        hot.opened.replace(Some(OpenedBody { epoch, response: self.clone(), file: file.clone() }));
        Some(file)
    }

    /// The body. `None`: its file has gone meanwhile.
    pub(crate) fn body(self: &Rc<Self>, hot: &HotCache) -> Option<BodyBuf> {
        match &self.body {
            Some(body) => Some(BodyBuf::shared(body.clone())),
            None => {
                let file = self.open(hot, weir_rt::epoch())?;
                Some(BodyBuf::File { file, offset: self.start, len: self.length })
            }
        }
    }
}

/// Hashes keys, which clients choose.
#[derive(Default)]
struct KeyFold(u64);

impl Hasher for KeyFold {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = weir_engine::file::hash(bytes);
    }

    /// The length, which the bytes' own hash has in it.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The caches of one worker.
#[derive(Default)]
pub(crate) struct HotCaches(RefCell<Vec<(Arc<CacheIndex>, Rc<HotCache>)>>);

impl HotCaches {
    /// What this worker has of `cache` in memory.
    pub(crate) fn of(&self, cache: &Arc<CacheIndex>) -> Rc<HotCache> {
        let mut all = self.0.borrow_mut();
        if let Some((_, hot)) = all.iter().find(|(known, _)| Arc::ptr_eq(known, cache)) {
            return hot.clone();
        }
        let hot = Rc::new(HotCache::default());
        all.push((cache.clone(), hot.clone()));
        hot
    }

    /// The responses, and their bytes as they are counted against the limit.
    pub(crate) fn held(&self) -> HeldMemory {
        let mut held = HeldMemory::default();
        for (_, hot) in &*self.0.borrow() {
            let count = hot.young.borrow().len() + hot.old.borrow().len();
            held += HeldMemory::new(count, hot.bytes.get() + hot.old_bytes.get());
        }
        held
    }

    /// Lets go of caches that no configuration has any more.
    pub(crate) fn switched(&self) {
        // Its keeper and other workers may hold one a little longer: it goes with a later reload then.
        self.0.borrow_mut().retain(|(_, hot)| Rc::strong_count(hot) > 1);
    }
}

const ENOENT: i32 = weir_rt::file::errno::ENOENT;
const ENOTDIR: i32 = weir_rt::file::errno::ENOTDIR;
/// A response that was served so often gets its head stored.
const SELDOM: u8 = 2;
/// Bytes of what is stored with such a head besides its texts, about.
const MEMO: usize = 512;
/// Memory that young responses may take before they become old; both together take twice that.
const BYTES: usize = 16 << 20;
