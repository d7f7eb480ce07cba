//! `ngx.arg` for compiled code.

use crate::api::FilterArg;
use crate::api::arg::SetArgs;
use crate::api::ffi::{FOUND, FfiAnswer, NOTHING, REFUSED, guarded};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

/// `ngx.arg[number]`: a text; for a filter's second one `flag` says whether the piece is the last.
pub(crate) unsafe extern "C" fn arg(number: f64, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude lends its own result struct, exclusively during the call.
    let answer = unsafe { &mut *answer };
    guarded(|| {
        let found = match lend::phase() {
            ScriptPhase::Set => lend::exchange(|x| {
                let arg = (number >= 1.0).then(|| x.state::<SetArgs>().0.get(number as usize - 1)).flatten();
                arg.map_or(NOTHING, |arg| {
                    answer.text(arg);
                    FOUND
                })
            }),
            ScriptPhase::BodyFilter if number == 1.0 => lend::exchange(|x| {
                answer.text(&x.state::<FilterArg>().bytes);
                FOUND
            }),
            ScriptPhase::BodyFilter if number == 2.0 => lend::exchange(|x| {
                answer.flag = u32::from(x.state::<FilterArg>().last);
                LAST
            }),
            _ => return REFUSED,
        };
        found.unwrap_or(REFUSED)
    })
}

/// `flag` is what was asked for.
const LAST: i32 = 2;
