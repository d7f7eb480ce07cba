//! `ngx.say` and `ngx.print` for compiled code.

use weir_http::Method;

use crate::api::ffi::{FOUND, REFUSED, changing, slice};
use crate::api::{AHEAD, FIRST_SAID};
use crate::run::lend;
use crate::run::settings::prepare;
use crate::vm::phase::OUTPUT;

/// Adds a text to the response, with a line feed after it if `line` is 1. Whatever needs a word or has to wait is
/// refused.
pub(crate) unsafe extern "C" fn say(text: *const u8, len: usize, line: i32) -> i32 {
    // SAFETY: the prelude passes a Lua string, kept during the call.
    let text = unsafe { slice(text, len) };
    changing(|| {
        if !lend::phase().is_in(OUTPUT) {
            return REFUSED;
        }
        let said = lend::run(|run| {
            let much = run.said.len() + text.len() >= AHEAD;
            if much || run.raw || run.broken || run.ended {
                return Ok(REFUSED);
            }
            let first = !run.began;
            let reported = lend::exchange(|x| match first {
                true => {
                    prepare(x, run.default_type);
                    // The connection gets it back when it has copied it.
                    if let Some(wire) = x.transport.h1() {
                        run.said = wire.stream.spare();
                    }
                    FOUND
                }
                // Nothing follows the head of its response, which is reported to the script.
                false if x.request.head.method == Method::Head => REFUSED,
                false => FOUND,
            })?;
            if reported == FOUND {
                run.began = true;
                if run.said.is_empty() {
                    run.said.reserve(FIRST_SAID);
                }
                run.said.extend_from_slice(text);
                run.said.extend_from_slice(if line == 1 { b"\n" } else { b"" });
            }
            Ok(reported)
        });
        said.flatten().unwrap_or(REFUSED)
    })
}
