//! Responses whose head is known before it is made: whole files, for plain requests.
//!
//! A request is plain if nothing was said of its response before the file was found, it has no body, neither conditions nor
//! `Range`, and all header filters of its location are [fixed](crate::filter::HeaderFilter::is_fixed). The head of a whole
//! file then follows from the location, the file's length and date, the extension of the URI (of which the type is
//! made) and whether the connection stays. Once it was composed for one request it is stored with these, and others
//! get it without filters. What is in `x.response` is the same both ways, for logs and scripts.

use std::rc::Rc;

use weir_http::h1::KnownFieldSet;
use weir_http::{KnownField, Method, Version};

use super::{HeadFacts, index};
use crate::exchange::{Exchange, ReadyHead};
use crate::open_file::OpenFile;
use crate::plan::Plan;
use crate::transport::{ClientStream, Transport, keepalive};

impl Exchange {
    /// Makes `x.response` the head of a 200 with all of `file`, as its header filters will leave it. `false`: it is not known
    /// what it will be; the caller describes the file and the filters are asked.
    #[inline]
    pub fn recall_file(&mut self, file: &OpenFile) -> bool {
        let over_http2 = match &self.transport {
            Transport::H1(_) => false,
            Transport::Stream(ClientStream::H2(_)) => true,
            _ => return false,
        };
        is_plain(self) && recall(self, file, over_http2)
    }
}

/// Whether the head of a whole file, or of another response that is the same each time, is the same for all requests like
/// that of `x`.
#[inline]
pub(super) fn is_plain(x: &Exchange) -> bool {
    asks_plainly(x) && x.response.is_untouched()
}

/// [`is_plain`], as far as it depends on the request and its location.
#[inline]
pub(crate) fn asks_plainly(x: &Exchange) -> bool {
    let head = &x.request.head;
    x.plan.has_fixed_filters
        && head.method == Method::Get
        && head.version != Version::V09
        && !head.may_have(DECIDING)
        && !x.is_subrequest()
        && !x.unfiltered
        && !x.unmatched.get()
        && !x.body.is_pending()
}

fn recall(x: &mut Exchange, file: &OpenFile, over_http2: bool) -> bool {
    // As it will be when the response is sent.
    x.keep_alive = x.keep_alive && keepalive::possible(x);
    let Exchange { server, plan, arena, request, response, keep_alive, .. } = x;
    response.ready = ReadyHead::Alike;
    let heads = server.caches.heads.borrow();
    let at = index(200, Some(file.mtime()), file.size());
    let known = if over_http2 {
        heads.numbered.get(at).and_then(Option::as_ref).map(|head| (&head.facts, head.number))
    } else {
        heads.composed.get(at).and_then(Option::as_ref).map(|head| (&head.facts, head.number))
    };
    match known {
        Some((facts, number)) if facts.is_of(plan, file, *keep_alive, arena.get(request.exten)) => {
            response.status = 200;
            response.content_length = Some(facts.length);
            response.last_modified = facts.modified;
            response.content_type = Some(facts.kind.clone());
            response.headers.extend_from_slice(&facts.fields);
            (response.allow_ranges, response.header_only) = (true, false);
            response.ready = ReadyHead::Known(number);
            true
        }
        _ => false,
    }
}

/// Appends the head of `x.response` if that is [known](ReadyHead::Known) and still stored.
#[inline]
pub(super) fn write(x: &Exchange, out: &mut Vec<u8>) -> bool {
    let response = &x.response;
    let (ReadyHead::Known(number), Some(length)) = (response.ready, response.content_length) else {
        return false;
    };
    let heads = x.server.caches.heads.borrow();
    match heads.composed.get(index(response.status, response.last_modified, length)) {
        Some(Some(head)) if head.number == number => {
            head.write(x, out);
            true
        }
        _ => false,
    }
}

impl HeadFacts {
    /// Whether this is the head of `file` under a URI with the extension `exten`, for plain requests.
    #[inline]
    fn is_of(&self, plan: &Rc<Plan>, file: &OpenFile, keep_alive: bool, exten: &[u8]) -> bool {
        Rc::ptr_eq(&self.plan, plan)
            && (self.length, self.modified) == (file.size(), Some(file.mtime()))
            && (self.status, self.keep_alive) == (200, keep_alive)
            && self.file.as_deref() == Some(exten)
    }

    /// The response of `x` has this head: that of a whole file is known next time.
    #[inline]
    pub(super) fn learn(&mut self, x: &Exchange) {
        if x.response.ready == ReadyHead::Alike {
            self.file = extension(x);
        }
    }
}

/// The extension of the URI where the response is a whole file's to a plain request; `None` of any other.
pub(super) fn extension(x: &Exchange) -> Option<Box<[u8]>> {
    let exten = x.arena.get(x.request.exten);
    (x.response.ready == ReadyHead::Alike && exten.len() <= LONGEST).then(|| exten.into())
}

/// The fields of requests that decide what is sent of a file.
const DECIDING: KnownFieldSet = KnownFieldSet::of(&[
    KnownField::IfMatch,
    KnownField::IfNoneMatch,
    KnownField::IfModifiedSince,
    KnownField::IfUnmodifiedSince,
    KnownField::IfRange,
    KnownField::Range,
]);
/// Bytes of an extension that is stored.
const LONGEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text;
    use crate::file::tests::Folder;
    use crate::open_file::{FoundPath, open};
    use crate::testing;
    use crate::transport::{encode, heads};
    use weir_rt::file::SymlinkPolicy;

    fn file(directory: &Folder, text: &str) -> Rc<OpenFile> {
        directory.replace("f", text);
        match open(directory.path("f").as_bytes(), SymlinkPolicy::Follow) {
            Ok(FoundPath::File(file)) => file,
            other => panic!("{other:?}"),
        }
    }

    /// Sends `file`: whether its head was known, what it is, and its number in HTTP/2.
    fn sent(x: &mut Exchange, file: &OpenFile, over_http2: bool) -> (bool, String, u32) {
        x.response.clear();
        let known = is_plain(x) && recall(x, file, over_http2);
        if !known {
            x.response.status = 200;
            x.response.content_length = Some(file.size());
            x.response.last_modified = Some(file.mtime());
            x.response.add(KnownField::Etag, Text::Shared(file.etag()));
            x.set_content_type();
            x.response.add(KnownField::AcceptRanges, "bytes");
            x.response.add_named("X-Name".into(), "value".into());
        }
        let (mut head, mut composed) = (Vec::new(), Vec::new());
        encode::head(x, &mut composed);
        let number = if over_http2 { heads::number(x) } else { 0 };
        if !over_http2 {
            heads::head(x, &mut head);
            assert_eq!(head.escape_ascii().to_string(), composed.escape_ascii().to_string());
        }
        (known, composed.escape_ascii().to_string(), number)
    }

    #[test]
    fn a_known_head_is_the_one_that_filters_would_leave() {
        let directory = Folder::new();
        for over_http2 in [false, true] {
            testing::run("server { }", "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
                let (first, other) = (file(&directory, "hello"), file(&directory, "hello!"));
                let mut numbers = Vec::new();
                for (change, file, name) in [
                    ((|_| {}) as fn(&mut Exchange), &first, "the first"),
                    (|_| {}, &other, "another length"),
                    (|x| x.keep_alive = !x.keep_alive, &other, "keep-alive"),
                    (|x| x.request.exten = crate::Span::default(), &other, "another extension"),
                ] {
                    change(x);
                    let (known, head, number) = sent(x, file, over_http2);
                    assert!(!known, "{name}");
                    assert_eq!(sent(x, file, over_http2), (true, head.clone(), number), "{name}");
                    assert_eq!(sent(x, file, over_http2), (true, head.clone(), number), "{name}");
                    let same = numbers.iter().all(|(n, of)| !over_http2 || (*n == number) == (*of == head));
                    assert!(same, "{name}: one number for each head");
                    numbers.push((number, head));
                }
            });
        }
    }

    #[test]
    fn only_plain_requests_have_known_heads() {
        for (line, plain) in [
            ("Accept: */*", true),
            ("If-None-Match: *", false),
            ("If-Match: *", false),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", false),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", false),
            ("Range: bytes=0-", false),
            ("If-Range: \"a\"", false),
        ] {
            let head = |method| format!("{method} /a.txt HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
            testing::run("server { }", &head("GET"), async |x| assert_eq!(is_plain(x), plain, "{line}"));
            testing::run("server { }", &head("HEAD"), async |x| assert!(!is_plain(x)));
        }
        let touches: [fn(&mut Exchange); 9] = [
            |x| x.response.status = 201,
            |x| x.response.err_status = 404,
            |x| x.response.add(KnownField::CacheControl, "no-store"),
            |x| x.response.content_type = Some("text/x".into()),
            |x| x.response.charset = Some("utf-8".into()),
            |x| x.response.vary_encoding = true,
            |x| x.response.expect_trailers = true,
            |x| x.unfiltered = true,
            |x| x.unmatched.set(true),
        ];
        for (at, touch) in touches.into_iter().enumerate() {
            testing::run("server { }", "GET / HTTP/1.0\r\n\r\n", async |x| {
                assert!(is_plain(x));
                touch(x);
                assert!(!is_plain(x), "{at}");
            });
        }
    }
}
