//! Heads that came before. A client that sends the same head again (a program that polls, a proxy, a pipeline) has it
//! read and checked once: what follows from its bytes alone is copied, at a quarter of the instructions.
//!
//! A head ends at its empty line and nothing after that is looked at when it is read. So where input begins with the
//! bytes of a head that was read before, reading would come to the same; the property tests of this file compare. What does
//! not follow from the bytes is not stored: the virtual server, its rules for values, the client's certificate and
//! keep-alive are judged again ([`check_again`](crate::request_head::check_again)).

use std::cell::RefCell;
use std::rc::Rc;

use weir_http::h1::{HeadLimits, StoreTurns};
use weir_http::{Method, Version};

use super::{Exchange, KnownBody, KnownFile, KnownPass, KnownResponse, KnownScope, Request, ResponsePlace};
use crate::open_file::OpenFile;

/// The heads that one worker keeps: that of a connection has the place that its number leads to.
#[derive(Default)]
pub(crate) struct KnownHeads(RefCell<Vec<HeadPlace>>);

/// A place for a head.
#[derive(Default)]
struct HeadPlace {
    known: Option<Box<KnownHead>>,
    turns: StoreTurns,
    response: ResponsePlace,
}

/// A head and what was made of it.
#[derive(Default)]
struct KnownHead {
    bytes: Vec<u8>,
    limits: HeadLimits,
    request: Request,
}

impl KnownHeads {
    /// How many of them have a response.
    pub(crate) fn responses(&self) -> usize {
        self.0.borrow().iter().filter(|place| place.response.is_known()).count()
    }

    /// How many of them are passed on at sight.
    pub(crate) fn passes(&self) -> usize {
        let is_passed = |place: &&HeadPlace| matches!(place.response, ResponsePlace::Passed(_));
        self.0.borrow().iter().filter(is_passed).count()
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.0.replace(Vec::new());
    }
}

/// Makes `x` the request of the head that `input` begins with, if the one that came before it in its place was the same
/// and was read under the same limits. The head is in the arena then, and [`check_again`](crate::request_head::check_again) does
/// for [`check`](crate::request_head::check).
#[inline]
pub fn recall(x: &mut Exchange, input: &[u8], limits: &HeadLimits) -> bool {
    let Exchange { server, connection, request, arena, known: course, .. } = x;
    let mut places = server.caches.known.0.borrow_mut();
    let Some(place) = places.get_mut(place(connection.number)) else { return false };
    match &place.known {
        Some(known) if input.starts_with(&known.bytes) && known.limits == *limits => {
            arena.push(&known.bytes);
            request.copy_from(&known.request);
            place.turns.recalled();
            *course = place.response.course();
            true
        }
        _ => false,
    }
}

/// What is known from the sight of a head.
pub(crate) enum KnownSight {
    /// The response, and the length of the head.
    Response(Rc<KnownResponse>, usize),
    /// Maybe where the response comes from, see [`find_pass`].
    Passed,
    /// Nothing.
    Nothing,
}

/// What is known from the sight of the head that `input` begins with.
#[inline]
pub(crate) fn find(x: &Exchange, input: &[u8]) -> KnownSight {
    let mut places = x.server.caches.known.0.borrow_mut();
    let Some(place) = places.get_mut(place(x.connection.number)) else { return KnownSight::Nothing };
    let (known, response) = match (&place.known, &place.response) {
        (Some(known), ResponsePlace::Known(response)) => (known, response),
        (_, ResponsePlace::Passed(_)) => return KnownSight::Passed,
        _ => return KnownSight::Nothing,
    };
    if !response.at_sight || !fits(x, &response.scope, known, input) {
        return KnownSight::Nothing;
    }
    place.turns.recalled();
    KnownSight::Response(response.clone(), known.bytes.len())
}

/// Where requests with the head that `input` begins with are passed to, with the length of that head.
#[inline]
pub(crate) fn find_pass(x: &Exchange, input: &[u8]) -> Option<(Rc<KnownPass>, usize)> {
    let mut places = x.server.caches.known.0.borrow_mut();
    let place = places.get_mut(place(x.connection.number))?;
    let (Some(known), ResponsePlace::Passed(pass)) = (&place.known, &place.response) else { return None };
    if !fits(x, &pass.scope, known, input) {
        return None;
    }
    place.turns.recalled();
    Some((pass.clone(), known.bytes.len()))
}

/// Whether `input` begins with the head `known`, and that leads to `scope` on the connection of `x`.
#[inline(always)]
fn fits(x: &Exchange, scope: &KnownScope, known: &KnownHead, input: &[u8]) -> bool {
    std::ptr::eq(scope.hosts.as_ptr(), Rc::as_ptr(&*x.connection.hosts.borrow()))
        && input.starts_with(&known.bytes)
        && known.limits == x.server.settings.limits()
}

/// Makes `x` the request of the head in its place, which [`find`] has found.
pub(crate) fn fill(x: &mut Exchange) {
    let Exchange { server, connection, request, arena, .. } = x;
    let places = server.caches.known.0.borrow();
    if let Some(HeadPlace { known: Some(known), .. }) = places.get(place(connection.number)) {
        arena.push(&known.bytes);
        request.copy_from(&known.request);
    }
}

/// A file as it is stored with the response to another head, if it is the same.
pub(crate) fn file_of_another(x: &Exchange, path: &[u8], file: &OpenFile) -> Option<Rc<KnownFile>> {
    let places = x.server.caches.known.0.borrow();
    let files = places.iter().filter_map(|place| match &place.response {
        ResponsePlace::Known(response) => match &response.body {
            KnownBody::File(file) => Some(file),
            _ => None,
        },
        ResponsePlace::Unknown { .. } | ResponsePlace::Passed(_) => None,
    });
    files.into_iter().find(|known| known.is(path, file)).cloned()
}

/// Stores the head of `x`, which was just read and whose target and host were checked, if what was made of it follows from
/// its bytes alone: nothing was composed beside it, and nothing of it is to be dropped or refused.
#[inline]
pub(crate) fn keep(x: &Exchange) {
    // Those of HTTP/2 and 3 are composed of what came.
    if x.request.head.version < Version::V20 {
        keep_read(x);
    }
}

#[inline(never)]
fn keep_read(x: &Exchange) {
    let mut places = x.server.caches.known.0.borrow_mut();
    if places.is_empty() {
        places.resize_with(PLACES, HeadPlace::default);
    }
    let place = &mut places[place(x.connection.number)];
    if place.turns.stores() && is_plain(x) {
        place.known.get_or_insert_default().set(x);
        place.response = ResponsePlace::default();
    }
}

/// Stores the response to the head of `x`, which is in its place.
pub(crate) fn keep_response(x: &Exchange, response: KnownResponse) {
    let mut places = x.server.caches.known.0.borrow_mut();
    if let Some(place) = places.get_mut(place(x.connection.number)) {
        place.response = ResponsePlace::Known(Rc::new(response));
    }
}

/// Stores where requests with the head of `x`, which is in its place, are passed to.
pub(crate) fn keep_pass(x: &Exchange, pass: KnownPass) {
    let mut places = x.server.caches.known.0.borrow_mut();
    if let Some(place) = places.get_mut(place(x.connection.number)) {
        place.response = ResponsePlace::Passed(Rc::new(pass));
    }
}

fn is_plain(x: &Exchange) -> bool {
    let head = &x.request.head;
    // The settings under which its target was normalised: what is normal with slashes merged is normal without.
    let settings = &x.connection.server().settings;
    let usual = !matches!(head.method, Method::Connect | Method::Trace | Method::Options);
    usual
        && settings.merge_slashes
        && head.absolute.is_none()
        && x.arena.mark() as usize == head.len
        && head.len <= LONGEST
        && head.fields.len() <= FIELDS
        && head.fields.iter().all(|field| field.valid)
}

impl KnownHead {
    /// Those of `x`.
    fn set(&mut self, x: &Exchange) {
        let KnownHead { bytes, limits, request } = self;
        bytes.clear();
        bytes.extend_from_slice(x.arena.whole());
        *limits = x.connection.server().settings.limits();
        request.copy_from(&x.request);
    }
}

#[inline]
fn place(connection: u64) -> usize {
    connection as usize % PLACES
}

/// Heads that a worker keeps: 120 KB at most, mostly a tenth of that.
const PLACES: usize = 32;
/// Bytes of a head that is stored.
const LONGEST: usize = 2048;
/// Fields of a head that is stored.
const FIELDS: usize = 64;

#[cfg(test)]
mod tests;
