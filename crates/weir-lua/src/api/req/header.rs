//! `ngx.req.set_header`, `clear_header`, and `add_header` of `ngx.req`.

use weir_engine::exchange::FieldPattern;
use weir_http::{KnownField, classify};

use crate::api::header::{listed, safe_name};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::vm::phase::REQUEST;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("req.set_header", REQUEST, set_request),
    function("req.clear_header", REQUEST, |l| {
        let name = expect_string(&l, 1, "clear_header")?;
        let name = safe_name(&name);
        lend::exchange(|x| x.remove_request_fields(FieldPattern::Exactly(&name)))?;
        Ok(CallDone::Results(0))
    }),
    function("req._add_header", REQUEST, add_request),
];

/// `add_header` of `ngx.req`: its values are added to those that are there, unless a request has but one of the name.
fn add_request(l: LuaState) -> CallOutcome {
    let name = expect_string(&l, 1, "add_header")?;
    let name = safe_name(&name);
    add_request_values(&name, listed(l, 2)?)?;
    Ok(CallDone::Results(0))
}

pub(crate) fn add_request_values(name: &[u8], mut list: Vec<Vec<u8>>) -> Result<(), LuaRaise> {
    let known = classify(name);
    if known == KnownField::ContentLength && list.iter().flatten().any(|byte| !byte.is_ascii_digit()) {
        return Err(LuaRaise::text("failed to set header"));
    }
    let only = has_one_value(name).then(|| list.pop()).flatten();
    lend::exchange(|x| match only {
        Some(value) => x.set_request_field(name, &value),
        None => list.iter().for_each(|value| x.add_request_field(name, value)),
    })
}

fn set_request(l: LuaState) -> CallOutcome {
    let name = expect_string(&l, 1, "set_header")?;
    let name = safe_name(&name);
    set_request_values(&name, listed(l, 2)?)?;
    Ok(CallDone::Results(0))
}

/// Gives the request's field these values, none for an absent one.
pub(crate) fn set_request_values(name: &[u8], mut list: Vec<Vec<u8>>) -> Result<(), LuaRaise> {
    let known = classify(name);
    if list.len() > 1 && has_one_value(name) {
        list.drain(..list.len() - 1);
    }
    if known == KnownField::ContentLength && list.iter().flatten().any(|byte| !byte.is_ascii_digit()) {
        return Err(LuaRaise::text("failed to set header"));
    }
    lend::exchange(|x| match &list[..] {
        [] => x.remove_request_fields(FieldPattern::Exactly(name)),
        // The first one replaces those that are there, and is none if it is empty.
        [first, more @ ..] => {
            match first.is_empty() {
                true => x.remove_request_fields(FieldPattern::Exactly(name)),
                false => x.set_request_field(name, first),
            }
            more.iter().for_each(|value| x.add_request_field(name, value));
        }
    })
}

/// Whether a request has such a field once: of several values the last counts.
fn has_one_value(name: &[u8]) -> bool {
    ONE_VALUE.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Fields that ngx_lua gives one value.
const ONE_VALUE: [&[u8]; 24] = [
    b"Accept-Encoding",
    b"Authorization",
    b"Connection",
    b"Content-Length",
    b"Content-Type",
    b"Date",
    b"Depth",
    b"Destination",
    b"Expect",
    b"Host",
    b"If-Match",
    b"If-Modified-Since",
    b"If-None-Match",
    b"If-Range",
    b"If-Unmodified-Since",
    b"Keep-Alive",
    b"Overwrite",
    b"Range",
    b"Referer",
    b"Transfer-Encoding",
    b"Upgrade",
    b"User-Agent",
    b"Via",
    b"X-Real-IP",
];
