//! The response to a head that came before, where it follows from that head, the location and a file.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use weir_rt::file::SymlinkPolicy;
use weir_trace::{RequestRecord, Site, TapePattern};

use super::known_pass::{KnownPass, KnownScope};
use super::response::{Response, ResponseHeader};
use crate::body::BodyBuf;
use crate::open_file::{FileCache, FileStore, FoundPath, OpenFile};
use crate::text::Text;
use crate::worker::Worker;

/// What is known of a request's response because its head came before.
#[derive(Default)]
pub(crate) enum KnownCourse {
    /// Nothing.
    #[default]
    Open,
    /// Nothing yet: if the response turns out to follow from the head it is to be stored with it.
    Wanted,
    /// Nothing yet; the response follows from the head as long as this source is there.
    Sourced(Rc<dyn ResponseSource>),
    /// It will be this one, unless the file has changed.
    Response(Rc<KnownResponse>),
}

/// What a response was made of that may change or go at any time. It is asked for each request.
pub trait ResponseSource {
    /// The body of the response; `None` if another one is to be made.
    fn body(&self) -> Option<BodyBuf>;
}

/// Where the response to a head is stored, beside that head.
pub(crate) enum ResponsePlace {
    /// It is not known; it is looked at whether it could be once the head has come `times` times more, and if not, once it has come
    /// `after` times after that.
    Unknown { times: u8, after: u8 },
    /// It is this one.
    Known(Rc<KnownResponse>),
    /// It is not known, but where it comes from is.
    Passed(Rc<KnownPass>),
}

impl Default for ResponsePlace {
    fn default() -> ResponsePlace {
        ResponsePlace::Unknown { times: 0, after: 1 }
    }
}

impl ResponsePlace {
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, ResponsePlace::Known(_))
    }

    /// What is known of the response to the next request with the head of this place.
    #[inline]
    pub(crate) fn course(&mut self) -> KnownCourse {
        match self {
            ResponsePlace::Known(response) => KnownCourse::Response(response.clone()),
            ResponsePlace::Passed(_) => KnownCourse::Open,
            ResponsePlace::Unknown { times: times @ 1.., .. } => {
                *times -= 1;
                KnownCourse::Open
            }
            ResponsePlace::Unknown { times, after } => {
                (*times, *after) = (*after, (2 * *after + 1).min(LATEST));
                KnownCourse::Wanted
            }
        }
    }
}

/// The responses to the header sections that came last on connections of HTTP/2. That of a connection has the place that its
/// number leads to.
#[derive(Default)]
pub(crate) struct SectionResponses(RefCell<Vec<SectionPlace>>);

/// The response to a section.
#[derive(Default)]
struct SectionPlace {
    /// Its connection's number.
    connection: u64,
    /// Its own on that connection; 0 is that of none.
    section: u64,
    response: ResponsePlace,
}

impl SectionResponses {
    /// How many there are.
    pub(crate) fn responses(&self) -> usize {
        self.0.borrow().iter().filter(|place| place.response.is_known()).count()
    }

    /// The response to this section, if it is known.
    #[inline]
    pub(crate) fn find(&self, connection: u64, section: u64) -> Option<Rc<KnownResponse>> {
        let places = self.0.borrow();
        let place = places.get(connection as usize % SECTIONS)?;
        match &place.response {
            ResponsePlace::Known(response) if (place.connection, place.section) == (connection, section) => {
                Some(response.clone())
            }
            _ => None,
        }
    }

    /// What is known of the response to a request with this section. One that has not come before it is not looked at.
    pub(crate) fn course(&self, connection: u64, section: u64) -> KnownCourse {
        let mut places = self.0.borrow_mut();
        if places.is_empty() {
            places.resize_with(SECTIONS, SectionPlace::default);
        }
        let place = &mut places[connection as usize % SECTIONS];
        if (place.connection, place.section) != (connection, section) {
            *place = SectionPlace { connection, section, response: ResponsePlace::default() };
            return KnownCourse::Open;
        }
        place.response.course()
    }

    /// Stores the response to the section of this connection that was looked at last.
    pub(crate) fn keep(&self, connection: u64, response: KnownResponse) {
        if let Some(place) = self.0.borrow_mut().get_mut(connection as usize % SECTIONS) {
            place.response = ResponsePlace::Known(Rc::new(response));
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.0.replace(Vec::new());
    }
}

/// A response that is stored with the head it is the response to. Nothing is invalidated when files change: they are looked
/// at for each request, as always.
pub(crate) struct KnownResponse {
    pub(crate) scope: KnownScope,
    /// The handler that made it.
    pub(crate) maker: Site,
    pub(crate) keep_alive: bool,
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) length: u64,
    pub(crate) body: KnownBody,
    /// Handlers of the log phase see it.
    pub(crate) is_logged: bool,
    pub(crate) head: KnownHeadForm,
    /// Whether it follows from the head before that is made a request.
    pub(crate) at_sight: bool,
    /// The request's record, but for what differs by request.
    pub(crate) record: RequestRecord,
    /// What logs say of it.
    pub(crate) fields: KnownFields,
    /// What it leaves on its tape; `None`: of the request it was made for nothing was recorded.
    pub(crate) pattern: Option<TapePattern>,
}

/// How the head of a [`KnownResponse`] is written.
pub(crate) enum KnownHeadForm {
    /// In HTTP/1.
    Dated(DatedHead),
    /// In HTTP/2: its number among the heads of the worker.
    Numbered(u32),
}

/// The bytes of a head, with the date of a second.
pub(crate) struct DatedHead {
    bytes: RefCell<Vec<u8>>,
    /// Where the line of the date begins.
    date: usize,
    /// Seconds since 1970 of the date.
    second: Cell<i64>,
}

impl DatedHead {
    /// The head that was just composed as `bytes`; `None` if its date is not the worker's.
    pub(crate) fn new(worker: &Worker, bytes: Vec<u8>) -> Option<DatedHead> {
        worker.dates(|dates| {
            let date = bytes.windows(dates.line().len()).position(|window| window == dates.line())?;
            Some(DatedHead { bytes: RefCell::new(bytes), date, second: Cell::new(dates.seconds()) })
        })
    }

    /// Appends it, with the date of now, and `body`; the length of the head.
    #[inline]
    pub(crate) fn write(&self, worker: &Worker, out: &mut Vec<u8>, body: &[u8]) -> u64 {
        worker.dates(|dates| {
            if dates.seconds() != self.second.get() {
                self.second.set(dates.seconds());
                let line = dates.line();
                self.bytes.borrow_mut()[self.date..self.date + line.len()].copy_from_slice(line);
            }
        });
        let head = self.bytes.borrow();
        out.reserve(head.len() + body.len());
        out.extend_from_slice(&head);
        out.extend_from_slice(body);
        head.len() as u64
    }
}

/// The head of a [`KnownResponse`], for callers that ask for it after it was sent.
pub(crate) struct KnownFields {
    pub(crate) modified: Option<i64>,
    pub(crate) kind: Option<Text>,
    pub(crate) charset: Option<Text>,
    pub(crate) vary_encoding: bool,
    pub(crate) headers: Box<[ResponseHeader]>,
}

impl KnownFields {
    /// Puts them into `response`.
    pub(crate) fn describe(&self, response: &mut Response) {
        response.last_modified = self.modified;
        response.content_type = self.kind.clone();
        response.charset = self.charset.clone();
        response.vary_encoding = self.vary_encoding;
        response.headers.extend_from_slice(&self.headers);
    }
}

/// The body of a [`KnownResponse`].
pub(crate) enum KnownBody {
    /// There is none.
    Empty,
    /// A constant.
    Constant(BodyBuf),
    /// All of a file.
    File(Rc<KnownFile>),
    /// What this source gives.
    Source(Rc<dyn ResponseSource>),
}

/// A file as it was when its response was stored.
pub(crate) struct KnownFile {
    path: Box<[u8]>,
    size: u64,
    mtime: i64,
    /// The turn of the loop in which it was looked at last, and the file then.
    epoch: Cell<u64>,
    file: RefCell<Weak<OpenFile>>,
}

impl KnownFile {
    pub(crate) fn new(path: &[u8], file: &OpenFile) -> KnownFile {
        KnownFile {
            path: path.into(),
            size: file.size(),
            mtime: file.mtime(),
            epoch: Cell::new(0),
            file: RefCell::default(),
        }
    }

    /// The file as it was seen in this turn of the loop already; `None` if it was not.
    #[inline]
    pub(crate) fn seen(&self) -> Option<Rc<OpenFile>> {
        if self.epoch.get() == weir_rt::epoch() { self.file.borrow().upgrade() } else { None }
    }

    /// Whether this is all of `file`, which is at `path`.
    pub(crate) fn is(&self, path: &[u8], file: &OpenFile) -> bool {
        (&*self.path, self.size, self.mtime) == (path, file.size(), file.mtime())
    }

    /// The file as it is now, or as `cache` has it; `None` if it is not what it was, or not there.
    #[inline(never)]
    pub(crate) fn look(&self, files: &FileStore, cache: Option<&FileCache>) -> Option<Rc<OpenFile>> {
        match files.lookup(&self.path, cache, SymlinkPolicy::Follow) {
            Ok(FoundPath::File(file)) if (file.size(), file.mtime()) == (self.size, self.mtime) => {
                if cache.is_none() {
                    self.epoch.set(weir_rt::epoch());
                    self.file.replace(Rc::downgrade(&file));
                }
                Some(file)
            }
            _ => None,
        }
    }
}

/// Sections whose responses a worker keeps.
const SECTIONS: usize = 32;
/// A response that never followed from its head is looked at once in so many with that head.
const LATEST: u8 = 127;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_head_has_the_date_of_now_each_time() {
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            let line = x.worker.dates(|dates| *dates.line());
            let bytes = [b"HTTP/1.1 200 OK\r\n", &line[..], b"A: b\r\n\r\n"].concat();
            let head = DatedHead::new(&x.worker, bytes.clone()).expect("it has the date");
            let mut out = b"before ".to_vec();
            // A second passes while it is looked at now and then.
            for second in [None, Some(784_111_777)] {
                if let Some(second) = second {
                    head.second.set(second);
                    head.bytes.borrow_mut()[head.date..][..line.len()].fill(b'x');
                }
                out.truncate(7);
                assert_eq!(head.write(&x.worker, &mut out, b"body"), bytes.len() as u64);
                let now = x.worker.dates(|dates| *dates.line());
                let expected = [b"before HTTP/1.1 200 OK\r\n", &now[..], b"A: b\r\n\r\nbody"].concat();
                assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
            }
            assert!(DatedHead::new(&x.worker, b"HTTP/1.1 200 OK\r\n\r\n".to_vec()).is_none());
        });
    }
}
