//! The response head that came before: a server that sends the same one again, as one does within a second whose `Date` it
//! sends, has it read once.
//!
//! A head ends at its empty line and nothing after that is looked at when it is read, so that bytes that begin with those
//! of a head that was read are that head.

use std::cell::RefCell;
use std::rc::Rc;

use weir_engine::exchange::HeadMemo;
use weir_http::Method;
use weir_http::h1::{BodyLength, ResponseHead, StoreTurns};
use weir_upstream::protocol::KnownHead;

/// The last head of a location's responses that was stored.
#[derive(Default)]
pub(super) struct KnownResponse(RefCell<StoredHead>);

#[derive(Default)]
struct StoredHead {
    /// None at first.
    bytes: Vec<u8>,
    head: ResponseHead,
    turns: StoreTurns,
    /// It came again so often, as far as that is counted.
    uses: u8,
    memo: Option<Rc<HeadMemo>>,
}

impl KnownResponse {
    /// Makes `head` the one that `bytes` begin with, if it is the one that is stored.
    #[inline]
    pub(super) fn recall(&self, bytes: &[u8], head: &mut ResponseHead) -> bool {
        let mut stored = self.0.borrow_mut();
        if stored.bytes.is_empty() || !bytes.starts_with(&stored.bytes) {
            return false;
        }
        head.copy_from(&stored.head);
        stored.turns.recalled();
        stored.uses = stored.uses.saturating_add(1);
        true
    }

    /// Where clients' heads are stored that come of the head that was recalled last, once it came a few times; `None` before.
    #[inline]
    pub(super) fn memo(&self) -> Option<Rc<HeadMemo>> {
        let mut stored = self.0.borrow_mut();
        if stored.uses < SELDOM { None } else { Some(stored.memo.get_or_insert_default().clone()) }
    }

    /// The head that `bytes` begin with, if it is the one that is stored, came a few times, and its length as the response to a
    /// GET is known.
    #[inline]
    pub(super) fn sight(&self, bytes: &[u8]) -> Option<KnownHead> {
        let mut stored = self.0.borrow_mut();
        if stored.uses < SELDOM || !bytes.starts_with(&stored.bytes) {
            return None;
        }
        let body = match stored.head.body_length(Method::Get) {
            BodyLength::None => 0,
            BodyLength::Bytes(length) => length,
            BodyLength::Chunked | BodyLength::UntilClose => return None,
        };
        let (len, status, keep_alive) = (stored.head.len, stored.head.status, stored.head.keep_alive());
        stored.turns.recalled();
        let memo = stored.memo.get_or_insert_default().clone();
        (status != 101).then_some(KnownHead { len, status, body, keep_alive, memo })
    }

    /// Stores `head`, which `bytes` begin with and which is whole and good.
    pub(super) fn keep(&self, bytes: &[u8], head: &ResponseHead) {
        let stored = &mut *self.0.borrow_mut();
        if !stored.turns.stores() {
            return;
        }
        if let Some(bytes) = bytes.get(..head.len).filter(|bytes| bytes.len() <= LONGEST) {
            stored.bytes.clear();
            stored.bytes.extend_from_slice(bytes);
            stored.head.copy_from(head);
            (stored.uses, stored.memo) = (0, None);
        }
    }
}

/// A head that came so often gets the clients' head stored.
const SELDOM: u8 = 3;
/// Bytes of a head that is stored.
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_http::h1::{HeadLimits, HeadParse};

    use super::*;

    fn read(known: Option<&KnownResponse>, bytes: &[u8]) -> String {
        let mut head = ResponseHead::default();
        let limits = HeadLimits::default();
        if known.is_some_and(|known| known.recall(bytes, &mut head)) {
            return format!("{:?} {head:?}", Ok::<_, ()>(HeadParse::Complete));
        }
        let read = head.parse(bytes, &limits);
        if let (Some(known), Ok(HeadParse::Complete)) = (known, read) {
            known.keep(bytes, &head);
        }
        match read {
            Ok(read) => format!("{:?} {head:?}", Ok::<_, ()>(read)),
            Err(bad) => format!("{bad:?}"),
        }
    }

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nDate: a\r\nContent-Length: 12\r\nX-B: c\r\n\r\n";

    #[test]
    fn a_head_that_comes_again_is_recalled_whatever_follows_it() {
        let known = KnownResponse::default();
        read(Some(&known), HEAD);
        for rest in [&b""[..], b"x", b"\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"] {
            let bytes = [HEAD, rest].concat();
            assert!(known.recall(&bytes, &mut ResponseHead::default()));
            assert_eq!(read(Some(&known), &bytes), read(None, &bytes));
        }
        assert!(!known.recall(&HEAD[..HEAD.len() - 1], &mut ResponseHead::default()));
    }

    proptest! {
        /// The short cut and the whole way come to the same for heads that differ in a byte, in any order.
        #[test]
        fn recalling_is_reading(turns in prop::collection::vec((0..HEAD.len(), any::<u8>(), 0..3_u8), 1..40)) {
            let known = KnownResponse::default();
            for (at, byte, kind) in turns {
                let mut bytes = [HEAD, b"body"].concat();
                match kind {
                    0 => bytes[at] = byte,
                    1 => bytes.truncate(at),
                    _ => {}
                }
                prop_assert_eq!(read(Some(&known), &bytes), read(None, &bytes));
            }
        }
    }
}
