//! `ngx.resp`

use crate::api::header::{add_response, safe_name, values};
use crate::run::function::{ApiFunction, CallDone, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::vm::phase::REQUEST;

pub(crate) const TABLE: &[ApiFunction] = &[function("resp._add_header", REQUEST, |l| {
    let name = safe_name(&expect_string(&l, 1, "add_header")?);
    if l.is_none_or_nil(2) {
        return Err(LuaRaise::Plain("invalid header value".to_owned()));
    }
    for value in values(l, 2)? {
        lend::exchange(|x| add_response(x, &name, &value))?;
    }
    Ok(CallDone::Results(0))
})];
