//! `ngx.ssl.session`: sessions of TLS 1.2 that have identifiers. Those of tickets need nobody who keeps them.

use super::{OVER, current};
use crate::api::{Done, Function, expect_string, fail, function};
use crate::lend;
use crate::phase::Phase;

pub(super) const TABLE: &[Function] = &[
    function("_ssl.session_id", 0, |l| {
        let Some(handshake) = current()? else {
            return fail(l, "uninitialized session id len in lua context");
        };
        let wishes = handshake.wishes.borrow();
        let id = wishes.made.as_ref().map_or(&handshake.greeting.hello.session_id, |(id, _)| id);
        let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        l.push_bytes(text.as_bytes());
        Ok(Done::Results(1))
    }),
    function("_ssl.serialized_session", 0, |l| {
        let handshake = current()?;
        match handshake.as_ref().and_then(|handshake| handshake.wishes.borrow().made.clone()) {
            Some((_, session)) => l.push_bytes(&session),
            None => return fail(l, "uninitialized session len in lua context"),
        }
        Ok(Done::Results(1))
    }),
    function("_ssl.set_serialized_session", 0, |l| {
        let session = expect_string(&l, 1, "set_serialized_session")?;
        match current()?.filter(|_| lend::phase() == Phase::SslSessionFetch) {
            Some(handshake) => handshake.wishes.borrow_mut().found = Some(session),
            None => return fail(l, OVER),
        }
        l.push_boolean(true);
        Ok(Done::Results(1))
    }),
];
