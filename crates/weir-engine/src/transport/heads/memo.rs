//! Responses whose head is known from what they come from: a cached response, a head that a server has sent before.
//!
//! What has such a source keeps a [`HeadMemo`] beside it. For plain requests ([`ready`](super::ready)) in one location the head
//! that clients get of it is always the same but for its date, so that it is composed once, and read, filtered and composed
//! no more. What is in `x.response` is the same both ways, for logs and scripts.

use std::cell::RefCell;
use std::rc::Rc;

use super::{another, around_date, dated, encode, lasting, lasting_fields, ready};
use crate::exchange::{Exchange, HeadMemo, MemoHead, ReadyHead};
use crate::transport::{ClientStream, Transport, keepalive};

impl Exchange {
    /// Makes `x.response` the head that came of the source of `memo` before, as header filters leave it. `false`: it is not known
    /// what it will be. The caller makes it then, and it is stored in `memo` unless the caller says that it may be another one
    /// next time ([`Exchange::forget_head`]).
    #[inline]
    pub fn recall_head(&mut self, memo: &Rc<HeadMemo>) -> bool {
        let Some(place) = place(self, memo) else { return false };
        ready::is_plain(self) && recall(self, memo, place)
    }

    /// As [`recall_head`](Exchange::recall_head), for a response that is sent at once and that no log sees: of the head there is what
    /// is needed to send it. `false`: it is not known, and nothing was done.
    #[inline]
    pub fn recall_unseen_head(&mut self, memo: &Rc<HeadMemo>) -> bool {
        let is_plain = self.keep_alive && keepalive::possible(self) && ready::is_plain(self);
        let Some(known) = place(self, memo).filter(|_| is_plain) else { return false };
        let known = known.borrow();
        let of_plan = |head: &&MemoHead| head.plan.as_ptr() == Rc::as_ptr(&self.plan);
        let Some(head) = known.as_deref().filter(of_plan) else { return false };
        let response = &mut self.response;
        (response.status, response.content_length) = (head.status, Some(head.length));
        (response.ready, response.header_only) = (ReadyHead::Known(head.number), false);
        response.memo = Some(memo.clone());
        true
    }

    /// What `x.response` says follows from more than its source and its location.
    pub fn forget_head(&mut self) {
        if self.response.ready == ReadyHead::Repeated {
            (self.response.ready, self.response.memo) = (ReadyHead::Open, None);
        }
    }
}

#[inline]
fn place<'m>(x: &Exchange, memo: &'m HeadMemo) -> Option<&'m RefCell<Option<Box<MemoHead>>>> {
    match &x.transport {
        Transport::H1(_) => Some(&memo.composed),
        Transport::Stream(ClientStream::H2(_)) => Some(&memo.numbered),
        _ => None,
    }
}

fn recall(x: &mut Exchange, memo: &Rc<HeadMemo>, place: &RefCell<Option<Box<MemoHead>>>) -> bool {
    // As it will be when the response is sent.
    x.keep_alive = x.keep_alive && keepalive::possible(x);
    let Exchange { plan, response, keep_alive, .. } = x;
    response.memo = Some(memo.clone());
    response.ready = ReadyHead::Repeated;
    let known = place.borrow();
    let Some(head) = known.as_deref().filter(|head| *keep_alive && head.plan.as_ptr() == Rc::as_ptr(plan))
    else {
        return false;
    };
    response.status = head.status;
    response.content_length = Some(head.length);
    response.last_modified = head.modified;
    response.reason.clone_from(&head.reason);
    response.content_type.clone_from(&head.kind);
    response.charset.clone_from(&head.charset);
    response.headers.extend_from_slice(&head.fields);
    (response.allow_ranges, response.header_only) = (head.allow_ranges, false);
    response.ready = ReadyHead::Known(head.number);
    true
}

/// Appends the head of `x.response` in HTTP/1 if it is stored in its memo, or can be.
#[inline]
pub(super) fn write(x: &Exchange, out: &mut Vec<u8>) -> bool {
    let Some(memo) = &x.response.memo else { return false };
    match x.response.ready {
        ReadyHead::Known(number) => match memo.composed.borrow().as_deref() {
            // Since it was recalled the connection may have become one that ends.
            Some(head) if head.number == number && x.keep_alive => {
                dated(x, &head.before, &head.after, out);
                true
            }
            _ => false,
        },
        ReadyHead::Repeated if is_storable(x) => {
            let start = out.len();
            encode::head(x, out);
            let stored = around_date(x, &out[start..]).and_then(|around| of(x, around));
            memo.composed.replace(stored.map(Box::new));
            true
        }
        _ => false,
    }
}

/// The number of the head of `x.response` in HTTP/2 if it can be stored in its memo.
#[inline]
pub(super) fn number(x: &Exchange) -> Option<u32> {
    let memo = x.response.memo.as_ref()?;
    if x.response.ready != ReadyHead::Repeated || !is_storable(x) {
        return None;
    }
    let head = of(x, (b"", b""))?;
    let number = head.number;
    memo.numbered.replace(Some(Box::new(head)));
    Some(number)
}

/// Whether all of the head is in what [`recall`] restores.
fn is_storable(x: &Exchange) -> bool {
    let response = &x.response;
    let others = [&response.location, &response.server, &response.date, &response.override_charset];
    let flags = [
        response.header_only,
        response.chunked,
        response.not_modified,
        response.unframed,
        response.expect_trailers,
        response.vary_encoding,
        !x.keep_alive,
        x.server.is_retired(),
    ];
    !flags.contains(&true)
        && others.iter().all(|text| text.is_none())
        && response.content_length.is_some()
        && response.trailers.is_empty()
        && response.content_offset == 0
        && response.headers.len() <= FIELDS
        && is_usual_type(x)
}

/// Whether type and charset, where they are not written as they came, are written in the same way.
fn is_usual_type(x: &Exchange) -> bool {
    let Some(written) = x.response.as_written() else { return true };
    let (Some(kind), Some(charset)) = (&x.response.content_type, &x.response.charset) else { return false };
    let parts: [&[u8]; 3] = [x.text(kind), b"; charset=", x.text(charset)];
    x.arena.get(written) == parts.concat()
}

/// The head of `x.response`, with its bytes `around` its date.
fn of(x: &Exchange, around: (&[u8], &[u8])) -> Option<MemoHead> {
    let response = &x.response;
    let text = |text: &Option<_>| text.as_ref().map(|text| lasting(x, text));
    Some(MemoHead {
        plan: Rc::downgrade(&x.plan),
        number: another(&mut x.server.caches.heads.borrow_mut().last),
        status: response.status,
        length: response.content_length?,
        modified: response.last_modified,
        allow_ranges: response.allow_ranges,
        reason: text(&response.reason),
        kind: text(&response.content_type),
        charset: text(&response.charset),
        fields: lasting_fields(x),
        before: around.0.into(),
        after: around.1.into(),
    })
}

/// Fields besides the typed ones that such a head may have.
const FIELDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text;
    use crate::testing;
    use crate::transport::heads;
    use weir_http::KnownField;

    /// A response of the source of `memo`: whether its head was known, what it is, and its number in HTTP/2.
    fn sent(
        x: &mut Exchange,
        memo: &Rc<HeadMemo>,
        over_http2: bool,
        more: fn(&mut Exchange),
    ) -> (bool, String, u32) {
        x.response.clear();
        let place = if over_http2 { &memo.numbered } else { &memo.composed };
        let known = ready::is_plain(x) && recall(x, memo, place);
        if !known {
            x.response.status = 200;
            x.response.reason = Some(Text::Span(x.arena.push(b"200 Fine")));
            x.response.content_length = Some(5);
            x.response.content_type = Some(Text::Span(x.arena.push(b"text/plain")));
            x.response.charset = Some("utf-8".into());
            x.response.add(KnownField::Etag, "\"a\"");
            x.response.add_named("X-Name".into(), "value".into());
            more(x);
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
    fn a_head_is_known_from_the_second_of_its_source_on() {
        for over_http2 in [false, true] {
            testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
                let (memo, other) = (Rc::<HeadMemo>::default(), Rc::<HeadMemo>::default());
                let (known, head, number) = sent(x, &memo, over_http2, |_| {});
                assert!(!known && head.contains("Fine") && head.contains("; charset=utf-8"), "{head}");
                assert_eq!(sent(x, &memo, over_http2, |_| {}), (true, head.clone(), number));
                assert!(!sent(x, &other, over_http2, |_| {}).0);
                x.keep_alive = false;
                let (known, ending, _) = sent(x, &memo, over_http2, |_| {});
                assert!(!known && ending.contains("Connection: close"), "{ending}");
            });
        }
    }

    #[test]
    fn what_a_memo_does_not_have_is_composed_each_time() {
        let changes: [fn(&mut Exchange); 8] = [
            |x| x.response.location = Some("/x".into()),
            |x| x.response.server = Some("own".into()),
            |x| x.response.date = Some(Text::EMPTY),
            |x| x.response.content_length = None,
            |x| x.response.chunked = true,
            |x| x.response.header_only = true,
            |x| x.response.expect_trailers = true,
            Exchange::forget_head,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
                let memo = Rc::<HeadMemo>::default();
                for _ in 0..3 {
                    assert!(!sent(x, &memo, false, change).0, "{at}");
                }
            });
        }
    }

    #[test]
    fn a_connection_that_ends_meanwhile_has_a_head_of_its_own() {
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            let memo = Rc::<HeadMemo>::default();
            sent(x, &memo, false, |_| {});
            x.response.clear();
            assert!(recall(x, &memo, &memo.composed));
            x.keep_alive = false;
            let mut head = Vec::new();
            heads::head(x, &mut head);
            assert!(String::from_utf8_lossy(&head).contains("Connection: close"));
        });
    }
}
