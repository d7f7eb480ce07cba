//! `ngx.req.set_header`, `clear_header`, and `add_header` of `ngx.req`.

use weir_engine::exchange::FieldPattern;
use weir_http::{KnownField, classify};

use crate::api::header::{listed, safe_name, values};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::vm::phase::REQUEST;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("req.set_header", REQUEST, set_request),
    function("req.clear_header", REQUEST, |l| {
        let name = safe_name(&expect_string(&l, 1, "clear_header")?);
        lend::exchange(|x| x.remove_request_fields(FieldPattern::Exactly(&name)))?;
        Ok(CallDone::Results(0))
    }),
    function("req._add_header", REQUEST, add_request),
];

/// `add_header` of `ngx.req`: its values are added to those that are there, unless a request has but one of the name.
fn add_request(l: LuaState) -> CallOutcome {
    let name = safe_name(&expect_string(&l, 1, "add_header")?);
    let mut list = listed(l, 2)?;
    let known = classify(&name);
    if known == KnownField::ContentLength && list.iter().flatten().any(|byte| !byte.is_ascii_digit()) {
        return Err(LuaRaise::text("failed to set header"));
    }
    let only = matches!(known, KnownField::Host | KnownField::ContentLength).then(|| list.pop()).flatten();
    lend::exchange(|x| match only {
        Some(value) => x.set_request_field(&name, &value),
        None => list.iter().for_each(|value| x.add_request_field(&name, value)),
    })?;
    Ok(CallDone::Results(0))
}

fn set_request(l: LuaState) -> CallOutcome {
    let name = safe_name(&expect_string(&l, 1, "set_header")?);
    let mut list = values(l, 2)?;
    let known = classify(&name);
    if matches!(known, KnownField::Host | KnownField::ContentLength | KnownField::Connection)
        && list.len() > 1
    {
        // Of these a request has one: the last.
        list.drain(..list.len() - 1);
    }
    if known == KnownField::ContentLength && list.iter().flatten().any(|byte| !byte.is_ascii_digit()) {
        return Err(LuaRaise::text("failed to set header"));
    }
    lend::exchange(|x| match &list[..] {
        [] => x.remove_request_fields(FieldPattern::Exactly(&name)),
        [first, more @ ..] => {
            x.set_request_field(&name, first);
            more.iter().for_each(|value| x.add_request_field(&name, value));
        }
    })?;
    Ok(CallDone::Results(0))
}
