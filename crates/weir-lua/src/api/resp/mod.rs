//! `ngx.resp`

use crate::api::header::{add_values, response_name, values};
use crate::run::function::{ApiFunction, CallDone, LuaRaise, expect_string, function};
use crate::vm::phase::REQUEST;

pub(crate) const TABLE: &[ApiFunction] = &[function("resp._add_header", REQUEST, |l| {
    let name = expect_string(&l, 1, "add_header")?;
    let name = response_name(&name)?;
    if l.is_none_or_nil(2) {
        return Err(LuaRaise::Plain("invalid header value".to_owned()));
    }
    add_values(&name, values(l, 2)?)?;
    Ok(CallDone::Results(0))
})];
