//! `ngx.ssl.session`: sessions of TLS 1.2 that have identifiers. Tickets need no store.

use aws_lc_rs::digest::{SHA256, digest};

use crate::api::ssl::{OVER, current};
use crate::run::function::{ApiFunction, CallDone, expect_string, fail, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_ssl.session_id", 0, |l| {
        let Some(handshake) = current()? else {
            return fail(l, "uninitialized session id len in lua context");
        };
        let wishes = handshake.wishes.borrow();
        let id = wishes.made.as_ref().map_or(&handshake.greeting.hello.session_id, |(id, _)| id);
        let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        l.push_bytes(text.as_bytes());
        Ok(CallDone::Results(1))
    }),
    function("_ssl.serialized_session", 0, |l| {
        let handshake = current()?;
        match handshake.as_ref().and_then(|handshake| handshake.wishes.borrow().made.clone()) {
            Some((_, session)) => l.push_bytes(&seal(&session)),
            None if lend::phase() == ScriptPhase::SslSessionFetch => {
                return fail(l, "bad session in lua context");
            }
            None => return fail(l, "uninitialized session len in lua context"),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.set_serialized_session", 0, |l| {
        let sealed = expect_string(&l, 1, "set_serialized_session")?;
        let Some(handshake) = current()?.filter(|_| lend::phase() == ScriptPhase::SslSessionFetch) else {
            return fail(l, OVER);
        };
        let Some(session) = open(&sealed) else { return fail(l, "failed to de-serialize session") };
        handshake.wishes.borrow_mut().found = Some(session.to_vec());
        l.push_boolean(true);
        Ok(CallDone::Results(1))
    }),
];

/// A session with its sum, so that other or damaged bytes are recognised.
fn seal(session: &[u8]) -> Vec<u8> {
    [&sum(session), session].concat()
}

/// The session that [`seal`] was given.
fn open(sealed: &[u8]) -> Option<&[u8]> {
    let (own, session) = sealed.split_first_chunk::<SUM>()?;
    (*own == sum(session)).then_some(session)
}

/// The beginning of its SHA-256.
fn sum(session: &[u8]) -> [u8; SUM] {
    let whole = digest(&SHA256, session);
    std::array::from_fn(|at| whole.as_ref()[at])
}

const SUM: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_sealed_is_opened(session in prop::collection::vec(any::<u8>(), 0..300), bit in 0usize..2400) {
            let mut sealed = seal(&session);
            prop_assert_eq!(open(&sealed), Some(&session[..]));
            let bit = bit % (sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&sealed), None);
        }

        #[test]
        fn other_bytes_are_no_session(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(open(&bytes), None, "by chance once in 2^64");
        }
    }
}
