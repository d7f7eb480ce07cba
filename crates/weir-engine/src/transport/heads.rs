//! Heads of responses that were composed before: those of one file differ in their date alone.
//!
//! A worker keeps [`PLACES`] of them, as HTTP/1 has them; of those of HTTP/2, which each connection writes differently, it keeps
//! what they are made of, and gives it a number. Nothing is invalidated: a head is used again only where everything that it was
//! made of is the same, compared as a few integers and short texts, which is a fifth of the instructions of composing
//! it (measured: 150 against 720). That of a whole file may be known before it is made: [`ready`], and that of a
//! response that comes again [`memo`].

mod memo;
pub(crate) mod ready;

use std::rc::Rc;

use weir_http::{KnownField, Version};

use super::encode;
use crate::exchange::{Exchange, HeaderName, ReadyHead, Response, ResponseHeader};
use crate::plan::Plan;
use crate::text::Text;

/// The heads that one worker keeps.
#[derive(Default)]
pub(crate) struct HeadCache {
    composed: Vec<Option<Box<ComposedHead>>>,
    numbered: Vec<Option<Box<NumberedHead>>>,
    /// The last number that was given.
    last: u32,
}

/// A head of HTTP/2.
struct NumberedHead {
    facts: HeadFacts,
    number: u32,
}

/// A head of HTTP/1.
struct ComposedHead {
    facts: HeadFacts,
    number: u32,
    /// Up to the date.
    before: Box<[u8]>,
    /// After the date.
    after: Box<[u8]>,
}

/// What a head is made of.
struct HeadFacts {
    /// Also identifies the server, whose name and settings are in the head.
    plan: Rc<Plan>,
    status: u16,
    length: u64,
    modified: Option<i64>,
    keep_alive: bool,
    vary_encoding: bool,
    kind: Text,
    fields: Box<[ResponseHeader]>,
    /// The extension of the URIs whose whole file has this head for all plain requests; `None` of any other head.
    file: Option<Box<[u8]>>,
}

impl HeadCache {
    /// Forgets all: they hold plans, which end with their configuration.
    pub(crate) fn clear(&mut self) {
        self.composed.clear();
        self.numbered.clear();
    }
}

/// Appends the head of `x.response`, from memory where it was composed before.
pub(crate) fn head(x: &Exchange, out: &mut Vec<u8>) {
    if memo::write(x, out) || ready::write(x, out) {
        return;
    }
    let Some(length) = plain(x) else { return encode::head(x, out) };
    let mut heads = x.server.caches.heads.borrow_mut();
    let HeadCache { composed, last, .. } = &mut *heads;
    let place = place(composed, &x.response, length);
    if let Some(head) = place
        && head.facts.fits(x, length)
    {
        head.facts.learn(x);
        return head.write(x, out);
    }
    let start = out.len();
    encode::head(x, out);
    *place = keep(x, length, another(last), &out[start..]);
}

/// A number for the head of `x.response`: the same for those that differ in nothing but their date, 0 for one that is made of
/// more than [`HeadFacts`] has.
pub(crate) fn number(x: &Exchange) -> u32 {
    if let ReadyHead::Known(number) = x.response.ready {
        return number;
    }
    if let Some(number) = memo::number(x) {
        return number;
    }
    let Some(length) = plain(x) else { return 0 };
    let mut heads = x.server.caches.heads.borrow_mut();
    let HeadCache { numbered, last, .. } = &mut *heads;
    let place = place(numbered, &x.response, length);
    if let Some(known) = place
        && known.facts.fits(x, length)
    {
        known.facts.learn(x);
        return known.number;
    }
    let number = another(last);
    *place = HeadFacts::of(x, length).map(|facts| Box::new(NumberedHead { facts, number }));
    number
}

/// A number that no head has had.
fn another(last: &mut u32) -> u32 {
    *last = last.wrapping_add(1).max(1);
    *last
}

/// Where a head like that of `response` is, if it is cached.
#[inline]
fn place<'p, T>(places: &'p mut Vec<Option<T>>, response: &Response, length: u64) -> &'p mut Option<T> {
    if places.is_empty() {
        places.resize_with(PLACES, || None);
    }
    &mut places[index(response.status, response.last_modified, length)]
}

#[inline]
fn index(status: u16, modified: Option<i64>, length: u64) -> usize {
    let mixed = length ^ modified.unwrap_or(0) as u64 ^ u64::from(status) << 7;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

/// The length of a response whose head is made of nothing but what [`ComposedHead`] has.
#[inline]
fn plain(x: &Exchange) -> Option<u64> {
    let Response { reason, charset, location, server, date, headers, .. } = &x.response;
    let rare = [reason, charset, location, server, date];
    // Of fields by other names many have a value of their own in each response, but for those of files.
    let of_file = matches!(x.response.ready, ReadyHead::Alike | ReadyHead::Known(_));
    let known = |name: &HeaderName| match name {
        HeaderName::Known(known) => *known != KnownField::Connection,
        HeaderName::Written(known, _) => of_file && *known != KnownField::Connection,
        HeaderName::Other(_) => of_file,
    };
    let plain = rare.iter().all(|text| text.is_none())
        && !x.response.chunked
        && !x.response.not_modified
        && x.response.status != 101
        && x.response.content_type.is_some()
        && x.request.head.version != Version::V09
        && headers.len() <= if of_file { FILE_FIELDS } else { FIELDS }
        && headers.iter().all(|header| known(&header.name));
    if plain { x.response.content_length } else { None }
}

impl ComposedHead {
    #[inline]
    fn write(&self, x: &Exchange, out: &mut Vec<u8>) {
        dated(x, &self.before, &self.after, out);
    }
}

/// Appends `before`, the date and `after`.
#[inline]
fn dated(x: &Exchange, before: &[u8], after: &[u8], out: &mut Vec<u8>) {
    out.reserve(before.len() + after.len() + DATE);
    out.extend_from_slice(before);
    x.worker.dates(|dates| out.extend_from_slice(dates.line()));
    out.extend_from_slice(after);
}

impl HeadFacts {
    #[inline]
    fn fits(&self, x: &Exchange, length: u64) -> bool {
        let response = &x.response;
        // Mostly they are the very same bytes: constants, or of the file that is still open.
        let same = |text: &Text, kept: &Text| {
            let (text, kept) = (x.text(text), kept.bytes(&x.arena));
            std::ptr::eq(text, kept) || text == kept
        };
        let is = |header: &ResponseHeader, known: &ResponseHeader| {
            let named = match (&header.name, &known.name) {
                (HeaderName::Known(name), HeaderName::Known(known)) => name == known,
                (name, known) => name.bytes(&x.arena) == known.bytes(&x.arena),
            };
            named && same(&header.value, &known.value)
        };
        Rc::ptr_eq(&self.plan, &x.plan)
            && (self.status, self.length) == (response.status, length)
            && (self.modified, self.keep_alive) == (response.last_modified, x.keep_alive)
            && self.vary_encoding == response.vary_encoding
            && response.content_type.as_ref().is_some_and(|kind| same(kind, &self.kind))
            && response.headers.len() == self.fields.len()
            && std::iter::zip(&response.headers, &self.fields).all(|(header, field)| is(header, field))
    }

    fn of(x: &Exchange, length: u64) -> Option<HeadFacts> {
        if x.server.is_retired() {
            return None;
        }
        let response = &x.response;
        Some(HeadFacts {
            plan: x.plan.clone(),
            status: response.status,
            length,
            modified: response.last_modified,
            keep_alive: x.keep_alive,
            vary_encoding: response.vary_encoding,
            kind: lasting(x, response.content_type.as_ref()?),
            fields: lasting_fields(x),
            file: ready::extension(x),
        })
    }
}

/// A text that outlives the request: what lies in its arena goes with it.
pub(crate) fn lasting(x: &Exchange, text: &Text) -> Text {
    match text {
        Text::Span(span) => Text::shared(x.arena.get(*span)),
        constant => constant.clone(),
    }
}

pub(crate) fn lasting_fields(x: &Exchange) -> Box<[ResponseHeader]> {
    let name = |name: &HeaderName| match name {
        HeaderName::Known(known) => HeaderName::Known(*known),
        HeaderName::Written(known, text) => HeaderName::Written(*known, lasting(x, text)),
        HeaderName::Other(text) => HeaderName::Other(lasting(x, text)),
    };
    let field = |header: &ResponseHeader| ResponseHeader {
        name: name(&header.name),
        value: lasting(x, &header.value),
    };
    x.response.headers.iter().map(field).collect()
}

/// `bytes`, which were just composed, up to their date and after it; the date is where `encode` writes it.
fn around_date<'b>(x: &Exchange, bytes: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = x.worker.dates(|dates| bytes.windows(DATE).position(|window| window == dates.line()))?;
    Some((bytes.get(..at)?, bytes.get(at + DATE..)?))
}

/// What is to be cached of `bytes`, which were just composed.
fn keep(x: &Exchange, length: u64, number: u32, bytes: &[u8]) -> Option<Box<ComposedHead>> {
    let (before, after) = around_date(x, bytes)?;
    let facts = HeadFacts::of(x, length)?;
    Some(Box::new(ComposedHead { facts, number, before: before.into(), after: after.into() }))
}

/// Bytes of the line `Date: ...`.
const DATE: usize = 37;
/// Heads cached by a worker: 40 KB at most, where the files served in a while are more than that the oldest go.
const PLACES: usize = 64;
/// Fields besides the typed ones that such a head may have.
const FIELDS: usize = 4;
/// ... and that of a whole file, where all are constants of the location but the validators.
const FILE_FIELDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn composed(x: &Exchange) -> String {
        assert_eq!(number(x), number(x));
        let (mut kept, mut fresh) = (Vec::new(), Vec::new());
        head(x, &mut kept);
        encode::head(x, &mut fresh);
        assert_eq!(kept.escape_ascii().to_string(), fresh.escape_ascii().to_string());
        String::from_utf8(kept).expect("heads are ASCII")
    }

    #[test]
    fn a_kept_head_is_the_one_that_would_be_composed() {
        let http = "server { location / { } location /b { keepalive_timeout 5 7; } }";
        testing::run(http, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            x.response.status = 200;
            x.response.content_type = Some(Text::Static(b"text/plain"));
            x.response.content_length = Some(6);
            x.response.last_modified = Some(784_111_777);
            x.response.add(KnownField::Etag, "\"2-6\"");
            x.response.add(KnownField::AcceptRanges, "bytes");
            let first = composed(x);
            assert_eq!(composed(x), first);
            let changes: [fn(&mut Exchange); 10] = [
                |x| x.response.content_type = Some(Text::Static(b"text/plaim")),
                |x| x.response.content_length = Some(7),
                |x| x.response.last_modified = None,
                |x| x.response.set(KnownField::Etag, "\"2-7\""),
                |x| x.response.add(KnownField::Vary, "Cookie"),
                |x| x.keep_alive = !x.keep_alive,
                |x| x.response.status = 206,
                |x| x.response.location = Some(Text::Static(b"/x")),
                |x| x.response.charset = Some(Text::Static(b"utf-8")),
                |x| x.response.date = Some(Text::Static(b"today")),
            ];
            for change in changes {
                let (before, numbered) = (composed(x), number(x));
                change(x);
                assert!(number(x) == 0 || number(x) != numbered);
                assert_ne!(composed(x), before);
                assert_ne!(composed(x), before);
            }
        });
    }
}
